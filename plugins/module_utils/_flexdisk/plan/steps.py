# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The verbs: what can be done to a VM's disks, each in plain words."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..model.errors import Problem
from ..model.vm import Vm


@dataclass(frozen=True)
class Step:
    """One thing to do.

    kind names the verb (plan.predict and engine.apply each know them all); text says it to a human; destroys is True
    where data is given up; cold says why a running VM does not take this one though it takes others of its kind;
    recreates: it belongs to a disk that is made anew; args is what the verb needs, dataset names and bytes.
    """

    kind: str
    text: str
    disk: str = ""
    destroys: bool = False
    args: t.Mapping[str, t.Any] = field(default_factory=dict)
    cold: str = ""
    recreates: bool = False


class Ended(t.NamedTuple):
    """How a plan ended in a run that failed: so many steps were done, -1 if it was not begun, and whether that changed
    anything.
    """

    done: int
    changed: bool

    def status(self, number: int) -> str:
        """Of the step of that number."""
        return "done" if number < self.done else "failed" if number == self.done else "not done"


@dataclass(frozen=True)
class VmPlan:
    """Steps from before to after for one VM; with problems there are none. ended is there only in a run that failed."""

    vm: str
    before: Vm
    after: Vm
    steps: t.Tuple[Step, ...] = ()
    problems: t.Tuple[Problem, ...] = ()
    warnings: t.Tuple[str, ...] = ()
    ended: t.Optional[Ended] = None

    @property
    def name(self) -> str:
        """The VM in problems and results."""
        return self.before.config.alias or self.vm

    @property
    def changed(self) -> bool:
        """Silent corrections of our own copies do not count."""
        if self.ended is not None:
            return self.ended.changed
        return any(step.kind != "copy" for step in self.steps)

    def class_of(self, step: Step, live: t.Collection[str]) -> str:
        """What a VM that runs takes for a step: C(live), C(restart) or C(recreate). live names kinds of steps.

        "" for a VM that is made or deleted.
        """
        if not (self.before.there and self.after.there):
            return ""
        if step.recreates:
            return "recreate"
        if step.kind in ("recover", "autoboot"):
            return "live"
        if step.kind == "properties":
            late = {"memory", "vcpus"} & {*step.args["changes"]}
        else:
            late = {step.kind} - {*live}
            if step.kind == "start" and not any(other.kind == "stop" for other in self.steps):
                late = set()
        return "restart" if late or step.cold else "live"
