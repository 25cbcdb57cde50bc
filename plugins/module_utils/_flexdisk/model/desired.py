# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations of users. None means: not managed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DiskDeclaration:
    """One entry of a VM's disks."""

    name: str = ""
    uuid: str = ""
    present: bool = True
    # MiB.
    size: t.Optional[int] = None
    # The disk gets all space that is left. Excludes size.
    remaining: bool = False
    boot: t.Optional[bool] = None
    image: t.Optional[str] = None
    pci_slot: t.Optional[str] = None
    model: t.Optional[str] = None
    block_size: t.Optional[int] = None
    type: t.Optional[str] = None
    compression: t.Optional[str] = None
    # The declared properties of rules/disk_properties.py.
    user_properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    dangerous_allow_shrink: bool = False
    # MiB that the guest uses, below which the disk may not shrink. None: unknown.
    min_size: t.Optional[int] = None
    destroy_snapshots: bool = False
    recreate: bool = False
    # A label. A boot disk that was created for another label is recreated.
    recreate_for: str = ""
    # The number in the volume's name.
    index: t.Optional[int] = None

    @property
    def label(self) -> str:
        return self.name or self.uuid


@dataclass(frozen=True)
class ReleasedIdentity:
    """The identity of a disk without its volume, from a task or saved by a release.

    uuid, index and pci_slot say which disk it is. None and "" leave a field open; for remaining, only None does.
    """

    uuid: str = ""
    index: t.Optional[int] = None
    pci_slot: t.Optional[str] = None
    name: str = ""
    # The properties of rules/disk_properties.py.
    user_properties: t.Mapping[str, t.Any] = field(default_factory=dict)
    ctime: str = ""
    mtime: str = ""
    serial_no: t.Optional[int] = None
    remaining: t.Optional[str] = None


@dataclass(frozen=True)
class AdoptionDeclaration:
    """A VM whose disks should get an identity. disks: what is declared about some of them."""

    vm: str
    package: str = ""
    disks: t.Tuple[ReleasedIdentity, ...] = ()


@dataclass(frozen=True)
class PlacedDiskDeclaration:
    """What a task declares of one disk, wherever it is."""

    # present, attached, detached or absent.
    state: str
    # uuid and name, by which the disk is found, and its declaration.
    spec: DiskDeclaration
    # The VM that should have the disk, or among whose disks it is searched.
    vm: str = ""
    # The VM that has the disk now.
    from_vm: str = ""
    # Either of these two selects a disk of vm by its place. -1: the last one.
    index: t.Optional[int] = None
    slot: str = ""
    take: bool = False
    # The serial_no that the caller has read.
    serial: t.Optional[int] = None
    # uuid or name of a disk that a new one is a clone or copy of.
    source: str = ""
    # The clone or copy is of this snapshot of the source, or of the replica.
    source_snapshot: str = ""
    clone: bool = False
    # uuid of a disk. A new disk is a copy of its replica on this host.
    replica: str = ""
    # Holds that are released, and clones that are destroyed, with the disk.
    release_holds: bool = False
    destroy_clones: t.FrozenSet[str] = frozenset()

    @property
    def label(self) -> str:
        where = f"index {self.index}" if self.index is not None else f"pci_slot {self.slot}"
        return self.spec.label or where


@dataclass(frozen=True)
class VmDisksDeclaration:
    """One entry of vms."""

    vm: str
    # MiB without hidden disks.
    flexible_disk_size: t.Optional[int] = None
    # Bytes.
    quota: t.Optional[int] = None
    unlisted: str = "refuse"
    # None: the disks are not managed.
    disks: t.Optional[t.Tuple[DiskDeclaration, ...]] = None
    # The VM's volumes may be moved into the layout.
    adopt: bool = False


@dataclass(frozen=True)
class Package:
    """A named size class of RFD 154. Without flexible_disk, a VM gets an image and one disk."""

    name: str
    # MiB that the disks of a VM may use together, without flexible_disk the size of the one disk.
    disk: int
    flexible_disk: bool = False
    # MiB.
    memory: t.Optional[int] = None
    vcpus: t.Optional[int] = None
    # The entries of a new VM's disks. None: the usual ones.
    disks: t.Optional[t.Sequence[t.Mapping[str, t.Any]]] = None


@dataclass(frozen=True)
class VmDeclaration:
    """What a task declares of one VM."""

    # A uuid, the beginning of one, or an alias, which a new VM gets.
    vm: str
    # The uuid of a new VM.
    uuid: str = ""
    # present, running, stopped or absent.
    state: str = "present"
    package: t.Optional[Package] = None
    # MiB without hidden disks.
    flexible_disk_size: t.Optional[int] = None
    # MiB.
    memory: t.Optional[int] = None
    vcpus: t.Optional[int] = None
    # Bytes.
    quota: t.Optional[int] = None
    image: str = ""
    image_file: str = ""
    # Entries as they were declared.
    disks: t.Optional[t.Sequence[t.Mapping[str, t.Any]]] = None
    unlisted: str = "refuse"
    autoboot: t.Optional[bool] = None
    indestructible: t.Optional[bool] = None
    drained: t.Optional[bool] = None
    # The member of a group that the VM is, "" for none.
    member: t.Optional[str] = None
    # A label for a start. The VM is restarted if it was last started for another one. "" for none.
    generation: str = ""
    # The VM is restarted if a change needs it.
    restart: bool = False
    # The VM is restarted in any case, and started if it is stopped. Its state is running then.
    restarted: bool = False
    destroy_disks: bool = False
    destroy_snapshots: bool = False
    # These three are read by the driver, and only for a new VM.
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""


class ImageFile(t.NamedTuple):
    """An image in a file."""

    path: str
    format: str
    size: int
    """Bytes, as a guest sees it."""
    fingerprint: str = ""
    """Identifies the file and its last change. "" if it cannot be opened here."""


@dataclass(frozen=True)
class NewVm:
    """A new VM with everything decided."""

    uuid: str
    alias: str
    pool: str
    # MiB.
    memory: int
    vcpus: int
    # Bytes.
    quota: int
    # MiB without hidden disks.
    flexible_disk_size: t.Optional[int] = None
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""


@dataclass(frozen=True)
class Description:
    """What another host needs to create the VM again. It may contain secrets."""

    # As those of NewVm.
    options: t.Mapping[str, t.Any] = field(default_factory=dict)
    metadata: t.Mapping[str, t.Any] = field(default_factory=dict)
    template: str = ""
    # The UEFI variables, as a text of the driver. They may change as long as the VM runs.
    variables: str = ""
    # Settings of disks beyond those of any attached disk, by path.
    disks: t.Mapping[str, str] = field(default_factory=dict)
    # Parts of the VM that cannot leave its host, for messages.
    host_bound: t.Tuple[str, ...] = ()

    @property
    def of_new(self) -> t.Dict[str, t.Any]:
        """The fields of a NewVm, and the UEFI variables."""
        return {key: getattr(self, key) for key in ("options", "metadata", "template", "variables")}


class Approval(t.NamedTuple):
    """An approved plan: its digest, and its lines if they are known."""

    digest: str
    lines: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class Policy:
    """What a task permits for all its VMs."""

    allow_restart: bool = False
    # Seconds.
    stop_timeout: int = 180
    allow_force_stop: bool = False
    matching: str = "name"
    continue_on_refusal: bool = False
    reclaim: bool = False
    space: bool = True
    # Only this plan may be carried out. None: any.
    approval: t.Optional[Approval] = None
    # What this host allows of VMs that other hosts describe (rules/incoming.py).
    incoming_allowed: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class Keep:
    """A retention rule: how many of the newest, daily and weekly snapshots are kept."""

    last: int = 0
    daily: int = 0
    weekly: int = 0
    # Patterns of the snapshots that count. Without any: those that are named like the task's own.
    names: t.Tuple[str, ...] = ()


@dataclass(frozen=True)
class SnapshotDeclaration:
    """What a task declares of the snapshots of its VMs."""

    # present, absent or rolled_back.
    state: str
    name: str = ""
    keep: t.Optional[Keep] = None
    # Snapshots that a rollback may destroy. None: all.
    newer: t.Optional[t.Tuple[str, ...]] = ()
    # MiB without hidden disks.
    flexible_disk_size: t.Optional[int] = None
    # Packages that a VM can have.
    packages: t.Tuple[Package, ...] = ()


@dataclass(frozen=True)
class LeaseDeclaration:
    """What a run requests of the lease of a group."""

    group: str
    # Identifies the run.
    token: str
    # Names the run for people.
    holder: str = ""
    # The run wants to hold the lease, else to release it.
    hold: bool = True
    # Seconds.
    ttl: int = 900
    # Also from another run.
    take_over: bool = False
    # Only if the run has the lease already.
    renew: bool = False
