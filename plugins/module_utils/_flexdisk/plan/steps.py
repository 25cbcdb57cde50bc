# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a step is, and plans of steps. disk_steps.py and vm_steps.py have the steps themselves, one class for each."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.errors import Problem
from ..model.vm import Vm

_S = t.TypeVar("_S", bound="Step")


class Told(t.NamedTuple):
    """What the user is told of a step.

    text: the step in words, "" for one that is not shown. disk: the label of its disk. destroys: data is given up.
    cold: why a running VM does not take this one, though it takes others of its class. recreates: the step belongs to
    a disk that is made anew.
    """

    text: str
    disk: str = ""
    destroys: bool = False
    cold: str = ""
    recreates: bool = False


@dataclass(frozen=True)
class Step:
    """One thing to do. A class for each kind of step has the figures that it needs as fields, units in their names.

    Sizes are MiB (C(_mib)) or bytes (C(_bytes)). plan/predict.py says what a VM is after a step, the files apply*.py of
    the engine do it; both find their function by the class.
    """

    told: Told

    # The name of the step in results, and in the list of what a driver can do while a VM runs (Capabilities.live).
    kind: t.ClassVar[str]
    # It keeps the facts in line with the hypervisor; nobody is told, and it does not count as a change.
    silent: t.ClassVar[bool] = False
    # It takes a volume out of a VM, and so needs a guard against a hypervisor that destroys what it forgets.
    leaves_vm: t.ClassVar[bool] = False
    # It ends what an interrupted run has left, or makes the power state what it was before that run.
    mends: t.ClassVar[bool] = False
    powers: t.ClassVar[bool] = False
    # It shuts the VM down, or starts it.
    stops: t.ClassVar[bool] = False
    starts: t.ClassVar[bool] = False
    # It puts figures of ZFS right and can be done while the VM runs, before it is stopped for other steps.
    calm: t.ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The step in words."""
        return self.told.text

    @property
    def disk(self) -> str:
        """The label of its disk, "" for a step of a VM."""
        return self.told.disk

    @property
    def destroys(self) -> bool:
        """Whether data is given up."""
        return self.told.destroys

    @property
    def cold(self) -> str:
        """Why a running VM does not take this step, "" if that is a matter of its class."""
        return self.told.cold

    @property
    def keeps_vm_down(self) -> bool:
        """Whether the VM must not start again after a failure of this step: its disks may not fit together."""
        return False

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes that it changes, by the names that they have before it."""
        return ()

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """All datasets that it names: what it changes, and what it makes of that."""
        return self.volumes

    def for_disk(self: _S, recreates: bool, cold: t.Optional[str] = None) -> _S:
        """The step with what is known of its disk: whether that is made anew, and why it is cold (None: as before)."""
        cold = self.cold if cold is None else cold
        return replace(self, told=self.told._replace(recreates=recreates, cold=cold))

    def late(self, live: t.Collection[str]) -> bool:
        """Whether a running VM must be stopped for a step of this class. live: kinds of steps that it takes."""
        return self.kind not in live


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
        """Silent corrections of facts do not count."""
        if self.ended is not None:
            return self.ended.changed
        return any(not step.silent for step in self.steps)

    @property
    def stops(self) -> bool:
        """Whether the VM is shut down on the way."""
        return any(step.stops for step in self.steps)

    def class_of(self, step: Step, live: t.Collection[str]) -> str:
        """What a VM that runs takes for a step: C(live), C(restart) or C(recreate). live names kinds of steps.

        "" for a VM that is made or deleted.
        """
        if not (self.before.there and self.after.there):
            return ""
        if step.told.recreates:
            return "recreate"
        late = step.late(live) and (self.stops or not step.starts)
        return "restart" if late or step.cold else "live"
