# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of disk_adopt: validate, observe, plan, apply, read again. No VM is stopped, no data touched."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..hypervisor.protocol import Hypervisor
from ..model.desired import AdoptSpec, Policy
from ..model.errors import FlexdiskError, Problem
from ..model.vm import Vm
from ..plan import recovery
from ..plan.disk_adopt import plan_adoption, plan_release, released, unknown
from ..plan.planner import find_vm
from ..plan.steps import Step, VmPlan
from ..rules.inventory import Host
from ..rules.reservation import PoolGeometry
from ..spec.disk_adopt import parse_adoption
from ..zfs.commands import Zfs
from . import report
from .apply import Applier
from .observe import observe
from .vm_disks import Outcome, apply_plans, by_uuid, look_again, told
from .vm_info import skipped

_Dict = t.Dict[str, t.Any]


@dataclass
class Identities:
    """released is what a release has taken, as adopt takes it; skipped names VMs that are left out."""

    outcome: Outcome = field(default_factory=Outcome)
    released: t.List[_Dict] = field(default_factory=list)
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Optional[t.Sequence[t.Mapping[str, t.Any]]],
    state: str,
    forget: bool,
    pool: t.Optional[str],
    check_mode: bool,
    continue_on_refusal: bool = False,
) -> Identities:
    """Gives the disks of the VMs, or of all, their identities, or takes them away (state C(released)), or predicts
    it. forget takes away also what a release keeps.
    """
    result = Identities()
    outcome = result.outcome
    host = observe(zfs, hypervisor, pool)
    wanted = _wanted(host, raw, state, outcome)
    result.skipped = skipped(host) if raw is None else []
    asked = [vm.config.uuid for _spec, vm in wanted]
    left: t.Collection[str] = ()
    if state == "released":
        outcome.problems += _unknown(host, None if raw is None else asked)
        left = {uuid for pool, uuid in host.intents}
        plans = [plan_release(host, vm, forget) for _spec, vm in wanted]
    else:
        if forget:
            outcome.problems.append(Problem("InvalidArgument", "forget works only with state=released"))
            wanted = []
        plans = [plan_adoption(host, vm, spec) for spec, vm in wanted]
    outcome.problems += [problem for plan in plans for problem in plan.problems]
    outcome.warnings = recovery.warnings(host, ())
    if outcome.problems and not continue_on_refusal:
        return result
    good = [(pair, plan) for pair, plan in zip(wanted, plans) if not plan.problems and plan.vm not in left]
    wanted, plans = [pair for pair, _plan in good], [plan for _pair, plan in good]
    outcome.tell(plans, host)
    outcome.warnings += [warning for plan in plans for warning in plan.warnings]
    if state == "released":
        result.released = [entry for entry in (released(plan.before) for plan in plans) if entry is not None]
    after: t.Mapping[str, Vm] = {plan.vm: plan.after for plan in plans}
    if not check_mode and any(plan.steps for plan in plans):
        apply_plans(zfs, hypervisor, host, plans, Policy(), outcome, None, VERBS)
        plans, now = look_again(zfs, hypervisor, host, pool, plans, outcome)
        after = by_uuid(now)
    for (spec, _vm), plan in zip(wanted, plans):
        vm = after.get(plan.vm)
        if vm is not None:
            outcome.vms.append(report.plan_result(plan, vm, spec.vm, not check_mode))
            _prove(plan, vm, outcome)
    return result


def _wanted(
    host: Host, raw: t.Optional[t.Sequence[t.Mapping[str, t.Any]]], state: str, outcome: Outcome
) -> t.List[t.Tuple[AdoptSpec, Vm]]:
    """What is said of each VM, with the VM; everything else becomes problems."""
    if raw is None:
        return [(AdoptSpec(vm.config.alias or vm.config.uuid), vm) for vm in host.vms]
    result: t.List[t.Tuple[AdoptSpec, Vm]] = []
    seen: t.Set[str] = set()
    for entry in raw:
        spec, problems = parse_adoption(entry, state)
        vm = find_vm(host, spec.vm) if spec.vm else None
        if isinstance(vm, Problem):
            problems.append(vm)
        elif vm is not None and vm.config.uuid in seen:
            problems.append(Problem("InvalidArgument", "listed twice", spec.vm))
            result = [(other, known) for other, known in result if known is not vm]
        elif vm is not None:
            seen.add(vm.config.uuid)
            if not problems:
                result.append((spec, vm))
        outcome.problems += problems
    return result


def _unknown(host: Host, asked: t.Optional[t.Collection[str]]) -> t.List[Problem]:
    """What no VM has and would become unknown when all are released, and what an interrupted run has left."""
    known = {vm.config.uuid: vm for vm in host.vms}
    found = []
    for disk in host.parked if asked is None else ():
        if disk.vm not in known:  # that of a VM is the VM's problem
            found.append(Problem("InUse", unknown(disk), disk.vm, disk.label))
    for (pool, uuid), record in sorted(host.intents.items()):
        if asked is None or uuid in asked:
            ours = record is not None and record.host == host.name
            words = (
                recovery.unfinished(record)
                if record and ours
                else "an interrupted run left its record in pool %s" % pool
            )
            found.append(Problem("InUse", words, known[uuid].label if uuid in known else uuid))
    return found


def _prove(plan: VmPlan, vm: Vm, outcome: Outcome) -> None:
    if outcome.failure is not None or not plan.steps:
        return
    wrong = report.differences(plan.after, vm)
    wanted, found = _facts(plan.after), _facts(vm)
    wrong += [
        "properties of %s: planned %s, found %s" % (name, ", ".join(facts), ", ".join(found.get(name, ())))
        for name, facts in wanted.items()
        if facts != found.get(name)
    ]
    if wrong:
        error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
        outcome.failure = told(plan, error, "read again")


def _facts(vm: Vm) -> t.Dict[str, t.Tuple[str, ...]]:
    """Which of our properties each dataset has, without those that a clock gives."""
    return {d.name: tuple(sorted({*d.user} - {*report.VOLATILE})) for d in (vm.root, *vm.volumes)}


def _take(applier: Applier, vm: Vm, after: Vm, step: Step, geometry: PoolGeometry) -> None:
    """What keeps the facts is written before the first of them goes."""
    applier.zfs.set_facts(step.args["dataset"], step.args["facts"])


VERBS = {"release": _take, "package": _take}
