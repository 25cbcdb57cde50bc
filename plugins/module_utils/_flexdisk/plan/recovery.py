# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""How an interrupted run is finished, by the present state and by the intent for what the state does not tell."""

from __future__ import annotations

import typing as t

from ..model.capabilities import Capabilities
from ..model.vm import JournalEntry, Vm
from ..rules.differences import in_conversion
from ..rules.identity import PREFIX
from ..rules.inventory import Host
from ..rules.journal import property_of
from ..rules.layout import container
from .steps import Step, Told, VmPlan
from .vm_steps import Recover, SetAutoboot, Start


def recover(vm: Vm) -> t.Optional[Step]:
    """The step that resumes an interrupted run; None without one. What is left to do are steps of their own."""
    if vm.interrupted is None:
        return None
    left = "; ".join(_found(vm)) or "nothing is left"
    return Recover(Told(f"= interrupted run of {vm.interrupted.since} taken up: {left}"))


def power(vm: Vm, now: Vm, capabilities: Capabilities) -> t.Iterator[Step]:
    """Steps that restore state and autoboot from before the first stop. now is the VM at this point of the plan."""
    starts = vm.halted and now.config.state == "stopped"
    if starts:
        yield start(capabilities)
    turned_on = starts and capabilities.moves_autoboot and not now.config.failover
    if (turned_on or now.config.autoboot) != vm.autoboot_before:
        word = "on" if vm.autoboot_before else "off"
        yield SetAutoboot(Told(f"autoboot {word}, as before"), autoboot=vm.autoboot_before)


def held_down(vm: Vm) -> str:
    """Why a VM must stay down until the task that was interrupted is done again; "" if it need not."""
    left = vm.interrupted
    if left is None:
        return ""
    if left.rollback:
        return unfinished(left)
    if not left.boots or vm.boots or any(in_conversion(vm, d) for d in vm.detached):
        return ""
    return (
        f"its boot disk left it in a run that was interrupted at {left.since}, and it cannot run without one; do the "
        "same task again, or list its boot disk with boot=true and an image, or the uuid of a detached one with "
        "boot=true and recreate=true"
    )


def start(capabilities: Capabilities) -> Start:
    """The step that starts a VM."""
    return Start(Told("start"), autoboot_on=capabilities.moves_autoboot)


def _found(vm: Vm) -> t.List[str]:
    words = ["the VM is stopped"] if vm.halted else []
    if vm.config.autoboot != vm.autoboot_before:
        words.append(f"autoboot is {'on' if vm.config.autoboot else 'off'}")
    words += [f"{path} is detached but still configured" for path in vm.ghosts]
    words += [f"{disk.volume.name} is not configured" for disk in vm.orphans]
    return words + [f"{d.volume.name} has a guard" for d in vm.disks + vm.orphans + vm.detached if d.guarded]


def recovered(plan: VmPlan) -> t.List[t.Dict[str, t.Any]]:
    """What was found of an interrupted run and which steps end it: a list of one entry, or empty without such a run."""
    record = plan.before.interrupted
    if record is None or not plan.steps:
        return []
    ours = plan.stops  # then this run changes the power for its own steps
    done = [step.text for step in plan.steps if step.mends or (step.powers and not ours)]
    return [{"plan": record.plan, "since": record.since, "found": _found(plan.before), "done": done}]


def unfinished(record: JournalEntry) -> str:
    """The message about an interrupted run of this host: what it has left, and what ends it."""
    if record.rollback:
        return (
            f"a rollback to snapshot {record.rollback} was interrupted at {record.since}, so its "
            "disks may be of different times; "
            "vm_snapshot with state=rolled_back and this name ends it"
        )
    return f"a run was interrupted at {record.since}; vm_disks finishes it when the VM is listed"


def record_result(record: t.Optional[JournalEntry]) -> t.Dict[str, t.Any]:
    """An intent in the form of a result. It is unreadable if record is None."""
    if record is None:
        return {"readable": False}
    moves = [{"guid": guid, "from": source, "to": target} for guid, source, target in record.moves]
    return dict(record._asdict(), readable=True, steps=list(record.steps), moves=moves)


def warnings(host: Host, declared: t.Collection[str]) -> t.List[str]:
    """Warnings about entries of the journal that this run does not finish, with the command that removes them."""
    known = {vm.config.uuid: vm for vm in host.vms}
    found = []
    for (pool, uuid), record in sorted(host.intents.items()):
        vm = known.get(uuid)
        if vm is None or (vm.interrupted is not None and uuid in declared):
            continue
        if record is None:
            words = "the record of an interrupted run cannot be read"
        elif vm.interrupted is None:
            words = f"a run on host {record.host} was interrupted at {record.since}; only that host finishes it"
        else:
            words = held_down(vm) or unfinished(record)
        name = PREFIX + property_of(uuid)
        found.append(f"{vm.label}: {words} (zfs inherit {name} {container(pool)} removes it)")
    return found
