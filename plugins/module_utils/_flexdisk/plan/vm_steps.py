# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of whole VMs: their figures, power and snapshots, their creation and deletion."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.dataset import Planned
from ..model.desired import NewVm
from ..model.vm import NO_GROUP, Disk, DiskConfig, Vm
from .disk_steps import CreateDisk
from .steps import Step

# -- an interrupted run


@dataclass(frozen=True, eq=False, repr=False)
class Recover(Step):
    """Resume an interrupted run. What is left to do are steps of their own."""

    kind = "recover"

    def late(self, live: t.Collection[str]) -> bool:
        """Never: the step changes nothing by itself."""
        return False


# -- figures


@dataclass(frozen=True, eq=False, repr=False)
class SettleQuota(Step):
    """Set quota and reservation of the VM's dataset by the law (rules/space.py), and refreservation of its own part."""

    kind = "law"
    recorded = False
    mends = True
    calm = True

    quota_bytes: int
    refreservation_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class SettleVolumes(Step):
    """Set volumes to their automatic reservation. flexible_mib: the flexible_disk_size that comes later, or None."""

    kind = "normalise"
    recorded = False
    mends = True
    calm = True

    names: t.Tuple[str, ...]
    flexible_mib: t.Optional[int]

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes whose reservation is off."""
        return self.names


@dataclass(frozen=True, eq=False, repr=False)
class RetireSyncs(Step):
    """Destroy the snapshots of syncs, and give up the space for them."""

    kind = "retire"
    recorded = False
    calm = True

    snapshots: t.Tuple[Planned, ...]


@dataclass(frozen=True, eq=False, repr=False)
class SetFlexibleSize(Step):
    """Set flexible_disk_size, hidden disks included. resets: the hypervisor then sets every volume to auto."""

    kind = "flexible"
    recorded = False

    stored_mib: int
    resets: bool


@dataclass(frozen=True, eq=False, repr=False)
class SetVmQuota(Step):
    """Set the quota of the VM's own file system. resets: the hypervisor then sets every volume to auto."""

    kind = "quota"

    quota_bytes: int
    resets: bool


# -- power


@dataclass(frozen=True, eq=False, repr=False)
class Stop(Step):
    """Shut the VM down. autoboot_off: the hypervisor turns autoboot off with it."""

    kind = "stop"
    stops = True

    autoboot_off: bool


@dataclass(frozen=True, eq=False, repr=False)
class Start(Step):
    """Start the VM. autoboot_on: the hypervisor turns autoboot on with it."""

    kind = "start"
    changes_power = True
    starts = True

    autoboot_on: bool


@dataclass(frozen=True, eq=False, repr=False)
class SetAutoboot(Step):
    """Set whether the VM starts with its host."""

    kind = "autoboot"
    changes_power = True

    autoboot: bool

    def late(self, live: t.Collection[str]) -> bool:
        """Never: a running VM takes the step."""
        return False


# -- what a VM is besides its disks


@dataclass(frozen=True, eq=False, repr=False)
class SetProperties(Step):
    """Set memory, vcpus, protection, package, generation, group and the mark drained, where they are not None."""

    kind = "properties"

    memory_mib: t.Optional[int] = None
    vcpus: t.Optional[int] = None
    indestructible: t.Optional[bool] = None
    package: t.Optional[str] = None
    drained: t.Optional[bool] = None
    generation: t.Optional[str] = None
    member: t.Optional[str] = None

    @property
    def facts(self) -> t.Dict[str, str]:
        """What changes of the properties of the VM's dataset. "" removes a property."""
        mark = None if self.drained is None else "true" if self.drained else ""
        member = None if self.member is None else self.member or NO_GROUP
        values = {"drained": mark, "package": self.package, "generation": self.generation, "member": member}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def machine(self) -> t.Dict[str, int]:
        """memory (MiB) and vcpus, as far as they change. They change at the next start of the VM."""
        sizes = {"memory": self.memory_mib, "vcpus": self.vcpus}
        return {key: value for key, value in sizes.items() if value is not None}

    def late(self, live: t.Collection[str]) -> bool:
        """Whether memory, vcpus or the generation change: the machine is another one only after a restart."""
        return bool(self.machine) or self.generation is not None


@dataclass(frozen=True, eq=False, repr=False)
class WritePackage(Step):
    """Write the name of the package, or its saved copy, as properties of the VM's dataset. "" removes a property."""

    kind = "package"

    dataset: str
    facts: t.Mapping[str, str]

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The VM's dataset."""
        return (self.dataset,)


@dataclass(frozen=True, eq=False, repr=False)
class Relocate(Step):
    """Move volumes that lie elsewhere below the VM's dataset. moves: each disk as configured, and as it will be."""

    kind = "adopt"

    moves: t.Tuple[t.Tuple[DiskConfig, Disk], ...]

    @property
    def moved(self) -> t.Tuple[t.Tuple[str, str], ...]:
        """The volumes that lie elsewhere, by their old and new names."""
        return tuple((entry.volume, disk.volume.name) for entry, disk in self.moves)


@dataclass(frozen=True, eq=False, repr=False)
class AddPorts(Step):
    """Add PCIe root ports, for disks that come while the VM runs."""

    kind = "ports"

    ports: t.Tuple[int, ...]


# -- snapshots


@dataclass(frozen=True, eq=False, repr=False)
class TakeSnapshot(Step):
    """Take a snapshot of all datasets of the VM."""

    kind = "snapshot"
    recorded = False

    name: str
    # What ZFS calls it.
    full_name: str
    # Seconds since 1970.
    creation: int


@dataclass(frozen=True, eq=False, repr=False)
class DeleteSnapshot(Step):
    """Delete a snapshot, its parts in this order. whole: every dataset has a part, so the hypervisor knows it."""

    kind = "delete_snapshot"
    recorded = False

    name: str
    parts: t.Tuple[Planned, ...]
    whole: bool

    @property
    def full_name(self) -> str:
        """What ZFS calls it."""
        return self.parts[0].name.partition("@")[2]


@dataclass(frozen=True, eq=False, repr=False)
class RollBack(Step):
    """Roll all datasets of the VM back, with ZFS: vmadm would start the VM afterwards, wherever its home is."""

    kind = "rollback"

    name: str
    parts: t.Tuple[Planned, ...]
    # Snapshots that are destroyed by it, those of syncs too.
    newer: t.Tuple[Planned, ...]
    # What it takes beside what the VM uses, until it has ended.
    beside_bytes: int = 0

    @property
    def keeps_vm_down(self) -> bool:
        """Always: after a failure, the VM's disks may be of different times."""
        return True


# -- creation and deletion


@dataclass(frozen=True, eq=False, repr=False)
class ClearRemains(Step):
    """Destroy the unused datasets that an interrupted creation has left."""

    kind = "clear"

    # The first one, and the others below it, with their snapshots, which left names, too.
    left: t.Tuple[Planned, ...]
    # What the pool gets back.
    frees_bytes: int = 0

    @property
    def root(self) -> str:
        """The dataset of the VM that was not made."""
        return self.left[0].name

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The root of the tree that is destroyed."""
        return (self.root,)


@dataclass(frozen=True, eq=False, repr=False)
class RemoveUnfinished(Step):
    """Remove what is left of a VM that the hypervisor was making or deleting."""

    kind = "remove_unfinished"

    uuid: str
    root: str
    # Datasets and snapshots. The first one is the VM's own dataset.
    parts: t.Tuple[Planned, ...]
    # The hypervisor still knows the VM.
    configured: bool
    # The VM was being deleted.
    deletes: bool
    # What the pool gets back.
    frees_bytes: int = 0

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The root of the tree that is destroyed."""
        return (self.root,) if self.parts else ()


@dataclass(frozen=True, eq=False, repr=False)
class ImportImage(Step):
    """Make a volume with the snapshot C(@final) from an image. file is the driver's object for the image's source."""

    kind = "import_image"

    volume: str
    volsize_bytes: int
    block_size_bytes: int
    file: t.Any  # the driver's own: ImageFile

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The image's volume."""
        return (self.volume,)


@dataclass(frozen=True, eq=False, repr=False)
class CreateVm(Step):
    """Create a VM with its new disks. A hypervisor that makes disks itself makes all or none. vm is what it will be."""

    kind = "create_vm"

    new: NewVm
    disks: t.Tuple[CreateDisk, ...]
    facts: t.Mapping[str, str]
    vm: Vm
    indestructible: bool
    ports: t.Tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DeleteVm(Step):
    """Delete the VM with these volumes (parts), and with these snapshots of its dataset and its volumes."""

    kind = "delete_vm"

    parts: t.Tuple[Planned, ...]
    snapshots: t.Tuple[Planned, ...]
