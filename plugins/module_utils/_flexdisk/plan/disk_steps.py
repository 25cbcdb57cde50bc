# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of single disks: those that a VM has, gets or gives up, and those that no VM has."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.dataset import DatasetId
from ..model.vm import Disk, DiskElement
from .steps import Step


@dataclass(frozen=True, eq=False, repr=False)
class VolumeStep(Step):
    """A step of one volume, named as it is before the step."""

    volume: str

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volume of the step."""
        return (self.volume,)


# -- properties of the collection


@dataclass(frozen=True, eq=False, repr=False)
class WriteFacts(VolumeStep):
    """Write properties of the collection on a volume. The value "" removes a property."""

    facts: t.Mapping[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class WriteIdentity(WriteFacts):
    """Write what describes a disk: its name, preserve, description, tags and so on."""

    kind = "identity"


@dataclass(frozen=True, eq=False, repr=False)
class SyncFacts(WriteFacts):
    """Write the facts that repeat what the hypervisor says of a disk."""

    kind = "copy"
    facts_only = True

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """None, because the step does not count as a change."""
        return ()

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The volume of the step."""
        return (self.volume,)


@dataclass(frozen=True, eq=False, repr=False)
class CorrectFacts(WriteFacts):
    """Correct properties of a disk, or of a dataset that has disks below it."""

    kind = "correct"


@dataclass(frozen=True, eq=False, repr=False)
class ForgetRun(WriteFacts):
    """Remove the record of an interrupted run from the journal."""

    kind = "forget_intent"

    vm: str


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseDisk(Step):
    """Take the identity from a disk, and save it in one property for a later adoption."""

    kind = "release"

    dataset: str
    facts: t.Mapping[str, str]
    # The uuid that the disk has after the release.
    uuid: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk's dataset."""
        return (self.dataset,)


# -- guards and partial copies that interrupted runs have left


@dataclass(frozen=True, eq=False, repr=False)
class LiftGuard(VolumeStep):
    """Remove the guard of an interrupted run."""

    kind = "unguard"
    completes_interrupted = True

    # The disk has snapshots, so the space that the step frees cannot be predicted.
    snapshots: bool


@dataclass(frozen=True, eq=False, repr=False)
class DiscardCopy(VolumeStep):
    """Remove what an interrupted conversion has copied so far. The original disk is complete."""

    kind = "discard"

    guid: int
    partial_copy: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk and its partial copy."""
        return (self.volume, self.partial_copy)


# -- disks that stay


class DiskEdit(t.NamedTuple):
    """Changes in the configuration of a disk: some of uuid, pci_slot, model and boot, named as in DiskConfig."""

    volume: str
    path: str
    changes: t.Mapping[str, t.Any]  # for replace(), which checks the names and takes any type


@dataclass(frozen=True, eq=False, repr=False)
class EditDisks(Step):
    """Change the configuration of disks, all at once, so that two disks can swap their slots."""

    kind = "edit"

    edits: t.Tuple[DiskEdit, ...]

    @property
    def abilities(self) -> t.Tuple[str, ...]:
        """To edit what changes: C(edit uuid) and so on."""
        return tuple(f"{self.kind} {key}" for edit in self.edits for key in edit.changes)

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes of the disks that change."""
        return tuple(edit.volume for edit in self.edits)


@dataclass(frozen=True, eq=False, repr=False)
class SetCompression(VolumeStep):
    """Set the compression for data that is written from now on. path is "" for a disk that no VM has."""

    kind = "compression"

    path: str
    value: str


@dataclass(frozen=True, eq=False, repr=False)
class Resize(VolumeStep):
    """Change the size of a disk."""

    path: str
    size_mib: int
    guid: int
    type: str
    # The disk has snapshots, so the space that the step frees or takes cannot be predicted.
    snapshots: bool


@dataclass(frozen=True, eq=False, repr=False)
class Grow(Resize):
    """Make a disk of a VM larger."""

    kind = "grow"


@dataclass(frozen=True, eq=False, repr=False)
class Shrink(Resize):
    """Make a disk of a VM smaller, by cutting off its end."""

    kind = "shrink"


@dataclass(frozen=True, eq=False, repr=False)
class ResizeDetached(Resize):
    """Give a detached disk another size."""

    kind = "resize_detached"


class Copying(t.NamedTuple):
    """How a conversion between file and volume copies a disk."""

    uuid: str
    # The name of the copy until the original is destroyed.
    partial_copy: str
    block_size_bytes: int
    compression: str
    # Snapshots of the original, which are destroyed with it, by their short names.
    snapshots: t.Tuple[DatasetId, ...]
    # The space that the pool needs while both original and copy exist.
    beside_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class Convert(VolumeStep):
    """Convert a disk to another type."""

    kind = "convert"

    guid: int
    type: str
    # Set for a conversion to or from a file.
    copying: t.Optional[Copying] = None
    # The VM waits for the disk.
    vm_waits: bool = False

    @property
    def keeps_vm_down(self) -> bool:
        """Whether the VM waits for the disk to come back."""
        return self.vm_waits

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk, and its partial copy if it is copied."""
        return (self.volume, self.copying.partial_copy) if self.copying is not None else (self.volume,)


@dataclass(frozen=True, eq=False, repr=False)
class EndConversion(VolumeStep):
    """Give the copy of a conversion the name of its original, which is destroyed already."""

    kind = "end_conversion"

    guid: int
    target: str
    # They remove the mark of the conversion, or keep it while the VM waits for the disk.
    facts: t.Mapping[str, str]

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The old name and the new name."""
        return (self.volume, self.target)


# -- disks that leave their VM


@dataclass(frozen=True, eq=False, repr=False)
class DiskDeparture(VolumeStep):
    """Move a volume to the place of detached disks."""

    path: str
    target: str
    facts: t.Mapping[str, str]
    guid: int
    # The short name that the newest snapshot has after the move, "" if there is none.
    newest: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The old name and the new name."""
        return (self.volume, self.target)


@dataclass(frozen=True, eq=False, repr=False)
class Detach(DiskDeparture):
    """Detach a disk with its data."""

    kind = "detach"
    leaves_vm = True

    # Snapshots, by old and new short name.
    renames: t.Tuple[t.Tuple[str, str], ...]
    # A later step sets the VM's reservation anyway, so the pool need not provide the disk's space twice.
    reservation_set_later: bool
    # The VM waits for the disk to come back.
    vm_waits: bool = False

    @property
    def moved(self) -> t.Tuple[t.Tuple[str, str], ...]:
        """The volume's old and new name, unless it comes back."""
        return () if self.vm_waits else ((self.volume, self.target),)

    @property
    def keeps_vm_down(self) -> bool:
        """Whether the VM waits for the disk to come back."""
        return self.vm_waits


@dataclass(frozen=True, eq=False, repr=False)
class DetachUnattached(Detach):
    """Detach an orphan, a volume that the VM does not have attached."""

    kind = "park"
    completes_interrupted = True


@dataclass(frozen=True, eq=False, repr=False)
class Destroy(DiskDeparture):
    """Take a disk out of its VM, and destroy it with its snapshots (by their short names)."""

    kind = "destroy"
    leaves_vm = True

    snapshots: t.Tuple[DatasetId, ...]


@dataclass(frozen=True, eq=False, repr=False)
class DestroyDetached(VolumeStep):
    """Destroy a volume that no VM has attached, with its snapshots."""

    kind = "destroy_parked"

    guid: int
    # By their short names.
    snapshots: t.Tuple[DatasetId, ...]
    # Full names of snapshots whose holds are released first.
    on_hold: t.Tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class ForgetDisk(VolumeStep):
    """Take a ghost out of the configuration: a disk that is detached already."""

    kind = "forget"
    completes_interrupted = True

    path: str


# -- disks that a VM gets


class Attachment(t.NamedTuple):
    """A disk for a VM's configuration, as the driver gets it."""

    path: str
    size_mib: int
    model: str
    boot: bool
    pci_slot: str
    uuid: str
    element: DiskElement = DiskElement()
    # Parts of the element that this VM cannot have, for the user.
    without: t.Tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class DiskArrival(VolumeStep):
    """Give a disk to a VM: put its volume in place, then configure it."""

    size_mib: int
    type: str
    attachment: Attachment
    # The properties that the volume gets.
    facts: t.Mapping[str, str]
    compression: str

    @property
    def abilities(self) -> t.Tuple[str, ...]:
        """To do such a step, and to make the VM boot from the disk if that is wanted."""
        return (self.kind, "boot") if self.attachment.boot else (self.kind,)


@dataclass(frozen=True, eq=False, repr=False)
class AttachDisk(DiskArrival):
    """Attach an existing volume."""

    kind = "attach"

    # Not named disk, because Step.disk is the label.
    attached: Disk
    # Where the volume is now.
    source: str
    guid: int
    # The disk has snapshots and changes its size, so the space that the step frees or takes cannot be predicted.
    snapshots: bool
    # The VM waits for the disk.
    vm_waits: bool = False

    @property
    def abilities(self) -> t.Tuple[str, ...]:
        """Also moving a volume into the VM if it lies elsewhere."""
        return super().abilities if self.source == self.volume else (*super().abilities, "move in")

    @property
    def keeps_vm_down(self) -> bool:
        """Whether the VM waits for the disk to come back."""
        return self.vm_waits

    @property
    def moved(self) -> t.Tuple[t.Tuple[str, str], ...]:
        """The volume's present and new name, unless it only comes back."""
        return () if self.vm_waits else ((self.source, self.volume),)

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volume's new name and its present name."""
        return (self.volume, self.source)


@dataclass(frozen=True, eq=False, repr=False)
class CreateDisk(DiskArrival):
    """Create a disk, empty or as a clone of an image's snapshot."""

    kind = "create"

    block_size_bytes: int
    # The compression to set; "" leaves it inherited.
    own_compression: str
    # The snapshot that the disk is a clone of, "" for an empty disk.
    origin: str
    image_size_mib: int
    # 0 for a snapshot that an earlier step of the task takes.
    origin_guid: int = 0

    @property
    def abilities(self) -> t.Tuple[str, ...]:
        """Also making clones, if the disk is one of an image."""
        return (*super().abilities, "image") if self.origin else super().abilities

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The new volume and its origin."""
        return (self.volume, self.origin)


# -- disks that get other contents


class Exchanged(t.NamedTuple):
    """A disk, and what it is exchanged for. Volumes are found by their guids: a run may have been interrupted."""

    uuid: str
    # The name of the disk's volume.
    place: str
    former_guid: int
    # Of the volume that the disk gets. 0 for one that has not come yet.
    restored_guid: int
    # Where the former volume lies until the other one has its place.
    aside: str
    # Where the restored volume was, and where the former one is at last.
    spare: str
    # The mark of the restored volume until all are in their places.
    mark: str
    size_bytes: int
    type: str
    compression: str
    # Properties for the restored volume; {} if it has them.
    facts: t.Mapping[str, str]
    # Properties for the former volume before it leaves its place, and when the other one is there.
    facts_leaving: t.Mapping[str, str]
    facts_former: t.Mapping[str, str]
    # Snapshots of the former volume, by old and new short name.
    renames: t.Tuple[t.Tuple[str, str], ...]
    # Both disks afterwards.
    disk: Disk
    former: Disk


@dataclass(frozen=True, eq=False, repr=False)
class ExchangeDisks(Step):
    """Exchange the volumes of disks for detached ones. The configuration of the VM stays as it is."""

    kind = "exchange"

    exchanged: t.Tuple[Exchanged, ...]

    @property
    def keeps_vm_down(self) -> bool:
        """Always: its disks may have data of different times."""
        return True

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """The volumes of the disks, and the detached ones."""
        return tuple(name for one in self.exchanged for name in (one.place, one.spare))

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """All names that the volumes have meanwhile."""
        return tuple(name for one in self.exchanged for name in (one.place, one.aside, one.spare))


# -- disks that no VM has


@dataclass(frozen=True, eq=False, repr=False)
class CreateDetached(VolumeStep):
    """Create a detached disk: empty, a clone or a copy."""

    kind = "create_detached"

    size_mib: int
    type: str
    facts: t.Mapping[str, str]
    compression: str
    block_size_bytes: int
    own_compression: str
    # The snapshot that it is a clone of.
    origin: str
    # The disk or snapshot that it is a copy of.
    copy_of: str
    # The VM that it belongs to, or "".
    vm: str
    # The guid of the dataset or snapshot that it is a clone or a copy of.
    origin_guid: int = 0

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The new volume and what it is made from."""
        return (self.volume, self.origin, self.copy_of)


@dataclass(frozen=True, eq=False, repr=False)
class FinishDetached(VolumeStep):
    """Finish an interrupted creation: the disk has all its data already, and gets its size and reservation."""

    kind = "finish_detached"

    size_mib: int
    guid: int
    type: str


@dataclass(frozen=True, eq=False, repr=False)
class MoveDetached(VolumeStep):
    """Move a detached disk to the dataset that is named after its uuid."""

    kind = "place"

    guid: int
    uuid: str
    target: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The old name and the new name."""
        return (self.volume, self.target)
