# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of a task that changes VMs: its keys, and how the module ends."""

from __future__ import annotations

import typing as t

from ...model.errors import Problem, failure_text, refusal
from .module_run import Answer
from .outcome import Outcome


def answer(outcome: Outcome, **more: t.Any) -> Answer:
    """Return the module's answer for an outcome. more: further keys of the result, also of a failed run."""
    failed = ending(outcome)
    return Answer({**result(outcome), **more}, None if failed is None else {**failed, **more}, outcome.warnings)


def result(outcome: Outcome) -> t.Dict[str, t.Any]:
    """Return the keys of a result. Only real runs have guard and destroyed_by, and refused runs have no plan."""
    common = {"changed": outcome.changed, "msg": outcome.msg, "vms": outcome.vms, "diff": {"prepared": outcome.diff}}
    planned = {"plan": outcome.plan, "plan_digest": outcome.plan_digest}
    real = {"guard": outcome.guard, "destroyed_by": outcome.destroyed_by}
    return dict(common, **{key: value for key, value in {**planned, **real}.items() if value})


def ending(outcome: Outcome) -> t.Optional[t.Dict[str, t.Any]]:
    """Return the arguments of fail_json if the run failed, with what was done, else None."""
    if outcome.failure is not None:
        failure = outcome.failure
        problem = Problem(failure["error_code"], f"{failure['step']}: {failure['message']}", failure["vm"])
        tail = ""
        if failure["restarted"] is not None:
            tail = f" The VM {'is running again' if failure['restarted'] else 'is down'}"
            tail += f"; {failure['restart']}." if failure["restart"] else "."
        text = failure_text([problem]) + tail + ("\n" + failure_text(outcome.problems) if outcome.problems else "")
        return dict(result(outcome), **dict(refusal([problem, *outcome.problems]), msg=text, failure=failure))
    if outcome.problems:
        return dict(result(outcome), **refusal(outcome.problems))
    return None
