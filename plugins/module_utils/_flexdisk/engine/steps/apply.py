# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Carries out a plan. Each step starts from what the last one left, ends under the law, and is read back."""

from __future__ import annotations

import contextlib
import typing as t

from ...model.errors import FlexdiskError, Unchanged
from ...model.vm import Vm
from ...plan import predict
from ...plan.disk_steps import DiskDeparture, Grow, Resize
from ...plan.steps import Step, VmPlan
from ...plan.vm_steps import RollBack
from ...rules.differences import in_conversion
from ...rules.reservation import PoolGeometry
from ...rules.unfinished import is_unfinished
from ...zfs.errors import ZfsError
from ..host import progress
from ..host.journal import Journal
from .confirm import confirm_forecasts, confirm_unchanged
from .failed import Restart, StepFailed
from .perform import Change, Performers, Tools
from .restart import keep_autoboot, start_again

# Errors of a tool of the hypervisor that may still be at work, or has ended in the middle of it.
_MAY_GO_ON = ("CommandTimeout", "VmadmCrashed")
_LATE = "; it has been asked to and may do it later: then the next run of this task or of vm_disks starts the VM again"


class Applier:
    """Carries out one plan, and restores the VM's power state if a step fails.

    Without a journal, no intent is written. That is for plans whose state alone shows what is left to do.
    """

    def __init__(
        self,
        tools: Tools,
        performers: Performers,
        journal: t.Optional[Journal],
        plan: VmPlan,
        geometry: PoolGeometry,
    ) -> None:
        self._tools = tools
        self._performers = performers
        self._journal = journal
        self._plan = plan
        self._geometry = geometry
        # The VM as the steps that are done have left it.
        self._vm = plan.before
        # Number of steps that are done.
        self._done = 0
        # Any step was begun.
        self._begun = False
        # This or an interrupted run has stopped the VM, and has not started it yet.
        self._is_down = plan.before.halted
        # The disks may be of different times: an interrupted rollback has not been finished yet.
        self._is_mixed = plan.before.interrupted is not None and bool(plan.before.interrupted.rollback)

    def run(self) -> None:
        """Carry out all steps. Raises StepFailed.

        Before that, a VM that this or an interrupted run has stopped is started again, unless only some of its disks
        have been rolled back.
        """
        try:
            confirm_unchanged(self._tools, self._plan)
            confirm_forecasts(self._tools, self._plan, self._geometry)
        except FlexdiskError as exc:
            raise StepFailed(exc, 0, begun=False) from exc
        for step in self._plan.steps:
            self._step(step)
        self._finish()

    def _step(self, step: Step) -> None:
        """Carry out the next step."""
        after = predict.apply(self._vm, step, self._geometry)
        self._is_down = self._is_down or step.stops
        progress.current().step(self._plan.name if self._plan.vm else "", step.disk, step.text or step.kind)
        try:
            self._write_intent()
            self._begun = True
            self._performers[type(step)](step, self._tools, Change(self._vm, after, self._geometry))
        except FlexdiskError as exc:
            raise self._fail(step, after, exc) from exc
        self._is_down = self._is_down and not step.starts
        self._is_mixed = self._is_mixed and not isinstance(step, RollBack)
        self._vm = after
        self._done += 1

    def _fail(self, step: Step, after: Vm, error: FlexdiskError) -> StepFailed:
        """Start the VM again after a failed step, and clear the intent if nothing needs it any more."""
        plan = self._plan
        if self._stays_down(step, error):
            # The intent says so. After a stop that has failed, nobody knows whether the VM is down.
            return StepFailed(error, self._done, None if step.stops else Restart(False), self._begun)
        if step.stops and not plan.runs_after:
            keep_autoboot(self._tools, plan)
        restart = start_again(self._tools, plan, step.stops) if self._is_down and plan.runs_after else None
        state_suffices = self._state_suffices(step, error)
        stopped = _stops(plan, self._done) and plan.runs_after
        needs_restart = stopped or (plan.before.booted and not (self._vm.boots and after.boots))
        late = restart is not None and restart.late
        if state_suffices and ((restart and restart.running) or not needs_restart):
            self._clear_after_failure(late)
        error = FlexdiskError(error.code, error.message + _LATE) if late else error
        return StepFailed(error, self._done, restart, self._begun)

    def _stays_down(self, step: Step, error: FlexdiskError) -> bool:
        """Return whether the VM must stay down: its disks may have data of different times, or be in conversion."""
        begun_step = not isinstance(error, Unchanged)
        converting = any(in_conversion(self._vm, disk) for disk in self._vm.detached)
        return self._is_mixed or (step.keeps_vm_down and begun_step) or converting

    def _finish(self) -> None:
        """Clear the intent after the last step."""
        try:
            self._clear_intent()
        except FlexdiskError as exc:
            raise StepFailed(exc, len(self._plan.steps)) from exc

    def _write_intent(self) -> None:
        """Write the intent before the first step, and again before a stop, so that only our own stops are undone.

        None is written if the state alone shows what any of the steps leaves.
        """
        plan, number = self._plan, self._done
        if self._journal is None or not plan.changed or not plan.vm or not (plan.before.exists or plan.after.exists):
            return
        if not any(step.recorded for step in plan.steps):
            return
        if number and not plan.steps[number].stops:
            return
        try:
            self._tools.make_container(plan.before.root.pool)
        except ZfsError as exc:
            if exc.code != "InsufficientSpace" or plan.stops or not plan.before.exists:
                raise
            # This run may free space. It neither stops nor creates the VM, so no intent is needed.
            return
        self._journal.write(plan, _stops(plan, number), plan.steps[number].stops)

    def _state_suffices(self, step: Step, error: FlexdiskError) -> bool:
        """Return whether the next run can see what a failed step has left without an intent.

        While a VM is being created or deleted, it can only if nothing of the VM is there. After a timeout, the tool of
        the hypervisor may still be at work.
        """
        plan = self._plan
        earlier = plan.before.interrupted
        if plan.vm and (not (plan.before.exists and plan.after.exists) or (earlier is not None and earlier.creates)):
            return error.code not in _MAY_GO_ON and self._is_gone_or_complete()
        if plan.before.config.prefixes:
            # The moves of the intent are all that tells of a disk that has left and gone.
            leaves = any(isinstance(one, DiskDeparture) for one in plan.steps)
            if leaves or (earlier is not None and earlier.moves):
                return False
        # A hypervisor that resizes volumes itself may have left another size in its configuration.
        untold = Grow if self._tools.hypervisor.resizing is None else Resize
        return self._tools.capabilities.keeps_storage or not isinstance(step, untold)

    def _is_gone_or_complete(self) -> bool:
        """Return whether a VM that was being created or deleted is gone, or was being deleted and is still complete."""
        plan = self._plan
        with contextlib.suppress(FlexdiskError):
            exists = self._tools.zfs.exists(plan.before.root.name)
            config = next((one for one in self._tools.hypervisor.vms() if one.uuid == plan.vm), None)
            if config is None or plan.after.exists:
                return config is None and not exists
            return exists and not is_unfinished(config)
        return False

    def _clear_after_failure(self, late: bool) -> None:
        """Clear the intent after a failure.

        That of an inflexible VM stays, because it holds the space of the VM. late: the guest may still shut down.
        """
        plan = self._plan
        with contextlib.suppress(FlexdiskError):
            if late:
                if plan.before.flexible and self._journal is not None:
                    self._journal.leave_for_next_run(plan)
            elif plan.before.flexible or plan.before.config.prefixes or not (plan.before.exists and plan.vm):
                self._clear_intent()
            elif self._journal is not None and plan.changed:
                self._journal.write(plan, False)

    def _clear_intent(self) -> None:
        if self._journal is not None:
            self._journal.clear(self._plan)


def _stops(plan: VmPlan, number: int) -> bool:
    """Return whether this or an interrupted run has stopped the VM before the step with this number, or in it."""
    earlier = plan.before.interrupted
    return bool(earlier and earlier.stops) or any(step.stops for step in plan.steps[: number + 1])
