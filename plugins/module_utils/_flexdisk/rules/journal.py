# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Entries of the journal as property values. Anybody may have written one: it is valid in every part, or unreadable."""

from __future__ import annotations

import json
import re
import typing as t

from ..model.dataset import Dataset
from ..model.vm import JournalEntry
from . import identity
from .property_text import LIMIT, check_value, decode_text, encode_text
from .snapshots import is_name
from .unwritten import unwritten

INDEX = "intents"
_TEXT = re.compile(r"\A[^\x00-\x1f\x7f]{1,255}\Z")
_DATASET = re.compile(r"\A[A-Za-z][A-Za-z0-9_.:/ -]{0,255}\Z")


def property_of(vm: str) -> str:
    """Name of the VM's property, without our prefix."""
    return "intent." + vm


def written(properties: t.Iterable[str]) -> t.Iterator[t.Tuple[str, str]]:
    """VMs and names of the properties that are entries."""
    for name in properties:
        vm = name[len(property_of("")) :]
        if name.startswith(property_of("")) and identity.is_uuid(vm):
            yield vm, name


def encode_index(vms: t.Iterable[str]) -> str:
    """The list of VMs that have an entry. It is needed because zfs reads properties only by their names, or all."""
    return ",".join(sorted(vms))


def decode_index(value: str) -> t.List[str]:
    """VMs that a list names, sorted."""
    return sorted({vm for vm in value.split(",") if identity.is_uuid(vm)})


def encode(record: JournalEntry) -> str:
    """The value of the property. The lists, which only people read, are cut to what ZFS can hold."""
    steps = ["".join(c if c.isprintable() else " " for c in step[:200]) for step in record.steps]
    data = dict(record._asdict(), steps=steps, moves=list(record.moves))
    while True:
        text = encode_text(json.dumps(data, separators=(",", ":")))
        longest = max(("steps", "moves"), key=lambda key: len(str(data[key])))
        if len(text) <= LIMIT or not data[longest]:
            return check_value("the intent", text)
        data[longest].pop()


def decode(value: str) -> t.Optional[JournalEntry]:
    """The entry, None for anything that this collection would not have written."""
    try:
        data = json.loads(decode_text(value))
        record = JournalEntry(**dict(data, steps=tuple(data["steps"]), moves=tuple(map(tuple, data["moves"]))))
        return record if _valid(record) else None
    except (KeyError, RecursionError, TypeError, ValueError):
        return None


def used(datasets: t.Iterable[Dataset], empty: t.Optional[Dataset]) -> t.List[str]:
    """Which of the datasets in the place of a VM an interrupted creation alone cannot have left: snapshots, and those
    that have been written to. empty is the container of detached disks.

    An entry by itself proves nothing: it may be there still when the VM has long been in use and its configuration
    has got lost.
    """
    return sorted(d.name for d in datasets if d.kind == "snapshot" or not unwritten(d, empty))


def _valid(record: JournalEntry) -> bool:
    return (
        identity.is_uuid(record.plan)
        and bool(_TEXT.match(record.host))
        and bool(identity.decode_time(record.since))
        and record.state in ("running", "stopped")
        and isinstance(record.autoboot, bool)
        and isinstance(record.stops, bool)
        and isinstance(record.boots, bool)
        and isinstance(record.rollback, str)
        and (not record.rollback or is_name(record.rollback))
        and isinstance(record.creates, str)
        and (not record.creates or bool(identity.VM_NAME.match(record.creates)))
        and all(_TEXT.match(step) for step in record.steps)
        and all(
            isinstance(guid, int) and not isinstance(guid, bool) and _DATASET.match(source) and _DATASET.match(target)
            for guid, source, target in record.moves
        )
    )
