# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Steps for disks that stay: their properties, their size, their type, their place in the configuration."""

from __future__ import annotations

import typing as t

from ..model.dataset import RECORD
from ..model.sizes import render_change, render_mib
from ..model.vm import FILE, SPARSE, Disk, Vm
from ..rules import disk_properties, identity
from ..rules.differences import crosses, fact_changes
from ..rules.layout import copy_place, detached_place
from ..rules.reservation import PoolGeometry, automatic_reservation
from .disk_steps import (
    Convert,
    Copying,
    DiskEdit,
    EditDisks,
    Grow,
    ResizeDetached,
    SetCompression,
    Shrink,
    SyncFacts,
    WriteFacts,
    WriteIdentity,
)
from .resolve import Target
from .steps import Told
from .vm_steps import AddPorts

DEFAULT_BLOCK = 16384


# Any: the values of properties are of several types, and identity.facts() checks each.
def facts_of(disk: Disk, **changes: t.Any) -> t.Dict[str, str]:
    """The properties that describe the disk as the hypervisor and we see it, with changes."""
    fields: t.Dict[str, t.Any] = {
        "uuid": disk.uuid or disk.volume.user.get("uuid", ""),
        "name": disk.name,
        "vm": disk.vm,
        "index": disk.index,
        "slot": disk.pci_slot,
        "model": disk.model,
        "boot": disk.boot,
        "kind": disk.type,
        "own": {name: changes.pop(name, value) for name, value in disk_properties.completed(disk.own).items()},
        "remaining": disk.remaining,
    }
    fields.update(changes)
    return identity.facts(**fields)


def stale(disk: Disk, facts: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Of the facts those that the volume does not carry yet."""
    return {key: value for key, value in facts.items() if disk.volume.user.get(key, "") != value}


def unmarked(disk: Disk) -> t.Dict[str, str]:
    """What removes the mark that a conversion has left, from a disk that is where it shall be."""
    return {"from": "", "copied": ""} if identity.is_converting(disk.volume.user.get("from", "")) else {}


# -- properties


def write_identity(disk: Disk, target: Target) -> t.Optional[WriteFacts]:
    """What of the disk's own facts must be written; the volume's copy of the hypervisor's word silently."""
    changes = fact_changes(target.spec, disk)
    wanted = {key: value for key, (_now, value) in changes.items()}
    facts = facts_of(disk, remaining=target.basis if target.spec.remaining else "", **wanted)
    missing = stale(disk, {**facts, **(unmarked(disk) if disk.path else {})})
    if not missing:
        return None
    if disk.adopted and not changes:
        return SyncFacts(Told("", target.label), volume=disk.volume.name, facts=missing)
    told = Told(_identity_text(disk, target, changes), target.label)
    return WriteIdentity(told, volume=disk.volume.name, facts=missing)


def _identity_text(disk: Disk, target: Target, changes: t.Mapping[str, t.Tuple[object, object]]) -> str:
    if not disk.adopted:
        return f"= {target.label} adopted ({disk.volume.name} at {disk.pci_slot or 'legacy slot'})"
    words = [
        f"renamed from {now}" if key == "name" else f"{key} {_word(now)} -> {_word(wanted)}"
        for key, (now, wanted) in changes.items()
    ]
    return f"~ {target.label} {', '.join(words)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{key}={value[key]}" for key in sorted(value)) or "none"
    return repr(value) if value else "none"


def sync_facts(disk: Disk) -> t.Optional[SyncFacts]:
    """Bring an adopted disk's properties in line with the hypervisor."""
    missing = stale(disk, {**facts_of(disk), **unmarked(disk)}) if disk.adopted else {}
    return SyncFacts(Told("", disk.label), volume=disk.volume.name, facts=missing) if missing else None


# Any: as for facts_of().
def register(disk: Disk, changes: t.Mapping[str, t.Any], more: t.Mapping[str, str]) -> WriteIdentity:
    """Give an attached disk its identity; more are properties that do not describe it."""
    facts = facts_of(disk, **changes)
    again = " again" if more.get("serial_no") else ""
    text = f"= {facts['name']} adopted{again} ({disk.volume.name} at {disk.pci_slot or 'legacy slot'})"
    return WriteIdentity(Told(text, facts["name"]), volume=disk.volume.name, facts={**stale(disk, facts), **more})


def unname(disk: Disk) -> WriteIdentity:
    """A preserved disk that no VM has makes way for a new one of its name."""
    text = f"~ {disk.label} stays where it is without its name (uuid {disk.uuid})"
    facts = {"name": "", **stale(disk, unmarked(disk))}
    return WriteIdentity(Told(text, disk.label), volume=disk.volume.name, facts=facts)


# -- the configuration


def persist(vm: Vm, places: bool) -> t.Optional[EditDisks]:
    """Uuids for disks that an old vmadm gave none, and with places=True the slots where bhyve has put them so far.

    Without its slot written down a disk would move when another one is taken away. The uuid follows from the guid, so
    that it can be predicted.
    """
    edits, words = [], []
    configured = {entry.path: entry for entry in vm.config.disks}
    for disk in vm.disks:
        entry = configured[disk.path]
        lacks: t.Dict[str, t.Union[str, bool]] = {}
        if not (entry.uuid or disk.hidden or disk.disowned) and disk.volume.guid:
            lacks["uuid"] = disk.uuid or identity.uuid_of(disk.volume.guid)
        if places and not entry.pci_slot and disk.pci_slot:
            lacks["pci_slot"] = disk.pci_slot
        if lacks:
            edits.append(DiskEdit(disk.volume.name, disk.path, lacks))
            words.append(disk.label)
    if not edits:
        return None
    return EditDisks(Told(f"~ uuid and slot of {', '.join(words)} written down"), edits=tuple(edits))


def ports(numbers: t.Sequence[int]) -> t.Iterator[AddPorts]:
    """Root ports of these numbers, which follow each other."""
    if numbers:
        yield AddPorts(Told(f"+ {ports_text(numbers)}"), ports=tuple(numbers))


def ports_text(numbers: t.Sequence[int]) -> str:
    """The ports in words."""
    if len(numbers) == 1:
        return f"PCIe root port {numbers[0]}"
    return f"PCIe root ports {numbers[0]} to {numbers[-1]}"


# -- figures of ZFS


def grow(target: Target) -> t.Optional[Grow]:
    """The step if the disk is to be larger."""
    disk = t.cast(Disk, target.disk)
    if target.bytes <= disk.size:
        return None
    return Grow(
        _resize_told(target, disk),
        volume=disk.volume.name,
        path=disk.path,
        size_mib=target.size,
        guid=disk.volume.guid,
        type=target.type,
        snapshots=bool(disk.snapshots),
    )


def shrink(target: Target) -> t.Optional[Shrink]:
    """The step if the disk is to be smaller; it has its old type then."""
    disk = t.cast(Disk, target.disk)
    if target.bytes >= disk.size:
        return None
    return Shrink(
        _resize_told(target, disk),
        volume=disk.volume.name,
        path=disk.path,
        size_mib=target.size,
        guid=disk.volume.guid,
        type=target.kept,
        snapshots=bool(disk.snapshots),
    )


def resize_detached(target: Target) -> t.Optional[ResizeDetached]:
    """The step if a detached disk is to have another size."""
    resize = shrink(target) or grow(target)
    if resize is None:
        return None
    return ResizeDetached(
        resize.told, resize.volume, resize.path, resize.size_mib, resize.guid, resize.type, resize.snapshots
    )


def _resize_told(target: Target, disk: Disk) -> Told:
    text = f"~ {target.label} {render_change(disk.size, target.bytes)}"
    return Told(text, target.label, destroys=target.bytes < disk.size)


def convert(
    disk: Disk, wanted: str, geometry: PoolGeometry, label: str = "", block_size: int = DEFAULT_BLOCK, cold: str = ""
) -> t.Optional[Convert]:
    """The disk becomes one of another type. What becomes a file, or was one, must be detached: its data is copied.

    block_size (bytes) is that of a volume that was a file.
    """
    if disk.type == wanted:
        return None
    label = label or disk.label
    copying = _copying(disk, wanted, geometry, block_size) if crosses(wanted, disk) else None
    text = f"~ {label} {disk.type} -> {wanted}"
    if copying is not None:
        lost = f", {len(disk.snapshots)} snapshots DESTROYED" if disk.snapshots else ""
        text += f": {render_mib(disk.size_mib)} to copy{lost}"
    told = Told(text, label, destroys=copying is not None and bool(disk.snapshots), cold=cold)
    return Convert(told, volume=disk.volume.name, guid=disk.volume.guid, type=wanted, copying=copying)


def _copying(disk: Disk, wanted: str, geometry: PoolGeometry, block_size: int) -> Copying:
    block = RECORD if wanted == FILE else block_size
    spare = detached_place(disk)
    return Copying(
        uuid=disk.uuid or identity.uuid_of(disk.volume.guid),
        half=copy_place(spare) if disk.volume.name != copy_place(spare) else spare,
        block_size_bytes=block,
        compression=disk.volume.compression,
        snapshots=tuple(s.name.split("@", 1)[1] for s in disk.snapshots),
        beside_bytes=disk.size if wanted == SPARSE else automatic_reservation(disk.size, block, geometry),
    )


def set_compression(target: Target) -> t.Optional[SetCompression]:
    """The step if another compression is declared."""
    disk, wanted = t.cast(Disk, target.disk), target.spec.compression
    if wanted is None or wanted == disk.volume.compression:
        return None
    text = f"~ {target.label} compression {disk.volume.compression} -> {wanted}"
    return SetCompression(Told(text, target.label), volume=disk.volume.name, path=disk.path, value=wanted)
