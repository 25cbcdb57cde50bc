# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the steps of whole VMs: create, delete and change them, take, delete and roll back to snapshots."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Hypervisor, whole_vms
from ...model.errors import FlexdiskError
from ...model.vm import VmConfig
from ...plan.disk_steps import CreateDisk
from ...plan.vm_steps import (
    ClearRemains,
    CreateVm,
    DeleteSnapshot,
    DeleteVm,
    ImportImage,
    RemoveUnfinished,
    RollBack,
    SetProperties,
    TakeSnapshot,
)
from ...rules import identity
from ...rules.journal import datasets_in_use
from ...rules.layout import container, final, image_of
from ...rules.unfinished import is_unfinished, still_needed
from ...zfs import exact
from ...zfs.commands import Zfs
from . import file_disks
from .apply_moves import Entry, entry_of
from .perform import Change, Tools
from .storage import storage_of


def create_vm(step: CreateVm, tools: Tools, change: Change) -> None:
    storage = storage_of(tools)
    storage.before_vm(step, change)
    whole_vms(tools.hypervisor).create_vm(
        step.new, [_entry(disk) for disk in step.disks], step.indestructible, step.ports
    )
    storage.after_vm(step, change)


def import_image(step: ImportImage, tools: Tools, change: Change) -> None:
    """Import an image. Until it is complete, the volume is marked, and has a reservation for all its data."""
    volume, last = step.volume, final(step.volume)
    if tools.zfs.exists(last):
        return  # an earlier VM of this task has had it imported
    if tools.zfs.exists(volume):
        now = tools.read(volume)
        if now.user.get("from") != identity.IMPORTING:
            raise FlexdiskError("Changed", f"the host changed since it was read: {volume} now exists")
        file_disks.discard(tools.zfs, now)
    options = {"volblocksize": str(step.block_size_bytes)}
    tools.zfs.create_volume(volume, step.volsize_bytes, options, {"from": identity.IMPORTING})
    whole_vms(tools.hypervisor).import_image(step.file, volume)
    tools.zfs.set(volume, refreservation="none")
    tools.zfs.snapshot(last)
    tools.zfs.set_facts(volume, {"from": ""})


def clear_remains(step: ClearRemains, tools: Tools, change: Change) -> None:
    """Destroy exactly the datasets and snapshots that were read, if they are still unused."""
    datasets, empty = tools.zfs.datasets(step.root), tools.read(container(change.after.root.pool))
    in_use = datasets_in_use(datasets, empty)
    if in_use:
        raise exact.changed(step.root, [f"{name} is in use" for name in in_use])
    exact.destroy_tree(tools.zfs, step.left)


def delete_vm(step: DeleteVm, tools: Tools, change: Change) -> None:
    """Delete the VM. The check comes right before, because a hypervisor destroys all that is below the VM's dataset."""
    vm = change.vm
    if vm.root.kind:
        exact.confirm(tools.zfs, vm.root.dataset_id, step.parts, step.snapshots)
    storage_of(tools).destroy_before_delete(step, vm)
    whole_vms(tools.hypervisor).delete_vm(vm.config.uuid)
    if vm.root.kind:
        _destroy_datasets(tools, vm.root.name, dict((vm.root.dataset_id, *step.parts, *step.snapshots)))


def delete_config_only(zfs: Zfs, hypervisor: Hypervisor, config: VmConfig) -> None:
    """Delete a VM whose dataset and volumes were all gone when the host was read.

    Raises FlexdiskError Changed if one exists now, because the hypervisor would destroy it with all that lies below.
    """
    names = [config.dataset if config.pool else "", *(entry.volume for entry in config.disks)]
    existing = [name for name in dict.fromkeys(names) if name and zfs.exists(name)]
    if existing:
        text = f"the host changed since it was read: {', '.join(existing)} now exists; nothing was destroyed"
        raise FlexdiskError("Changed", f"VM {config.label}: {text}")
    whole_vms(hypervisor).delete_vm(config.uuid)


def _destroy_datasets(tools: Tools, root: str, parts: t.Mapping[str, int]) -> None:
    """Destroy the datasets of a VM that the hypervisor has deleted, if there are none but these parts.

    parts: the guids of datasets and snapshots by name.
    """
    if not tools.zfs.exists(root):
        return
    datasets = tools.zfs.datasets(root)
    unexpected = sorted(d.name for d in datasets if parts.get(d.name) != d.guid)
    if unexpected:
        raise FlexdiskError(
            "Changed", f"the VM is deleted, but its dataset has {', '.join(unexpected)}, which is not destroyed"
        )
    try:
        for one in sorted((d for d in datasets if d.kind != "snapshot"), key=lambda d: d.name, reverse=True):
            exact.destroy(
                tools.zfs, one.dataset_id, [d.dataset_id for d in datasets if d.name.startswith(f"{one.name}@")]
            )
    except FlexdiskError as exc:
        text = f"the VM is deleted, but {root} is left: {exc.message}; the same task again destroys it"
        raise FlexdiskError(exc.code, text) from exc


def remove_unfinished(step: RemoveUnfinished, tools: Tools, change: Change) -> None:
    """Remove an unfinished VM, and then its datasets, because the hypervisor knows only some of them."""
    parts = dict(step.parts)
    datasets = tools.zfs.datasets(step.root) if tools.zfs.exists(step.root) else []
    unexpected = [d.name for d in datasets if parts.get(d.name) != d.guid]
    empty = tools.read(container(change.after.root.pool))
    in_use = still_needed(datasets, step.root, empty, step.configured, step.deletes)
    if unexpected or in_use:
        text = f"the host changed since it was read: {', '.join(sorted({*unexpected, *in_use}))}"
        raise FlexdiskError("Changed", f"{text}; nothing was destroyed")
    config = next((one for one in tools.hypervisor.vms() if one.uuid == step.uuid), None)
    if config is not None and not (step.configured and is_unfinished(config)):
        raise FlexdiskError("Changed", f"the host changed since it was read: VM {config.label} is {config.state} now")
    if config is not None:
        whole_vms(tools.hypervisor).delete_vm(step.uuid)
    _destroy_datasets(tools, step.root, parts)


def set_properties(step: SetProperties, tools: Tools, change: Change) -> None:
    vm, protected = change.vm, step.indestructible
    if step.machine:
        whole_vms(tools.hypervisor).set_machine(vm.config.uuid, step.machine)
    if protected is not None:
        storage_of(tools).set_indestructible(vm, protected)
    if step.facts:
        tools.zfs.set_facts(vm.root.name, step.facts)


def take_snapshot(step: TakeSnapshot, tools: Tools, change: Change) -> None:
    storage_of(tools).create_snapshot(step, change.vm)


def delete_snapshot(step: DeleteSnapshot, tools: Tools, change: Change) -> None:
    storage_of(tools).delete_snapshot(step, change.vm)


def roll_back(step: RollBack, tools: Tools, change: Change) -> None:
    storage_of(tools).roll_back(step, change)


def _entry(disk: CreateDisk) -> Entry:
    """Return the entry of a new VM's disk for the driver. A disk from an image gets the block size of the image."""
    entry = entry_of(disk.attachment)
    if disk.origin:
        entry["image_uuid"] = image_of(disk.origin)
    else:
        entry["block_size"] = disk.block_size_bytes
    entry["compression"] = disk.own_compression
    return entry
