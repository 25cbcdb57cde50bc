# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of a VM: what only this collection knows of a VM and its disks, kept beside the VM's configuration.

Proxmox VE makes new volumes, without our properties, when it moves a disk to another storage, migrates a running VM or
restores a backup. It keeps the serials. So the record has the identities of the disks by serial, in the form in which a
release saves them (rules/released_identity.py). A volume with any identity of its own wins. The record counts for a
volume without. The stamps that every change writes are no identity.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.text import visible
from ..model.vm import Disk, DiskConfig, Vm, VmConfig, VmRecord
from . import identity, released_identity
from .layout import last_part, pool_of
from .property_text import encode_json

_STAMPS = ("ctime", "mtime", "serial_no")
_LARGEST = 10**12  # MiB


def parse(content: bytes) -> VmRecord:
    """Return a record. Raises ValueError for anything that render() would not have written."""
    try:
        raw = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deep") from None
    disks = raw.get("disks") if isinstance(raw, dict) else None
    flexible = raw.get("flexible_disk_size") if isinstance(raw, dict) else None
    if not isinstance(disks, dict) or not all(identity.is_serial(serial) for serial in disks):
        raise ValueError("it has no disks by their serials")
    if flexible is not None and not (flexible.__class__ is int and 0 < flexible < _LARGEST):
        raise ValueError("flexible_disk_size is no size")
    for serial, saved in disks.items():
        if not isinstance(saved, dict) or released_identity.decode(encode_json(saved)) is None:
            raise ValueError(f"disk {serial} has no identity")
    return VmRecord(disks, flexible, _parsed_detached(raw.get("detached", {})))


def _parsed_detached(raw: t.Any) -> t.Dict[str, t.Dict[str, str]]:
    """Return the detached disks of a record. Raises ValueError. raw: whatever the file has."""
    if not isinstance(raw, dict) or not all(
        isinstance(one, dict) and {*one} == {"name", "volume", "pool"} for one in raw.values()
    ):
        raise ValueError("its detached disks have no names, volumes or pools")
    texts = [text for one in raw.values() for text in one.values()]
    if not all(isinstance(text, str) for text in texts) or not all(identity.is_uuid(uuid) for uuid in raw):
        raise ValueError("its detached disks have no names or uuids")
    return {uuid: dict(one) for uuid, one in raw.items()}


def says_something(record: VmRecord) -> bool:
    """Whether a record says anything. One that does not is no file."""
    return bool(record.disks or record.detached or record.flexible_disk_size is not None)


def render(record: VmRecord) -> bytes:
    """Return the content of the file."""
    return json.dumps(record._asdict(), indent=1, sort_keys=True).encode() + b"\n"


def with_identity(config: VmConfig, entry: DiskConfig, volume: Dataset) -> Dataset:
    """Return the volume of a disk with the identity that the record has for it, if it has none of its own."""
    saved = config.record.disks.get(entry.serial) if config.record is not None else None
    if saved is None or not _is_single(config, entry.serial) or released_identity.RELEASED_PROPERTY in volume.user:
        return volume
    if {*released_identity.facts_to_release(volume)} - {*_STAMPS}:
        return volume
    # Stamps alone are of a run that was interrupted, and those in the record go on.
    user = {key: value for key, value in volume.user.items() if key not in _STAMPS}
    return replace(volume, user={**user, released_identity.RELEASED_PROPERTY: encode_json(saved)})


def _is_single(config: VmConfig, serial: str) -> bool:
    """Whether one disk of the VM has the serial. Nobody knows which of several would be meant."""
    return sum(entry.serial == serial for entry in config.disks) == 1


def of_disks(
    config: VmConfig,
    disks: t.Iterable[Disk],
    given_up: t.Collection[str] = (),
    detached: t.Optional[t.Mapping[str, t.Mapping[str, str]]] = None,
) -> VmRecord:
    """Return the record that the VM should have.

    A disk that cannot be seen at the moment, as one that was detached by hand, or whose storage is off, keeps its entry
    until it is given up.

    Args:
        config: the configuration, with the record as it is.
        disks: those attached to the VM.
        given_up: serials whose entries go.
        detached: the disks that were detached from the VM. None: as the record has them.
    """
    retained = {serial: saved for serial, saved in known(config).items() if serial not in given_up}
    then = config.record.detached if config.record is not None else {}
    detached = then if detached is None else detached
    return VmRecord({**retained, **_shown(config, disks, given_up)}, config.flexible_disk_size, detached)


def known(config: VmConfig) -> t.Mapping[str, t.Mapping[str, t.Any]]:
    """Return the identities in the record of a VM by serial."""
    return config.record.disks if config.record is not None else {}


def has_from_record(config: VmConfig, disk: Disk) -> bool:
    """Whether a disk of the VM has its identity from the record alone, and not from a release."""
    serials = {entry.path: entry.serial for entry in config.disks}
    return serials.get(disk.path) in known(config) and released_identity.has_saved_identity(disk)


def _shown(
    config: VmConfig, disks: t.Iterable[Disk], given_up: t.Collection[str] = ()
) -> t.Dict[str, t.Dict[str, t.Any]]:
    """Return the entries of the disks that are there. Those that were released have none."""
    serials = {entry.path: entry.serial for entry in config.disks}
    return {
        serials[disk.path]: released_identity.entry(released_identity.identity_of(disk))
        for disk in disks
        if (disk.adopted or (has_from_record(config, disk) and serials[disk.path] not in given_up))
        and disk.uuid
        and serials.get(disk.path) == identity.serial_of(disk.uuid)
        and _is_single(config, serials[disk.path])
    }


def detached(vm: Vm, after: t.Iterable[Disk]) -> t.Dict[str, t.Dict[str, str]]:
    """Return the disks that were detached from the VM, for its record. after: detached disks in pools that were read.

    One in another pool is there until that pool has been read without it. An interrupted run may know it alone.
    """
    moved = {last_part(target): target for target in moved_unread(vm).values()}
    names = {str(saved.get("uuid") or ""): str(saved.get("name") or "") for saved in known(vm.config).values()}
    return {
        **{uuid: detached_to(vm, names[uuid], target) for uuid, target in moved.items() if uuid in names},
        **{uuid: dict(one) for uuid, one in detached_unread(vm).items()},
        **{disk.uuid: detached_to(vm, disk.name, disk.volume.name) for disk in after if disk.uuid},
    }


def detached_to(vm: Vm, name: str, volume: str) -> t.Dict[str, str]:
    """Return what the record has of a disk that is detached from the VM."""
    return {"name": name, "volume": volume, "pool": str(vm.pools.get(pool_of(volume), ""))}


def detached_unread(vm: Vm) -> t.Dict[str, t.Mapping[str, str]]:
    """Return the detached disks of the record in pools that were not read, by their uuids.

    A pool of another node may have the same name. It has another GUID.
    """
    known_there = vm.config.record.detached if vm.config.record is not None else {}
    seen = {disk.uuid for disk in (*vm.disks, *vm.orphans, *vm.detached)}
    unread = {uuid: one for uuid, one in known_there.items() if not _is_read(vm, one)}
    return {uuid: one for uuid, one in unread.items() if uuid not in seen}


def _is_read(vm: Vm, detached_disk: t.Mapping[str, str]) -> bool:
    guid = vm.pools.get(pool_of(detached_disk["volume"]))
    return guid is not None and detached_disk["pool"] in ("", str(guid))


def gone(vm: Vm, leavers: t.Iterable[Disk] = ()) -> t.Tuple[str, ...]:
    """Return the serials in the record of disks that the VM has no more: those that are detached from it, leavers, and
    those that an interrupted run has taken out and destroyed.

    A disk that left by another hand, or that has never left, is not gone: no line may have its serial, no unused volume
    may be where it cannot be read, and the pools of its volume must have been read.
    """
    read = [
        (source, target)
        for _guid, source, target in _moves(vm)
        if {pool_of(source), pool_of(target)} <= vm.pools.keys()
    ]
    uuids = {last_part(target) for _source, target in read}
    lines = {entry.serial for entry in (*vm.config.disks, *vm.config.unreadable)}
    here = {disk.uuid for disk in (*vm.disks, *vm.orphans)}
    lost = {identity.serial_of(uuid) for uuid in uuids - here} - lines if not unused_elsewhere(vm.config) else set()
    left = {identity.serial_of(disk.uuid) for disk in (*vm.detached, *leavers)}
    return tuple(sorted((lost | left) & {*known(vm.config)}))


def unused_elsewhere(config: VmConfig) -> t.List[str]:
    """Return the volumes that a VM has, but does not use, in storages of other kinds, or in none."""
    unused: t.Mapping[str, str] = config.proxmox.get("unused", {})
    return [f"{key} ({visible(name)})" for key, name in unused.items() if ":" in name]


def _moves(vm: Vm) -> t.Sequence[t.Tuple[int, str, str]]:
    return vm.interrupted.moves if vm.interrupted is not None else ()


def is_moved(vm: Vm, disk: Disk) -> bool:
    """Whether an interrupted run was about to move the volume of a disk."""
    return any(guid == disk.volume.guid for guid, _source, _target in _moves(vm))


def serials_away(vm: Vm) -> t.Set[str]:
    """Return the serials of the VM's disks that are not attached."""
    uuids = {disk.uuid for disk in (*vm.detached, *vm.orphans)}
    uuids.update(vm.config.record.detached if vm.config.record is not None else {})
    return {identity.serial_of(uuid) for uuid in uuids if uuid}


def moved_unread(vm: Vm) -> t.Dict[str, str]:
    """Return where an interrupted run may have moved disks that were not read, by their serials."""
    moves = [
        target for _guid, source, target in _moves(vm) if not {pool_of(source), pool_of(target)} <= vm.pools.keys()
    ]
    return {identity.serial_of(last_part(target)): target for target in moves}


def unseen(vm: Vm) -> t.Dict[str, str]:
    """Return the names in the record of disks that cannot be seen at the moment, by their serials; "" without one.

    An attached disk whose volume has the UUID, or has saved it in a release, can be seen, also if a rollback has taken
    its serial away. So can one that the VM does not use, or that is detached.
    """
    uuids = {disk.uuid for disk in vm.disks if disk.volume.user.get("uuid", "") == disk.uuid}
    uuids |= {disk.uuid for disk in (*vm.orphans, *vm.detached)}
    saved_there = (released_identity.saved_identity(disk.volume) for disk in vm.disks)
    uuids |= {saved.uuid for saved in saved_there if saved is not None}
    attached = {identity.serial_of(uuid) for uuid in uuids if uuid}
    shown = {*_shown(vm.config, vm.disks), *gone(vm), *attached}
    return {serial: str(saved.get("name") or "") for serial, saved in known(vm.config).items() if serial not in shown}


def differences(config: VmConfig, disks: t.Sequence[Disk]) -> t.List[str]:
    """Return the serials of disks whose identity the record lacks or has otherwise."""
    wanted = _shown(config, disks)
    return [serial for serial in sorted(wanted) if _plain(known(config).get(serial)) != _plain(wanted[serial])]


def _plain(saved: t.Optional[t.Mapping[str, t.Any]]) -> t.Optional[t.Dict[str, t.Any]]:
    return None if saved is None else {key: value for key, value in saved.items() if key not in _STAMPS}
