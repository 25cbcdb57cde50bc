# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a group takes VMs of this size and kind at all."""

from __future__ import annotations

from .account import NO_CPU, NO_DISK, NO_MEMORY
from .known import KnownGroup, KnownVm, Size

NO_DISK_COUNT, NO_SPINDLES = "FailDiskCount", "FailSpindles"


def why_too_large(vm: KnownVm, group: KnownGroup) -> str:
    """Return why the policy of the group refuses the VM, or "". It must lie within one of the group's pairs."""
    reasons = [_outside(vm, minimum, maximum) for minimum, maximum in group.sizes]
    if "" in reasons or not reasons:
        return "" if vm.template in group.templates else NO_DISK
    return reasons[0]


def _outside(vm: KnownVm, minimum: Size, maximum: Size) -> str:
    if not minimum.memory <= vm.memory <= maximum.memory:
        return NO_MEMORY
    if any(not minimum.disk_size <= size <= maximum.disk_size for size in vm.disks):
        return NO_DISK
    if not minimum.cpus <= vm.cpus <= maximum.cpus:
        return NO_CPU
    if not minimum.spindles <= vm.spindles <= maximum.spindles:
        return NO_SPINDLES
    if vm.template != "diskless" and not minimum.disks <= len(vm.disks) <= maximum.disks:
        return NO_DISK_COUNT
    return ""
