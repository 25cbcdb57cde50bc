# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space for the snapshots of a sync on the VM's own host. All figures are bytes."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.errors import Problem
from ...model.sizes import MIB, render_apart, render_bytes
from ...model.vm import Disk, Vm
from ...rules import snapshots
from ...rules.pins import holds, without_snapshots_named
from ...rules.replicas import sync_name
from ...rules.space import sync_needs

# What the guest may write to a disk between the plan and the snapshot.
_SLACK = 64 * MIB
_FUTURE = 1 << 63


def space_with_next_set(vm: Vm, failed: t.Collection[str]) -> int:
    """Return the space for snapshots (S) that the VM needs with one more set, in bytes. failed: sets that go before, by
    their short names.

    Raised by a slack if the guest is running.
    """
    left = without_snapshots_named(vm, failed)
    slack = sum(min(_SLACK, max(0, d.size - d.volume.written)) for d in _synced(left))
    return sync_needs(replace(left, disks=tuple(map(_with_set, left.disks)))) + (
        slack if vm.config.state != "stopped" else 0
    )


def _synced(vm: Vm) -> t.List[Disk]:
    return [disk for disk in vm.disks if not disk.hidden]


def _with_set(disk: Disk) -> Disk:
    if disk.hidden:
        return disk
    new = replace(disk.volume, name=f"{disk.volume.name}@{sync_name(0, 0)}", kind="snapshot", createtxg=_FUTURE)
    return replace(disk, snapshots=(*disk.snapshots, new))


def snapshot_bytes(vm: Vm, failed: t.Collection[str], quota: int) -> int:
    """Return bytes that the snapshots take of the VM's pool. The arguments are those of snapshot_space_problems."""
    if quota:
        return max(0, quota - max(vm.root.reservation, vm.root.used))
    return sum(holds(disk.volume) for disk in _synced(without_snapshots_named(vm, failed)))


def snapshot_space_problems(vm: Vm, failed: t.Collection[str], quota: int, available: int) -> t.Iterator[Problem]:
    """Yield why the snapshots cannot be taken. What was written since the last ones must stay rewritable.

    failed: as in coming_space. quota: that of the VM with the space for the sync, 0 for none. available: what the
    VM's pool has.
    """
    left = without_snapshots_named(vm, failed)
    needed = sum(holds(disk.volume) for disk in _synced(left))
    used = vm.root.used - sum(v.used for v in vm.volumes) + sum(v.used for v in left.volumes)
    text = "the snapshots of the sync take %s, and"
    if quota and needed > quota - used:
        text += " the VM has %s left; a larger flexible_disk_size makes room"
        text %= render_apart(needed, max(0, quota - used))
        text += snapshots.foreign_snapshots_text(part.name for disk in _synced(left) for part in disk.snapshots)
        yield Problem("InsufficientSpace", text, vm.config.label)
        return
    more = snapshot_bytes(vm, failed, quota)
    if more > available:
        figures = render_apart(more, available)
        text = f"{text % render_bytes(needed)} the VM needs {figures[0]} more of pool {vm.config.pool}, which has"
        yield Problem("InsufficientSpace", f"{text} {figures[1]}", vm.config.label)
