# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The run of the module disk: each entry means one disk, wherever it is."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ...hypervisor.protocol import Hypervisor
from ...model.desired import PlacedDiskDeclaration, Policy
from ...model.errors import FlexdiskError
from ...model.vm import Disk, Vm
from ...parse.disk import parse_disk
from ...plan.detached import Job
from ...plan.disk import Registry
from ...plan.disk_steps import AttachDisk
from ...plan.entries import plan_entries
from ...plan.steps import Step, VmPlan
from ...rules import disk_properties
from ...rules.disk import Place, places
from ...rules.inventory import Host
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome, told
from ..run.run import Context, Task, by_uuid
from ..steps.perform import Performers

_Dict = t.Dict[str, t.Any]


@dataclass
class Disks(Outcome):
    """The outcome of the module disk. disks has one result for each entry."""

    disks: t.List[_Dict] = field(default_factory=list)


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[t.Mapping[str, t.Any]],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> Disks:
    """Makes the disks as declared, or predicts it. pool: where new disks are made, and the only pool that is read."""
    outcome = Disks()
    parsed = [parse_disk(entry, number) for number, entry in enumerate(raw)]
    outcome.problems = [problem for _declared, problems in parsed for problem in problems]
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    wrong = [n for n, (_declared, problems) in enumerate(parsed) if problems]
    place = pool or hypervisor.capabilities.default_pool
    declarations = [declared for declared, _problems in parsed]
    _Disks(declarations, wrong, Context(zfs, hypervisor, policy, check_mode, pool, place), outcome).run()
    return outcome


class _Disks(Task):
    """more is the pool of new disks. plan_entries admits the plans, because a refused entry may concern two VMs."""

    admits = False
    outcome: Disks

    def __init__(
        self,
        declarations: t.Sequence[PlacedDiskDeclaration],
        wrong: t.Sequence[int],
        context: Context,
        outcome: Disks,
    ) -> None:
        super().__init__(context, outcome)
        self._declarations = declarations
        self._wrong = wrong
        self._jobs: t.Sequence[Job] = ()

    def performers(self) -> Performers:
        from ..steps.performers_of_detached import PERFORM_OF_DETACHED

        return PERFORM_OF_DETACHED

    def plan(self, host: Host) -> t.List[VmPlan]:
        capabilities = self.hypervisor.capabilities
        self._jobs, plans, problems = plan_entries(
            lambda: Registry(host, self.policy, capabilities, self.more),
            self._declarations,
            self._wrong,
            self.policy.continue_on_refusal,
        )
        self.outcome.problems += problems
        return list(plans)

    def predicted(self, host: Host, plans: t.Sequence[VmPlan]) -> Host:
        return _predicted(host, plans)

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        """Differences without detached disks: these are compared one by one, because several plans may see one disk."""
        if vm is None or not plan.vm:
            return []
        return report.differences(replace(plan.after, detached=()), replace(vm, detached=()))

    def conclude(self, plans: t.Sequence[VmPlan], now: t.Optional[Host]) -> None:
        """Compare every VM with its plan, and add one result for each VM and each entry."""
        if now is None:
            return
        known = by_uuid(now)
        for plan in plans:
            self.compare(plan, known.get(plan.vm))
        self._compare_detached(plans, now)
        _tell(self._jobs, plans, now, self.check_mode, self.outcome)

    def _compare_detached(self, plans: t.Sequence[VmPlan], now: Host) -> None:
        """Report it as a failure if a detached disk is not as its plan says, if all steps were done."""
        if self.check_mode or self.outcome.failure is not None:
            return
        for plan in plans:
            wrong = _detached_differences(plan, plans, now)
            if wrong:
                error = FlexdiskError("NotApplied", f"all steps were done, but: {'; '.join(wrong)}")
                self.outcome.failure = told(plan, error, "read again")
                return


def _detached_differences(plan: VmPlan, plans: t.Sequence[VmPlan], now: Host) -> t.List[str]:
    """How the detached disks that this plan alone makes, changes or destroys differ from it, in words."""
    before, after = _changed(plan)
    others = [other for other in plans if other is not plan]
    shared = {name for other in others for disks in _changed(other) for name in disks}
    shared |= {step.source for other in others for step in other.steps if isinstance(step, AttachDisk)}
    there = {disk.volume.guid for disk in now.detached}
    kept = {disk.volume.guid for disk in after.values()}  # the copy of a conversion is renamed
    gone = [disk for name, disk in before.items() if name not in {*after, *shared} and disk.volume.guid not in kept]
    wrong = [f"{disk.label} is still detached" for disk in gone if disk.volume.guid in there]
    for name, disk in after.items():
        if name in shared:
            continue
        found = next((one for one in now.detached if _is_same(disk, one)), None)
        if found is None:
            wrong.append(f"{disk.label} is not there")
        else:
            planned, is_now = _compared(disk), _compared(found)
            wrong += [
                f"{key} of {disk.label}: planned {value!r}, found {is_now[key]!r}"
                for key, value in planned.items()
                if value != is_now[key]
            ]
    return wrong


def _changed(plan: VmPlan) -> t.Tuple[t.Dict[str, Disk], t.Dict[str, Disk]]:
    """The detached disks that a plan changes, by volume: before it, and after it."""
    before, after = ({d.volume.name: d for d in vm.detached} for vm in (plan.before, plan.after))
    return (
        {name: disk for name, disk in before.items() if after.get(name) != disk},
        {name: disk for name, disk in after.items() if before.get(name) != disk},
    )


def _is_same(planned: Disk, found: Disk) -> bool:
    if planned.volume.guid:
        return planned.volume.guid == found.volume.guid
    return (planned.vm, planned.name) == (found.vm, found.name)


def _compared(disk: Disk) -> _Dict:
    """What is compared of a detached disk."""
    result = report.disk_result(disk, "", False, figures=False)
    keys = ("name", "type", "size", "block_size", *disk_properties.result(disk.user_properties), "compression")
    return {**{key: result[key] for key in keys}, "from": disk.volume.user.get("from", "")}


def _predicted(host: Host, plans: t.Sequence[VmPlan]) -> Host:
    """The host as it is after the plans."""
    after = {plan.vm: plan.after for plan in plans if plan.vm}
    vms = tuple(after.get(vm.config.uuid, vm) for vm in host.vms)
    detached: t.Dict[str, Disk] = {disk.volume.name: disk for disk in host.detached}
    for plan in plans:
        before, now = ({d.volume.name: d for d in vm.detached} for vm in (plan.before, plan.after))
        for name in {*before} - {*now}:
            detached.pop(name, None)
        detached.update({name: disk for name, disk in now.items() if disk != before.get(name)})
        for step in plan.steps:
            if isinstance(step, AttachDisk):
                detached.pop(step.source, None)
    disks = tuple(detached.values())
    vms = tuple(replace(vm, detached=tuple(d for d in disks if d.vm == vm.config.uuid)) for vm in vms)
    return replace(host, vms=vms, detached=disks)


def _tell(jobs: t.Sequence[Job], plans: t.Sequence[VmPlan], found: Host, check_mode: bool, outcome: Disks) -> None:
    """Add one result for each planned VM, and one for each entry, with the disk as it is now."""
    vms = {vm.config.uuid: vm for vm in found.vms}
    for plan in plans:
        if plan.vm in vms:
            result = report.plan_result(plan, vms[plan.vm], plan.name, not check_mode)
            outcome.vms.append(result)
    changed = {volume for plan in plans for step in _done(plan) for volume in step.volumes}
    now = list(places(found))
    for job in jobs:
        place = _place(job, now)
        touched = job.place is not None and job.place.disk.volume.name in changed
        new = job.place is None and job.declared.state == "present" and place is not None
        outcome.disks.append(_result(job, place, touched or new, check_mode))


def _done(plan: VmPlan) -> t.Sequence[Step]:
    """The steps that may have changed something."""
    if plan.outcome is None:
        return plan.steps
    return plan.steps[: plan.outcome.done + 1] if plan.changed else ()


def _place(job: Job, now: t.Sequence[Place]) -> t.Optional[Place]:
    if job.place is None:
        owner = job.owner.config.uuid if job.owner is not None else ""
        named = (p for p in now if p.vm is None and p.disk.vm == owner and p.disk.name == job.declared.spec.name)
        return next(named, None) if job.declared.state == "present" else None
    was = job.place.disk
    there = (p for p in now if p.disk.volume.guid == was.volume.guid)
    # A disk that was converted between volume and file is another dataset, so it is found by its uuid.
    return next(there, next((p for p in now if was.uuid and p.disk.uuid == was.uuid), None))


def _result(job: Job, place: t.Optional[Place], changed: bool, check_mode: bool) -> _Dict:
    """The result of one disk. A disk that does not exist has only its declared name and uuid."""
    if place is None:
        known: PlacedDiskDeclaration = job.declared
        return {"name": known.spec.name, "uuid": known.spec.uuid, "state": "absent", "vm": "", "changed": changed}
    result = report.disk_result(place.disk, place.state, not check_mode)
    return dict(result, vm=place.disk.vm, changed=changed)
