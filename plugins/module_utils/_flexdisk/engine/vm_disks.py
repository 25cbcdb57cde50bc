# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of vm_disks: validate, observe, plan, admit, apply, read again."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ..hypervisor.protocol import Hypervisor
from ..model.desired import Policy, VmSpec
from ..model.errors import FlexdiskError, Problem
from ..model.vm import Vm
from ..plan import recovery, summary
from ..plan.planner import admitted, find_vm, plan_vm
from ..plan.steps import VmPlan
from ..rules.inventory import Host, container
from ..rules.slots import slot_problems
from ..spec.vm_disks import parse_vm_disks
from ..zfs.commands import Zfs
from ..zfs.guard import load_libzfs_core
from . import report
from .apply import Applier, StepFailed
from .ended import Broken, as_it_went
from .journal import Intents
from .observe import observe


@dataclass
class Outcome:
    """What a run says. problems refuse; failure is a step that went wrong after others had been done."""

    vms: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    changed: bool = False
    diff: str = ""
    problems: t.List[Problem] = field(default_factory=list)
    failure: t.Optional[t.Dict[str, t.Any]] = None
    guard: str = ""
    destroyed_by: str = ""
    warnings: t.List[str] = field(default_factory=list)
    msg: str = ""
    broken: t.Optional[Broken] = None

    def tell(self, plans: t.Sequence[VmPlan], host: Host) -> None:
        """What the plans change, in one line and as a diff that begins with it."""
        self.msg = summary.summary(plans, host.geometry)
        self.changed = any(plan.changed for plan in plans)
        self.diff = self.msg + "\n" + report.diff_text(plans) if self.changed else ""


def converge(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[t.Mapping[str, t.Any]],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> Outcome:
    """Makes the declared disks so, or predicts it."""
    outcome = Outcome()
    host = observe(zfs, hypervisor, pool)
    wanted = _declarations(host, raw, outcome)
    plans = [(spec, plan_vm(host, vm, spec, policy, hypervisor.capabilities)) for spec, vm in wanted]
    for _spec, plan in plans:
        outcome.problems += plan.problems
    good = [plan for _spec, plan in plans if not plan.problems]
    good, ordered, lacking = admitted(host, good, policy.continue_on_refusal)
    outcome.problems += lacking
    asked = {plan.vm: spec.vm for spec, plan in plans}
    outcome.warnings = recovery.warnings(host, asked)
    refused = bool(outcome.problems and not policy.continue_on_refusal)
    outcome.warnings += [
        "%s: an interrupted run left it stopped, and this run leaves it stopped, too" % plan.before.label
        for _spec, plan in plans
        if plan.before.halted and (refused or plan.vm not in {other.vm for other in good})
    ]
    if refused:
        return outcome
    outcome.tell(good, host)
    outcome.warnings += [warning for plan in good for warning in plan.warnings]
    live = hypervisor.capabilities.live
    if check_mode:
        outcome.vms = [report.plan_result(plan, plan.after, asked[plan.vm], False, live) for plan in good]
        return outcome
    intents = Intents(zfs, host)
    apply_plans(zfs, hypervisor, host, ordered, policy, outcome, intents)
    with contextlib.suppress(FlexdiskError):
        intents.tidy()
    _read_again(zfs, hypervisor, host, good, asked, pool, outcome)
    return outcome


def _declarations(
    host: Host, raw: t.Sequence[t.Mapping[str, t.Any]], outcome: Outcome
) -> t.List[t.Tuple[VmSpec, t.Any]]:
    """Valid declarations with their VMs; everything else becomes problems."""
    result: t.List[t.Tuple[VmSpec, t.Any]] = []
    seen: t.Dict[str, str] = {}
    for entry in raw:
        spec, problems = parse_vm_disks(entry)
        found = find_vm(host, spec.vm, spec.adopt) if spec.vm else None
        if isinstance(found, Problem):
            problems.append(found)
        elif found is not None and found.config.uuid in seen:
            problems.append(Problem("InvalidArgument", "listed twice, also as %s" % seen[found.config.uuid], spec.vm))
            result = [(other, vm) for other, vm in result if vm is not found]
        elif found is not None:
            seen[found.config.uuid] = spec.vm
            problems += slot_problems(spec, found.config)
        if problems:
            outcome.problems += problems
        else:
            result.append((spec, found))
    return result


def apply_plans(
    zfs: Zfs,
    hypervisor: Hypervisor,
    host: Host,
    plans: t.Sequence[VmPlan],
    policy: Policy,
    outcome: Outcome,
    intents: t.Optional[Intents] = None,
    verbs: t.Optional[t.Mapping[str, t.Callable[..., None]]] = None,
) -> None:
    """Plans in order until one fails; what was not begun is said to be so."""
    plans = [plan for plan in plans if plan.steps]
    kinds = {step.kind for plan in plans for step in plan.steps}
    leaves = bool(kinds & {"detach", "park", "destroy"})
    library, why_not = load_libzfs_core() if leaves or "destroy_parked" in kinds else (None, "")
    places = {container(pool) for pool in host.geometry if container(pool) in host.datasets}
    applier = Applier(zfs, hypervisor, policy, places, library, intents, verbs)
    for number, plan in enumerate(plans):
        try:
            applier.run(plan, host.geometry[plan.before.config.pool])
        except StepFailed as exc:
            waiting = tuple(plans[number + 1 :])
            outcome.failure = _failure(plan, exc, waiting)
            powered = exc.restart is not None and exc.restart.attempts > 0
            outcome.broken = Broken(plan, exc.done, exc.begun, powered, waiting)
            break
    outcome.destroyed_by = "+".join(sorted(applier.destroyers))
    outcome.guard = "+".join(sorted(applier.guards))
    if outcome.guard and why_not and "libzfs_core" not in applier.guards:
        outcome.guard += " (%s)" % why_not


def _failure(plan: VmPlan, exc: StepFailed, waiting: t.Sequence[VmPlan]) -> t.Dict[str, t.Any]:
    """What was done, what failed, what was not begun."""
    steps = []
    for number, step in enumerate(plan.steps):
        status = "done" if number < exc.done else "failed" if number == exc.done else "not done"
        steps.append({"step": step.kind, "disk": step.disk, "text": step.text, "status": status})
    if exc.done == len(plan.steps):
        steps.append({"step": "clear", "disk": "", "text": "clear the intent", "status": "failed"})
    failed = steps[exc.done]
    found = told(plan, exc.error, failed["text"] or failed["step"])
    found.update(steps=steps, vms_not_done=[p.name for p in waiting])
    if exc.restart is not None:
        found.update(restarted=exc.restart.running, restart=exc.restart.tried)
    return found


def told(plan: VmPlan, error: FlexdiskError, step: str) -> t.Dict[str, t.Any]:
    """A failure after the VM's last step."""
    return {
        "vm": plan.name,
        "uuid": plan.vm,
        "error_code": error.code,
        "message": error.message,
        "step": step,
        "steps": [dict(entry, status="done") for entry in report.steps_result(plan)],
        "restarted": None,
        "restart": "",
        "vms_not_done": [],
    }


def look_again(
    zfs: Zfs,
    hypervisor: Hypervisor,
    host: Host,
    pool: t.Optional[str],
    plans: t.Sequence[VmPlan],
    outcome: Outcome,
    more: str = "",
) -> t.Tuple[t.List[VmPlan], t.Optional[Host]]:
    """The plans as far as they were done, and the host as it is now; None, with the failure told, if that cannot be
    read. host is what it was before.
    """
    now: t.Optional[Host] = None
    try:
        now = observe(zfs, hypervisor, pool, more=more)
    except FlexdiskError as exc:
        if outcome.failure is None:
            outcome.failure = told(next(plan for plan in plans if plan.steps), exc, "read again")
            outcome.failure["steps"] = [step for p in plans for step in told(p, exc, "")["steps"]]
    went = as_it_went(plans, outcome.broken, host, now)
    outcome.changed = any(plan.changed for plan in went)
    return went, now


def by_uuid(host: t.Optional[Host]) -> t.Dict[str, Vm]:
    return {vm.config.uuid: vm for vm in host.vms} if host is not None else {}


def _read_again(
    zfs: Zfs,
    hypervisor: Hypervisor,
    host: Host,
    plans: t.Sequence[VmPlan],
    asked: t.Mapping[str, str],
    pool: t.Optional[str],
    outcome: Outcome,
) -> None:
    """The result is what is there now, and it must be what was planned."""
    now: t.Optional[Host] = host
    if any(plan.steps for plan in plans):
        plans, now = look_again(zfs, hypervisor, host, pool, plans, outcome)
    found = by_uuid(now)
    undone = set(outcome.failure["vms_not_done"] + [outcome.failure["vm"]]) if outcome.failure else set()
    for plan in plans:
        vm = found.get(plan.vm)
        if vm is None:
            continue
        outcome.vms.append(report.plan_result(plan, vm, asked[plan.vm], True, hypervisor.capabilities.live))
        wrong = report.differences(plan.after, vm)
        if wrong and plan.steps and plan.name not in undone and outcome.failure is None:
            error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
            outcome.failure = told(plan, error, "read again")
