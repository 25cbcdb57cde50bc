# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes that a VM of Proxmox VE names as unused, C(unusedN), and that are not there any more."""

from __future__ import annotations

import typing as t

from ..model.text import visible
from ..model.vm import Disk, Vm
from .layout import index_within, pool_of, within


def left_unused(vm: Vm) -> t.Tuple[str, ...]:
    """Return the volumes that an interrupted run has moved away, and that the configuration still names as unused.

    The journal of that run knows them. Without it, the disks tell that are detached: each has the number of its volume.
    """
    moves = vm.interrupted.moves if vm.interrupted is not None else ()
    moved = {source for _guid, source, _target in moves}
    numbers = {(disk.volume.pool, number) for disk in vm.detached for number in _number(disk)}
    gone = [name for name in dict.fromkeys(vm.config.unused) if name not in _there(vm)]
    return tuple(name for name in gone if name in moved or (pool_of(name), index_within(vm.config, name)) in numbers)


def dangling(vm: Vm) -> t.Dict[str, str]:
    """Return what else is named as unused and not there, as sentences by the keys, with what takes the line out.

    Nobody knows who has left that. A volume that is in no storage any more may be there all the same.
    """
    vmid, named = vm.config.proxmox.get("vmid"), vm.config.proxmox.get("unused", {})
    known = {*left_unused(vm), *_there(vm)}
    way = "while it is not, qm set {} --delete {} takes the line out and destroys nothing"
    mine = {key: name for key, name in named.items() if name in vm.config.unused and within(vm.config, name)}
    gone = {key: name for key, name in mine.items() if name not in known}
    texts = {key: f"{key} of VM {vmid} names {gone[key]}, which is not there; {way.format(vmid, key)}" for key in gone}
    for key, name in vm.config.unused_nowhere.items():
        text = f"{key} of VM {vmid} names {visible(name)}, and no storage is called so; look where its volume is"
        texts[key] = f"{text}, and take the line out of the file of the VM by hand"
    return texts


def _there(vm: Vm) -> t.Set[str]:
    return {*vm.siblings, *(volume.name for volume in vm.volumes)}


def _number(disk: Disk) -> t.Iterator[int]:
    text = disk.volume.user.get("index", "")
    if text.isascii() and text.isdigit():
        yield int(text)
