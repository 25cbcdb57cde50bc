# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the volumes in a VM's configuration, its PCI slots, and its orphans."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_mib
from ..model.vm import Disk, DiskConfig, Vm
from . import identity, slots
from .findings import Finding
from .layout import container, detached_place, pool_of
from .unused import dangling, left_unused
from .usage import labels, why_renamed
from .verify_facts import About, Facts, Findings, listed, of_vm, vm_disks, within


def references(facts: Facts, vm: Vm) -> Findings:
    """Yield entries whose volume is missing, elsewhere or detached; none if the list of disks is incomplete."""
    if vm.overlaid:
        return
    ghosts = set(vm.ghosts)
    entries = {entry.path: entry for entry in vm.config.disks}
    detached = {disk.uuid: disk for disk in vm.detached if disk.uuid}
    for path in vm.missing:
        if path in ghosts:
            about = About(facts, detached[entries[path].uuid], vm)
            stopped = vm.config.state == "stopped"
            yield about.repairable(
                "parked_still_configured",
                f"{about.disk.label} is in {about.disk.volume.name}, but still configured as {path}",
                "" if stopped else "the VM is running; stop it first",
            )
        else:
            yield _dangling(facts, vm, entries[path])
    for path in vm.unread:
        yield _unread(vm, entries[path])
    for path in vm.strays:
        volume = entries[path].volume
        if any(orphan.volume.user.get("from") == volume for orphan in vm.orphans):
            continue
        if volume in facts.host.datasets:
            yield _stray(vm, path, volume)
        elif not facts.host.reads(volume):
            yield _unread(vm, entries[path])
        else:
            yield _dangling(facts, vm, entries[path])
    for disk in vm.disks:
        if not within(vm, disk.volume.name):
            yield _stray(vm, disk.path, disk.volume.name)
    for path in vm.config.unplugged:
        yield of_vm(vm, "not_plugged", f"{path} is configured, but the running VM does not have it; restart the VM")


def unused_without_volume(facts: Facts, vm: Vm) -> Findings:
    """Yield what Proxmox VE calls unused and is not there. The next task takes out what an interrupted run left."""
    for name in left_unused(vm):
        message = f"{name} is detached, and the configuration still names it as unused"
        task = vm_disks(vm, unlisted="keep")
        yield of_vm(vm, "unused_without_volume", message, volume=name, repair=task)
    for text in dangling(vm).values():
        yield of_vm(vm, "unused_without_volume", text)


def _dangling(facts: Facts, vm: Vm, entry: DiskConfig) -> Finding:
    """Yield an entry without a volume. The message says where a volume with its identity is, if there is one."""
    known = entry.uuid and facts.by_uuid.get(entry.uuid)
    if not known and entry.serial:
        known = [
            name for uuid in facts.by_uuid if identity.serial_of(uuid) == entry.serial for name in facts.by_uuid[uuid]
        ]
    hint = f"its data may be in {listed(known)}: zfs rename brings it back" if known else "no volume has its uuid"
    message = f"{entry.volume} is configured as {entry.path} but does not exist; {hint}"
    message += "; restore it or remove the entry by hand"
    return of_vm(vm, "dangling_reference", message, volume=entry.volume)


def _unread(vm: Vm, entry: DiskConfig) -> Finding:
    """Yield an entry whose volume is in a pool that this task does not read."""
    pool = pool_of(entry.volume)
    message = f"{entry.volume}, configured as {entry.path}, lies in pool {pool}, which this task does not read"
    return of_vm(vm, "unread_pool", f"{message}; leave the entry as it is", volume=entry.volume)


def _stray(vm: Vm, path: str, volume: str) -> Finding:
    message = f"{path} lies outside {vm.root.name}"
    if vm.config.identity_in_zfs and pool_of(volume) != vm.root.pool:
        return of_vm(vm, "stray_volume", f"{message}, in pool {pool_of(volume)}, and no task manages it", volume=volume)
    if vm.config.identity_in_zfs:
        return of_vm(vm, "stray_volume", message, volume=volume, repair=vm_disks(vm, adopt=True))
    message += "; zfs rename moves it, and vmadm must be told the new path"
    return of_vm(vm, "stray_volume", message, volume=volume)


def shared_volumes(facts: Facts, vm: Vm) -> Findings:
    """Yield volumes that are configured more than once, in this VM or in others."""
    seen: t.Set[str] = set()
    for entry in vm.config.disks:
        if not entry.volume:
            continue
        others = ", ".join(facts.others(entry.volume, vm.config.uuid))
        if others:
            message = f"{entry.volume} is also a disk of {others}; decide by hand whose it is"
            yield of_vm(vm, "shared_volume", message, volume=entry.volume)
        if entry.volume in seen:
            message = (
                f"{entry.volume} is in the VM's list of disks more than once; decide by hand which entry to remove"
            )
            yield of_vm(vm, "disk_twice", message, volume=entry.volume)
        seen.add(entry.volume)


def slot_conflicts(facts: Facts, vm: Vm) -> Findings:
    """Yield PCI slots that several disks have, or a disk and another device."""
    places = slots.positions(vm.config.disks, vm.config.pci)
    once = [(path, slots.parse_slot(slot)) for path, slot in places.items() if slot]
    for slot, paths in slots.conflicts(once):
        message = f"{', '.join(paths)} all have PCI slot {slots.render_slot(slot)}"
        yield of_vm(vm, "slot_conflict", f"{message}; pci_slot in vm_disks moves the one that you choose")
    for path, place, other in slots.clashes(once, vm.config.pci):
        yield of_vm(
            vm, "slot_conflict", f"{path} has PCI slot {place}, and {other}, too; pci_slot in vm_disks moves the disk"
        )


def orphans(facts: Facts, vm: Vm) -> Findings:
    """Yield volumes in the VM's dataset that are not in its list of disks, and how the VM uses them, if it does."""
    if vm.overlaid:
        yield of_vm(vm, "overlaid_disk", vm.overlaid)
    for disk in vm.orphans:
        if "from" not in disk.volume.user and not (vm.overlaid and _is_own(facts, vm, disk)):
            message = f"{disk.volume.name} ({render_mib(disk.size_mib)}) is not in the VM's list of disks"
            yield About(facts, disk, vm).repairable("orphan_volume", message, _stays(facts, vm, disk))


def _is_own(facts: Facts, vm: Vm, disk: Disk) -> bool:
    """Whether the VM itself uses an orphan."""
    return any(user.config.uuid == vm.config.uuid for user in facts.host.usage.of(disk.volume.name))


def _stays(facts: Facts, vm: Vm, disk: Disk) -> str:
    """Return why a volume cannot be moved out of its VM's dataset."""
    host, place = facts.host, detached_place(disk)
    moved = why_renamed(vm, disk)
    if moved:
        return moved
    above = host.datasets.get(container(vm.root.pool)) or host.datasets[vm.root.pool]
    users = host.usage.of(disk.volume.name)
    if users:
        return f"{labels(users)} has it open or configured"
    if place in host.datasets:
        return f"{place} already exists"
    if disk.uuid in host.duplicates:
        return "another volume has its uuid"
    if disk.volume.encryptionroot not in ("", disk.volume.name, above.encryptionroot):
        return f"it would leave its encryption root {disk.volume.encryptionroot}"
    return ""
