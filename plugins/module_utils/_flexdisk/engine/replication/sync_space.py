# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space of a VM for the snapshots of syncs: beside its flexible_disk_size, in its quota and reservation."""

from __future__ import annotations

from ...model.vm import Vm
from ...rules.inventory import Host
from ...rules.replicas import SPACE
from ...rules.space import quota_with_syncs, sync_needs, sync_space
from ...zfs.commands import Zfs


def quota_of(vm: Vm, space: int, host: Host) -> int:
    """Return the quota of the VM with so many bytes for syncs, 0 for a VM without a quota."""
    return quota_with_syncs(vm, space, host.geometry[vm.config.pool]) if vm.root.quota else 0


def is_off(vm: Vm, host: Host) -> bool:
    """Return whether settle() would change something, if the VM's snapshots stay as they are."""
    quota = quota_of(vm, sync_needs(vm), host)
    return bool(quota) and (sync_space(vm) != sync_needs(vm) or _needs_change(vm, quota))


def _needs_change(vm: Vm, quota: int) -> bool:
    return (vm.root.quota, vm.root.reservation) != (quota, quota)


def settle(zfs: Zfs, vm: Vm, space: int, host: Host) -> bool:
    """Give the VM so many bytes for syncs. Return whether something was changed.

    The number is written before quota and reservation, so that a repair can compute both from it.
    """
    quota = quota_of(vm, space, host)
    if not quota:
        return False
    changed = space != sync_space(vm)
    if changed:
        zfs.set_facts(vm.root.name, {SPACE: str(space) if space else ""})
    if _needs_change(vm, quota):
        zfs.set(vm.root.name, quota=quota, reservation=quota)
        changed = True
    return changed
