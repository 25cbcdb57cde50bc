# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the takeover of a VM whose home has failed: the newest set of snapshots that is complete on this host."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...model.errors import FlexdiskError, Problem
from ...model.sizes import render_bytes
from ...rules.identity import seconds_of
from ...rules.keys import KEY_NOT_LOADED
from ...rules.replicas import is_synced
from .copies import Original, Point, Replica
from .record import DiskRecord, Record
from .streams import check_role


class LocalReplica(t.NamedTuple):
    """A replica on this host."""

    replica: Replica
    # The VM of its disk.
    vm: str
    # When the VM was as a snapshot at the latest, by the snapshots' names.
    times: t.Mapping[str, str]
    # What it has since its newest snapshot is given up.
    discards_writes: bool = False


LocalReplicas = t.Mapping[str, LocalReplica]  # by the disks' uuids


class DiskRollback(t.NamedTuple):
    """A disk that goes back to a snapshot of its replica. lost: newer snapshots, the newest first."""

    disk: DiskRecord
    replica: Replica
    to: Point
    lost: t.Tuple[Point, ...]
    discards_writes: bool = False

    @property
    def stays(self) -> t.List[int]:
        """The guids of the sets up to the one that the disk goes back to, the oldest first."""
        points = [point for point in self.replica.snapshots if point.createtxg <= self.to.createtxg]
        return [point.guid for point in points if is_synced(point.name)]

    @property
    def lost_bytes(self) -> int:
        """What was written from the set to the newest snapshot."""
        return sum(point.written for point in self.lost)

    @property
    def losses(self) -> t.List[str]:
        """What is lost of the disk, in words."""
        result = []
        newer = [point for point in reversed(self.lost) if not _is_of_others(point)]
        if newer:
            size = self.lost_bytes
            with_what = f"with {render_bytes(size)}, which another disk lacks" if size else "with nothing in it"
            result.append(f"disk {self.disk.name} loses {_names_of(newer)} {with_what}")
        others = [point for point in reversed(self.lost) if _is_of_others(point)]
        if others:
            result.append(f"disk {self.disk.name} loses {_names_of(others)}, which others have taken of its replica")
        if self.replica.token:
            result.append(f"disk {self.disk.name} loses what has arrived of an interrupted stream")
        return result


@dataclass(frozen=True)
class Takeover:
    """How a VM is taken over."""

    # The set that all disks go back to.
    name: str
    # When the VM was like that.
    synced: str
    disks: t.Tuple[DiskRollback, ...]
    # What stays behind.
    left_behind: t.Tuple[str, ...] = ()

    @property
    def points(self) -> t.Dict[str, t.List[int]]:
        """The guids of sets that come back, by the disks' uuids. The last one is that of the set."""
        return {rollback.disk.uuid: rollback.stays for rollback in self.disks}

    @property
    def losses(self) -> t.List[str]:
        """What is lost or stays behind, in words."""
        return [loss for rollback in self.disks for loss in rollback.losses] + list(self.left_behind)

    def age(self, now: float) -> t.Optional[int]:
        """Return seconds since the VM was as it will be, at most. None if that is not known, or lies in the future."""
        seconds = int(now) - seconds_of(self.synced) if self.synced else -1
        return seconds if seconds >= 0 else None


def plan(
    record: Record, replicas: LocalReplicas, done: t.Collection[str] = (), back_to: str = "", needs_keys: bool = True
) -> t.Tuple[t.Optional[Takeover], t.List[Problem]]:
    """Plan the takeover of a VM: the snapshots that its disks go back to, or the problems.

    done: uuids of disks that are disks of the VM here already. back_to: the set that an earlier run has chosen, which
    may have been interrupted while a disk went back. needs_keys: a replica whose key is not loaded is a problem, as no
    VM can start from it.
    """
    left = [disk for disk in record.disks if disk.uuid not in done]
    problems = [problem for disk in left for problem in _of_disk(record, disk, replicas, bool(back_to))]
    problems += _locked(record, left, replicas) if needs_keys else []
    if problems:
        return None, problems
    name = back_to or _newest([replicas[disk.uuid].replica for disk in left])
    if left and not all(_has(replicas[disk.uuid].replica, name) for disk in left):
        return None, [Problem("NoCompleteSet", _no_set(left, replicas), record.label)]
    rollbacks = [_rollback(disk, replicas[disk.uuid], name) for disk in left]
    problems = [
        problem for rollback in rollbacks for problem in _immovable_snapshots(record, rollback, replicas, bool(back_to))
    ]
    if problems:
        return None, problems
    synced = min((replicas[disk.uuid].times.get(name, "") for disk in left), default="")
    return Takeover(name, synced, tuple(rollbacks), tuple(_left_behind(record, replicas, rollbacks))), []


def without_disks(record: Record, names: t.Collection[str]) -> Record:
    """Return the record without the disks of these names or uuids. Raises FlexdiskError for one that there is not, and
    for the disk that the VM boots from.
    """
    strange = sorted(set(names) - {word for disk in record.disks for word in (disk.uuid, disk.name)})
    if strange:
        text = f"the record of VM {record.label} has no disk {', '.join(strange)}, but "
        raise FlexdiskError("InvalidArgument", text + ", ".join(disk.name for disk in record.disks))
    for disk in (disk for disk in record.disks if disk.boot and {disk.uuid, disk.name} & set(names)):
        raise FlexdiskError("InvalidArgument", f"VM {record.label} boots from disk {disk.name}")
    return replace(record, disks=tuple(disk for disk in record.disks if not {disk.uuid, disk.name} & set(names)))


def _of_disk(record: Record, disk: DiskRecord, replicas: LocalReplicas, begun: bool) -> t.Iterator[Problem]:
    local = replicas.get(disk.uuid)
    if local is None:
        text = "it has no replica here; if it had left the VM, flexdisk_leave_out names it"
        yield Problem("NoCompleteSet", text, record.label, disk.name)
        return
    if local.vm not in ("", record.uuid):
        yield Problem("NoCompleteSet", _of_other(disk, local), record.label, disk.name)
        return
    replica = local.replica
    try:
        check_role(Original(disk.uuid, disk.name, disk.size, kind=replica.kind), replica, record.home)
    except FlexdiskError as exc:
        yield Problem(exc.code, exc.message, record.label, disk.name)
    if replica.written and replica.snapshots and not (begun or local.discards_writes):
        text = f"{replica.dataset} was written to since its newest snapshot, {render_bytes(replica.written)};"
        yield Problem("ReplicaChanged", f"{text} zfs rollback gives that up", record.label, disk.name)


def _locked(record: Record, disks: t.Sequence[DiskRecord], replicas: LocalReplicas) -> t.List[Problem]:
    here = [(disk, replicas[disk.uuid].replica) for disk in disks if disk.uuid in replicas]
    return [
        Problem(KEY_NOT_LOADED, one.key_missing, record.label, disk.name) for disk, one in here if not one.key_loaded
    ]


def _of_other(disk: DiskRecord, local: LocalReplica) -> str:
    text = f"it is a disk of VM {local.vm} by now, says its replica {local.replica.dataset}, so it has left this VM"
    return text if disk.boot else f"{text}; flexdisk_leave_out names it"


def _newest(replicas: t.Sequence[Replica]) -> str:
    names = [{point.name: point.createtxg for point in _sets(one)} for one in replicas]
    common = set(names[0]).intersection(*names[1:]) if names else ()
    return max(common, key=lambda name: names[0][name], default="")


def _has(replica: Replica, name: str) -> bool:
    return any(point.name == name for point in replica.snapshots)


def _no_set(disks: t.Sequence[DiskRecord], replicas: LocalReplicas) -> str:
    text = "there is no set of snapshots that the replicas of all its disks have: "
    text += "; ".join(f"{disk.name} has {_names(replicas[disk.uuid].replica)}" for disk in disks)
    newest = max(
        (p for disk in disks for p in _sets(replicas[disk.uuid].replica)), key=lambda p: p.createtxg, default=None
    )
    lack = [disk for disk in disks if newest and not _has(replicas[disk.uuid].replica, newest.name) and not disk.boot]
    if lack:
        text += ". If a disk had left the VM, flexdisk_leave_out names it: "
    return text + ", ".join(disk.name for disk in lack)


def _sets(replica: Replica) -> t.List[Point]:
    return [point for point in replica.snapshots if is_synced(point.name) and point.from_disk]


def _rollback(disk: DiskRecord, local: LocalReplica, name: str) -> DiskRollback:
    points = local.replica.snapshots
    to = next(point for point in points if point.name == name)
    lost = tuple(point for point in reversed(points) if point.createtxg > to.createtxg)
    as_it_was = not (local.replica.written or local.discards_writes or any(point.written for point in lost))
    if as_it_was and all(map(_is_of_others, lost)):
        lost = ()  # nothing has changed since the set
    return DiskRollback(disk, local.replica, to, lost, local.discards_writes)


def _is_of_others(point: Point) -> bool:
    """Return whether somebody has taken this snapshot of the replica on its own host."""
    return not (point.from_disk or is_synced(point.name))


def _immovable_snapshots(
    record: Record, rollback: DiskRollback, replicas: LocalReplicas, begun: bool
) -> t.Iterator[Problem]:
    """Yield why snapshots that the disk must lose cannot be destroyed, unless it is going back already."""
    for point in rollback.lost:
        name = f"{rollback.replica.dataset}@{point.name}"
        if _is_of_others(point) and point.written and not (begun or replicas[rollback.disk.uuid].discards_writes):
            text = f"{name} is newer than the set, and does not come from the disk: destroy it if it is not needed"
            yield Problem("ReplicaChanged", text, record.label, rollback.disk.name)
        elif point.pinned:
            text = f"{name} is newer than the set, and is held by somebody else; zfs holds shows by whom"
            yield Problem("InUse", text, record.label, rollback.disk.name)


def _left_behind(record: Record, replicas: LocalReplicas, rollbacks: t.Sequence[DiskRollback]) -> t.Iterator[str]:
    """Replicas of disks that the VM had at the time of the set, or got later, and that its record lacks."""
    known, since = (
        {disk.uuid for disk in record.disks},
        min((rollback.to.createtxg for rollback in rollbacks), default=0),
    )
    for uuid in sorted(replicas.keys() - known):
        replica = replicas[uuid].replica
        newest = max((point.createtxg for point in _sets(replica)), default=since)
        if replicas[uuid].vm == record.uuid and replica.home == record.home and rollbacks and newest >= since:
            text = f"{replica.dataset} is of a disk that the record of {record.label} lacks;"
            yield f"{text} the VM comes back without it, and the replica stays"


def _names(replica: Replica) -> str:
    return _names_of(replica.snapshots) or "none"


def _names_of(points: t.Iterable[Point]) -> str:
    return ", ".join(f"@{point.name}" for point in points)
