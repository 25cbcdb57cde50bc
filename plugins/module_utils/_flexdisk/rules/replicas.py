# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a disk says of its replicas on other hosts: the names of the snapshots of a sync, and who has a replica."""

from __future__ import annotations

import re
import typing as t

from ..model.vm import Disk
from .identity import decode_time, seconds_of

SYNC = "flexdisk-sync-"
FACT = "replicas"  # our property of a disk that has replicas
SPACE = "replicas.space"  # and of its VM's dataset: bytes beside F for the snapshots of syncs
# Our properties of a replica.
ROLE, OF_VM, HOME, HOST, SYNCED, SENT, COMING, RESERVED, BACK = (
    f"replica{part}" for part in ("", ".vm", ".home", ".host", ".synced", ".sent", ".coming", ".reserved", ".back")
)
DIVERGED = (
    "replica.diverged"  # of a disk that is apart: the guid of its last snapshot that its VM's new home has, in hex
)
# Those by which a replica is known for one.
MARKS = (ROLE, OF_VM, HOME, HOST, SYNCED, RESERVED)
_LOG = (2 << 9, 2 << 12, 2 << 13)  # bytes of two blocks of one sector
_SYNC = re.compile(rf"{SYNC}([0-9a-f]{{8}})-(\d+)\Z")
_HOST = r"[A-Za-z0-9_.:-]{1,255}"
_NOTE = re.compile(rf"([0-9a-f]{{8}})=({_HOST})@([0-9TZ:-]{{20}}|)(?:/([0-9]{{1,20}}))?\Z")


def is_changed(written: int) -> bool:
    """Whether a replica with so many bytes written since its newest snapshot differs from that.

    When a pool is imported after a loss of power, ZFS forgets the log of each volume that had one, which a disk had as
    long as it was no replica. That counts as written: 1024 bytes on sectors of 512 bytes, 8192 on sectors of 4 KiB. For
    C(zfs receive) it is no change. Whatever a guest writes takes more blocks: measured were 52 KiB and more.
    """
    return written not in (0, *_LOG)


class Note(t.NamedTuple):
    """That a host has a replica. peer: the last 8 digits of the guid of its pool. synced: when the replica last had all
    that the disk had, by the clock of the disk's host; "" if never. home: the guid of the pool from which the replica
    has come, if the VM has moved since; else 0.
    """

    peer: str
    host: str
    synced: str
    home: int = 0


def short(peer: int) -> str:
    """The last 8 digits of the guid of a pool."""
    return f"{peer & 0xFFFFFFFF:08x}"


def sync_name(peer: int, number: int) -> str:
    """The short name of a snapshot of the sync with the host whose pool has the guid peer."""
    return f"{SYNC}{short(peer)}-{number}"


def sync_number(name: str, peer: int) -> t.Optional[int]:
    """The number in such a name, None if it is that of another peer or no snapshot of the sync."""
    found = _SYNC.match(name)
    return int(found[2]) if found and found[1] == short(peer) else None


def is_synced(name: str) -> bool:
    """Whether a snapshot is one of a sync, with whichever peer."""
    return _SYNC.match(name) is not None


def is_host(name: str) -> bool:
    """Whether a host of this name can have replicas."""
    return re.fullmatch(_HOST, name) is not None


def decode(text: str) -> t.List[Note]:
    """The notes in the value of FACT. What is no note is left out."""
    found = map(_NOTE.match, text.split(","))
    good = [match for match in found if match and (not match[3] or decode_time(match[3]))]
    return [Note(match[1], match[2], match[3], int(match[4] or 0)) for match in good]


def encode(notes: t.Iterable[Note]) -> str:
    """The value of FACT."""
    parts = [(f"{note.peer}={note.host}@{note.synced}", note.home) for note in sorted(notes)]
    return ",".join(f"{text}/{home}" if home else text for text, home in parts)


def elsewhere(disk: Disk, target: str, home: int) -> t.List[Note]:
    """The replicas of a disk on other hosts than target, as they are noted when the disk has left the pool home. None
    without a target.
    """
    notes = decode(disk.volume.user.get(FACT, ""))
    return [note._replace(home=note.home or home) for note in notes if target and note.host != target]


def hosts(disk: Disk) -> t.List[str]:
    """Who has replicas of a disk."""
    return sorted(note.host for note in decode(disk.volume.user.get(FACT, "")))


def shown(disk: Disk, now: float) -> t.List[t.Dict[str, t.Any]]:
    """Who has replicas of a disk, and how many seconds old they are, as a result. now is seconds since 1970."""
    notes = sorted(decode(disk.volume.user.get(FACT, "")), key=lambda note: note.host)
    return [{"host": note.host, "synced": note.synced, "age": age(note.synced, now)} for note in notes]


def age(synced: str, now: float) -> t.Optional[int]:
    """Seconds since a replica had all, None if it never had."""
    return max(0, int(now) - seconds_of(synced)) if synced else None
