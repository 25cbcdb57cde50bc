# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a step is, and what a plan is. disk_steps.py and vm_steps.py have the steps, one class for each kind."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..model.errors import Problem
from ..model.vm import Vm

_S = t.TypeVar("_S", bound="Step")


class StepReport(t.NamedTuple):
    """How a step is reported to the user."""

    # One line for the user, "" for a step that is not shown.
    text: str
    # The label of its disk.
    disk: str = ""
    # The step destroys data.
    destroys: bool = False
    # Why the VM must be stopped for this step, though a running VM takes others of its class. "" if it need not be.
    cold: str = ""
    # The step belongs to a disk that is replaced by a new one.
    recreates: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """One thing to do. Each kind of step is a class. Its fields are the values that it needs; sizes end in C(_mib) or
    C(_bytes).

    The table AFTER in plan/predict.py has the state of the VM after each kind of step. The tables in
    engine/steps/performers*.py have the function that carries it out.

    Steps are neither compared nor printed: without eq and repr, their classes are created in half the time.
    """

    report: StepReport

    # The name of the step in results, and in the list of what a driver can do while a VM runs (Capabilities.live).
    kind: t.ClassVar[str]
    # The step only copies what the hypervisor says into facts. It is not shown, and does not count as a change.
    facts_only: t.ClassVar[bool] = False
    # The step takes a volume out of a VM. A guard protects the volume from a hypervisor that destroys what it removes.
    leaves_vm: t.ClassVar[bool] = False
    # The step finishes or removes what an interrupted run has left.
    completes_interrupted: t.ClassVar[bool] = False
    # The step restores the power state from before an interrupted run.
    changes_power: t.ClassVar[bool] = False
    # The step shuts the VM down, or starts it.
    stops: t.ClassVar[bool] = False
    starts: t.ClassVar[bool] = False
    # The journal must know of the step: if the run is cut off here, the state of the host alone may not show it.
    recorded: t.ClassVar[bool] = True
    # The step is done while the VM still runs, before the stop for other steps. It corrects quota and reservations.
    before_stop: t.ClassVar[bool] = False

    @property
    def text(self) -> str:
        """One line for the user, "" for a step that is not shown."""
        return self.report.text

    @property
    def disk(self) -> str:
        """The label of the step's disk; "" for a step of a VM."""
        return self.report.disk

    @property
    def destroys(self) -> bool:
        """Whether the step destroys data."""
        return self.report.destroys

    @property
    def cold(self) -> str:
        """Why the VM must be stopped for this step; "" if only the class of the step decides."""
        return self.report.cold

    @property
    def abilities(self) -> t.Tuple[str, ...]:
        """What a driver must be able to do for the step (Capabilities.abilities)."""
        return (self.kind,)

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
        """All datasets that the step names: those that it changes, and those that it creates."""
        return self.volumes

    @property
    def moved(self) -> t.Tuple[t.Tuple[str, str], ...]:
        """Datasets that the step renames and leaves there, by their old and new names."""
        return ()

    def for_disk(self: _S, recreates: bool, cold: t.Optional[str] = None) -> _S:
        """Return the step with other values of recreates and cold. None keeps cold as it is."""
        cold = self.cold if cold is None else cold
        return replace(self, report=self.report._replace(recreates=recreates, cold=cold))

    def late(self, live: t.Collection[str]) -> bool:
        """Whether a VM must be stopped for a step of this class. live: the kinds of steps that a running VM takes."""
        return self.kind not in live


def status_of(number: int, done: int) -> str:
    """Return the status of step `number` of a plan in which `done` steps were done and the next one failed."""
    return "done" if number < done else "failed" if number == done else "not done"


class PlanOutcome(t.NamedTuple):
    """How a plan ended in a run that failed."""

    # The number of steps done, -1 if the plan was not begun.
    done: int
    # The steps that were done have changed something.
    changed: bool

    def status(self, number: int) -> str:
        """Return the status of the step with this number."""
        return status_of(number, self.done)


@dataclass(frozen=True)
class VmPlan:
    """The steps that bring one VM from before to after."""

    # The uuid of the VM, "" for detached disks.
    vm: str
    before: Vm
    # The VM as it will be after the last step.
    after: Vm
    # Empty if there are problems.
    steps: t.Tuple[Step, ...] = ()
    problems: t.Tuple[Problem, ...] = ()
    warnings: t.Tuple[str, ...] = ()
    # Set only in a run that failed.
    outcome: t.Optional[PlanOutcome] = None

    @property
    def name(self) -> str:
        """The name of the VM in problems and results."""
        return self.before.config.alias or self.vm

    @property
    def changed(self) -> bool:
        """Whether the plan changes anything. Steps that only copy facts do not count."""
        if self.outcome is not None:
            return self.outcome.changed
        return any(not step.facts_only for step in self.steps)

    @property
    def stops(self) -> bool:
        """Whether a step shuts the VM down."""
        return any(step.stops for step in self.steps)

    @property
    def runs_after(self) -> bool:
        """Whether the VM should run after this run, even a failed one: as declared, else as before.

        A deletion that fails leaves the VM as it was.
        """
        if self.after.exists:
            return self.after.config.state == "running"
        return self.before.halted or self.before.config.state == "running"

    def class_of(self, step: Step, live: t.Collection[str]) -> str:
        """Return how a running VM takes a step: C(live), C(restart) or C(recreate); "" if the VM is created or deleted.

        live: the kinds of steps that a running VM takes.
        """
        if not (self.before.exists and self.after.exists):
            return ""
        if step.report.recreates:
            return "recreate"
        late = step.late(live) and (self.stops or not step.starts)
        return "restart" if late or step.cold else "live"
