# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of whole VMs: their figures, power and snapshots, their creation and deletion."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.dataset import DatasetId
from ..model.desired import NewVm
from ..model.vm import NO_GROUP, Disk, DiskConfig, Vm
from .disk_steps import CreateDisk
from .steps import Step

# -- an interrupted run


@dataclass(frozen=True, eq=False, repr=False)
class Recover(Step):
    """Resume an interrupted run. The steps that are left to do follow."""

    kind = "recover"

    def late(self, live: t.Collection[str]) -> bool:
        """Never: the step changes nothing by itself."""
        return False


# -- figures


@dataclass(frozen=True, eq=False, repr=False)
class Remember(Step):
    """Bring the record of the VM (rules/vm_record.py) up to date with its disks."""

    # The serials of disks that are the VM's no more.
    serials: t.Tuple[str, ...] = ()
    # The disks that are detached from the VM then, as in the record. None: as they are there.
    detached: t.Optional[t.Mapping[str, t.Mapping[str, str]]] = None

    kind = "remember"
    facts_only = True
    recorded = False


@dataclass(frozen=True, eq=False, repr=False)
class GiveUp(Step):
    """Give up disks that only the record of the VM (rules/vm_record.py) knows."""

    # The serials of the disks.
    serials: t.Tuple[str, ...] = ()

    kind = "give_up"
    recorded = False


@dataclass(frozen=True, eq=False, repr=False)
class SettleQuota(Step):
    """Set quota and reservation of the VM's dataset by the quota law (rules/space.py), and its refreservation."""

    kind = "law"
    recorded = False
    completes_interrupted = True
    before_stop = True

    quota_bytes: int
    refreservation_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class SettleVolumes(Step):
    """Set volumes to their automatic reservation."""

    kind = "normalise"
    recorded = False
    completes_interrupted = True
    before_stop = True

    names: t.Tuple[str, ...]
    # The flexible_disk_size that a later step sets, None if none does.
    flexible_mib: t.Optional[int]

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes whose reservation is off."""
        return self.names


@dataclass(frozen=True, eq=False, repr=False)
class RetireSyncs(Step):
    """Destroy the snapshots of syncs, and release the space that is set aside for them."""

    kind = "retire"
    recorded = False
    before_stop = True

    snapshots: t.Tuple[DatasetId, ...]


@dataclass(frozen=True, eq=False, repr=False)
class SetFlexibleSize(Step):
    """Set flexible_disk_size."""

    kind = "flexible"
    recorded = False

    # With the space of hidden disks.
    stored_mib: int
    # The hypervisor then sets the refreservation of every volume to auto.
    sets_volumes_to_auto: bool


@dataclass(frozen=True, eq=False, repr=False)
class SetVmQuota(Step):
    """Set the quota of the VM's own file system."""

    kind = "quota"

    quota_bytes: int
    # The hypervisor then sets the refreservation of every volume to auto.
    sets_volumes_to_auto: bool


# -- power


@dataclass(frozen=True, eq=False, repr=False)
class Stop(Step):
    """Shut the VM down."""

    kind = "stop"
    stops = True

    # The hypervisor turns autoboot off when it stops a VM.
    autoboot_off: bool


@dataclass(frozen=True, eq=False, repr=False)
class Start(Step):
    """Start the VM."""

    kind = "start"
    changes_power = True
    starts = True

    # The hypervisor turns autoboot on when it starts a VM.
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


# -- properties of a VM besides its disks


@dataclass(frozen=True, eq=False, repr=False)
class SetProperties(Step):
    """Set those of memory, vcpus, indestructible, package, drained, generation and member that are not None."""

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
        """The properties of the VM's dataset that change. "" removes a property."""
        drained = None if self.drained is None else "true" if self.drained else ""
        member = None if self.member is None else self.member or NO_GROUP
        values = {"drained": drained, "package": self.package, "generation": self.generation, "member": member}
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
    """Write the name of the package, or its saved copy, to properties of the VM's dataset. "" removes a property."""

    kind = "package"

    dataset: str
    facts: t.Mapping[str, str]

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The VM's dataset."""
        return (self.dataset,)


@dataclass(frozen=True, eq=False, repr=False)
class Relocate(Step):
    """Move volumes from elsewhere in the pool below the VM's dataset."""

    kind = "adopt"

    # Each disk as it is configured, and as it will be.
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
    # Its name in ZFS, after the @.
    full_name: str
    # Seconds since 1970.
    creation: int


@dataclass(frozen=True, eq=False, repr=False)
class DeleteSnapshot(Step):
    """Delete a snapshot of a VM."""

    kind = "delete_snapshot"
    recorded = False

    name: str
    # In the order in which they are destroyed.
    parts: t.Tuple[DatasetId, ...]
    # The VM's dataset has a part, so the hypervisor knows the snapshot.
    complete: bool

    @property
    def full_name(self) -> str:
        """What ZFS calls it."""
        return self.parts[0].name.partition("@")[2]


@dataclass(frozen=True, eq=False, repr=False)
class RollBack(Step):
    """Roll all datasets of the VM back with zfs rollback. vmadm would start it, even if its home is elsewhere."""

    kind = "rollback"

    name: str
    parts: t.Tuple[DatasetId, ...]
    # Newer snapshots, which the rollback destroys, those of syncs too.
    newer: t.Tuple[DatasetId, ...]
    # The space that the rollback needs for a moment, beside what the VM uses.
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

    # The root of the tree first, then the datasets below it and all snapshots.
    left: t.Tuple[DatasetId, ...]
    # The space that the pool gets back.
    frees_bytes: int = 0

    @property
    def root(self) -> str:
        """The dataset of the VM whose creation was interrupted."""
        return self.left[0].name

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The root of the tree that is destroyed."""
        return (self.root,)


@dataclass(frozen=True, eq=False, repr=False)
class RemoveUnfinished(Step):
    """Remove what is left of a VM whose creation or deletion by the hypervisor was interrupted."""

    kind = "remove_unfinished"

    uuid: str
    root: str
    # Datasets and snapshots. The first one is the VM's own dataset.
    parts: t.Tuple[DatasetId, ...]
    # The hypervisor still knows the VM.
    configured: bool
    # The VM was being deleted.
    deletes: bool
    # The space that the pool gets back.
    frees_bytes: int = 0

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The root of the tree that is destroyed."""
        return (self.root,) if self.parts else ()


@dataclass(frozen=True, eq=False, repr=False)
class ImportImage(Step):
    """Create a volume with the snapshot C(@final) from an image file."""

    kind = "import_image"

    volume: str
    volsize_bytes: int
    block_size_bytes: int
    # The driver's object for the image file (ImageFile of libvirt).
    file: t.Any

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The image's volume."""
        return (self.volume,)


@dataclass(frozen=True, eq=False, repr=False)
class CreateVm(Step):
    """Create a VM with its new disks, in one step: a hypervisor that creates disks itself creates all or none."""

    kind = "create_vm"

    new: NewVm
    disks: t.Tuple[CreateDisk, ...]
    # The properties that the VM's dataset gets.
    facts: t.Mapping[str, str]
    # The VM as it will be.
    vm: Vm
    indestructible: bool
    ports: t.Tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DeleteVm(Step):
    """Delete the VM with its volumes and all snapshots."""

    kind = "delete_vm"

    # The volumes.
    parts: t.Tuple[DatasetId, ...]
    # The snapshots of the VM's dataset and of its volumes.
    snapshots: t.Tuple[DatasetId, ...]
