# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Finish interrupted runs, by the present state, and by the intent for what the state does not show."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.vm import Intent, Vm
from ..rules.identity import PREFIX
from ..rules.inventory import Host
from ..rules.journal import intent_property
from ..rules.layout import container
from ..rules.power import interrupted_run_text, why_kept_down, why_not_started
from ..rules.unused import left_unused
from .steps import Step, StepReport, VmPlan
from .vm_steps import Recover, SetAutoboot, Start


def recover(vm: Vm) -> t.Optional[Step]:
    """Return the step that resumes an interrupted run; None without one. The steps that are left to do follow."""
    if vm.interrupted is None:
        return None
    left = "; ".join(_leftovers(vm)) or "nothing is left"
    return Recover(StepReport(f"= interrupted run of {vm.interrupted.since} taken up: {left}"))


def power(vm: Vm, now: Vm, capabilities: Capabilities) -> t.Iterator[Step]:
    """Yield steps that restore state and autoboot from before the first stop. now: the VM at this point of the plan."""
    starts = vm.halted and now.config.state == "stopped" and not why_not_started(now)[0]
    if starts:
        yield start(capabilities)
    turned_on = starts and capabilities.moves_autoboot and not now.config.failover
    if (turned_on or now.config.autoboot) != vm.autoboot_before:
        word = "on" if vm.autoboot_before else "off"
        yield SetAutoboot(StepReport(f"autoboot {word}, as before"), autoboot=vm.autoboot_before)


def stays_down(vm: Vm, after: Vm) -> t.Iterator[str]:
    """Yield a warning if a VM that an interrupted run stopped is not started. after: the VM after the plan."""
    if vm.halted and after.config.state == "stopped" and why_not_started(after)[0]:
        yield f"{vm.label}: an interrupted run has stopped it, and it stays down: {why_not_started(after)[1]}"


def left_down(refused: t.Iterable[VmPlan]) -> t.Iterator[str]:
    """Yield warnings about VMs that stay down, because the plan that would start them again is refused."""
    for vm in (plan.before for plan in refused if plan.before.halted):
        left = vm.interrupted
        text = "an interrupted run left it stopped"
        if left is not None and left.late:
            text = f"its guest was asked to shut down at {left.since} by a run that has failed, and has done so later"
        way_out = "" if why_not_started(vm)[0] else "; vm with state=running starts it"
        yield f"{vm.label}: {text}, and this run leaves it stopped, too{way_out}"


def left_stopped(vm: Vm, capabilities: Capabilities) -> Vm:
    """Return the VM for a task that declares it stopped: what an interrupted run stopped is not started."""
    left = vm.interrupted
    if left is None:
        return vm
    turned_off = left.stops and capabilities.moves_autoboot and not vm.config.failover
    return replace(vm, interrupted=left._replace(state="stopped", autoboot=left.autoboot and not turned_off))


def start(capabilities: Capabilities) -> Start:
    """Return the step that starts a VM."""
    return Start(StepReport("start"), autoboot_on=capabilities.moves_autoboot)


def _given_up(vm: Vm, entry: Intent) -> bool:
    """Whether a killed run is resumed, but the VM not started: it stopped too late to be stopped by that run."""
    left = vm.interrupted
    return left is not None and (entry.state, left.state) == ("running", "stopped")


def _ended_too_late(entry: Intent, how: str) -> str:
    """Return why a stopped VM is not started, although a run asked its guest to shut down. how: how that run ended."""
    return (
        f"its guest was asked to shut down at {entry.since} by a run that {how}, and the VM is down; this need "
        "not be the cause any more, so it is not started; vm with state=running starts it"
    )


def _leftovers(vm: Vm) -> t.List[str]:
    items = ["the VM is stopped"] if vm.halted else []
    if vm.config.autoboot != vm.autoboot_before:
        items.append(f"autoboot is {'on' if vm.config.autoboot else 'off'}")
    items += [f"the waiting change of {one.key} is taken back" for one in vm.config.waiting]
    items += [f"{path} is detached but still configured" for path in vm.ghosts]
    items += [f"{volume} is detached but still named as unused" for volume in left_unused(vm)]
    items += [f"{disk.volume.name} is not configured" for disk in vm.orphans]
    return items + [f"{d.volume.name} has a guard" for d in vm.disks + vm.orphans + vm.detached if d.guarded]


def recovered(plan: VmPlan) -> t.List[t.Dict[str, t.Any]]:
    """Return what an interrupted run has left and the steps that finish it: one entry, or none without such a run."""
    entry = plan.before.interrupted
    if entry is None or not plan.steps:
        return []
    ours = plan.stops  # then this run changes the power for its own steps
    done = [step.text for step in plan.steps if step.completes_interrupted or (step.changes_power and not ours)]
    return [{"plan": entry.plan, "since": entry.since, "found": _leftovers(plan.before), "done": done}]


def intent_result(entry: t.Optional[Intent]) -> t.Dict[str, t.Any]:
    """Return an intent as results show it. None means that it is unreadable."""
    if entry is None:
        return {"readable": False}
    moves = [{"guid": guid, "from": source, "to": target} for guid, source, target in entry.moves]
    return dict(entry._asdict(), readable=True, steps=list(entry.steps), moves=moves)


def warnings(host: Host, declared: t.Collection[str]) -> t.List[str]:
    """Return warnings about journal entries that this run does not finish, with the command that removes them."""
    known = {vm.config.uuid: vm for vm in host.vms}
    result = []
    for (pool, uuid), entry in sorted(host.intents.items()):
        vm = known.get(uuid)
        if vm is not None and entry is not None and _given_up(vm, entry):
            result.append(f"{vm.label}: {_ended_too_late(entry, 'was interrupted')}")
        if vm is None or (vm.interrupted is not None and uuid in declared):
            continue
        if entry is None:
            message = "the record of an interrupted run cannot be read"
        elif vm.asked is not None:
            message = (
                f"its guest was asked to shut down at {entry.since} and has not; if it still does, the next run of"
                " vm_disks starts the VM again"
            )
        elif entry.late and vm.interrupted is None and entry.host == host.name:
            if vm.config.state == "stopped":
                result.append(f"{vm.label}: {_ended_too_late(entry, 'has failed')}")
            continue
        elif vm.interrupted is None:
            message = f"a run on host {entry.host} was interrupted at {entry.since}; only that host finishes it"
        else:
            message = why_kept_down(vm) or interrupted_run_text(entry)
        result.append(f"{vm.label}: {message} ({_inherit(pool, uuid)} removes it)")
    return result


def gives_up(vm: Vm) -> str:
    """Return the command that removes the entry of a VM from the journal."""
    return _inherit(vm.config.pool, vm.config.uuid)


def _inherit(pool: str, uuid: str) -> str:
    return f"zfs inherit {PREFIX}{intent_property(uuid)} {container(pool)}"
