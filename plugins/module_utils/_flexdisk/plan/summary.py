# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task in one line: how many VMs it changes, how much space it takes, what is destroyed."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_bytes
from ..model.text import count
from ..model.vm import Vm
from ..rules.reservation import PoolGeometry
from . import predict
from .disk_steps import AttachDisk
from .steps import Step, VmPlan
from .vm_steps import Relocate


class Sum(t.NamedTuple):
    """Bytes that disks take from the pool (negative: release), bytes of disks destroyed, snapshots destroyed."""

    net: int = 0
    destroyed: int = 0
    snapshots: int = 0


def summary(plans: t.Sequence[VmPlan], geometry: t.Mapping[str, PoolGeometry], outside: int = 0) -> str:
    """Return C(3 VMs: 2 changes, 1 restart, +50 GiB, 0 B destroyed). outside: number of steps outside of VMs."""
    vms = [plan for plan in plans if plan.vm]
    subjects = [count(len(vms), "VM")] if vms or len(plans) == 0 else []
    subjects += ["detached disks"] if len(vms) < len(plans) else []
    return f"{' and '.join(subjects)}: {_changes(plans, vms, geometry, outside)}"


def unchanged(plans: t.Sequence[VmPlan]) -> str:
    """Return how many VMs a task does not change, as text; "" if there are none."""
    idle = sum(1 for plan in plans if plan.vm and not plan.changed)
    return f"{count(idle, 'VM')} unchanged" if idle else ""


def _changes(
    plans: t.Sequence[VmPlan], vms: t.Sequence[VmPlan], geometry: t.Mapping[str, PoolGeometry], outside: int
) -> str:
    changed = [plan for plan in plans if plan.changed]
    if not changed and not outside:
        return "nothing to change"
    sums = [_sum(plan, geometry[plan.before.config.pool]) for plan in changed]
    net, destroyed, lost = (sum(column) for column in zip(Sum(), *sums))
    parts = []
    if vms:
        parts += [_some(sum(1 for plan in vms if plan.changed), "change"), _some(sum(map(_restarts, vms)), "restart")]
    parts += [("" if net < 0 else "+") + render_bytes(net), f"{render_bytes(destroyed)} destroyed"]
    parts += [f"{count(lost, 'snapshot')} destroyed"] if lost else []
    parts += [f"{count(outside, 'repair')} outside VMs"] if outside else []
    return ", ".join(parts)


def _some(number: int, noun: str) -> str:
    return count(number, noun) if number else f"no {noun}s"


def _restarts(plan: VmPlan) -> bool:
    return plan.stops and plan.before.config.state == plan.after.config.state == "running"


def _sum(plan: VmPlan, geometry: PoolGeometry) -> Sum:
    vm, net, destroyed = plan.before, 0, 0
    lost: t.Set[int] = set()
    for step in plan.steps:
        after = predict.apply(vm, step, geometry)
        gain = _size(after) - _size(vm) - _guests(vm, step)
        net += gain
        if step.destroys:
            destroyed += max(0, -gain)
            lost |= {moment for _guid, moment in _snapshots(vm) - _snapshots(after)}
        vm = after
    return Sum(net, destroyed, len(lost))


def _size(vm: Vm) -> int:
    return sum(disk.size for disk in vm.disks + vm.orphans + vm.detached)


def _guests(vm: Vm, step: Step) -> int:
    """Return the size of disks that come to the VM from elsewhere in the pool."""
    if isinstance(step, AttachDisk):
        known = {disk.volume.name for disk in vm.disks + vm.orphans + vm.detached}
        return 0 if step.source in known else step.attached.size
    if isinstance(step, Relocate):
        there = {disk.volume.guid for disk in vm.disks + vm.orphans}
        return sum(moved.size for _entry, moved in step.moves if moved.volume.guid not in there)
    return 0


def _snapshots(vm: Vm) -> t.Set[t.Tuple[int, int]]:
    """Return all snapshots of the VM and its disks, each as the guid of its dataset and its createtxg."""
    result = {(vm.root.guid, snapshot.createtxg) for snapshot in vm.snapshots}
    for disk in vm.disks + vm.orphans + vm.beside + vm.detached:
        result |= {(disk.volume.guid, snapshot.createtxg) for snapshot in disk.snapshots}
    return result
