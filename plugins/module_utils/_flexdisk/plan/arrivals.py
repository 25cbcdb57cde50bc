# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps for disks that a VM gets: existing disks are attached, new disks are created."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.capabilities import Capabilities
from ..model.sizes import MIB, render_change, render_mib
from ..model.vm import FILE, THICK, Disk, DiskElement, Vm
from ..rules import exchange, identity
from ..rules.differences import fact_changes, in_conversion
from ..rules.layout import arriving_prefix, disk_dataset, index_of, index_within, new_sibling
from . import disk_travel
from .changes import facts_of, missing_facts
from .disk_steps import AttachDisk, Attachment, CreateDisk
from .hot_plug import why_cold
from .resolve import Target
from .steps import StepReport


def arrive(vm: Vm, target: Target, capabilities: Capabilities) -> t.Union[AttachDisk, CreateDisk]:
    """Return the step that attaches or creates the disk. Both put the volume in place and add it to the VM."""
    if target.disk is not None:
        return attach(vm, target, target.disk, capabilities)
    return create(vm, target, capabilities)


def _attachment(vm: Vm, target: Target, volume: str, capabilities: Capabilities) -> Attachment:
    disk = target.disk
    again = disk is not None and disk.boot and in_conversion(vm, disk)
    boot = (again if target.spec.boot is None else target.spec.boot) or (vm.config.first_boots and not vm.config.disks)
    uuid = disk.uuid if disk else target.uuid
    path = path_of(capabilities, volume, target.type, uuid)
    element, without = DiskElement(), t.cast("t.Tuple[str, ...]", ())
    if disk is not None:
        element, without = disk_travel.coming(vm.config, disk, target.model, target.type)
    elif target.replaces is not None:
        element, without = disk_travel.replacing(vm.config, target.replaces, target.model, target.type)
    return Attachment(path, target.size, target.model, boot, target.slot, uuid, element, without)


def path_of(capabilities: Capabilities, volume: str, kind: str, uuid: str) -> str:
    """Return the path at which the hypervisor finds a disk of the type kind: a file or a block device."""
    return identity.file_of(uuid) if kind == FILE else capabilities.device_prefix + volume


def _place(vm: Vm, target: Target) -> t.Tuple[int, str]:
    """Return the disk's index, and the name of its volume. An orphan stays where it is."""
    disk = target.disk
    if disk is not None and not disk.detached:
        return disk.index, disk.volume.name
    if vm.config.new_disks is not None:
        unused = vm.config.proxmox.get("unused", {}).values()
        taken = {*vm.siblings, *vm.missing, *unused, *(volume.name for volume in vm.volumes)}
        prefix = arriving_prefix(vm.config, disk.volume.pool) if disk is not None else ""
        wanted = disk.index if target.spec.index is None and disk is not None else target.spec.index
        name = new_sibling(prefix or vm.config.new_disks.prefix, taken, wanted)
        return index_within(vm.config, name), name
    remembered = disk.index if disk else target.replaces.index if target.replaces else 0
    index = _free_index(vm, remembered if target.spec.index is None else target.spec.index)
    return index, disk_dataset(vm.config.dataset, index)


def _free_index(vm: Vm, remembered: int) -> int:
    """Return the remembered index if it is free, else the lowest index that no path and no volume uses."""
    used = used_indexes(vm)
    if remembered and remembered not in used:
        return remembered
    return next(n for n in range(len(used) + 1) if n not in used)


def used_indexes(vm: Vm) -> t.Set[int]:
    """Return the indexes of the VM's volumes. A configured path without a volume keeps its index, too."""
    return {index_of(name) for name in (*(v.name for v in vm.volumes), *vm.missing)}


def _facts(vm: Vm, target: Target, index: int, attachment: Attachment) -> t.Dict[str, str]:
    """Return all properties that the disk's volume gets."""
    disk, spec = target.disk, target.spec
    base = disk or Disk(volume=vm.root, vm=vm.config.uuid, index=index, uuid=attachment.uuid)
    declared = {key: wanted for key, (_now, wanted) in fact_changes(spec, base).items()}
    return facts_of(
        base,
        **{
            "vm": vm.config.uuid,
            "index": index,
            "slot": target.slot,
            "model": target.model,
            "boot": attachment.boot,
            "kind": target.type,
            "remaining": target.basis,
            **declared,
        },
    )


def _at(target: Target) -> str:
    return f" at {target.slot}" if target.slot else ""


def attach(vm: Vm, target: Target, disk: Disk, capabilities: Capabilities) -> AttachDisk:
    """Return the step that attaches an existing disk, with the size, type and compression of the target."""
    target = replace(target, disk=disk)
    index, volume = _place(vm, target)
    attachment = _attachment(vm, target, volume, capabilities)
    since = identity.decode_time(disk.volume.user.get("mtime", ""))
    size = target.size * MIB
    wanted, now = target.spec.compression, disk.volume.compression
    parts = [
        f"+ {target.label} ",
        render_mib(target.size) if size == disk.size else render_change(disk.size, size),
        f" re-attached{_at(target)}",
        f", {target.current_type} -> {target.type}" if target.type != target.current_type else "",
        f", compression {now} -> {wanted}" if wanted not in (None, now) else "",
        f", detached since {since}" if since and disk.detached else "",
        disk_travel.without_text(attachment.element, attachment.without),
    ]
    return AttachDisk(
        StepReport(
            "".join(parts), target.label, size < disk.size, why_cold(vm, target.model, target.slot, capabilities)
        ),
        volume=volume,
        size_mib=target.size,
        type=target.type,
        attachment=attachment,
        facts=missing_facts(disk, {**_facts(vm, target, index, attachment), exchange.READY: ""}),
        compression=wanted or now,
        attached=disk,
        source=disk.volume.name,
        guid=disk.volume.guid,
        snapshots=bool(disk.snapshots) and size != disk.size,
    )


def create(vm: Vm, target: Target, capabilities: Capabilities) -> CreateDisk:
    """Return the step that creates a new disk for the VM."""
    spec = target.spec
    index, volume = _place(vm, target)
    attachment = _attachment(vm, target, volume, capabilities)
    why = why_cold(vm, target.model, target.slot, capabilities)
    kind = f" {target.type}" if target.type != THICK else ""
    image = f" from image {spec.image}" if spec.image else ""
    lost = disk_travel.without_text(attachment.element, attachment.without)
    return CreateDisk(
        StepReport(
            f"+ {target.label} {render_mib(target.size)}{kind}{_at(target)}{image}{lost}", target.label, cold=why
        ),
        volume=volume,
        size_mib=target.size,
        type=target.type,
        attachment=attachment,
        facts={
            **_facts(vm, target, index, attachment),
            "made_for": spec.recreate_for,
            **disk_travel.facts_of_new(vm.config, attachment.element),
        },
        compression=spec.compression or vm.root.compression,
        block_size_bytes=target.block_size,
        own_compression=spec.compression or "",
        origin=target.origin.name if target.origin else "",
        image_size_mib=target.image_size,
        origin_guid=target.origin.guid if target.origin else 0,
    )
