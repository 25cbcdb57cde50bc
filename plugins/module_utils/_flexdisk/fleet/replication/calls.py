# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task on several hosts as one call after another: which step runs on which host, and what its answer leads to.

Such a task is a generator (Flow). It yields calls, and gets the answer to each; it yields messages for the user; it
returns its result, or raises Stopped. Nothing but the answers is known from one call to the next: next_turn() starts
the generator again and gives it all of them. So a flow must not depend on anything else, such as the time.
"""

from __future__ import annotations

import typing as t

from . import host_steps

_Dict = t.Dict[str, t.Any]


class Call(t.NamedTuple):
    """One call of a step of host_step, or of another module of this collection."""

    name: str
    """What it does, as the name of a task."""
    host: str
    """Its name in the inventory."""
    run: str
    """That of the module host_step (move, failover, send or receive) that has the step, or a module."""
    arguments: t.Mapping[str, t.Any]
    """The step, its arguments, and the options of the host. One of None is left out."""
    keeps: t.Sequence[str] = ()
    """The keys of the result that the flow reads; changed, msg and whether it failed are always there."""
    check: bool = False
    """Whether it only asks: it runs in check mode in a real run, too, and never counts as a change."""
    hidden: bool = False
    """Whether its arguments or its result may hold secrets of a VM. Nothing of them is shown, not even a failure."""
    may_fail: bool = False
    """Whether the flow goes on after a failure. Otherwise CallFailed is raised in it."""
    may_be_lost: bool = False
    """Whether the flow goes on if the host cannot be reached. Otherwise the run ends there, as after each task."""

    @property
    def module(self) -> str:
        """The module that does it."""
        return host_steps.MODULE if self.run in host_steps.STEPS else self.run

    @property
    def options(self) -> _Dict:
        """The options of that module."""
        if self.run in host_steps.STEPS:
            return host_steps.options(self.run, self.arguments)
        return {key: value for key, value in self.arguments.items() if value is not None}


class AtOnce(t.NamedTuple):
    """Calls of one module on several hosts at the same time. Only the flow of a play has them.

    The flow gets the answers by hosts, and goes on whatever they are. A host without an answer has failed. A host
    that fails or is lost drops out of the run, unless its call may fail or be lost.
    """

    calls: t.Sequence[Call]
    """They differ in hosts and arguments only."""


class Message(t.NamedTuple):
    """Tell the user."""

    name: str
    """As that of a call."""
    text: t.Union[str, t.List[str]]
    host: str = ""
    """The host that it is about; "" for none."""


class Answer(t.NamedTuple):
    """The end of a call."""

    result: t.Mapping[str, t.Any]
    began: float
    """By the clock of the controller, in seconds since 1970, as ended."""
    ended: float

    @property
    def failed(self) -> bool:
        """Whether the module failed."""
        return bool(self.result.get("failed"))

    @property
    def lost(self) -> bool:
        """Whether the host could not be reached."""
        return bool(self.result.get("unreachable"))

    @property
    def changed(self) -> bool:
        """Whether the call has changed something."""
        return bool(self.result.get("changed"))

    @property
    def msg(self) -> str:
        """What the module says."""
        return str(self.result.get("msg") or "")


class Stopped(Exception):
    """The task cannot go on. The text says why, and what to do next."""


class CallFailed(Stopped):
    """A call has failed that may not."""

    def __init__(self, call: Call, answer: Answer) -> None:
        super().__init__(answer.msg or f"{call.name}: failed")
        self.call = call


Answers = t.Mapping[str, Answer]  # to calls that are made at once, by hosts
Flow = t.Generator[t.Union[Call, Message], Answer, _Dict]
Part = t.Generator[t.Union[Call, Message], Answer, t.Any]  # of a flow
PlayFlow = t.Generator[t.Union[Call, AtOnce, Message], t.Any, _Dict]  # of all hosts of a play together
PlayPart = t.Generator[t.Union[Call, AtOnce, Message], t.Any, t.Any]


class Run(t.NamedTuple):
    """How the user runs the task."""

    check: bool
    """In check mode."""
    diff: bool
    """With the differences shown."""
    options: t.Callable[[str], t.Optional[_Dict]]
    """The options of modules for a host by the inventory, hypervisor and libvirt_uri. None for a host that it lacks."""


class Turn(t.NamedTuple):
    """What is next."""

    says: t.Optional[Message]
    """What the user is told first."""
    call: t.Optional[Call] = None
    """The next call."""
    at_once: t.Optional[AtOnce] = None
    """The next calls, of the flow of a play. Without any call, the task has ended."""
    failure: t.Optional[Stopped] = None
    result: t.Optional[_Dict] = None


def next_turn(flow: t.Union[Flow, PlayFlow], answers: t.Sequence[t.Union[Answer, Answers]]) -> Turn:
    """Return what is next after these answers to the first calls."""
    rest, says = iter(answers), None
    try:
        step = next(flow)
        while True:
            if isinstance(step, Message):
                says = step
                step = next(flow)  # which may be the end
                continue
            answer = next(rest, None)
            if answer is None:
                return Turn(says, at_once=step) if isinstance(step, AtOnce) else Turn(says, call=step)
            says = None
            failure = _failure(step, answer)
            step = flow.throw(failure) if failure else flow.send(answer)  # type: ignore[arg-type]
    except StopIteration as end:
        return Turn(says, result=end.value or {})
    except Stopped as exc:
        return Turn(says, failure=exc)


def _failure(step: t.Union[Call, AtOnce], answer: t.Union[Answer, Answers]) -> t.Optional[CallFailed]:
    """Return what is raised in the flow because of an answer."""
    if isinstance(step, AtOnce) or not isinstance(answer, Answer):
        return None
    fails = (answer.failed and not step.may_fail) or (answer.lost and not step.may_be_lost)
    return CallFailed(step, answer) if fails else None


def readable_part(call: Call, result: t.Mapping[str, t.Any]) -> _Dict:
    """Return what the flow may read of a result."""
    keys = ("changed", "failed", "unreachable", "msg", *call.keeps)
    return {key: result[key] for key in keys if key in result}
