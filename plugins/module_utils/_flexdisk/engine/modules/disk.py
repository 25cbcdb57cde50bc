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
from ...rules.disk import Place, disk_places
from ...rules.inventory import Host
from ...zfs.commands import Zfs
from ..run import report
from ..run.outcome import Outcome, failure_after_steps
from ..run.run import Context, Task, by_uuid
from ..steps.perform import Performers

_Dict = t.Dict[str, t.Any]


@dataclass
class DiskOutcome(Outcome):
    """The outcome of the module disk. disks has one result for each entry."""

    disks: t.List[_Dict] = field(default_factory=list)


def run(
    zfs: Zfs,
    hypervisor: Hypervisor,
    raw: t.Sequence[t.Mapping[str, t.Any]],
    policy: Policy,
    pool: t.Optional[str],
    check_mode: bool,
) -> DiskOutcome:
    """Change the disks as declared, or predict it. pool: for new disks, and the only pool that is read."""
    outcome = DiskOutcome()
    parsed = [parse_disk(entry, number) for number, entry in enumerate(raw)]
    outcome.problems = [problem for _declared, problems in parsed for problem in problems]
    if outcome.problems and not policy.continue_on_refusal:
        return outcome
    invalid = [n for n, (_declared, problems) in enumerate(parsed) if problems]
    default_pool = pool or hypervisor.capabilities.default_pool
    declarations = [declared for declared, _problems in parsed]
    _DiskTask(declarations, invalid, Context(zfs, hypervisor, policy, check_mode, pool, default_pool), outcome).run()
    return outcome


class _DiskTask(Task):
    """extra_pool is the pool of new disks. plan_entries admits the plans, as a refused entry may concern two VMs."""

    admits = False
    outcome: DiskOutcome

    def __init__(
        self,
        declarations: t.Sequence[PlacedDiskDeclaration],
        wrong: t.Sequence[int],
        context: Context,
        outcome: DiskOutcome,
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
            lambda: Registry(host, self.policy, capabilities, self.extra_pool),
            self._declarations,
            self._wrong,
            self.policy.continue_on_refusal,
        )
        self.outcome.problems += problems
        return list(plans)

    def predicted(self, host: Host, plans: t.Sequence[VmPlan]) -> Host:
        return _predicted(host, plans)

    def differences(self, plan: VmPlan, vm: t.Optional[Vm]) -> t.List[str]:
        """Compare without detached disks. They are compared one by one, because several plans may include one disk."""
        if vm is None or not plan.vm:
            return []
        return report.differences(replace(plan.after, detached=()), replace(vm, detached=()))

    def conclude(self, plans: t.Sequence[VmPlan], now: t.Optional[Host]) -> None:
        """Compare every VM with its plan, and add a result for each VM and each entry."""
        if now is None:
            return
        known = by_uuid(now)
        for plan in plans:
            self.compare(plan, known.get(plan.vm))
        self._compare_detached(plans, now)
        _add_results(self._jobs, plans, now, self.check_mode, self.outcome)

    def _compare_detached(self, plans: t.Sequence[VmPlan], now: Host) -> None:
        """If all steps were done, report detached disks that are not as planned as a failure."""
        if self.check_mode or self.outcome.failure is not None:
            return
        for plan in plans:
            differences = _detached_differences(plan, plans, now)
            if differences:
                error = FlexdiskError("NotApplied", f"all steps were done, but: {'; '.join(differences)}")
                self.outcome.failure = failure_after_steps(plan, error, "read again")
                return


def _detached_differences(plan: VmPlan, plans: t.Sequence[VmPlan], now: Host) -> t.List[str]:
    """Return messages about detached disks that only this plan changes, and that are not as planned."""
    before, after = _changed(plan)
    others = [other for other in plans if other is not plan]
    shared = {name for other in others for disks in _changed(other) for name in disks}
    shared |= {step.source for other in others for step in other.steps if isinstance(step, AttachDisk)}
    detached_guids = {disk.volume.guid for disk in now.detached}
    guids_after = {disk.volume.guid for disk in after.values()}  # the copy of a conversion is renamed
    gone = [
        disk for name, disk in before.items() if name not in {*after, *shared} and disk.volume.guid not in guids_after
    ]
    differences = [f"{disk.label} is still detached" for disk in gone if disk.volume.guid in detached_guids]
    for name, disk in after.items():
        if name in shared:
            continue
        actual = next((one for one in now.detached if _is_same(disk, one)), None)
        if actual is None:
            differences.append(f"{disk.label} is not there")
        else:
            planned, actual_values = _compared(disk), _compared(actual)
            differences += [
                f"{key} of {disk.label}: planned {value!r}, found {actual_values[key]!r}"
                for key, value in planned.items()
                if value != actual_values[key]
            ]
    return differences


def _changed(plan: VmPlan) -> t.Tuple[t.Dict[str, Disk], t.Dict[str, Disk]]:
    """Return the detached disks that a plan changes, by volume, before and after it."""
    before, after = ({d.volume.name: d for d in vm.detached} for vm in (plan.before, plan.after))
    return (
        {name: disk for name, disk in before.items() if after.get(name) != disk},
        {name: disk for name, disk in after.items() if before.get(name) != disk},
    )


def _is_same(planned: Disk, actual: Disk) -> bool:
    if planned.volume.guid:
        return planned.volume.guid == actual.volume.guid
    return (planned.vm, planned.name) == (actual.vm, actual.name)


def _compared(disk: Disk) -> _Dict:
    """Return the values of a detached disk that are compared."""
    result = report.disk_result(disk, "", False, figures=False)
    keys = ("name", "type", "size", "block_size", *disk_properties.result(disk.user_properties), "compression")
    return {**{key: result[key] for key in keys}, "from": disk.volume.user.get("from", "")}


def _predicted(host: Host, plans: t.Sequence[VmPlan]) -> Host:
    """Return the host as predicted after the plans."""
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


def _add_results(
    jobs: t.Sequence[Job], plans: t.Sequence[VmPlan], host_now: Host, check_mode: bool, outcome: DiskOutcome
) -> None:
    """Add a result for each planned VM and for each entry, with the disk as it is now."""
    vms = {vm.config.uuid: vm for vm in host_now.vms}
    for plan in plans:
        if plan.vm in vms:
            result = report.plan_result(plan, vms[plan.vm], plan.name, not check_mode)
            outcome.vms.append(result)
    changed = {volume for plan in plans for step in _done(plan) for volume in step.volumes}
    now = list(disk_places(host_now))
    for job in jobs:
        place = _place(job, now)
        touched = job.place is not None and job.place.disk.volume.name in changed
        new = job.place is None and job.declared.state == "present" and place is not None
        outcome.disks.append(_result(job, place, touched or new, check_mode))


def _done(plan: VmPlan) -> t.Sequence[Step]:
    """Return the steps that may have changed something."""
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
    """Return the result of one disk. A disk that does not exist has only its declared name and UUID."""
    if place is None:
        declared: PlacedDiskDeclaration = job.declared
        return {"name": declared.spec.name, "uuid": declared.spec.uuid, "state": "absent", "vm": "", "changed": changed}
    result = report.disk_result(place.disk, place.state, not check_mode)
    return dict(result, vm=place.disk.vm, changed=changed)
