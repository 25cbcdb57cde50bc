# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of the module disk: validate, observe, plan, apply, read again."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field, replace

from ..hypervisor.protocol import Hypervisor
from ..model.desired import DiskWish, Policy
from ..model.errors import FlexdiskError
from ..model.vm import Disk, Vm
from ..plan import recovery
from ..plan.detached import Job
from ..plan.disk import Registry, volumes_of
from ..plan.entries import plan_entries
from ..plan.steps import Step, VmPlan
from ..rules.disk import Place, places
from ..rules.inventory import Host
from ..spec.disk import parse_disk
from ..zfs.commands import Zfs
from . import report
from .apply_detached import VERBS
from .journal import Intents
from .observe import observe
from .vm_disks import Outcome, apply_plans, by_uuid, look_again, told

_Dict = t.Dict[str, t.Any]


@dataclass
class Disks(Outcome):
    """disks has one result for each entry."""

    disks: t.List[_Dict] = field(default_factory=list)


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[t.Mapping[str, t.Any]],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> Disks:
    """Makes the disks so, or predicts it. pool is where new ones are made, and the only one that is looked at."""
    outcome = Disks()
    parsed = [parse_disk(entry, number) for number, entry in enumerate(raw)]
    outcome.problems = [problem for _wish, problems in parsed for problem in problems]
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    default = hypervisor.capabilities.default_pool
    host = observe(zfs, hypervisor, pool, more=pool or default)
    wishes, wrong = [wish for wish, _problems in parsed], [n for n, (_wish, problems) in enumerate(parsed) if problems]
    jobs, plans, problems = plan_entries(
        lambda: Registry(host, policy, hypervisor.capabilities, pool or default),
        wishes,
        wrong,
        policy.continue_on_refusal,
    )
    outcome.problems += problems
    outcome.warnings = recovery.warnings(host, [plan.vm for plan in plans])
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    outcome.tell(plans, host)
    outcome.warnings += [warning for plan in plans for warning in plan.warnings]
    found: t.Optional[Host] = _predicted(host, plans)
    if not check_mode:
        intents = Intents(zfs, host)
        apply_plans(zfs, hypervisor, host, plans, policy, outcome, intents, VERBS)
        with contextlib.suppress(FlexdiskError):
            intents.tidy()
        plans, found = _again(zfs, hypervisor, pool, pool or default, host, plans, outcome)
    if found is not None:
        _tell(jobs, plans, found, check_mode, outcome)
    return outcome


def _predicted(host: Host, plans: t.Sequence[VmPlan]) -> Host:
    """The host as it is after the plans."""
    after = {plan.vm: plan.after for plan in plans if plan.vm}
    vms = tuple(after.get(vm.config.uuid, vm) for vm in host.vms)
    parked: t.Dict[str, Disk] = {disk.volume.name: disk for disk in host.parked}
    for plan in plans:
        before, now = ({d.volume.name: d for d in vm.parked} for vm in (plan.before, plan.after))
        for name in {*before} - {*now}:
            parked.pop(name, None)
        parked.update({name: disk for name, disk in now.items() if disk != before.get(name)})
        for step in plan.steps:
            if step.kind == "attach":
                parked.pop(step.args["source"], None)
    detached = tuple(parked.values())
    vms = tuple(replace(vm, parked=tuple(d for d in detached if d.vm == vm.config.uuid)) for vm in vms)
    return replace(host, vms=vms, parked=detached)


def _again(
    zfs: Zfs,
    hypervisor: Hypervisor,
    pool: t.Optional[str],
    more: str,
    host: Host,
    plans: t.Sequence[VmPlan],
    outcome: Disks,
) -> t.Tuple[t.List[VmPlan], t.Optional[Host]]:
    """The plans as far as they were done, and the host as it is now, each VM as it was planned."""
    if not any(plan.steps for plan in plans):
        return list(plans), host
    plans, now = look_again(zfs, hypervisor, host, pool, plans, outcome, more)
    known = by_uuid(now)
    for plan in (plan for plan in plans if plan.steps and outcome.failure is None):
        wrong = _differences(plan, known.get(plan.vm))
        if wrong and outcome.failure is None:
            error = FlexdiskError("NotApplied", "all steps were done, but: %s" % "; ".join(wrong))
            outcome.failure = told(plan, error, "read again")
    return plans, now


def _differences(plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
    """Detached disks are compared one by one, for several plans may see the same one."""
    if vm is None or not plan.vm:
        return []
    return report.differences(replace(plan.after, parked=()), replace(vm, parked=()))


def _tell(jobs: t.Sequence[Job], plans: t.Sequence[VmPlan], found: Host, check_mode: bool, outcome: Disks) -> None:
    """One result for each entry, as the disk is now."""
    vms = {vm.config.uuid: vm for vm in found.vms}
    for plan in plans:
        if plan.vm in vms:
            result = report.plan_result(plan, vms[plan.vm], plan.name, not check_mode)
            outcome.vms.append(result)
    changed = {volume for plan in plans for step in _done(plan) for volume in volumes_of(step)}
    now = list(places(found))
    for job in jobs:
        place = _place(job, now)
        touched = job.place is not None and job.place.disk.volume.name in changed
        new = job.place is None and job.wish.state == "present" and place is not None
        outcome.disks.append(_result(job, place, touched or new, check_mode))


def _done(plan: VmPlan) -> t.Sequence[Step]:
    """The steps that may have changed something."""
    if plan.ended is None:
        return plan.steps
    return plan.steps[: plan.ended.done + 1] if plan.changed else ()


def _place(job: Job, now: t.Sequence[Place]) -> t.Optional[Place]:
    if job.place is None:
        owner = job.owner.config.uuid if job.owner is not None else ""
        named = (p for p in now if p.vm is None and p.disk.vm == owner and p.disk.name == job.wish.spec.name)
        return next(named, None) if job.wish.state == "present" else None
    was = job.place.disk
    there = (p for p in now if p.disk.volume.guid == was.volume.guid)
    # What was copied from a volume to a file, or back, is another dataset.
    return next(there, next((p for p in now if was.uuid and p.disk.uuid == was.uuid), None))


def _result(job: Job, place: t.Optional[Place], changed: bool, check_mode: bool) -> _Dict:
    """What is said of one disk; of one that is not there only how it was called."""
    if place is None:
        known: DiskWish = job.wish
        return {"name": known.spec.name, "uuid": known.spec.uuid, "state": "absent", "vm": "", "changed": changed}
    result = report.disk_result(place.disk, place.state, not check_mode)
    return dict(result, vm=place.disk.vm, changed=changed)
