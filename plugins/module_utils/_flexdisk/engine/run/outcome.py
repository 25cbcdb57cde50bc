# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The outcome of a run: results, problems and failures."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...model.desired import Policy
from ...model.errors import FlexdiskError, Problem
from ...plan import approval, summary
from ...plan.steps import VmPlan, status_of
from ...rules.inventory import Host
from ..steps.failed import StepFailed
from . import report
from .ended import FailedRun


@dataclass
class Outcome:
    """The outcome of a run."""

    vms: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    changed: bool = False
    diff: str = ""
    problems: t.List[Problem] = field(default_factory=list)
    """Why the run is refused."""
    failure: t.Optional[t.Dict[str, t.Any]] = None
    """The failed step, with what was done before it."""
    guard: str = ""
    destroyed_by: str = ""
    warnings: t.List[str] = field(default_factory=list)
    msg: str = ""
    failed_run: t.Optional[FailedRun] = None
    now: t.Optional[Host] = None
    """The host as read after the last step."""
    plan: t.List[str] = field(default_factory=list)
    """The plan as lines."""
    plan_digest: str = ""

    def summarize(self, plans: t.Sequence[VmPlan], host: Host) -> None:
        """Set msg to a one-line summary of the plans, and diff to the plans in full."""
        self.msg = summary.summary(plans, host.geometry)
        self.changed = any(plan.changed for plan in plans)
        self.diff = self.msg + "\n" + report.diff_text(plans) if self.changed else ""

    def approved(self, plans: t.Sequence[VmPlan], policy: Policy) -> bool:
        """Return whether the plans may be carried out: they match the approved plan, if any, or change nothing.

        If not, a problem is added.
        """
        expected = policy.approval
        self.plan = [self.msg, *approval.lines(approval.in_order(plans))]
        self.plan_digest = approval.digest(plans, policy)
        if expected is None or expected.digest == self.plan_digest or not self.changed:
            return True
        message = approval.changed(expected, self.plan, self.plan_digest)
        self.problems.insert(0, Problem("PlanChanged", message))
        self.changed, self.diff = False, ""
        return False


def failure_of(plan: VmPlan, exc: StepFailed, waiting: t.Sequence[VmPlan]) -> t.Dict[str, t.Any]:
    """Return the failure of a step, with the steps done, failed and not done. waiting: plans that were not begun."""
    steps = []
    for number, step in enumerate(plan.steps):
        status = status_of(number, exc.done)
        steps.append({"step": step.kind, "disk": step.disk, "text": step.text, "status": status})
    if exc.done == len(plan.steps):
        steps.append({"step": "clear", "disk": "", "text": "clear the intent", "status": "failed"})
    failed = steps[exc.done]
    result = failure_after_steps(plan, exc.error, failed["text"] or failed["step"])
    result.update(steps=steps, vms_not_done=[p.name for p in waiting])
    if exc.restart is not None:
        running = None if exc.restart.late else exc.restart.running
        result.update(restarted=running, restart=exc.restart.tried)
    return result


def failure_after_steps(plan: VmPlan, error: FlexdiskError, step: str) -> t.Dict[str, t.Any]:
    """Return a failure after the last step of a plan."""
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
