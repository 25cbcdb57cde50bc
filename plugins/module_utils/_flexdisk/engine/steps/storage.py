# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes of volumes, quotas and snapshots: set by the hypervisor's own tool, or by the engine with ZFS."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Storage
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError, Unchanged
from ...model.sizes import MIB, render_apart
from ...model.vm import FILE, Vm
from ...plan.disk_steps import Resize, SetCompression, Shrink
from ...plan.vm_steps import CreateVm, DeleteSnapshot, DeleteVm, RollBack, SetFlexibleSize, SetVmQuota, TakeSnapshot
from ...rules import identity, pins
from ...zfs import exact
from . import file_disks
from .perform import Change, Tools, stamp
from .records import write_record
from .volumes import make_disk, reservation, snapshots_of_dataset


class ByZfs:
    """Changes by ZFS, for a hypervisor that only attaches what is there (Capabilities.keeps_storage is false)."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._zfs = tools.zfs

    def announce_sizes(self, vm: Vm) -> None:
        """Announce the sizes of its disks to a running guest again, because an interrupted run may not have done so.

        A hypervisor that resizes volumes itself may also have left a size out of the VM's configuration.
        """
        if vm.config.state == "running" or self._tools.hypervisor.resizing is not None:
            for disk in (d for d in vm.disks if d.size % MIB == 0 and not d.element.unresizable):
                self._tools.hypervisor.announce_size(vm.config.uuid, disk.path, disk.size_mib, False)

    def set_flexible(self, step: SetFlexibleSize, change: Change) -> None:
        """Store flexible_disk_size, and set the figures that follow from it."""
        if change.after.config.prefixes:
            write_record(self._tools, change.after)
            return
        self._zfs.set_facts(change.after.root.name, {identity.FLEXIBLE: str(step.stored_mib)})
        self._set_figures(change)

    def set_quota(self, step: SetVmQuota, change: Change) -> None:
        """Set the quota of the VM's own file system, and the figures that follow from it."""
        self._set_figures(change)

    def _set_figures(self, change: Change) -> None:
        """Set quotas and reservations in an order that ZFS accepts: a quota must not be below its reservations."""
        now, then = change.vm.root, change.after.root
        if then.quota >= now.quota:
            self._tools.settle(change.after)
        if then.refreservation < now.refreservation:
            self._zfs.set(then.name, refreservation=then.refreservation)
        if then.refquota != now.refquota:
            self._zfs.set(then.name, refquota=then.refquota)
        if then.refreservation > now.refreservation:
            self._zfs.set(then.name, refreservation=then.refreservation)
        if then.quota < now.quota:
            self._tools.settle(change.after)

    def resize(self, step: Resize, now: Dataset, change: Change) -> None:
        """Resize a disk, and announce it to a running guest. The quota is raised before a disk grows."""
        resizing, shrinks = self._tools.hypervisor.resizing, isinstance(step, Shrink)
        if resizing is not None:
            planned = next(v for v in change.vm.volumes if v.name == step.volume) if shrinks else None
            resizing.resize_disk(change.vm.config.uuid, step.path, step.size_mib, planned)
            return
        if change.after.root.quota > change.vm.root.quota:
            self._tools.settle(change.after)
        size = step.size_mib * MIB
        if step.type == FILE:
            file_disks.resize(self._zfs, now, size, change.geometry)
        else:
            self._zfs.set(step.volume, volsize=size, **reservation(step.type))
        self._tools.hypervisor.announce_size(change.vm.config.uuid, step.path, step.size_mib, shrinks)

    def set_compression(self, step: SetCompression, vm: Vm) -> None:
        """Set the compression for data that is written from now on."""
        self._zfs.set(step.volume, compression=step.value)

    def before_vm(self, step: CreateVm, change: Change) -> None:
        """Make the dataset and disks of a new VM. Its configuration comes last, so a VM that exists is complete."""
        root = change.after.root
        figures = ("quota", "reservation", "refquota", "refreservation")
        options = {key: str(getattr(root, key)) for key in figures if getattr(root, key)}
        self._zfs.create_filesystem(root.name, {"mountpoint": "none", "canmount": "off", **options}, step.facts)
        for disk in step.disks:
            make_disk(disk, self._tools, {**disk.facts, **stamp({})}, change.geometry)

    def after_vm(self, step: CreateVm, change: Change) -> None:
        """Nothing: everything is written already."""

    def destroy_before_delete(self, step: DeleteVm, vm: Vm) -> None:
        """Destroy the VM's volumes and its dataset one by one, before its configuration is removed."""
        for volume in step.parts:
            gone = exact.destroy(self._zfs, volume, snapshots_of_dataset(step.snapshots, volume.name))
            file_disks.remove_folder(self._zfs, gone.dataset)
        if vm.root.kind:
            exact.destroy(self._zfs, vm.root.dataset_id, snapshots_of_dataset(step.snapshots, vm.root.name))

    def set_indestructible(self, vm: Vm, protected: bool) -> None:
        """Write the protection to a property, which this collection respects."""
        self._zfs.set_facts(vm.root.name, {"indestructible": "true" if protected else ""})

    def create_snapshot(self, step: TakeSnapshot, vm: Vm) -> None:
        """Take a snapshot of all datasets of the VM at one moment, or let the hypervisor take it."""
        snapshots = self._tools.hypervisor.snapshots
        if snapshots is not None:
            snapshots.create_snapshot(vm.config.uuid, step.name)
            return
        self._zfs.snapshot(f"{vm.root.name}@{step.full_name}", recursive=True)

    def delete_snapshot(self, step: DeleteSnapshot, vm: Vm) -> None:
        """Destroy the snapshot part by part, in the order of the step, or let the hypervisor delete it."""
        snapshots = self._tools.hypervisor.snapshots
        if snapshots is not None:
            listed = next(one for one in vm.config.snapshots if one.name == step.name)
            for volume in self._zfs.existing(sorted({*listed.volumes})):
                exact.confirm_snapshots(self._zfs, volume, step.name, step.parts)
            snapshots.delete_snapshot(vm.config.uuid, step.name)
            return
        exact.destroy_snapshots(self._zfs, step.parts)

    def roll_back(self, step: RollBack, change: Change) -> None:
        """Roll back part by part. The size of a file disk is a property of ours, which ZFS does not roll back."""
        snapshots = self._tools.hypervisor.snapshots
        if snapshots is not None:
            exact.confirm_rollback(self._zfs, step.parts, step.newer)
            snapshots.roll_back(change.vm.config.uuid, step.name, step.parts)
            return
        after = change.after
        files = {d.volume.name: d.volume for d in after.disks + after.orphans if d.type == FILE}

        def size_again(name: str) -> None:
            if name in files:
                self._zfs.set_facts(name, {"size": str(files[name].volsize)})

        room = _RollbackRoom(self._tools, change.vm.root.name, step)
        exact.roll_back(self._zfs, step.parts, step.newer, size_again, room.make)
        room.give_back()


class ByHypervisor(ByZfs):
    """Changes by the hypervisor's tool. What the tool cannot do is done by ZFS, as in ByZfs."""

    def __init__(self, tools: Tools, storage: Storage) -> None:
        super().__init__(tools)
        self._storage = storage

    def announce_sizes(self, vm: Vm) -> None:
        """Nothing: the tool has announced them with the resize."""

    def set_flexible(self, step: SetFlexibleSize, change: Change) -> None:
        """Let the tool set it, with all figures that follow from it."""
        self._storage.set_flexible(change.vm.config.uuid, step.stored_mib)

    def set_quota(self, step: SetVmQuota, change: Change) -> None:
        """Let the tool set it, with all figures that follow from it."""
        self._storage.set_quota(change.vm.config.uuid, step.quota_bytes)

    def set_compression(self, step: SetCompression, vm: Vm) -> None:
        """Let the tool set the compression of a disk that the VM has."""
        if step.path:
            self._storage.set_compression(vm.config.uuid, step.path, step.value)
        else:
            super().set_compression(step, vm)

    def before_vm(self, step: CreateVm, change: Change) -> None:
        """Nothing: the tool makes everything with the VM."""

    def after_vm(self, step: CreateVm, change: Change) -> None:
        """Write the properties that the tool does not know."""
        if any(step.facts.values()):
            self._zfs.set_facts(change.after.root.name, {k: v for k, v in step.facts.items() if v})
        for disk in step.disks:
            self._zfs.set_facts(disk.volume, {**disk.facts, **stamp({})})

    def destroy_before_delete(self, step: DeleteVm, vm: Vm) -> None:
        """Nothing: the tool destroys everything with the VM."""

    def set_indestructible(self, vm: Vm, protected: bool) -> None:
        """Let the tool set the protection, which it respects."""
        self._storage.set_indestructible(vm.config.uuid, protected)

    def create_snapshot(self, step: TakeSnapshot, vm: Vm) -> None:
        """Let the tool take the snapshot."""
        self._storage.create_snapshot(vm.config.uuid, step.name)

    def delete_snapshot(self, step: DeleteSnapshot, vm: Vm) -> None:
        """Let the tool delete the snapshot. The tool does not know one that lacks a part, so ZFS deletes that."""
        if step.complete:
            exact.confirm_snapshots(self._zfs, vm.root.name, step.full_name, step.parts)
            self._storage.delete_snapshot(vm.config.uuid, step.name)
        else:
            super().delete_snapshot(step, vm)


class _RollbackRoom:
    """Temporary space in the quota of a VM for the rollback of a disk.

    If the rollback fails, the quota stays raised, because the next run needs it. That sets it by the quota law.
    """

    def __init__(self, tools: Tools, root: str, step: RollBack) -> None:
        self._tools = tools
        self._root = root
        self._parts = {part.name.partition("@")[0]: part.name for part in step.parts}
        self._quota = 0

    def make(self, datasets: t.Sequence[Dataset]) -> None:
        """Raise the quota if it is too low. Raises Unchanged if the pool lacks the space, too."""
        root = next((one for one in datasets if one.name == self._root), None) or self._tools.read(self._root)
        need = max((self._bytes_beside(one, datasets) for one in datasets if one.name in self._parts), default=0)
        if not root.quota or root.quota - root.used >= need:
            return
        self._check_pool(root, need)
        self._quota = root.quota
        self._tools.zfs.set(self._root, quota=root.used + need + MIB)

    def _check_pool(self, root: Dataset, need: int) -> None:
        room = int(self._tools.zfs.properties(root.pool)[root.pool]["available"][0])
        if room < pins.beyond_reservation(root, need):
            raise Unchanged(FlexdiskError("InsufficientSpace", _no_room(root, room, need)))

    def _bytes_beside(self, dataset: Dataset, datasets: t.Sequence[Dataset]) -> int:
        points = [one for one in datasets if one.parent == dataset.name and one.kind == "snapshot"]
        since = next((one.createtxg for one in points if one.name == self._parts[dataset.name]), 0)
        return pins.beside_rollback(dataset, [one for one in points if one.createtxg > since])

    def give_back(self) -> None:
        """Set the quota back to what it was."""
        if self._quota:
            self._tools.zfs.set(self._root, quota=self._quota)


def _no_room(root: Dataset, room: int, need: int) -> str:
    figures = (root.pool, *render_apart(room, pins.beyond_reservation(root, need)))
    text = "pool %s has %s left, but for a moment the rollback takes %s beyond the reservation of the VM" % figures
    return f"{text}; nothing was rolled back"


def storage_of(tools: Tools) -> ByZfs:
    """Return the storage that the driver of this host needs: ByHypervisor or ByZfs."""
    storage = tools.hypervisor.storage
    return ByZfs(tools) if storage is None else ByHypervisor(tools, storage)
