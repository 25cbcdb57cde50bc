# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a VM is after a step: the same arithmetic for the plan, the check mode and the proof after the real run."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.sizes import MIB
from ..model.vm import ABSENT, FILE, SPARSE, THICK, Disk, DiskConfig, Vm
from ..rules import identity, slots, snapshots
from ..rules.layout import image_of, index_of
from ..rules.reservation import PoolGeometry, automatic_reservation, overhead
from ..rules.space import expected_quota, settled_quota
from .steps import Step

NEWEST = 1 << 63  # the createtxg of what does not have one yet


def resized(volume: Dataset, volsize: int, geometry: PoolGeometry) -> Dataset:
    """The volume at another size, at its automatic reservation; what its snapshots pin stays."""
    reservation = automatic_reservation(volsize, volume.volblocksize, geometry)
    return replace(volume, volsize=volsize, refreservation=reservation, used=volume.pinned + reservation)


def typed(volume: Dataset, wanted: str, geometry: PoolGeometry) -> Dataset:
    """The volume with the reservation of a type."""
    if wanted != SPARSE:
        return resized(volume, volume.volsize, geometry)
    return replace(volume, refreservation=0, usedbyrefreservation=0, used=volume.pinned + volume.written)


def apply(vm: Vm, step: Step, geometry: PoolGeometry) -> Vm:
    """The VM after the step."""
    return _VERBS[step.kind](vm, step.args, geometry)


_Args = t.Mapping[str, t.Any]


def _root(vm: Vm, **changes: t.Any) -> Vm:
    return replace(vm, root=replace(vm.root, **changes))


def _based(vm: Vm, refreservation: int) -> Vm:
    """The VM's own file system at another refreservation: what it has not written yet stays set aside."""
    root = vm.root
    unique = root.refreservation - root.usedbyrefreservation if root.usedbyrefreservation else root.written
    return _root(vm, refreservation=refreservation, usedbyrefreservation=max(0, refreservation - unique))


def _config(vm: Vm, **changes: t.Any) -> Vm:
    return replace(vm, config=replace(vm.config, **changes))


def _lawful(vm: Vm, geometry: PoolGeometry) -> Vm:
    quota = settled_quota(vm, geometry)
    return _root(vm, quota=quota, reservation=quota)


def _map(vm: Vm, volume: str, change: t.Callable[[Disk], Disk]) -> Vm:
    def each(disks: t.Tuple[Disk, ...]) -> t.Tuple[Disk, ...]:
        return tuple(change(d) if d.volume.name == volume else d for d in disks)

    return replace(vm, disks=each(vm.disks), orphans=each(vm.orphans), parked=each(vm.parked))


def _sorted(disks: t.Iterable[Disk]) -> t.Tuple[Disk, ...]:
    return tuple(sorted(disks, key=lambda d: (d.index, d.volume.name)))


def _recover(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return replace(vm, interrupted=None)


def _adopt(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    moved = {entry.path: disk for entry, disk in args["disks"]}
    entries = tuple(
        replace(e, path=moved[e.path].path, volume=moved[e.path].volume.name) if e.path in moved else e
        for e in vm.config.disks
    )
    names = {disk.volume.name for disk in moved.values()}
    return replace(
        _root(_config(vm, disks=entries), kind="filesystem"),
        disks=_sorted((*vm.disks, *moved.values())),
        orphans=tuple(d for d in vm.orphans if d.volume.name not in names),
        missing=tuple(path for path in vm.missing if path not in moved),
        strays=tuple(path for path in vm.strays if path not in moved),
    )


def _law(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _based(_root(vm, quota=args["quota"], reservation=args["quota"]), args["refreservation"])


def _normalise(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    """Quota for what the volumes will hold, even if that is more than F: what makes it fit comes later."""
    before = sum(v.used for v in vm.volumes)
    for volume in args["volumes"]:
        vm = _map(vm, volume, lambda d: replace(d, volume=resized(d.volume, d.volume.volsize, geometry)))
    coming = args["flexible"]
    room = _config(vm, flexible_disk_size=coming) if coming else vm
    held = vm.root.used + sum(v.used for v in vm.volumes) - before
    quota = max(vm.root.quota, expected_quota(vm, geometry), expected_quota(room, geometry), held)
    return _root(vm, quota=quota, reservation=quota)


def _stop(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _config(vm, state="stopped", **args)


def _start(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _config(vm, state="running", **args)


def _autoboot(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _config(vm, autoboot=args["autoboot"])


def _recomputed(vm: Vm, thick: bool, geometry: PoolGeometry) -> Vm:
    """vmadm puts every volume on auto, sparse ones too, when F or the quota changes."""
    for disk in vm.disks + vm.orphans if thick else ():
        vm = _map(vm, disk.volume.name, lambda d: replace(d, volume=resized(d.volume, d.volume.volsize, geometry)))
    return _lawful(_based(vm, max(0, vm.root.refquota - MIB)), geometry)


def _flexible(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _recomputed(_config(vm, flexible_disk_size=args["stored"]), args["thick"], geometry)


def _quota(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _recomputed(_root(vm, refquota=args["quota"]), args["thick"], geometry)


def _resize(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    before = next(v for v in vm.volumes if v.name == args["volume"])
    after = _sized(before, args, geometry)
    vm = _map(vm, args["volume"], lambda d: replace(d, volume=after))
    if vm.flexible:
        return _lawful(vm, geometry)
    if args["type"] != SPARSE:
        moved = (after.refreservation - after.volsize) - (before.refreservation - before.volsize)
    else:
        moved = sum(sign * overhead(v.volsize, v.volblocksize, geometry) for sign, v in ((1, after), (-1, before)))
    return _root(vm, quota=vm.root.quota + moved, reservation=vm.root.reservation + moved)


def _sized(volume: Dataset, args: _Args, geometry: PoolGeometry) -> Dataset:
    if args["type"] != SPARSE:
        return resized(volume, args["size"] * MIB, geometry)
    return replace(typed(volume, args["type"], geometry), volsize=args["size"] * MIB)


def _convert(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    wanted = args["type"]
    fact = {"type": "" if wanted == THICK else wanted}

    def copied(disk: Disk) -> Disk:
        volume = Dataset(
            name=disk.volume.name,
            kind="filesystem" if wanted == FILE else "volume",
            volsize=disk.volume.volsize,
            volblocksize=args["block_size"],
            compression=args["compression"],
            user={**disk.volume.user, "uuid": args["uuid"]},
        )
        volume = typed(volume, wanted, geometry)
        if wanted == SPARSE:
            volume = replace(volume, used=volume.volsize, written=volume.volsize)
        disk = replace(disk, volume=volume, uuid=args["uuid"], image="", image_size=0, snapshots=(), half="")
        # What is aside stays so until the VM has it again.
        stays = disk.volume.user.get("from") == identity.ASIDE
        return believed(disk, {**fact, "from": identity.ASIDE if stays else "", "copied": ""})

    def converted(disk: Disk) -> Disk:
        if "half" in args:
            return copied(disk)
        return believed(replace(disk, volume=typed(disk.volume, wanted, geometry)), fact)

    return _map(vm, args["volume"], converted)


def _discard(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["volume"], lambda d: replace(d, half=""))


def _edit(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    for volume, entry in args["entries"].items():
        vm = _map(vm, volume, lambda d, entry=entry: replace(d, **entry))  # type: ignore[misc]
        vm = _config(vm, disks=tuple(replace(e, **entry) if e.volume == volume else e for e in vm.config.disks))
    return vm


def _compression(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["volume"], lambda d: replace(d, volume=replace(d.volume, compression=args["value"])))


def believed(disk: Disk, facts: t.Mapping[str, str]) -> Disk:
    """The disk with the facts written to its volume, as a later read shows it."""
    user = {**disk.volume.user, **facts}
    user = {k: v for k, v in user.items() if v}
    inherited = {k: v for k, v in disk.volume.inherited.items() if k not in user}
    return replace(
        disk,
        volume=replace(disk.volume, user=user, received=disk.volume.received - facts.keys(), inherited=inherited),
        name=user.get("name", ""),
        preserve=user.get("preserve") == "true",
        description=identity.decode_text(user.get("description", "")),
        tags=identity.decode_tags(user.get("tags", "")),
        remaining=user.get("remaining", ""),
    )


def _identity(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["volume"], lambda d: believed(d, args["facts"]))


def _correct(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    """Also of the VM's own dataset."""
    facts, root = args["facts"], vm.root
    if args["volume"] == root.name:
        return _root(vm, user={**root.user, **facts}, received=root.received - facts.keys())
    return _map(vm, args["volume"], lambda d: believed(d, facts))


def _out(vm: Vm, volume: str) -> t.Tuple[Vm, Disk]:
    disk = next(d for d in vm.disks + vm.orphans if d.volume.name == volume)
    vm = _config(vm, disks=tuple(e for e in vm.config.disks if e.path != disk.path))
    disks, orphans = (tuple(d for d in pile if d is not disk) for pile in (vm.disks, vm.orphans))
    return replace(vm, disks=disks, orphans=orphans), disk


def _settled(vm: Vm, geometry: PoolGeometry) -> Vm:
    """After a removal the law is applied to flexible VMs; an inflexible one keeps the room for a replacement."""
    return _lawful(vm, geometry) if vm.flexible else vm


def _detach(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    adrift = [d for d in vm.orphans if d.volume.name == args["volume"]]
    if adrift:
        vm, disk = replace(vm, orphans=tuple(d for d in vm.orphans if d is not adrift[0])), adrift[0]
    else:
        vm, disk = _out(vm, args["volume"])
    disk = believed(disk, args["facts"])
    boot = disk.volume.user.get("boot") == "true"
    parked = replace(disk, volume=replace(disk.volume, name=args["target"]), parked=True, boot=boot, path="")
    names = dict(args["renames"])
    pairs = [(s, s.name.split("@", 1)[1]) for s in disk.snapshots]
    moved = tuple(replace(s, name="%s@%s" % (args["target"], names.get(short, short))) for s, short in pairs)
    parked = replace(parked, snapshots=moved)
    low = max(0, vm.root.reservation - disk.volume.used)
    vm = _settled(replace(vm, parked=(*vm.parked, parked)), geometry)
    return _root(vm, reservation=min(low, vm.root.quota)) if args["lean"] else vm


def _forget(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    vm = replace(vm, missing=tuple(p for p in vm.missing if p != args["path"]))
    return _config(vm, disks=tuple(e for e in vm.config.disks if e.path != args["path"]))


def unguarded(disk: Disk) -> Disk:
    """The disk without a guard. What that alone has pinned is known where there is no other snapshot."""
    volume = disk.volume
    if not disk.guarded or disk.snapshots:
        return replace(disk, guarded=False)
    return replace(disk, guarded=False, volume=replace(volume, used=min(volume.used, volume.refreservation)))


def _unguard(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["volume"], unguarded)


def _destroy(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _settled(_out(vm, args["volume"])[0], geometry)


def _destroy_parked(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    vm = replace(vm, parked=tuple(d for d in vm.parked if d.volume.name != args["volume"]))
    orphans = tuple(d for d in vm.orphans if d.volume.name != args["volume"])
    return vm if orphans == vm.orphans else _settled(replace(vm, orphans=orphans), geometry)


def _in(vm: Vm, disk: Disk, args: _Args, geometry: PoolGeometry) -> Vm:
    config = args["config"]
    disk = replace(
        believed(disk, args["facts"]),
        vm=vm.config.uuid,
        index=index_of(args["volume"]),
        path=config["path"],
        boot=config["boot"],
        model=config["model"],
        pci_slot=config["pci_slot"],
        image=image_of(disk.volume.origin),
        parked=False,
    )
    entry = DiskConfig(
        path=disk.path,
        volume=args["volume"],
        boot=disk.boot,
        model=disk.model,
        image=disk.image,
        image_size=disk.image_size,
        pci_slot=disk.pci_slot,
        uuid=disk.uuid,
    )
    if config["boot"]:
        # Without a boot order another one may have been the first.
        vm = _config(vm, disks=tuple(replace(e, boot=False) for e in vm.config.disks))
        vm = replace(vm, disks=tuple(replace(d, boot=False) for d in vm.disks))
    vm = _config(vm, disks=(*vm.config.disks, entry))
    return _lawful(replace(vm, disks=_sorted((*vm.disks, disk))), geometry)


def _attach(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    disk = t.cast(Disk, args["disk"])
    vm = replace(
        vm,
        parked=tuple(d for d in vm.parked if d.volume.name != disk.volume.name),
        orphans=tuple(d for d in vm.orphans if d.volume.name != disk.volume.name),
    )
    volume = _sized(disk.volume, args, geometry)
    volume = replace(volume, name=args["volume"], compression=args["compression"])
    disk = believed(replace(disk, volume=volume), {"from": "", "copied": ""})
    return _in(vm, disk, args, geometry)


def _made(args: _Args, geometry: PoolGeometry) -> Dataset:
    """A new disk's volume."""
    blank = Dataset(
        name=args["volume"],
        kind="filesystem" if args["type"] == FILE else "volume",
        volblocksize=args["block_size"],
        compression=args["compression"],
        origin=args["origin"],
    )
    return _sized(blank, args, geometry)


def _create(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    volume = _made(args, geometry)
    own = args["config"]["uuid"]
    disk = Disk(volume=volume, vm=vm.config.uuid, index=0, uuid=own, image_size=args["image_size"])
    return _in(vm, disk, args, geometry)


def _create_detached(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    volume = _made(args, geometry)
    disk = Disk(
        volume=volume, vm=args["vm"], index=0, model=args["facts"]["model"], image=image_of(args["origin"]), parked=True
    )
    return replace(vm, parked=(*vm.parked, believed(disk, args["facts"])))


def _resize_detached(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["volume"], lambda d: replace(d, volume=_sized(d.volume, args, geometry)))


def _finish_detached(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    vm = _map(vm, args["volume"], lambda d: believed(d, {"from": ""}))
    return _resize_detached(vm, args, geometry)


def _end_conversion(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    def ended(disk: Disk) -> Disk:
        return believed(replace(disk, volume=replace(disk.volume, name=args["target"])), args["facts"])

    return _map(vm, args["volume"], ended)


def with_hidden(vm: Vm, entry: DiskConfig, size: int, block_size: int, geometry: PoolGeometry) -> Vm:
    """The VM with a disk of the platform (MiB, bytes), and with the room that it needs."""
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
    return _lawful(replace(vm, config=config, disks=_sorted((*vm.disks, disk))), geometry)


def _elsewhere(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    """What a step does to other datasets, or adds for disks that come, is no business of the disks that are there."""
    return vm


def _create_vm(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return t.cast(Vm, args["vm"])


def _delete_vm(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    config = replace(vm.config, state=ABSENT, disks=(), flexible_disk_size=None, autoboot=False, indestructible=False)
    return Vm(config, Dataset(vm.root.name, ""), parked=vm.parked)


def _properties(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    changes = dict(args["changes"])
    package = changes.pop("package", None)
    if package is not None:
        vm = _root(vm, user={**vm.root.user, "package": package})
    if changes.get("indestructible") is False:
        own = snapshots.protection(vm)
        vm = replace(vm, snapshots=tuple(s for s in vm.snapshots if s is not own))
    return _config(vm, **changes)


def _package(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _root(vm, user={key: value for key, value in {**vm.root.user, **args["facts"]}.items() if value})


def _release(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return _map(vm, args["dataset"], lambda d: replace(believed(d, args["facts"]), uuid=args["uuid"]))


def _snapshot(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    def taken(dataset: Dataset, before: t.Tuple[Dataset, ...]) -> t.Tuple[Dataset, t.Tuple[Dataset, ...]]:
        charge = snapshots.charge(dataset)
        name = "%s@%s" % (dataset.name, args["full_name"])
        new = replace(dataset, name=name, kind="snapshot", used=0, createtxg=NEWEST, creation=args["creation"])
        reserved = dataset.usedbyrefreservation + charge
        return replace(dataset, used=dataset.used + charge, usedbyrefreservation=reserved, written=0), (*before, new)

    return snapshots.each_dataset(vm, taken)


def _delete_snapshot(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    return snapshots.without(vm, args["parts"])


def _rollback(vm: Vm, args: _Args, geometry: PoolGeometry) -> Vm:
    def back(dataset: Dataset, before: t.Tuple[Dataset, ...]) -> t.Tuple[Dataset, t.Tuple[Dataset, ...]]:
        part = next((s for s in before if s.name in args["parts"]), None)
        if part is None:
            return dataset, before
        left = tuple(s for s in before if s.createtxg <= part.createtxg)
        held = snapshots.held(left)
        then = replace(
            dataset,
            volsize=part.volsize,
            used=held + dataset.refreservation if dataset.backs else dataset.used,
            usedbydataset=held,
            usedbysnapshots=0,
            usedbyrefreservation=dataset.refreservation,
            written=0,
        )
        return then, left

    return _config(snapshots.each_dataset(vm, back), **args["config"])


_VERBS: t.Dict[str, t.Callable[[Vm, _Args, PoolGeometry], Vm]] = {
    "recover": _recover,
    "adopt": _adopt,
    "law": _law,
    "normalise": _normalise,
    "stop": _stop,
    "start": _start,
    "autoboot": _autoboot,
    "flexible": _flexible,
    "quota": _quota,
    "shrink": _resize,
    "grow": _resize,
    "convert": _convert,
    "discard": _discard,
    "edit": _edit,
    "compression": _compression,
    "identity": _identity,
    "copy": _identity,
    "correct": _correct,
    "detach": _detach,
    "park": _detach,
    "destroy": _destroy,
    "forget": _forget,
    "unguard": _unguard,
    "destroy_parked": _destroy_parked,
    "attach": _attach,
    "create": _create,
    "create_detached": _create_detached,
    "end_conversion": _end_conversion,
    "resize_detached": _resize_detached,
    "finish_detached": _finish_detached,
    "snapshot": _snapshot,
    "delete_snapshot": _delete_snapshot,
    "rollback": _rollback,
    "ports": _elsewhere,
    "clear": _elsewhere,
    "import_image": _elsewhere,
    "create_vm": _create_vm,
    "delete_vm": _delete_vm,
    "properties": _properties,
    "package": _package,
    "release": _release,
}
