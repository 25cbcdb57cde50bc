# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts a VM again after a step has failed."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ...model.errors import FlexdiskError
from ...plan.steps import VmPlan
from ...rules.journal import run_id
from ...rules.usage import as_it_ran
from ..host import progress
from ..host.observe import observe
from . import autoboot, power
from .failed import Restart
from .perform import Tools

# Seconds between the attempts to start a VM again.
RESTART_PAUSES = (1.0, 2.0, 4.0, 8.0)
# Seconds that a guest gets to end a shutdown after stop_timeout, and seconds between two checks.
SHUTDOWN_GRACE, POLL_SECONDS = 20, 2


def start_again(tools: Tools, plan: VmPlan, stopping: bool) -> Restart:
    """Start the VM again after a failure, if it ran before and can run. stopping: its stop has failed.

    This is tried several times, because the failure may be a temporary one of the hypervisor's tool.
    """
    if stopping:
        _await_guest(tools, plan)
    progress.current().now(plan.name, "", "start it again after a failure")
    waited, error = 0.0, ""
    for number, seconds in enumerate((0.0, *RESTART_PAUSES), 1):
        if seconds:
            tools.hypervisor.pause(seconds)
            waited += seconds
        try:
            problem = _start(tools, plan)
            late = stopping and not problem and _still_runs(tools, plan)
            return Restart(not problem, number, waited, problem or error, late)
        except FlexdiskError as exc:
            error = exc.message
    return Restart(False, number, waited, error)


def _await_guest(tools: Tools, plan: VmPlan) -> None:
    """Wait a while for a guest that was asked to shut down."""
    progress.current().now(plan.name, "", "wait for the guest, which was asked to shut down")
    with contextlib.suppress(FlexdiskError):
        for _look in range(min(SHUTDOWN_GRACE, tools.policy.stop_timeout) // POLL_SECONDS):
            if tools.hypervisor.vm(plan.vm).state == "stopped":
                break
            tools.hypervisor.pause(POLL_SECONDS)


def _still_runs(tools: Tools, plan: VmPlan) -> bool:
    """Return whether the VM still runs since before the run."""
    return run_id(tools.hypervisor.vm(plan.vm)) == run_id(plan.before.config)


def keep_autoboot(tools: Tools, plan: VmPlan) -> None:
    """Set autoboot as it was if the VM still runs, because even a failed stop turns it off."""
    with contextlib.suppress(FlexdiskError):
        if tools.hypervisor.vm(plan.vm).state == "running":
            vm, autostart = plan.before, plan.before.autoboot_before
            autoboot.set_autoboot(tools.zfs, tools.hypervisor, vm, autostart)


def _start(tools: Tools, plan: VmPlan) -> str:
    """Start the VM, and return why it cannot run, or "". autoboot is set again: even a failed stop turns it off."""
    host = observe(tools.zfs, tools.hypervisor, plan.before.config.pool, snapshots=False)
    vm = next((v for v in host.vms if v.config.uuid == plan.vm), None)
    if vm is None:
        return "it is not there"
    if plan.before.booted and not vm.boots:
        return "it has no boot disk"
    for path in vm.ghosts:
        tools.hypervisor.forget_disk(plan.vm, path)
    missing = sorted({*vm.missing} - {*vm.ghosts, *plan.before.missing})
    if missing:
        return f"its configuration has disks that do not exist: {', '.join(missing)}"
    if vm.config.state != "running":
        # This run has stopped it, or has checked that it may be started. So its own intent, and details that the
        # hypervisor does not report for a stopped VM, must not keep it down.
        ran = plan.before.config.state == "running"
        # It may go on beside a VM with the same disk only if both ran when this run began.
        may_share = ran and vm.beside_no_more_than(plan.before)
        started = replace(as_it_ran(vm), interrupted=None, at_home=vm.at_home or ran, ran=may_share)
        power.start(tools.hypervisor, started)
    autoboot.set_autoboot(tools.zfs, tools.hypervisor, vm, plan.before.autoboot_before)
    return ""
