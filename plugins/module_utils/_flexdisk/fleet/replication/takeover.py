# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a VM comes back to whose home has failed: the newest set of snapshots that all its disks have whole here."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import FlexdiskError, Problem
from ...model.sizes import render_bytes
from ...rules.identity import seconds_of
from ...rules.replicas import is_synced
from .copies import Original, Point, Replica
from .record import DiskRecord, Record
from .streams import check_role

Kept = t.Mapping[str, t.Tuple[Replica, str]]  # by the disks' uuids: the replica, and when it last had everything


class Back(t.NamedTuple):
    """A disk that goes back to a snapshot of its replica. lost: newer snapshots, the newest first."""

    disk: DiskRecord
    replica: Replica
    to: Point
    lost: t.Tuple[Point, ...]

    @property
    def words(self) -> t.List[str]:
        """What is lost of the disk, in words."""
        found = []
        if self.lost:
            newer = ", ".join(f"@{point.name}" for point in reversed(self.lost))
            size = render_bytes(sum(point.written for point in self.lost))
            found.append(f"disk {self.disk.name} loses {newer} with {size}, which another disk lacks")
        if self.replica.token:
            found.append(f"disk {self.disk.name} loses what has arrived of an interrupted stream")
        return found


@dataclass(frozen=True)
class Takeover:
    """name: the set that all disks go back to. synced: when the replicas last had everything, by the clock of their
    host; "" if they never had.
    """

    name: str
    synced: str
    disks: t.Tuple[Back, ...]

    def age(self, now: float) -> t.Optional[int]:
        """Seconds since the VM was as it will be, at most. None if that is not known, or lies in the future."""
        seconds = int(now) - seconds_of(self.synced) if self.synced else -1
        return seconds if seconds >= 0 else None


def plan(
    record: Record, kept: Kept, done: t.Collection[str] = (), back_to: str = ""
) -> t.Tuple[t.Optional[Takeover], t.List[Problem]]:
    """Where the disks of a VM go back to, or why the VM cannot be taken over.

    done: uuids of disks that are disks of the VM here already. back_to: the set that an earlier run has chosen, which
    may have been interrupted while a disk went back.
    """
    left = [disk for disk in record.disks if disk.uuid not in done]
    problems = [problem for disk in left for problem in _of_disk(record, disk, kept, bool(back_to))]
    if problems:
        return None, problems
    name = back_to or _newest([kept[disk.uuid][0] for disk in left])
    if left and not all(any(p.name == name for p in kept[disk.uuid][0].snapshots) for disk in left):
        words = "there is no set of snapshots that the replicas of all its disks have: "
        words += "; ".join(f"{disk.name} has {_names(kept[disk.uuid][0])}" for disk in left)
        return None, [Problem("NoCompleteSet", words, record.label)]
    backs = [_back(disk, kept[disk.uuid][0], name) for disk in left]
    strange = [(back, point) for back in backs for point in back.lost if not (point.from_disk or is_synced(point.name))]
    if strange:
        return None, [_strange(record, back, point) for back, point in strange]
    return Takeover(name, min((kept[disk.uuid][1] for disk in left), default=""), tuple(backs)), []


def _of_disk(record: Record, disk: DiskRecord, kept: Kept, begun: bool) -> t.Iterator[Problem]:
    found = kept.get(disk.uuid)
    if found is None:
        yield Problem("NoCompleteSet", "it has no replica here", record.label, disk.name)
        return
    replica = found[0]
    try:
        check_role(Original(disk.uuid, disk.name, disk.size, kind=replica.kind), replica, record.home)
    except FlexdiskError as exc:
        yield Problem(exc.code, exc.message, record.label, disk.name)
    if replica.written and replica.snapshots and not begun:
        words = f"{replica.dataset} was written to since its newest snapshot, {render_bytes(replica.written)};"
        yield Problem("ReplicaChanged", f"{words} zfs rollback gives that up", record.label, disk.name)


def _newest(replicas: t.Sequence[Replica]) -> str:
    names = [{p.name: p.createtxg for p in one.snapshots if is_synced(p.name) and p.from_disk} for one in replicas]
    common = set(names[0]).intersection(*names[1:]) if names else ()
    return max(common, key=lambda name: names[0][name], default="")


def _back(disk: DiskRecord, replica: Replica, name: str) -> Back:
    to = next(point for point in replica.snapshots if point.name == name)
    return Back(disk, replica, to, tuple(p for p in reversed(replica.snapshots) if p.createtxg > to.createtxg))


def _strange(record: Record, back: Back, point: Point) -> Problem:
    words = f"{back.replica.dataset}@{point.name} is newer than the set, and does not come from the disk: destroy it if"
    return Problem("ReplicaChanged", f"{words} it is not needed", record.label, back.disk.name)


def _names(replica: Replica) -> str:
    return ", ".join(f"@{point.name}" for point in replica.snapshots) or "none"
