# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about the identities and names of a VM's disks: they must be unique, and the same everywhere."""

from __future__ import annotations

import typing as t

from ..model.vm import Disk, DiskConfig, Vm
from . import identity, vm_record
from .findings import Finding, Task
from .verify_facts import About, Facts, Findings, of_vm, vm_disks, within


def identities(facts: Facts, vm: Vm) -> Findings:
    """Yield the disks for which the hypervisor and the properties of the volume disagree."""
    configured = {entry.path: entry for entry in vm.config.disks}
    volumes = [disk.volume.name for disk in vm.disks]
    for disk in vm.disks:
        about, volume = About(facts, disk, vm), disk.volume.name
        contested = bool(facts.others(volume, vm.config.uuid)) or volumes.count(volume) > 1
        if disk.disowned:
            yield _disowned(about, configured[disk.path], contested)
        elif disk.adopted and not contested and within(vm, volume):
            yield from _stale(about)
            yield from _unconfigured(about, configured[disk.path])


def _disowned(about: About, entry: DiskConfig, contested: bool) -> Finding:
    disk, volume_uuid = about.disk, about.disk.volume.user["uuid"]
    if not entry.uuid and not entry.serial:
        return about(
            "invalid_property", f"{identity.PREFIX}uuid = {volume_uuid!r:.60}; the right value is not known here"
        )
    if entry.serial and not entry.uuid:
        serial = identity.serial_of(volume_uuid)
        shown = f"the guest is shown serial {entry.serial}, the volume's uuid {volume_uuid} would be {serial}"
        return about("serial_mismatch", f"{shown}; decide by hand which is right")
    swapped = volume_uuid in about.facts.taken
    why_not = (
        f"another disk has the uuid {volume_uuid}: volumes were exchanged; zfs rename takes that back"
        if swapped
        else ""
    )
    elsewhere = ", ".join(v for v in about.facts.by_uuid.get(disk.uuid, ()) if v != disk.volume.name)
    why_not = why_not or (f"{elsewhere} has the hypervisor's uuid" if elsewhere else "")
    why_not = "the volume is configured more than once" if contested else why_not
    message = f"the hypervisor says uuid {entry.uuid}, the volume {volume_uuid}"
    return about.repairable("uuid_mismatch", message, why_not, args={"facts": {"uuid": disk.uuid}})


def _stale(about: About) -> Findings:
    """Yield facts that are not up to date with the hypervisor."""
    disk, user = about.disk, about.disk.volume.user
    boot = "true" if disk.boot else "false"
    word = {"vm": disk.vm, "index": str(disk.index), "slot": disk.pci_slot, "model": disk.model, "boot": boot}
    facts = {name: value for name, value in word.items() if user.get(name, "") != value}
    if facts:
        parts = [f"{n} is {value or 'none'}, not {user.get(n) or 'none'}" for n, value in facts.items()]
        yield about.repairable("stale_copy", "; ".join(parts), args={"facts": facts})


def _unconfigured(about: About, entry: DiskConfig) -> Findings:
    """Yield disks whose UUID is not in the configuration yet."""
    volume_uuid = about.disk.volume.user.get("uuid", "")
    if not volume_uuid or entry.uuid or entry.serial:
        return
    vm = t.cast(Vm, about.vm)
    text = "no serial number" if vm.config.identity_in_zfs else "no uuid"
    entries = [{"uuid": disk.uuid} for disk in vm.disks if disk.adopted and disk.uuid]
    message = f"the configuration has {text} for {about.disk.path}"
    message += "; vm_disks writes it down with the next change while the VM is stopped"
    yield about("uuid_not_configured", message, repair=vm_disks(vm, unlisted="keep", disks=entries))


def records(facts: Facts, vm: Vm) -> Findings:
    """Yield the disks of which the record of the VM says something else than their volumes, or more."""
    serials = {entry.path: entry.serial for entry in vm.config.disks}
    disks = {serials[disk.path]: disk for disk in vm.disks} if vm.config.prefixes else {}
    unlike = {*vm_record.differences(vm.config, vm.disks), *vm_record.unseen(vm)}
    for serial in sorted(unlike) if vm.config.prefixes else ():
        yield _recorded(facts, vm, serial, disks.get(serial))
    for disk in (one for one in disks.values() if vm_record.has_from_record(vm.config, one)):
        message = f"{disk.label} is known by the record alone, because {disk.volume.name} has no properties"
        yield About(facts, disk, vm)("record_differs", message, repair=_named_again(vm, disk))


def _recorded(facts: Facts, vm: Vm, serial: str, disk: t.Optional[Disk]) -> Finding:
    known = vm.config.record.disks.get(serial) if vm.config.record is not None else None
    name = str((known or {}).get("name") or "")
    if disk is None:
        return of_vm(vm, "record_differs", f"the record has {name or 'a disk'} with serial {serial}, which no disk has")
    where = f"has it as {name or 'unnamed'}, or with other properties" if known else "has nothing of it"
    return About(facts, disk, vm)("record_differs", f"the record {where}", repair=_named_again(vm, disk))


def _named_again(vm: Vm, disk: Disk) -> t.Optional[Task]:
    return vm_disks(vm, unlisted="keep", disks=[{"uuid": disk.uuid}]) if disk.uuid else None


def duplicate_names(facts: Facts, vm: Vm) -> Findings:
    """Yield names that several disks have. Attached disks, orphans and disks detached from the VM must all differ."""
    by_name: t.Dict[str, t.List[Disk]] = {}
    for disk in (*vm.disks, *vm.orphans, *vm.detached):
        if disk.name and not any(disk.volume.name == other.volume.name for other in by_name.get(disk.name, ())):
            by_name.setdefault(disk.name, []).append(disk)
    for name, disks in by_name.items():
        if len(disks) > 1:
            which = ", ".join(f"{d.volume.name} (uuid {d.uuid or 'none'})" for d in disks)
            advice = "decide which one keeps it, and rename the other with its uuid and a new name in vm_disks"
            message = f"name {name}: {which}; {advice}"
            yield of_vm(vm, "duplicate_name", message, disk=name, volume=disks[0].volume.name)
