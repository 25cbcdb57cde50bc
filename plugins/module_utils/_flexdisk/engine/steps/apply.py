# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the steps of a plan. Each step starts from what the last one left, ends under the law, and is read back."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...model.errors import FlexdiskError
from ...model.sizes import render_apart
from ...model.vm import Vm
from ...plan import predict
from ...plan.disk_steps import Grow
from ...plan.steps import Step, VmPlan
from ...plan.vm_steps import ClearRemains, RemoveUnfinished, RollBack
from ...rules.differences import in_conversion, since_read
from ...rules.inventory import completed
from ...rules.journal import run_id
from ...rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from ...rules.unfinished import is_unfinished
from ...rules.usage import as_it_ran
from ...zfs.errors import ZfsError
from ...zfs.exact import Unchanged
from ..host import progress
from ..host.journal import Journal
from ..host.observe import observe
from . import autoboot, power
from .failed import Restart, StepFailed
from .perform import Change, Performers, Tools

# Seconds between the attempts to start a VM again.
RESTART_PAUSES = (1.0, 2.0, 4.0, 8.0)
# Errors of a tool of the hypervisor that may still be at work, or has ended in the middle of it.
_MAY_GO_ON = ("CommandTimeout", "VmadmCrashed")
# Most seconds in which a guest may end a shutdown that took longer than stop_timeout, and those between two looks.
GRACE, LOOK = 20, 2
_LATE = "; it has been asked to and may do it later: then the next run of this task or of vm_disks starts the VM again"


class Applier:
    """Applies plans on one host.

    Without intents, no intent is written. This is for plans whose steps can be found out again from the state alone.
    """

    def __init__(self, tools: Tools, performers: Performers, intents: t.Optional[Journal] = None) -> None:
        self._tools = tools
        self._performers = performers
        self._zfs = tools.zfs
        self._hypervisor = tools.hypervisor
        self._intents = intents

    def run(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """Do all steps. Raises StepFailed; first, a VM that this or an interrupted run has stopped is started again, if
        its disks are not of different times.
        """
        try:
            self._confirm_unchanged(plan)
            self._confirm_forecasts(plan, geometry)
        except FlexdiskError as exc:
            raise StepFailed(exc, 0, begun=False) from exc
        vm, down, begun = plan.before, plan.before.halted, False
        mixed = vm.interrupted is not None and bool(vm.interrupted.rollback)
        for number, step in enumerate(plan.steps):
            after = predict.apply(vm, step, geometry)
            down = down or step.stops
            progress.current().step(plan.name if plan.vm else "", step.disk, step.text or step.kind)
            try:
                self._note(plan, number)
                begun = True
                self._performers[type(step)](step, self._tools, Change(vm, after, geometry))
            except FlexdiskError as exc:
                begun_step = not isinstance(exc, Unchanged)
                if mixed or (step.keeps_vm_down and begun_step) or any(in_conversion(vm, d) for d in vm.detached):
                    # The disks may be of different times, or in conversion: the VM stays down, and the intent says so.
                    # After a stop that has failed, nobody knows.
                    raise StepFailed(exc, number, None if step.stops else Restart(False), begun) from exc
                if step.stops and not plan.runs_after:
                    self._keep_autoboot(plan)
                restart = self._restart(plan, step.stops) if down and plan.runs_after else None
                told = self._tells(plan, step, exc)
                stopped = _stops(plan, number) and plan.runs_after
                waits = stopped or (plan.before.booted and not (vm.boots and after.boots))
                late = restart is not None and restart.late
                if told and ((restart and restart.running) or not waits):
                    self._give_up(plan, late)
                error = FlexdiskError(exc.code, exc.message + _LATE) if late else exc
                raise StepFailed(error, number, restart, begun) from exc
            down = down and not step.starts
            mixed = mixed and not isinstance(step, RollBack)
            vm = after
        try:
            self._clear(plan)
        except FlexdiskError as exc:
            raise StepFailed(exc, len(plan.steps)) from exc

    def _note(self, plan: VmPlan, number: int) -> None:
        """Write the intent before the first step, and again before a stop, so that only our own stops are undone.

        None is written if the state alone shows what any of the steps leaves.
        """
        if self._intents is None or not plan.changed or not plan.vm or not (plan.before.there or plan.after.there):
            return
        if not any(step.recorded for step in plan.steps):
            return
        if number and not plan.steps[number].stops:
            return
        try:
            self._tools.make_container(plan.before.root.pool)
        except ZfsError as exc:
            if exc.code != "InsufficientSpace" or plan.stops or not plan.before.there:
                raise
            # This run may be what makes room; and if it neither stops nor makes the VM, the state tells everything.
            return
        self._intents.write(plan, _stops(plan, number), plan.steps[number].stops)

    def _tells(self, plan: VmPlan, step: Step, error: FlexdiskError) -> bool:
        """Whether the state alone tells the next run what a failed step has left.

        While a VM is being made or deleted, it does only if nothing of the VM is there. A hypervisor's tool that was
        given up may still end its work.
        """
        left = plan.before.interrupted
        if plan.vm and (not (plan.before.there and plan.after.there) or (left is not None and left.creates)):
            return error.code not in _MAY_GO_ON and self._is_gone_or_whole(plan)
        return self._tools.capabilities.keeps_storage or not isinstance(step, Grow)

    def _is_gone_or_whole(self, plan: VmPlan) -> bool:
        """Whether nothing is there of a VM that was being made or deleted; of the latter, also whether it is whole."""
        with contextlib.suppress(FlexdiskError):
            exists = self._zfs.exists(plan.before.root.name)
            config = next((one for one in self._hypervisor.vms() if one.uuid == plan.vm), None)
            if config is None or plan.after.there:
                return config is None and not exists
            return exists and not is_unfinished(config)
        return False

    def _give_up(self, plan: VmPlan, late: bool) -> None:
        """Clear the intent after a failure if power is as before and the VM keeps its boot disk.

        That of an inflexible VM stays: it tells its room. late: the guest may still shut down.
        """
        with contextlib.suppress(FlexdiskError):
            if late:
                if plan.before.flexible and self._intents is not None:
                    self._intents.leave(plan)
            elif plan.before.flexible or not (plan.before.there and plan.vm):
                self._clear(plan)
            elif self._intents is not None and plan.changed:
                self._intents.write(plan, False)

    def _clear(self, plan: VmPlan) -> None:
        if self._intents is not None:
            self._intents.clear(plan)

    def _restart(self, plan: VmPlan, stopping: bool) -> Restart:
        """Start the VM again after a failure, if it ran before and can run. stopping: what has failed is its stop.

        The hypervisor's tool may be what failed, and may come back soon. So only this action is tried several times.
        """
        if stopping:
            self._await_guest(plan)
        progress.current().now(plan.name, "", "start it again after a failure")
        waited, error = 0.0, ""
        for number, seconds in enumerate((0.0, *RESTART_PAUSES), 1):
            if seconds:
                self._hypervisor.pause(seconds)
                waited += seconds
            try:
                problem = self._start_again(plan)
                late = stopping and not problem and self._still_runs(plan)
                return Restart(not problem, number, waited, problem or error, late)
            except FlexdiskError as exc:
                error = exc.message
        return Restart(False, number, waited, error)

    def _await_guest(self, plan: VmPlan) -> None:
        """Wait for a guest that was asked to shut down and may be about to."""
        progress.current().now(plan.name, "", "wait for the guest, which was asked to shut down")
        with contextlib.suppress(FlexdiskError):
            for _look in range(min(GRACE, self._tools.policy.stop_timeout) // LOOK):
                if self._hypervisor.vm(plan.vm).state == "stopped":
                    break
                self._hypervisor.pause(LOOK)

    def _still_runs(self, plan: VmPlan) -> bool:
        """Whether the VM runs as it did before the run, and was not started by this."""
        return run_id(self._hypervisor.vm(plan.vm)) == run_id(plan.before.config)

    def _keep_autoboot(self, plan: VmPlan) -> None:
        """Set autoboot as it was if the VM still runs: a stop turns it off even if it fails."""
        with contextlib.suppress(FlexdiskError):
            if self._hypervisor.vm(plan.vm).state == "running":
                vm, autostart = plan.before, plan.before.autoboot_before
                autoboot.set_autoboot(self._zfs, self._hypervisor, vm, autostart)

    def _start_again(self, plan: VmPlan) -> str:
        """Start the VM, and return why it cannot run, or "". autoboot is set again: even a failed stop turns it off."""
        host = observe(self._zfs, self._hypervisor, plan.before.config.pool, snapshots=False)
        vm = next((v for v in host.vms if v.config.uuid == plan.vm), None)
        if vm is None:
            return "it is not there"
        if plan.before.booted and not vm.boots:
            return "it has no boot disk"
        for path in vm.ghosts:
            self._hypervisor.forget_disk(plan.vm, path)
        missing = sorted({*vm.missing} - {*vm.ghosts, *plan.before.missing})
        if missing:
            return f"its configuration has disks that do not exist: {', '.join(missing)}"
        if vm.config.state != "running":
            # This run has stopped it, or has made sure that it may be started. Its own entry does not keep the VM down,
            # nor what the hypervisor does not tell of a VM that is stopped.
            ran = plan.before.config.state == "running"
            # It may go on beside a VM with the same disk only if both ran when this run began.
            beside = ran and vm.beside_no_more_than(plan.before)
            started = replace(as_it_ran(vm), interrupted=None, at_home=vm.at_home or ran, ran=beside)
            power.start(self._hypervisor, started)
        autoboot.set_autoboot(self._zfs, self._hypervisor, vm, plan.before.autoboot_before)
        return ""

    def _confirm_unchanged(self, plan: VmPlan) -> None:
        """Refuse a VM that has changed since it was read: the lock only keeps our own tasks out.

        Steps on detached disks look at each disk themselves.
        """
        if not plan.vm:
            return
        if not plan.before.there:
            self._confirm_absent(plan)
            return
        try:
            root = plan.before.root
            datasets = self._zfs.datasets(root.name, snapshots=False) if root.kind else []
            config = completed(self._hypervisor.vm(plan.vm), {d.name: d for d in datasets})
            if not root.kind and not config.pool:
                config = replace(config, pool=root.pool, dataset=root.name)
            words = since_read(plan.before, config, datasets)
        except FlexdiskError as exc:
            if exc.code != "ResourceNotFound":
                raise
            words = [exc.message]
        if words:
            raise FlexdiskError("Changed", f"the VM changed since it was read: {'; '.join(words)}; nothing was done")

    def _confirm_forecasts(self, plan: VmPlan, geometry: PoolGeometry) -> None:
        """Compare the forecast with what ZFS itself would reserve, once for each kind of volume that the plan makes."""
        for volsize, block in sorted(_kinds(plan.after) - _kinds(plan.before)):
            ours = automatic_reservation(volsize, block, geometry)
            parent = plan.before.root.name if plan.before.root.kind else plan.before.root.pool
            theirs = self._zfs.forecast_reservation(parent, volsize, block)
            if not is_automatic(theirs, volsize, block, geometry):
                raise FlexdiskError(
                    "ForecastMismatch",
                    "ZFS would reserve %s for a volume of %s, not %s as forecast; nothing was changed"
                    % (*render_apart(theirs, volsize, ours),),
                )

    def _confirm_absent(self, plan: VmPlan) -> None:
        """Refuse to make a VM that exists by now, or whose dataset exists and is not cleared first."""
        root = plan.before.root.name
        cleared = any(isinstance(step, (ClearRemains, RemoveUnfinished)) for step in plan.steps)
        known = any(isinstance(step, RemoveUnfinished) and step.configured for step in plan.steps)
        if not known and any(config.uuid == plan.vm for config in self._hypervisor.vms()):
            raise FlexdiskError("Changed", f"the host changed since it was read: VM {plan.vm} now exists")
        if not cleared and self._zfs.exists(root):
            raise FlexdiskError("Changed", f"the host changed since it was read: {root} now exists")


def _kinds(vm: Vm) -> t.Set[t.Tuple[int, int]]:
    """Size and block size (bytes) of every volume that the VM has, detached ones too."""
    every = (*vm.volumes, *(disk.volume for disk in vm.detached))
    return {(v.volsize, v.volblocksize) for v in every if v.kind == "volume"}


def _stops(plan: VmPlan, number: int) -> bool:
    """Whether this or an interrupted run has stopped the VM before the step with this number, or stops it now."""
    left = plan.before.interrupted
    return bool(left and left.stops) or any(step.stops for step in plan.steps[: number + 1])
