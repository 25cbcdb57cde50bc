# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an operator declares. None means: not managed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DiskDeclaration:
    """One entry of a VM's disks. size is MiB; remaining excludes size; index is the number in the volume's name.

    least is the MiB below which the disk may not shrink, because the guest uses them; None: nobody has said.

    own has what is declared of the properties in rules/disk_properties.py. recreate_for is a word of the user: a boot
    disk that was made for another one is made anew.
    """

    name: str = ""
    uuid: str = ""
    present: bool = True
    size: t.Optional[int] = None
    remaining: bool = False
    boot: t.Optional[bool] = None
    image: t.Optional[str] = None
    pci_slot: t.Optional[str] = None
    model: t.Optional[str] = None
    block_size: t.Optional[int] = None
    type: t.Optional[str] = None
    compression: t.Optional[str] = None
    own: t.Mapping[str, t.Any] = field(default_factory=dict)
    dangerous_allow_shrink: bool = False
    least: t.Optional[int] = None
    destroy_snapshots: bool = False
    recreate: bool = False
    recreate_for: str = ""
    index: t.Optional[int] = None

    @property
    def label(self) -> str:
        return self.name or self.uuid


@dataclass(frozen=True)
class ReleasedIdentity:
    """What is known of a disk's identity besides its volume: declared by a task, or kept by a release.

    uuid, index and pci_slot say which disk it is. None, and "" but for remaining: nothing is said. own has what is said
    of the properties in rules/disk_properties.py.
    """

    uuid: str = ""
    index: t.Optional[int] = None
    pci_slot: t.Optional[str] = None
    name: str = ""
    own: t.Mapping[str, t.Any] = field(default_factory=dict)
    ctime: str = ""
    mtime: str = ""
    serial_no: t.Optional[int] = None
    remaining: t.Optional[str] = None


@dataclass(frozen=True)
class AdoptionDeclaration:
    """One VM whose disks are to have an identity; disks are what is said of some of them."""

    vm: str
    package: str = ""
    disks: t.Tuple[ReleasedIdentity, ...] = ()


@dataclass(frozen=True)
class PlacedDiskDeclaration:
    """What a task wants of one disk, wherever it is. state is present, attached, detached or absent.

    spec has uuid and name, by which the disk is found, and what it shall be. vm is the VM that shall have it, or in
    whose name space it is looked for; from_vm that which has it now; index (-1: the last) and slot tell a disk of vm.
    serial is the serial_no that the caller has read. source is the uuid or name of a disk that a new one is a clone or
    copy of, of its snapshot if that is named. release_holds and destroy_clones give these up with the disk.
    """

    state: str
    spec: DiskDeclaration
    vm: str = ""
    from_vm: str = ""
    index: t.Optional[int] = None
    slot: str = ""
    take: bool = False
    serial: t.Optional[int] = None
    source: str = ""
    source_snapshot: str = ""
    clone: bool = False
    release_holds: bool = False
    destroy_clones: t.FrozenSet[str] = frozenset()

    @property
    def label(self) -> str:
        where = f"index {self.index}" if self.index is not None else f"pci_slot {self.slot}"
        return self.spec.label or where


@dataclass(frozen=True)
class VmDisksDeclaration:
    """One entry of vms. flexible_disk_size is MiB without hidden disks, quota bytes; disks None: not managed.

    adopt permits to move the VM's volumes into the layout.
    """

    vm: str
    flexible_disk_size: t.Optional[int] = None
    quota: t.Optional[int] = None
    unlisted: str = "refuse"
    disks: t.Optional[t.Tuple[DiskDeclaration, ...]] = None
    adopt: bool = False


@dataclass(frozen=True)
class Package:
    """A named size class, of RFD 154: disk is the MiB that a VM's disks may use together; without flexible_disk they
    are an image and one disk of that size. disks are the entries of a new VM's disks, None: the usual ones.
    """

    name: str
    disk: int
    flexible_disk: bool = False
    memory: t.Optional[int] = None
    vcpus: t.Optional[int] = None
    disks: t.Optional[t.Sequence[t.Mapping[str, t.Any]]] = None


@dataclass(frozen=True)
class VmDeclaration:
    """What a task wants of one VM. state is present, running, stopped or absent; memory is MiB, quota bytes.

    vm is a uuid, the beginning of one, or an alias, which a new VM gets; uuid is that of a new VM. disks are entries as
    they were declared; options, metadata and template are the hypervisor's business and only for a new VM. generation
    is a word for a start, "" for none; restart: what needs a restart gets one. member is the member
    of a group that the VM is, "" for none.
    """

    vm: str
    uuid: str = ""
    state: str = "present"
    package: t.Optional[Package] = None
    flexible_disk_size: t.Optional[int] = None
    memory: t.Optional[int] = None
    vcpus: t.Optional[int] = None
    quota: t.Optional[int] = None
    image: str = ""
    image_file: str = ""
    disks: t.Optional[t.Sequence[t.Mapping[str, t.Any]]] = None
    unlisted: str = "refuse"
    autoboot: t.Optional[bool] = None
    indestructible: t.Optional[bool] = None
    drained: t.Optional[bool] = None
    member: t.Optional[str] = None
    generation: str = ""
    restart: bool = False
    destroy_disks: bool = False
    destroy_snapshots: bool = False
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""


@dataclass(frozen=True)
class NewVm:
    """A new VM, completely decided: memory is MiB, quota bytes, flexible_disk_size MiB without hidden disks."""

    uuid: str
    alias: str
    pool: str
    memory: int
    vcpus: int
    quota: int
    flexible_disk_size: t.Optional[int] = None
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""


@dataclass(frozen=True)
class Description:
    """What a driver says of a VM so that it can be made again on another host: what a NewVm has of it; what it has of
    disks beside what an attached disk gets, by path; and what belongs to its host, in words. It may hold secrets.
    variables: its UEFI variables, as a text of the driver; they may change as long as it runs.
    """

    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""
    variables: str = ""
    disks: t.Mapping[str, str] = field(default_factory=dict)
    stays: t.Tuple[str, ...] = ()

    @property
    def of_new(self) -> t.Dict[str, t.Any]:
        """The fields of a NewVm, and the variables."""
        words = ("options", "metadata", "template", "variables")
        return {word: getattr(self, word) for word in words}


class Approval(t.NamedTuple):
    """A plan that was approved: its digest, and its lines if they are known."""

    digest: str
    lines: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """What a task permits for all its VMs. approval: only this plan, None for any."""

    allow_restart: bool = False
    stop_timeout: int = 180
    allow_force_stop: bool = False
    matching: str = "name"
    continue_on_refusal: bool = False
    reclaim: bool = False
    space: bool = True
    approval: t.Optional[Approval] = None
    # What this host allows of VMs that other hosts describe (rules/incoming.py).
    incoming_allowed: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """A retention rule: how many of the newest snapshots, of the daily and of the weekly ones are kept.

    names: patterns of the snapshots that count; without any, those that are called like the task's own.
    """

    last: int = 0
    daily: int = 0
    weekly: int = 0
    names: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotDeclaration:
    """What a task wants of the snapshots of its VMs. state is present, absent or rolled_back.

    newer are names of snapshots that a rollback may destroy, None: all; flexible_disk_size is MiB without hidden disks;
    packages are those that a VM could have.
    """

    state: str
    name: str = ""
    keep: t.Optional[Keep] = None
    newer: t.Optional[t.Tuple[str, ...]] = ()
    flexible_disk_size: t.Optional[int] = None
    packages: t.Tuple[Package, ...] = ()


@dataclass(frozen=True)
class LeaseDeclaration:
    """What a run wants of the lease of a group: hold it for ttl seconds, or release it.

    token identifies the run, holder names it for people. take_over: also from another run. renew: only if the run has
    it already.
    """

    group: str
    token: str
    holder: str = ""
    held: bool = True
    ttl: int = 900
    take_over: bool = False
    renew: bool = False
