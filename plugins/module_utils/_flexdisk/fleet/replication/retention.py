# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which snapshots of syncs are retained, and which are obsolete."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...rules.replicas import is_synced, short_peer, sync_number
from ...rules.retention import DatedSet, RetainCounts, retained
from ...rules.saved_memory import is_seal
from .copies import Original, Point, Replica

Pair = t.Tuple[Original, t.Optional[Replica]]


def complete(pairs: t.Sequence[Pair], pools: t.Collection[int]) -> str:
    """Return the name of the newest set of snapshots that every disk of a VM has on both sides, with equal guids; ""
    for none.

    pools: the guids of both pools. A snapshot is named after the pool that it was sent to, and that may have been
    either of them.
    """
    names = [_in_both(disk, replica, pools) for disk, replica in pairs]
    common = set(names[0]).intersection(*names[1:]) if names else ()
    return max(common, key=lambda name: names[0][name], default="")


def _in_both(disk: Original, replica: t.Optional[Replica], pools: t.Collection[int]) -> t.Dict[str, int]:
    """Return the createtxg of each snapshot of the sync that both have."""
    there = {point.guid for point in replica.snapshots} if replica else set()
    return {p.name: p.createtxg for p in synced(disk, pools) if not p.bookmark and p.guid in there}


def _is_of(point: Point, pools: t.Collection[int]) -> bool:
    """Whether it is of a sync between these pools, or the seal of a move with memory."""
    return is_seal(point.name) or any(sync_number(point.name, pool) is not None for pool in pools)


def synced(copy: Original, pools: t.Collection[int]) -> t.List[Point]:
    """Return the snapshots and bookmarks of the sync between these pools."""
    return [point for point in copy.points if any(sync_number(point.name, pool) is not None for pool in pools)]


def superseded(points: t.Collection[Point], pools: t.Collection[int]) -> t.Tuple[Point, ...]:
    """Return the snapshots and bookmarks of sets between these pools that are older than the newest set.

    So are the seals of moves with memory that somebody had kept (saved_memory.py).
    """
    of_sets = [point for point in points if any(sync_number(point.name, pool) is not None for pool in pools)]
    newest = max((p for p in of_sets if not p.bookmark), key=lambda p: p.createtxg, default=None)
    seals = [p for p in points if is_seal(p.name) and newest is not None and p.createtxg < newest.createtxg]
    return tuple(p for p in [*of_sets, *seals] if newest is not None and p.name != newest.name and not p.pinned)


def foreign_snapshots(replica: Replica) -> t.Tuple[Point, ...]:
    """Return the snapshots that others have taken of a replica on its own host, and that contain no new data.

    When a set was marked as come, all snapshots of the disk were, and nothing had been written between: later, what
    they seem to have written is that of older sets that have gone.
    """
    marked = max((p.createtxg for p in replica.snapshots if p.sent and is_synced(p.name)), default=0)
    others = [p for p in replica.snapshots if not (p.from_disk or is_synced(p.name) or p.held or p.pinned)]
    return tuple(p for p in others if p.createtxg < marked or not p.written)


def retained_sets(copies: t.Sequence[Original], pools: t.Collection[int], counts: RetainCounts) -> t.Set[str]:
    """Return the names of the sets between these pools that the disks, or the replicas, of a VM retain.

    Only whole sets are retained. A disk that has come later cannot have the older ones.
    """
    return retained(_whole_sets(copies, pools), counts) if any(counts) else set()


def _whole_sets(copies: t.Sequence[Original], pools: t.Collection[int]) -> t.List[DatedSet]:
    by_disk = [{p.name: p for p in synced(copy, pools) if not p.bookmark} for copy in copies]
    begins = [min((point.createtxg for point in points.values()), default=0) for points in by_disk]
    sets: t.List[t.Tuple[int, DatedSet]] = []
    for name in {name for points in by_disk for name in points}:
        having = [points[name] for points in by_disk if name in points]
        end = max(point.createtxg for point in having)
        if all(name in points or begin > end for points, begin in zip(by_disk, begins)):
            sets.append((end, DatedSet(name, max(point.time for point in having))))
    return [one for _end, one in sorted(sets)]


def with_dates(replicas: t.Sequence[Replica], pools: t.Collection[int], now: int) -> t.List[Replica]:
    """Return the replicas of a VM with a time for each set: the one that any of them has noted, else now.

    A set has no time if its sync was cut off after it had come. Dated when it is first seen, it is as old as the
    newest one: so it pushes no older set out.
    """
    noted: t.Dict[str, int] = {}
    for point in (point for replica in replicas for point in synced(replica, pools)):
        noted[point.name] = max(point.time, noted.get(point.name, 0))
    return [
        replace(
            replica,
            points=tuple(p if p.time else p._replace(time=noted.get(p.name, 0) or now) for p in replica.points),
        )
        for replica in replicas
    ]


def obsolete_here(
    disk: Original, name: str, home: int, peer: int, stays: t.Collection[str] = ()
) -> t.Tuple[Point, ...]:
    """Return what a disk has of other sets, once all disks of its VM have this one on both sides. home and peer: the
    guids of their pools. stays: the names of the sets to retain. Their bookmarks are not needed.

    A set that is named after home has come with a move. It may be all that the disk has in common with the host that it
    came from. So it stays until each other host that has replicas has a set of its own.
    """
    others = [int(one, 16) for one in disk.peers if one != short_peer(peer)]
    noted = all(any(point.bookmark for point in synced(disk, [one])) for one in others)
    pools = (home, peer) if noted else (peer,)
    points = [point for point in synced(disk, pools) if point.name != name]
    return tuple(point for point in points if point.bookmark or point.name not in stays)


def obsolete_there(
    disk: Original, replica: Replica, name: str, pools: t.Collection[int], stays: t.Collection[str] = ()
) -> t.Tuple[Point, ...]:
    """Return the older sets of a replica that has this set, and the older snapshots that its disk has lost.

    A newer one stays: without it, its contents would count as written. stays: the names of the sets to retain, which
    the disk may have lost.
    """
    here = {point.guid for point in disk.snapshots}
    known = {point.guid for point in disk.snapshots if point.name == name}
    end = next((point.createtxg for point in replica.snapshots if point.guid in known), 0)
    others = {point for point in replica.points if point.name != name and _is_of(point, pools)}
    stay = {point for point in others if point.name in stays}
    return tuple(
        p
        for p in replica.snapshots
        if p.createtxg < end and not (p.pinned or p in stay) and (p in others or (p.from_disk and p.guid not in here))
    )
