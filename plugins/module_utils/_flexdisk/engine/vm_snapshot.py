# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of vm_snapshot: observe, plan, admit, apply, read again."""

from __future__ import annotations

import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.desired import Policy, SnapshotSpec
from ..model.errors import FlexdiskError
from ..model.sizes import MIB
from ..model.vm import Vm
from ..plan import recovery
from ..plan.planner import admitted
from ..plan.steps import VmPlan
from ..plan.vm_snapshot import plan_snapshot
from ..rules import snapshots, space
from ..zfs.commands import Zfs
from . import report
from .apply_vm import VERBS
from .journal import Intents
from .observe import observe
from .vm_disks import Outcome, apply_plans, by_uuid, look_again, told
from .vm_info import chosen

_Dict = t.Dict[str, t.Any]


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    spec: SnapshotSpec,
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
    now: int,
) -> Outcome:
    """Makes the snapshots of the named VMs, or of all, so, or predicts it. now is the time in seconds since 1970."""
    outcome = Outcome()
    host = observe(zfs, hypervisor, pool)
    vms, outcome.problems = chosen(host, names)
    plans = [plan_snapshot(vm, spec, policy, hypervisor.capabilities, host.geometry[vm.config.pool], now) for vm in vms]
    outcome.problems += [problem for plan in plans for problem in plan.problems]
    plans = [plan for plan in plans if not plan.problems]
    plans, ordered, lacking = admitted(host, plans, policy.continue_on_refusal)
    outcome.problems += lacking
    outcome.warnings = recovery.warnings(host, [vm.config.uuid for vm in vms])
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    outcome.tell(plans, host)
    outcome.warnings += [warning for plan in plans for warning in plan.warnings]
    there: t.Mapping[str, Vm] = {plan.vm: plan.after for plan in plans}
    if outcome.changed and not check_mode:
        apply_plans(zfs, hypervisor, host, ordered, policy, outcome, Intents(zfs, host), VERBS)
        plans, now_there = look_again(zfs, hypervisor, host, pool, plans, outcome)
        there = by_uuid(now_there)
    for plan in (p for p in plans if p.vm in there):
        outcome.vms.append(_result(plan, there[plan.vm], check_mode))
        _prove(plan, there[plan.vm], outcome)
    return outcome


def _prove(plan: VmPlan, vm: Vm, outcome: Outcome) -> None:
    if outcome.failure is not None or not plan.steps:
        return
    wrong = report.differences(plan.after, vm)
    wanted, found = _names(plan.after), _names(vm)
    if wanted != found:
        wrong.append("snapshots: planned %r, found %r" % (wanted, found))
    if wrong:
        error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
        outcome.failure = told(plan, error, "read again")


def _names(vm: Vm) -> t.List[t.Tuple[str, int]]:
    return [(snapshot.name, len(snapshot.parts)) for snapshot in snapshots.snapshots_of(vm)]


def _result(plan: VmPlan, after: Vm, check_mode: bool) -> _Dict:
    """What only ZFS and the clock know of a change is absent in check mode."""
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
