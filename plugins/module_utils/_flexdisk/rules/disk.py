# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find disks on a host: where each disk is, and which disk an entry means."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.desired import PlacedDiskDeclaration
from ..model.errors import FlexdiskError
from ..model.vm import Disk, Vm
from . import identity
from .inventory import Host


@dataclass(frozen=True)
class Place:
    """A disk and where it is."""

    disk: Disk
    vm: t.Optional[Vm] = None

    @property
    def state(self) -> str:
        """ "attached", "detached" or "orphaned", as in results."""
        if self.vm is None:
            return "detached"
        return "attached" if self.disk.path else "orphaned"

    @property
    def description(self) -> str:
        """The disk in messages: its name, uuid and volume, and the VM that has it."""
        owner = "detached" if self.vm is None else f"{self.state} in {self.vm.label}"
        name = self.disk.name or "no name"
        return f"{name} (uuid {self.disk.uuid or 'none'}, {self.disk.volume.name}, {owner})"


def disk_places(host: Host) -> t.Iterator[Place]:
    """Yield every disk of the host, except the platform's own."""
    for vm in host.vms:
        for disk in (*vm.disks, *vm.orphans):
            if not disk.hidden:
                yield Place(disk, vm)
    for disk in host.detached:
        yield Place(disk)


def locate(
    host: Host, declared: PlacedDiskDeclaration, vm: t.Optional[Vm], source_vm: t.Optional[Vm]
) -> t.Optional[Place]:
    """Return the disk that an entry means, None if there is none. Raises FlexdiskError Ambiguous with all candidates.

    vm and source_vm are those that declared.vm and declared.from_vm name.
    """
    every = list(disk_places(host))
    if declared.spec.uuid:
        return _one([p for p in every if p.disk.uuid == declared.spec.uuid], f"uuid {declared.spec.uuid}")
    if declared.index is not None or declared.slot:
        return _at(every, declared, t.cast(Vm, vm))
    named = [p for p in every if p.disk.name == declared.spec.name]
    for scope in (source_vm, vm):
        within = [p for p in named if scope is not None and _belongs(p, scope)]
        if within:
            return _one(within, f"name {declared.spec.name} of VM {t.cast(Vm, scope).label}")
    if vm is not None and declared.state != "attached":
        return None
    return None if source_vm is not None else _one(named, f"name {declared.spec.name}")


def find_source(host: Host, wanted: str) -> Place:
    """Return the disk with this uuid, else with this name. Raises FlexdiskError ResourceNotFound or Ambiguous."""
    every = list(disk_places(host))
    matches = [p for p in every if p.disk.uuid == wanted.lower()] or [p for p in every if p.disk.name == wanted]
    place = _one(matches, f"source {wanted}")
    if place is None:
        raise FlexdiskError("ResourceNotFound", f"source {wanted}: no disk has this uuid or name")
    return place


def _belongs(place: Place, vm: Vm) -> bool:
    """Whether the disk is in the VM or was detached from it. Their names must differ."""
    return place.disk.vm == vm.config.uuid


def _at(every: t.Sequence[Place], declared: PlacedDiskDeclaration, vm: Vm) -> t.Optional[Place]:
    here = [p for p in every if p.vm is vm and p.disk.path]
    if declared.slot:
        return next((p for p in here if p.disk.pci_slot == declared.slot), None)
    index = max((p.disk.index for p in here), default=0) if declared.index == -1 else declared.index
    # With Proxmox VE, disks in several storages can have the same.
    return _one([p for p in here if p.disk.index == index], f"index {declared.index}")


def _one(matches: t.Sequence[Place], label: str) -> t.Optional[Place]:
    if len(matches) > 1:
        raise FlexdiskError(
            "Ambiguous", f"{label}: {len(matches)} disks have it: {'; '.join(p.description for p in matches)}"
        )
    return matches[0] if matches else None


def label_of(place: Place) -> str:
    """Return what messages call the disk: its name, its UUID or its volume."""
    return place.disk.name or place.disk.uuid or place.disk.volume.name


def serial_of(disk: Disk) -> int:
    """Return the serial_no of a volume, 0 if it has none."""
    return int(identity.next_serial(disk.volume.user.get("serial_no", ""))) - 1
