# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs as the hypervisor reports them, and disks linked to their volumes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .dataset import Dataset
from .sizes import MIB
from .text import visible

ABSENT = "absent"
# Stopped, with the memory of its guest in a file. Its next start resumes from that, and expects the disks unchanged.
SAVED = "saved"
# How a driver calls that among what does not travel.
SAVED_STATE = "a saved state (managed save)"
NO_GROUP = "none"  # what is written for a VM that was said to be in no group; the name of a member has a number
THICK, SPARSE, FILE = "thick", "sparse", "file"


@dataclass(frozen=True)
class Pci:
    """The PCI slots of a VM. Slots are C(BUS:DEVICE:FUNCTION), devices C(BUS:DEVICE)."""

    # Slots for new disks, the best first.
    candidates: t.Tuple[str, ...] = ()
    # Those of the candidates at which disks can be attached to a running VM, and detached.
    hot: t.FrozenSet[str] = frozenset()
    # Devices that are in use, with their owners.
    taken: t.Mapping[str, str] = field(default_factory=dict)
    # How many functions a device may have.
    functions: int = 8
    # Every slot is written down, and of other buses than 0 only the candidates can be used.
    strict: bool = False
    # Those of the candidates behind existing root ports with hot-plug, in the order of their numbers.
    ports: t.Tuple[str, ...] = ()
    # Those behind root ports that can be added to a stopped VM, in the order of their numbers.
    addable_ports: t.Tuple[str, ...] = ()
    # Single slots of devices that are no disks, with their owners. Disks may have other functions of these devices.
    others: t.Mapping[str, str] = field(default_factory=dict)
    # The addresses that guests see, by the slots that are no addresses.
    addresses: t.Mapping[str, str] = field(default_factory=dict)
    # The candidates whose disks stay while the VM runs, each with the reason.
    fixed: t.Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskElement:
    """Settings of a disk beyond our model: options of its driver, limits, sector sizes, encryption.

    The texts in the fields are used in messages.
    """

    # The element in its driver's own notation, "" if it is the same as for a new disk.
    text: str = ""
    # The format of the data if it is not raw, such as C(qcow2). C(luks): raw and encrypted.
    format: str = ""
    # Objects of the VM or the host that the disk needs.
    needs: t.Tuple[str, ...] = ()
    # Values that must be unique in a VM.
    claims: t.Tuple[str, ...] = ()
    # Settings that a detached disk cannot keep.
    lost: t.Tuple[str, ...] = ()
    # Reasons why the disk cannot be detached.
    holds: t.Tuple[str, ...] = ()
    # Why the size cannot be changed for a running guest.
    unresizable: str = ""
    # The job of the hypervisor that has the disk. Until its end a running VM neither resizes nor gives up the disk.
    busy: str = field(default="", compare=False)


@dataclass(frozen=True)
class DiskConfig:
    """A disk entry of a VM's configuration."""

    path: str
    # The dataset that the path names, "" for a CD-ROM or a file.
    volume: str = ""
    boot: bool = False
    model: str = ""
    media: str = "disk"
    image: str = ""
    # MiB.
    image_size: int = 0
    pci_slot: str = ""
    uuid: str = ""
    # The serial that the guest sees, if the hypervisor does not store uuids.
    serial: str = ""
    element: DiskElement = field(default_factory=DiskElement)
    # Other places of the configuration that name the path, and do not follow when it changes.
    mentions: t.Tuple[str, ...] = ()
    # Which disk this is, and why no task manages it, as a sentence. "" if it is managed, or no disk.
    left_out: str = ""
    # The volume of a disk that is left out only because of its path. An adoption can manage the disk.
    named: str = ""
    # The key of the disk in a configuration that has one for each place, such as C(virtio3).
    key: str = ""


class Use(t.NamedTuple):
    """How a VM uses a volume. The fields are empty for a disk of its list."""

    # Follows the VM in a message: "below the overlay /x".
    how: str = ""
    # How to end the use, as a sentence without its end.
    remedy: str = ""
    # Whether the volume is part of a disk that the list shows as something else, or not at all.
    hides: bool = False
    # Whether the remedy writes to the volume, which others may have, too.
    writes: bool = False


class GuestDisk(t.NamedTuple):
    """What a running VM has open at one place."""

    # The UUID of the VM, and the VM in messages.
    vm: str
    label: str
    # The place as the configuration calls it, such as C(scsi1).
    key: str
    # The datasets that it can be.
    volumes: t.Tuple[str, ...]


class Waiting(t.NamedTuple):
    """A change of a VM that its hypervisor has begun and not made yet. It is made with the next change of any kind."""

    # What it changes, as the hypervisor calls it.
    key: str
    # The disk that comes or goes, or that gets nothing but another serial; "" for any other change.
    volume: str = ""
    serial: str = ""
    # Its other settings, if it comes.
    settings: t.Tuple[str, ...] = ()
    # The disk goes.
    leaves: bool = False


class VmRecord(t.NamedTuple):
    """What only this collection knows of a VM, where its hypervisor has no place for it (rules/vm_record.py)."""

    # Saved identities by the serials of the disks.
    disks: t.Mapping[str, t.Mapping[str, t.Any]]
    # MiB.
    flexible_disk_size: t.Optional[int] = None
    # Disks that were detached from the VM, by their uuids: their names, and the volumes where they are.
    detached: t.Mapping[str, t.Mapping[str, str]] = {}


class ListedSnapshot(t.NamedTuple):
    """A snapshot that the configuration of its VM lists, with one of the same name of each volume in ZFS."""

    name: str
    # Its volumes, by their datasets.
    volumes: t.Tuple[str, ...] = ()
    # Seconds since 1970, before the first of its volumes got its snapshot; 0 if the configuration does not say.
    taken_at: int = 0
    # What it has and nothing is known about: disks that are no volumes in ZFS, and the memory of the VM.
    beyond: t.Tuple[str, ...] = ()
    # It is half made or half deleted.
    unfinished: bool = False
    # What a rollback would bring back of the VM's disks otherwise than it is now, by key.
    disks_differ: t.Tuple[str, ...] = ()
    # Other settings of which that is true, by key, and the fields of the configuration that have them.
    settings_differ: t.Tuple[str, ...] = ()
    fields: t.Mapping[str, t.Any] = {}
    # The serials of the disks that have another one now, by key.
    serials: t.Mapping[str, str] = {}
    # Why some of its disks cannot be reached at the moment: their storages, as sentences.
    off: t.Tuple[str, ...] = ()
    # The volumes that a half deleted one names as unused. Those in no disk become unused ones of the VM with its rest.
    unused: t.Tuple[str, ...] = ()


class NewDisks(t.NamedTuple):
    """Where a VM without a dataset of its own gets new disks, and what they are if nothing else is declared."""

    # How the names of their volumes begin.
    prefix: str
    type: str
    # Bytes, 0 for the usual one.
    block_size: int = 0


class Sharer(t.NamedTuple):
    """Another VM that uses a disk of the VM. label: the other VM, with how it uses the volume."""

    volume: str
    uuid: str
    label: str
    state: str


@dataclass(frozen=True)
class VmConfig:
    """The configuration of a VM."""

    uuid: str
    alias: str
    brand: str
    # ABSENT for a VM that is not there, SAVED for one whose memory is in a file.
    state: str
    autoboot: bool
    pool: str
    dataset: str
    # MiB as they are stored, None on a VM without flexible disk space.
    flexible_disk_size: t.Optional[int]
    disks: t.Tuple[DiskConfig, ...] = ()
    hidden_paths: t.FrozenSet[str] = frozenset()
    indestructible: bool = False
    transition: str = ""
    tags: t.Mapping[str, str] = field(default_factory=dict)
    pci: Pci = field(default_factory=Pci)
    # Only ZFS stores flexible_disk_size and the uuids of disks. The hypervisor cannot.
    identity_in_zfs: bool = False
    # Models that the disks of this VM can have. Empty: all of the hypervisor.
    models: t.Tuple[str, ...] = ()
    # The VM has no boot order, and boots from its first disk.
    first_boots: bool = False
    # A boot order by types of devices, into which no other disk can be put.
    boot_types: str = ""
    # Why nobody knows which disk the VM boots from, as a sentence with what helps.
    boot_unknown: str = field(default="", compare=False)
    # Why the configuration cannot be changed.
    frozen: str = ""
    new_disks: t.Optional[NewDisks] = None
    # None if there is none.
    record: t.Optional[VmRecord] = None
    # Changes that were begun and not made yet, and why nothing else may be changed then if they are not our own.
    waiting: t.Tuple[Waiting, ...] = ()
    why_waiting: str = ""
    # Snapshots of a VM without a dataset of its own.
    snapshots: t.Tuple[ListedSnapshot, ...] = ()
    # The volumes that a new one would have, by the keys of their disks, and disks that prevent one, as sentences.
    snapshotted: t.Mapping[str, str] = field(default_factory=dict)
    unsnapshotted: t.Tuple[str, ...] = ()
    # Disks of the configuration that the running VM lacks.
    unplugged: t.Tuple[str, ...] = ()
    # Volumes that the VM uses in any way, if the hypervisor reports more than the list of disks.
    uses: t.Mapping[str, Use] = field(default_factory=dict)
    # Disks which may use volumes that no path names.
    unclear: t.Tuple[DiskConfig, ...] = ()
    bootrom: str = ""
    # Changes with the configuration.
    digest: str = ""
    # MiB.
    memory: int = 0
    vcpus: int = 0
    # C(connected) or C(disconnected), "" if not known.
    guest_agent: str = ""
    # Differs after each start of the VM, "" while it is stopped.
    run_id: str = ""
    # Seconds since 1970 when a stopped VM ended, 0 if not known.
    ended_at: int = field(default=0, compare=False)
    # The hypervisor never starts the VM with the host. autoboot is the setting that is stored beside.
    failover: bool = False
    # Objects of the VM and its host that meet the needs of a DiskElement.
    offers: t.FrozenSet[str] = frozenset()
    # Values that must be unique in the VM, and that devices other than its disks have.
    claims: t.FrozenSet[str] = frozenset()
    # Why memory or vcpus cannot be changed, by these names: another part of the configuration has the same figure.
    fixed: t.Mapping[str, str] = field(default_factory=dict, compare=False)
    # How many vcpus other parts of the configuration need, because they name vcpus by number. Keys say which part.
    min_vcpus: t.Mapping[str, int] = field(default_factory=dict, compare=False)
    # How the names of its volumes begin, if they lie beside those of other VMs. Such a VM has no dataset of its own.
    prefixes: t.Tuple[str, ...] = ()
    # Volumes that the VM has and does not use; disks that are left alone because their volumes cannot be read.
    unused: t.Tuple[str, ...] = ()
    # Why no task stops the VM, as a sentence; "" if one may.
    unstoppable: str = ""
    # What C(unusedN) names in storages that the cluster does not have, by the keys.
    unused_nowhere: t.Mapping[str, str] = field(default_factory=dict)
    unreadable: t.Tuple[DiskConfig, ...] = ()
    # Why no task manages the VM, as a sentence. "" if that only depends on its dataset.
    unsupported: str = ""
    # What only Proxmox VE knows of its VMs, as results have it.
    proxmox: t.Mapping[str, t.Any] = field(default_factory=dict)

    @property
    def left_out(self) -> t.Tuple[str, ...]:
        """The VM's disks that no task manages, each with the reason, as sentences."""
        return tuple(disk.left_out for disk in self.disks if disk.left_out)

    @property
    def label(self) -> str:
        """The VM in messages: alias and uuid, or whichever it has."""
        alias = visible(self.alias)
        return f"{alias} ({self.uuid})" if alias and self.uuid else alias or self.uuid


@dataclass(frozen=True)
class Disk:
    """A volume with a disk, attached to a VM or detached.

    uuid, pci_slot, model, boot and element of an attached disk are those that the hypervisor reports; those of a
    detached disk are stored in its volume.
    """

    volume: Dataset
    # The uuid of the VM that has it, or had it last.
    vm: str
    index: int
    uuid: str = ""
    name: str = ""
    path: str = ""
    boot: bool = False
    model: str = ""
    image: str = ""
    # MiB.
    image_size: int = 0
    pci_slot: str = ""
    # Of an attached disk whose slot is no PCI address: the address that guests see, if it is known.
    address: str = ""
    # Values of the properties in rules/disk_properties.py. One that is not here has its default.
    user_properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    remaining: str = ""
    hidden: bool = False
    detached: bool = False
    snapshots: t.Tuple[Dataset, ...] = ()
    # An interrupted run has left its guard, a snapshot that is not among snapshots.
    guarded: bool = False
    # The name of the partial copy that an interrupted conversion has left.
    partial_copy: str = ""
    element: DiskElement = field(default_factory=DiskElement)

    @property
    def key(self) -> str:
        """The slot, if it is a place on a bus, such as C(virtio3); "" if it is a PCI address."""
        return "" if self.pci_slot[:1].isdigit() else self.pci_slot

    @property
    def preserve(self) -> bool:
        """Whether the disk is kept when it is no longer declared."""
        return bool(self.user_properties.get("preserve"))

    @property
    def size(self) -> int:
        """Bytes."""
        return self.volume.volsize

    @property
    def size_mib(self) -> int:
        """MiB, rounded down (a volsize set by hand need not be whole)."""
        return self.volume.volsize // MIB

    @property
    def type(self) -> str:
        """thick (a volume whose whole size is reserved), sparse (a volume that takes what is written) or file."""
        if self.volume.kind == "filesystem":
            return FILE
        return THICK if self.volume.refreservation else SPARSE

    @property
    def label(self) -> str:
        """The disk in messages: its name, or its key, index, uuid or volume if it has none."""
        return self.name or self.key or (f"disk{self.index}" if not self.detached else self.uuid or self.volume.name)

    @property
    def adopted(self) -> bool:
        """Whether a task gave this volume its identity. A file's uuid alone does not count: its path has it anyway."""
        identity = "serial_no" if self.volume.kind == "filesystem" else "uuid"
        return bool(self.volume.user.get(identity) or self.volume.user.get("name"))

    @property
    def disowned(self) -> bool:
        """Whether the hypervisor and the volume have different uuids, because somebody has moved a volume manually."""
        stored = self.volume.user.get("uuid", "")
        return bool(stored) and stored != self.uuid


class Intent(t.NamedTuple):
    """What a run writes to the journal before it changes a VM."""

    # Id of the plan.
    plan: str
    host: str
    # Time (UTC).
    since: str
    # The power that the VM has when the run is over: as the task declares, else as it was.
    state: str
    autoboot: bool
    # The run was about to stop the VM, or had done so. Only then state and autoboot are restored.
    stops: bool
    # For people.
    steps: t.Tuple[str, ...] = ()
    # For people: guid, from, to.
    moves: t.Tuple[t.Tuple[int, str, str], ...] = ()
    # The snapshot that all disks are going back to.
    rollback: str = ""
    # The VM that was being created.
    creates: str = ""
    # The VM had a boot disk.
    boots: bool = False
    # The member of a group that the new VM becomes.
    member: str = ""
    # The VM that was being deleted.
    deletes: str = ""
    # run_id of the VM whose guest the run was about to ask to shut down.
    asked: str = ""
    # The run has ended, and the guest had not shut down.
    late: bool = False

    @property
    def changes_power(self) -> bool:
        """Whether the run stops or starts the VM, or the hypervisor's own rollback does."""
        return self.stops or bool(self.rollback)


@dataclass(frozen=True)
class Vm:
    """A VM with everything that ZFS knows about it."""

    config: VmConfig
    root: Dataset
    # The attached volumes in the order of their indexes, hidden ones too.
    disks: t.Tuple[Disk, ...] = ()
    # Volumes below the VM's dataset that its configuration does not know.
    orphans: t.Tuple[Disk, ...] = ()
    detached: t.Tuple[Disk, ...] = ()
    # Volumes that no task manages, but snapshots of the VM include: firmware disks, and disks that have left the VM.
    beside: t.Tuple[Disk, ...] = ()
    # Names that no new volume may have, of a VM without a dataset of its own.
    siblings: t.FrozenSet[str] = frozenset()
    # Snapshots of the VM's dataset alone.
    snapshots: t.Tuple[Dataset, ...] = ()
    # Bytes of other children (file systems).
    other_used: int = 0
    # CD-ROMs, files and other disks without a volume.
    unbacked: t.Tuple[DiskConfig, ...] = ()
    # Paths whose volume does not exist.
    missing: t.Tuple[str, ...] = ()
    # Paths whose volume lies elsewhere and is left alone.
    strays: t.Tuple[str, ...] = ()
    # Paths in a pool that this task has not read.
    unread: t.Tuple[str, ...] = ()
    # The pools that this task has read, of a VM without a dataset of its own.
    pools: t.FrozenSet[str] = frozenset()
    # The journal entry of an interrupted run of this host.
    interrupted: t.Optional[Intent] = None
    # How the VM uses a volume among orphans, so that its list of disks is not complete.
    overlaid: str = ""
    # overlaid follows only from the list of disks, which lacks the volume.
    doubted: bool = False
    # The entry of a run that has asked the guest to shut down, which can still happen.
    asked: t.Optional[Intent] = None
    # This host is known to be the home of the VM, if it has failover (rules/power.py).
    at_home: bool = False
    # Snapshots of the file systems that others have made below its dataset. A recursive snapshot takes them, too.
    snapshots_below: t.Tuple[Dataset, ...] = ()
    # Other VMs that have its disks, stopped ones too.
    sharers: t.Tuple[Sharer, ...] = field(default=(), compare=False)
    # The VM ran when it was read.
    ran: bool = field(default=False, compare=False)
    # The host cannot tell one boot from the next, so at_home is never known.
    home_unknowable: bool = False

    @property
    def writers(self) -> t.Tuple[Sharer, ...]:
        """The VMs among the sharers that are not stopped."""
        return tuple(one for one in self.sharers if one.state != "stopped")

    @property
    def shared(self) -> t.Tuple[str, ...]:
        """The volumes of its disks that running VMs use as well, each with these VMs, as text."""
        users: t.Dict[str, t.List[str]] = {}
        for one in self.writers:
            users.setdefault(one.volume, []).append(f"{one.label}, which is {one.state}")
        return tuple(f"{volume} is in use by {', '.join(labels)}" for volume, labels in users.items())

    def beside_no_more_than(self, before: Vm) -> bool:
        """Whether all VMs that write to its disks did so already when the VM was read before."""
        known = {(one.volume, one.uuid) for one in before.writers}
        return {(one.volume, one.uuid) for one in self.writers} <= known

    @property
    def halted(self) -> bool:
        """Whether an interrupted run has stopped the VM, which was running before."""
        left = self.interrupted
        return left is not None and left.stops and left.state == "running" and self.config.state == "stopped"

    @property
    def autoboot_before(self) -> bool:
        """autoboot before the first stop of the interrupted run; every stop turns it off."""
        left = self.interrupted
        return left.autoboot if left is not None and left.changes_power else self.config.autoboot

    @property
    def boots(self) -> bool:
        """Whether the VM has a boot disk."""
        return any(disk.boot for disk in self.disks)

    @property
    def booted(self) -> bool:
        """Whether the VM has a boot disk, or had one before the interrupted run."""
        return self.boots or (self.interrupted is not None and self.interrupted.boots)

    @property
    def label(self) -> str:
        return self.config.label if self.exists else self.config.alias or self.config.uuid

    @property
    def exists(self) -> bool:
        """Whether the VM exists: False before its creation and after its deletion."""
        return self.config.state != ABSENT

    @property
    def package(self) -> str:
        """The name of the VM's latest package, "" for none."""
        return self.root.user.get("package", "")

    @property
    def generation(self) -> str:
        """The label that the user chose for the latest requested start, "" if there is none."""
        return self.root.user.get("generation", "")

    @property
    def member(self) -> t.Optional[str]:
        """The member of a group that the VM is, C(web-3). C("") for none, None if it was never declared."""
        value = self.root.user.get("member", "")
        return ("" if value == NO_GROUP else value) if value else None

    @property
    def drained(self) -> bool:
        """Whether the VM was taken out of service for a change, and not put back yet."""
        return self.root.user.get("drained") == "true"

    @property
    def volumes(self) -> t.Tuple[Dataset, ...]:
        """Every volume below the VM's dataset, configured or not. The quota law counts them all."""
        return tuple(d.volume for d in self.disks + self.orphans)

    @property
    def ghosts(self) -> t.Tuple[str, ...]:
        """Configured paths whose volumes an interrupted run has detached already."""
        detached = {disk.uuid for disk in self.detached if disk.uuid}
        return tuple(e.path for e in self.config.disks if e.path in self.missing and e.uuid in detached)

    @property
    def hidden_mib(self) -> int:
        """MiB of the platform's own disks, which the stored flexible_disk_size includes."""
        return sum(d.size_mib for d in self.disks if d.hidden)

    @property
    def flexible(self) -> bool:
        """Whether the VM has flexible disk space."""
        return self.config.flexible_disk_size is not None

    @property
    def declared_flexible(self) -> t.Optional[int]:
        """flexible_disk_size in MiB as users declare it: without hidden disks."""
        stored = self.config.flexible_disk_size
        return None if stored is None else stored - self.hidden_mib
