# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The turns of one step: its members leave service, are changed, and go back when they pass their gate.

A member for which something fails is left as it is, with its mark. The next look reports it. To revert a step, its
members take the same turns once more.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from . import template
from .gate import CONNECTED
from .judged import members_done
from .members import LIVE, RECREATE, RESTART
from .memory import ByHost, Memory, Turn, TurnInput
from .roll import CREATE, FINISH, REMOVE, RETURN, batch_of

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]
Stage = t.Callable[[_Raw, Memory, TurnInput], Turn]
STAYING = (LIVE, CREATE, RETURN)  # what is done to members that do not leave service for it


def begin(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The first of the planned steps begins, with a lease that is as good as new."""
    step = memory.steps[0]
    memory = replace(memory, batch=batch_of(memory.members, step["actions"]), bad=(), back=())
    memory = replace(memory, number=memory.number + 1, started=heard.now, pause=step["pause"])
    hooks = Turn(memory, "step_hooks", "leave", "Run the hooks before the step", hooks=group["before_step"])
    return hooks.after_renewal() if memory.token else hooks


def revert(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The members of the last step are brought back to what they were before it."""
    batch = [member for member in memory.batch if member["do"] in (RESTART, RECREATE, FINISH)]
    return _leave(group, replace(memory, batch=batch, bad=(), back=(), reverting=True), heard)


def _leave(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Mark the members that leave service."""
    marks = {host: _marks(members, True) for host, members in _by_host(heard, _unmarked(group, memory)).items()}
    return Turn(memory, "vm", "marked", "Mark the members that leave service", vms=marks)


def _marked(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Their hooks run. Those that could not be marked are left alone."""
    names = {name for answer in heard.answers.values() for name in members_done(answer)}
    memory = replace(memory, bad=[m["name"] for m in _unmarked(group, memory) if m["name"] not in names])
    leaving = _by_host(heard, _members_leaving(memory))
    return Turn(memory, "hooks", "out", "Take them out of service", hooks=group["before_member"], members=leaving)


def _out(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The members are out of service, but those whose hooks have failed. The others are changed."""
    memory = replace(memory, bad=(*memory.bad, *heard.bad))
    several = _by_host(heard, [member for member in _without_failure(memory) if member["do"] != RETURN])
    drained = {"drained": True} if _needs_marks(group) and not memory.live else {}
    if memory.reverting:
        entries = {host: template.restore_entries(members) for host, members in several.items()}
    else:
        entries = {host: declared_entries(members, group, (), drained) for host, members in several.items()}
    restart = not memory.live
    return Turn(memory, "vm", "changed", "Change the members", vms=entries, allow_restart=restart)


def _changed(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The members were changed. Those that are as they shall be go back, when their gate says yes."""
    if memory.live:
        return _end(group, _logged(memory, 0.0), heard)
    names = {name for answer in heard.answers.values() for name in members_done(answer)}
    changed = [m for m in _without_failure(memory) if m["do"] == RETURN or (m["name"] in names and m["do"] != REMOVE)]
    memory = _going_back(memory, changed)
    if group["gate"].get("guest_agent"):
        return Turn(memory, "agents", "agents", members=_by_host(heard, changed))
    return _ask_gate(group, memory, ())


def _agents(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The guest agents of the members were waited for."""
    vms = [vm for answer in heard.answers.values() for vm in answer.get("vms") or ()]
    return _ask_gate(group, memory, [vm["alias"] for vm in vms if vm["guest_agent"] == CONNECTED])


def _ask_gate(group: _Raw, memory: Memory, connected: t.Collection[str]) -> Turn:
    """Ask the gate. The members run already, and their guest agents were waited for."""
    agent = {True: CONNECTED, False: "disconnected"}
    members = [{**m["gate"], "running": True, "guest_agent": agent[m["name"] in connected]} for m in _returning(memory)]
    options = group["gate"]
    waits = {
        "retries": options.get("retries", 60),
        "delay": options.get("delay", 5),
        "stable_for": options.get("stable_for", 0),
    }
    gate = {"members": members, **waits, "limit": group["lease_ttl"] // 2}
    return Turn(memory, "gate", "gated", "Wait for their gate", gate=gate)


def _gated(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """The gate says which members serve: the tasks of the gate run for these."""
    serving = [member for member in _returning(memory) if member["name"] in heard.serving]
    memory, tasks = _going_back(memory, serving), group["gate"].get("tasks") or ()
    members = _by_host(heard, serving)
    return Turn(memory, "hooks", "serving", "Run the tasks of their gate", hooks=tasks, members=members)


def _serving(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Run the hooks that put the members back into service."""
    memory = replace(memory, bad=(*memory.bad, *heard.bad))
    members = _by_host(heard, [member for member in _returning(memory) if member["name"] not in memory.bad])
    return Turn(memory, "hooks", "back", "Put them back into service", hooks=group["after_member"], members=members)


def _back(group: _Raw, memory: Memory, heard: TurnInput) -> Turn:
    """Remove the marks of the members for which nothing has failed."""
    memory = replace(memory, bad=(*memory.bad, *heard.bad))
    every = _needs_marks(group)
    returned = [member for member in _returning(memory) if member["name"] not in memory.bad]
    by_host = _by_host(heard, returned)
    marks = {host: _marks([m for m in several if every or m["marked"]], False) for host, several in by_host.items()}
    turn = Turn(memory, "vm", "end", "Remove their marks", vms=marks)
    if not memory.reverting:
        return replace(turn, memory=_logged(memory, heard.now - memory.started))
    names = [member["name"] for several in by_host.values() for member in several]
    stop = f"{memory.stop}; back to what they were: {', '.join(names) or 'none'}"
    return replace(turn, memory=replace(memory, stop=stop, reverted=names), then="finish")


def _end(group: _Raw, memory: Memory, _heard: TurnInput) -> Turn:
    return Turn(memory, "step_hooks", "again", "Run the hooks after the step", hooks=group["after_step"])


STAGES: t.Dict[str, Stage] = {
    "leave": _leave,
    "marked": _marked,
    "out": _out,
    "changed": _changed,
    "agents": _agents,
    "gated": _gated,
    "serving": _serving,
    "back": _back,
    "end": _end,
}


def _going_back(memory: Memory, members: t.Sequence[_Dict]) -> Memory:
    return replace(memory, back=[member["name"] for member in members])


def _without_failure(memory: Memory) -> t.List[_Dict]:
    """Return the members of the step for which nothing has failed."""
    return [member for member in memory.batch if member["name"] not in memory.bad]


def _members_leaving(memory: Memory) -> t.List[_Dict]:
    return [member for member in _without_failure(memory) if member["do"] not in STAYING]


def _unmarked(group: _Raw, memory: Memory) -> t.List[_Dict]:
    """Return the members that leave service and have to be marked. A member whose creation was interrupted counts as
    marked. Those that the step has put back have lost their marks.
    """
    return [m for m in _members_leaving(memory) if _needs_marks(group) and (memory.reverting or not m["marked"])]


def _returning(memory: Memory) -> t.List[_Dict]:
    return [member for member in memory.batch if member["name"] in memory.back]


def _logged(memory: Memory, seconds: float) -> Memory:
    actions = memory.steps[0]["actions"]
    return replace(
        memory, log=[*memory.log, *({**action, "step": memory.number, "seconds": seconds} for action in actions)]
    )


def _marks(members: t.Sequence[_Raw], drained: bool) -> t.List[_Dict]:
    return [{"vm": member["name"], "drained": drained} for member in members]


def _by_host(heard: TurnInput, members: t.Sequence[_Dict]) -> ByHost:
    """Return the members of each host of the play."""
    return {host: [member for member in members if member["host"] == host] for host in heard.hosts}


def _needs_marks(group: _Raw) -> bool:
    """Return whether members are marked. Without hooks, only the change itself takes a member out of service."""
    return bool(group["before_member"] or group["after_member"] or group["gate"].get("tasks"))


def may_recreate(group: _Raw) -> bool:
    """Return whether boot disks may be recreated."""
    return bool(group["policy"].get("action_ceiling") == RECREATE)


def declared_entries(
    members: t.Sequence[_Raw], group: _Raw, adopt: t.Sequence[str], more: t.Optional[_Raw] = None
) -> t.List[_Dict]:
    """Return the desired state of members as entries of the module vm. adopt: names of VMs that have no mark yet."""
    restart = group["generation"] and not group["replace"]
    options = {"restart": True, **({"generation": group["generation"]} if restart else {}), **(more or {})}
    return template.entries(members, {**group, "adopt": adopt}, may_recreate(group), options)
