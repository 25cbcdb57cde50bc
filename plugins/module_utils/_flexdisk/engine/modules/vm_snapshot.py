# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of vm_snapshot: it takes, deletes and rolls back to snapshots of whole VMs."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Policy, SnapshotDeclaration
from ...model.sizes import MIB
from ...model.vm import Vm
from ...plan import recovery
from ...plan.steps import VmPlan
from ...plan.vm_snapshot import plan_snapshot
from ...rules import snapshots, space
from ...rules.inventory import Host
from ...rules.skipped import lines
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task
from ..steps.perform import Performers
from .vm_info import chosen, skipped

_Dict = t.Dict[str, t.Any]


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    spec: SnapshotDeclaration,
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
    now: int,
) -> Outcome:
    """Take or delete snapshots of the named VMs, or of all, or roll back, or predict it. now: seconds since 1970."""
    return _SnapshotTask(names, spec, now, Context(zfs, hypervisor, policy, check_mode, pool)).run()


class _SnapshotTask(Task):
    def __init__(
        self, names: t.Optional[t.Sequence[str]], spec: SnapshotDeclaration, now: int, context: Context
    ) -> None:
        super().__init__(context, Outcome())
        self._names = names
        self._spec = spec
        self._now = now

    def performers(self) -> Performers:
        from ..steps.performers_of_vms import PERFORM_OF_VMS

        return PERFORM_OF_VMS

    def plan(self, host: Host) -> t.List[VmPlan]:
        vms, self.outcome.problems = chosen(host, self._names)
        fixed = (self._spec, self.policy, self.hypervisor.capabilities)
        return [plan_snapshot(host, vm, *fixed, self._now) for vm in vms]

    def warnings(self, host: Host, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[str]:
        """Return also warnings about VMs that are left out because they are not managed."""
        left_out = lines(skipped(host), "is left out") if self._names is None else []
        return [*super().warnings(host, plans, good), *left_out]

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        if vm is not None:
            self.outcome.vms.append(_result(plan, vm, self.check_mode))

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        if vm is None:
            return []
        wanted, actual = _names(plan.after), _names(vm)
        snapshot_differences = [] if wanted == actual else [f"snapshots: planned {wanted!r}, found {actual!r}"]
        others = report.differences(plan.after, _powered_like(plan.after, vm))
        return [*_power_difference(plan.after, vm), *others, *snapshot_differences]


def _power_difference(expected: Vm, actual: Vm) -> t.Iterator[str]:
    """Yield that somebody has started or stopped a VM whose power no task of snapshots changes."""
    then, now = expected.config.state, actual.config.state
    if actual.config.prefixes and then != now:
        yield f"the VM was {then} when the task began, and is {now} by now"


def _powered_like(expected: Vm, actual: Vm) -> Vm:
    """Return a VM whose power no task of snapshots changes in the expected state: all its disks have the state."""
    if not actual.config.prefixes:
        return actual
    return replace(actual, config=replace(actual.config, state=expected.config.state))


def _names(vm: Vm) -> t.List[t.Tuple[str, int]]:
    return [(snapshot.name, len(snapshot.parts)) for snapshot in snapshots.snapshots_of(vm)]


def _result(plan: VmPlan, after: Vm, check_mode: bool) -> _Dict:
    """Return the result of a VM. In check mode it lacks what only ZFS and the clock know."""
    known = not (check_mode and plan.changed)
    result: _Dict = {
        "uuid": plan.vm,
        "alias": after.config.alias,
        "state": after.config.state,
        "changed": plan.changed,
        "steps": report.steps_result(plan),
        "recovered": recovery.recovered(plan),
        "flexible_disk_size": after.declared_flexible,
        "disks": {disk.label: disk.size_mib for disk in after.disks},
        "quota_bytes": {"before": plan.before.root.quota, "after": after.root.quota},
        "snapshots": report.snapshots_result(after, known),
    }
    if known:
        room = space.allocatable(after)
        result["allocatable"] = None if room is None else room // MIB
    return result
