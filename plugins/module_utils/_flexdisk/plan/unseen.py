# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that cannot be seen at the moment: no new disk and no other one gets the name of such a disk, and none is gone.

The record of its VM knows it, a line of the VM's file, or a volume that is used otherwise. All modules ask here.
"""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from ..model.desired import DiskDeclaration, VmDisksDeclaration
from ..model.errors import Problems
from ..model.text import visible
from ..model.vm import Disk, DiskConfig, Vm
from ..rules import identity, vm_record
from ..rules.inventory import Host
from ..rules.layout import pool_of, within
from ..rules.matching import Match
from ..rules.unmanaged import former_vm
from ..rules.usage import labels

_FIRMWARE = ("efidisk", "tpmstate")


def given_up(vm: Vm, spec: VmDisksDeclaration, match: Match) -> t.Dict[str, str]:
    """Return the disks that only the record knows, and that entries with state absent name, as vm_record.unseen()."""
    matched = [entry for entry, _disk in match.pairs]
    gone = [entry for entry in spec.disks or () if not entry.present and not any(entry is one for one in matched)]
    names, uuids = {entry.name for entry in gone if entry.name}, {entry.uuid for entry in gone if entry.uuid}
    saved = vm.config.record.disks if vm.config.record is not None else {}
    unseen = vm_record.unseen(vm)
    return {s: name for s, name in unseen.items() if name in names or saved[s].get("uuid") in uuids}


def _unread(vm: Vm) -> t.List[DiskConfig]:
    """Return the attached disks that cannot be read at the moment, or that this task does not read."""
    return [*vm.config.unreadable, *(entry for entry in vm.config.disks if entry.path in vm.unread)]


def _out_of_place(vm: Vm, host: Host) -> t.List[Dataset]:
    """Return the volumes that may be disks of the VM, and are none now: used otherwise, or renamed by hand."""
    if not vm.config.prefixes:
        return []
    known = {disk.volume.name for disk in (*vm.disks, *vm.orphans, *vm.detached)}
    others = [one for name, one in host.datasets.items() if one.kind == "volume" and name not in known]
    owners = {one.name: one.user.get("vm", vm.config.uuid if host.usage.of(one.name) else "") for one in others}
    return [one for one in others if owners[one.name] == vm.config.uuid]


def _is_of(entry: DiskDeclaration, serials: t.Collection[str], volume: Dataset) -> bool:
    """Whether an entry means a volume. serials: those that the record has for the name of the entry."""
    uuid = volume.user.get("uuid") or identity.uuid_of(volume.guid)
    named = bool(entry.name) and entry.name == volume.user.get("name") and "vm" in volume.user
    return named or uuid == entry.uuid or identity.serial_of(uuid) in serials


def check_out_of_place(vm: Vm, spec: VmDisksDeclaration, match: Match, host: Host, problems: Problems) -> None:
    """Refuse an entry without a disk whose disk is there, out of the VM's reach: it is neither new nor gone."""
    matched = [entry for entry, _disk in match.pairs]
    entries = [one for one in spec.disks or () if not any(one is other for other in matched)]
    volumes, unseen = _out_of_place(vm, host) if entries else [], vm_record.unseen(vm)
    for entry in entries:
        serials = [serial for serial, name in unseen.items() if name and name == entry.name]
        for volume in (one for one in volumes if _is_of(entry, serials, one)):
            text = f"{volume.name} is this disk, and {_where(host, volume)}"
            problems.add("InUse", text, entry.label)


def _where(host: Host, volume: Dataset) -> str:
    users = labels(host.usage.of(volume.name))
    where = f"is also used by {users}" if users else "is not called as the disks of the VM are (zfs rename)"
    copy = "" if users else f". If it is only a copy, as of a backup, zfs inherit flexdisk:vm {volume.name} says so"
    return f"{where}; it is neither made anew nor given up while that is so{copy}"


def check_given_up(vm: Vm, spec: VmDisksDeclaration, match: Match, problems: Problems) -> None:
    """Refuse to give up a disk that something may still have."""
    for serial, name in given_up(vm, spec, match).items():
        why = _why_not_given_up(vm, serial)
        if why:
            problems.add("NotSupported", f"{why}: it is not given up", name or serial)
    matched = [entry for entry, _disk in match.pairs]
    for entry in (one for one in spec.disks or () if not one.present and not any(one is other for other in matched)):
        for uuid, disk in vm_record.detached_unread(vm).items():
            if uuid == entry.uuid or (entry.name and disk["name"] == entry.name):
                problems.add("NotSupported", _why_detached(vm, uuid, disk), entry.label)


def _why_not_given_up(vm: Vm, serial: str) -> str:
    """Return what may still have a disk that only the record knows, "" for nothing."""
    lines = {one.serial: one for one in (*vm.config.disks, *_unread(vm))}
    if serial in lines:
        seen = any(disk.path == lines[serial].path for disk in vm.disks)
        why = "has its serial, and not its identity" if seen else "and cannot be read"
        return f"it is attached ({lines[serial].key}, {lines[serial].path}) {why}"
    moved = vm_record.moved_unread(vm)
    if serial in moved:
        return f"an interrupted run may have moved it to {moved[serial]}, and not all pools of this move are read"
    lost = [*_unused_unread(vm, vm.pools), *vm_record.unused_elsewhere(vm.config)]
    text = f"{', '.join(lost)} of the VM cannot be read, and may be this disk (if it is not, take the disk out of"
    return f"{text} {_record_file(vm)})" if lost else _why_nameless(vm, serial)


def _why_nameless(vm: Vm, serial: str) -> str:
    """Return which volumes of the VM without any identity may be a disk that only the record knows, "" for none. It may
    have lost its properties by a move, and its serial by hand or by a rollback.
    """
    attached = [disk for disk in vm.disks if not (disk.hidden or disk.adopted or _has_serial(vm, disk))]
    idle = [disk for disk in vm.orphans if not disk.adopted and not former_vm(vm, disk)]
    if not (attached or idle):
        return ""
    names = [f"{disk.key} ({disk.volume.name})" for disk in attached] + [disk.volume.name for disk in idle]
    keys = [disk.key for disk in attached] or ["KEY"]
    text = f"{', '.join(names)} of the VM {'have' if names[1:] else 'has'} no identity, and may be this disk. If so,"
    text += f" give it serial={serial} while the VM is stopped (qm set {vm.config.proxmox.get('vmid')} --{keys[0]}"
    return f"{text} VOLUME,serial={serial}). If not, give it a name first, or take the disk out of {_record_file(vm)}"


def _has_serial(vm: Vm, disk: Disk) -> bool:
    """Whether an attached disk has the serial of a disk that the record knows."""
    entry = next((one for one in vm.config.disks if one.path == disk.path), None)
    return entry is not None and entry.serial in vm_record.known(vm.config)


def _record_file(vm: Vm) -> str:
    return f"/etc/pve/flexdisk/{vm.config.uuid}.json"


def _why_detached(vm: Vm, uuid: str, disk: t.Mapping[str, str]) -> str:
    volume, pool = disk["volume"], pool_of(disk["volume"])
    if pool in vm.pools:
        why = f"not in the pool {pool} of this node, but in one with GUID {disk['pool']}, as of another node"
        way = "That node still has it"
    else:
        why, way = f"and pool {pool} is not read", "An active storage of this node in the pool changes that"
    text = (
        f"{disk['name'] or 'a disk'} (uuid {uuid}) was detached to {volume}, {why}: it is neither made anew, given up"
    )
    return f"{text} nor released while that is so. {way}. If it is gone for good, take it out of {_record_file(vm)}"


def check_release(vm: Vm, problems: Problems) -> None:
    """Refuse to release disks while the record has some that cannot be seen: their identities would be lost."""
    if not vm.config.prefixes:
        return
    for serial, name in vm_record.unseen(vm).items():
        uuid = vm_record.known(vm.config)[serial].get("uuid")
        text = f"only the record of the VM has it (serial {serial}), and its identity would be lost. Make its storage"
        text += f" active, or give it up by vm_disks: - {{uuid: {uuid}, state: absent}}"
        problems.add("NotSupported", text, name or serial)
    for uuid, disk in vm_record.detached_unread(vm).items():
        problems.add("NotSupported", _why_detached(vm, uuid, disk), disk["name"] or uuid)


def why_taken(vm: Vm, name: str, uuid: str = "", host: t.Optional[Host] = None) -> str:
    """Return why no disk may be called so, because one that cannot be seen at the moment is; "" if none is.

    Args:
        vm: the VM whose disk would be called so.
        name: the name.
        uuid: the UUID of the disk that would get the name.
        host: None leaves out volumes that are there, and out of the VM's reach.
    """
    if not name or not vm.config.prefixes:
        return ""
    own = identity.serial_of(uuid) if uuid else ""
    for serial in (s for s, known in vm_record.unseen(vm).items() if known == name and s != own):
        text = f"the record of the VM has {name} with serial {serial}, and no disk that can be seen has it"
        nameless = _why_nameless(vm, serial)
        if nameless:
            return f"{text}: {nameless}"
        text += ". Attach it with this serial, or make its storage active, and it is there"
        return f"{text} again. If it is gone for good, give it up first: - {{name: {name}, state: absent}}"
    for other, disk in vm_record.detached_unread(vm).items():
        if disk["name"] == name and other != uuid:
            return _why_detached(vm, other, disk)
    for idle in (one for one in vm.orphans if one.name == name and one.uuid != uuid and not former_vm(vm, one)):
        text = f"{idle.volume.name} is called so, and the VM does not use it. Attach it by its name first, or give it"
        return f"{text} up: - {{uuid: {idle.uuid}, state: absent}} destroys it"
    if host is None:
        return ""
    for volume in _out_of_place(vm, host):
        if volume.user.get("name") == name and volume.user.get("uuid", "") not in ("", uuid) and "vm" in volume.user:
            return f"{volume.name} is called so, and {_where(host, volume)}"
    return ""


def volumes_of(host: Host, name: str, uuid: str) -> t.List[Dataset]:
    """Return the volumes with a name or uuid, for why_not_gone()."""
    volumes = [one for one in host.datasets.values() if one.kind == "volume" and "vm" in one.user]
    named = [one for one in volumes if name and one.user.get("name") == name]
    return [*named, *(one for one in volumes if uuid and one.user.get("uuid") == uuid)]


def why_not_gone(vm: Vm, host: Host, name: str, uuid: str, volumes: t.Sequence[Dataset]) -> str:
    """Return why a disk that no task can see is not said to be gone, "" if nothing knows it. volumes: volumes_of()."""
    saved = vm_record.known(vm.config)
    for serial, known in vm_record.unseen(vm).items() if vm.config.prefixes else ():
        if (name and known == name) or (uuid and saved[serial].get("uuid") == uuid):
            text = f"the record of the VM has {known or uuid} with serial {serial}, and no disk that can be seen has it"
            return f"{text}; vm_disks gives it up"
    for other, disk in vm_record.detached_unread(vm).items():
        if other == uuid or (name and disk["name"] == name):
            return _why_detached(vm, other, disk)
    for volume in _out_of_place(vm, host) if volumes else ():
        if any(volume is one for one in volumes):
            return f"{volume.name} is this disk, and {_where(host, volume)}"
    return ""


def check_names(vm: Vm, match: Match, host: Host, problems: Problems) -> None:
    """Refuse to give a name that a disk has which cannot be seen at the moment."""
    for entry in match.creates:  # check_out_of_place() has the others
        why = why_taken(vm, entry.name or "")
        if why:
            problems.add("NameConflict", why, entry.label)
    for entry, disk in match.pairs:
        name = entry.name or disk.name
        # One that comes with a name alone, as an earlier release has left it, may be the disk of the record.
        comes = not disk.path and "uuid" in disk.volume.user
        why = why_taken(vm, name, disk.uuid, host) if entry.present and (name != disk.name or comes) else ""
        if why:
            problems.add("NameConflict", why, entry.label)


def check_copies(vm: Vm, match: Match, problems: Problems) -> None:
    """Refuse to attach an unused volume while an attached one without a name may be its copy, which has newer data.

    Proxmox VE makes such a copy when it moves a disk without deleting the source, and carries no properties to it.
    """
    if not vm.config.prefixes:
        return
    named = [disk for entry, disk in match.pairs if entry.name]
    unnamed = [disk for disk in vm.disks if not (disk.hidden or disk.name or any(disk is one for one in named))]
    for entry, disk in match.pairs:
        own = any(disk is one for one in vm.orphans) and not former_vm(vm, disk)
        if not (entry.present and own) or vm_record.is_moved(vm, disk):
            continue
        for other in (one for one in unnamed if one.size >= disk.size):
            alike = other.size == disk.size and disk.pci_slot in ("", other.pci_slot)
            if alike or entry.name:
                way = f"Name that first: - {{pci_slot: {other.key}, name: NAME}}"
                way += "" if alike else f", or say - {{uuid: {disk.uuid}}}, without a name, if the old one is meant"
                text = f"{other.key} ({other.volume.name}), which has no name, may be a newer copy of it (qm disk move)"
                problems.add("Ambiguous", f"{_idle(disk)}, and {text}. {way}", entry.label)
        for line in _left_alone(vm, disk) if entry.name else ():
            text = f"{line.key} ({visible(line.path)}), which is left alone, may be a newer copy of it (qm disk move)"
            way = f"Say - {{uuid: {disk.uuid}}}, without a name, if the old one is meant"
            problems.add("Ambiguous", f"{_idle(disk)}, and {text}. {way}", entry.label)


def _idle(disk: Disk) -> str:
    return f"{disk.volume.name} is attached to nothing"


def _left_alone(vm: Vm, disk: Disk) -> t.List[DiskConfig]:
    """Return the attached disks that are left alone, and may be this one. The record tells whether one is another."""
    known = {*vm_record.known(vm.config)} - {identity.serial_of(disk.uuid)}
    left_out = [one for one in vm.config.disks if one.left_out and not one.key.startswith(_FIRMWARE)]
    lines = {one.key: one for one in (*left_out, *vm.config.unreadable) if one.path not in vm.config.unused}
    return [one for one in lines.values() if one.serial not in known]


def check_readable(vm: Vm, match: Match, pools: t.Container[str], problems: Problems) -> None:
    """Refuse a new disk while a disk of the VM cannot be read: it may be the one that is meant. pools: those read."""
    why = why_unreadable(vm, pools) if match.creates else ""
    for entry in match.creates if why else ():
        problems.add("NotSupported", why, entry.label)


def why_unreadable(vm: Vm, pools: t.Container[str]) -> str:
    """Return which disks of the VM cannot be read, and may be one that a task takes for a new one; "" for none."""
    if not vm.config.prefixes:
        return ""
    known = vm_record.known(vm.config)
    lost = [f"{one.path} ({one.key})" for one in _unread(vm) if one.serial not in known]
    lost += _unused_unread(vm, pools)
    text = f"{', '.join(lost)} of the VM cannot be read, and may be this disk; a new one is made when its storage"
    return f"{text} is active on this node, and its pool is read" if lost else ""


def _unused_unread(vm: Vm, pools: t.Container[str]) -> t.List[str]:
    """Return the volumes that the VM has, but does not use, and that cannot be read."""
    return [name for name in vm.config.unused if not (within(vm.config, name) and pool_of(name) in pools)]
