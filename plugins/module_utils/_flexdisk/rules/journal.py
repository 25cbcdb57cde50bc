# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the journal as values of ZFS properties. Anybody may have written them, so all parts are checked."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.vm import Intent, SinceSnapshot, VmConfig
from . import identity
from .layout import container
from .property_text import LIMIT, check_value, decode_object, encode_json
from .snapshots import is_name
from .unwritten import unwritten

INDEX_PROPERTY = "intents"
# Seconds after the request to shut down. A guest that shuts down later does so for another reason.
LATEST = 3600
# The same limit for a VM of which it is not known when it stopped. It is long enough for the next run of a daily job.
UNTOLD = 36 * 3600
UNKNOWN = "unknown"
_TEXT = re.compile(r"\A[^\x00-\x1f\x7f]{1,255}\Z")
# Fields about rollbacks by the hypervisor. Other entries do not have them, so that earlier versions can read those.
OF_ROLLBACKS = ("before", "config", "generation")
_DATASET = re.compile(r"\A[A-Za-z][A-Za-z0-9_.:/ -]{0,255}\Z")


def intent_property(vm: str) -> str:
    """Return the name of the VM's property, without our prefix."""
    return "intent." + vm


def removal_command(pool: str, vm: str) -> str:
    """Return the command that removes the entry of a VM by hand."""
    return f"zfs inherit {identity.PREFIX}{intent_property(vm)} {container(pool)}"


def written_entries(properties: t.Iterable[str]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield VM and name of each property that is an entry."""
    for name in properties:
        vm = name[len(intent_property("")) :]
        if name.startswith(intent_property("")) and identity.is_uuid(vm):
            yield vm, name


def encode_index(vms: t.Iterable[str]) -> str:
    """Return the list of VMs that have an entry. It is needed because zfs get takes properties only by name, or all."""
    return ",".join(sorted(vms))


def decode_index(value: str) -> t.List[str]:
    """Return the VMs in the list, sorted."""
    return sorted({vm for vm in value.split(",") if identity.is_uuid(vm)})


def encode(entry: Intent) -> str:
    """Return the value of the property. The lists, which only people read, are cut to what ZFS can store."""
    steps = ["".join(c if c.isprintable() else " " for c in step[:200]) for step in entry.steps]
    data = dict(entry._asdict(), steps=steps, moves=list(entry.moves))
    data = {key: value for key, value in data.items() if value or key not in OF_ROLLBACKS}
    while True:
        text = encode_json(data)
        longest = max(("steps", "moves"), key=lambda key: len(str(data[key])))
        if len(text) <= LIMIT or not data[longest]:
            return check_value("the intent", text)
        data[longest].pop()


def decode(value: str) -> t.Optional[Intent]:
    """Return the entry, None for anything that this collection would not have written."""
    try:
        data = decode_object(value)
        before = tuple(SinceSnapshot(*one) for one in data.get("before", ()))
        entry = Intent(**dict(data, steps=tuple(data["steps"]), moves=tuple(map(tuple, data["moves"])), before=before))
        return entry if _valid(entry) else None
    except (KeyError, TypeError, ValueError):
        return None


def datasets_in_use(datasets: t.Iterable[Dataset], empty: t.Optional[Dataset], made: str = "") -> t.List[str]:
    """Return the datasets and snapshots in the place of a VM that somebody may use: datasets that were written to, and
    snapshots with data, holds or clones.

    empty: the container of detached disks, to compare with. made: a dataset that only the hypervisor has written to so
    far. It does not count as used, nor do its snapshots.

    An entry of the journal alone proves nothing: it may still be there when the VM has been in use for long and its
    configuration was lost. Snapshots of a whole pool include such datasets, too.
    """
    known = list(datasets)
    unused = {d.name: d for d in known if d.kind != "snapshot" and (d.name == made or unwritten(d, empty))}
    for one in known:
        parent = unused.get(one.parent) if one.kind == "snapshot" else None
        free = parent is not None and not (one.clones or one.userrefs)
        if parent is not None and free and (parent.name == made or _holds_nothing(one, parent, empty)):
            unused[one.name] = one
    return sorted(d.name for d in known if d.name not in unused)


def _holds_nothing(snapshot: Dataset, parent: Dataset, empty: t.Optional[Dataset]) -> bool:
    """Whether the snapshot of an unwritten dataset has no data. For a volume, its own figures say so."""
    if parent.kind == "volume":
        return True
    return not snapshot.volsize and unwritten(replace(snapshot, kind="filesystem"), empty)


def may_shut_down(entry: Intent, config: VmConfig, now: float) -> bool:
    """Whether the guest of a running VM may still shut down because the run of this entry has asked it to.

    After LATEST seconds it will not. A VM that was started since was not asked. now: seconds since 1970.
    """
    asked = bool(entry.asked) and entry.asked == run_id(config) and config.state == "running"
    return asked and now - identity.seconds_of(entry.since) < LATEST


def has_shut_down(entry: Intent, config: VmConfig, now: float) -> bool:
    """Whether a stopped VM was shut down by its guest because the run of this entry, which is over or was killed, had
    asked it to.

    A shutdown more than LATEST seconds later has another cause. now: seconds since 1970.
    """
    asked_at = identity.seconds_of(entry.since)
    if config.ended_at >= asked_at:
        return config.ended_at - asked_at < LATEST
    return now - asked_at < UNTOLD


def ended_otherwise(entry: Intent, config: VmConfig, now: float) -> bool:
    """Whether a stopped VM was stopped too late to be the effect of a killed run that had asked its guest to shut down.

    now: seconds since 1970.
    """
    asked = bool(entry.asked) and entry.stops and entry.state == "running" and not entry.late
    return asked and config.state == "stopped" and not has_shut_down(entry, config, now)


def run_id(config: VmConfig) -> str:
    """Return the id of this run of the VM, as entries have it."""
    return config.run_id or UNKNOWN


def _valid(entry: Intent) -> bool:
    return (
        identity.is_uuid(entry.plan)
        and bool(_TEXT.match(entry.host))
        and bool(identity.decode_time(entry.since))
        and entry.state in ("running", "stopped")
        and isinstance(entry.autoboot, bool)
        and isinstance(entry.stops, bool)
        and isinstance(entry.boots, bool)
        and isinstance(entry.asked, str)
        and (not entry.asked or bool(_TEXT.match(entry.asked)))
        and isinstance(entry.late, bool)
        and isinstance(entry.rollback, str)
        and (not entry.rollback or is_name(entry.rollback))
        and isinstance(entry.creates, str)
        and (not entry.creates or bool(identity.VM_NAME.match(entry.creates)))
        and isinstance(entry.member, str)
        and (not entry.member or bool(identity.member_of(entry.member)[0]))
        and isinstance(entry.deletes, str)
        and (not entry.deletes or bool(_TEXT.match(entry.deletes)))
        and all(_TEXT.match(step) for step in entry.steps)
        and all(
            _is_number(guid) and _DATASET.match(source) and _DATASET.match(target)
            for guid, source, target in entry.moves
        )
        and all(map(_is_number, (number for one in entry.before for number in one[:3])))
        and all(isinstance(one.same_size, bool) for one in entry.before)
        and all(isinstance(text, str) and (not text or _TEXT.match(text)) for text in (entry.config, entry.generation))
    )


def _is_number(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
