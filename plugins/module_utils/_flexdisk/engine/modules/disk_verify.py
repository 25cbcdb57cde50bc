# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of disk_verify: observe, find, plan, admit, apply, find again."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem, refusal
from ...plan import summary
from ...plan.disk_steps import CorrectFacts, ForgetRun, LiftGuard, MoveDetached, WriteFacts
from ...plan.disk_verify import HostRepairs, after, plan_repairs
from ...plan.planner import admit
from ...plan.steps import PlanOutcome, Step, VmPlan, status_of
from ...rules.findings import LEAVES, Finding, counts, fails
from ...rules.inventory import Host
from ...rules.verify import REPLICA_DAYS, findings
from ...zfs.commands import Zfs
from ...zfs.guard import lift
from ..host import progress
from ..host.observe import observe
from ..run import report, results
from ..run.ended import has_changed, with_endings
from ..run.outcome import Outcome
from ..run.run import apply_plans, performers_of_disks
from ..steps import renames
from ..steps.perform import Change, Performers, Tools
from .vm_info import chosen, skipped
from .zfs_quota import obstacle


@dataclass
class VerifyOutcome:
    """What was found, and what was repaired."""

    findings: t.List[Finding] = field(default_factory=list)
    """Findings that are not repaired."""
    repaired: t.List[Finding] = field(default_factory=list)
    """Findings that were repaired, or would be."""
    steps: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)
    skipped: t.List[t.Dict[str, str]] = field(default_factory=list)
    """The VMs that were not checked, with the reason."""


def verify(
    zfs: Zfs,
    hypervisor: Hypervisor,
    names: t.Optional[t.Sequence[str]],
    repair: t.Collection[str],
    pool: t.Optional[str],
    unused_days: int,
    check_mode: bool,
    now: int,
    replica_days: int = REPLICA_DAYS,
) -> VerifyOutcome:
    """Check the named VMs, or the host, and repair findings of the given kinds. now: seconds since 1970."""
    result = VerifyOutcome()
    outcome = result.outcome
    host = observe(zfs, hypervisor, pool, complete=True)
    vms, outcome.problems = chosen(host, names)
    result.skipped = skipped(host) if names is None else []
    scope = None if names is None else {vm.config.uuid for vm in vms}

    def find(seen_host: Host) -> t.List[Finding]:
        return [f for f in findings(seen_host, now, unused_days, replica_days) if scope is None or f.vm in scope]

    before = result.findings = find(host)
    wanted = [finding for finding in before if finding.repairable and finding.kind in _with_leftovers(repair)]
    mending = plan_repairs(host, wanted)
    outcome.problems += _obstacles(mending)
    ordered, space_problems = admit(host, mending.plans)
    outcome.problems += space_problems
    if outcome.problems:
        return result
    result.findings = find(after(host, mending))
    result.steps = _steps(mending)
    unchanged = [
        VmPlan(vm.config.uuid, vm, vm) for vm in vms if vm.config.uuid not in {plan.vm for plan in mending.plans}
    ]
    outcome.msg = summary.summary([*mending.plans, *unchanged], host.geometry, len(mending.outside))
    outcome.changed, outcome.diff = mending.changed, _diff(mending, outcome.msg)
    if outcome.changed and not check_mode:
        progress.current().add_steps(len(mending.outside))
        apply_plans(zfs, hypervisor, host, ordered, Policy(), outcome, _performers)
        outside = -1
        if outcome.failure is None:
            outside = _apply_outside(zfs, hypervisor, mending.outside, outcome)
        now_there = _read_again(result, lambda: observe(zfs, hypervisor, pool, complete=True), find, wanted)
        if outcome.failure is not None:
            _add_endings(result, mending, host, now_there, outside)
    remaining = {(finding.kind, finding.vm, finding.volume) for finding in result.findings}
    result.repaired = [f for f in wanted if (f.kind, f.vm, f.volume) not in remaining]
    return result


def result(verified: VerifyOutcome) -> t.Dict[str, t.Any]:
    """Return the keys of a result. Check mode lacks only guard."""
    keys = results.result(verified.outcome)
    del keys["vms"]
    shown = [[finding.as_dict() for finding in group] for group in (verified.findings, verified.repaired)]
    return dict(
        keys,
        findings=shown[0],
        repaired=shown[1],
        counts=counts(verified.findings),
        steps=verified.steps,
        skipped_vms=verified.skipped,
    )


def failure(verified: VerifyOutcome, limit: str) -> t.Optional[t.Dict[str, t.Any]]:
    """Return the arguments of fail_json if the run failed, or findings are as severe as limit, else None."""
    failed = results.ending(verified.outcome)
    if failed is not None:
        failed.pop("vms", None)
        return failed
    bad = [finding for finding in verified.findings if fails([finding], limit)]
    if not bad:
        return None
    problems = [Problem("DefectFound", f"{f.kind}: {f.message}", f.alias or f.vm, f.disk) for f in bad]
    return refusal(problems)


def _with_leftovers(repair: t.Collection[str]) -> t.Set[str]:
    """Return the kinds to repair, with those that an interrupted repair leaves, so that the same task completes it."""
    return {*repair}.union(*(LEAVES.get(kind, ()) for kind in repair))


def _obstacles(mending: HostRepairs) -> t.List[Problem]:
    lawful = [plan for plan in mending.plans if any(step.before_stop for step in plan.steps)]
    return [problem for problem in (obstacle(plan.before, plan.after) for plan in lawful) if problem is not None]


def _steps(mending: HostRepairs) -> t.List[t.Dict[str, t.Any]]:
    of_vms = [
        dict(step, vm=plan.vm, alias=plan.before.config.alias)
        for plan in mending.plans
        for step in report.steps_result(plan)
    ]
    outside = [(step.kind, step.disk, step.text) for step in mending.outside]
    return of_vms + [dict(_step(*fields), destroys=False, vm="", alias="") for fields in outside]


def _step(kind: str, disk: str, text: str) -> t.Dict[str, t.Any]:
    return {"step": kind, "disk": disk, "text": text}


def _diff(mending: HostRepairs, first: str) -> str:
    if not mending.changed:
        return ""
    outside = "".join(f"  {step.text}\n" for step in mending.outside)
    return first + "\n" + report.diff_text(mending.plans) + ("outside VMs:\n" + outside if outside else "")


def _add_endings(result: VerifyOutcome, mending: HostRepairs, host: Host, now: t.Optional[Host], outside: int) -> None:
    """Report what a failed run has changed. outside: the number of steps outside VMs that were done, -1: not begun."""
    plans = with_endings(mending.plans, result.outcome.failed_run, host, now)
    begun = mending.outside[outside : outside + 1] if outside >= 0 else ()
    step_changed = bool(begun) and (now is None or host.intents != now.intents or has_changed(host, now, begun))
    result.outcome.changed = any(plan.changed for plan in plans) or outside > 0 or step_changed
    result.steps = _steps(replace(mending, plans=tuple(plans)))
    ended = PlanOutcome(outside, step_changed)  # of the steps outside VMs, which come last
    for number, step in enumerate(result.steps[len(result.steps) - len(mending.outside) :]):
        step["status"] = ended.status(number) if outside >= 0 else "not done"


def _apply_outside(zfs: Zfs, hypervisor: Hypervisor, steps: t.Sequence[Step], outcome: Outcome) -> int:
    """Carry out the steps outside VMs. Return the number of those that were done."""
    tools = Tools(zfs, hypervisor, Policy(), set())
    for number, step in enumerate(steps):
        progress.current().step("", step.disk, step.text)
        try:
            PERFORM_OUTSIDE[type(step)](step, tools)
        except FlexdiskError as exc:
            outcome.failure = _failure(exc, step.text)
            outcome.failure["steps"] = [
                dict(_step(s.kind, s.disk, s.text), status=status_of(place, number)) for place, s in enumerate(steps)
            ]
            return number
    return len(steps)


def _failure(exc: FlexdiskError, step: str) -> t.Dict[str, t.Any]:
    known: t.Dict[str, t.Any] = {"vm": "", "uuid": "", "steps": [], "vms_not_done": []}
    known.update(restarted=None, restart="")
    return {**known, "error_code": exc.code, "message": exc.message, "step": step}


def _read_again(
    result: VerifyOutcome,
    read: t.Callable[[], Host],
    find: t.Callable[[Host], t.List[Finding]],
    wanted: t.Sequence[Finding],
) -> t.Optional[Host]:
    """Read the host again. Report repaired findings that remain as a failure. Return None if the read failed."""
    progress.current().reading_again()
    outcome = result.outcome
    try:
        now = read()
        result.findings = find(now)
    except FlexdiskError as exc:
        outcome.failure = outcome.failure or _failure(exc, "read again")
        return None
    remaining = {(finding.kind, finding.vm, finding.volume) for finding in result.findings}
    messages = [f.message for f in wanted if (f.kind, f.vm, f.volume) in remaining]
    if messages and outcome.failure is None:
        error = FlexdiskError("NotApplied", f"all steps were done, but: {'; '.join(messages)}")
        outcome.failure = _failure(error, "read again")
    return now


def _performers() -> Performers:
    return {**performers_of_disks(), **PERFORM_REPAIR}


def _correct_in_vm(step: CorrectFacts, tools: Tools, change: Change) -> None:
    _write(step, tools)


def _write(step: WriteFacts, tools: Tools) -> None:
    tools.zfs.set_facts(step.volume, step.facts)


def _move_detached(step: MoveDetached, tools: Tools) -> None:
    """Rename a detached disk. Its UUID is written first, so that a repeated task finds it under the new name."""
    now = tools.read(step.volume, step.guid)
    if now.user.get("uuid") != step.uuid:
        tools.zfs.set_facts(step.volume, {"uuid": step.uuid})
    if step.target != step.volume:
        renames.rename(tools.zfs, step.volume, step.target)


def _lift_guard(step: LiftGuard, tools: Tools) -> None:
    lift(tools.zfs, step.volume)


PERFORM_REPAIR: Performers = {CorrectFacts: _correct_in_vm}
# Who carries out a step that concerns no VM. Any: each function takes its own class.
PERFORM_OUTSIDE: t.Mapping[t.Type[Step], t.Callable[[t.Any, Tools], None]] = {
    CorrectFacts: _write,
    ForgetRun: _write,
    MoveDetached: _move_detached,
    LiftGuard: _lift_guard,
}
