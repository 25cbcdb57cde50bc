# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a step is, and what a plan is. disk_steps.py and vm_steps.py have the steps, one class for each kind."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.errors import Problem
from ..model.vm import Vm

_S = t.TypeVar("_S", bound="Step")


class Told(t.NamedTuple):
    """What the user is told of a step."""

    # The step in words, "" for one that is not shown.
    text: str
    # The label of its disk.
    disk: str = ""
    # Data is given up.
    destroys: bool = False
    # Why a running VM does not take this step, though it takes others of its class.
    cold: str = ""
    # The step belongs to a disk that is made again.
    recreates: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One thing to do. Each kind of step is a class, and its fields are the figures that it needs, with units in names.

    Nothing compares or prints steps. Without the methods for that (eq, repr), their classes are made in half the time.

    Sizes are MiB (C(_mib)) or bytes (C(_bytes)). plan/predict.py says what a VM is after a step, in its table AFTER.
    The tables in engine/steps/performers*.py say who carries it out.
    """

    told: Told

    # The name of the step in results, and in the list of what a driver can do while a VM runs (Capabilities.live).
    kind: t.ClassVar[str]
    # The step only brings facts in line with the hypervisor. It is not shown, and does not count as a change.
    silent: t.ClassVar[bool] = False
    # The step takes a volume out of a VM. It needs a guard against a hypervisor that destroys what it forgets.
    leaves_vm: t.ClassVar[bool] = False
    # The step ends what an interrupted run has left.
    mends: t.ClassVar[bool] = False
    # The step restores the power state from before an interrupted run.
    changes_power: t.ClassVar[bool] = False
    # The step shuts the VM down, or starts it.
    stops: t.ClassVar[bool] = False
    starts: t.ClassVar[bool] = False
    # A run that is cut off at this step may leave what the state does not show. The journal has such runs.
    recorded: t.ClassVar[bool] = True
    # The step corrects figures of ZFS. It is done while the VM runs, before the VM is stopped for other steps.
    calm: t.ClassVar[bool] = False

    @property
    def text(self) -> str:
        """The step in words."""
        return self.told.text

    @property
    def disk(self) -> str:
        """The label of the step's disk; "" for a step of a VM."""
        return self.told.disk

    @property
    def destroys(self) -> bool:
        """Whether data is given up."""
        return self.told.destroys

    @property
    def cold(self) -> str:
        """Why a running VM does not take this step; "" if only the class of the step decides."""
        return self.told.cold

    @property
    def keeps_vm_down(self) -> bool:
        """Whether the VM must not start again if this step fails, because its disks may not fit together."""
        return False

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes that the step changes, by their names before the step."""
        return ()

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """All datasets that the step names: those that it changes, and those that it makes of them."""
        return self.volumes

    @property
    def moved(self) -> t.Tuple[t.Tuple[str, str], ...]:
        """Datasets that the step renames and leaves there, by their old and new names."""
        return ()

    def for_disk(self: _S, recreates: bool, cold: t.Optional[str] = None) -> _S:
        """The step, with whether its disk is made anew, and with why the step is cold (None: as before)."""
        cold = self.cold if cold is None else cold
        return replace(self, told=self.told._replace(recreates=recreates, cold=cold))

    def late(self, live: t.Collection[str]) -> bool:
        """Whether a VM must be stopped for a step of this class. live: the kinds of steps that a running VM takes."""
        return self.kind not in live


class Ended(t.NamedTuple):
    """How a plan ended in a run that failed. done is the number of steps done, -1 if the plan was not begun. changed
    says whether they changed anything.
    """

    done: int
    changed: bool

    def status(self, number: int) -> str:
        """How far the step with this number came."""
        return "done" if number < self.done else "failed" if number == self.done else "not done"


@dataclass(frozen=True)
class VmPlan:
    """The steps that bring one VM from before to after; none with problems. ended is set only in a run that failed."""

    vm: str
    before: Vm
    after: Vm
    steps: t.Tuple[Step, ...] = ()
    problems: t.Tuple[Problem, ...] = ()
    warnings: t.Tuple[str, ...] = ()
    ended: t.Optional[Ended] = None

    @property
    def name(self) -> str:
        """The name of the VM in problems and results."""
        return self.before.config.alias or self.vm

    @property
    def changed(self) -> bool:
        """Whether the plan changes anything. Silent corrections of facts do not count."""
        if self.ended is not None:
            return self.ended.changed
        return any(not step.silent for step in self.steps)

    @property
    def stops(self) -> bool:
        """Whether the VM is shut down on the way."""
        return any(step.stops for step in self.steps)

    @property
    def runs_after(self) -> bool:
        """Whether the VM shall run when the run is over, however it ends: as the task declares, else as it was.

        A deletion that fails leaves the VM as it was.
        """
        if self.after.there:
            return self.after.config.state == "running"
        return self.before.halted or self.before.config.state == "running"

    def class_of(self, step: Step, live: t.Collection[str]) -> str:
        """How a running VM takes a step: C(live), C(restart) or C(recreate). live names the kinds of steps taken live.

        "" for a VM that is made or deleted.
        """
        if not (self.before.there and self.after.there):
            return ""
        if step.told.recreates:
            return "recreate"
        late = step.late(live) and (self.stops or not step.starts)
        return "restart" if late or step.cold else "live"
