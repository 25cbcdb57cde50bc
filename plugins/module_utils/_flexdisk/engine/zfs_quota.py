# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of zfs_quota: the quota law for VMs that drifted, without touching a disk or stopping a VM."""

from __future__ import annotations

import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.desired import Policy
from ..model.errors import Problem
from ..model.sizes import MIB, render_apart, render_bytes
from ..model.vm import Vm
from ..plan import ordering, predict, recovery
from ..plan.planner import admitted
from ..plan.steps import VmPlan
from ..rules import space
from ..rules.inventory import Host
from ..rules.reservation import PoolGeometry
from ..zfs.commands import Zfs
from . import report
from .observe import observe
from .vm_disks import Outcome, apply_plans, by_uuid, look_again
from .vm_info import chosen, skipped


def recalculate(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    pool: t.Optional[str],
    reclaim: bool,
    check_mode: bool,
    continue_on_refusal: bool = False,
) -> t.Tuple[Outcome, t.List[t.Dict[str, str]]]:
    """Repairs drift of the named VMs, or of all, and reports it of refused ones too. Also returns the VMs that were
    skipped, with the reason.
    """
    outcome = Outcome()
    host = observe(zfs, hypervisor, pool)
    vms, outcome.problems = chosen(host, names)
    outcome.warnings = recovery.warnings(host, ())
    left_out = skipped(host) if names is None else []
    for vm in [v for v in vms if v.config.bare and not v.flexible and not v.root.refquota]:
        vms.remove(vm)
        reason = "it has no quota yet; vm_disks sets one"
        left_out.append({"uuid": vm.config.uuid, "alias": vm.config.alias, "reason": reason})
    plans = [_plan(vm, host, reclaim) for vm in vms]
    outcome.problems += [problem for plan in plans for problem in plan.problems]
    good = [plan for plan in plans if not plan.problems]
    good, ordered, lacking = admitted(host, good, continue_on_refusal)
    outcome.problems += lacking
    if outcome.problems and not continue_on_refusal:
        good = []
    repaired = {plan.vm: plan for plan in good}
    plans = [repaired.get(plan.vm) or VmPlan(plan.vm, plan.before, plan.before) for plan in plans]
    outcome.tell(plans, host)
    after = {plan.vm: plan.after for plan in plans}
    if outcome.changed and not check_mode:
        apply_plans(zfs, hypervisor, host, ordered, Policy(), outcome)
        plans, now = look_again(zfs, hypervisor, host, pool, plans, outcome)
        after = by_uuid(now)
    outcome.vms = [_result(p, after[p.vm], host.geometry[p.before.config.pool]) for p in plans if p.vm in after]
    return outcome, left_out


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
    """Why the law's quota would be below what the VM holds. ZFS takes it as long as the slack of 1 MiB is left."""
    name = vm.config.alias or vm.config.uuid
    room = space.allocatable(vm)
    if room is not None and room < -MIB:
        return Problem(
            "InsufficientSpace",
            "quota cannot be recalculated: disks and snapshots need %s more than flexible_disk_size, "
            "which must be at least %d MiB" % (render_bytes(-room), space.smallest_flexible_mib(vm) - vm.hidden_mib),
            name,
        )
    held = vm.root.used + sum(a.used - b.used for a, b in zip(after.volumes, vm.volumes))
    if room is None and after.root.quota < held:
        return Problem(
            "InUse",
            "quota %s is below the %s that %s holds, snapshots included"
            % (*render_apart(after.root.quota, held), vm.root.name),
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
