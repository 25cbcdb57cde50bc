# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas of disks on other hosts: names of the snapshots of a sync, and notes of a disk about replicas."""

from __future__ import annotations

import re
import typing as t

from ..model.dataset import Dataset
from ..model.vm import Disk
from .identity import decode_time, seconds_of
from .layout import container

SYNC = "flexdisk-sync-"
REPLICAS_PROPERTY = "replicas"  # our property of a disk that has replicas
SPACE = "replicas.space"  # and of its VM's dataset: bytes beside F for the snapshots of syncs
# Our properties of a replica.
ROLE, OF_VM, HOME, HOST, SYNCED, SENT, COMING_SNAPSHOTS, RESERVED, BACK, KEEP, TAKEN = (
    f"replica{part}"
    for part in ("", ".vm", ".home", ".host", ".synced", ".sent", ".coming", ".reserved", ".back", ".keep", ".taken")
)
DIVERGED = (
    "replica.diverged"  # of a disk that is apart: the guid of its last snapshot that its VM's new home has, in hex
)
# Those by which a replica is known for one.
MARKS = (ROLE, OF_VM, HOME, HOST, SYNCED, RESERVED, KEEP)
# Bytes that ZFS writes when it drops an intent log: the root of the dataset, twice, a sector each. The keys are the
# logicalreferenced of an empty file system, plain or encrypted, from which the sector size of its pool follows.
_ROOTS = {12288: 2 << 9, 50176: 2 << 9, 43008: 2 << 12, 70656: 2 << 12, 79872: 2 << 13, 99328: 2 << 13}
_LEAST = 2 << 9  # less than a write takes, whatever the sector size
_ADJUSTED = 60  # seconds by which a clock may be set back without a word
_SYNC = re.compile(rf"{SYNC}([0-9a-f]{{8}})-(\d+)\Z")
_HOST = r"[A-Za-z0-9_.:-]{1,255}"
_NOTE = re.compile(rf"([0-9a-f]{{8}})=({_HOST})@([0-9TZ:-]{{20}}|)(?:/([0-9]{{1,20}}))?\Z")


def is_changed(written: int, empty: int) -> bool:
    """Whether a volume with so many bytes written since its newest snapshot differs from that snapshot.

    ZFS drops the intent log of a volume that had one, as any disk has, when the volume goes back to a snapshot, and
    when its pool is imported after a loss of power. It rewrites only the root of the volume, in two sectors, which
    C(zfs receive) does not count as a change. A guest's write takes more: its block, and all blocks from the root to it
    (measured: 13 sectors).
    So a figure of two sectors is no change, if the sector size is known.

    empty: empty_size() of the pool, from which the sector size follows. If it is 0 or unknown, only less than any write
    is no change.
    """
    return written not in (0, _ROOTS.get(empty, _LEAST))


def empty_size(datasets: t.Mapping[str, Dataset], pool: str) -> int:
    """Return the logicalreferenced of an empty file system of the pool, its container; 0 if there is none."""
    filesystem = datasets.get(container(pool))
    return filesystem.logicalreferenced if filesystem is not None else 0


class Note(t.NamedTuple):
    """What a disk notes about one replica on another host."""

    # The last 8 digits of the guid of the pool there.
    peer: str
    host: str
    # When the replica last had all that the disk had, by the clock of the disk's host. "" if never.
    synced: str
    # The guid of the pool that the replica was synced from, if the VM has moved since, else 0.
    home: int = 0


def short_peer(peer: int) -> str:
    """Return the last 8 digits of the guid of a pool."""
    return f"{peer & 0xFFFFFFFF:08x}"


def sync_name(peer: int, number: int) -> str:
    """Return the short name of a snapshot of the sync with the host whose pool has the guid peer."""
    return f"{SYNC}{short_peer(peer)}-{number}"


def sync_number(name: str, peer: int) -> t.Optional[int]:
    """Return the number in such a name, None if it belongs to another peer or to no sync."""
    match = _SYNC.match(name)
    return int(match[2]) if match and match[1] == short_peer(peer) else None


def is_synced(name: str) -> bool:
    """Whether a snapshot belongs to a sync with any peer."""
    return _SYNC.match(name) is not None


def is_host(name: str) -> bool:
    """Whether a host of this name can have replicas."""
    return re.fullmatch(_HOST, name) is not None


def decode_notes(text: str) -> t.List[Note]:
    """Return the notes in the value of REPLICAS_PROPERTY. Invalid ones are left out."""
    matches = map(_NOTE.match, text.split(","))
    good = [match for match in matches if match and (not match[3] or decode_time(match[3]))]
    return [Note(match[1], match[2], match[3], int(match[4] or 0)) for match in good]


def is_set_of(name: str, note: Note) -> bool:
    """Return whether a snapshot belongs to a sync with the host of a replica."""
    match = _SYNC.match(name)
    return match is not None and match[1] == note.peer


def anchor_of(note: Note) -> str:
    """Return the bookmark from which the next sync with the host of a replica can go on, until that has ended."""
    return f"{SYNC}{note.peer}-0"


def encode_notes(notes: t.Iterable[Note]) -> str:
    """Return the value of REPLICAS_PROPERTY."""
    parts = [(f"{note.peer}={note.host}@{note.synced}", note.home) for note in sorted(notes)]
    return ",".join(f"{text}/{home}" if home else text for text, home in parts)


def elsewhere(disk: Disk, target: str, home: int) -> t.List[Note]:
    """Return the notes about replicas on hosts other than target, as after the disk has left the pool `home`."""
    notes = decode_notes(disk.volume.user.get(REPLICAS_PROPERTY, ""))
    return [note._replace(home=note.home or home) for note in notes if target and note.host != target]


def hosts(disk: Disk) -> t.List[str]:
    """Return the hosts that have replicas of a disk."""
    return sorted(note.host for note in decode_notes(disk.volume.user.get(REPLICAS_PROPERTY, "")))


def as_result(disk: Disk, now: float) -> t.List[t.Dict[str, t.Any]]:
    """Return the replicas of a disk with their age in seconds, as results show them. now: seconds since 1970.

    A note that came with the VM from another host was made by the clock of that host, so it has no age here. Nor has a
    note from the future: the clock was set back, and the replica may be older than it seems.
    """
    notes = sorted(decode_notes(disk.volume.user.get(REPLICAS_PROPERTY, "")), key=lambda note: note.host)
    ages = {note: None if note.home or _from_future(note.synced, now) else age(note.synced, now) for note in notes}
    return [{"host": note.host, "synced": note.synced, "age": ages[note]} for note in notes]


def _from_future(synced: str, now: float) -> bool:
    return bool(synced) and seconds_of(synced) > now + _ADJUSTED


def age(synced: str, now: float) -> t.Optional[int]:
    """Return the seconds since a replica was last complete, None if it never was."""
    return max(0, int(now) - seconds_of(synced)) if synced else None
