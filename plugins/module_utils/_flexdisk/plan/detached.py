# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans that create, change and destroy detached disks. All disks of a pool are planned together."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..model.capabilities import Capabilities
from ..model.dataset import RECORD, Dataset
from ..model.desired import DiskDeclaration, PlacedDiskDeclaration
from ..model.errors import FlexdiskError, Problems
from ..model.sizes import MIB, render_apart, render_mib
from ..model.vm import FILE, THICK, Disk, Vm, VmConfig
from ..rules import exchange, identity, restore, vm_record
from ..rules.disk import Place, find_source
from ..rules.inventory import Host
from ..rules.layout import container, copy_place, detached_place, final, image_dataset
from ..rules.pins import charge
from ..rules.reservation import default_block_size
from . import changes, checks, departures, disk_travel, predict
from .disk_steps import CreateDetached, EndConversion, FinishDetached
from .ordering import Sequence
from .resolve import Leaver, Target, creation_interrupted, current_type, missing_image, unfinished_disk_text
from .steps import Step, StepReport, VmPlan
from .vm_steps import Remember


@dataclass(frozen=True)
class Job:
    """An entry and its disk."""

    declared: PlacedDiskDeclaration
    # None for a new disk.
    place: t.Optional[Place] = None
    # The VM that a new disk will belong to, if any.
    owner: t.Optional[Vm] = None


def no_vm(host: Host, pool: str, brand: str) -> Vm:
    """Return a stand-in for a VM that has the detached disks of a pool. It has no quota, no power and no uuid."""
    place = container(pool)
    root = host.datasets.get(place) or replace(host.datasets[pool], name=place, kind="", user={})
    config = VmConfig("", f"detached disks of pool {pool}", brand, "stopped", False, pool, place, None)
    free = replace(root, quota=0, reservation=0, refquota=0, refreservation=0)
    return Vm(config, free, detached=tuple(d for d in host.detached if d.volume.pool == pool))


def plan_detached(host: Host, pool: str, jobs: t.Sequence[Job], capabilities: Capabilities) -> VmPlan:
    """Return one plan for all changes of detached disks in a pool."""
    before = no_vm(host, pool, capabilities.brand)
    problems = Problems("")
    seq = Sequence(before, host.geometry[pool])
    _check_clones(jobs, problems)
    for job in sorted(jobs, key=_turn):
        seq.extend(_steps(host, pool, job, capabilities, problems))
    if problems:
        return VmPlan("", before, before, (), tuple(problems))
    return VmPlan("", before, seq.vm, tuple(seq.steps))


def records(host: Host, plans: t.Sequence[VmPlan], jobs: t.Sequence[Job]) -> t.Iterator[VmPlan]:
    """Yield the plans that write the records of the VMs to which the disks of entries belong. They do nothing else.

    While a VM cannot be changed, its record stays as it is.

    Args:
        plans: the plans of detached disks.
        jobs: the entries of these plans, and of disks that an interrupted run may have destroyed.
    """
    gone = {which for job in jobs if job.place is None for which in (job.declared.spec.uuid, job.declared.spec.name)}
    owners = {
        job.place.disk.vm if job.place is not None else job.owner.config.uuid if job.owner else "" for job in jobs
    }
    after = {plan.before.config.pool: plan.after.detached for plan in plans}
    for vm in host.vms:
        config = vm.config
        away = config.record.detached if config.record is not None else {}
        if not config.prefixes or config.frozen or vm.interrupted is not None:
            continue
        if config.uuid not in owners and not gone & {*away, *(one["name"] for one in away.values())}:
            continue
        planned = [disk for disks in after.values() for disk in disks if disk.vm == config.uuid]
        detached = vm_record.detached(vm, [*planned, *(d for d in vm.detached if d.volume.pool not in after)])
        new = tuple(sorted({disk.volume.pool for disk in planned if not disk.uuid}))
        if new or detached != away:
            step = Remember(StepReport(""), detached=detached, pools_of_new=new)
            yield VmPlan(config.uuid, vm, vm, (step,))


def with_record(plan: VmPlan, record: t.Optional[VmPlan]) -> VmPlan:
    """Return the plan of a VM that also writes what the plans of detached disks change in its record.

    record: the plan of records() for the VM; None if they change nothing of it.
    """
    if record is None or plan.problems:
        return plan
    step = t.cast(Remember, record.steps[0])
    before, after = vm_record.detached(plan.before, plan.before.detached), step.detached or {}
    others = [one for one in plan.steps if not isinstance(one, Remember)]
    known = next((one for one in plan.steps if isinstance(one, Remember)), Remember(StepReport(""), detached=before))
    left = {uuid: one for uuid, one in (known.detached or {}).items() if uuid in after or uuid not in before}
    changed = {uuid: one for uuid, one in after.items() if before.get(uuid) != one}
    wanted = replace(known, detached={**left, **changed}, pools_of_new=step.pools_of_new)
    return replace(plan, steps=(*others, wanted))


def _check_clones(jobs: t.Sequence[Job], problems: Problems) -> None:
    """Refuse an entry for a disk that another entry destroys as a clone (destroy_clones)."""
    given_up = {clone: job.declared.label for job in jobs for clone in job.declared.destroy_clones}
    for job in jobs:
        name = job.place.disk.volume.name if job.place is not None else ""
        if name in given_up:
            text = f"listed twice, also in destroy_clones of {given_up[name]}: {name}"
            problems.add("InvalidArgument", text, job.declared.label)


def _turn(job: Job) -> t.Tuple[bool, bool]:
    """Sort key: new disks first, because they may be made from a disk that is destroyed."""
    return job.declared.state == "absent", job.place is not None


def _steps(host: Host, pool: str, job: Job, capabilities: Capabilities, problems: Problems) -> t.Iterator[Step]:
    declared = job.declared
    if job.place is None:
        step = _creation(host, pool, job, capabilities, problems)
        if step is not None:
            yield step
        return
    disk = job.place.disk
    yield from departures.lift_guards([disk, *_source_of(host, disk, declared)])
    yield from departures.discard_copies([disk])
    if declared.state == "absent":
        yield from _destruction(host, disk, declared, problems)
    else:
        yield from _changes(host, pool, disk, declared.spec, capabilities, problems)


def _changes(
    host: Host, pool: str, disk: Disk, spec: DiskDeclaration, capabilities: Capabilities, problems: Problems
) -> t.Iterator[Step]:
    current = disk.volume.user.get("type", THICK) if creation_interrupted(disk) else current_type(disk, capabilities)
    size = -(-disk.size // MIB) if spec.size is None else spec.size
    target = Target(spec, disk, size, type=spec.type or current, current_type=current)
    checks.check_name(target, problems)
    checks.check_shrink(target, problems)
    if target.bytes != disk.size or target.type != current:
        disk_travel.check_known(disk, target.label, problems)
    disk_travel.check_size(target, problems)
    checks.check_type(target, host, pool, capabilities, problems)
    disk = replace(disk, partial_copy="")
    target, before = replace(target, disk=disk), no_vm(host, pool, capabilities.brand)
    ended = _ended(host, disk)
    if ended is not None:
        yield ended
        disk = predict.apply(replace(before, detached=(disk,)), ended, host.geometry[pool]).detached[0]
        target = replace(target, disk=disk)
    first = _begun(host, pool, target, capabilities)
    if first is not None:
        yield first
        disk = predict.apply(replace(before, detached=(disk,)), first, host.geometry[pool]).detached[0]
        target = replace(target, disk=disk, current_type=target.type)
    last = (changes.resize_detached(target), changes.set_compression(target), changes.write_identity(disk, target))
    yield from (step for step in last if step is not None)


def _begun(host: Host, pool: str, target: Target, capabilities: Capabilities) -> t.Optional[Step]:
    """Return the step that finishes an interrupted creation of the disk, or converts it; None if neither is needed."""
    disk = t.cast(Disk, target.disk)
    if creation_interrupted(disk):
        return _finish(disk, target.size, target.type)
    if target.spec.type is None:
        return None
    geometry = host.geometry[pool]
    block = target.spec.block_size or default_block_size(geometry, platform=capabilities.platform)
    return changes.convert(disk, target.type, geometry, target.label, block)


def _ended(host: Host, disk: Disk) -> t.Optional[Step]:
    """Return the step that finishes a conversion whose original is destroyed already, or None. The copy gets the
    original's name, and loses its mark unless a VM waits for it.
    """
    original, now, wanted = disk.volume.user.get("from", ""), disk.volume.name, detached_place(disk)
    if not original.isdigit() or any(str(dataset.guid) == original for dataset in host.datasets.values()):
        return None
    if now != copy_place(wanted) or wanted in host.datasets:
        wanted = now
    waits = any(vm.config.uuid == disk.vm and vm.interrupted is not None for vm in host.vms)
    facts = {"from": identity.CONVERTING if waits else "", "copied": ""}
    report = StepReport(f"= conversion of {disk.label} ended", disk.label)
    return EndConversion(report, volume=now, guid=disk.volume.guid, target=wanted, facts=facts)


def _source_of(host: Host, disk: Disk, declared: PlacedDiskDeclaration) -> t.List[Disk]:
    """Return the source of an interrupted copy, if there is one. A guard may be left on it."""
    if not (declared.source and creation_interrupted(disk)):
        return []
    try:
        return [find_source(host, declared.source).disk]
    except FlexdiskError:
        return []


def _finish(disk: Disk, size: int, kind: str) -> Step:
    report = StepReport(f"= creation of {disk.label} ended: {render_mib(size)}", disk.label)
    return FinishDetached(report, volume=disk.volume.name, size_mib=size, guid=disk.volume.guid, type=kind)


def _destruction(host: Host, disk: Disk, declared: PlacedDiskDeclaration, problems: Problems) -> t.Iterator[Step]:
    """Yield the steps that destroy a disk. Its clones in destroy_clones come first: they would prevent it."""
    given_up = declared.destroy_clones
    detached = {other.volume.name: other for other in host.detached}
    for clone in (c for snapshot in disk.snapshots for c in snapshot.clones if c in given_up):
        other = detached.get(clone)
        if other is None:
            problems.add("InUse", f"{clone} is not a detached disk, so it cannot be destroyed as a clone", disk.label)
        elif exchange.why_held(host.vms, other):
            problems.add("InUse", f"{clone}: {exchange.why_held(host.vms, other)}", disk.label)
        else:
            yield from departures.lift_guards([other])
            yield from departures.discard_copies([other])
            yield from _destruction(host, other, declared, problems)
    leaver = Leaver(disk, True, declared.spec.destroy_snapshots, release_holds=declared.release_holds, clones=given_up)
    checks.check_destruction(leaver, problems)
    on_hold = tuple(s.name for s in disk.snapshots if s.userrefs)
    yield replace(departures.destroy_detached(leaver), on_hold=on_hold)


def _creation(host: Host, pool: str, job: Job, capabilities: Capabilities, problems: Problems) -> t.Optional[Step]:
    spec = job.declared.spec
    target = Target(spec, None, spec.size or 0, block_size=spec.block_size or 0, type=spec.type or THICK)
    checks.check_name(target, problems)
    checks.check_type(target, host, pool, capabilities, problems)
    target.block_size = target.block_size or default_block_size(host.geometry[pool], platform=capabilities.platform)
    if target.type == FILE:
        target.block_size = RECORD
    origin = _origin(host, pool, job.declared, capabilities, problems)
    text = ""
    if origin is not None:
        min_bytes = origin.volume.volsize
        target.size = spec.size or -(-min_bytes // MIB)
        target.block_size = origin.volume.volblocksize
        if target.size * MIB < min_bytes:
            small, large = render_apart(target.size * MIB, min_bytes)
            text = f"size {small} is too small: {origin.name}, which the disk is made from, has {large}"
            problems.add("InvalidArgument", text, target.label)
        if origin.disk is not None:
            disk_travel.check_known(origin.disk, target.label, problems)
            disk_travel.check_size(replace(target, disk=replace(origin.disk, volume=origin.volume)), problems)
        text = f" as a {'copy' if origin.copied else 'clone'} of {origin.name}{origin.when}"
    elif not (spec.size or spec.image or job.declared.source or job.declared.replica):
        problems.add("MissingParameter", "a new disk needs a size, an image or a source", target.label)
    if problems:
        return None
    return _create(host, pool, job, target, origin, text)


@dataclass(frozen=True)
class _Origin:
    """What a new disk is made from: a snapshot that is cloned, or a disk or snapshot that is copied."""

    name: str
    volume: Dataset
    copied: bool
    disk: t.Optional[Disk] = None
    # Of a replica: when its disk was like it, as the end of a text.
    when: str = ""
    # Of a replica: the property with which the new disk notes what it was made from.
    facts: t.Mapping[str, str] = field(default_factory=dict)


def _origin(
    host: Host, pool: str, declared: PlacedDiskDeclaration, capabilities: Capabilities, problems: Problems
) -> t.Optional[_Origin]:
    if declared.spec.image:
        volume = image_dataset(pool, declared.spec.image)
        name = final(volume)
        image = host.datasets.get(volume)
        if image is None or name not in host.datasets or not image.volsize:
            message = missing_image(pool, declared.spec.image, capabilities)
            problems.add("ResourceNotFound", message, declared.label)
            return None
        return _Origin(name, image, False)
    if declared.replica:
        return _of_replica(host, declared, problems)
    place = problems.attempt(declared.label, find_source, host, declared.source) if declared.source else None
    if place is None:
        return None
    return _of_disk(host, place, pool, declared, problems)


def _of_disk(
    host: Host, place: Place, pool: str, declared: PlacedDiskDeclaration, problems: Problems
) -> t.Optional[_Origin]:
    disk = place.disk
    if disk.volume.encryptionroot:
        problems.add(
            "EncryptionRoot", f"{place.description} is encrypted, so a disk made from it would be, too", declared.label
        )
    if declared.clone and disk.volume.pool != pool:
        problems.add(
            "InvalidArgument",
            f"a clone must be in the pool of its source, {disk.volume.pool}, not in {pool}",
            declared.label,
        )
    if FILE in (disk.type, declared.spec.type):
        text = (
            f"{place.description}: a disk of type file cannot be copied or cloned, nor can its copy or "
            "clone be one; convert it in place"
        )
        problems.add("NotSupported", text, declared.label)
    if creation_interrupted(disk):
        problems.add("InUse", unfinished_disk_text(place.description), declared.label)
    held = exchange.why_held(host.vms, disk)
    if held:
        problems.add("InUse", f"{place.description}: {held}", declared.label)
    if not declared.source_snapshot:
        _check_room(host, place, declared, problems)
        return _Origin(disk.volume.name, disk.volume, True, disk)
    short = {s.name.split("@", 1)[1]: s for s in disk.snapshots}
    one = short.get(declared.source_snapshot)
    if one is None:
        have = ", ".join(sorted(short)) or "none"
        problems.add(
            "ResourceNotFound",
            f"{place.description} has no snapshot {declared.source_snapshot}; it has: {have}",
            declared.label,
        )
        return None
    volume = replace(disk.volume, volsize=one.volsize or disk.volume.volsize)
    return _Origin(one.name, volume, not declared.clone, disk)


def _of_replica(host: Host, declared: PlacedDiskDeclaration, problems: Problems) -> t.Optional[_Origin]:
    try:
        replica = restore.find_replica(host, declared.replica)
        snapshot = restore.choose(host, replica, declared.source_snapshot)
        restore.check_restorable(replica)
    except FlexdiskError as exc:
        problems.add(exc.code, exc.message, declared.label)
        return None
    if declared.spec.type == FILE:
        text = f"{replica.name} is not restored as a disk of type file; convert the disk when it is there"
        problems.add("NotSupported", text, declared.label)
    volume = replace(replica, volsize=snapshot.volsize or replica.volsize)
    note = restore.Origin(declared.replica, snapshot.guid, restore.short_name(snapshot))
    facts = {restore.RESTORED: restore.encode_origin(note)}
    return _Origin(snapshot.name, volume, True, when=f" of {restore.time_of(snapshot)}", facts=facts)


def _check_room(host: Host, place: Place, declared: PlacedDiskDeclaration, problems: Problems) -> None:
    """Check that there is room for the snapshot of the source that a copy needs while it lasts."""
    pins = charge(place.disk.volume)
    where, room = "pool " + place.disk.volume.pool, host.available(place.disk.volume.pool)
    if place.vm is not None and place.vm.root.quota:
        where, room = place.vm.root.name, place.vm.root.quota - place.vm.root.used
    if pins > room:
        text = "%s has %s left, but a copy of %s needs %s there for its snapshot"
        left, needed = render_apart(room, pins)
        problems.add("InsufficientSpace", text % (where, left, place.description, needed), declared.label)


def _create(
    host: Host, pool: str, job: Job, target: Target, origin: t.Optional[_Origin], made_from: str
) -> CreateDetached:
    """Return the step that creates the disk. Its uuid, and so the name of its dataset, is chosen at that time."""
    spec, owner = target.spec, job.owner
    disk = Disk(volume=Dataset("", "volume"), vm=owner.config.uuid if owner is not None else "", index=0)
    facts = changes.facts_of(
        disk,
        name=spec.name,
        model=spec.model or "",
        kind=target.type,
        **spec.user_properties,
    )
    above = host.datasets.get(container(pool)) or host.datasets[pool]
    kind = f" {target.type}" if target.type != THICK else ""
    return CreateDetached(
        StepReport(f"+ {target.label} {render_mib(target.size)}{kind} detached{made_from}", target.label),
        volume=f"{container(pool)}/{target.label}",
        size_mib=target.size,
        type=target.type,
        facts={**facts, **(_facts_of_origin(origin) if origin is not None else {})},
        compression=spec.compression or above.compression,
        block_size_bytes=target.block_size,
        own_compression=spec.compression or "",
        origin=origin.name if origin is not None and not origin.copied else "",
        copy_of=origin.name if origin is not None and origin.copied else "",
        vm=disk.vm,
        origin_guid=host.datasets[origin.name].guid if origin is not None else 0,
    )


def _facts_of_origin(origin: _Origin) -> t.Mapping[str, str]:
    """Return the properties that a disk gets from what it is made from."""
    return {**origin.facts, **(disk_travel.facts_of_copy(origin.disk) if origin.disk else {})}
