# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The identity of a released disk: one property of its volume, or an entry of a task.

A release writes this property, then removes the facts one by one, serial_no first. A saved identity counts as long as
the disk's own identity is not whole. So nothing is lost if a release is killed at any point.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import fields, replace

from ..model.dataset import Dataset
from ..model.desired import ReleasedIdentity
from ..model.errors import Problems
from ..model.vm import Disk
from . import disk_properties, disk_values, identity, slots
from .property_text import decode_object, encode_object

RELEASED_PROPERTY = "released"
FACTS = (
    "serial_no",
    "uuid",
    "name",
    "vm",
    "index",
    "slot",
    "model",
    "boot",
    *disk_properties.PROPERTIES,
    "remaining",
    "ctime",
    "mtime",
)
MOST_SERIAL = 10**15 - 1
_REMAINING = re.compile(r"\A[0-9]{1,12}:[0-9]{1,15}\Z")
_FIELDS = tuple(f.name for f in fields(ReleasedIdentity) if f.name != "user_properties")
_Raw = t.Mapping[str, t.Any]


def has_whole_identity(volume: Dataset) -> bool:
    """Whether the disk has its whole identity. serial_no is the first fact that a release removes."""
    user = volume.user
    return bool((user.get("uuid") or user.get("name")) and user.get("serial_no"))


def facts_to_release(volume: Dataset) -> t.List[str]:
    """Return the facts that a release removes. The uuid of a file stays, because the path contains it."""
    return [f for f in FACTS if volume.user.get(f) and (f != "uuid" or volume.kind != "filesystem")]


def release_interrupted(volume: Dataset) -> bool:
    """Whether a release of the disk was interrupted: it removes serial_no first, which other changes write."""
    return RELEASED_PROPERTY in volume.user and not volume.user.get("serial_no") and bool(facts_to_release(volume))


def saved_identity(volume: Dataset) -> t.Optional[ReleasedIdentity]:
    """Return the saved identity. None if there is none, it is not valid, or the disk has its own identity."""
    return (
        decode(volume.user[RELEASED_PROPERTY])
        if RELEASED_PROPERTY in volume.user and not has_whole_identity(volume)
        else None
    )


def has_saved_identity(disk: Disk) -> bool:
    """Whether the disk has a saved identity, and the hypervisor does not name another uuid."""
    saved = saved_identity(disk.volume)
    return saved is not None and saved.uuid in ("", disk.uuid)


def has_any_identity(disk: Disk) -> bool:
    """Whether the disk has an identity, its own or a saved one."""
    return disk.adopted or has_saved_identity(disk)


def effective_properties(
    volume: Dataset, is_its_own: t.Callable[[str], bool] = lambda uuid: True
) -> t.Mapping[str, str]:
    """Return the user properties of a volume, completed by its saved identity as long as that counts.

    is_its_own: whether the disk can have this uuid. If not, the saved identity belongs to another disk.
    """
    released = saved_identity(volume)
    if released is None or (released.uuid and not is_its_own(released.uuid)):
        return volume.user
    texts = {"uuid": released.uuid, "name": released.name, "remaining": released.remaining or ""}
    saved = {**texts, **disk_properties.encoded(released.user_properties)}
    return {**{key: value for key, value in saved.items() if value}, **volume.user}


def stamp_properties(user: t.Mapping[str, str]) -> t.Mapping[str, str]:
    """Return the properties from which the next stamps follow: the disk's own, or those that a release has saved."""
    released = decode(user[RELEASED_PROPERTY]) if RELEASED_PROPERTY in user and not user.get("serial_no") else None
    if released is None:
        return user
    return {**user, "serial_no": str(released.serial_no or ""), "ctime": user.get("ctime") or released.ctime}


def identity_of(disk: Disk) -> ReleasedIdentity:
    """Return the identity that a release saves. After an interrupted release, it is the one already saved."""
    result = saved_identity(disk.volume)
    if result is not None:
        return result
    user = disk.volume.user
    uuid, serial = user.get("uuid", ""), user.get("serial_no", "")
    number = int(serial) if serial.isdigit() and len(serial) <= len(str(MOST_SERIAL)) else 0
    return ReleasedIdentity(
        uuid=uuid if identity.is_uuid(uuid) else "",
        name=disk.name,
        user_properties=disk_properties.storable(disk.user_properties),
        ctime=identity.decode_time(user.get("ctime", "")),
        mtime=identity.decode_time(user.get("mtime", "")),
        serial_no=number or None,
        remaining=disk.remaining if _REMAINING.match(disk.remaining) else None,
    )


def entry(released: ReleasedIdentity) -> t.Dict[str, t.Any]:
    """Return a released identity as an entry of O(vms[].disks)."""
    pairs = {**{key: getattr(released, key) for key in _FIELDS}, **disk_properties.copied(released.user_properties)}
    return {key: value for key, value in pairs.items() if value not in (None, "")}


def encode(released: ReleasedIdentity) -> str:
    """Return the value of the property. Raises FlexdiskError InvalidArgument if it is too long."""
    return encode_object("what is kept of it", entry(released))


def decode(value: str) -> t.Optional[ReleasedIdentity]:
    """Return the identity, None for anything that this collection would not have written."""
    try:
        raw = decode_object(value)
        if not _plain(raw):
            return None
        problems = Problems("")
        released = parse_identity(raw, 0, problems)
    except (TypeError, ValueError):
        return None
    return None if problems else released


def _plain(raw: _Raw) -> bool:
    """Whether every value has its type. The classes are compared, because a bool is also an int in Python."""
    types = {"index": int, "serial_no": int, **{name: kind.type for name, kind in disk_properties.PROPERTIES.items()}}
    return {*raw} <= {*_FIELDS, *disk_properties.PROPERTIES} and all(
        value.__class__ is types.get(key, str) for key, value in raw.items()
    )


def parse_identity(raw: _Raw, number: int, problems: Problems) -> ReleasedIdentity:
    """Return the identity of one disk from a task or a release. number: its place in the list, from 0.

    Problems are added to problems.
    """
    name, uuid = str(raw.get("name") or ""), str(raw.get("uuid") or "").lower()
    label = name or uuid or f"disks[{number}]"
    serial, slot = raw.get("serial_no"), raw.get("pci_slot")
    disk_values.check_uuid(problems, label, uuid)
    # A disk with a serial_no has an old name: earlier releases accepted names such as 12 and yes.
    if disk_values.check_name(problems, label, name) and name and serial is None:
        disk_values.check_new_name(problems, label, name)
    _check_numbers(problems, label, raw)
    _check_saved(problems, label, raw)
    return ReleasedIdentity(
        uuid=uuid,
        index=raw.get("index"),
        pci_slot=None if slot is None else problems.attempt(label, slots.normalise, str(slot)),
        name=name,
        user_properties=disk_properties.parsed(problems, label, raw),
        ctime=raw.get("ctime") or "",
        mtime=raw.get("mtime") or "",
        serial_no=serial,
        remaining=raw.get("remaining"),
    )


def _check_numbers(problems: Problems, label: str, raw: _Raw) -> None:
    index, serial = raw.get("index"), raw.get("serial_no")
    if index is not None and not 0 <= index <= 99999:
        problems.add("InvalidArgument", f"index {index} is not valid: it must be from 0 to 99999", label)
    if serial is not None and not 1 <= serial <= MOST_SERIAL:
        problems.add("InvalidArgument", f"serial_no {serial} is not valid: it must be from 1 to {MOST_SERIAL}", label)


def _check_saved(problems: Problems, label: str, raw: _Raw) -> None:
    """Check the values that only a release writes, and that a task hands back unchanged."""
    for key in ("ctime", "mtime"):
        if raw.get(key) and not identity.decode_time(raw[key]):
            text = f"{key} {raw[key]!r} is not valid: write it as 2026-01-31T23:59:59Z"
            problems.add("InvalidArgument", text, label)
    if raw.get("remaining") and not _REMAINING.match(raw["remaining"]):
        text = f"remaining {raw['remaining']!r} is not valid: give it as a release returned it"
        problems.add("InvalidArgument", text, label)


def merged(declared: ReleasedIdentity, saved: t.Optional[ReleasedIdentity]) -> ReleasedIdentity:
    """Return the declared identity, completed by the saved one."""
    if saved is None:
        return declared
    new = {key: getattr(declared, key) for key in _FIELDS}
    known = {key: value for key, value in new.items() if value is not None and (value != "" or key == "remaining")}
    return replace(saved, user_properties={**saved.user_properties, **declared.user_properties}, **known)
