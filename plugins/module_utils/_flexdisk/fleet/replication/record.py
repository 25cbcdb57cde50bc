# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a VM: all that another host needs to create it again. It may hold secrets."""

from __future__ import annotations

import hashlib
import json
import typing as t
from dataclasses import asdict, dataclass, replace

from ...model.errors import FlexdiskError
from ...rules import failover, identity, slots, uefi
from ...rules.layout import disk_dataset, index_of, pool_of, vm_dataset
from ...rules.replicas import decode_notes, encode_notes, is_host
from ...rules.snapshots import Origin, is_name

_Dict = t.Dict[str, t.Any]
# Our properties of a VM or a disk that travel. The others are those of a host, or of something unfinished.
_STAYS = ("at_home", "move", "memory", "replica", "from", "released", "copied", "element")
_VARIABLES = "variables"
OWN = frozenset(name for name in identity.NAMES if name.partition(".")[0] not in (*_STAYS, "replicas"))


@dataclass(frozen=True)
class DiskRecord:
    """A disk."""

    uuid: str
    name: str
    boot: bool
    model: str
    pci_slot: str
    # That of its dataset.
    compression: str
    # Bytes.
    size: int
    # Its properties of this collection.
    facts: t.Mapping[str, str]
    # The notes of replicas on third hosts, encoded.
    replicas: str = ""
    # What the driver says of it beside.
    element: str = ""
    # The guids of snapshots in which a file had another size than now, with that size. ZFS does not know it.
    sizes: t.Tuple[t.Tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SnapshotRecord:
    """A snapshot of the VM. creation and guids are those of its Origin."""

    name: str
    creation: int
    guids: t.Tuple[int, ...]

    @property
    def origin(self) -> Origin:
        """What is written down of it where the VM comes to."""
        return Origin(self.creation, self.guids)


@dataclass(frozen=True)
class PlatformDisk:
    """A disk that the platform fills itself at the start of the VM. It is made again as the same dataset."""

    volume: str
    uuid: str
    model: str
    pci_slot: str
    # Bytes.
    size: int
    # Bytes.
    block_size: int


@dataclass(frozen=True)
class Record:
    """A VM."""

    uuid: str
    alias: str
    # Its host.
    host: str
    # The guid of its pool.
    home: int
    hypervisor: str
    # MiB.
    memory: int
    vcpus: int
    # Bytes.
    quota: int
    # MiB.
    flexible: t.Optional[int]
    state: str
    autoboot: bool
    indestructible: bool
    # The properties of this collection on its dataset.
    marks: t.Mapping[str, str]
    # What the driver needs to make it (of_new). Its variables are those of a moment, as long as the VM runs.
    description: t.Mapping[str, t.Any]
    disks: t.Tuple[DiskRecord, ...]
    # The oldest first.
    snapshots: t.Tuple[SnapshotRecord, ...] = ()
    # The disks of the platform, whose space is part of flexible.
    hidden: t.Tuple[PlatformDisk, ...] = ()

    @property
    def label(self) -> str:
        """The VM for people."""
        return self.alias or self.uuid


def digest(record: Record) -> str:
    """Return a digest of the VM without its UEFI variables, which the guest may change. It reveals no secret."""
    same = with_variables(undated(record), "")
    return hashlib.sha256(json.dumps(asdict(same), sort_keys=True).encode()).hexdigest()


def variables_of(record: Record) -> str:
    """Return the UEFI variables of the VM in the driver's encoding, "" for none."""
    result: str = record.description.get(_VARIABLES, "")
    return result


def with_variables(record: Record, variables: str) -> Record:
    """Return the record with other UEFI variables."""
    return replace(record, description={**record.description, _VARIABLES: variables})


def undated(record: Record) -> Record:
    """Return the record without the times of syncs with third hosts, which come without a change of the VM."""
    disks = [
        replace(one, replicas=encode_notes(note._replace(synced="") for note in decode_notes(one.replicas)))
        for one in record.disks
    ]
    return replace(record, disks=tuple(disks))


def record_as_result(record: Record) -> _Dict:
    """Return a record as a result."""
    return asdict(record)


def read_record(given: t.Any) -> Record:
    """Parse a record from a result. Raises FlexdiskError InvalidArgument, without the value in the message."""
    try:
        disks = tuple(_disk(disk) for disk in given["disks"])
        taken = tuple(_snapshot(one) for one in given.get("snapshots", ()))
        hidden = tuple(_hidden(one, given["uuid"]) for one in given.get("hidden", ()))
        flexible = None if given["flexible"] is None else int(given["flexible"])
        made = {"disks": disks, "snapshots": taken, "hidden": hidden, "flexible": flexible}
        result = Record(**{**given, **made})
        numbers_valid = all(_is_number(number) for number in (result.home, result.memory, result.vcpus, result.quota))
        good = (
            numbers_valid
            and identity.is_uuid(result.uuid)
            and is_host(result.host)
            and result.state in ("running", "stopped")
        )
        if not (good and isinstance(result.autoboot, bool) and isinstance(result.indestructible, bool)):
            raise ValueError("a field has another type")
        if not all(isinstance(one, dict) for one in (result.description, result.marks)):
            raise ValueError("description and marks are dictionaries")
        if not all(isinstance(one, str) for one in (result.description["template"], variables_of(result))):
            raise ValueError("template is a text")
        uefi.decode(variables_of(result))
        if not failover.is_plausible(result.marks.get(failover.FAILOVER_PROPERTY) or "none:0"):
            raise ValueError("the term of its failover is none")
        _facts(result.marks)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise FlexdiskError("InvalidArgument", f"this is no record of a VM ({type(exc).__name__})") from exc
    return result


def _disk(given: t.Any) -> DiskRecord:
    sizes = tuple((guid, size) for guid, size in given.get("sizes", ()))
    disk = DiskRecord(**{**given, "sizes": sizes})
    if not identity.is_uuid(disk.uuid) or not isinstance(disk.boot, bool) or not _is_number(disk.size):
        raise ValueError("a disk has no UUID")
    if disk.replicas != encode_notes(decode_notes(disk.replicas)):
        raise ValueError("replicas are no notes")
    if not isinstance(disk.element, str):
        raise ValueError("element is a text")
    if not all(_is_number(one) and 0 <= one < 1 << 64 for pair in sizes for one in pair):
        raise ValueError("the sizes are no numbers")
    _facts(disk.facts)
    return disk


def _snapshot(given: t.Any) -> SnapshotRecord:
    taken = SnapshotRecord(given["name"], given["creation"], tuple(given["guids"]))
    numbers = (taken.creation, *taken.guids)
    if not is_name(taken.name) or not all(_is_number(one) and 0 <= one < 1 << 64 for one in numbers):
        raise ValueError("a snapshot has no name or no guids")
    return taken


def _hidden(given: t.Any, vm: str) -> PlatformDisk:
    disk = PlatformDisk(**given)
    root = vm_dataset(pool_of(disk.volume), vm)
    if not identity.is_pool(pool_of(disk.volume)) or disk.volume != disk_dataset(root, index_of(disk.volume)):
        raise ValueError("a disk of the platform lies elsewhere")
    slot = isinstance(disk.pci_slot, str) and slots.valid(disk.pci_slot) == disk.pci_slot
    if not (slot and identity.is_uuid(disk.uuid) and isinstance(disk.model, str)):
        raise ValueError("a disk of the platform has no UUID or slot")
    if not (_is_number(disk.size) and _is_number(disk.block_size)):
        raise ValueError("a disk of the platform has no size")
    return disk


def _is_number(value: t.Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _facts(facts: t.Mapping[str, str]) -> None:
    """Only properties that this collection has, with values that zfs can hold."""
    for name, value in facts.items():
        if name not in OWN or not isinstance(value, str) or set(value) & set("\t\n\0") or len(value) > 8000:
            raise ValueError("a property is none of ours")
