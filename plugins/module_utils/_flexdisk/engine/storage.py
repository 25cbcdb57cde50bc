# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Who sizes volumes, sets quotas and takes snapshots: the hypervisor's own tool, or the engine by ZFS."""

from __future__ import annotations

import typing as t

from ..hypervisor.protocol import Storage
from ..model.sizes import MIB
from ..model.vm import FILE, Vm
from ..plan.disk_steps import Resize, SetCompression
from ..plan.vm_steps import CreateVm, DeleteSnapshot, RollBack, SetFlexibleSize, SetVmQuota, TakeSnapshot
from ..rules import identity
from . import file_disks
from .perform import Change, Tools, stamp
from .volumes import make_disk, reservation


class ByZfs:
    """The engine does it, for a hypervisor that only attaches what is there (Capabilities.keeps_storage false)."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._zfs = tools.zfs

    def announce_sizes(self, vm: Vm) -> None:
        """Tell a running guest the sizes of its disks again: one that an interrupted run did not tell is seen
        nowhere.
        """
        if vm.config.state == "running":
            for disk in (d for d in vm.disks if d.size % MIB == 0):
                self._tools.hypervisor.resize_disk(vm.config.uuid, disk.path, disk.size_mib, False)

    def set_flexible(self, step: SetFlexibleSize, change: Change) -> None:
        """Write down another flexible_disk_size, and set what follows from it."""
        self._zfs.set_facts(change.after.root.name, {identity.FLEXIBLE: str(step.stored_mib)})
        self._set_figures(change)

    def set_quota(self, step: SetVmQuota, change: Change) -> None:
        """Set another quota of the VM's own file system, and what follows from it."""
        self._set_figures(change)

    def _set_figures(self, change: Change) -> None:
        """In the order that ZFS takes: no quota ever below what is reserved in it."""
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

    def make_room(self, change: Change) -> None:
        """Before a disk grows: the quota for it."""
        if change.after.root.quota > change.vm.root.quota:
            self._tools.settle(change.after)

    def resize(self, step: Resize) -> None:
        """Another size for a volume; a file has it already."""
        if step.type != FILE:
            self._zfs.set(step.volume, volsize=step.size_mib * MIB, **reservation(step.type))

    def set_compression(self, step: SetCompression, vm: Vm) -> None:
        """For what is written from now on."""
        self._zfs.set(step.volume, compression=step.value)

    def before_vm(self, step: CreateVm, change: Change) -> None:
        """Make the dataset and the disks of a new VM. Its configuration comes last: a VM that is there has all."""
        root = change.after.root
        figures = ("quota", "reservation", "refquota", "refreservation")
        options = {key: str(getattr(root, key)) for key in figures if getattr(root, key)}
        self._zfs.create_filesystem(root.name, {"mountpoint": "none", "canmount": "off", **options}, step.facts)
        for disk in step.disks:
            make_disk(disk, self._tools, {**disk.facts, **stamp({})}, change.geometry)

    def after_vm(self, step: CreateVm, change: Change) -> None:
        """All is written down already."""

    def before_end(self, vm: Vm, volumes: t.Mapping[str, int]) -> None:
        """Destroy these volumes (with their guids) and the VM's dataset, before its configuration goes."""
        for name, guid in volumes.items():
            now = self._tools.read(name, guid)
            self._zfs.destroy(name, True)
            file_disks.removed(self._zfs, now)
        if vm.root.kind:
            self._zfs.destroy(vm.root.name, True)

    def set_indestructible(self, vm: Vm, protected: bool) -> None:
        """Write it down; this collection heeds it."""
        self._zfs.set_facts(vm.root.name, {"indestructible": "true" if protected else ""})

    def create_snapshot(self, step: TakeSnapshot, vm: Vm) -> None:
        """Of all datasets of the VM, at one moment."""
        self._zfs.snapshot(f"{vm.root.name}@{step.full_name}", recursive=True)

    def delete_snapshot(self, step: DeleteSnapshot, vm: Vm) -> None:
        """Part by part, in the order of the step."""
        for part in step.parts:
            self._zfs.destroy(part)

    def roll_back(self, step: RollBack, change: Change) -> None:
        """Part by part. The size of a disk that is a file is a property of ours, and not among what goes back."""
        after = change.after
        files = {d.volume.name: d.volume for d in after.disks + after.orphans if d.type == FILE}
        for part in step.parts:
            self._zfs.rollback(part)
            name = part.partition("@")[0]
            if name in files:
                self._zfs.set_facts(name, {"size": str(files[name].volsize)})


class ByHypervisor(ByZfs):
    """The hypervisor's tool does it; what that has no word for is done by ZFS all the same."""

    def __init__(self, tools: Tools, storage: Storage) -> None:
        super().__init__(tools)
        self._storage = storage

    def announce_sizes(self, vm: Vm) -> None:
        """The tool has done it with the resize."""

    def set_flexible(self, step: SetFlexibleSize, change: Change) -> None:
        """By the tool, with all that follows."""
        self._storage.set_flexible(change.vm.config.uuid, step.stored_mib)

    def set_quota(self, step: SetVmQuota, change: Change) -> None:
        """By the tool, with all that follows."""
        self._storage.set_quota(change.vm.config.uuid, step.quota_bytes)

    def make_room(self, change: Change) -> None:
        """The tool does it with the resize."""

    def resize(self, step: Resize) -> None:
        """The tool does it when it is told the size."""

    def set_compression(self, step: SetCompression, vm: Vm) -> None:
        """By the tool, for a disk that the VM has."""
        if step.path:
            self._storage.set_compression(vm.config.uuid, step.path, step.value)
        else:
            super().set_compression(step, vm)

    def before_vm(self, step: CreateVm, change: Change) -> None:
        """The tool makes everything with the VM."""

    def after_vm(self, step: CreateVm, change: Change) -> None:
        """Write down what the tool does not know."""
        if any(step.facts.values()):
            self._zfs.set_facts(change.after.root.name, {k: v for k, v in step.facts.items() if v})
        for disk in step.disks:
            self._zfs.set_facts(disk.volume, {**disk.facts, **stamp({})})

    def before_end(self, vm: Vm, volumes: t.Mapping[str, int]) -> None:
        """The tool destroys everything with the VM."""

    def set_indestructible(self, vm: Vm, protected: bool) -> None:
        """By the tool, which heeds it."""
        self._storage.set_indestructible(vm.config.uuid, protected)

    def create_snapshot(self, step: TakeSnapshot, vm: Vm) -> None:
        """By the tool."""
        self._storage.create_snapshot(vm.config.uuid, step.name)

    def delete_snapshot(self, step: DeleteSnapshot, vm: Vm) -> None:
        """By the tool; one that lacks a part is unknown to it."""
        if step.whole:
            self._storage.delete_snapshot(vm.config.uuid, step.name)
        else:
            super().delete_snapshot(step, vm)

    def roll_back(self, step: RollBack, change: Change) -> None:
        """By the tool, which starts the VM at the end."""
        self._storage.roll_back(change.vm.config.uuid, step.name)


def storage_of(tools: Tools) -> ByZfs:
    """Who does it on this host."""
    own = tools.hypervisor.storage
    return ByZfs(tools) if own is None else ByHypervisor(tools, own)
