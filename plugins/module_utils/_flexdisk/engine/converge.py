# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Note that this module util is **PRIVATE** to the collection. It can have breaking changes at any time.
# Do not use this from other collections or standalone plugins/modules!

"""The whole run of vm_disks: validate, observe, plan, admit, apply, read again."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.apply import Applier, StepFailed
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.protocol import Hypervisor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy, VmSpec
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError, Problem
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.planner import (
    admit,
    find_vm,
    plan_vm,
    share,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.steps import VmPlan
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.declaration import parse_vm_spec
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.linking import Host, container
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.guard import load_libzfs_core


@dataclass
class Outcome:
    """What a run says. problems refuse; failure is a step that went wrong after others had been done."""

    vms: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    changed: bool = False
    diff: str = ""
    problems: t.List[Problem] = field(default_factory=list)
    failure: t.Optional[t.Dict[str, t.Any]] = None
    guard: str = ""
    warnings: t.List[str] = field(default_factory=list)


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
    good, lacking = share([plan for _spec, plan in plans if not plan.problems])
    ordered, short = admit(host, good)
    lacking += short
    outcome.problems += lacking
    asked = {plan.vm: spec.vm for spec, plan in plans}
    if lacking or (outcome.problems and not policy.continue_on_refusal):
        return outcome
    outcome.changed = any(plan.changed for plan in ordered)
    outcome.diff = report.diff_text(good)
    outcome.warnings = [warning for plan in good for warning in plan.warnings]
    if check_mode:
        outcome.vms = [report.plan_result(plan, plan.after, asked[plan.vm], False) for plan in good]
        return outcome
    apply_plans(zfs, hypervisor, host, ordered, policy, outcome)
    _read_again(zfs, hypervisor, host, good, asked, pool, outcome)
    return outcome


def _declarations(
    host: Host, raw: t.Sequence[t.Mapping[str, t.Any]], outcome: Outcome
) -> t.List[t.Tuple[VmSpec, t.Any]]:
    """Valid declarations with their VMs; everything else becomes problems."""
    result: t.List[t.Tuple[VmSpec, t.Any]] = []
    seen: t.Dict[str, str] = {}
    for entry in raw:
        spec, problems = parse_vm_spec(entry)
        found = find_vm(host, spec.vm) if spec.vm else None
        if isinstance(found, Problem):
            problems.append(found)
        elif found is not None and found.config.uuid in seen:
            problems.append(Problem("InvalidArgument", "listed twice, also as %s" % seen[found.config.uuid], spec.vm))
        elif found is not None:
            seen[found.config.uuid] = spec.vm
        if problems:
            outcome.problems += problems
        else:
            result.append((spec, found))
    return result


def apply_plans(
    zfs: Zfs, hypervisor: Hypervisor, host: Host, plans: t.Sequence[VmPlan], policy: Policy, outcome: Outcome
) -> None:
    """Plans in order until one fails; what was not begun is said to be so."""
    plans = [plan for plan in plans if plan.steps]
    leaves = any(step.kind in ("detach", "destroy") for plan in plans for step in plan.steps)
    library, why_not = load_libzfs_core() if leaves else (None, "")
    places = {container(pool) for pool in host.geometry if container(pool) in host.datasets}
    applier = Applier(zfs, hypervisor, policy, places, library)
    for number, plan in enumerate(plans):
        try:
            applier.run(plan, host.geometry[plan.before.config.pool])
        except StepFailed as exc:
            outcome.failure = _failure(plan, exc, plans[number + 1 :])
            break
    outcome.guard = "+".join(sorted(applier.guards))
    if leaves and why_not and "libzfs_core" not in applier.guards:
        outcome.guard += " (%s)" % why_not


def _failure(plan: VmPlan, exc: StepFailed, waiting: t.Sequence[VmPlan]) -> t.Dict[str, t.Any]:
    """What was done, what failed, what was not begun."""
    steps = []
    for number, step in enumerate(plan.steps):
        status = "done" if number < exc.done else "failed" if number == exc.done else "not done"
        steps.append({"step": step.kind, "disk": step.disk, "text": step.text, "status": status})
    return {
        "vm": plan.before.config.alias or plan.vm,
        "uuid": plan.vm,
        "error_code": exc.error.code,
        "message": exc.error.message,
        "step": plan.steps[exc.done].text or plan.steps[exc.done].kind,
        "steps": steps,
        "restarted": exc.restarted,
        "vms_not_done": [other.before.config.alias or other.vm for other in waiting],
    }


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
    try:
        now = observe(zfs, hypervisor, pool) if any(plan.steps for plan in plans) else host
    except FlexdiskError:
        if outcome.failure is None:
            raise
        return
    found = {vm.config.uuid: vm for vm in now.vms}
    undone = set(outcome.failure["vms_not_done"] + [outcome.failure["vm"]]) if outcome.failure else set()
    for plan in plans:
        vm = found.get(plan.vm)
        if vm is None:
            continue
        outcome.vms.append(report.plan_result(plan, vm, asked[plan.vm], True))
        wrong = report.differences(plan.after, vm)
        if wrong and plan.steps and (plan.before.config.alias or plan.vm) not in undone and outcome.failure is None:
            outcome.failure = {
                "vm": plan.before.config.alias or plan.vm,
                "uuid": plan.vm,
                "error_code": "NotApplied",
                "message": "all steps were done, but: %s" % "; ".join(wrong),
                "step": "read again",
                "steps": [dict(step, status="done") for step in report.steps_result(plan)],
                "restarted": None,
                "vms_not_done": [],
            }
