# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a run of instance_group, its inputs, and its next action. turn.py decides."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

_Dict = t.Dict[str, t.Any]
ByHost = t.Dict[str, t.List[_Dict]]
TURNS, ROUNDS = 6, 20  # turns of a round, those of a run that has nothing to do; rounds before the tasks start again
_WITHIN = ("memory", "refused", "plan")  # fields of a turn that are no keys of its result


@dataclass(frozen=True)
class Memory:
    """The state of a run between turns: plain data, because tasks hand the last turn back.

    The progress of the roll is not part of it. Each step is planned from the reports of the hosts.
    """

    begun: float = 0.0  # seconds since 1970, as all times here
    places: t.Dict[str, str] = field(default_factory=dict)  # pools with the lease of this run, by host
    token: str = ""  # of this run, as soon as it has the lease
    renewed: float = 0.0  # when the lease was renewed last
    chosen: t.Optional[t.Dict[str, str]] = None  # hosts of members that were nowhere, with "hosts: auto"
    members: t.Sequence[_Dict] = ()  # those of the last look (member_places.py)
    keeps_disks: bool = True
    steps: t.Sequence[_Dict] = ()  # those that are left, as group_plan returns them
    left: t.Optional[t.Sequence[str]] = None  # members not as declared after all steps; None if there is no plan
    failed: t.Sequence[str] = ()
    bound: int = 0  # steps that this run may do
    pauses: t.Sequence[int] = ()  # parts of the pause before the next step, in seconds
    number: int = 0  # of the step at hand, or of the last one
    started: float = 0.0  # when that step began
    pause: int = 0  # seconds after that step
    batch: t.Sequence[_Dict] = ()  # members of that step, each with what is done to it as "do"
    bad: t.Sequence[str] = ()  # members of that step for which something has failed
    back: t.Sequence[str] = ()  # members of that step that go back into service, as far as is known
    reverting: bool = False  # the members of that step are brought back to what they were
    log: t.Sequence[_Dict] = ()  # the actions of all steps, for the table of what was done
    reverted: t.Sequence[str] = ()
    stop: str = ""  # why no further step is done

    @property
    def live(self) -> bool:
        """Whether the step at hand only makes changes that running VMs take."""
        return any(member["do"] == "live" for member in self.batch)

    @property
    def steps_ahead(self) -> int:
        """The number of steps that this run still plans to do."""
        return 0 if self.stop else max(0, min(len(self.steps), self.bound - self.number))


@dataclass(frozen=True)
class TurnInput:
    """The inputs of a turn. Of answers, serving and bad, only what the last turn has asked for is new."""

    now: float
    hosts: t.Sequence[str]  # the hosts of the play
    answers: t.Mapping[str, _Dict] = field(default_factory=dict)  # what the last module returned, by host
    serving: t.Collection[str] = ()  # members whose gate says yes
    bad: t.Collection[str] = ()  # members for which a hook has failed
    placed: t.Mapping[str, str] = field(default_factory=dict)  # hosts that were chosen for members
    missing: t.Sequence[str] = ()  # task files that are not there
    check_mode: bool = False


@dataclass(frozen=True)
class Turn:
    """The next action of a run. do: a task file of the role, "" at the end. then: the stage that gets its results.

    The other fields are documented in the task file.
    """

    memory: Memory
    do: str = ""
    then: str = ""
    title: str = ""  # of the task
    resumes: t.Sequence[str] = ()  # do, then and title of the turn before which the lease is renewed
    refused: _Dict = field(default_factory=dict)  # keys of a task that fails, with msg
    lease: _Dict = field(default_factory=dict)  # state, renew, take_over and hosts
    vms: ByHost = field(default_factory=dict)  # entries of the module vm, by host
    allow_restart: bool = False
    hooks: t.Sequence[str] = ()  # task files
    members: ByHost = field(default_factory=dict)  # members, by host
    gate: _Dict = field(default_factory=dict)  # members, retries, delay, stable_for and limit of group_gate
    place: _Dict = field(default_factory=dict)  # what vm_placement is asked: vms and beside (both by host), optional
    plan: _Dict = field(default_factory=dict)  # as group_plan returns it
    text: t.Sequence[str] = ()  # lines of the plan
    seconds: int = 0
    table: t.Sequence[str] = ()  # lines of what was done
    reasons: t.Sequence[str] = ()  # why the run fails

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do, so that nothing will be heard."""
        todo: t.Dict[str, t.Any] = {
            "vm": any(self.vms.values()),
            "hooks": self.hooks and any(self.members.values()),
            "step_hooks": self.hooks,
            "agents": any(self.members.values()),
        }
        return not todo.get(self.do, True)

    def after_renewal(self, take_over: bool = False) -> Turn:
        """Return this turn again, after the lease was taken or renewed."""
        memory = self.memory
        lease = {"renew": bool(memory.token), "take_over": take_over and not memory.token}
        return replace(
            self,
            do="lease",
            then="leased",
            title="Take or renew the lease",
            lease={"state": "held", "hosts": list(memory.places), **lease},
            resumes=(self.do, self.then, self.title),
        )

    @classmethod
    def of(cls, result: t.Mapping[str, t.Any]) -> Turn:
        """Return the turn of a result."""
        fields = {name: result[name] for name in cls.__dataclass_fields__ if name not in _WITHIN}
        return cls(memory=Memory(**result["memory"]), **fields)

    def result(self) -> _Dict:
        """Return the keys of the result of a task."""
        fields = {name: value for name, value in vars(self).items() if name not in _WITHIN}
        # A loop cannot be left, so it is as long as what is ahead seems to be. A round within each round would end with
        # the run, but one of some hundred steps would be too deep for Python.
        rounds = 2 * self.memory.steps_ahead
        loops = {"turns": TURNS if self.do else 0, "rounds": max(1, min(rounds, max(ROUNDS, rounds // 10)))}
        memory = dict(vars(self.memory))
        return {**self.refused, **fields, **loops, "memory": memory, "warnings": self.plan.get("warnings", [])}


def refuse(memory: Memory, texts: t.Sequence[str]) -> Turn:
    """Return the turn of a run that fails for these reasons."""
    return Turn(memory, refused={"msg": ". ".join(texts), "failed": True}, reasons=texts)
