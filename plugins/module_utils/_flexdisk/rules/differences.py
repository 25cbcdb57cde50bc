# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Differences of a declared disk from the existing one: those that can change, those fixed at its creation."""

from __future__ import annotations

import typing as t
from dataclasses import fields

from ..model.dataset import Dataset
from ..model.desired import DiskDeclaration
from ..model.vm import FILE, Disk, Vm, VmConfig, VmRecord
from . import disk_properties, identity

Change = t.Tuple[t.Any, t.Any]


def birth_differences(spec: DiskDeclaration, disk: Disk) -> t.Dict[str, Change]:
    """Return the differences that only a new disk resolves: block_size, image, made_for, each (is, declared)."""
    result: t.Dict[str, Change] = {}
    if spec.block_size not in (None, disk.volume.volblocksize) and not becomes_volume(spec, disk):
        result["block_size"] = (disk.volume.volblocksize, spec.block_size)
    if spec.image is not None and spec.image != disk.image:
        result["image"] = (disk.image or "none", spec.image)
    if spec.recreate_for and spec.recreate_for != disk.volume.user.get("made_for", ""):
        result["made_for"] = (disk.volume.user.get("made_for") or "none", spec.recreate_for)
    return result


def crosses(wanted: t.Optional[str], disk: Disk) -> bool:
    """Whether a conversion must copy the data, because a volume becomes a file or a file a volume."""
    return wanted is not None and FILE in (wanted, disk.type) and wanted != disk.type


def becomes_volume(spec: DiskDeclaration, disk: Disk) -> bool:
    """Whether a disk that is a file is declared as a volume."""
    return disk.type == FILE and crosses(spec.type, disk)


def in_conversion(vm: Vm, disk: Disk) -> bool:
    """Whether the disk was taken out of this VM by its own conversion. It returns to its old place."""
    return disk.vm == vm.config.uuid and not disk.path and identity.is_converting(disk.volume.user.get("from", ""))


def config_changes(spec: DiskDeclaration, disk: Disk) -> t.Dict[str, Change]:
    """Return the differences in the hypervisor's configuration: model, pci_slot (compared normalised), boot."""
    result: t.Dict[str, Change] = {}
    if spec.model is not None and spec.model != disk.model:
        result["model"] = (disk.model, spec.model)
    if spec.pci_slot is not None and spec.pci_slot != disk.pci_slot:
        result["pci_slot"] = (disk.pci_slot or "none", spec.pci_slot)
    if spec.boot is not None and spec.boot != disk.boot:
        result["boot"] = (disk.boot, spec.boot)
    return result


def fact_changes(spec: DiskDeclaration, disk: Disk) -> t.Dict[str, Change]:
    """Return the differences in what only ZFS stores: the name, and the properties in rules/disk_properties.py."""
    renamed = spec.name and spec.name != disk.name
    name: t.Dict[str, Change] = {"name": (disk.name, spec.name)} if renamed else {}
    return {**name, **disk_properties.differing(spec.user_properties, disk.user_properties)}


def _of_attached(record: t.Optional[VmRecord]) -> t.Optional[VmRecord]:
    return record and record._replace(detached={})


def since_read(vm: Vm, config: VmConfig, datasets: t.Iterable[Dataset]) -> t.List[str]:
    """Return what has changed since the VM was read: its configuration, or guid, createtxg, volsize of volumes."""
    parts = []
    for name in (f.name for f in fields(VmConfig) if f.name != "written_at"):
        was, now = getattr(vm.config, name), getattr(config, name)
        if name == "record":  # what is detached goes out of it when another VM gets it, in the same task, too
            was, now = _of_attached(was), _of_attached(now)
        if was != now:
            plain = isinstance(was, (bool, int, str)) and name != "digest"
            parts.append(f"{name} {was} -> {now}" if plain else f"{name} of the configuration")
    before = {d.name: d for d in (vm.root, *vm.volumes) if d.kind}
    after = {d.name: d for d in datasets if d.backs or d.name == vm.root.name}
    parts += [f"{name} is {'gone' if name in before else 'new'}" for name in sorted({*before} ^ {*after})]
    for name in sorted({*before} & {*after}):
        for field in ("guid", "createtxg", "volsize"):
            was, now = getattr(before[name], field), getattr(after[name], field)
            if was != now:
                parts.append(f"{field} of {name} {was} -> {now}")
    return parts
