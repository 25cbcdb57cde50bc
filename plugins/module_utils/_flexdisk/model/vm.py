# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a hypervisor says of its VMs, and the disks linked to their volumes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .dataset import Dataset
from .sizes import MIB
from .text import visible

ABSENT = "absent"
# Shut off, with the memory of its guest in a file: its next start goes on with that, on the disks as they were.
SAVED = "saved"
NO_GROUP = "none"  # what is written for a VM that was said to be in no group; the name of a member has a number
THICK, SPARSE, FILE = "thick", "sparse", "file"


@dataclass(frozen=True)
class Pci:
    """Where a VM's disks can be. Slots are C(BUS:DEVICE:FUNCTION), devices C(BUS:DEVICE).

    candidates are for new disks, the best first; hot those of them that a running VM takes and gives up disks at;
    taken says who else has a device; functions is how many a device may have. strict: every slot is written down, and
    other buses than 0 have only the candidates. Of these ports are behind root ports that take disks while the VM runs,
    coming behind such that a stopped VM can get, in the order of their numbers. others are single slots of devices that
    are no disks, by their owners: disks may have other functions of the same devices.
    """

    candidates: t.Tuple[str, ...] = ()
    hot: t.FrozenSet[str] = frozenset()
    taken: t.Mapping[str, str] = field(default_factory=dict)
    functions: int = 8
    strict: bool = False
    ports: t.Tuple[str, ...] = ()
    coming: t.Tuple[str, ...] = ()
    others: t.Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DiskElement:
    """What a hypervisor knows of a disk beyond our model: options of its driver, limits, sizes of sectors, encryption.

    text is as its driver writes it, "" for nothing else than a new disk has. format is what lies on the volume if not
    the guest's own bytes, such as C(qcow2), and C(luks) if only encrypted. needs is what the VM or the host must have
    for it, claims what only one device of a VM can have. lost is what a detached disk cannot keep, and holds what keeps
    it from being detached. unresizable says why a running guest cannot be told another size; busy which job of the
    hypervisor has the disk, so that a running VM neither gives it another size nor gives it up. All in words.
    """

    text: str = ""
    format: str = ""
    needs: t.Tuple[str, ...] = ()
    claims: t.Tuple[str, ...] = ()
    lost: t.Tuple[str, ...] = ()
    holds: t.Tuple[str, ...] = ()
    unresizable: str = ""
    busy: str = field(default="", compare=False)


@dataclass(frozen=True)
class DiskConfig:
    """A disk entry of a VM's configuration. volume is the dataset the path names, "" for a CD-ROM or a file; serial is
    what a hypervisor that keeps no uuids shows the guest. element is what it knows beside; mentions are other places of
    the configuration that name the path and do not follow when it changes, in words. left_out says which disk it is and
    why no task manages it, "" if it is managed or no disk; named is the volume on which such a disk lies all the same,
    by another name, so that an adoption can take it in.
    """

    path: str
    volume: str = ""
    boot: bool = False
    model: str = ""
    media: str = "disk"
    image: str = ""
    image_size: int = 0
    pci_slot: str = ""
    uuid: str = ""
    serial: str = ""
    element: DiskElement = field(default_factory=DiskElement)
    mentions: t.Tuple[str, ...] = ()
    left_out: str = ""
    named: str = ""


class Use(t.NamedTuple):
    """How a VM uses a volume. The fields are empty for a disk of its list."""

    # Follows the VM in a message: "below the overlay /x".
    how: str = ""
    # What ends the use, as a sentence without its end.
    remedy: str = ""
    # Whether the volume is part of a disk that the list shows as something else, or not at all.
    hides: bool = False
    # Whether the remedy writes to the volume, which others may have, too.
    writes: bool = False


class Sharer(t.NamedTuple):
    """Another VM that has a disk of a VM. label: the other VM, with how it uses the volume."""

    volume: str
    uuid: str
    label: str
    state: str


@dataclass(frozen=True)
class VmConfig:
    """A VM's configuration. flexible_disk_size is the stored one in MiB, None on an inflexible VM.

    bare: the hypervisor keeps neither flexible_disk_size nor uuids of disks, ZFS alone does. models are those that this
    VM can have, if not all; first_boots: without a boot order the first disk is it; boot_types is an order
    of types of device, into which no other disk can be put; frozen says why it cannot be
    changed, unplugged names the disks that the running VM lacks, uses the volumes that it has open or configured in any
    way, where the hypervisor tells more than the list of disks; unclear has the disks on which may lie what nobody
    names; digest changes with the configuration. memory is MiB. guest_agent is C(connected) or C(disconnected), ""
    where nobody can tell. run_id differs after each start of the VM, and is "" while it is stopped. ended_at: seconds
    since 1970 when a stopped VM ended, 0 where nobody can tell. failover: the
    hypervisor never starts the VM with the host, and autoboot is a wish that is stored beside. A VM that is not there
    has the state ABSENT, one with a saved image of its memory SAVED. offers is what the VM and its host have for the
    needs of a DiskElement, claims what devices other than its disks have of what only one can have.
    """

    uuid: str
    alias: str
    brand: str
    state: str
    autoboot: bool
    pool: str
    dataset: str
    flexible_disk_size: t.Optional[int]
    disks: t.Tuple[DiskConfig, ...] = ()
    hidden_paths: t.FrozenSet[str] = frozenset()
    indestructible: bool = False
    transition: str = ""
    tags: t.Mapping[str, str] = field(default_factory=dict)
    pci: Pci = field(default_factory=Pci)
    bare: bool = False
    models: t.Tuple[str, ...] = ()
    first_boots: bool = False
    boot_types: str = ""
    frozen: str = ""
    unplugged: t.Tuple[str, ...] = ()
    uses: t.Mapping[str, Use] = field(default_factory=dict)
    unclear: t.Tuple[DiskConfig, ...] = ()
    bootrom: str = ""
    digest: str = ""
    memory: int = 0
    vcpus: int = 0
    guest_agent: str = ""
    run_id: str = ""
    ended_at: int = field(default=0, compare=False)
    failover: bool = False
    offers: t.FrozenSet[str] = frozenset()
    claims: t.FrozenSet[str] = frozenset()
    fixed: t.Mapping[str, str] = field(default_factory=dict, compare=False)
    """Why memory or vcpus cannot be changed, by these names: another part of the configuration says the same."""
    min_vcpus: t.Mapping[str, int] = field(default_factory=dict, compare=False)
    """How many vcpus other parts of the configuration need, because they name vcpus by number. Keys say which part."""

    @property
    def left_out(self) -> t.Tuple[str, ...]:
        """Its disks that no task manages, each with the reason, as sentences."""
        return tuple(disk.left_out for disk in self.disks if disk.left_out)

    @property
    def label(self) -> str:
        """The VM in messages: its alias and uuid, or the one that it has."""
        alias = visible(self.alias)
        return f"{alias} ({self.uuid})" if alias and self.uuid else alias or self.uuid


@dataclass(frozen=True)
class Disk:
    """A volume that backs a disk, attached to a VM or detached.

    vm is the uuid of the VM that has it or had it last; uuid, slot, model and boot are the hypervisor's word for an
    attached disk and the volume's own properties for a detached one. guarded says that an interrupted run has left its
    guard, a snapshot that is not among snapshots; half is what an interrupted conversion has copied so far, with a name
    of its own. own has the values of the properties in rules/disk_properties.py; one that it lacks has its default.
    element is the hypervisor's word for an attached disk, and what a detached one keeps of it.
    """

    volume: Dataset
    vm: str
    index: int
    uuid: str = ""
    name: str = ""
    path: str = ""
    boot: bool = False
    model: str = ""
    image: str = ""
    image_size: int = 0
    pci_slot: str = ""
    own: t.Mapping[str, t.Any] = field(default_factory=dict)
    remaining: str = ""
    hidden: bool = False
    detached: bool = False
    snapshots: t.Tuple[Dataset, ...] = ()
    guarded: bool = False
    half: str = ""
    element: DiskElement = field(default_factory=DiskElement)

    @property
    def preserve(self) -> bool:
        """Whether the disk is kept when it is no longer declared."""
        return bool(self.own.get("preserve"))

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
        """The disk in messages: its name, or its index, uuid or volume if it has none."""
        return self.name or (f"disk{self.index}" if not self.detached else self.uuid or self.volume.name)

    @property
    def adopted(self) -> bool:
        """Whether a task has given this volume its identity. The uuid of a file alone only tells the path."""
        own = "serial_no" if self.volume.kind == "filesystem" else "uuid"
        return bool(self.volume.user.get(own) or self.volume.user.get("name"))

    @property
    def disowned(self) -> bool:
        """Whether the hypervisor and the volume name different uuids, because somebody has moved something by hand."""
        own = self.volume.user.get("uuid", "")
        return bool(own) and own != self.uuid


class JournalEntry(t.NamedTuple):
    """What a run wrote down before it changed a VM: its plan's id, host and time (UTC), and the power that the VM has
    when the run is over: as the task declares, else as it was.

    stops: the run was about to stop the VM, or had done so; only then state and autoboot are to be restored.
    rollback names the snapshot that all disks are going back to, creates the VM that was being made, member the member
    of a group that it becomes, and deletes that which was being deleted; boots: the VM had a boot disk; steps and
    moves (guid, from, to) are for people. asked: run_id of the VM whose guest the run was about to ask to shut down.
    late: the run has ended, and the guest had not shut down.
    """

    plan: str
    host: str
    since: str
    state: str
    autoboot: bool
    stops: bool
    steps: t.Tuple[str, ...] = ()
    moves: t.Tuple[t.Tuple[int, str, str], ...] = ()
    rollback: str = ""
    creates: str = ""
    boots: bool = False
    member: str = ""
    deletes: str = ""
    asked: str = ""
    late: bool = False

    @property
    def powers(self) -> bool:
        """Whether the run stops the VM, or starts it, as the hypervisor's own rollback does."""
        return self.stops or bool(self.rollback)


@dataclass(frozen=True)
class Vm:
    """A VM with everything ZFS knows of it.

    disks are the attached volumes in the order of their indexes, hidden ones too; orphans are volumes below the VM's
    dataset that its configuration does not know; snapshots are those of that dataset alone; other_used is the space of
    other children (file systems); unbacked has CD-ROMs, files and other disks without a volume; missing names the paths
    whose volume does not exist, strays those whose volume lies elsewhere and is left alone, unread those in a pool that
    this task has not read;
    interrupted is the intent of a run of this host that did not come to its end; overlaid says how the VM
    uses a volume among orphans, so that its list of disks is not to be believed, and doubted that nothing but its
    silence speaks for that; asked is the entry of a run that has
    asked the guest to shut down, which can still happen; at_home: nobody can have taken the VM over, if it has failover
    (rules/power.py).
    """

    config: VmConfig
    root: Dataset
    disks: t.Tuple[Disk, ...] = ()
    orphans: t.Tuple[Disk, ...] = ()
    detached: t.Tuple[Disk, ...] = ()
    snapshots: t.Tuple[Dataset, ...] = ()
    other_used: int = 0
    unbacked: t.Tuple[DiskConfig, ...] = ()
    missing: t.Tuple[str, ...] = ()
    strays: t.Tuple[str, ...] = ()
    unread: t.Tuple[str, ...] = ()
    interrupted: t.Optional[JournalEntry] = None
    overlaid: str = ""
    doubted: bool = False
    asked: t.Optional[JournalEntry] = None
    at_home: bool = False
    # Snapshots of the file systems that others have made below its dataset. A recursive snapshot takes them, too.
    snapshots_below: t.Tuple[Dataset, ...] = ()
    # Other VMs that have its disks, stopped ones too; ran: it ran when it was read.
    sharers: t.Tuple[Sharer, ...] = field(default=(), compare=False)
    ran: bool = field(default=False, compare=False)
    home_unknowable: bool = False
    """Whether the host does not tell one boot from the next, so that at_home is never known."""

    @property
    def writers(self) -> t.Tuple[Sharer, ...]:
        """The VMs among the sharers that are not stopped."""
        return tuple(one for one in self.sharers if one.state != "stopped")

    @property
    def shared(self) -> t.Tuple[str, ...]:
        """The volumes of its disks that VMs which are not stopped use as well, each with these VMs, in words."""
        users: t.Dict[str, t.List[str]] = {}
        for one in self.writers:
            users.setdefault(one.volume, []).append(f"{one.label}, which is {one.state}")
        return tuple(f"{volume} is in use by {', '.join(labels)}" for volume, labels in users.items())

    def beside_no_more_than(self, before: Vm) -> bool:
        """Whether nobody writes to its disks who did not when the VM was read before."""
        known = {(one.volume, one.uuid) for one in before.writers}
        return {(one.volume, one.uuid) for one in self.writers} <= known

    @property
    def halted(self) -> bool:
        """Whether an interrupted run has stopped the VM, which ran before."""
        left = self.interrupted
        return left is not None and left.stops and left.state == "running" and self.config.state == "stopped"

    @property
    def autoboot_before(self) -> bool:
        """autoboot before the first stop of the interrupted run; every stop turns it off."""
        left = self.interrupted
        return left.autoboot if left is not None and left.powers else self.config.autoboot

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
        return self.config.label if self.there else self.config.alias or self.config.uuid

    @property
    def there(self) -> bool:
        """Whether the VM exists: not before it is made, nor after it was deleted."""
        return self.config.state != ABSENT

    @property
    def package(self) -> str:
        """The name of the VM's latest package, "" for none."""
        return self.root.user.get("package", "")

    @property
    def generation(self) -> str:
        """The word of the user for which the VM was started last, "" if there is none."""
        return self.root.user.get("generation", "")

    @property
    def member(self) -> t.Optional[str]:
        """The member of a group that the VM is, C(web-3). C("") for none, None if nobody has said anything of it."""
        value = self.root.user.get("member", "")
        return ("" if value == NO_GROUP else value) if value else None

    @property
    def drained(self) -> bool:
        """Whether somebody has taken the VM out of service to change it, and has not put it back."""
        return self.root.user.get("drained") == "true"

    @property
    def volumes(self) -> t.Tuple[Dataset, ...]:
        """Every volume below the VM's dataset, configured or not: the quota law counts them all."""
        return tuple(d.volume for d in self.disks + self.orphans)

    @property
    def ghosts(self) -> t.Tuple[str, ...]:
        """Configured paths of detached disks, whose volumes an interrupted run has moved out already."""
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
        """flexible_disk_size in MiB as an operator declares it: without hidden disks."""
        stored = self.config.flexible_disk_size
        return None if stored is None else stored - self.hidden_mib
