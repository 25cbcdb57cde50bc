# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run that all changing modules share: observe, plan, admit, predict or apply, read again, compare."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.desired import Policy
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...plan import guest_sizes, recovery
from ...plan.disk_steps import DestroyDetached
from ...plan.planner import admitted, handed_on
from ...plan.steps import VmPlan
from ...rules.inventory import Host
from ...rules.layout import container
from ...zfs.commands import Zfs
from ...zfs.guard import load_libzfs_core
from ..host import progress
from ..host.journal import Journal
from ..host.observe import observe
from ..steps import renames
from ..steps.failed import StepFailed
from ..steps.perform import Performers, Tools
from . import report
from .ended import FailedRun, with_endings
from .outcome import Outcome, failure_after_steps, failure_of


class Context(t.NamedTuple):
    """Where and how a task runs."""

    zfs: Zfs
    hypervisor: Hypervisor
    policy: Policy
    check_mode: bool
    pool: t.Optional[str] = None
    """The only pool that is read, None for all."""
    extra_pool: str = ""
    """One further pool to read."""


class Task:
    """The task of a module. Each module has a subclass that says how to plan, and what to report."""

    journal = True
    """Whether intents are written, so that the next run can find an interrupted one."""
    admits = True
    """Whether the plans compete for disks and space, and only those that fit are admitted."""

    def __init__(self, context: Context, outcome: Outcome) -> None:
        self.zfs, self.hypervisor, self.policy, self.check_mode, self.pool, self.extra_pool = context
        self.outcome = outcome

    # -- what differs

    def plan(self, host: Host) -> t.List[VmPlan]:
        """Return the plans of all VMs, also refused ones. Add problems of VMs without a plan to the outcome."""
        raise NotImplementedError

    def warnings(self, host: Host, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[str]:
        """Return warnings about the host, also for a refused task. good: the plans that are carried out."""
        carried_out = {plan.vm for plan in good}
        left_down = recovery.left_down(plan for plan in plans if plan.vm not in carried_out)
        return [*recovery.warnings(host, [plan.vm for plan in plans]), *left_down]

    def shown(self, plans: t.Sequence[VmPlan], good: t.Sequence[VmPlan]) -> t.List[VmPlan]:
        """Return the plans that are reported: those that are carried out."""
        return list(good)

    def predicted(self, host: Host, plans: t.Sequence[VmPlan]) -> Host:
        """Return the host as predicted after the plans."""
        vms = {**by_uuid(host), **{plan.vm: plan.after for plan in plans}}
        return replace(host, vms=tuple(vms.values()))

    def add_result(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        """Add the result of one VM to the outcome. vm: the VM as it is now, None if it does not exist."""

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        """Return messages about how the VM differs from its plan."""
        return [] if vm is None else report.differences(plan.after, vm)

    def read_host(self) -> Host:
        """Read the host before the run."""
        return observe(self.zfs, self.hypervisor, self.pool, extra_pool=self.extra_pool)

    def performers(self) -> Performers:
        """Return the functions that carry out the steps of this task. Only a run with changes imports them."""
        return performers_of_disks()

    # -- what is the same

    def run(self) -> Outcome:
        """Carry the task out, or predict it in check mode."""
        outcome = self.outcome
        host = self.read_host()
        plans = [self._compared(plan) for plan in self.plan(host)]
        outcome.problems += [problem for plan in plans for problem in plan.problems]
        good = ordered = handed_on([plan for plan in plans if not plan.problems])
        if self.admits:
            good, ordered, lacking = admitted(host, good, self.policy.continue_on_refusal)
            outcome.problems += lacking
        refused = bool(outcome.problems) and not self.policy.continue_on_refusal
        if refused:
            good, ordered = [], []
        outcome.warnings = self.warnings(host, plans, good)
        shown = self.shown(plans, good)
        if refused and not shown:
            return outcome
        outcome.summarize(shown, host)
        if not refused and not outcome.approved(shown, self.policy):
            return outcome
        outcome.warnings += [warning for plan in shown for warning in plan.warnings]
        renamed = [pair for plan in shown for step in plan.steps for pair in step.moved]
        outcome.warnings += renames.predicted_changes(self.zfs, host, renamed) if renamed else []
        now: t.Optional[Host] = self.predicted(host, shown)
        if not self.check_mode:
            self._apply(host, ordered)
            if any(plan.steps for plan in ordered):
                shown, now = read_again(self, host, shown)
                outcome.now = now
        self.conclude(shown, now)
        return outcome

    def _compared(self, plan: VmPlan) -> VmPlan:
        """Return a plan that knows what the running guest has of its disks, where that may be something else."""
        guests = self.hypervisor.guests
        if guests is None or plan.problems:
            return plan
        try:
            asked = guest_sizes.asked(plan)
            plan = plan if asked is None else guest_sizes.free(plan, guests.opened(asked))
            if plan.problems or plan.stops or plan.before.config.state != "running":
                return plan
            return guest_sizes.compared(plan, guests.disk_sizes(plan.vm))
        except FlexdiskError as exc:
            return guest_sizes.unknown(plan, exc)

    def _apply(self, host: Host, ordered: t.Sequence[VmPlan]) -> None:
        journal = Journal(self.zfs, host) if self.journal else None
        apply_plans(self.zfs, self.hypervisor, host, ordered, self.policy, self.outcome, self.performers, journal)
        if journal is not None:
            with contextlib.suppress(FlexdiskError):
                journal.tidy()

    def conclude(self, plans: t.Sequence[VmPlan], now: t.Optional[Host]) -> None:
        """Report every VM, and compare it with its plan. now: None if the host cannot be read."""
        if now is None:
            return
        known = by_uuid(now)
        for plan in plans:
            vm = known.get(plan.vm)
            self.add_result(plan, vm)
            self.compare(plan, vm)

    def compare(self, plan: VmPlan, vm: t.Optional[Vm]) -> None:
        """Report a difference from the plan as a failure, if all steps were done."""
        if self.check_mode or self.outcome.failure is not None or not plan.steps:
            return
        differences = self.differences(plan, vm)
        if differences:
            error = FlexdiskError("NotApplied", f"all steps were done, but: {'; '.join(differences)}")
            self.outcome.failure = failure_after_steps(plan, error, "read again")


def apply_plans(
    zfs: Zfs,
    hypervisor: Hypervisor,
    host: Host,
    plans: t.Sequence[VmPlan],
    policy: Policy,
    outcome: Outcome,
    performers: t.Callable[[], Performers],
    journal: t.Optional[Journal] = None,
) -> None:
    """Apply the plans in order until one fails. The failure names the plans that were not begun."""
    plans = [plan for plan in plans if plan.steps]
    if not plans:
        return
    from ..steps.apply import Applier

    steps = [step for plan in plans for step in plan.steps]
    progress.current().add_steps(len(steps))
    guarded = any(step.leaves_vm or isinstance(step, DestroyDetached) for step in steps)
    library, why_not = load_libzfs_core() if guarded else (None, "")
    containers = {container(pool) for pool in host.geometry if container(pool) in host.datasets}
    tools = Tools(zfs, hypervisor, policy, containers, library)
    table = performers()
    for number, plan in enumerate(plans):
        try:
            Applier(tools, table, journal, plan, host.geometry[plan.before.config.pool]).run()
        except StepFailed as exc:
            waiting = tuple(plans[number + 1 :])
            outcome.failure = failure_of(plan, exc, waiting)
            powered = exc.restart is not None and exc.restart.attempts > 0
            outcome.failed_run = FailedRun(plan, exc.done, exc.begun, powered, waiting)
            break
    outcome.destroyed_by = "+".join(sorted(tools.destroyers))
    outcome.guard = "+".join(sorted(tools.guards))
    if outcome.guard and why_not and "libzfs_core" not in tools.guards:
        outcome.guard += f" ({why_not})"


def performers_of_disks() -> Performers:
    """Return the functions that carry out steps for disks, quotas and power of VMs."""
    from ..steps.performers import PERFORM

    return PERFORM


def read_again(task: Task, host: Host, plans: t.Sequence[VmPlan]) -> t.Tuple[t.List[VmPlan], t.Optional[Host]]:
    """Read the host after the run. Return the plans with how they ended, and the host.

    If the host cannot be read, it is None, and a failure is reported. host: as it was before the run.
    """
    progress.current().reading_again()
    outcome = task.outcome
    now: t.Optional[Host] = None
    try:
        now = observe(task.zfs, task.hypervisor, task.pool, extra_pool=task.extra_pool)
    except FlexdiskError as exc:
        if outcome.failure is None:
            outcome.failure = failure_after_steps(next(plan for plan in plans if plan.steps), exc, "read again")
            outcome.failure["steps"] = [step for p in plans for step in failure_after_steps(p, exc, "")["steps"]]
    ended_plans = with_endings(plans, outcome.failed_run, host, now)
    outcome.changed = any(plan.changed for plan in ended_plans)
    return ended_plans, now


def by_uuid(host: t.Optional[Host]) -> t.Dict[str, Vm]:
    """Return the VMs of the host by UUID, none without a host."""
    return {vm.config.uuid: vm for vm in host.vms} if host is not None else {}
