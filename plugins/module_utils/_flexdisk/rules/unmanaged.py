# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of a VM that no task manages, each with the reason."""

from __future__ import annotations

import typing as t

from ..model.vm import Disk, Vm
from . import identity
from .layout import pool_of


def unread(vm: Vm) -> t.Iterator[str]:
    """Return each disk in a pool that was not read, as a sentence without its end."""
    for path in vm.unread:
        yield f"{path} lies in another pool, which this task does not read, and is left alone"


def unmanaged(vm: Vm) -> t.Iterator[str]:
    """Return each disk that is left alone, with the reason, as a sentence without its end."""
    volumes = {entry.path: entry.volume for entry in vm.config.disks}
    for path in vm.strays:
        pool = pool_of(volumes[path])
        if pool != vm.root.pool:
            yield f"{path} lies in pool {pool}, not in {vm.root.pool} as the VM does, and is left alone"
        else:
            yield f"{path} lies outside {vm.root.name} and is left alone; adopt: true moves it in"
    for entry in (entry for entry in vm.config.disks if entry.left_out):
        here = pool_of(entry.named) == vm.root.pool
        yield f"{entry.left_out}; its volume is {entry.named}, and adopt: true takes it in" if here else entry.left_out


def former_vm(vm: Vm, orphan: Disk) -> str:
    """Return the UUID of the VM that has left an orphan, "" if that is this VM, or is not known.

    Without datasets of VMs, only its name connects a volume with a VM. A later VM may have the same number.
    """
    other = orphan.volume.user.get("vm", "")
    return other if vm.config.prefixes and identity.is_uuid(other) and other != vm.config.uuid else ""


def of_former_vm(vm: Vm, orphan: Disk) -> str:
    """Return the message about an orphan of another VM: whose it is, and how this VM gets it."""
    entry = f"- {{uuid: {orphan.uuid}, name: {orphan.name or 'NAME'}}}"
    text = f"{orphan.volume.name} is {orphan.name or 'a disk'} of VM {former_vm(vm, orphan)}, which is another VM"
    return f"{text}; it is left alone, unless {entry} gives it to this one"
