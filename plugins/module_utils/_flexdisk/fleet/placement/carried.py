# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves that a playbook carries out: which are queued, whether a job begins, its result, and the summary of all."""

from __future__ import annotations

import typing as t

from ..tables import aligned
from . import execution

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]
_Names = t.Sequence[str]
_List = t.List[str]
BEGUN, PLANNED, LEFT = "begun", "planned", "left"
STAGES = (BEGUN, PLANNED, LEFT)
_COLUMNS = ("VM", "FROM", "TO", "RESULT")
_CUT = {"fine": False, "words": "a host could not be reached any more"}


class Approved(t.NamedTuple):
    """What may be carried out."""

    digest: str = ""
    """That of the plan that was approved, "" for any."""
    check: bool = False
    """Whether nothing is carried out."""


class Planned(t.NamedTuple):
    """The plan of a run."""

    result: _Raw
    """That of move_plan."""
    why_not: str = ""
    """Why there is none, "" if there is."""


def involved_groups(request: str, wanted: execution.Wanted, to_groups: _Names, groups: t.Mapping[str, str]) -> _List:
    """Return the host groups whose hosts must be read before a plan is made. groups: that of each host of the play."""
    open_ended = request == "change_group" and not to_groups
    anywhere = open_ended or not (wanted.hosts or wanted.groups) or any(host not in groups for host in wanted.hosts)
    sources = [groups[host] for host in (groups if anywhere else wanted.hosts)]
    return list(dict.fromkeys([*sources, *wanted.groups, *to_groups]))


def hosts_of_moves(hosts: t.Sequence[_Raw], others: t.Container[str]) -> _List:
    """Return which of the other hosts, that were not read, have to do with moves that have begun.

    hosts: those that were to be read, as move_plan takes them.
    """
    moves = [move for host in hosts for move in (host["info"] or {}).get("moves", ())]
    return list(dict.fromkeys(move["host"] for move in moves if move["host"] in others))


def queued(
    stage: str, hosts: t.Sequence[_Raw], wanted: execution.Wanted, plan: Planned, approved: Approved, max_parallel: int
) -> _Dict:
    """Return the hosts of the play of a stage, as execution.queue() does, and C(says), lines for the user. C(refused)
    says why nothing may be done, C(unplanned) why there is no plan, "" if there is.

    hosts: as move_plan takes them. max_parallel: jobs at the same time.
    """
    says, refused, unplanned = [], "", "" if stage == BEGUN else plan.why_not
    if stage == PLANNED:
        unplanned = unplanned or _other_plan(plan.result, approved)
        jobs = [] if unplanned else list(plan.result["jobs"])
    else:
        jobs = execution.unfinished_moves(hosts, wanted)
    if stage == BEGUN:
        says = execution.moves_to_unread_hosts(hosts, wanted._replace(tags={}))
        refused = _not_approved(jobs) if approved.digest else ""
    elif stage == LEFT and approved.check:
        jobs = []  # has been told already
    return {**execution.queue(jobs, stage, max_parallel), "says": says, "refused": refused, "unplanned": unplanned}


def _other_plan(plan: _Raw, approved: Approved) -> str:
    if not plan["jobs"] or approved.digest in ("", plan["digest"]):
        return ""
    return f"the plan is another one now: its digest is {plan['digest']}, not {approved.digest}"


def _not_approved(jobs: t.Sequence[_Raw]) -> str:
    names = ", ".join(job["name"] for job in jobs)
    return f"moves have begun that no plan has: {names}. Run it without flexdisk_move_digest." if jobs else ""


def why_not(job: _Raw, ended: t.Mapping[str, _Raw]) -> str:
    """Return why a job does not begin, "" if it does. ended: what became of jobs so far, by their names."""
    lacking = [name for name in job["needs"] if not (ended.get(name) or {}).get("fine")]
    if not lacking and job["move"]["do"] != execution.STUCK:
        return ""
    return job["move"]["why"] or f"it needs that of {' and '.join(lacking)}"


def done(move: _Raw, check: bool, downtime: object, outlook: t.Optional[_Raw], memory_lost: str = "") -> _Dict:
    """Return what became of a job that is done.

    Args:
        downtime: seconds, None if unknown.
        outlook: what check mode says.
        memory_lost: why a guest that was to go on has booted, "" if it has not.
    """
    text = f"put back: {move['why']}"
    if check and move["do"] == execution.MOVE:
        text = f"can move, downtime {outlook['downtime']}" if outlook else "can move"
    elif check:
        text = f"would be {text}"
    elif move["do"] == execution.MOVE:
        text = f"moved, down for {downtime} s" if downtime is not None else "moved"
        text += f"; memory lost, so it has booted: {memory_lost}" if memory_lost else ""
    return {"fine": True, "words": text}


def failed(result: _Raw) -> _Dict:
    """Return what became of a job from the result of the task that failed."""
    items = [one for one in result.get("results") or () if one.get("failed")]
    messages = [str(one.get("msg", "failed")) for one in items or [result]]
    return {"fine": False, "words": " ".join(" ".join(messages).split())}


def overall_result(jobs: t.Sequence[t.Tuple[_Raw, t.Optional[_Raw]]], unplanned: str) -> _Dict:
    """Return what became of all, as the lines of a C(table), and why the run fails (C(failure)). jobs: each with what
    became of it, None of one that has not ended. unplanned: why there was no plan.
    """
    rows = [{**job["move"], **(ended or _CUT)} for job, ended in jobs if "move" in job]
    names = ", ".join(dict.fromkeys(one["name"] for one in rows if not one["fine"]))
    failure = f"not all has been done: {names}. Run the playbook again." if names else ""
    table = aligned(_COLUMNS, [(one["name"], one["from"], one["to"], one["words"]) for one in rows])
    return {"table": table or "no VM moves", "failure": unplanned or failure}
