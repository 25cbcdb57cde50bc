# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of zfs_quota: it applies the quota law to VMs that drifted, without touching a disk or stopping a VM."""

from __future__ import annotations

import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Approval, Policy
from ...model.errors import Problem
from ...model.sizes import MIB, render_apart, render_bytes, render_exact
from ...model.vm import Vm
from ...plan import ordering, predict, recovery
from ...plan.steps import VmPlan
from ...rules import space
from ...rules.inventory import Host
from ...rules.reservation import PoolGeometry
from ...rules.skipped import lines
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome
from ..run.run import Context, Task
from .vm_info import chosen, skipped


def recalculate(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    pool: t.Optional[str],
    reclaim: bool,
    check_mode: bool,
    continue_on_refusal: bool = False,
    approval: t.Optional[Approval] = None,
) -> t.Tuple[Outcome, t.List[t.Dict[str, str]]]:
    """Repair the drift of the named VMs, or of all, or predict it. Return the outcome and the skipped VMs.

    The drift of refused VMs is reported, too.
    """
    policy = Policy(continue_on_refusal=continue_on_refusal, approval=approval)
    task = _QuotaTask(names, reclaim, Context(zfs, hypervisor, policy, check_mode, pool))
    return task.run(), task.left_out


WITHOUT_DATASET = "Proxmox VE has no dataset for a VM, so there is no quota"


class _QuotaTask(Task):
    """left_out: the skipped VMs with the reason. No journal is needed: the state shows what is left to repair."""

    journal = False

    def __init__(self, names: t.Optional[t.Sequence[str]], reclaim: bool, context: Context) -> None:
        super().__init__(context, Outcome())
        self._names = names
        self._reclaim = reclaim
        self._geometry: t.Mapping[str, PoolGeometry] = {}
        self.left_out: t.List[t.Dict[str, str]] = []

    def plan(self, host: Host) -> t.List[VmPlan]:
        vms, self.outcome.problems = chosen(host, self._names)
        self._geometry = host.geometry
        self.left_out = skipped(host) if self._names is None else []
        unlawful = [v for v in vms if v.config.identity_in_zfs and not v.flexible and not v.root.refquota]
        for vm in [v for v in vms if v.config.prefixes or v in unlawful]:
            vms.remove(vm)
            reason = WITHOUT_DATASET if vm.config.prefixes else "it has no quota yet; vm_disks sets one"
            self.left_out.append({"uuid": vm.config.uuid, "alias": vm.config.alias, "reason": reason})
        return [_plan(vm, host, self._reclaim) for vm in vms]

    def warnings(self, host: Host, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[str]:
        """Return warnings about all interrupted runs, because this module completes none, and about VMs left out."""
        return [*recovery.warnings(host, ()), *lines(self.left_out, "is left out")]

    def shown(self, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[VmPlan]:
        """Return the plans that are reported, also of refused VMs, because their drift is reported."""
        repaired = {plan.vm: plan for plan in good}
        return [repaired.get(plan.vm) or VmPlan(plan.vm, plan.before, plan.before) for plan in plans]

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        if vm is not None:
            self.outcome.vms.append(_result(plan, vm, self._geometry[plan.before.config.pool]))


def _plan(vm: Vm, host: Host, reclaim: bool) -> VmPlan:
    geometry = host.geometry[vm.config.pool]
    steps = ordering.repairs(vm, geometry, reclaim)
    after = vm
    for step in steps:
        after = predict.apply(after, step, geometry)
    short = vm.flexible and any(space.quota_drift(after, geometry))
    problem = obstacle(vm, after) if steps or short else None
    if problem is not None:
        return VmPlan(vm.config.uuid, vm, vm, (), (problem,))
    return VmPlan(vm.config.uuid, vm, after, tuple(steps))


def obstacle(vm: Vm, after: Vm) -> t.Optional[Problem]:
    """Return a problem if the quota by the law is below what the VM uses. ZFS accepts up to 1 MiB less."""
    name = vm.config.alias or vm.config.uuid
    room = space.allocatable(vm)
    if room is not None and room < -MIB:
        return Problem(
            "InsufficientSpace",
            f"quota cannot be recalculated: disks and snapshots need {render_bytes(-room)} more "
            "than flexible_disk_size, "
            f"which must be at least {render_exact(space.smallest_flexible_mib(vm) - vm.hidden_mib)}",
            name,
        )
    used = vm.root.used + sum(a.used - b.used for a, b in zip(after.volumes, vm.volumes))
    if room is None and after.root.quota < used:
        return Problem(
            "InUse",
            "quota %s is below the %s that %s holds, snapshots included"
            % (*render_apart(after.root.quota, used), vm.root.name),
            name,
        )
    return None


def _result(plan: VmPlan, after: Vm, geometry: PoolGeometry) -> t.Dict[str, t.Any]:
    before = plan.before
    drift = space.quota_drift(before, geometry)
    return {
        "uuid": plan.vm,
        "alias": before.config.alias,
        "flexible": before.flexible,
        "changed": plan.changed,
        "expected_bytes": space.expected_quota(before, geometry),
        "actual": {"quota_bytes": before.root.quota, "reservation_bytes": before.root.reservation},
        "drift": {"quota_bytes": drift[0], "reservation_bytes": drift[1]},
        "cause": space.drift_cause(before, geometry),
        "after": {"quota_bytes": after.root.quota, "reservation_bytes": after.root.reservation},
        "steps": report.steps_result(plan),
    }
