# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The functions that carry out steps for disks, quotas and power of VMs, by the class of the step."""

from __future__ import annotations

from ...plan.disk_steps import (
    AttachDisk,
    Convert,
    CreateDisk,
    Destroy,
    DestroyDetached,
    Detach,
    DetachUnattached,
    DiscardCopy,
    EditDisks,
    ForgetDisk,
    Grow,
    LiftGuard,
    SetCompression,
    Shrink,
    SyncFacts,
    WriteIdentity,
)
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
from . import apply_disks, apply_figures, apply_moves
from .perform import Performers

PERFORM: Performers = {
    WriteIdentity: apply_disks.write_identity,
    SyncFacts: apply_disks.sync_facts,
    LiftGuard: apply_disks.lift_guard,
    DiscardCopy: apply_disks.discard_copy,
    EditDisks: apply_disks.edit_disks,
    SetCompression: apply_disks.set_compression,
    Grow: apply_disks.resize,
    Shrink: apply_disks.resize,
    Convert: apply_disks.convert,
    Detach: apply_moves.detach,
    DetachUnattached: apply_moves.detach,
    Destroy: apply_moves.destroy,
    DestroyDetached: apply_moves.destroy_detached,
    ForgetDisk: apply_moves.forget_disk,
    AttachDisk: apply_moves.attach_disk,
    CreateDisk: apply_moves.create_disk,
    Recover: apply_figures.recover,
    Remember: apply_figures.remember,
    GiveUp: apply_figures.give_up,
    SettleQuota: apply_figures.settle_quota,
    SettleVolumes: apply_figures.settle_volumes,
    RetireSyncs: apply_figures.retire_syncs,
    SetFlexibleSize: apply_figures.set_flexible_size,
    SetVmQuota: apply_figures.set_vm_quota,
    Stop: apply_figures.stop,
    Start: apply_figures.start,
    SetAutoboot: apply_figures.set_autoboot,
    Relocate: apply_figures.relocate,
    AddPorts: apply_figures.add_ports,
}
