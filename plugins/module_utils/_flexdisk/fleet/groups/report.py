# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a roll as a task returns it, and as a table for a reader."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_mib
from ...model.text import count
from ..tables import aligned
from .members import LIVE, RECREATE, RESTART, removed_disks
from .plan import GroupPlan
from .roll import CREATE, FINISH, HEAL, REMOVE, RETURN, Group, Step

_Dict = t.Dict[str, t.Any]
_DONE = ("STEP", "MEMBER", "HOST", "DONE TO IT", "OUT OF SERVICE", "RESULT")
_PARTICIPLES = {
    LIVE: "changed live", RESTART: "restarted", RECREATE: "recreated", RETURN: "put back into service",
    FINISH: "finished", HEAL: "healed", CREATE: "created", REMOVE: "removed",
}  # fmt: skip
_COLUMNS = ("STEP", "MEMBER", "HOST", "DONE TO IT", "IN SERVICE", "DESTROYS")


def result(group: Group, plan: GroupPlan) -> _Dict:
    """Return the keys of a result."""
    steps = [_step(step) for step in plan.steps]
    return {
        "changed": False,
        "msg": summary(group, plan),
        "done": plan.done,
        "left": list(plan.left),
        "failures": sorted(group.failed),
        "next": steps[0] if steps else {},
        "steps": steps,
        "peak": plan.peak,
        "in_service": plan.in_service,
        "pauses": plan.pauses,
        "table": table(plan) + removal_lines(group, plan),
        "warnings": list(plan.warnings),
    }


def summary(group: Group, plan: GroupPlan) -> str:
    """C(web: 6 steps, 12 recreated, 2 at a time, at least 10 of 12 in service, pauses 150 s)."""
    if not plan.steps:
        left = f", but {', '.join(plan.left)} failed or cannot be read" if plan.left else ""
        return f"{group.name}: {count(group.size, 'member')}, nothing to do{left}"
    numbers: t.Dict[str, int] = {}
    for step in plan.steps:
        for action in step.actions:
            numbers[action.do] = numbers.get(action.do, 0) + 1
    parts = [count(len(plan.steps), "step")]
    parts += [f"{number} {_PARTICIPLES[do]}" for do, number in sorted(numbers.items())]
    parts += [f"{max(len(step.actions) for step in plan.steps)} at a time"]
    parts += [f"at least {plan.in_service} of {group.size} in service"]
    parts += [f"for a while {count(plan.peak, 'member')}"] if plan.peak > group.size else []
    parts += [f"pauses {plan.pauses} s"] if plan.pauses else []
    return f"{group.name}: {', '.join(parts)}"


def done_table(
    log: t.Sequence[t.Mapping[str, t.Any]], failed: t.Collection[str], reverted: t.Collection[str]
) -> t.List[str]:
    """Return lines of a table of what was done. log: actions with their step and the seconds that it took the member
    out of service, the time until its gate said yes included. failed: names of members that did not come back.
    reverted: those of the last step that are again what they were before it.
    """
    rows = []
    for entry in log:
        out = "-" if entry["do"] in (LIVE, CREATE) else f"{entry['seconds']:.0f} s"
        notes = ["FAILED"] if entry["member"] in failed else []
        notes += ["reverted"] if entry["member"] in reverted and entry["step"] == log[-1]["step"] else []
        result = ", ".join(notes) or "ok"
        rows.append((str(entry["step"]), entry["member"], entry["host"], entry["do"], out, result))
    return aligned(_DONE, rows)


def table(plan: GroupPlan) -> t.List[str]:
    """Return lines of a table with one line for each member of each step; none without steps."""
    rows = [
        (
            *(str(number), action.member, action.host, action.do, str(step.in_service)),
            render_mib(action.destroys) if action.destroys else "-",
        )
        for number, step in enumerate(plan.steps, 1)
        for action in step.actions
    ]
    return aligned(_COLUMNS, rows)


def removal_lines(group: Group, plan: GroupPlan) -> t.List[str]:
    """Return a line for each member that is deleted, with what becomes of its disks."""
    gone = {action.member for step in plan.steps for action in step.actions if action.do == REMOVE}
    return [f"deleted: {member.name}{removed_disks(member)}" for member in group.members if member.name in gone]


def _step(step: Step) -> _Dict:
    keys = ("member", "host", "do", "destroys")
    actions = [{key: getattr(action, key) for key in keys} for action in step.actions]
    return {"actions": actions, "in_service": step.in_service, "peak": step.peak, "pause": step.pause}
