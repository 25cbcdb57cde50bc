# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Combine what the hypervisor reports with what ZFS reports: VMs with their disks, disks with their volumes."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field, replace

from ..model.dataset import Dataset
from ..model.sizes import MIB
from ..model.vm import Disk, DiskConfig, Intent, Vm, VmConfig, Waiting
from . import disk_element, disk_properties, failover, identity, moves, released_identity, slots, usage, vm_record
from .layout import (
    container,
    find_vm_dataset,
    image_of,
    index_within,
    is_below,
    is_partial_copy,
    pool_of,
    sibling_prefix,
    within,
)
from .reservation import PoolGeometry

_FLEXIBLE = re.compile(r"\A[1-9][0-9]{0,11}\Z")


@dataclass(frozen=True)
class Host:
    """Everything that one run reads of its host."""

    # VMs of the brand that we manage.
    vms: t.Tuple[Vm, ...]
    datasets: t.Mapping[str, Dataset]
    geometry: t.Mapping[str, PoolGeometry]
    detached: t.Tuple[Disk, ...] = ()
    # The other VMs, which are only counted.
    other_brands: t.Tuple[VmConfig, ...] = ()
    unlinked: t.Tuple[VmConfig, ...] = ()
    # Names of the volumes that have the same disk uuid, by that uuid.
    duplicates: t.Mapping[str, t.Sequence[str]] = field(default_factory=dict)
    # Which VMs use a volume.
    usage: usage.Usage = field(default_factory=usage.Usage, compare=False)
    # Intents by pool and VM. None where one cannot be read.
    intents: t.Mapping[t.Tuple[str, str], t.Optional[Intent]] = field(default_factory=dict)
    # The host's own name, as intents have it.
    name: str = ""
    # Records of moves, by the uuid of the VM.
    moves: t.Mapping[str, moves.Move] = field(default_factory=dict)
    # The UUIDs of all VMs, also of those that this task does not read.
    known: t.FrozenSet[str] = frozenset()

    @property
    def configs(self) -> t.Tuple[VmConfig, ...]:
        """The configurations of all VMs."""
        return (*(vm.config for vm in self.vms), *self.other_brands, *self.unlinked)

    def available(self, pool: str) -> int:
        """Return the bytes that are available in the pool."""
        return self.datasets[pool].available

    def reads(self, volume: str) -> bool:
        """Whether this task has read the pool of a volume. The volumes of other pools are unknown to it."""
        return pool_of(volume) in self.geometry


_UNKNOWN_FORM = "the hypervisor describes it in a form that is not supported"


def unlinked_reason(config: VmConfig) -> str:
    """Return why this collection cannot manage a VM without a dataset."""
    if config.unsupported:
        return config.unsupported
    if config.identity_in_zfs:
        return f"not adopted: it has no dataset {config.dataset or f'POOL/{config.uuid}'}"
    return f"no dataset {config.dataset}" if config.dataset else _UNKNOWN_FORM


def _image_size(volume: Dataset, datasets: t.Mapping[str, Dataset]) -> int:
    """Return the size in MiB of the image that a volume is a clone of, 0 for none."""
    origin = datasets.get(volume.origin) if image_of(volume.origin) else None
    return origin.volsize // MIB if origin is not None else 0


def made_from(volume: Dataset) -> str:
    """Return the image that a volume is a clone of, or was before its VM moved; "" for none."""
    known = volume.user.get("image", "")
    return image_of(volume.origin) or (known if identity.is_uuid(known) else "")


def completed(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> VmConfig:
    """Return the configuration with what only ZFS stores.

    For every hypervisor: the failover setting. If the identity is in ZFS: also the dataset of the VM, its
    flexible_disk_size, and the uuids of its disks, as far as their serials agree with the volumes.
    """
    if config.prefixes:  # without a dataset of its own, the VM has nothing but its disks
        config = replace(config, disks=tuple(_known(config, entry, datasets) for entry in config.disks))
        config = replace(config, flexible_disk_size=config.record.flexible_disk_size if config.record else None)
        return _without_own_waiting(config, datasets) if config.waiting else config
    config = failover.with_failover_setting(config, datasets)
    if not config.identity_in_zfs:
        return config
    if not config.pool:
        dataset = find_vm_dataset(config.uuid, datasets)
        config = replace(config, dataset=dataset, pool=pool_of(dataset))
    root = datasets.get(config.dataset)
    stored = root.user.get(identity.FLEXIBLE, "") if root is not None else ""
    return replace(
        config,
        flexible_disk_size=int(stored) if _FLEXIBLE.match(stored) else None,
        indestructible=root is not None and root.user.get("indestructible") == "true",
        disks=tuple(_known(config, entry, datasets) for entry in _with_files(config, datasets)),
    )


def _without_own_waiting(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> VmConfig:
    """Return the VM as if what an interrupted run of ours has begun were not there; frozen by what others have begun.

    Ours gives a disk the serial that stands for the uuid of its volume, and the settings that this keeps, or takes a
    disk out. It is ours only if the journal has the run that was interrupted (engine/host/journal.py).
    """
    entries = {entry.volume: entry for entry in config.disks if entry.volume}
    volumes = {name: _volume(config, entry, datasets) for name, entry in entries.items()}
    ours = [
        one.volume for one in config.waiting if _may_be_ours(one, volumes.get(one.volume, datasets.get(one.volume)))
    ]
    if len(ours) < len(config.waiting):
        return replace(config, frozen=config.frozen or config.why_waiting)
    return usage.besides(config, ours)


def _may_be_ours(one: Waiting, volume: t.Optional[Dataset]) -> bool:
    if volume is None or one.leaves:
        return volume is not None
    kept = disk_element.decode(volume).text.split(",")
    return bool(_uuid(one.serial, volume)) and set(one.settings) <= set(kept)


def _known(config: VmConfig, entry: DiskConfig, datasets: t.Mapping[str, Dataset]) -> DiskConfig:
    return (
        replace(entry, uuid=_uuid(entry.serial, _volume(config, entry, datasets))) if _within(config, entry) else entry
    )


def _volume(config: VmConfig, entry: DiskConfig, datasets: t.Mapping[str, Dataset]) -> t.Optional[Dataset]:
    """Return the volume of a disk, with the identity that the record of the VM may have for it."""
    volume = datasets.get(entry.volume) if entry.volume else None
    return volume if volume is None else vm_record.with_identity(config, entry, volume)


def attached_disks(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> t.List[Disk]:
    """Return the disks of a VM without a dataset of its own, without their snapshots."""
    volumes = [(entry, _volume(config, entry, datasets)) for entry in config.disks]
    return [attached_disk(config, entry, entry.pci_slot, v, 0) for entry, v in volumes if v is not None and v.backs]


def _with_files(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> t.Tuple[DiskConfig, ...]:
    """Return the configuration's disks with the datasets of files. Only ZFS knows the dataset of the uuid in a path."""
    if not any(identity.disk_in(entry.path) for entry in config.disks):
        return config.disks
    places = files(d for d in datasets.values() if is_below(d.name, config.dataset))
    return tuple(replace(e, volume=places.get(identity.disk_in(e.path), e.volume)) for e in config.disks)


def files(datasets: t.Iterable[Dataset]) -> t.Dict[str, str]:
    """Return the datasets of disks that are files, by the uuids of the disks."""
    return {d.user["uuid"]: d.name for d in datasets if d.kind == "filesystem" and d.backs and d.user.get("uuid")}


def _within(config: VmConfig, entry: DiskConfig) -> bool:
    return within(config, entry.volume)


def _uuid(serial: str, volume: t.Optional[Dataset]) -> str:
    """Return the uuid that a serial stands for: the volume's own, or the one that it would get; "" for any other."""
    user = released_identity.effective_properties(volume) if volume is not None else {}
    known = [user.get("uuid", ""), identity.uuid_of(volume.guid)] if volume is not None else []
    return next((u for u in known if identity.is_uuid(u) and identity.serial_of(u) == serial), "")


def own_uuid(config: VmConfig, entry: DiskConfig, volume: Dataset) -> str:
    """Return the uuid that is known of an attached disk without the properties of its volume, "" for none."""
    return _uuid(entry.serial, replace(volume, user={})) if config.identity_in_zfs else entry.uuid


def may_have_uuid(entry: DiskConfig, uuid: str) -> bool:
    """Whether the configuration of a disk does not contradict this uuid."""
    if entry.uuid:
        return entry.uuid == uuid
    return not serial_shown(entry) or identity.serial_of(uuid) == entry.serial


def serial_shown(entry: DiskConfig) -> bool:
    """Whether the serial can be the beginning of a uuid."""
    return identity.is_serial(entry.serial)


class _Tree:
    """Children and snapshots by dataset, so that the time to link many VMs grows only linearly."""

    def __init__(self, datasets: t.Iterable[Dataset]) -> None:
        self.children: t.Dict[str, t.List[Dataset]] = {}
        self.snapshots: t.Dict[str, t.List[Dataset]] = {}
        for dataset in datasets:
            where = self.snapshots if dataset.kind == "snapshot" else self.children
            where.setdefault(dataset.parent, []).append(dataset)
        self.partial_copies = self._partial_copies()
        self._siblings: t.Dict[str, t.List[Dataset]] = {}

    def _partial_copies(self) -> t.Dict[str, str]:
        """Return the partial copies that interrupted conversions have left, by the name of the original.

        The original is destroyed when the copy is complete. So a copy without an original is the disk itself.
        """
        every = [d for children in self.children.values() for d in children]
        copies = [d for d in every if d.parent == container(d.pool) and d.user.get("from")]
        wholes = {str(d.guid): d for d in every if d.backs} if copies else {}
        pairs = [(wholes[d.user["from"]], d) for d in copies if d.user["from"] in wholes]
        return {original.name: copy.name for original, copy in pairs if is_partial_copy(original, copy)}

    def below(self, name: str) -> t.Iterator[Dataset]:
        """Everything below a dataset, however deep."""
        for child in self.children.get(name, ()):
            yield child
            yield from self.below(child.name)

    def of_vm(self, config: VmConfig) -> t.Iterator[Dataset]:
        """Everything that a VM has in the pool: what lies below its dataset, or what is called after it."""
        if not config.prefixes:
            yield from self.below(config.dataset)
            return
        if not self._siblings:
            for volume in (one for children in self.children.values() for one in children if one.kind == "volume"):
                self._siblings.setdefault(sibling_prefix(volume.name), []).append(volume)
        for prefix in config.prefixes:
            yield from self._siblings.get(prefix, ())

    def of(self, name: str) -> t.Dict[str, t.Any]:
        """Return the fields snapshots, guarded and partial_copy of a Disk with this volume."""
        every = sorted(self.snapshots.get(name, ()), key=lambda s: s.createtxg)
        snapshots = tuple(s for s in every if not s.name.endswith("@" + identity.GUARD_SNAPSHOT))
        return {
            "snapshots": snapshots,
            "guarded": len(snapshots) < len(every),
            "partial_copy": self.partial_copies.get(name, ""),
        }


def _fields_of(volume: Dataset, user: t.Mapping[str, str], **known: t.Any) -> t.Dict[str, t.Any]:
    """Return the fields of a Disk from its properties. `known`, which the hypervisor reports, overrides them."""
    name = user.get("name", "")
    uuid = user.get("uuid", "")
    fields: t.Dict[str, t.Any] = {
        "uuid": uuid if identity.is_uuid(uuid) else "",
        "name": name if identity.DISK_NAME.match(name) else "",
        "boot": user.get("boot") == "true",
        "model": user.get("model", ""),
        "pci_slot": slots.valid(user.get("slot", "")),
        "user_properties": disk_properties.decoded(user),
        "remaining": user.get("remaining", ""),
        "image": made_from(volume),
        "element": disk_element.decode(volume),
    }
    fields.update(known)
    return fields


def attached_disk(
    config: VmConfig, entry: DiskConfig, slot: str, volume: Dataset, image_size: int, **known: t.Any
) -> Disk:
    """Return a disk that a VM has. slot: where the guest sees it, configured or not."""
    known = {
        **known,
        "boot": entry.boot,
        "model": entry.model,
        "pci_slot": slot,
        "image_size": entry.image_size or image_size,
        "path": entry.path,
        "address": config.pci.addresses.get(slot, ""),
        "element": entry.element,
    }
    if entry.uuid or serial_shown(entry):
        known["uuid"] = entry.uuid
    user = released_identity.effective_properties(volume, lambda uuid: may_have_uuid(entry, uuid))
    return Disk(
        volume=volume,
        vm=config.uuid,
        index=index_within(config, volume.name),
        hidden=entry.path in config.hidden_paths,
        **_fields_of(volume, user, **known),
    )


def detached_disk(volume: Dataset, image_size: int, **known: t.Any) -> Disk:
    """Return a disk that no VM has, from the properties of its volume."""
    vm = volume.user.get("vm", "")
    return Disk(
        volume=volume,
        vm=vm if identity.is_uuid(vm) else "",
        index=identity.decode_index(volume.user.get("index", "")),
        image_size=image_size,
        detached=True,
        **_fields_of(volume, released_identity.effective_properties(volume), **known),
    )


def _without_dataset(config: VmConfig, datasets: t.Mapping[str, Dataset]) -> Dataset:
    """Return what stands for the dataset of a VM that has none: what its new volumes inherit, and nothing else."""
    place = config.new_disks.prefix.rpartition("/")[0] if config.new_disks is not None else ""
    above = datasets.get(place, Dataset(place, ""))
    return Dataset(config.dataset, "", compression=above.compression, encryptionroot=above.encryptionroot)


def _link_vm(
    config: VmConfig,
    datasets: t.Mapping[str, Dataset],
    tree: _Tree,
    detached: t.Tuple[Disk, ...],
    pools: t.Collection[str],
    used: usage.Usage,
) -> Vm:
    """Return the VM with its volumes. pools: those that were read. used: the users of all volumes."""
    root = datasets[config.dataset] if not config.prefixes else _without_dataset(config, datasets)
    disks, missing, strays, unread, unbacked = [], [], [], [], []
    positions = slots.positions(config.disks, config.pci)
    for entry in config.disks:
        volume = _volume(config, entry, datasets)
        if config.identity_in_zfs and entry.volume and not _within(config, entry):
            strays.append(entry.path)
        elif volume is not None and volume.backs:
            image_size = _image_size(volume, datasets)
            slot = positions[entry.path]
            disks.append(attached_disk(config, entry, slot, volume, image_size, **tree.of(volume.name)))
        elif entry.volume and entry.media == "disk" and pool_of(entry.volume) not in pools:
            unread.append(entry.path)
        elif entry.volume and entry.media == "disk":
            missing.append(entry.path)
        else:
            unbacked.append(entry)
    known = {d.volume.name for d in disks}
    siblings = {child.name for child in tree.of_vm(config)} | used.within(config.prefixes) if config.prefixes else set()
    orphans, other_used, below = [], 0, []
    for child in tree.of_vm(config):
        if config.prefixes and used.of(child.name):
            continue  # a disk of a VM, whoever it is called after, or one that is left alone
        if child.backs and child.name not in known:
            user = released_identity.effective_properties(child)
            index, image_size = index_within(config, child.name), _image_size(child, datasets)
            fields = _fields_of(child, user, index=index, image_size=image_size)
            if config.prefixes and fields["name"] and not fields["uuid"]:  # it left its VM by hand
                fields["uuid"] = identity.uuid_of(child.guid)
            orphans.append(Disk(volume=child, vm=config.uuid, **fields, **tree.of(child.name)))
            # One that lies deeper is part of a file system's figure, too.
            other_used -= child.used if child.parent != root.name else 0
        elif child.kind == "filesystem" and not child.backs:
            other_used += child.used if child.parent == root.name else 0
            below += tree.of(child.name)["snapshots"]
    known |= {orphan.volume.name for orphan in orphans}
    overlaid, doubted = usage.hidden_use(config, used, orphans)
    return Vm(
        config=replace(config, frozen=config.frozen or overlaid),
        root=root,
        disks=tuple(sorted(disks, key=lambda d: (d.index, d.volume.name))),
        orphans=tuple(orphans),
        detached=detached,
        beside=tuple(_beside(config, datasets, tree, known)),
        siblings=frozenset(siblings),
        snapshots=tree.of(root.name)["snapshots"],
        other_used=other_used,
        unbacked=tuple(unbacked),
        missing=tuple(missing),
        strays=tuple(strays),
        unread=tuple(unread),
        pools={name: datasets[name].guid for name in pools} if config.prefixes else {},
        overlaid=overlaid,
        doubted=doubted,
        snapshots_below=tuple(below),
    )


def _beside(
    config: VmConfig, datasets: t.Mapping[str, Dataset], tree: _Tree, known: t.Container[str]
) -> t.Iterator[Disk]:
    """Yield volumes that snapshots of a VM have. known: those of its disks and orphans."""
    keys = {volume: key for key, volume in config.snapshotted.items()}
    for name in sorted({*keys, *(volume for one in config.snapshots for volume in one.volumes)}):
        volume = datasets.get(name)
        if name not in known and volume is not None and volume.backs:
            yield Disk(volume=volume, vm=config.uuid, index=0, name=keys.get(name, name), **tree.of(name))


def link(
    configs: t.Iterable[VmConfig],
    datasets: t.Sequence[Dataset],
    geometry: t.Mapping[str, PoolGeometry],
    brand: str,
    elsewhere: t.Iterable[VmConfig] = (),
) -> Host:
    """Return the Host, from one read of the hypervisor and one of ZFS. A VM without a dataset is not linked.

    elsewhere: VMs that count only as users of volumes.
    """
    by_name = {d.name: d for d in datasets}
    tree = _Tree(datasets)
    detached: t.Dict[str, t.List[Disk]] = {}
    for pool in geometry:
        for volume in tree.children.get(container(pool), ()):
            if volume.backs and volume.name not in tree.partial_copies.values():
                disk = detached_disk(volume, _image_size(volume, by_name), **tree.of(volume.name))
                detached.setdefault(disk.vm, []).append(disk)
    vms, others, unlinked = [], [], []
    known = moves.find(datasets)
    ours = [_frozen(completed(config, by_name), known, by_name) for config in configs]
    everyone = (*elsewhere, *ours)
    used = usage.Usage(everyone, files(datasets))
    for config in ours:
        if config.brand != brand:
            others.append(config)
        elif config.unsupported or (config.dataset not in by_name and not config.prefixes):
            unlinked.append(config)
        else:
            mine = tuple(detached.get(config.uuid, ()))
            vms.append(_link_vm(config, by_name, tree, mine, geometry, used))
    everywhere = tuple(disk for disks in detached.values() for disk in disks)
    shared = duplicates(vms, everywhere)
    vms = [replace(v, sharers=usage.sharers(v.config, used), ran=v.config.state == "running") for v in vms]
    made = (tuple(vms), by_name, geometry, everywhere, tuple(others), tuple(unlinked), shared, used)
    return Host(*made, moves=known, known=frozenset(config.uuid for config in everyone))


def _frozen(config: VmConfig, known: t.Mapping[str, moves.Move], datasets: t.Mapping[str, Dataset]) -> VmConfig:
    move = known.get(config.uuid)
    why = identity.blank_in(config.pool)
    if move is not None:
        memory = moves.has_memory(move, datasets, [config.pool])
        why = moves.why_frozen(move, memory)
        why += "; its guest stands still until then" if moves.stands_still(move, config.state) else ""
    return replace(config, frozen=why) if why else config


def moved_in(host: Host, uuid: str, coming: t.Sequence[Disk] = ()) -> Host:
    """Return the host for the task that creates a VM from another host. coming: its disks, as if detached."""
    known = {vm: move for vm, move in host.moves.items() if vm != uuid}
    vms = tuple(_thawed(vm, coming) if vm.config.uuid == uuid else vm for vm in host.vms)
    unlinked = tuple(replace(c, frozen="") if c.uuid == uuid else c for c in host.unlinked)
    there = {**host.datasets, **{disk.volume.name: disk.volume for disk in coming}}
    detached = (*host.detached, *coming)
    return replace(host, vms=vms, unlinked=unlinked, moves=known, detached=detached, datasets=there)


def without(host: Host, uuid: str) -> Host:
    """Return the host as if the hypervisor did not know the VM with this uuid. Its datasets are still there."""
    vms = tuple(vm for vm in host.vms if vm.config.uuid != uuid)
    return replace(host, vms=vms, unlinked=tuple(config for config in host.unlinked if config.uuid != uuid))


def _thawed(vm: Vm, coming: t.Sequence[Disk]) -> Vm:
    return replace(vm, config=replace(vm.config, frozen=""), detached=(*vm.detached, *coming))


def duplicates(vms: t.Iterable[Vm], detached: t.Iterable[Disk]) -> t.Dict[str, t.List[str]]:
    """Return the uuids that are on more than one volume, with the names of these volumes."""
    places: t.Dict[str, t.List[str]] = {}
    for disks in [detached, *(vm.disks + vm.orphans for vm in vms)]:
        for disk in disks:
            if disk.uuid:
                places.setdefault(disk.uuid, []).append(disk.volume.name)
    return {uuid: sorted(volumes) for uuid, volumes in places.items() if len(volumes) > 1}
