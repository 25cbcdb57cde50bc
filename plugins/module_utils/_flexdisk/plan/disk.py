# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans for entries that each mean one disk: one plan for each VM, and one for each pool's detached disks."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field, replace

from ..model.capabilities import Capabilities
from ..model.desired import DiskDeclaration, PlacedDiskDeclaration, Policy, VmDisksDeclaration
from ..model.errors import FlexdiskError, Problem, Problems
from ..model.vm import FILE, Disk, Vm
from ..rules import exchange, restore
from ..rules.differences import birth_differences
from ..rules.disk import Place, find_source, label_of, locate, serial_of
from ..rules.identity import blank_in
from ..rules.inventory import Host
from ..rules.layout import arriving_prefix, disk_dataset, index_within
from ..rules.matching import Match
from ..rules.naming import names_volume
from ..rules.slots import slot_problems
from ..rules.space import drift_cause
from ..rules.usage import check_whole, labels
from . import arrivals
from .checks import why_not_destroyed
from .detached import Job, plan_detached, records, with_record
from .entries import Entry
from .planner import check_begun, demand, find_vm, lacking, plan_matched, rank
from .resolve import creation_interrupted, unfinished_disk_text
from .steps import VmPlan
from .unseen import volumes_of, why_not_gone, why_taken, why_unreadable


@dataclass
class _Visit:
    """What a task does in one VM. takes: disks that other VMs give up for this VM."""

    vm: Vm
    name: str
    stays: t.List[Job] = field(default_factory=list)
    leaves: t.List[Disk] = field(default_factory=list)
    takes: t.List[t.Tuple[Job, Vm]] = field(default_factory=list)


class Registry:
    """Plans for the declarations of one task.

    jobs has the disk that each declaration means, entries what each one touches and whether it is refused, problems the
    reasons.
    """

    def __init__(self, host: Host, policy: Policy, capabilities: Capabilities, pool: str) -> None:
        self._host = host
        self._policy = policy
        self._capabilities = capabilities
        self._pool = pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
        self._visits: t.Dict[str, _Visit] = {}
        self._loose: t.Dict[str, t.List[Job]] = {}
        self._seen: t.Dict[str, str] = {}
        self.jobs: t.List[t.Optional[Job]] = []
        self.entries: t.List[Entry] = []
        self.problems: t.List[Problem] = []

    def plan(self, declarations: t.Sequence[PlacedDiskDeclaration], wrong: t.Collection[int] = ()) -> t.List[VmPlan]:
        """Return the plans in the order in which they can be done; an empty list if there are problems.

        wrong: the numbers of declarations that are refused already. If there are any, only what depends on them is
        determined.
        """
        for number, declared in enumerate(declarations):
            self.entries.append(Entry(declared, number in wrong))
            self.jobs.append(self._job(declared))
        if self.problems or wrong:
            return []
        plans = self._plans()
        self._check_serials(plans)
        if not self.problems:
            self._check_room(plans)
        return [] if self.problems else plans

    def _add(self, declared: PlacedDiskDeclaration, code: str, message: str) -> None:
        self.problems.append(Problem(code, message, declared.vm, declared.label))
        self._entry(declared).refused = True

    def _entry(self, declared: PlacedDiskDeclaration) -> Entry:
        return next(entry for entry in self.entries if entry.declared is declared)

    def _refuse_vm(self, uuid: str) -> None:
        for entry in self.entries:
            entry.refused = entry.refused or uuid in entry.vms

    # -- which disk, and what is to be done with it

    def _job(self, declared: PlacedDiskDeclaration) -> t.Optional[Job]:
        entry = self._entry(declared)
        vms = [self._vm(declared, name) if name else None for name in (declared.vm, declared.from_vm)]
        entry.vms.update(vm.config.uuid for vm in vms if vm is not None)
        if self.problems and (None in [v for v, n in zip(vms, (declared.vm, declared.from_vm)) if n]):
            return None
        try:
            place = locate(self._host, declared, *vms)
        except FlexdiskError as exc:
            if not entry.refused:
                self._add(declared, exc.code, exc.message)
            return None
        self._note(entry, place)
        if entry.refused:
            return None
        job = Job(declared, place, vms[0])
        if place is None:
            self._absent(job)
        elif self._is_new(declared, place):
            self._present(job, place)
        return job

    def _vm(self, declared: PlacedDiskDeclaration, name: str) -> t.Optional[Vm]:
        result = find_vm(self._host, name)
        if isinstance(result, Problem):
            self.problems.append(replace(result, disk=declared.label))
            self._entry(declared).refused = True
            return None
        return result

    def _note(self, entry: Entry, place: t.Optional[Place]) -> None:
        """Record what the entry touches, besides the VMs that it names."""
        entry.volumes.update(entry.declared.destroy_clones)
        with contextlib.suppress(FlexdiskError):
            if entry.declared.source:
                entry.volumes.add(find_source(self._host, entry.declared.source).disk.volume.name)
        if place is not None:
            owner = place.vm if place.vm is not None else self._left_over(place.disk)
            entry.volumes.add(place.disk.volume.name)
            entry.vms.update({owner.config.uuid} if owner is not None else ())

    def _is_new(self, declared: PlacedDiskDeclaration, place: Place) -> bool:
        volume = place.disk.volume.name
        if volume in self._seen:
            self._add(declared, "InvalidArgument", f"listed twice, also as {self._seen[volume]}: {place.description}")
            return False
        self._seen[volume] = declared.label
        return True

    def _absent(self, job: Job) -> None:
        """Handle an entry that means no existing disk."""
        declared = job.declared
        by_place = bool(declared.slot) or declared.index is not None
        nameless = self._nameless(job) if declared.state != "present" else None
        if nameless is not None:
            text = f"{nameless.volume.name} has no name yet, so no disk is called so; adopt it first, with disk_adopt"
            self._add(declared, "ResourceNotFound", text)
            return
        if declared.state == "absent":
            self._gone(job)
            return
        if declared.state == "present" and declared.spec.name and not declared.spec.uuid:
            self._new(job)
        elif by_place:
            self._add(declared, "ResourceNotFound", self._nothing_at(job))
        else:
            self._add(declared, "ResourceNotFound", self._unknown(job))

    def _gone(self, job: Job) -> None:
        """Refuse to say that a disk is gone that cannot be seen at the moment."""
        declared, spec = job.declared, job.declared.spec
        name, uuid = spec.name or "", spec.uuid or ""
        volumes = volumes_of(self._host, name, uuid)
        for vm in [job.owner] if job.owner is not None else self._host.vms:
            why = why_not_gone(vm, self._host, name, uuid, volumes)
            if why:
                self._add(declared, "NotSupported", f"{vm.label}: {why}")
        if not self._entry(declared).refused:
            for volume in (one for one in volumes if uuid and one.user.get("uuid") == uuid):
                text = f"{volume.name} has this uuid, and no VM whose disks this task manages has it"
                self._add(declared, "NotSupported", f"{text}: it is not said to be gone")

    def _nameless(self, job: Job) -> t.Optional[Disk]:
        """Return the disk of the entry's VM without a name, which reports call by the last part of its volume."""
        name = job.declared.spec.name
        return next((d for d in _without_names(job.owner) if names_volume(name, d.name, d.volume.name)), None)

    def _unknown(self, job: Job) -> str:
        nameless = _without_names(job.owner)
        if nameless:
            volumes = ", ".join(disk.volume.name for disk in nameless)
            return f"the disk does not exist, or is one that has no name yet ({volumes}); disk_adopt gives them names"
        return "the disk does not exist; state=present with a name and a size creates it"

    def _nothing_at(self, job: Job) -> str:
        declared, vm = job.declared, t.cast(Vm, job.owner)
        here = [d for d in (*vm.disks, *vm.orphans) if d.path and not d.hidden]
        if declared.slot:
            return f"the VM has no disk in pci_slot {declared.slot}; it has: {_listed(d.pci_slot for d in here)}"
        have = _listed(str(d.index) for d in here)
        return f"the VM has no disk with index {t.cast(int, declared.index)}; it has: {have}"

    def _new(self, job: Job) -> None:
        pool = job.owner.config.pool if job.owner is not None else self._pool
        if pool not in self._host.geometry:
            have = ", ".join(sorted(self._host.geometry)) or "none"
            self._add(job.declared, "MissingParameter", f"a new disk needs a pool; pools on this host: {have}")
            return
        if blank_in(pool):
            self._add(job.declared, "NotSupported", blank_in(pool))
            return
        owner = job.owner
        if owner is not None:
            taken = why_taken(owner, job.declared.spec.name or "", host=self._host)
            unread = "" if taken else why_unreadable(owner, self._host.geometry)
            if taken or unread:
                self._add(job.declared, "NameConflict" if taken else "NotSupported", taken or unread)
                return
        twin = f"{job.declared.spec.name}\t{job.owner.config.uuid if job.owner is not None else ''}"
        if twin in self._seen:
            self._add(job.declared, "InvalidArgument", "listed twice: two new disks have this name")
            return
        self._seen[twin] = job.declared.label
        self._loose.setdefault(pool, []).append(job)

    def _present(self, job: Job, place: Place) -> None:
        declared, disk = job.declared, place.disk
        held = exchange.why_held(self._host.vms, disk)
        if held:
            self._add(declared, "InUse", f"{place.description}: {held}")
            return
        if declared.replica and not self._is_restored(declared, place):
            return
        if place.vm is not None and place.vm.overlaid:
            self._add(declared, "InUse", place.vm.overlaid)
            return
        self._check_owners(job, place)
        for name, (now, wanted) in birth_differences(declared.spec, disk).items():
            self._add(declared, "FixedAtBirth", f"{name} of {place.description} is {now} and cannot become {wanted}")
        if creation_interrupted(disk) and declared.state not in ("present", "absent"):
            self._add(declared, "InUse", unfinished_disk_text(place.description))
        elif declared.state == "absent":
            self._destroyed(job, place)
        elif declared.state == "detached":
            self._detached(place)
        elif declared.state == "attached":
            self._attached(job, place)
        elif place.vm is None:
            self._check_name(job, place)
            self._loose.setdefault(disk.volume.pool, []).append(job)
        elif disk.path:
            self._visit(place.vm).stays.append(job)
        else:
            self._add(declared, "InUse", f"{place.description} is not configured; attach or detach it first")

    def _is_restored(self, declared: PlacedDiskDeclaration, place: Place) -> bool:
        """Return whether the disk is the one that is to be restored. If it is not, refuse the entry."""
        try:
            replica = restore.find_replica(self._host, declared.replica)
            snapshot = restore.choose(self._host, replica, declared.source_snapshot)
        except FlexdiskError as exc:
            if not restore.is_from(place.disk.volume.user, declared.replica, declared.source_snapshot):
                self._add(declared, exc.code, exc.message)
                return False
            return True  # it is what the task wants, although nobody could make it once more
        wanted = restore.Origin(declared.replica, snapshot.guid, restore.short_name(snapshot))
        why = restore.why_not_same(place.disk.volume.user, wanted, bool(declared.source_snapshot))
        if why:
            self._add(declared, "NameConflict", f"{place.description} {why}")
        return not why

    def _detached(self, place: Place) -> None:
        if place.vm is not None:
            self._visit(place.vm).leaves.append(place.disk)
            return
        last = self._left_over(place.disk)
        if last is not None:
            self._visit(last)

    def _left_over(self, disk: Disk) -> t.Optional[Vm]:
        """Return the VM that the disk has left in a run that was interrupted; None if there is no such VM."""
        vm = next((v for v in self._host.vms if v.config.uuid == disk.vm), None)
        if vm is None or not (vm.interrupted or vm.ghosts or drift_cause(vm, self._host.geometry[vm.config.pool])):
            return None
        return vm

    def _destroyed(self, job: Job, place: Place) -> None:
        if place.vm is not None:
            text = f"{place.description}: only a detached disk can be destroyed; use state=detached first"
            self._add(job.declared, "InUse", text)
            return
        owner = next((vm for vm in self._host.vms if vm.config.uuid == place.disk.vm), None)
        why = why_not_destroyed(owner, job.declared.spec.name, place.disk) if owner is not None else ""
        if why:
            self._add(job.declared, "Ambiguous", why)
        self._loose.setdefault(place.disk.volume.pool, []).append(job)

    def _check_owners(self, job: Job, place: Place) -> None:
        """Refuse a disk whose uuid is on several volumes, and a detached disk that is in a VM's configuration."""
        disk = place.disk
        twins = self._host.duplicates.get(disk.uuid)
        if twins:
            text = f"the uuid {disk.uuid} is on several volumes: {', '.join(twins)}"
            self._add(job.declared, "Ambiguous", text)
        users = self._host.usage.of(disk.volume.name) if place.vm is None else None
        if users:
            text = f"{place.description} is configured in {labels(users)}"
            self._add(job.declared, "InUse", text)

    def _check_name(self, job: Job, place: Place) -> None:
        """Check that the new name of a detached disk is free among the disks of the VM that had it."""
        name, disk = job.declared.spec.name, place.disk
        owner = next((v for v in self._host.vms if v.config.uuid == disk.vm), None)
        others = (*owner.disks, *owner.detached) if owner is not None and name != disk.name else ()
        taken = next((other for other in others if name and other.name == name), None)
        if taken is not None:
            self._add(job.declared, "NameConflict", f"the name {name} is already used by {taken.volume.name}")
        renamed = owner is not None and name != disk.name
        why = why_taken(t.cast(Vm, owner), name or "", disk.uuid, self._host) if renamed else ""
        if why:
            self._add(job.declared, "NameConflict", why)

    def _attached(self, job: Job, place: Place) -> None:
        declared, vm = job.declared, t.cast(Vm, job.owner)
        if place.vm is vm and place.disk.path:
            if declared.spec.index not in (None, place.disk.index):
                text = f"has index {place.disk.index}, which cannot change while it is attached"
                self._add(declared, "InvalidArgument", text)
            self._visit(vm).stays.append(job)
        elif place.vm is None or place.vm is vm:
            last = self._left_over(place.disk)
            if last is None or last is vm:
                self._visit(vm).stays.append(job)
            else:
                self._visit(last)
                self._visit(vm).takes.append((job, last))
        elif not declared.take:
            self._add(
                declared, "InUse", f"{place.description} belongs to another VM; take: true moves it to {vm.label}"
            )
        else:
            self._visit(place.vm).leaves.append(place.disk)
            self._visit(vm).takes.append((job, place.vm))

    def _visit(self, vm: Vm) -> _Visit:
        name = vm.config.alias or vm.config.uuid
        return self._visits.setdefault(vm.config.uuid, _Visit(vm, name))

    # -- plans

    def _plans(self) -> t.List[VmPlan]:
        """Return the plans in order: a VM gives a disk up before another takes it; then those that free space first."""
        loose = [self._detached_plan(pool, jobs) for pool, jobs in self._loose.items()]
        jobs = [job for jobs in self._loose.values() for job in jobs]
        jobs += [job for job in self.jobs if job and job.place is None and job.declared.state == "absent"]
        recorded = {plan.vm: plan for plan in records(self._host, loose, jobs)}
        plans = [*loose, *(plan for plan in recorded.values() if plan.vm not in self._visits)]
        done: t.Dict[str, VmPlan] = {}
        waiting = list(self._visits.values())
        while waiting:
            ready = [v for v in waiting if all(giver.config.uuid in done for _job, giver in v.takes)]
            if not ready:
                self._cycle(waiting)
                return []
            new = {visit.vm.config.uuid: self._visited(visit, done) for visit in ready}
            new = {uuid: with_record(plan, recorded.get(uuid)) for uuid, plan in new.items()}
            for uuid, plan in new.items():
                self.problems += plan.problems
                if plan.problems:
                    self._refuse_vm(uuid)
            done.update(new)
            plans += sorted(new.values(), key=lambda plan: rank(self._host, plan))
            waiting = [v for v in waiting if v.vm.config.uuid not in new]
        return plans

    def _detached_plan(self, pool: str, jobs: t.Sequence[Job]) -> VmPlan:
        """Plan the detached disks of a pool. If entries are refused only in combination, all of them are refused."""
        plan = plan_detached(self._host, pool, jobs, self._capabilities)
        self.problems += plan.problems
        wrong = [job for job in jobs if plan.problems and self._alone(pool, job).problems]
        for job in wrong or (jobs if plan.problems else ()):
            self._entry(job.declared).refused = True
        return plan

    def _alone(self, pool: str, job: Job) -> VmPlan:
        return plan_detached(self._host, pool, [job], self._capabilities)

    def _check_room(self, plans: t.Sequence[VmPlan]) -> None:
        """Refuse the VM or the detached disk that needs most, if a pool lacks room."""
        short = lacking(self._host, plans)
        self.problems += short
        names = {problem.vm for problem in short}
        for plan in (p for p in plans if p.name in names):
            pool = plan.before.config.pool
            if plan.vm:
                self._refuse_vm(plan.vm)
            else:
                needs = [(demand(self._alone(pool, j), self._host.geometry[pool]).peak, j) for j in self._loose[pool]]
                self._entry(max(needs, key=lambda pair: pair[0])[1].declared).refused = True

    def _cycle(self, waiting: t.Sequence[_Visit]) -> None:
        for visit in waiting:
            for job, giver in visit.takes:
                text = f"the VMs take disks from each other; first detach those of {giver.label} in a task of its own"
                self._add(job.declared, "InvalidArgument", text)

    def _visited(self, visit: _Visit, done: t.Mapping[str, VmPlan]) -> VmPlan:
        problems = Problems(visit.name)
        if not check_whole(visit.vm, problems):
            return VmPlan(visit.vm.config.uuid, visit.vm, visit.vm, (), tuple(problems))
        check_begun(visit.vm, problems)
        pairs = [(job.declared, t.cast(Place, job.place).disk) for job in visit.stays]
        for job, giver in visit.takes:
            given = _given(done[giver.config.uuid].after, t.cast(Place, job.place).disk)
            if given is not None:
                pairs.append((job.declared, given))
        specs = [(_of_disk(declared, disk), disk) for declared, disk in pairs]
        for _spec, disk in specs:
            if not disk.uuid:
                problems.add(
                    "ResourceNotFound", f"{disk.volume.name} has no uuid yet; disk_adopt gives it one", disk.label
                )
        self._check_indexes(visit, pairs, problems)
        spec = VmDisksDeclaration(visit.name, unlisted="detach", disks=tuple(s for s, _disk in specs))
        problems += slot_problems(spec, visit.vm.config)
        matched = Match(pairs=specs, unlisted=visit.leaves)
        return plan_matched(self._host, visit.vm, spec, matched, self._policy, self._capabilities, problems)

    def _check_indexes(
        self, visit: _Visit, pairs: t.Sequence[t.Tuple[PlacedDiskDeclaration, Disk]], problems: Problems
    ) -> None:
        leaving = {disk.volume.name for disk in visit.leaves}
        vm = replace(
            visit.vm,
            disks=tuple(d for d in visit.vm.disks if d.volume.name not in leaving),
            orphans=tuple(d for d in visit.vm.orphans if d.volume.name not in leaving),
        )
        used = {number: disk_dataset(vm.root.name, number) for number in arrivals.used_indexes(vm)}
        if vm.config.prefixes:
            names = [name for name in (*vm.siblings, *(volume.name for volume in vm.volumes)) if name not in leaving]
            used = {index_within(vm.config, name): name for name in names}
        for declared, disk in pairs:
            index = declared.spec.index
            if index is None or disk.path:
                continue
            prefix = arriving_prefix(vm.config, disk.volume.pool)
            if index in used and used[index].startswith(prefix):
                problems.add("InvalidArgument", f"index {index} belongs to {used[index]}", disk.label)
            used[index] = f"the entry {declared.label}"

    # -- the optimistic lock

    def _check_serials(self, plans: t.Sequence[VmPlan]) -> None:
        """Refuse to change a disk whose serial_no is not the declared one. An entry that changes nothing is allowed."""
        changed = {volume for plan in plans for step in plan.steps for volume in step.volumes}
        for job in self.jobs:
            if job is None or job.place is None or job.declared.serial is None:
                continue
            now = serial_of(job.place.disk)
            if now != job.declared.serial and job.place.disk.volume.name in changed:
                text = (
                    f"{label_of(job.place)} has serial_no {now}, not {job.declared.serial}: it was changed "
                    "since you read it"
                )
                self._add(job.declared, "Changed", text)


def _of_disk(declared: PlacedDiskDeclaration, disk: Disk) -> DiskDeclaration:
    """Return the declaration for an existing disk. block_size counts only for a file, which may become a volume."""
    block = declared.spec.block_size if disk.type == FILE else None
    return replace(declared.spec, uuid=disk.uuid, image=None, block_size=block)


def _given(giver: Vm, disk: Disk) -> t.Optional[Disk]:
    """Return the disk as it is after the VM giver has given it up; None if that is refused."""
    return next((d for d in giver.detached if d.volume.guid == disk.volume.guid), None)


def _without_names(vm: t.Optional[Vm]) -> t.List[Disk]:
    return [disk for disk in vm.disks if not (disk.hidden or disk.adopted)] if vm is not None else []


def _listed(values: t.Iterable[str]) -> str:
    return ", ".join(values) or "none"
