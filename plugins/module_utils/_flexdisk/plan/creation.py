# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans for new VMs: one step creates a VM with all its new disks."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.dataset import Dataset, DatasetId
from ..model.desired import NewVm, VmDeclaration, VmDisksDeclaration
from ..model.errors import FlexdiskError, Problems
from ..model.sizes import MIB, render_apart, render_bytes, render_mib
from ..model.vm import ABSENT, NO_GROUP, DiskConfig, Vm, VmConfig
from ..parse.vm_disks import parse_vm_disks
from ..rules import identity, packages, slots
from ..rules.differences import crosses
from ..rules.inventory import Host
from ..rules.journal import datasets_in_use
from ..rules.layout import container, disk_dataset, final
from ..rules.matching import match
from ..rules.moves import why_moved_away
from ..rules.reservation import PoolGeometry, default_block_size
from ..rules.slots import slot_problems
from ..rules.space import quota_law
from ..rules.unfinished import Leftovers, in_place, leftovers_of, space_taken
from ..rules.usage import labels
from . import arrivals, changes, checks, predict
from .disk_steps import CreateDisk
from .ordering import Sequence
from .resolve import Resolved, Target, resolve, slots_after
from .steps import Step, StepReport, VmPlan
from .vm import power, remove_left, uuid_of_new
from .vm_steps import ClearRemains, CreateVm, ImportImage

Hidden = t.Tuple[int, int]


def decide(
    host: Host,
    declared: VmDeclaration,
    pool: str,
    capabilities: Capabilities,
    problems: Problems,
    unfinished: t.Optional[Leftovers] = None,
) -> t.Optional[NewVm]:
    """Return the new VM with everything decided that the declaration leaves open; None if there are problems.

    Problems are added to problems. unfinished: what is left of an interrupted creation, which is removed first.
    """
    package = declared.package
    packages.check_new_name(declared.vm, problems)
    if problems:
        return None
    memory = declared.memory or (package.memory if package is not None else None)
    vcpus = declared.vcpus or (package.vcpus if package is not None else None)
    if not memory:
        problems.add("MissingParameter", "a new VM needs memory, given here or by its package")
    if not pool or pool not in host.geometry:
        have = ", ".join(sorted(host.geometry)) or "none"
        problems.add("MissingParameter", f"a new VM needs a pool; pools on this host: {have}")
    elif identity.blank_in(pool):
        problems.add("NotSupported", identity.blank_in(pool))
    if problems or not memory:
        return None
    uuid = declared.uuid or _uuid(host, declared.vm, pool)
    if unfinished is None:
        _check_vacant(host, declared.vm, pool, uuid, problems)
    return NewVm(
        uuid=uuid,
        alias=declared.vm,
        pool=pool,
        memory=memory,
        vcpus=vcpus or 1,
        quota=declared.quota or capabilities.usual_quota,
        flexible_disk_size=packages.flexible_of(declared),
        options=declared.options,
        metadata=declared.metadata,
        template=declared.template,
    )


def _check_vacant(host: Host, alias: str, pool: str, uuid: str, problems: Problems) -> None:
    """Check that the place of the new VM is free. Unused leftovers of its interrupted creation or deletion may be."""
    gone = why_moved_away(host.moves, alias) or why_moved_away(host.moves, uuid)
    if gone is not None:
        problems.add(gone.code, gone.message)
    left = leftovers_of(host, pool, uuid)
    if left is not None and left.entry.deletes:
        return  # the plan removes it, or says why not
    root, entry = f"{pool}/{uuid}", host.intents.get((pool, uuid))
    there = in_place(host, root)
    ours = entry is not None and entry.creates == alias and entry.host == host.name
    lasting = datasets_in_use(there, host.datasets.get(container(pool))) if ours else sorted(d.name for d in there)
    if lasting:
        problems.add("AlreadyExists", f"{', '.join(lasting)} exists, belongs to no VM, and may still be needed")
    for name, users in ((d.name, host.usage.of(d.name)) for d in there):
        if users:
            problems.add("InUse", f"{name} is in the place of the new VM, and attached to {labels(users)}")


def _uuid(host: Host, alias: str, pool: str) -> str:
    """Return a free uuid, always the same for a name in a pool: a VM that is created again gets its old uuid."""
    taken = {config.uuid for config in host.configs}
    guid = host.datasets[pool].guid
    return next(u for u in (identity.uuid_for(guid, alias, n) for n in range(len(taken) + 1)) if u not in taken)


class Import(t.NamedTuple):
    """An image that is still in a file. size and block_size are bytes."""

    volume: str
    size: int
    block_size: int
    # The driver's object for the file.
    file: t.Any


def image_import(host: Host, volume: str, file: t.Any, capabilities: Capabilities) -> Import:
    """Return the import of an image file, at the size that the file names, rounded up to whole MiB."""
    geometry = host.geometry[volume.split("/", 1)[0]]
    block = default_block_size(geometry, platform=capabilities.platform)
    return Import(volume, -(-file.size // MIB) * MIB, block, file)


def with_image(host: Host, one: Import) -> Host:
    """Return the host as it is after the import, with the image's volume and snapshot."""
    volume = Dataset(one.volume, "volume", volsize=one.size, volblocksize=one.block_size)
    parts = {one.volume: volume, final(one.volume): replace(volume, name=final(one.volume), kind="snapshot")}
    return replace(host, datasets={**host.datasets, **parts})


def check_import(host: Host, volume: str) -> None:
    """Allow an interrupted import to start again. Raises FlexdiskError AlreadyExists for any other existing volume."""
    there = host.datasets.get(volume)
    if there is not None and there.user.get("from") != identity.IMPORTING:
        text = f"{volume} exists without its snapshot @final, and was not left by an interrupted import"
        raise FlexdiskError("AlreadyExists", text)


def plan_creation(
    host: Host,
    new: NewVm,
    declared: VmDeclaration,
    draft: VmConfig,
    hidden: t.Sequence[Hidden],
    image: t.Optional[Import],
    capabilities: Capabilities,
    problems: Problems,
    unfinished: t.Optional[Leftovers] = None,
) -> VmPlan:
    """Return the plan for a new VM.

    draft: its configuration without disks. hidden: size (MiB) and block size (bytes) of each disk that the platform
    adds. unfinished: what is left of an interrupted creation.
    """
    geometry = host.geometry[new.pool]
    blank = _blank(host, new, draft, geometry)
    before = _before(blank)
    spec = _spec(new, declared, blank, problems)
    left = tuple(d.dataset_id for d in in_place(host, blank.root.name))
    known = unfinished is not None
    unfinished = unfinished or leftovers_of(host, new.pool, new.uuid)
    removing = remove_left(unfinished, problems, known) if unfinished and (known or unfinished.entry.deletes) else None
    if problems:
        return VmPlan(new.uuid, before, before, (), tuple(problems))
    if image is not None and image.size > host.available(new.pool):
        figures = render_apart(image.size, host.available(new.pool))
        problems.add(
            "InsufficientSpace",
            "the import of image %s needs %s, but the pool has only %s left" % (image.volume, *figures),
        )
    resolved = _resolved(host, blank, spec, hidden, capabilities, problems)
    checks.check(resolved, host, capabilities, problems)
    checks.check_quota_unit(new.quota, capabilities, problems)
    for target in (g for g in resolved.targets if g.disk is not None):
        if target.spec.boot:
            problems.add("InvalidArgument", "a new VM cannot boot from an existing disk", target.label)
        _check_not_converted(target, problems)
    if problems:
        return VmPlan(new.uuid, before, before, (), tuple(problems))
    seq = Sequence(before, geometry)
    if removing is not None and (removing.parts or known):
        seq.add(removing)
    elif left:
        seq.add(_clearing(left, space_taken(host.datasets[left[0].name])))
    if image is not None:
        seq.add(_import(image))
    seq.add(_creation(new, declared, resolved, geometry, capabilities, _taken(host)))
    for target in (g for g in resolved.targets if g.disk is not None):
        seq.add(arrivals.arrive(seq.vm, target, capabilities))
    seq.extend(power(seq.vm, declared, capabilities))
    return VmPlan(new.uuid, before, seq.vm, tuple(seq.steps))


def _check_not_converted(target: Target, problems: Problems) -> None:
    """Refuse to convert an existing disk by copy: a new VM takes it as it is."""
    disk = target.disk
    if disk is not None and crosses(target.type, disk):
        text = (
            f"type {target.type} is refused: {disk.volume.name} is a {disk.type} disk, and a new VM "
            "takes it as it is; convert the disk first"
        )
        problems.add("NotSupported", text, target.label)


def _blank(host: Host, new: NewVm, draft: VmConfig, geometry: PoolGeometry) -> Vm:
    above = host.datasets[new.pool]
    base = max(0, new.quota - MIB)
    flexible = new.flexible_disk_size
    quota = quota_law(new.quota, None if flexible is None else flexible * MIB, (), geometry)
    root = Dataset(
        name=f"{new.pool}/{new.uuid}",
        kind="filesystem",
        quota=quota,
        reservation=quota,
        refquota=new.quota,
        refreservation=base,
        usedbyrefreservation=base,
        compression=above.compression,
        encryptionroot=above.encryptionroot,
    )
    return Vm(draft, root, detached=tuple(d for d in host.detached if d.vm == new.uuid))


def _before(blank: Vm) -> Vm:
    """Return the VM before its creation, when nothing of it exists."""
    root = replace(blank.root, kind="", quota=0, reservation=0, refquota=0, refreservation=0, usedbyrefreservation=0)
    return replace(blank, config=replace(blank.config, state=ABSENT, flexible_disk_size=None), root=root)


def _spec(new: NewVm, declared: VmDeclaration, blank: Vm, problems: Problems) -> VmDisksDeclaration:
    entries = packages.initial_disks(declared, problems)
    spec, wrong = parse_vm_disks({"vm": declared.vm, "disks": entries})
    problems += wrong
    if any(not disk.present for disk in spec.disks or ()):
        problems.add("InvalidArgument", "a new VM cannot have a disk with state=absent")
    if not problems:
        problems += slot_problems(spec, blank.config)
    return replace(spec, flexible_disk_size=new.flexible_disk_size, quota=new.quota)


def _resolved(
    host: Host,
    blank: Vm,
    spec: VmDisksDeclaration,
    hidden: t.Sequence[Hidden],
    capabilities: Capabilities,
    problems: Problems,
) -> Resolved:
    """Return the targets of the declared disks. The disks that the platform adds are taken into account."""
    unrelated = [disk for disk in host.detached if disk.vm != blank.config.uuid]
    matched = match(blank, t.cast(t.Any, spec.disks), unrelated, "name", Problems(spec.vm) if hidden else problems)
    if hidden:
        count = len(matched.creates)
        blank = _with_hidden(blank, hidden, count, host.geometry[blank.config.pool], capabilities)
        matched = match(blank, t.cast(t.Any, spec.disks), unrelated, "name", problems)
    resolved = resolve(blank, spec, matched, host, capabilities, problems)
    return replace(resolved, new=True)


def _with_hidden(
    blank: Vm, hidden: t.Sequence[Hidden], count: int, geometry: PoolGeometry, capabilities: Capabilities
) -> Vm:
    """Return the VM with its hidden disks, numbered after count new ones. They get slots when the VM starts."""
    for number, (size, block_size) in enumerate(hidden, start=count):
        volume = disk_dataset(blank.root.name, number)
        entry = DiskConfig(capabilities.device_prefix + volume, volume, model=capabilities.models[0])
        blank = predict.with_hidden(blank, entry, size, block_size, geometry)
    return blank


def _taken(host: Host) -> t.Set[str]:
    disks = (*host.detached, *(d for vm in host.vms for d in vm.disks + vm.orphans))
    return {disk.uuid for disk in disks if disk.uuid}


def _import(one: Import) -> Step:
    text = f"+ image {one.volume} of {render_bytes(one.size)} from {one.file.path}"
    return ImportImage(StepReport(text), one.volume, one.size, one.block_size, one.file)


def _clearing(left: t.Tuple[DatasetId, ...], frees: int) -> Step:
    text = f"- unused remains of an interrupted creation: {', '.join(one.name for one in left)}"
    return ClearRemains(StepReport(text, destroys=True), left=left, frees_bytes=frees)


def _creation(
    new: NewVm,
    declared: VmDeclaration,
    resolved: Resolved,
    geometry: PoolGeometry,
    capabilities: Capabilities,
    taken: t.Set[str],
) -> Step:
    """Return the step that creates the VM with its new disks: a hypervisor that creates disks creates all or none."""
    seq = Sequence(resolved.vm, geometry)
    parts, disks = [], []
    for number, target in enumerate(resolved.targets):
        if target.disk is None:
            step = _with_uuid(arrivals.create(seq.vm, target, capabilities), target, new, number, capabilities, taken)
            seq.add(step)
            disks.append(step)
            parts.append(step.text[len("+ ") :])
    parts += [f"{render_mib(d.size_mib)} of the platform" for d in resolved.vm.disks if d.hidden]
    ports = slots.new_ports((), slots_after(resolved)[1], resolved.vm.config.pci)
    parts += [changes.ports_text(ports)] if ports else []
    facts = _root_facts(new, declared, capabilities)
    vm = replace(seq.vm, root=replace(seq.vm.root, user={k: v for k, v in facts.items() if v}))
    vm = replace(vm, config=replace(vm.config, indestructible=bool(declared.indestructible)))
    named = f" (package {declared.package.name})" if declared.package is not None else ""
    text = (
        f"+ VM {new.alias}{named}, {render_mib(new.memory)} memory, {new.vcpus} vcpus: {', '.join(parts) or 'no disks'}"
    )
    return CreateVm(
        StepReport(text),
        new=new,
        disks=tuple(disks),
        facts=facts,
        vm=vm,
        indestructible=bool(declared.indestructible),
        ports=tuple(ports),
    )


def _with_uuid(
    step: CreateDisk, target: Target, new: NewVm, number: int, capabilities: Capabilities, taken: t.Set[str]
) -> CreateDisk:
    """Return the step with the uuid that a new VM's disk has from the start. It boots only if so declared."""
    uuid = uuid_of_new(new.uuid, number, taken)
    path = arrivals.path_of(capabilities, step.volume, target.type, uuid)
    attachment = step.attachment._replace(uuid=uuid, boot=bool(target.spec.boot), path=path)
    return replace(step, attachment=attachment, facts={**step.facts, "uuid": uuid})


def _root_facts(new: NewVm, declared: VmDeclaration, capabilities: Capabilities) -> t.Dict[str, str]:
    facts = {
        "package": declared.package.name if declared.package is not None else "",
        "drained": "true" if declared.drained else "",
        "generation": declared.generation,
        "member": "" if declared.member is None else declared.member or NO_GROUP,
    }
    if not capabilities.keeps_storage:
        facts["indestructible"] = "true" if declared.indestructible else ""
        facts[identity.FLEXIBLE] = "" if new.flexible_disk_size is None else str(new.flexible_disk_size)
    return facts
