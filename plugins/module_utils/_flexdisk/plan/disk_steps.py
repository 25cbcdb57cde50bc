# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Steps of single disks: those that a VM has, gets or gives up, and those that no VM has."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.vm import Disk
from .steps import Step


@dataclass(frozen=True)
class VolumeStep(Step):
    """A step of one volume, by the name that it has before."""

    volume: str

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """Its one."""
        return (self.volume,)


# -- properties of our own


@dataclass(frozen=True)
class WriteFacts(VolumeStep):
    """Properties of the collection's own on a volume; "" removes one."""

    facts: t.Mapping[str, str]


@dataclass(frozen=True)
class WriteIdentity(WriteFacts):
    """What a disk is: its name, preserve, description, tags and so on."""

    kind = "identity"


@dataclass(frozen=True)
class SyncFacts(WriteFacts):
    """The facts that repeat what the hypervisor says of a disk."""

    kind = "copy"
    silent = True

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """Nothing that counts as a change."""
        return ()

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """Its one."""
        return (self.volume,)


@dataclass(frozen=True)
class CorrectFacts(WriteFacts):
    """A repair of properties, of a disk or of a dataset that has disks below it."""

    kind = "correct"


@dataclass(frozen=True)
class ForgetRun(WriteFacts):
    """The record of an interrupted run is removed."""

    kind = "forget_intent"

    vm: str


@dataclass(frozen=True)
class ReleaseDisk(Step):
    """A disk loses its identity, kept in one property for a later adoption. uuid: the one that it still has then."""

    kind = "release"

    dataset: str
    facts: t.Mapping[str, str]
    uuid: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk's."""
        return (self.dataset,)


# -- guards and halves that interrupted runs have left


@dataclass(frozen=True)
class LiftGuard(VolumeStep):
    """The guard of an interrupted run is removed."""

    kind = "unguard"
    mends = True


@dataclass(frozen=True)
class DiscardCopy(VolumeStep):
    """What an interrupted conversion has copied so far goes; the disk is whole without it."""

    kind = "discard"

    guid: int
    half: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk and the copy."""
        return (self.volume, self.half)


# -- disks that stay


class DiskEdit(t.NamedTuple):
    """What changes in the configuration of a disk: of uuid, pci_slot, model and boot some, named as in DiskConfig."""

    volume: str
    path: str
    changes: t.Mapping[str, t.Any]  # for replace(), which checks the names and takes any type


@dataclass(frozen=True)
class EditDisks(Step):
    """Changes of configuration, all at once, so that two disks can swap their slots."""

    kind = "edit"

    edits: t.Tuple[DiskEdit, ...]

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """Those of the disks that change."""
        return tuple(edit.volume for edit in self.edits)


@dataclass(frozen=True)
class SetCompression(VolumeStep):
    """Another compression, for what is written from now on. path is "" for a disk that no VM has."""

    kind = "compression"

    path: str
    value: str


@dataclass(frozen=True)
class Resize(VolumeStep):
    """Another size for a disk of this type. snapshots: it has some, so what it frees or takes is not known before."""

    path: str
    size_mib: int
    guid: int
    type: str
    snapshots: bool


@dataclass(frozen=True)
class Grow(Resize):
    """A disk of a VM becomes larger."""

    kind = "grow"


@dataclass(frozen=True)
class Shrink(Resize):
    """A disk of a VM becomes smaller; its end is cut off."""

    kind = "shrink"


@dataclass(frozen=True)
class ResizeDetached(Resize):
    """A detached disk gets another size."""

    kind = "resize_detached"


class Copying(t.NamedTuple):
    """How a disk is copied to become a file or a volume: half is the copy's name until the original has gone.

    uuid is the disk's; beside_bytes is what the pool gives while both are there; snapshots are those of the original,
    which go with it.
    """

    uuid: str
    half: str
    block_size_bytes: int
    compression: str
    snapshots: t.Tuple[str, ...]
    beside_bytes: int


@dataclass(frozen=True)
class Convert(VolumeStep):
    """Another type of disk. copying: to a file, or from one. vm_waits: a VM waits for the disk meanwhile."""

    kind = "convert"

    guid: int
    type: str
    copying: t.Optional[Copying] = None
    vm_waits: bool = False

    @property
    def keeps_vm_down(self) -> bool:
        """As long as the disk is not back."""
        return self.vm_waits

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """The disk, and its copy."""
        return (self.volume, self.copying.half) if self.copying is not None else (self.volume,)


@dataclass(frozen=True)
class EndConversion(VolumeStep):
    """The copy of a conversion whose original has gone gets the name of that one, and is marked no more."""

    kind = "end_conversion"

    guid: int
    target: str
    facts: t.Mapping[str, str]

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """Both names."""
        return (self.volume, self.target)


# -- disks that go


@dataclass(frozen=True)
class Departure(VolumeStep):
    """A volume is moved to the place of detached disks. newest: its newest snapshot, by its short name then, or ""."""

    path: str
    target: str
    facts: t.Mapping[str, str]
    guid: int
    newest: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """Both names."""
        return (self.volume, self.target)


@dataclass(frozen=True)
class Detach(Departure):
    """A disk is taken out of its VM with its data. renames: snapshots, by old and new short name.

    lean: a later step sets the VM's reservation anyway, so the pool need not give the disk's space twice.
    vm_waits: the VM waits for the disk to come back.
    """

    kind = "detach"
    leaves_vm = True

    renames: t.Tuple[t.Tuple[str, str], ...]
    lean: bool
    vm_waits: bool = False

    @property
    def keeps_vm_down(self) -> bool:
        """As long as the disk is not back."""
        return self.vm_waits


@dataclass(frozen=True)
class DetachUnattached(Detach):
    """The same for a volume that the VM does not have attached."""

    kind = "park"
    mends = True


@dataclass(frozen=True)
class Destroy(Departure):
    """A disk is taken out of its VM, and destroyed with its snapshots (by their short names)."""

    kind = "destroy"
    leaves_vm = True

    snapshots: t.Tuple[str, ...]


@dataclass(frozen=True)
class DestroyDetached(VolumeStep):
    """A volume that no VM has attached is destroyed. held: snapshots whose holds are released first."""

    kind = "destroy_parked"

    guid: int
    snapshots: t.Tuple[str, ...]
    held: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class ForgetDisk(VolumeStep):
    """A disk that lies detached already is taken out of the configuration."""

    kind = "forget"
    mends = True

    path: str


# -- disks that come


class Attachment(t.NamedTuple):
    """A disk in a VM's configuration, as the driver gets it."""

    path: str
    size_mib: int
    model: str
    boot: bool
    pci_slot: str
    uuid: str


@dataclass(frozen=True)
class Arrival(VolumeStep):
    """A disk comes to a VM: its volume is there, or made, and then configured. facts: what the volume is to carry."""

    size_mib: int
    type: str
    attachment: Attachment
    facts: t.Mapping[str, str]
    compression: str


@dataclass(frozen=True)
class AttachDisk(Arrival):
    """A volume that is there: source is where. snapshots: as for a resize. vm_waits: the VM waits for it."""

    kind = "attach"

    # Not named disk, which is the label.
    attached: Disk
    source: str
    guid: int
    snapshots: bool
    vm_waits: bool = False

    @property
    def keeps_vm_down(self) -> bool:
        """As long as the disk is not back."""
        return self.vm_waits

    @property
    def volumes(self) -> t.Tuple[str, ...]:
        """Where it will be, and where it is."""
        return (self.volume, self.source)


@dataclass(frozen=True)
class CreateDisk(Arrival):
    """A new volume, or a clone of an image's snapshot (origin). own_compression: "" inherits it."""

    kind = "create"

    block_size_bytes: int
    own_compression: str
    origin: str
    image_size_mib: int

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """What is made, and what of."""
        return (self.volume, self.origin)


# -- disks that no VM has


@dataclass(frozen=True)
class CreateDetached(VolumeStep):
    """A new disk that no VM has, empty, a clone (origin) or a copy (copy_of). vm: the one that it belongs to, or ""."""

    kind = "create_detached"

    size_mib: int
    type: str
    facts: t.Mapping[str, str]
    compression: str
    block_size_bytes: int
    own_compression: str
    origin: str
    copy_of: str
    vm: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """What is made, and what of."""
        return (self.volume, self.origin, self.copy_of)


@dataclass(frozen=True)
class FinishDetached(VolumeStep):
    """The end of an interrupted creation: the disk has all its data, and gets its size and reservation."""

    kind = "finish_detached"

    size_mib: int
    guid: int
    type: str


@dataclass(frozen=True)
class MoveDetached(VolumeStep):
    """A detached disk moves to the place that its uuid names."""

    kind = "place"

    guid: int
    uuid: str
    target: str

    @property
    def datasets(self) -> t.Tuple[str, ...]:
        """Both names."""
        return (self.volume, self.target)
