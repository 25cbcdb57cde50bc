# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a group takes VMs of this size and kind at all."""

from __future__ import annotations

from .account import NO_CPU, NO_DISK, NO_MEMORY
from .known import KnownGroup, KnownVm, Size

NO_DISK_COUNT, NO_SPINDLES = "FailDiskCount", "FailSpindles"


def why_too_large(vm: KnownVm, group: KnownGroup) -> str:
    """Why the policy of the group refuses the VM, "" if it does not. It must lie within one of the group's pairs."""
    reasons = [_outside(vm, least, most) for least, most in group.sizes]
    if "" in reasons or not reasons:
        return "" if vm.template in group.templates else NO_DISK
    return reasons[0]


def _outside(vm: KnownVm, least: Size, most: Size) -> str:
    if not least.memory <= vm.memory <= most.memory:
        return NO_MEMORY
    if any(not least.disk_size <= size <= most.disk_size for size in vm.disks):
        return NO_DISK
    if not least.cpus <= vm.cpus <= most.cpus:
        return NO_CPU
    if not least.spindles <= vm.spindles <= most.spindles:
        return NO_SPINDLES
    if vm.template != "diskless" and not least.disks <= len(vm.disks) <= most.disks:
        return NO_DISK_COUNT
    return ""
