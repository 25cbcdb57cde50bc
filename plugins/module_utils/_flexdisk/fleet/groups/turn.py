# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of instance_group does next: all decisions of the role, which only carries them out.

A group is a dictionary of the variables of the role, without "instance_group_". Each stage gets the results of the turn
before, and returns the next turn with the stage that follows it. Those of a step are in turn_step.py.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.errors import refusal
from . import lease, report, turn_step
from .declared import parse_group
from .judged import judge_members
from .member_places import adoptions, find
from .memory import Memory, Turn, TurnInput, refuse
from .plan import plan_group
from .policy import REVERT, parse_policy
from .turn_step import declared_entries, may_recreate

_Raw = t.Mapping[str, t.Any]
AUTO = "auto"


def take(group: _Raw, last: _Raw, heard: TurnInput) -> Turn:
    """Return the next turn. last: the result of the turn before, {} at the beginning of a run."""
    if last and not last["do"]:
        return Turn.of(last)
    turn = STAGES[last.get("then", "begin")](group, Memory(**last.get("memory", {})), heard)
    if last.get("then") == "leased" and not turn.refused:
        do, then, title = last["resumes"]
        turn = replace(Turn.of(last), memory=turn.memory, do=do, then=then, title=title)
    while turn.idle:
        nothing = replace(heard, answers={}, serving=(), bad=())
        turn = replace(STAGES[turn.then](group, turn.memory, nothing), plan=turn.plan)
    # No wait takes longer than half of the time of the lease (lease.check_waits).
    aging = abs(heard.now - turn.memory.renewed) > group["lease_ttl"] / 4
    return turn.after_renewal() if turn.do not in ("", "lease") and turn.memory.token and aging else turn


def _begin(group: _Raw, _memory: Memory, heard: TurnInput) -> Turn:
    """Refuse what the run could not do, before any host is read."""
    texts = []
    if group["host_groups"] and group["hosts"] != AUTO:
        names = ", ".join(group["host_groups"])
        texts.append(
            f"{group['name']}: host_groups ({names}) chooses hosts only with `hosts: auto`; leave it out, or write "
            "`hosts: auto`"
        )
    if heard.missing:
        texts.append(f"no such task file: {', '.join(dict.fromkeys(heard.missing))}")
    memory = Memory(begun=heard.now)
    if texts:
        return refuse(memory, texts)
    look = {"state": "reported", "renew": False, "take_over": False, "hosts": list(heard.hosts)}
    return Turn(memory, "lease", "lease_found", "Look for the lease on all hosts", lease=look)


def _lease_found(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """All hosts have said what leases they have. In check mode, the lease is not taken."""
    wanted = {"group": group["name"], "host": group["lease_host"], "without": group["lease_without"]}
    place = lease.lease_place(heard.answers, group["all_hosts"], {**wanted, "take_over": group["take_over"]})
    if place["problems"]:
        return refuse(memory, place["problems"])
    turn = _read_vms(replace(memory, places=place["places"]), "adopt" if group["adopt"] else "look")
    return turn if heard.check_mode else turn.after_renewal(group["take_over"])


def _leased(_group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The lease was taken or renewed. A run that does not have it does nothing more, and gives nothing back."""
    texts = lease.lease_problems(heard.answers, memory.places)
    if texts:
        refused = {host for host, answer in heard.answers.items() if answer.get("error_code") is not None}
        places = {host: pool for host, pool in memory.places.items() if host not in refused}
        return refuse(replace(memory, places=places), texts)
    token = heard.answers[next(iter(memory.places))]["lease"]["token"]
    return Turn(replace(memory, token=token, renewed=heard.now))


def _read_vms(memory: Memory, then: str) -> Turn:
    return Turn(memory, "info", then, "Read the VMs of each host")


def _adopt(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Mark the VMs that become members, unless there are other problems with the places of members."""
    read, adopt = _read(heard), group["adopt"]
    problems = _find(group, memory, heard, adopt)["problems"]
    if problems:
        return refuse(memory, problems)
    marks = {host: adoptions(read[host], adopt) if host in read else [] for host in heard.hosts}
    return Turn(memory, "vm", "adopted", "Mark the VMs that become members", vms=marks)


def _adopted(_group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    texts = [
        f"{host}: {answer.get('msg', '')}"
        for host, answer in heard.answers.items()
        if answer.get("unreachable") or answer.get("error_code") is not None
    ]
    if texts:
        return refuse(memory, texts)
    return _read_vms(memory, "look")


def _look(group: _Raw, memory: Memory, heard: TurnInput, places: bool = True) -> Turn:
    """The hosts have said what VMs they have. Hosts are chosen for members that are nowhere, with "hosts: auto"."""
    located = _find(group, memory, heard, _unmarked(group, heard))
    if located["problems"]:
        return refuse(memory, located["problems"])
    memory = replace(memory, members=located["members"], keeps_disks=located["keeps_disks"])
    place = _placement(group, memory, heard, located["new"]) if places else {}
    if place:
        return Turn(memory, "place", "placed", "Choose hosts for members that are nowhere", place=place)
    entries = {host: [] if group["only_size"] else _asked(group, memory, heard, host) for host in heard.hosts}
    gate = [member["gate"] for member in memory.members if member["there"] and member["reachable"]]
    once = {"members": gate, "retries": 0, "delay": 5, "stable_for": 0, "limit": 0}
    return Turn(memory, "ask", "asked", vms=entries, gate=once)


def _placed(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Hosts were chosen, for all members that can have one, and the hosts have still said what they have said."""
    return _look(group, replace(memory, chosen={**(memory.chosen or {}), **heard.placed}), heard, places=False)


def _read(heard: TurnInput) -> t.Dict[str, _Raw]:
    return {host: answer for host, answer in heard.answers.items() if answer.get("vms") is not None}


def _unmarked(group: _Raw, heard: TurnInput) -> t.Sequence[str]:
    """Return the VMs that count as marked. Once they are, only the marks count; in check mode they are not."""
    adopt: t.Sequence[str] = group["adopt"] if heard.check_mode else ()
    return adopt


def _find(group: _Raw, memory: Memory, heard: TurnInput, adopt: t.Sequence[str]) -> t.Dict[str, t.Any]:
    read = _read(heard)
    waits = {"gate": group["gate"], "ttl": group["lease_ttl"], "stop_timeout": group["stop_timeout"]}
    declared = {**group, "hosts": _hosts(group, memory), "adopt": adopt, "waits": waits, "token": memory.token}
    return find(read, declared, [host for host in group["all_hosts"] if host not in read])


def _hosts(group: _Raw, memory: Memory) -> t.Any:
    """Return the hosts of new members, as a list or by member."""
    if memory.chosen is not None:
        return memory.chosen
    return group["all_hosts"] if group["hosts"] == AUTO else group["hosts"]


def _asked(group: _Raw, memory: Memory, heard: TurnInput, host: str) -> t.List[t.Dict[str, t.Any]]:
    """Return the desired state of a host's members without surge members, whose space the others do not lack."""
    here = [member for member in memory.members if member["host"] == host and member["reachable"]]
    new = [member for member in here if not member["there"] and member["index"] < group["size"]]
    return declared_entries([*(member for member in here if member["there"]), *new], group, _unmarked(group, heard))


def _placement(group: _Raw, memory: Memory, heard: TurnInput, new: t.Sequence[_Raw]) -> t.Dict[str, t.Any]:
    """Return the arguments of vm_placement for members that are nowhere, in the order of their creation; {} if there is
    nothing to ask. Those that have a host, because an earlier plan of this run showed it, stay with it. A member above
    the size, which a step would make for a while only, may remain without one.
    """
    chosen = memory.chosen or {}
    free = {member["name"] for member in new} - set(chosen)
    if group["hosts"] != AUTO or not free or not all(member["reachable"] for member in memory.members):
        return {}
    vms, beside = {}, {}
    for host in heard.hosts:
        possible = [{**m, "host": host} for m in new if m["name"] in free or chosen[m["name"]] == host]
        vms[host] = declared_entries(possible, group, _unmarked(group, heard))
        beside[host] = sum(not member["nowhere"] and member["host"] == host for member in memory.members)
    return {"vms": vms, "beside": beside, "optional": [m["name"] for m in new if m["index"] >= group["size"]]}


def _plan(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """All has been asked: the steps that are left. The run fails if it has done nothing yet, else it stops."""
    checks = {host: answer for host, answer in heard.answers.items() if "skipped" not in answer}
    members = judge_members(memory.members, checks, heard.serving, group["size"], may_recreate(group))
    raw = {key: group[key] for key in ("name", "size", "policy", "only_size")}
    seen = {"hosts": _hosts(group, memory), "keeps_disks": memory.keeps_disks, "members": members}
    done = [{key: entry[key] for key in ("member", "do")} for entry in memory.log if entry["step"] == memory.number]
    declared, problems = parse_group({**raw, **seen, "failed": list(memory.failed), "after": done})
    plan = None if problems else plan_group(declared.group, declared.policy, declared.homes)
    problems = problems if plan is None else list(plan.problems)
    memory = replace(memory, failed=sorted(declared.group.failed))
    if plan is None or problems:
        return _stopped(group, memory, heard, {**refusal(problems, noun=""), "failures": memory.failed})
    result = report.result(declared.group, plan)
    bound = memory.bound or group["most_steps"] or len(plan.steps) + len(members)
    pauses = lease.pause_parts(memory.pause if plan.steps else 0, group["lease_ttl"])
    memory = replace(memory, steps=result["steps"], left=result["left"], bound=bound, pauses=pauses)
    show = Turn(memory, "show", "go", text=[result["msg"], *result["table"]])
    return replace(_go(group, memory, heard) if memory.log else show, plan=result)


def _stopped(group: _Raw, memory: Memory, heard: TurnInput, refused: t.Dict[str, t.Any]) -> Turn:
    memory = replace(memory, stop=refused["msg"], steps=(), left=None)
    if not memory.log:
        return Turn(memory, refused={**refused, "failed": True}, plan=refused)
    reverts = parse_policy(group["policy"])[0].on_failure == REVERT
    return replace((turn_step.revert if reverts else _finish)(group, memory, heard), plan=refused)


def _go(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Pause, then do the first of the planned steps, unless the deadline is over."""
    if memory.pauses:
        part, *rest = memory.pauses
        return Turn(replace(memory, pauses=rest), "pause", "go", seconds=part)
    if heard.check_mode or not memory.steps_ahead:
        return _finish(group, memory, heard)
    deadline = parse_policy(group["policy"])[0].deadline
    if deadline is not None and heard.now - memory.begun > deadline:
        return _finish(group, replace(memory, stop=f"the deadline of {deadline} s is over"), heard)
    return turn_step.begin(group, memory, heard)


def _finish(group: _Raw, memory: Memory, _heard: TurnInput) -> Turn:
    """The run ends: what it has done, and why it fails, if it does."""
    left = memory.failed if memory.left is None else memory.left
    reasons = [memory.stop] if memory.stop else []
    reasons += [f"{', '.join(left)}: not as declared"] if left else []
    reasons += ["steps are left, run it again"] if memory.steps and not group["most_steps"] and not memory.stop else []
    return Turn(memory, table=report.done_table(memory.log, memory.failed, memory.reverted), reasons=reasons)


def _again(_group: _Raw, memory: Memory, _heard: TurnInput) -> Turn:
    """A step has ended: the hosts are looked at again."""
    return _read_vms(memory, "look")


STAGES: t.Dict[str, turn_step.Stage] = {
    "begin": _begin,
    "lease_found": _lease_found,
    "leased": _leased,
    "adopt": _adopt,
    "adopted": _adopted,
    "look": _look,
    "placed": _placed,
    "asked": _plan,
    "go": _go,
    **turn_step.STAGES,
    "again": _again,
    "finish": _finish,
}
