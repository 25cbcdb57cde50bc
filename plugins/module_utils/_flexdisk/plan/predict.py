# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predict the VM after each step, by the arithmetic of plan, check mode and the comparison after the run."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.sizes import MIB
from ..model.vm import ABSENT, FILE, SPARSE, Disk, DiskConfig, ListedSnapshot, Vm
from ..rules import disk_element, disk_properties, identity, pins, released_identity, slots, snapshots
from ..rules.inventory import attached_disk, made_from
from ..rules.layout import image_of, index_of, index_within
from ..rules.replicas import SPACE
from ..rules.reservation import PoolGeometry, automatic_reservation, overhead
from ..rules.space import expected_quota, settled_quota, without_syncs
from . import disk_steps, vm_steps
from .steps import Step

NEWEST = 1 << 63  # the createtxg of a snapshot that is not taken yet


def resized(volume: Dataset, volsize: int, geometry: PoolGeometry) -> Dataset:
    """Return the volume with another size (bytes) and its automatic reservation. What its snapshots hold stays."""
    reservation = automatic_reservation(volsize, volume.volblocksize, geometry)
    return replace(volume, volsize=volsize, refreservation=reservation, used=volume.pinned + reservation)


def with_type(volume: Dataset, wanted: str, geometry: PoolGeometry) -> Dataset:
    """Return the volume with the reservation of the wanted type."""
    if wanted != SPARSE:
        return resized(volume, volume.volsize, geometry)
    return replace(volume, refreservation=0, usedbyrefreservation=0, used=volume.pinned + volume.written)


def apply(vm: Vm, step: Step, geometry: PoolGeometry) -> Vm:
    """Return the VM after the step."""
    return AFTER[type(step)](step, vm, geometry)


def _with_root(vm: Vm, **changes: t.Any) -> Vm:
    return replace(vm, root=replace(vm.root, **changes))


def _with_quota(vm: Vm, quota: int, reservation: int) -> Vm:
    """Return the VM with another quota and reservation. One without a dataset of its own has none."""
    return vm if vm.config.prefixes else _with_root(vm, quota=quota, reservation=reservation)


def _with_refreservation(vm: Vm, refreservation: int) -> Vm:
    """Return the VM with another refreservation of its file system. The part not written yet stays reserved."""
    root = vm.root
    unique = root.refreservation - root.usedbyrefreservation if root.usedbyrefreservation else root.written
    return _with_root(vm, refreservation=refreservation, usedbyrefreservation=max(0, refreservation - unique))


def _with_facts(vm: Vm, facts: t.Mapping[str, str]) -> Vm:
    """Return the VM with properties of the collection on its dataset; "" removes one."""
    return _with_root(vm, user={key: value for key, value in {**vm.root.user, **facts}.items() if value})


def _with_config(vm: Vm, **changes: t.Any) -> Vm:
    return replace(vm, config=replace(vm.config, **changes))


def _with_lawful_quota(vm: Vm, geometry: PoolGeometry) -> Vm:
    quota = settled_quota(vm, geometry)
    return _with_quota(vm, quota, quota)


def _change_disk(vm: Vm, volume: str, change: t.Callable[[Disk], Disk]) -> Vm:
    def each(disks: t.Tuple[Disk, ...]) -> t.Tuple[Disk, ...]:
        return tuple(change(d) if d.volume.name == volume else d for d in disks)

    return replace(vm, disks=each(vm.disks), orphans=each(vm.orphans), detached=each(vm.detached))


def _sorted(disks: t.Iterable[Disk]) -> t.Tuple[Disk, ...]:
    return tuple(sorted(disks, key=lambda d: (d.index, d.volume.name)))


def _recover(step: vm_steps.Recover, vm: Vm, geometry: PoolGeometry) -> Vm:
    return replace(vm, interrupted=None)


def _adopt(step: vm_steps.Relocate, vm: Vm, geometry: PoolGeometry) -> Vm:
    moved = {entry.path: disk for entry, disk in step.moves}
    entries = tuple(
        replace(e, path=moved[e.path].path, volume=moved[e.path].volume.name, left_out="", named="")
        if e.path in moved
        else e
        for e in vm.config.disks
    )
    names = {disk.volume.name for disk in moved.values()}
    return replace(
        _with_root(_with_config(vm, disks=entries), kind="filesystem"),
        disks=_sorted((*vm.disks, *moved.values())),
        orphans=tuple(d for d in vm.orphans if d.volume.name not in names),
        missing=tuple(path for path in vm.missing if path not in moved),
        strays=tuple(path for path in vm.strays if path not in moved),
    )


def _remember(step: t.Union[vm_steps.Remember, vm_steps.GiveUp], vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM as it is: no result shows its record."""
    return vm


def _law(step: vm_steps.SettleQuota, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _with_refreservation(
        _with_root(vm, quota=step.quota_bytes, reservation=step.quota_bytes), step.refreservation_bytes
    )


def _normalise(step: vm_steps.SettleVolumes, vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM after the step. The quota has room for all that the volumes will hold, even beyond F."""
    before = sum(v.used for v in vm.volumes)
    for volume in step.names:
        vm = _change_disk(vm, volume, lambda d: replace(d, volume=resized(d.volume, d.volume.volsize, geometry)))
    if vm.config.prefixes:
        return vm
    coming = step.flexible_mib
    room = _with_config(vm, flexible_disk_size=coming) if coming else vm
    used = vm.root.used + sum(v.used for v in vm.volumes) - before
    quota = max(vm.root.quota, expected_quota(vm, geometry), expected_quota(room, geometry), used)
    return _with_root(vm, quota=quota, reservation=quota)


def _stop(step: vm_steps.Stop, vm: Vm, geometry: PoolGeometry) -> Vm:
    vm = replace(vm, at_home=True)  # it runs here: this run may start it again
    return _with_config(
        vm, state="stopped", autoboot=vm.config.autoboot and (vm.config.failover or not step.autoboot_off)
    )


def _start(step: vm_steps.Start, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _with_config(
        vm, state="running", autoboot=vm.config.autoboot or (step.autoboot_on and not vm.config.failover)
    )


def _autoboot(step: vm_steps.SetAutoboot, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _with_config(vm, autoboot=step.autoboot)


def _retire(step: vm_steps.RetireSyncs, vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM after the step. Quota and reservation are set by the next step."""
    return _with_facts(without_syncs(vm), {SPACE: ""})


def _recomputed(vm: Vm, thick: bool, geometry: PoolGeometry) -> Vm:
    """Return the VM after a change of F or quota. vmadm then sets every volume to refreservation=auto."""
    for disk in vm.disks + vm.orphans if thick else ():
        vm = _change_disk(
            vm, disk.volume.name, lambda d: replace(d, volume=resized(d.volume, d.volume.volsize, geometry))
        )
    return _with_lawful_quota(_with_refreservation(vm, max(0, vm.root.refquota - MIB)), geometry)


def _flexible(step: vm_steps.SetFlexibleSize, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _recomputed(_with_config(vm, flexible_disk_size=step.stored_mib), step.sets_volumes_to_auto, geometry)


def _quota(step: vm_steps.SetVmQuota, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _recomputed(_with_root(vm, refquota=step.quota_bytes), step.sets_volumes_to_auto, geometry)


def _resize(step: disk_steps.Resize, vm: Vm, geometry: PoolGeometry) -> Vm:
    before = next(v for v in vm.volumes if v.name == step.volume)
    after = _sized(before, step.size_mib, step.type, geometry)
    vm = _change_disk(vm, step.volume, lambda d: replace(d, volume=after))
    if vm.flexible:
        return _with_lawful_quota(vm, geometry)
    if step.type != SPARSE:
        moved = (after.refreservation - after.volsize) - (before.refreservation - before.volsize)
    else:
        moved = sum(sign * overhead(v.volsize, v.volblocksize, geometry) for sign, v in ((1, after), (-1, before)))
    return _with_quota(vm, vm.root.quota + moved, vm.root.reservation + moved)


def _sized(volume: Dataset, size_mib: int, kind: str, geometry: PoolGeometry) -> Dataset:
    if kind != SPARSE:
        return resized(volume, size_mib * MIB, geometry)
    return replace(with_type(volume, kind, geometry), volsize=size_mib * MIB)


def _convert(step: disk_steps.Convert, vm: Vm, geometry: PoolGeometry) -> Vm:
    def converted(disk: Disk) -> Disk:
        if step.copying is not None:
            return _copied(disk, step.type, step.copying, geometry)
        return with_written_facts(
            replace(disk, volume=with_type(disk.volume, step.type, geometry)), identity.type_fact(step.type)
        )

    return _change_disk(vm, step.volume, converted)


def _copied(disk: Disk, wanted: str, copying: disk_steps.Copying, geometry: PoolGeometry) -> Disk:
    """Return the disk with the copy in the place of its volume."""
    volume = Dataset(
        name=disk.volume.name,
        kind="filesystem" if wanted == FILE else "volume",
        volsize=disk.volume.volsize,
        volblocksize=copying.block_size_bytes,
        compression=copying.compression,
        user={**disk.volume.user, "uuid": copying.uuid},
    )
    volume = with_type(volume, wanted, geometry)
    if wanted == SPARSE:
        volume = replace(volume, used=volume.volsize, written=volume.volsize)
    # A disk that a VM waits for stays marked until the VM has it again.
    stays = disk.volume.user.get("from") == identity.CONVERTING
    disk = replace(disk, volume=volume, uuid=copying.uuid, image="", image_size=0, snapshots=(), partial_copy="")
    return with_written_facts(
        disk, {**identity.type_fact(wanted), "from": identity.CONVERTING if stays else "", "copied": ""}
    )


def _discard(step: disk_steps.DiscardCopy, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(vm, step.volume, lambda d: replace(d, partial_copy=""))


def _edit(step: disk_steps.EditDisks, vm: Vm, geometry: PoolGeometry) -> Vm:
    for edit in step.edits:
        vm = _change_disk(vm, edit.volume, lambda d, edit=edit: replace(d, **edit.changes))  # type: ignore[misc]
        entries = (replace(e, **edit.changes) if e.volume == edit.volume else e for e in vm.config.disks)
        vm = _with_config(vm, disks=tuple(entries))
    return vm


def _compression(step: disk_steps.SetCompression, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(vm, step.volume, lambda d: replace(d, volume=replace(d.volume, compression=step.value)))


def with_written_facts(disk: Disk, facts: t.Mapping[str, str]) -> Disk:
    """Return the disk with the facts written to its volume, as a later read shows it."""
    user = {**disk.volume.user, **facts}
    user = {k: v for k, v in user.items() if v}
    inherited = {k: v for k, v in disk.volume.inherited.items() if k not in user}
    volume = replace(disk.volume, user=user, received=disk.volume.received - facts.keys(), inherited=inherited)
    # An identity is written together with its stamps. It is whole then, and a saved one does not count any more.
    written = facts.get("uuid") or facts.get("name")
    known = user if written else released_identity.effective_properties(volume, lambda uuid: uuid == disk.uuid)
    return replace(
        disk,
        volume=volume,
        uuid=disk.uuid or facts.get("uuid", ""),
        name=known.get("name", ""),
        user_properties=disk_properties.decoded(known),
        remaining=known.get("remaining", ""),
    )


def _identity(step: disk_steps.WriteFacts, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(vm, step.volume, lambda d: with_written_facts(d, step.facts))


def _correct(step: disk_steps.CorrectFacts, vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM after a correction of a volume, or of its own dataset."""
    facts, root = step.facts, vm.root
    if step.volume == root.name:
        return _with_root(vm, user={**root.user, **facts}, received=root.received - facts.keys())
    return _change_disk(vm, step.volume, lambda d: with_written_facts(d, facts))


def _without_disk(vm: Vm, volume: str) -> t.Tuple[Vm, Disk]:
    disk = next(d for d in vm.disks + vm.orphans if d.volume.name == volume)
    vm = _with_config(vm, disks=tuple(e for e in vm.config.disks if e.path != disk.path))
    disks, orphans = (tuple(d for d in pile if d is not disk) for pile in (vm.disks, vm.orphans))
    return replace(vm, disks=disks, orphans=orphans), disk


def _settled(vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM after a removal. A flexible VM gets the quota by the law; another keeps room for a new disk."""
    return _with_lawful_quota(vm, geometry) if vm.flexible else vm


def _detach(step: disk_steps.Detach, vm: Vm, geometry: PoolGeometry) -> Vm:
    vm, disk = _without_disk(vm, step.volume)
    disk = with_written_facts(disk, step.facts)
    boot = disk.volume.user.get("boot") == "true"
    detached = replace(disk, volume=disk.volume.renamed(step.target), detached=True, boot=boot, path="", address="")
    detached = replace(detached, element=disk_element.decode(detached.volume))
    names = dict(step.renames)
    pairs = [(s, s.name.split("@", 1)[1]) for s in disk.snapshots]
    moved = tuple(replace(s, name=f"{step.target}@{names.get(short, short)}") for s, short in pairs)
    detached = replace(detached, snapshots=moved)
    low = max(0, vm.root.reservation - disk.volume.used)
    vm = _settled(replace(vm, detached=(*vm.detached, detached)), geometry)
    return _with_root(vm, reservation=min(low, vm.root.quota)) if step.reservation_set_later else vm


def _exchange(step: disk_steps.ExchangeDisks, vm: Vm, geometry: PoolGeometry) -> Vm:
    guids = {guid for one in step.exchanged for guid in (one.former_guid, one.restored_guid)}
    disks, orphans, detached = (
        tuple(disk for disk in pile if disk.volume.guid not in guids) for pile in (vm.disks, vm.orphans, vm.detached)
    )
    uuids = {one.place: one.uuid for one in step.exchanged}
    paths = {one.disk.path for one in step.exchanged}
    entries = (replace(e, uuid=uuids[e.volume]) if e.volume in uuids else e for e in vm.config.disks)
    vm = replace(
        _with_config(vm, disks=tuple(entries)),
        disks=_sorted((*disks, *(one.disk for one in step.exchanged))),
        orphans=orphans,
        detached=(*detached, *(one.former for one in step.exchanged)),
        missing=tuple(path for path in vm.missing if path not in paths),
    )
    return _settled(vm, geometry)


def _forget(step: disk_steps.ForgetDisk, vm: Vm, geometry: PoolGeometry) -> Vm:
    vm = replace(vm, missing=tuple(p for p in vm.missing if p != step.path))
    unused = tuple(name for name in vm.config.unused if name != step.volume)
    return _with_config(vm, disks=tuple(e for e in vm.config.disks if e.path != step.path), unused=unused)


def unguarded(disk: Disk) -> Disk:
    """Return the disk without its guard. What only the guard has pinned is known if there is no other snapshot."""
    volume = disk.volume
    if not disk.guarded or disk.snapshots:
        return replace(disk, guarded=False)
    used = min(volume.used, volume.refreservation)
    return replace(disk, guarded=False, volume=replace(volume, used=used, usedbysnapshots=0))


def _unguard(step: disk_steps.LiftGuard, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(vm, step.volume, unguarded)


def _destroy(step: disk_steps.Destroy, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _settled(_without_disk(vm, step.volume)[0], geometry)


def _destroy_detached(step: disk_steps.DestroyDetached, vm: Vm, geometry: PoolGeometry) -> Vm:
    vm = replace(vm, detached=tuple(d for d in vm.detached if d.volume.name != step.volume))
    orphans = tuple(d for d in vm.orphans if d.volume.name != step.volume)
    return vm if orphans == vm.orphans else _settled(replace(vm, orphans=orphans), geometry)


def _with_disk(vm: Vm, disk: Disk, step: disk_steps.DiskArrival, geometry: PoolGeometry) -> Vm:
    attachment = step.attachment
    disk = replace(
        with_written_facts(disk, step.facts),
        vm=vm.config.uuid,
        index=index_within(vm.config, step.volume),
        path=attachment.path,
        boot=attachment.boot,
        model=attachment.model,
        pci_slot=attachment.pci_slot,
        address=vm.config.pci.addresses.get(attachment.pci_slot, ""),
        image=made_from(disk.volume),
        detached=False,
        element=attachment.element,
    )
    entry = DiskConfig(
        path=disk.path,
        volume=step.volume,
        boot=disk.boot,
        model=disk.model,
        image=image_of(disk.volume.origin),
        image_size=disk.image_size,
        pci_slot=disk.pci_slot,
        uuid=disk.uuid,
        element=attachment.element,
    )
    if attachment.boot:
        # Without a boot order, another disk may have been the first.
        vm = _with_config(vm, disks=tuple(replace(e, boot=False) for e in vm.config.disks))
        vm = replace(vm, disks=tuple(replace(d, boot=False) for d in vm.disks))
    vm = _with_config(vm, disks=(*vm.config.disks, entry))
    return _with_lawful_quota(replace(vm, disks=_sorted((*vm.disks, disk))), geometry)


def _attach(step: disk_steps.AttachDisk, vm: Vm, geometry: PoolGeometry) -> Vm:
    disk = step.attached
    vm = replace(
        vm,
        detached=tuple(d for d in vm.detached if d.volume.name != disk.volume.name),
        orphans=tuple(d for d in vm.orphans if d.volume.name != disk.volume.name),
    )
    volume = _sized(disk.volume, step.size_mib, step.type, geometry)
    volume = replace(volume, name=step.volume, compression=step.compression)
    disk = with_written_facts(
        replace(disk, volume=volume), {"from": "", "copied": "", disk_element.ELEMENT_PROPERTY: ""}
    )
    return _with_disk(vm, disk, step, geometry)


def _new_volume(step: t.Union[disk_steps.CreateDisk, disk_steps.CreateDetached], geometry: PoolGeometry) -> Dataset:
    """Return the volume of a new disk."""
    blank = Dataset(
        name=step.volume,
        kind="filesystem" if step.type == FILE else "volume",
        volblocksize=step.block_size_bytes,
        compression=step.compression,
        origin=step.origin,
    )
    return _sized(blank, step.size_mib, step.type, geometry)


def _create(step: disk_steps.CreateDisk, vm: Vm, geometry: PoolGeometry) -> Vm:
    uuid = step.attachment.uuid
    disk = Disk(
        volume=_new_volume(step, geometry), vm=vm.config.uuid, index=0, uuid=uuid, image_size=step.image_size_mib
    )
    return _with_disk(vm, disk, step, geometry)


def _create_detached(step: disk_steps.CreateDetached, vm: Vm, geometry: PoolGeometry) -> Vm:
    disk = Disk(
        volume=_new_volume(step, geometry),
        vm=step.vm,
        index=0,
        model=step.facts["model"],
        image=image_of(step.origin),
        detached=True,
    )
    return replace(vm, detached=(*vm.detached, with_written_facts(disk, step.facts)))


def _resize_detached(step: disk_steps.ResizeDetached, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(
        vm, step.volume, lambda d: replace(d, volume=_sized(d.volume, step.size_mib, step.type, geometry))
    )


def _finish_detached(step: disk_steps.FinishDetached, vm: Vm, geometry: PoolGeometry) -> Vm:
    def finished(disk: Disk) -> Disk:
        disk = with_written_facts(disk, {"from": ""})
        return replace(disk, volume=_sized(disk.volume, step.size_mib, step.type, geometry))

    return _change_disk(vm, step.volume, finished)


def _end_conversion(step: disk_steps.EndConversion, vm: Vm, geometry: PoolGeometry) -> Vm:
    def ended(disk: Disk) -> Disk:
        return with_written_facts(replace(disk, volume=disk.volume.renamed(step.target)), step.facts)

    return _change_disk(vm, step.volume, ended)


def with_hidden(vm: Vm, entry: DiskConfig, size: int, block_size: int, geometry: PoolGeometry) -> Vm:
    """Return the VM with a hidden disk of the platform (size in MiB, block_size in bytes), and its space."""
    blank = Dataset(entry.volume, "volume", volblocksize=block_size, compression=vm.root.compression)
    volume = resized(blank, size * MIB, geometry)
    config = vm.config
    stored = config.flexible_disk_size
    entries = (*config.disks, entry)
    disk = Disk(
        volume=volume,
        vm=config.uuid,
        index=index_of(entry.volume),
        path=entry.path,
        model=entry.model,
        pci_slot=slots.positions(entries, config.pci)[entry.path],
        hidden=True,
    )
    config = replace(
        config,
        disks=entries,
        hidden_paths=config.hidden_paths | {entry.path},
        flexible_disk_size=None if stored is None else stored + size,
    )
    return _with_lawful_quota(replace(vm, config=config, disks=_sorted((*vm.disks, disk))), geometry)


def _elsewhere(step: Step, vm: Vm, geometry: PoolGeometry) -> Vm:
    """Return the VM as it is: the step changes other datasets, or adds ports for disks that are attached later."""
    return vm


def _create_vm(step: vm_steps.CreateVm, vm: Vm, geometry: PoolGeometry) -> Vm:
    return step.vm


def _delete_vm(step: vm_steps.DeleteVm, vm: Vm, geometry: PoolGeometry) -> Vm:
    config = replace(vm.config, state=ABSENT, disks=(), flexible_disk_size=None, autoboot=False, indestructible=False)
    return Vm(config, Dataset(vm.root.name, ""), detached=vm.detached)


def _properties(step: vm_steps.SetProperties, vm: Vm, geometry: PoolGeometry) -> Vm:
    changes: t.Dict[str, t.Any] = dict(step.machine)
    vm = _with_facts(vm, step.facts)
    if step.indestructible is not None:
        changes["indestructible"] = step.indestructible
    if step.indestructible is False:
        protection = snapshots.protection(vm)
        vm = replace(vm, snapshots=tuple(s for s in vm.snapshots if s is not protection))
    return _with_config(vm, **changes)


def _package(step: vm_steps.WritePackage, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _with_facts(vm, step.facts)


def _release(step: disk_steps.ReleaseDisk, vm: Vm, geometry: PoolGeometry) -> Vm:
    return _change_disk(vm, step.dataset, lambda d: replace(with_written_facts(d, step.facts), uuid=step.uuid))


def _snapshot(step: vm_steps.TakeSnapshot, vm: Vm, geometry: PoolGeometry) -> Vm:
    names = {dataset.name for dataset in snapshots.taken_of(vm)}

    def taken(dataset: Dataset, before: t.Tuple[Dataset, ...]) -> t.Tuple[Dataset, t.Tuple[Dataset, ...]]:
        if dataset.name not in names:
            return dataset, before
        charge = pins.charge(dataset)
        name = f"{dataset.name}@{step.full_name}"
        new = replace(dataset, name=name, kind="snapshot", used=0, createtxg=NEWEST, creation=step.creation)
        reserved = dataset.usedbyrefreservation + charge
        return replace(dataset, used=dataset.used + charge, usedbyrefreservation=reserved, written=0), (*before, new)

    vm = pins.each_dataset(vm, taken)
    if not vm.config.prefixes:
        return vm
    listed = ListedSnapshot(step.name, tuple(sorted(names)), step.creation)
    return _with_config(vm, snapshots=(*vm.config.snapshots, listed))


def _delete_snapshot(step: vm_steps.DeleteSnapshot, vm: Vm, geometry: PoolGeometry) -> Vm:
    gone = {part.name for part in step.parts}
    vm = replace(vm, snapshots_below=tuple(s for s in vm.snapshots_below if s.name not in gone))
    vm = _with_config(vm, snapshots=tuple(one for one in vm.config.snapshots if one.name != step.name))
    return pins.without_snapshots(vm, gone)


def _rollback(step: vm_steps.RollBack, vm: Vm, geometry: PoolGeometry) -> Vm:
    def back(dataset: Dataset, before: t.Tuple[Dataset, ...]) -> t.Tuple[Dataset, t.Tuple[Dataset, ...]]:
        part = next((s for s in before if s.dataset_id in step.parts), None)
        if part is None:
            return dataset, before
        left = tuple(s for s in before if s.createtxg <= part.createtxg)
        content = pins.content_bytes(left)
        then = replace(
            dataset,
            volsize=part.volsize,
            used=content + dataset.refreservation if dataset.backs else dataset.used,
            usedbydataset=content,
            usedbysnapshots=0,
            usedbyrefreservation=dataset.refreservation,
            written=0,
        )
        return then, left

    listed, vm = snapshots.listed_as(vm, step.name), pins.each_dataset(vm, back)
    return vm if listed is None else _with_config(_with_serials(vm, listed.serials), **listed.fields)


def _with_serials(vm: Vm, serials: t.Mapping[str, str]) -> Vm:
    """Return the VM with other serials of disks, by key. Such a serial is no UUID, so the UUID of the volume counts."""

    def each(entry: DiskConfig) -> DiskConfig:
        return replace(entry, serial=serials[entry.key], uuid="") if entry.key in serials else entry

    entries = tuple(map(each, vm.config.disks))
    vm, by_path = _with_config(vm, disks=entries), {entry.path: entry for entry in entries if entry.key in serials}
    return replace(vm, disks=tuple(_reread(vm, d, by_path[d.path]) if d.path in by_path else d for d in vm.disks))


def _reread(vm: Vm, disk: Disk, entry: DiskConfig) -> Disk:
    """Return the disk as a read finds it with this entry."""
    shown = attached_disk(vm.config, entry, disk.pci_slot, disk.volume, disk.image_size)
    return replace(shown, snapshots=disk.snapshots, guarded=disk.guarded, partial_copy=disk.partial_copy)


# The VM after each class of steps. Any: each function takes its own class.
AFTER: t.Mapping[t.Type[Step], t.Callable[[t.Any, Vm, PoolGeometry], Vm]] = {
    disk_steps.WriteIdentity: _identity,
    disk_steps.SyncFacts: _identity,
    disk_steps.CorrectFacts: _correct,
    disk_steps.ReleaseDisk: _release,
    disk_steps.LiftGuard: _unguard,
    disk_steps.DiscardCopy: _discard,
    disk_steps.EditDisks: _edit,
    disk_steps.SetCompression: _compression,
    disk_steps.Grow: _resize,
    disk_steps.Shrink: _resize,
    disk_steps.ResizeDetached: _resize_detached,
    disk_steps.ExchangeDisks: _exchange,
    disk_steps.Convert: _convert,
    disk_steps.EndConversion: _end_conversion,
    disk_steps.Detach: _detach,
    disk_steps.DetachUnattached: _detach,
    disk_steps.Destroy: _destroy,
    disk_steps.DestroyDetached: _destroy_detached,
    disk_steps.ForgetDisk: _forget,
    disk_steps.AttachDisk: _attach,
    disk_steps.CreateDisk: _create,
    disk_steps.CreateDetached: _create_detached,
    disk_steps.FinishDetached: _finish_detached,
    vm_steps.Recover: _recover,
    vm_steps.Remember: _remember,
    vm_steps.GiveUp: _remember,
    vm_steps.SettleQuota: _law,
    vm_steps.SettleVolumes: _normalise,
    vm_steps.RetireSyncs: _retire,
    vm_steps.SetFlexibleSize: _flexible,
    vm_steps.SetVmQuota: _quota,
    vm_steps.Stop: _stop,
    vm_steps.Start: _start,
    vm_steps.SetAutoboot: _autoboot,
    vm_steps.SetProperties: _properties,
    vm_steps.WritePackage: _package,
    vm_steps.Relocate: _adopt,
    vm_steps.AddPorts: _elsewhere,
    vm_steps.TakeSnapshot: _snapshot,
    vm_steps.DeleteSnapshot: _delete_snapshot,
    vm_steps.RollBack: _rollback,
    vm_steps.ClearRemains: _elsewhere,
    vm_steps.RemoveUnfinished: _elsewhere,
    vm_steps.ImportImage: _elsewhere,
    vm_steps.CreateVm: _create_vm,
    vm_steps.DeleteVm: _delete_vm,
}
