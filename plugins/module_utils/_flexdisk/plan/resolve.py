# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Resolve a VM's declaration: a target for each entry, with its size and slot, and the disks that leave the VM."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ..model.capabilities import Capabilities
from ..model.dataset import RECORD, Dataset
from ..model.desired import DiskDeclaration, VmDisksDeclaration
from ..model.errors import FlexdiskError, Problems
from ..model.sizes import MIB, render_apart, render_exact, render_mib
from ..model.vm import FILE, SPARSE, THICK, Disk, NewDisks, Pci, Vm
from ..rules import exchange, identity, slots, space
from ..rules.differences import birth_differences, in_conversion
from ..rules.inventory import Host
from ..rules.layout import final, image_dataset
from ..rules.matching import Match
from ..rules.reservation import default_block_size
from ..rules.unmanaged import former_vm, of_former_vm
from .predict import unguarded
from .unseen import given_up


@dataclass
class Target:
    """What the disk of an entry should be."""

    spec: DiskDeclaration
    # None for a new disk.
    disk: t.Optional[Disk] = None
    # MiB.
    size: int = 0
    slot: str = ""
    model: str = ""
    # What size=remaining was computed from; "" for another size.
    basis: str = ""
    block_size: int = 0
    origin: t.Optional[Dataset] = None
    image_size: int = 0
    # The entry declares a size.
    managed: bool = True
    type: str = THICK
    # The type that the disk has now, and keeps if the entry declares none.
    current_type: str = THICK
    # The uuid of a new disk, "" if it is chosen later.
    uuid: str = ""
    # The disk that this one replaces: it differs in what is fixed at birth, or it is the boot disk that is exchanged
    # for an earlier one.
    replaces: t.Optional[Disk] = None

    @property
    def replaces_another(self) -> bool:
        """Whether the disk replaces another one."""
        return self.replaces is not None

    @property
    def bytes(self) -> int:
        """The wanted size in bytes. It may be no whole MiB if the disk stays and its size is not managed."""
        return self.disk.size if self.stays and self.disk and not self.managed else self.size * MIB

    @property
    def label(self) -> str:
        return self.spec.name or (self.disk.label if self.disk else self.spec.label)

    @property
    def stays(self) -> bool:
        """Whether the VM has the disk attached and keeps it."""
        return self.disk is not None and not self.disk.detached and bool(self.disk.path)


@dataclass(frozen=True)
class Leaver:
    """A disk that leaves its VM."""

    disk: Disk
    # The disk is destroyed, else detached with its data.
    destroy: bool
    # Its snapshots may be destroyed with it.
    snapshots: bool = False
    # It loses its name, which another disk has or gets.
    nameless: bool = False
    # Snapshots on hold may be destroyed with it, too.
    release_holds: bool = False
    # Clones of its snapshots that are destroyed before it.
    clones: t.FrozenSet[str] = frozenset()
    # Another disk replaces it.
    replaced: bool = False
    # It becomes a replica: the VM moves to another host.
    becomes_replica: bool = False

    @property
    def moves(self) -> bool:
        """Whether its volume is renamed out of the VM."""
        return bool(self.disk.path) or not (self.destroy or self.disk.detached)


@dataclass
class Resolved:
    """What the declaration of a VM means."""

    vm: Vm
    # The stored flexible_disk_size in MiB.
    flexible: t.Optional[int]
    # Bytes.
    quota: int
    targets: t.List[Target]
    leavers: t.List[Leaver]
    # Disks that stay although no entry lists them.
    unlisted: t.List[Disk]
    # The VM is to be created.
    new: bool = False
    # Disks that only the record of the VM knows, and that the task gives up: their names by their serials.
    given_up: t.Mapping[str, str] = field(default_factory=dict)
    # The pools that are built as the one that the VM boots from.
    pools_alike: t.FrozenSet[str] = frozenset()


def resolve(
    vm: Vm, spec: VmDisksDeclaration, match: Match, host: Host, capabilities: Capabilities, problems: Problems
) -> Resolved:
    """Return the targets and leavers of one VM. Problems are added to problems."""
    flexible = vm.config.flexible_disk_size
    if spec.flexible_disk_size is not None:
        flexible = spec.flexible_disk_size + vm.hidden_mib
    min_quota = 0 if capabilities.keeps_storage or vm.config.prefixes else capabilities.quota_unit
    resolved = Resolved(vm, flexible, spec.quota or vm.root.refquota or min_quota, [], [], [])
    for entry, disk in match.pairs:
        _pair(resolved, entry, disk, host, capabilities, problems)
    for entry in match.creates:
        resolved.targets.append(_new(vm, entry, host, capabilities, problems))
    position = {id(entry): number for number, entry in enumerate(spec.disks or ())}
    resolved.targets.sort(key=lambda target: position[id(target.spec)])
    _boot_disk_back(resolved, match)
    built = host.geometry.get(vm.config.pool)
    resolved.pools_alike = frozenset(pool for pool, geometry in host.geometry.items() if geometry == built)
    resolved.given_up = given_up(vm, spec, match)
    _unlisted(resolved, spec, match, problems)
    _detach_orphans(resolved, spec, match)
    _slots(resolved, capabilities, problems)
    _remaining(resolved, problems)
    return resolved


def creation_interrupted(disk: Disk) -> bool:
    """Whether the disk's creation was interrupted. Its data is complete; its size and reservation may not be set."""
    return disk.volume.user.get("from") == identity.IMPORTING


def unfinished_disk_text(label: str) -> str:
    """Return the message about a disk whose creation was interrupted."""
    return f"the creation of {label} was interrupted; state=present of flexdisk.hypervisor.disk ends it"


def _pair(
    resolved: Resolved, entry: DiskDeclaration, disk: Disk, host: Host, capabilities: Capabilities, problems: Problems
) -> None:
    if not entry.present:
        resolved.leavers.append(Leaver(disk, True, entry.destroy_snapshots))
        return
    held = exchange.why_held(host.vms, disk) if disk.detached else ""
    if held:
        problems.add("InUse", f"{disk.volume.name}: {held}", entry.label)
    if disk.detached and creation_interrupted(disk):
        problems.add("InUse", unfinished_disk_text(disk.volume.name), entry.label)
    fixed = birth_differences(entry, disk)
    if fixed and not entry.recreate:
        action = "detaches" if disk.preserve or disk.boot or entry.boot else "destroys"
        for name, (now, wanted) in fixed.items():
            problems.add(
                "FixedAtBirth",
                f"{name} is {now} and cannot become {wanted}; recreate: true makes a new disk and {action} this one",
                entry.label,
            )
    elif fixed and entry.uuid:
        problems.add(
            "InvalidArgument",
            "recreate: true makes a disk with another uuid, which this entry would not find again; list it by name",
            entry.label,
        )
    elif fixed and _why_not_recreated(resolved.vm, entry, disk):
        problems.add("InvalidArgument", _why_not_recreated(resolved.vm, entry, disk), entry.label)
    elif fixed:
        # A boot disk is kept until the new one is known to boot. After an interruption, only the entry shows that it
        # was the boot disk.
        destroy = not (disk.preserve or entry.boot)
        resolved.leavers.append(Leaver(disk, destroy, entry.destroy_snapshots, nameless=True, replaced=True))
        resolved.targets.append(_new(resolved.vm, entry, host, capabilities, problems))
        resolved.targets[-1].replaces = disk
        return
    size = -(-disk.size // MIB) if entry.size is None else entry.size
    managed = entry.size is not None or entry.remaining
    basis = disk.remaining if entry.remaining else ""
    current = current_type(disk, capabilities)
    resolved.targets.append(
        Target(entry, disk, size, basis=basis, managed=managed, type=entry.type or current, current_type=current)
    )


def _why_not_recreated(vm: Vm, entry: DiskDeclaration, disk: Disk) -> str:
    """Return why a boot disk, or one that should become it, is not recreated; "" if it may be."""
    boots = disk.boot and (bool(disk.path) or in_conversion(vm, disk))
    if boots and not entry.boot:
        return (
            "recreate: true makes a boot disk anew only with boot: true, by which a second run knows it if this one is "
            "interrupted"
        )
    if entry.boot and disk.path and not disk.boot:
        return "is a data disk, and recreate: true with boot: true would make a boot disk of it; name the boot disk"
    if entry.boot and entry.image is None:
        return "recreate: true makes a boot disk anew only from an image; without one, it would be empty"
    return ""


def new_uuid(host: Host, *seed: object) -> str:
    """Return a uuid for a new disk, computed from seed: always the same as long as no disk has it."""
    everywhere = (*host.detached, *(d for vm in host.vms for d in vm.disks + vm.orphans))
    taken = {disk.uuid for disk in everywhere}
    return next(u for u in (identity.uuid_for(*seed, attempt) for attempt in range(len(taken) + 1)) if u not in taken)


def current_type(disk: Disk, capabilities: Capabilities) -> str:
    """Return the type that a disk has. An orphan without a reservation counts as sparse only if its facts say so,
    because a clone gets its reservation only after its creation.
    """
    left = not (disk.path or disk.detached)
    kind = disk.volume.user.get("type", THICK) if left and disk.type == SPARSE else disk.type
    return kind if kind in (*capabilities.types, FILE) else THICK


def missing_image(pool: str, image: str, capabilities: Capabilities) -> str:
    """Return the message that an image is not in the pool, and how to import it."""
    volume = image_dataset(pool, image)
    text = f"image {image} is missing: there is no {final(volume)}"
    if "image_file" not in capabilities.new_vm_options:
        return f"{text}; imgadm import -P {pool} {image} on the host brings it"
    text += ". A new VM imports it from a raw or qcow2 file on the host that image_file names beside image. Or make it"
    text += (
        f" once: zfs create -s -V SIZE {volume}; qemu-img convert -n -O raw FILE {capabilities.device_prefix}{volume}"
    )
    return f"{text}; zfs snapshot {final(volume)}"


def _new(vm: Vm, entry: DiskDeclaration, host: Host, capabilities: Capabilities, problems: Problems) -> Target:
    usual = vm.config.new_disks or NewDisks("", THICK)
    block_size, kind = entry.block_size or usual.block_size, entry.type or usual.type
    target = Target(entry, None, entry.size or 0, block_size=block_size, type=kind)
    if entry.type == FILE:
        # The path of a file has the uuid, so the uuid must be known before.
        target.uuid = new_uuid(host, vm.config.uuid, FILE, entry.name)
        target.block_size = RECORD
    if entry.image is not None:
        volume = image_dataset(vm.config.pool, entry.image)
        name = final(volume)
        target.origin, image = host.datasets.get(name), host.datasets.get(volume)
        if target.origin is None or image is None or not image.volsize:
            problems.add("ResourceNotFound", missing_image(vm.config.pool, entry.image, capabilities), entry.label)
            return target
        target.image_size = image.volsize // MIB
        target.size = entry.size or (0 if entry.remaining else target.image_size)
        target.block_size = image.volblocksize
        if entry.size is not None and entry.size < target.image_size:
            declared, required = render_apart(entry.size * MIB, target.image_size * MIB)
            problems.add(
                "InvalidArgument",
                f"size {declared} is too small: image {entry.image} has {required}",
                entry.label,
            )
    elif entry.size is None and not entry.remaining:
        problems.add("MissingParameter", "a new disk needs a size or an image", entry.label)
    target.block_size = target.block_size or default_block_size(
        host.geometry[vm.config.pool], platform=capabilities.platform
    )
    return target


def former_boots(vm: Vm) -> t.List[Disk]:
    """Return the boot disk that an interrupted run has detached, but not yet removed from the configuration."""
    gone = {entry.uuid for entry in vm.config.disks if entry.boot and entry.path in vm.ghosts}
    return [disk for disk in vm.detached if disk.uuid in gone and disk.name]


def _boot_disk_back(resolved: Resolved, match: Match) -> None:
    """Exchange the boot disk for a detached disk of this VM, if an entry with its uuid has boot and recreate."""
    vm = resolved.vm
    going = [d for d in vm.disks if d.boot] + former_boots(vm)
    boots = next((d for d in going if not any(d is disk for _entry, disk in match.pairs)), None)
    if boots is None:
        return
    for target in resolved.targets:
        spec, disk = target.spec, target.disk
        if spec.uuid and spec.boot and spec.recreate and any(disk is other for other in vm.detached):
            resolved.leavers.append(Leaver(boots, False, nameless=True, replaced=True))
            target.replaces = boots
            return


def _unlisted(resolved: Resolved, spec: VmDisksDeclaration, match: Match, problems: Problems) -> None:
    listed = [disk for _entry, disk in match.pairs]
    resolved.unlisted += [d for d in resolved.vm.disks if d.boot and not any(d is other for other in listed)]
    for disk in match.unlisted:
        if spec.unlisted == "keep":
            resolved.unlisted.append(disk)
        elif spec.unlisted == "detach" or (spec.unlisted == "destroy" and disk.preserve):
            resolved.leavers.append(Leaver(disk, False))
        elif spec.unlisted == "destroy" and former_vm(resolved.vm, disk):
            text = f"unlisted=destroy, but {of_former_vm(resolved.vm, disk)}; list it with state=absent to destroy it"
            problems.add("InvalidArgument", text, disk.label)
        elif spec.unlisted == "destroy" and disk.adopted:
            resolved.leavers.append(Leaver(disk, True))
        elif spec.unlisted == "destroy":
            problems.add(
                "InvalidArgument",
                f"unlisted=destroy, but {disk.path} ({render_mib(disk.size_mib)}, uuid {disk.uuid}) has "
                "no identity from an earlier run; list it with state=absent "
                "to destroy it",
                disk.label,
            )
        else:
            problems.add(
                "UnlistedDisk",
                f"{disk.path} ({render_mib(disk.size_mib)}, uuid {disk.uuid}) is attached but not "
                "listed; list it, or choose unlisted=keep, detach or destroy",
                disk.label,
            )


def _detach_orphans(resolved: Resolved, spec: VmDisksDeclaration, match: Match) -> None:
    """Orphans that no entry declares are detached, never destroyed.

    Only an orphan's own properties say that it is ours. It loses its name if another disk has got that name meanwhile.
    """
    if spec.unlisted not in ("detach", "destroy"):
        return
    names = {target.label for target in resolved.targets} | {d.name for d in resolved.vm.disks + resolved.vm.detached}
    for disk in match.orphans:
        resolved.leavers.append(Leaver(disk, False, nameless=disk.name in names))
        names.add(disk.name)


def _model(vm: Vm, target: Target, capabilities: Capabilities) -> str:
    """The declared model, else that of the disk, or of the one that it replaces, else that of the VM's first disk."""
    disk = target.disk or target.replaces
    bus = slots.bus_of(target.spec.pci_slot or "")
    if bus and not target.spec.model:
        return bus
    if target.spec.model or (target.stays and disk is not None):
        return target.spec.model or (disk.model if disk else "")
    possible = vm.config.models or capabilities.models
    others = sorted(vm.disks, key=lambda d: not d.boot) if vm.config.prefixes else vm.disks
    known = [d.model for d in ([disk] if disk else []) + list(others) if d.model in possible]
    return known[0] if known else possible[0]


def _slots(resolved: Resolved, capabilities: Capabilities, problems: Problems) -> None:
    """A declared slot is given or refused, a disk keeps the slot that it has, and the rest get free ones."""
    taken, pci = _standing_slots(resolved), resolved.vm.config.pci
    waiting = []
    for target in resolved.targets:
        target.model = _model(resolved.vm, target, capabilities)
        had = target.disk if target.stays else None
        if target.model in capabilities.slotless:
            if target.spec.pci_slot is not None:
                problems.add("InvalidArgument", f"model {target.model} has no pci_slot of its own", target.label)
            continue
        bus = slots.bus_of(target.spec.pci_slot or "")
        if bus not in ("", target.model):
            text = f'pci_slot "{target.spec.pci_slot}" is no place for a disk of model {target.model}'
            problems.add("InvalidArgument", text, target.label)
            continue
        if target.spec.pci_slot is not None:
            target.slot = target.spec.pci_slot
        elif had is not None and had.model not in capabilities.slotless:
            target.slot = had.pci_slot
            continue
        else:
            waiting.append(target)
            continue
        slot = slots.parse_slot(target.slot)
        owner = taken.get(slot)
        if owner is not None and owner != _key(target):
            problems.add("InvalidArgument", f'pci_slot "{target.slot}" belongs to {owner}', target.label)
        taken[slot] = _key(target)
    remembered = [_remembered(target.disk or target.replaces, resolved.vm) for target in waiting]
    lost = slots.unseen({*taken, *(slots.parse_slot(text) for text in remembered if text)}, pci)
    # A slot that a disk had is given before others choose.
    for target, text in sorted(zip(waiting, remembered), key=lambda pair: not pair[1]):
        try:
            slot = _arrival_slot(text, taken, lost, _of_model(pci, target.model), capabilities)
            target.slot = slots.render_slot(slot)
            taken[slot] = _key(target)
        except FlexdiskError as exc:
            problems.add(exc.code, exc.message, target.label)


def _remembered(disk: t.Optional[Disk], vm: Vm) -> str:
    """Return the slot that a disk had, or "". Where slots are strict, that of another VM must be a candidate."""
    if disk is None:
        return ""
    pci = vm.config.pci
    return disk.pci_slot if not pci.strict or disk.vm == vm.config.uuid or disk.pci_slot in pci.candidates else ""


def _of_model(pci: Pci, model: str) -> Pci:
    """Return the slots for disks of a model: all PCI addresses, and places on the bus of this name."""
    fit = tuple(slot for slot in pci.candidates if slots.bus_of(slot) in ("", model))
    return replace(pci, candidates=fit) if len(fit) < len(pci.candidates) else pci


def _arrival_slot(
    remembered: str,
    taken: t.Mapping[slots.Slot, str],
    lost: t.Set[slots.Slot],
    pci: Pci,
    capabilities: Capabilities,
) -> slots.Slot:
    """Return the slot that a disk had, if free and seen by guests; else the first free one of those preferred."""
    if remembered:
        slot = slots.parse_slot(remembered)
        if slot not in taken and slot not in lost and not slots.obstacle(slot, pci):
            return slot
    return slots.allocate(set(taken), slots.preferred(pci), alone_on_device=capabilities.functions_per_slot == 1)


def _key(target: Target) -> str:
    return target.disk.path if target.stays and target.disk is not None else "the entry " + target.label


def _standing_slots(resolved: Resolved) -> t.Dict[slots.Slot, str]:
    """Return slots of the disks that stay where they are, legacy positions included, with the path of each disk."""
    leaving = {leaver.disk.path for leaver in resolved.leavers}
    moving = {g.disk.path for g in resolved.targets if g.stays and g.disk and g.spec.pci_slot is not None}
    gone = leaving | moving | set(resolved.vm.ghosts)
    places = slots.positions(resolved.vm.config.disks, resolved.vm.config.pci)
    return {slots.parse_slot(slot): path for path, slot in places.items() if slot and path not in gone}


def slots_after(resolved: Resolved) -> t.Tuple[t.Set[slots.Slot], t.Dict[slots.Slot, str]]:
    """Return the slots of the VM's disks as they are; and the slots as they will be, with the label of each disk."""
    config = resolved.vm.config
    labels = {disk.path: disk.label for disk in resolved.vm.disks}
    before = {path: slots.parse_slot(at) for path, at in slots.positions(config.disks, config.pci).items() if at}
    gone = {leaver.disk.path for leaver in resolved.leavers} | {
        g.disk.path for g in resolved.targets if g.stays and g.disk
    }
    after = {slot: labels.get(p, p) for p, slot in before.items() if p not in gone and p not in resolved.vm.ghosts}
    after.update({slots.parse_slot(target.slot): target.label for target in resolved.targets if target.slot})
    return set(before.values()), after


def staying_bytes(resolved: Resolved) -> int:
    """Return bytes that the VM's dataset holds in the end. A disk with size=remaining counts as it is (0 for a new
    one).

    Space that only the guards of an interrupted run hold does not count, because it goes with them.
    """
    leaving = {leaver.disk.volume.name for leaver in resolved.leavers}
    sized = {g.disk.volume.name: g for g in resolved.targets if g.disk is not None}
    coming = (g.disk for g in resolved.targets if g.disk is not None and g.disk.detached)
    left = (*(disk for disk in resolved.vm.disks if disk.volume.name not in leaving), *coming)
    total = space.root_excess(resolved.vm) + resolved.vm.other_used - space.beside(replace(resolved.vm, disks=left))
    for disk in resolved.vm.disks + resolved.vm.orphans:
        if disk.volume.name not in leaving:
            target = sized.get(disk.volume.name)
            total += unguarded(disk).volume.pinned + (target.bytes if target is not None else disk.size)
    for target in resolved.targets:
        if target.disk is None:
            total += target.size * MIB
        elif target.disk.detached:
            total += target.size * MIB + unguarded(target.disk).volume.pinned
    return total


def _remaining(resolved: Resolved, problems: Problems) -> None:
    for target in resolved.targets:
        if not target.spec.remaining:
            continue
        if resolved.flexible is None:
            continue
        others = _others(resolved, target)
        basis = f"{resolved.flexible}:{others}"
        disk = target.disk
        settled = disk is not None and (target.basis == basis or (not target.basis and not disk.adopted))
        target.managed = not settled
        if not settled:
            target.size += (resolved.flexible * MIB - staying_bytes(resolved)) // MIB
        target.basis = basis
        min_size = max(1, target.image_size)
        if target.size < min_size:
            lacking = f" and lacks {render_exact(-target.size)} besides" if target.size < 0 else ""
            problems.add(
                "InsufficientSpace",
                f"size=remaining leaves {render_exact(max(0, target.size))} of flexible_disk_size "
                f"{render_mib(resolved.flexible - resolved.vm.hidden_mib)}{lacking}; at least {min_size} "
                "MiB are needed",
                target.label,
            )


def _others(resolved: Resolved, target: Target) -> int:
    """The sum (MiB) of the later sizes of the VM's other disks. With F it is the basis of size=remaining."""
    leaving = {leaver.disk.volume.name for leaver in resolved.leavers}
    sized = {g.disk.volume.name for g in resolved.targets if g.disk is not None}
    total = sum(g.size for g in resolved.targets if g is not target)
    return total + sum(
        d.size_mib for d in resolved.vm.disks if d.volume.name not in leaving and d.volume.name not in sized
    )
