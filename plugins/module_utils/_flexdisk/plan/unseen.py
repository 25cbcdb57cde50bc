# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that only the record of a VM knows at the moment, or that cannot be read: their names are not free."""

from __future__ import annotations

import typing as t

from ..model.desired import VmDisksDeclaration
from ..model.errors import Problems
from ..model.vm import DiskConfig, Vm
from ..rules import vm_record
from ..rules.layout import pool_of, within
from ..rules.matching import Match


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
    renamed = [entry for entry, disk in match.pairs if entry.present and entry.name not in (None, "", disk.name)]
    for entry in (*match.creates, *renamed):
        if entry.name in serials:
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
