# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What the target of a move must know of a VM to make it again: the record. It may hold secrets of the VM."""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import asdict, dataclass

from ...model.errors import FlexdiskError
from ...rules import identity
from ...rules.replicas import is_host

_Dict = t.Dict[str, t.Any]
# Our properties of a VM or a disk that travel. The others are those of a host, or of something unfinished.
_STAYS = ("move", "replica", "from", "released", "copied")
OWN = frozenset(name for name in identity.NAMES if name.partition(".")[0] not in (*_STAYS, "replicas"))


@dataclass(frozen=True)
class DiskRecord:
    """A disk. facts are its properties of this collection; compression is that of its dataset, size bytes. element is
    what the driver says of it beside.
    """

    uuid: str
    name: str
    boot: bool
    model: str
    pci_slot: str
    compression: str
    size: int
    facts: t.Mapping[str, str]
    element: str = ""


@dataclass(frozen=True)
class Record:
    """A VM. host and home: its host and the guid of its pool. memory and flexible are MiB, quota is bytes. marks are
    the properties of this collection on its dataset. description is what the driver needs to make it (of_new).
    """

    uuid: str
    alias: str
    host: str
    home: int
    hypervisor: str
    memory: int
    vcpus: int
    quota: int
    flexible: t.Optional[int]
    state: str
    autoboot: bool
    indestructible: bool
    marks: t.Mapping[str, str]
    description: t.Mapping[str, t.Any]
    disks: t.Tuple[DiskRecord, ...]

    @property
    def label(self) -> str:
        """The VM for people."""
        return self.alias or self.uuid


def digest(record: Record) -> str:
    """What changes if anything of the VM does. It tells nothing of the secrets."""
    return hashlib.sha256(json.dumps(asdict(record), sort_keys=True).encode()).hexdigest()


def told(record: Record) -> _Dict:
    """A record as a result."""
    return asdict(record)


def read_record(given: t.Any) -> Record:
    """A record from a result. Raises FlexdiskError InvalidArgument for anything that is none; it is not shown."""
    try:
        disks = tuple(_disk(disk) for disk in given["disks"])
        flexible = given["flexible"]
        found = Record(
            **{**given, "disks": disks, "flexible": None if flexible is None else int(flexible)},
        )
        whole = all(_is_number(number) for number in (found.home, found.memory, found.vcpus, found.quota))
        good = whole and identity.is_uuid(found.uuid) and is_host(found.host) and found.state in ("running", "stopped")
        if not (good and isinstance(found.autoboot, bool) and isinstance(found.indestructible, bool)):
            raise ValueError("a field has another type")
        if not all(isinstance(one, dict) for one in (found.description, found.marks)):
            raise ValueError("description and marks are dictionaries")
        if not isinstance(found.description["template"], str):
            raise ValueError("template is a text")
        _facts(found.marks)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FlexdiskError("InvalidArgument", f"this is no record of a VM ({type(exc).__name__})") from exc
    return found


def _disk(given: t.Any) -> DiskRecord:
    disk = DiskRecord(**given)
    if not identity.is_uuid(disk.uuid) or not isinstance(disk.boot, bool) or not _is_number(disk.size):
        raise ValueError("a disk has no UUID")
    if not isinstance(disk.element, str):
        raise ValueError("element is a text")
    _facts(disk.facts)
    return disk


def _is_number(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _facts(facts: t.Mapping[str, str]) -> None:
    """Only properties that this collection has, with values that zfs can hold."""
    for name, value in facts.items():
        if name not in OWN or not isinstance(value, str) or set(value) & set("\t\n\0") or len(value) > 8000:
            raise ValueError("a property is none of ours")
