# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that only the record of a VM knows at the moment, or that cannot be read: their names are not free."""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from ..model.desired import DiskDeclaration, VmDisksDeclaration
from ..model.errors import Problems
from ..model.vm import DiskConfig, Vm
from ..rules import identity, vm_record
from ..rules.inventory import Host
from ..rules.layout import pool_of, within
from ..rules.matching import Match
from ..rules.usage import labels


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
            users = labels(host.usage.of(volume.name))
            where = f"is also used by {users}" if users else "is not called as the disks of the VM are (zfs rename)"
            text = f"{volume.name} is this disk, and {where}; it is neither made anew nor given up while that is so"
            problems.add("InUse", text, entry.label)


def check_given_up(vm: Vm, spec: VmDisksDeclaration, match: Match, problems: Problems) -> None:
    """Refuse to give up a disk that a line of the VM's file has, although it cannot be read."""
    lines = {one.serial: one for one in _unread(vm)}
    for serial, name in given_up(vm, spec, match).items():
        if serial in lines:
            text = f"it is attached ({lines[serial].key}, {lines[serial].path}) and cannot be read: it is not given up"
            problems.add("NotSupported", text, name or serial)


def check_names(vm: Vm, match: Match, problems: Problems) -> None:
    """Refuse to give a name that a disk has which cannot be seen at the moment."""
    serials = {name: serial for serial, name in vm_record.unseen(vm).items() if name}
    renamed = [one for one in match.pairs if one[0].present and one[0].name not in (None, "", one[1].name)]
    own = {entry.name: identity.serial_of(disk.uuid) for entry, disk in renamed}
    for entry in (*match.creates, *(entry for entry, _disk in renamed)):
        if entry.name in serials and own.get(entry.name) != serials[entry.name]:
            text = f"the record of the VM has {entry.name} with serial {serials[entry.name]}, and no disk that"
            text += " can be seen has it. Attach it with this serial, or make its storage active, and it is there"
            text += f" again. If it is gone for good, give it up first: - {{name: {entry.name}, state: absent}}"
            problems.add("NameConflict", text, entry.label)


def check_readable(vm: Vm, match: Match, pools: t.Container[str], problems: Problems) -> None:
    """Refuse a new disk while a disk of the VM cannot be read: it may be the one that is meant. pools: those read."""
    config = vm.config
    if not config.prefixes:
        return
    known = config.record.disks if config.record is not None else {}
    lost = [f"{one.path} ({one.key})" for one in _unread(vm) if one.serial not in known]
    lost += [name for name in config.unused if not (within(config, name) and pool_of(name) in pools)]
    for entry in match.creates if lost else ():
        text = f"{', '.join(lost)} of the VM cannot be read, and may be this disk; a new one is made when its storage"
        problems.add("NotSupported", f"{text} is active on this node, and its pool is read", entry.label)
