# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Does the steps of whole VMs: make, delete and change them, take, delete and roll back to snapshots."""

from __future__ import annotations

import typing as t

from ..model.errors import FlexdiskError
from ..model.vm import Vm
from ..plan.disk_steps import CreateDisk
from ..plan.vm_steps import (
    ClearRemains,
    CreateVm,
    DeleteSnapshot,
    DeleteVm,
    ImportImage,
    RollBack,
    SetProperties,
    TakeSnapshot,
)
from ..rules import identity
from ..rules.journal import used
from ..rules.layout import container, final, image_of
from . import autoboot
from .apply_moves import entry_of
from .perform import Change, Tools, perform
from .storage import storage_of


@perform.register
def _create_vm(step: CreateVm, tools: Tools, change: Change) -> None:
    storage = storage_of(tools)
    storage.before_vm(step, change)
    tools.hypervisor.create_vm(step.new, [_entry(disk) for disk in step.disks], step.indestructible, step.ports)
    storage.after_vm(step, change)


@perform.register
def _import_image(step: ImportImage, tools: Tools, change: Change) -> None:
    """Import an image. Until it is complete, the volume is marked, and thick so that it cannot run out of room."""
    volume, last = step.volume, final(step.volume)
    if tools.zfs.exists(last):
        return  # an earlier VM of this task has had it imported
    if tools.zfs.exists(volume):
        if tools.read(volume).user.get("from") != identity.IMPORTING:
            raise FlexdiskError("Changed", f"the host changed since it was read: {volume} now exists")
        tools.zfs.destroy(volume)
    options = {"volblocksize": str(step.block_size_bytes)}
    tools.zfs.create_volume(volume, step.volsize_bytes, options, {"from": identity.IMPORTING})
    tools.hypervisor.import_image(step.file, volume)
    tools.zfs.set(volume, refreservation="none")
    tools.zfs.snapshot(last)
    tools.zfs.set_facts(volume, {"from": ""})


@perform.register
def _clear(step: ClearRemains, tools: Tools, change: Change) -> None:
    """Destroy exactly the datasets that were read, if they are still unused."""
    there, empty = tools.zfs.datasets(step.root), tools.read(container(change.after.root.pool))
    if {d.name for d in there} != set(step.left) or used(there, empty):
        raise FlexdiskError("Changed", f"the host changed since it was read: other datasets exist below {step.root}")
    tools.zfs.destroy(step.root, True)


@perform.register
def _delete_vm(step: DeleteVm, tools: Tools, change: Change) -> None:
    vm, volumes = change.vm, dict(step.parts)
    if vm.root.kind:
        _only_these(tools, vm, volumes)
    storage_of(tools).before_end(vm, volumes)
    tools.hypervisor.delete_vm(vm.config.uuid)
    if vm.root.kind and tools.zfs.exists(vm.root.name):
        raise FlexdiskError("NotApplied", f"the VM is deleted, but {vm.root.name} still exists")


def _only_these(tools: Tools, vm: Vm, volumes: t.Mapping[str, int]) -> None:
    """Check that the VM's dataset has only these volumes (with guids), because everything below it is destroyed."""
    below = {d.name: d.guid for d in tools.zfs.datasets(vm.root.name, snapshots=False) if d.name != vm.root.name}
    if below != volumes:
        wrong = sorted({name for name, _guid in {*below.items()} ^ {*volumes.items()}})
        raise FlexdiskError("Changed", f"the VM changed since it was read: {', '.join(wrong)}; it is not deleted")


@perform.register
def _properties(step: SetProperties, tools: Tools, change: Change) -> None:
    vm, protected = change.vm, step.indestructible
    if step.machine:
        tools.hypervisor.set_machine(vm.config.uuid, step.machine)
    if protected is not None:
        storage_of(tools).set_indestructible(vm, protected)
    if step.facts:
        tools.zfs.set_facts(vm.root.name, step.facts)


@perform.register
def _take_snapshot(step: TakeSnapshot, tools: Tools, change: Change) -> None:
    storage_of(tools).create_snapshot(step, change.vm)


@perform.register
def _delete_snapshot(step: DeleteSnapshot, tools: Tools, change: Change) -> None:
    storage_of(tools).delete_snapshot(step, change.vm)


@perform.register
def _roll_back(step: RollBack, tools: Tools, change: Change) -> None:
    storage_of(tools).roll_back(step, change)
    autoboot.keep_off(tools.hypervisor, change.vm)


def _entry(disk: CreateDisk) -> t.Dict[str, t.Union[str, int, bool]]:
    """The entry of a new VM's disk for the driver. A disk from an image gets the block size of the image."""
    entry = entry_of(disk.attachment)
    if disk.origin:
        entry["image_uuid"] = image_of(disk.origin)
    else:
        entry["block_size"] = disk.block_size_bytes
    entry["compression"] = disk.own_compression
    return entry
