# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The identity of a released disk: one property of its volume, or an entry of a task.

A release writes the property, then takes the facts away one by one, serial_no first. So a released identity counts
where the disk's own is not whole, and a release that was killed anywhere has lost nothing.
"""

from __future__ import annotations

import json
import re
import typing as t
from dataclasses import fields, replace

from ..model.dataset import Dataset
from ..model.desired import AdoptSpec, ReleasedIdentity
from ..model.vm import Disk
from . import identity, slots
from .declaration import Collector, check_new_name, parse_tags

KEY = "released"
FACTS = (
    "serial_no",
    "uuid",
    "name",
    "vm",
    "index",
    "slot",
    "model",
    "boot",
    "preserve",
    "description",
    "tags",
    "remaining",
    "ctime",
    "mtime",
)
MOST_SERIAL = 10**15 - 1
_REMAINING = re.compile(r"\A[0-9]{1,12}:[0-9]{1,15}\Z")
_Raw = t.Mapping[str, t.Any]


def registered(volume: Dataset) -> bool:
    """Whether the disk has its identity, all of it: serial_no is the first fact that a release takes away."""
    user = volume.user
    return bool((user.get("uuid") or user.get("name")) and user.get("serial_no"))


def taken(volume: Dataset) -> t.List[str]:
    """The facts that a release takes away. The uuid of a file stays: it is its path."""
    return [f for f in FACTS if volume.user.get(f) and (f != "uuid" or volume.kind != "filesystem")]


def halfway(volume: Dataset) -> bool:
    """Whether a release of the disk has begun and not ended."""
    return KEY in volume.user and not registered(volume) and bool(taken(volume))


def left(volume: Dataset) -> t.Optional[ReleasedIdentity]:
    """The released identity if it counts, None if it does not, is not there, or is not what we write."""
    return decode(volume.user[KEY]) if KEY in volume.user and not registered(volume) else None


def identity_of(disk: Disk) -> ReleasedIdentity:
    """What a release keeps of a disk: what an earlier one has kept, if that counts."""
    found = left(disk.volume)
    if found is not None:
        return found
    user = disk.volume.user
    uuid, serial = user.get("uuid", ""), user.get("serial_no", "")
    number = int(serial) if serial.isdigit() and len(serial) <= len(str(MOST_SERIAL)) else 0
    return ReleasedIdentity(
        uuid=uuid if identity.is_uuid(uuid) else "",
        name=disk.name,
        preserve=disk.preserve,
        description=disk.description or None,
        tags=dict(disk.tags) or None,
        ctime=identity.decode_time(user.get("ctime", "")),
        mtime=identity.decode_time(user.get("mtime", "")),
        serial_no=number or None,
        remaining=disk.remaining if _REMAINING.match(disk.remaining) else None,
    )


def entry(released: ReleasedIdentity) -> t.Dict[str, t.Any]:
    """A released identity as an entry of O(vms[].disks)."""
    pairs = ((f.name, getattr(released, f.name)) for f in fields(ReleasedIdentity))
    return {key: dict(value) if key == "tags" else value for key, value in pairs if value not in (None, "")}


def encode(released: ReleasedIdentity) -> str:
    """The value of the property. Raises FlexdiskError InvalidArgument if it is longer than a property can be."""
    text = json.dumps(entry(released), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return identity.check_value("what is kept of it", identity.encode_text(text))


def decode(value: str) -> t.Optional[ReleasedIdentity]:
    """The released identity, None for anything that we would not have written."""
    try:
        raw = json.loads(identity.decode_text(value))
        if not isinstance(raw, dict) or not _plain(raw):
            return None
        found = Collector("")
        released = parse_identity(raw, 0, found)
    except (RecursionError, TypeError, ValueError):
        return None
    return None if found.problems else released


def _plain(raw: _Raw) -> bool:
    """Whether every value is of its type; a bool is an int to Python."""
    kinds: t.Dict[str, t.Any] = {"index": int, "serial_no": int, "preserve": bool, "tags": dict}
    tags = raw.get("tags") or {}
    return (
        {*raw} <= {f.name for f in fields(ReleasedIdentity)}
        and all(value.__class__ is kinds.get(key, str) for key, value in raw.items())
        and all(isinstance(value, str) for value in tags.values())
    )


def parse_spec(raw: _Raw, found: Collector) -> AdoptSpec:
    """One entry of O(vms)."""
    vm = found.vm
    if not vm or any(ord(c) < 32 for c in vm):
        found.add("InvalidArgument", "vm must be a uuid, a unique prefix of one, or an alias; got %r" % raw.get("vm"))
    package = raw.get("package") or ""
    if package:
        found.attempt("", lambda: identity.check_value("package", package))
        if not package.isprintable():
            found.add("InvalidArgument", "package %r is not printable" % package)
    disks = tuple(parse_identity(disk, number, found) for number, disk in enumerate(raw.get("disks") or ()))
    for what in ("name", "uuid"):
        values = [getattr(disk, what) for disk in disks if getattr(disk, what)]
        for value in sorted({v for v in values if values.count(v) > 1}):
            found.add("InvalidArgument", "two disks have the %s %s" % (what, value), value)
    return AdoptSpec(vm, package, disks)


def parse_identity(raw: _Raw, number: int, found: Collector) -> ReleasedIdentity:
    """One disk. number is its place in the list. Problems go to found."""
    name, uuid = str(raw.get("name") or ""), str(raw.get("uuid") or "").lower()
    label = name or uuid or "disks[%d]" % number
    serial, index = raw.get("serial_no"), raw.get("index")
    if uuid and not identity.is_uuid(uuid):
        found.add("InvalidArgument", f"disk uuid {uuid!r} is not a uuid", label)
    if name:
        _check_name(name, serial is not None, label, found)
    _check_numbers(raw, label, found)
    _check_forms(raw, label, found)
    tags = parse_tags(found, label, raw.get("tags"))
    if raw.get("description") is not None:
        found.attempt(label, lambda: identity.check_value("description", identity.encode_text(raw["description"])))
    slot = raw.get("pci_slot")
    return ReleasedIdentity(
        uuid=uuid,
        index=index,
        pci_slot=None if slot is None else found.attempt(label, slots.normalise, str(slot)),
        name=name,
        preserve=raw.get("preserve"),
        description=raw.get("description"),
        tags=tags,
        ctime=raw.get("ctime") or "",
        mtime=raw.get("mtime") or "",
        serial_no=serial,
        remaining=raw.get("remaining"),
    )


def _check_numbers(raw: _Raw, label: str, found: Collector) -> None:
    serial, index = raw.get("serial_no"), raw.get("index")
    if index is not None and not 0 <= index <= 99999:
        found.add("InvalidArgument", f"index {index:d} is not valid: it must be from 0 to 99999", label)
    if serial is not None and not 1 <= serial <= MOST_SERIAL:
        words = f"serial_no {serial:d} is not valid: it must be from 1 to {MOST_SERIAL}"
        found.add("InvalidArgument", words, label)


def _check_forms(raw: _Raw, label: str, found: Collector) -> None:
    """Values that must be as a release writes them: times, and what of the disk was remaining."""
    for key in ("ctime", "mtime"):
        if raw.get(key) and not identity.decode_time(raw[key]):
            words = f"{key} {raw[key]!r} is not valid: write it as 2026-01-31T23:59:59Z"
            found.add("InvalidArgument", words, label)
    if raw.get("remaining") and not _REMAINING.match(raw["remaining"]):
        words = f"remaining {raw['remaining']!r} is not valid: give it as a release returned it"
        found.add("InvalidArgument", words, label)


def _check_name(name: str, known: bool, label: str, found: Collector) -> None:
    """known: the disk had the name before, when names such as 12 and yes were taken."""
    if not identity.DISK_NAME.match(name):
        found.add(
            "InvalidArgument",
            "disk name %r is not valid: use up to 64 letters, digits, dots, dashes and underscores, the first a letter "
            "or digit" % name,
            label,
        )
    elif not known:
        check_new_name(found, label, name)


def merged(said: ReleasedIdentity, kept: t.Optional[ReleasedIdentity]) -> ReleasedIdentity:
    """What a task says, and for the rest what a release has kept."""
    if kept is None:
        return said
    new = {f.name: getattr(said, f.name) for f in fields(ReleasedIdentity)}
    silent = {"description": (None,), "remaining": (None,)}
    return replace(kept, **{key: v for key, v in new.items() if v not in silent.get(key, (None, ""))})
