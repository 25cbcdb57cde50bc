# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps that change a disk in place: its properties, its configuration, its size, its type."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import RECORD, DatasetId
from ..model.sizes import render_change, render_mib
from ..model.text import count
from ..model.vm import FILE, SPARSE, Disk, Vm, VmConfig
from ..rules import disk_element, disk_properties, identity, released_identity, vm_record
from ..rules.differences import crosses, fact_changes
from ..rules.layout import copy_place, detached_place
from ..rules.reservation import PoolGeometry, automatic_reservation
from . import disk_travel
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
from .steps import StepReport
from .vm_steps import AddPorts

DEFAULT_BLOCK = 16384


# Any: the values of properties are of several types, and identity.facts() checks each.
def facts_of(disk: Disk, **changes: t.Any) -> t.Dict[str, str]:
    """Return the facts of the disk as it is now, with changes."""
    fields: t.Dict[str, t.Any] = {
        "uuid": disk.uuid or disk.volume.user.get("uuid", ""),
        "name": disk.name,
        "vm": disk.vm,
        "index": disk.index,
        "slot": disk.pci_slot,
        "model": disk.model,
        "boot": disk.boot,
        "kind": disk.type,
        "user_properties": {
            name: changes.pop(name, value) for name, value in disk_properties.completed(disk.user_properties).items()
        },
        "remaining": disk.remaining,
    }
    fields.update(changes)
    # The identity that is written replaces the saved one that it comes from.
    saved = {released_identity.RELEASED_PROPERTY: ""} if released_identity.has_saved_identity(disk) else {}
    return {**identity.facts(**fields), **saved}


def with_uuid(config: VmConfig, disk: Disk) -> Disk:
    """Return an attached disk with the uuid that it gets if it has none yet and its VM has no dataset of its own.

    There, a disk can leave a running VM, and by hand. Without a uuid on its volume, no task would find it again. If the
    guest sees the beginning of a uuid as the serial, the uuid begins so.
    """
    if not config.prefixes or not disk.path or disk.uuid or disk.disowned:
        return disk
    serial = next((entry.serial for entry in config.disks if entry.path == disk.path), "")
    guid = disk.volume.guid
    uuid = identity.uuid_with(serial, guid) if identity.is_serial(serial) else identity.uuid_of(guid)
    return replace(disk, uuid=uuid)


def missing_facts(disk: Disk, facts: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Return those of the facts that the volume does not have yet."""
    return {key: value for key, value in facts.items() if disk.volume.user.get(key, "") != value}


def facts_without_marks(disk: Disk) -> t.Dict[str, str]:
    """Return the facts that end, for a disk back in its place, its conversion and what it kept while detached."""
    element = (
        {disk_element.ELEMENT_PROPERTY: ""} if disk.path and disk_element.ELEMENT_PROPERTY in disk.volume.user else {}
    )
    return (
        {"from": "", "copied": "", **element} if identity.is_converting(disk.volume.user.get("from", "")) else element
    )


# -- properties


def write_identity(disk: Disk, target: Target) -> t.Optional[WriteFacts]:
    """Return the step that writes facts that differ, or None; a SyncFacts if only the hypervisor's copies differ."""
    changes = fact_changes(target.spec, disk)
    wanted = {key: value for key, (_now, value) in changes.items()}
    facts = facts_of(disk, remaining=target.basis if target.spec.remaining else "", **wanted)
    missing = missing_facts(disk, {**facts, **(facts_without_marks(disk) if disk.path else {})})
    if not missing:
        return None
    if disk.adopted and not changes:
        return SyncFacts(StepReport("", target.label), volume=disk.volume.name, facts=missing)
    report = StepReport(_identity_text(disk, target, changes), target.label)
    return WriteIdentity(report, volume=disk.volume.name, facts=missing)


def _identity_text(disk: Disk, target: Target, changes: t.Mapping[str, t.Tuple[object, object]]) -> str:
    if not disk.adopted:
        return f"= {target.label} adopted ({disk.volume.name} at {disk.pci_slot or 'legacy slot'})"
    parts = [
        f"renamed from {now}" if key == "name" else f"{key} {_word(now)} -> {_word(wanted)}"
        for key, (now, wanted) in changes.items()
    ]
    return f"~ {target.label} {', '.join(parts)}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{key}={value[key]}" for key in sorted(value)) or "none"
    return repr(value) if value else "none"


def sync_facts(disk: Disk) -> t.Optional[SyncFacts]:
    """Return the step that corrects an adopted disk's facts to what the hypervisor says; None if they are right."""
    missing = missing_facts(disk, {**facts_of(disk), **facts_without_marks(disk)}) if disk.adopted else {}
    return SyncFacts(StepReport("", disk.label), volume=disk.volume.name, facts=missing) if missing else None


def write_recorded(config: VmConfig, disk: Disk) -> t.Optional[WriteIdentity]:
    """Return the step that writes to a volume the identity that only the record of its VM has; None for any other."""
    if not vm_record.has_from_record(config, disk):
        return None
    report = StepReport(f"= {disk.label} adopted ({disk.volume.name} at {disk.pci_slot})", disk.label)
    return WriteIdentity(report, volume=disk.volume.name, facts=missing_facts(disk, facts_of(disk)))


# Any: as for facts_of().
def give_identity(disk: Disk, changes: t.Mapping[str, t.Any], more: t.Mapping[str, str]) -> WriteIdentity:
    """Return the step that gives an attached disk its identity. more: properties that do not describe the disk."""
    facts = facts_of(disk, **changes)
    again = " again" if more.get("serial_no") else ""
    text = f"= {facts['name']} adopted{again} ({disk.volume.name} at {disk.pci_slot or 'legacy slot'})"
    return WriteIdentity(
        StepReport(text, facts["name"]), volume=disk.volume.name, facts={**missing_facts(disk, facts), **more}
    )


def remove_name(disk: Disk) -> WriteIdentity:
    """Return the step that removes the name of a preserved, detached disk, so that a new disk can have it."""
    text = f"~ {disk.label} stays where it is without its name (uuid {disk.uuid})"
    facts = {"name": "", **missing_facts(disk, facts_without_marks(disk))}
    return WriteIdentity(StepReport(text, disk.label), volume=disk.volume.name, facts=facts)


# -- the configuration


def configure_defaults(vm: Vm, places: bool) -> t.Optional[EditDisks]:
    """Return the step that configures UUIDs that an old vmadm left out and, with places=True, the slots that bhyve has
    chosen.

    A disk without a configured slot would move when another disk is removed. The uuid follows from the guid, so that it
    can be predicted.
    """
    edits, labels, serials = [], [], []
    configured = {entry.path: entry for entry in vm.config.disks}
    for disk in vm.disks:
        entry = configured[disk.path]
        lacks: t.Dict[str, t.Union[str, bool]] = {}
        known = entry.uuid or vm_record.has_serial(vm.config, entry.serial)
        if not (known or disk.hidden or disk.disowned) and disk.volume.guid:
            lacks["uuid"] = disk.uuid or identity.uuid_of(disk.volume.guid)
        if places and not entry.pci_slot and disk.pci_slot:
            lacks["pci_slot"] = disk.pci_slot
        if lacks:
            edits.append(DiskEdit(disk.volume.name, disk.path, lacks))
            labels.append(disk.label)
        if entry.serial and "uuid" in lacks:
            serials.append(f", serial of {disk.label} {entry.serial} -> {identity.serial_of(str(lacks['uuid']))}")
    if not edits:
        return None
    text = f"~ uuid and slot of {', '.join(labels)} written down{''.join(serials)}"
    return EditDisks(StepReport(text), edits=tuple(edits))


def ports(numbers: t.Sequence[int]) -> t.Iterator[AddPorts]:
    """Yield the step that adds PCIe root ports with these consecutive numbers, if any."""
    if numbers:
        yield AddPorts(StepReport(f"+ {ports_text(numbers)}"), ports=tuple(numbers))


def ports_text(numbers: t.Sequence[int]) -> str:
    """Return the ports as text."""
    if len(numbers) == 1:
        return f"PCIe root port {numbers[0]}"
    return f"PCIe root ports {numbers[0]} to {numbers[-1]}"


# -- figures of ZFS


def grow(target: Target) -> t.Optional[Grow]:
    """Return the step that makes the disk larger; None if the target is not larger."""
    disk = t.cast(Disk, target.disk)
    if target.bytes <= disk.size:
        return None
    return Grow(
        _resize_report(target, disk)._replace(cold=disk_travel.why_cold_growth(disk)),
        volume=disk.volume.name,
        path=disk.path,
        size_mib=target.size,
        guid=disk.volume.guid,
        type=target.type,
        snapshots=bool(disk.snapshots),
    )


def shrink(target: Target) -> t.Optional[Shrink]:
    """Return the step that makes the disk smaller, or None. The disk still has its old type then."""
    disk = t.cast(Disk, target.disk)
    if target.bytes >= disk.size:
        return None
    return Shrink(
        _resize_report(target, disk),
        volume=disk.volume.name,
        path=disk.path,
        size_mib=target.size,
        guid=disk.volume.guid,
        type=target.current_type,
        snapshots=bool(disk.snapshots),
    )


def resize_detached(target: Target) -> t.Optional[ResizeDetached]:
    """Return the step that gives a detached disk another size; None if the target has the same size."""
    resize = shrink(target) or grow(target)
    if resize is None:
        return None
    return ResizeDetached(
        resize.report, resize.volume, resize.path, resize.size_mib, resize.guid, resize.type, resize.snapshots
    )


def _resize_report(target: Target, disk: Disk) -> StepReport:
    text = f"~ {target.label} {render_change(disk.size, target.bytes)}"
    return StepReport(text, target.label, destroys=target.bytes < disk.size)


def convert(
    disk: Disk, wanted: str, geometry: PoolGeometry, label: str = "", block_size: int = DEFAULT_BLOCK, cold: str = ""
) -> t.Optional[Convert]:
    """Return the step that gives the disk another type; None if it has the type. To or from a file, its data is copied.

    The disk must be detached for a copy. block_size (bytes) is that of a volume made from a file.
    """
    if disk.type == wanted:
        return None
    label = label or disk.label
    copying = _copying(disk, wanted, geometry, block_size) if crosses(wanted, disk) else None
    text = f"~ {label} {disk.type} -> {wanted}"
    if copying is not None:
        lost = f", {count(len(disk.snapshots), 'snapshot')} DESTROYED" if disk.snapshots else ""
        text += f": {render_mib(disk.size_mib)} to copy{lost}"
    report = StepReport(text, label, destroys=copying is not None and bool(disk.snapshots), cold=cold)
    return Convert(report, volume=disk.volume.name, guid=disk.volume.guid, type=wanted, copying=copying)


def short_names(disk: Disk) -> t.Tuple[DatasetId, ...]:
    """Return the snapshots that are destroyed with a disk, by short names, which a rename does not change."""
    return tuple(DatasetId(s.name.split("@", 1)[1], s.guid) for s in disk.snapshots)


def _copying(disk: Disk, wanted: str, geometry: PoolGeometry, block_size: int) -> Copying:
    block = RECORD if wanted == FILE else block_size
    spare = detached_place(disk)
    return Copying(
        uuid=disk.uuid or identity.uuid_of(disk.volume.guid),
        partial_copy=copy_place(spare) if disk.volume.name != copy_place(spare) else spare,
        block_size_bytes=block,
        compression=disk.volume.compression,
        snapshots=short_names(disk),
        beside_bytes=disk.size if wanted == SPARSE else automatic_reservation(disk.size, block, geometry),
    )


def set_compression(target: Target) -> t.Optional[SetCompression]:
    """Return the step that sets the declared compression; None if none is declared or the disk has it."""
    disk, wanted = t.cast(Disk, target.disk), target.spec.compression
    if wanted is None or wanted == disk.volume.compression:
        return None
    text = f"~ {target.label} compression {disk.volume.compression} -> {wanted}"
    return SetCompression(StepReport(text, target.label), volume=disk.volume.name, path=disk.path, value=wanted)
