# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Classify the change of each member by the check mode of the module vm, and whether the member is in service."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_mib
from .members import CLASSES, NOTHING, REFUSED

_Raw = t.Mapping[str, t.Any]


def judge_members(
    members: t.Sequence[_Raw],
    checks: t.Mapping[str, _Raw],
    serving: t.Collection[str],
    size: int,
    recreate: bool,
) -> t.List[t.Dict[str, t.Any]]:
    """Return the members as group_plan takes them.

    members: those of member_places.observed. checks: the result of vm in check mode of each host that was asked.
    serving: the members that have passed their gate. recreate: vm was allowed to recreate boot disks, so any remaining
    problem is a refusal. A surge member that does not exist yet is judged when it is created.
    """
    return [_judge_member(member, checks.get(member["host"]), serving, size, recreate) for member in members]


def _judge_member(
    member: _Raw, check: t.Optional[_Raw], serving: t.Collection[str], size: int, recreate: bool
) -> t.Dict[str, t.Any]:
    name, lost = member["name"], bool(check and check.get("unreachable"))
    change = NOTHING
    why: t.List[str] = []
    asked = check is not None and not lost and member["reachable"]
    if check is not None and asked and (member["there"] or member["index"] < size):
        change, why = _change(name, check, recreate)
    return {
        **{key: member[key] for key in ("name", "host", "there", "marked")},
        "reachable": member["reachable"] and not lost,
        "in_service": member["there"] and member["running"] and name in serving,
        "change": change,
        "why": why,
        "destroys": _destroyed(member, check, size),
        **_removed(member, size),
    }


def _change(name: str, check: _Raw, recreate: bool) -> t.Tuple[str, t.List[str]]:
    """Return the class of the heaviest step or problem of a member, and the texts of its problems. If the module
    reports nothing about a member it was asked for, it has failed, whatever failed_when makes of that.
    """
    problems = [problem for problem in check.get("problems") or () if problem["vm"] in (name, "")]
    known = [vm for vm in check.get("vms") or () if vm["vm"] == name]
    if not problems and not known:
        return REFUSED, [str(check.get("msg", ""))]
    classes = [step["class"] for vm in known for step in vm["steps"]]
    classes += [REFUSED if recreate else problem["class"] for problem in problems]
    change = max((word for word in classes if word), key=CLASSES.index, default=NOTHING)
    return change, [_text(problem) for problem in problems]


def members_done(result: _Raw) -> t.List[str]:
    """Return the members that are as the task wants them, by the result of vm."""
    wrong = {problem["vm"] for problem in result.get("problems") or ()}
    vms = [] if "" in wrong else [vm for vm in result.get("vms") or () if vm["vm"] not in wrong]
    return [vm["vm"] for vm in vms if all(step.get("status", "done") == "done" for step in vm["steps"])]


def _text(problem: _Raw) -> str:
    return f"{problem['disk'] + ': ' if problem['disk'] else ''}{problem['message']}"


def _removed(member: _Raw, size: int) -> t.Dict[str, t.List[str]]:
    """Return the disks that go with a member above the size, and those that stay, as texts."""
    above = member["there"] and member["index"] >= size
    parts = [(f"{disk['name']} {render_mib(disk['size'])}", disk["preserve"]) for disk in member["disks"] if above]
    return {"loses": [text for text, stays in parts if not stays], "keeps": [text for text, stays in parts if stays]}


def _destroyed(member: _Raw, check: t.Optional[_Raw], size: int) -> int:
    """MiB of the disks that the plan of the member destroys; of one above the size, those without C(preserve)."""
    known = [vm for vm in (check or {}).get("vms") or () if vm["vm"] == member["name"]]
    if member["there"] and member["index"] >= size:
        return sum(disk["size"] for disk in member["disks"] if not disk["preserve"])
    gone = {step["disk"] for vm in known for step in vm["steps"] if step["destroys"]}
    return sum(disk["size"] for disk in member["disks"] if disk["name"] in gone)
