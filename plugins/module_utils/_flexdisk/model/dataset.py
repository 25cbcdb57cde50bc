# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Datasets and pools as ZFS reports them. All sizes are bytes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

# Block size of the files that are disks: their file systems' recordsize.
RECORD = 131072

# Where FreeBSD and Linux have the devices of volumes.
ZVOL = "/dev/zvol/"

# Where SmartOS has the raw ones, which are those of disks.
RAW_ZVOL = "/dev/zvol/rdsk/"


class DatasetId(t.NamedTuple):
    """The name and guid of a dataset or snapshot in a plan. Another one may get the name later, never the guid."""

    name: str
    guid: int


@dataclass(frozen=True)
class Dataset:
    """A file system, volume or snapshot as C(zfs get -Hp) shows it.

    For a file system with the file of a disk, volsize is the size of the file, and volblocksize the block size.

    user has our own properties without their prefix C(flexdisk:), and only those whose source is local or received: an
    inherited value says nothing about this dataset. received has the names of those that came with C(zfs receive).
    inherited has the names of inherited ones, each with the dataset that it is set on.
    """

    name: str
    kind: str
    guid: int = 0
    createtxg: int = 0
    creation: int = 0
    used: int = 0
    available: int = 0
    referenced: int = 0
    written: int = 0
    logicalreferenced: int = 0
    logicalused: int = 0
    volsize: int = 0
    volblocksize: int = 0
    quota: int = 0
    refquota: int = 0
    reservation: int = 0
    refreservation: int = 0
    usedbysnapshots: int = 0
    usedbydataset: int = 0
    usedbyrefreservation: int = 0
    userrefs: int = 0
    origin: str = ""
    clones: t.Tuple[str, ...] = ()
    compression: str = ""
    encryptionroot: str = ""
    keystatus: str = ""
    keylocation: str = ""
    user: t.Mapping[str, str] = field(default_factory=dict)
    received: t.FrozenSet[str] = field(default=frozenset(), compare=False)
    inherited: t.Mapping[str, str] = field(default_factory=dict, compare=False)

    def renamed(self, name: str) -> Dataset:
        """Return the dataset with another name. An encryption root stays one."""
        root = name if self.encryptionroot == self.name else self.encryptionroot
        return replace(self, name=name, encryptionroot=root)

    @property
    def locked(self) -> bool:
        """Whether the dataset is encrypted, and its key is not loaded."""
        return self.keystatus == "unavailable"

    @property
    def dataset_id(self) -> DatasetId:
        """The name and guid for a plan."""
        return DatasetId(self.name, self.guid)

    @property
    def parent(self) -> str:
        """The dataset above; for a snapshot, the dataset that it was taken of."""
        if self.kind == "snapshot":
            return self.name.split("@", 1)[0]
        return self.name.rsplit("/", 1)[0] if "/" in self.name else ""

    @property
    def pool(self) -> str:
        """The pool, from the name."""
        return self.name.split("@", 1)[0].split("/", 1)[0]

    @property
    def backs(self) -> bool:
        """Whether the dataset is a volume, or a file system that holds the file of a disk."""
        return self.kind == "volume" or (self.kind == "filesystem" and self.volsize > 0)

    @property
    def pinned(self) -> int:
        """Bytes that only this volume's snapshots hold.

        The whole reservation of a volume counts as used beside what snapshots share with it, so C(used -
        refreservation) is exact at once, while C(usedbysnapshots) grows only as blocks are overwritten. If nothing of
        the reservation is left (a sparse volume has none), everything written before the last snapshot counts.
        """
        if self.usedbyrefreservation or self.refreservation >= self.volsize > 0:
            return max(0, self.used - self.refreservation)
        return max(0, self.used - self.written)
