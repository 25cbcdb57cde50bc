# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What one sync of a VM's disks does: the set of snapshots, the streams of each disk, bytes, and room on the target."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...model.errors import FlexdiskError
from ...rules.replicas import is_synced, short_peer, sync_name, sync_number
from ...rules.retention import NEWEST_ONLY, Keep
from .copies import VOLUME, Original, Point, Replica, anchor_bookmark, next_number
from .retention import Pair, complete, obsolete_here, obsolete_there, retained_sets, synced, with_dates
from .streams import Full, GiveUp, Increment, Resume, Rollback, Stream, check_role, common, next_stream

# A record of a stream has this head before each block: dmu_replay_record_t of OpenZFS and illumos.
_HEAD = 312
_FUTURE = 1 << 64

_Pools = t.Tuple[int, int]


class DiskSync(t.NamedTuple):
    """What a sync does with one disk."""

    disk: Original
    replica: t.Optional[Replica]
    # In their order.
    streams: t.Tuple[Stream, ...]
    # Bytes that travel, by estimate.
    stream_bytes: int
    # Bytes that the target's pool must give.
    needed_bytes: int
    # Snapshots and bookmarks that the disk loses at the end.
    obsolete_here: t.Tuple[Point, ...]
    # Those that its replica loses at the end.
    obsolete_there: t.Tuple[Point, ...]
    # Snapshots that the disk loses before, because they have not come to the replica.
    failed: t.Tuple[Point, ...]
    # What is put right beside that, for messages.
    repairs: t.Tuple[str, ...]

    @property
    def idle(self) -> bool:
        """Whether nothing is done."""
        return not (self.streams or self.failed or self.obsolete_here or self.obsolete_there or self.repairs)


@dataclass(frozen=True)
class VmSync:
    """What a sync does with the disks of a VM."""

    # The set of snapshots that all have afterwards.
    name: str
    # The set is taken first.
    new: bool
    disks: t.Tuple[DiskSync, ...] = ()
    # The VM's space for the snapshots of syncs is put right.
    settles: bool = False

    @property
    def failed(self) -> t.Set[str]:
        """The sets that have not come, and go before."""
        return {point.name for disk in self.disks for point in disk.failed}

    @property
    def idle(self) -> bool:
        """Whether the replicas have all that there is."""
        return not (self.new or self.settles) and all(disk.idle for disk in self.disks)


class Clocks(t.NamedTuple):
    """What the clocks of both hosts say, in seconds since 1970."""

    here: int = 0
    peer: int = 0


_NO_CLOCKS = Clocks()
_Problems = t.List[t.Tuple[str, FlexdiskError]]


class _Stays(t.NamedTuple):
    """The names of the sets that stay on each side."""

    here: t.AbstractSet[str] = frozenset()
    there: t.AbstractSet[str] = frozenset()


_NONE_STAYS = _Stays()


def plan(
    pairs: t.Sequence[Pair],
    here: int,
    peer: int,
    fresh: bool = False,
    keep: Keep = NEWEST_ONLY,
    now: Clocks = _NO_CLOCKS,
) -> t.Tuple[VmSync, _Problems]:
    """Return the sync of a VM's disks with their replicas, before anything is done; and why not, by the disks' uuids.

    here and peer: the guids of the pools. A snapshot that is to be taken is planned as one with guid 0. fresh: a new
    set is taken although the replicas may have all that there is. keep: the older sets that stay.
    """
    pools = (here, peer)
    name = complete(pairs, pools)
    new = fresh or not name or not all(_has_all(disk, replica, name) for disk, replica in pairs)
    if new:
        everything = [copy for pair in pairs for copy in pair if copy is not None]
        name = sync_name(peer, next_number(everything, peer))
    disks: t.List[DiskSync] = []
    problems: _Problems = []
    failures = [given_up(disk, replica, pools) if new else () for disk, replica in pairs]
    wanted = [
        _with_snapshot(disk, failed, name, now.here) if new else disk
        for (disk, _replica), failed in zip(pairs, failures)
    ]
    stays = _NONE_STAYS
    if any(map(any, keep)):
        stays = _Stays(
            retained_sets(wanted, pools, keep.home),
            retained_sets(with_dates(_replicas_after(wanted, pairs, name), pools, now.peer), pools, keep.replica),
        )
    for disk, (_disk, replica), failed in zip(wanted, pairs, failures):
        try:
            if replica is not None:
                check_role(disk, replica, here)
            disks.append(_planned(disk, replica, name, pools, failed, stays))
        except FlexdiskError as exc:
            problems.append((disk.uuid, exc))
    return VmSync(name, new, tuple(disks)), problems


def _replicas_after(disks: t.Sequence[Original], pairs: t.Sequence[Pair], name: str) -> t.List[Replica]:
    """Return the replicas as they will be, as far as that can be planned. What comes has no time there yet."""
    result = []
    for disk, (_disk, replica) in zip(disks, pairs):
        try:
            after = streams_to(disk, replica, name)[1]
        except FlexdiskError:
            after = replica
        known = {point.guid for point in replica.points} if replica is not None else set()
        if after is not None:
            points = (p if p.guid in known else p._replace(time=0) for p in after.points)
            result.append(replace(after, points=tuple(points)))
    return result


def streams_to(
    disk: Original, replica: t.Optional[Replica], name: str
) -> t.Tuple[t.Tuple[Stream, ...], t.Optional[Replica]]:
    """Return all that brings a replica to the snapshot of this name, in order, and the replica afterwards.

    Raises FlexdiskError as next_stream does.
    """
    to = next(point for point in disk.snapshots if point.name == name)
    streams: t.List[Stream] = []
    while True:
        stream = next_stream(disk, replica, to)
        if stream is None:
            return tuple(streams), replica
        streams.append(stream)
        replica = _after(disk, replica, stream)


def taken(disk: Original, name: str, guid: int, createtxg: int) -> Original:
    """Return the disk with the snapshot that was taken in the place of the planned one."""
    points = (p._replace(guid=guid, createtxg=createtxg) if p.name == name and not p.guid else p for p in disk.points)
    return replace(disk, points=tuple(points))


def _has_all(disk: Original, replica: t.Optional[Replica], name: str) -> bool:
    """Return whether a replica with this set has all that the disk has now. Older snapshots that it lacks cannot come.

    A newer snapshot of a sync with another peer is nothing new, if nothing was written before it.
    """
    if replica is None or replica.token or replica.uuid != disk.uuid or disk.written:
        return False
    place = next(number for number, point in enumerate(disk.snapshots) if point.name == name)
    newer = disk.snapshots[place + 1 :]
    same = disk.kind != VOLUME or disk.volsize == replica.volsize
    return same and all(is_synced(point.name) and not point.written for point in newer)


def given_up(disk: Original, replica: t.Optional[Replica], pools: _Pools) -> t.Tuple[Point, ...]:
    """Return snapshots that earlier runs have taken for this peer in vain: a new one replaces them.

    They are newer than each set that has come. An older set had come, although the replica may have lost it: whether it
    stays is up to what the home retains. A bookmark says that a set had come, but that of the first snapshot: it is
    made before that is sent.
    """
    peer = pools[1]
    there = {point.guid for point in replica.snapshots} | {replica.token_guid} if replica is not None else set()
    came = [
        p.createtxg for p in synced(disk, pools) if (p.bookmark and not _is_anchor(p.name, pools)) or p.guid in there
    ]
    end = max(came, default=0)
    of_peer = [point for point in disk.snapshots if sync_number(point.name, peer) is not None]
    return tuple(point for point in of_peer if point.createtxg > end and point.guid not in there)


def _is_anchor(name: str, pools: _Pools) -> bool:
    return any(name == anchor_bookmark(pool) for pool in pools)


def _with_snapshot(disk: Original, failed: t.Collection[Point], name: str, now: int) -> Original:
    """Return the disk with the new snapshot, and without those that have not come. Their space counts for it."""
    written, points = 0, []
    for point in disk.snapshots:
        if point in failed:
            written += point.written
        else:
            points.append(point._replace(written=point.written + written))
            written = 0
    points.append(Point(name, 0, _FUTURE, written=disk.written + written, time=now))
    return replace(disk, points=(*points, *disk.bookmarks), written=0)


def _planned(
    disk: Original,
    replica: t.Optional[Replica],
    name: str,
    pools: _Pools,
    failed: t.Tuple[Point, ...],
    stays: _Stays,
) -> DiskSync:
    streams, then = streams_to(disk, replica, name)
    data = sum(_data(disk, replica, stream) for stream in streams)
    reserved = replica.refreservation if replica is not None else 0
    return DiskSync(
        disk,
        replica,
        streams,
        _stream_size(disk, data),
        data + max(0, disk.refreservation - reserved),
        obsolete_here(disk, name, *pools, stays.here),
        obsolete_there(disk, then, name, pools, stays.there) if then is not None else (),
        failed,
        _repairs(disk, replica, name, pools[1]),
    )


def _repairs(disk: Original, replica: t.Optional[Replica], name: str, peer: int) -> t.Tuple[str, ...]:
    """Return the repairs that a disk and a replica need although both have the set, for example after a killed run."""
    if replica is None or not any(point.name == name and point.guid for point in disk.snapshots):
        return ()
    here = {point.guid for point in disk.snapshots}
    checks = {
        "bookmark": not any(point.name == name for point in disk.bookmarks),
        "note of the replica": short_peer(peer) not in disk.peers,
        "readonly": not replica.readonly,
        "reservation": lacks_reservation(disk.refreservation, replica),
        "hold": any(point.name == name and not (point.held or point.pinned) for point in replica.snapshots),
        "marks of snapshots": any(point.guid in here and not point.sent for point in replica.snapshots),
    }
    return tuple(f"{repair} set" for repair, needed in checks.items() if needed)


def lacks_reservation(wanted: int, replica: Replica) -> bool:
    """Return whether a replica reserves less than its disk. wanted: bytes that the disk reserves. An automatic
    reservation is left to ZFS: its figures differ between hosts.
    """
    if replica.kind != VOLUME:
        return replica.refreservation < wanted
    return bool(wanted) and (replica.reserved != replica.volsize or not replica.refreservation)


def _data(disk: Original, replica: t.Optional[Replica], stream: Stream) -> int:
    """Return the bytes that a stream brings; of an interrupted one all, although a part may be there already."""
    if isinstance(stream, Full):
        return stream.to.written
    if isinstance(stream, Increment):
        return sum(p.written for p in disk.snapshots if stream.base.createtxg < p.createtxg <= stream.to.createtxg)
    if isinstance(stream, Resume):
        base = common(disk, replica) if replica is not None else None
        since = base.createtxg if base is not None else 0
        return sum(p.written for p in disk.snapshots if since < p.createtxg <= stream.to.createtxg)
    return 0


def _stream_size(disk: Original, data: int) -> int:
    """Return bytes on the wire: the data as ZFS keeps it, and a head for each block."""
    return data + int(data * disk.compression) // disk.block * _HEAD


def _after(disk: Original, replica: t.Optional[Replica], stream: Stream) -> t.Optional[Replica]:
    """Return the replica after a stream."""
    if isinstance(stream, Full):
        name = disk.uuid if disk.encryptionroot else ""  # a raw stream makes an encryption root
        return Replica(disk.uuid, name, disk.volsize, (stream.to,), kind=disk.kind, encryptionroot=name)
    there = t.cast(Replica, replica)
    if isinstance(stream, GiveUp):
        return replace(there, token="") if there.points else None
    if isinstance(stream, Rollback):
        return replace(there, points=tuple(p for p in there.points if p.name not in stream.lost))
    if isinstance(stream, Resume):
        came = [stream.to]
    else:
        known = {point.guid for point in there.points}
        between = (p for p in disk.snapshots if stream.base.createtxg < p.createtxg <= stream.to.createtxg)
        came = [point for point in between if point.guid not in known]
    newest = max((point.createtxg for point in there.points), default=0)
    points = (point._replace(createtxg=newest + number) for number, point in enumerate(came, 1))
    return replace(there, points=(*there.points, *points), token="", volsize=disk.volsize)
