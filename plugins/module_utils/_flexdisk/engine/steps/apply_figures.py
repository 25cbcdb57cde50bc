# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out the steps for a VM's quota, space and power."""

from __future__ import annotations

from ...model.vm import DiskConfig
from ...plan.vm_steps import (
    AddPorts,
    GiveUp,
    Recover,
    Relocate,
    Remember,
    RetireSyncs,
    SetAutoboot,
    SetFlexibleSize,
    SettleQuota,
    SettleVolumes,
    SetVmQuota,
    Start,
    Stop,
)
from ...rules.replicas import SPACE
from ...zfs import exact
from . import autoboot, power, renames
from .perform import Change, Tools
from .records import write_record
from .storage import storage_of


def recover(step: Recover, tools: Tools, change: Change) -> None:
    """Take back what waits, and announce the sizes of its disks to the guest.

    Later steps do the rest; this run's intent is written already.
    """
    if change.vm.config.waiting:
        if tools.hypervisor.waiting is None:
            raise AssertionError("a change waits on a hypervisor that makes every change at once")
        tools.hypervisor.waiting.take_back(change.vm.config.uuid)
    storage_of(tools).announce_sizes(change.vm)


def relocate(step: Relocate, tools: Tools, change: Change) -> None:
    """Move volumes. A property has the old name of each until the configuration has the new one."""
    vm = change.vm
    if not vm.root.kind and not tools.zfs.exists(vm.root.name):
        tools.zfs.create_container(vm.root.name)
    # A disk by another name gets the path of its volume first: an interrupted run goes on as for any other disk.
    named = [{"path": entry.path, "volume": entry.volume} for entry, _disk in step.moves if entry.named]
    if named:
        tools.hypervisor.edit_disks(vm.config.uuid, named)
    for entry, disk in step.moves:
        if not tools.zfs.exists(disk.volume.name):
            tools.read(entry.volume, disk.volume.guid)
            tools.zfs.set_facts(entry.volume, {"from": entry.volume})
            renames.rename(tools.zfs, entry.volume, disk.volume.name)
    moved = [{"path": _path(entry, tools), "volume": disk.volume.name} for entry, disk in step.moves]
    if moved:
        tools.hypervisor.edit_disks(vm.config.uuid, moved)
    for _entry, disk in step.moves:
        tools.zfs.set_facts(disk.volume.name, {"from": ""})


def _path(entry: DiskConfig, tools: Tools) -> str:
    return tools.hypervisor.capabilities.device_prefix + entry.volume if entry.named else entry.path


def add_ports(step: AddPorts, tools: Tools, change: Change) -> None:
    tools.hypervisor.add_ports(change.vm.config.uuid, step.ports)


# -- the VM's dataset


def remember(step: Remember, tools: Tools, change: Change) -> None:
    write_record(tools, change.after, step.serials, step.detached)


def give_up(step: GiveUp, tools: Tools, change: Change) -> None:
    write_record(tools, change.after, step.serials)


def settle_quota(step: SettleQuota, tools: Tools, change: Change) -> None:
    now, then = change.vm.root, change.after.root
    # A recursive snapshot can take more than the quota. Then ZFS refuses to set the same quota again.
    figures = {"quota": then.quota, "reservation": then.reservation}
    changed = {key: figure for key, figure in figures.items() if figure != getattr(now, key)}
    if changed:
        tools.zfs.set(then.name, **changed)
    if now.refreservation != then.refreservation:
        tools.zfs.set(then.name, refreservation=then.refreservation)


def settle_volumes(step: SettleVolumes, tools: Tools, change: Change) -> None:
    # Make room first: a volume that reserves too little takes more than its old overhead.
    tools.settle(change.after)
    then = {volume.name: volume for volume in change.after.volumes}
    for name in step.names:
        figure = then[name].refreservation if then[name].kind == "filesystem" else "auto"
        tools.zfs.set(name, refreservation=figure)


def retire_syncs(step: RetireSyncs, tools: Tools, change: Change) -> None:
    """Destroy the snapshots of syncs, then remove the noted space, which shows until then that there are some."""
    exact.destroy_snapshots(tools.zfs, step.snapshots)
    tools.zfs.set_facts(change.vm.root.name, {SPACE: ""})


def set_flexible_size(step: SetFlexibleSize, tools: Tools, change: Change) -> None:
    storage_of(tools).set_flexible(step, change)


def set_vm_quota(step: SetVmQuota, tools: Tools, change: Change) -> None:
    storage_of(tools).set_quota(step, change)


# -- power


def stop(step: Stop, tools: Tools, change: Change) -> None:
    tools.hypervisor.stop(change.vm.config.uuid, tools.policy.stop_timeout, tools.policy.allow_force_stop)


def start(step: Start, tools: Tools, change: Change) -> None:
    power.start(tools.hypervisor, change.vm)


def set_autoboot(step: SetAutoboot, tools: Tools, change: Change) -> None:
    autoboot.set_autoboot(tools.zfs, tools.hypervisor, change.vm, step.autoboot)
