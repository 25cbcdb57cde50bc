# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk and its replica, as the two hosts report them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...rules.keys import key_missing
from ...rules.replicas import sync_name, sync_number

VOLUME = "volume"


class Point(t.NamedTuple):
    """A snapshot or a bookmark of a dataset."""

    # Short: what follows @ or #.
    name: str
    guid: int
    createtxg: int
    bookmark: bool = False
    # The snapshot of a replica has come with a stream of its disk, and is marked so.
    sent: bool = False
    # Bytes since the snapshot before. Of the first one: all of it.
    written: int = 0
    # Held by us.
    held: bool = False
    # Held by others, so that nobody can destroy it.
    pinned: bool = False
    # The snapshot of a replica was about to come.
    coming: bool = False
    # When its disk was like it, by the clock of its host: seconds since 1970, 0 if unknown.
    time: int = 0

    @property
    def from_disk(self) -> bool:
        """Whether a snapshot of a replica has come from its disk."""
        return self.sent or self.coming

    @property
    def suffix(self) -> str:
        """What zfs send -i takes."""
        return ("#" if self.bookmark else "@") + self.name


@dataclass(frozen=True)
class Original:
    """A disk of a VM. Sizes are bytes."""

    uuid: str
    dataset: str
    volsize: int
    # In any order.
    points: t.Tuple[Point, ...] = ()
    # Since its newest snapshot, or that came without one.
    written: int = 0
    refreservation: int = 0
    # That of the dataset.
    kind: str = VOLUME
    block: int = 8192
    # How many bytes of a guest are in one of ZFS.
    compression: float = 1.0
    # The hosts that the disk says have replicas, as in Note.peer.
    peers: t.Tuple[str, ...] = ()
    # The dataset whose key opens it, "" if it is not encrypted.
    encryptionroot: str = ""

    @property
    def snapshots(self) -> t.List[Point]:
        """Oldest first."""
        return sorted((point for point in self.points if not point.bookmark), key=lambda point: point.createtxg)

    @property
    def bookmarks(self) -> t.List[Point]:
        """Oldest first."""
        return sorted((point for point in self.points if point.bookmark), key=lambda point: point.createtxg)


@dataclass(frozen=True)
class Replica(Original):
    """A replica on the other host. uuid: that of its disk, set locally on that host; "" if the dataset says nothing."""

    # An interrupted stream goes on with it, "" for none.
    token: str = ""
    # The snapshot that the token brings.
    token_guid: int = 0
    readonly: bool = True
    # The guid of the pool that the disk is in.
    home: int = 0
    # Its host's name, set as uuid is.
    host: str = ""
    # The volsize for which ZFS was told to reserve.
    reserved: int = 0
    # What the last sync that was told so has retained, as encode_keep() writes it.
    keep: str = ""
    # Whether its key is loaded on its host. True if it is not encrypted.
    key_loaded: bool = True
    # Where ZFS looks for the key: prompt, or the address of a file. "" if it is not encrypted.
    key_location: str = ""

    @property
    def key_missing(self) -> str:
        """Which key is not loaded, and how it is loaded."""
        return key_missing(self.encryptionroot, self.key_location)


def anchor_bookmark(peer: int) -> str:
    """Return the bookmark of the first snapshot that goes to a peer: a base until the first sync has ended."""
    return sync_name(peer, 0)


def next_number(disks: t.Iterable[Original], peer: int) -> int:
    """Return the number of the next set of snapshots: higher than any that a disk or a replica of the VM has."""
    numbers = (sync_number(point.name, peer) for disk in disks for point in disk.points)
    return max((number for number in numbers if number is not None), default=0) + 1
