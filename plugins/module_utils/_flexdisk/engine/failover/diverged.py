# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that stay on the old home of a VM: what the new home lacks of them, and where they are kept."""

from __future__ import annotations

import typing as t

from ...fleet.replication.claims import Claim
from ...model.dataset import Dataset
from ...model.sizes import render_bytes
from ...model.vm import Disk
from ...rules.inventory import Host
from ...rules.layout import diverged, is_below, last_part, replicas
from ...rules.moves import Move
from ...rules.replicas import DIVERGED, HOME, HOST, OF_VM, REPLICAS_PROPERTY, RESERVED, ROLE, is_synced
from ...zfs import guard

_SHOWN = 20  # snapshots that a message names


class Old(t.NamedTuple):
    """A disk on the old home."""

    disk: Disk
    common: int
    """The guid of its newest snapshot that the new home has, 0 for none."""
    written: int
    """Bytes written since the common snapshot."""
    snapshots: t.Tuple[str, ...]
    """Short names of its snapshots after the common one, except those that syncs have taken."""

    @property
    def becomes_replica(self) -> bool:
        """Whether the new home lacks nothing of it."""
        return _lacks_nothing(self)


class Apart(t.NamedTuple):
    """A disk of a VM that has ended here, detached or in the place of those that have diverged."""

    volume: Dataset
    common: str
    """Its newest snapshot that the new home has, "" for none."""
    shared: t.Tuple[str, ...]
    """Its snapshots up to the common one."""
    lost: t.Tuple[str, ...]
    """Its newer snapshots, the newest first."""
    written: int
    """Bytes written since the common snapshot."""
    snapshots: t.Tuple[str, ...]
    """Short names of the snapshots that no other copy is known to have, except those that syncs have taken."""
    replicated: bool
    """Whether there is a replica beside it."""

    @property
    def becomes_replica(self) -> bool:
        """Whether the new home lacks nothing of it."""
        return _lacks_nothing(self)


def _lacks_nothing(disk: t.Union[Old, Apart]) -> bool:
    return bool(disk.common) and not disk.written and not disk.snapshots


def old_disk(disk: Disk, claim: Claim) -> Old:
    """Return the disk, compared with the snapshots that the new home says it has."""
    known = claim.points.get(disk.uuid, ())
    written, common, newer = disk.volume.written if disk.snapshots else disk.volume.referenced, 0, []
    for snapshot in reversed(disk.snapshots):
        if snapshot.guid in known:
            common = snapshot.guid
            break
        written += snapshot.written
        newer.append(snapshot)
    return Old(disk, common, written, _of_users(reversed(newer)))


def _of_users(points: t.Iterable[Dataset]) -> t.Tuple[str, ...]:
    """The short names of snapshots that neither a sync nor a guard has taken. Their contents do not matter: somebody
    may count on them.
    """
    names = (point.name.partition("@")[2] for point in points)
    return tuple(name for name in names if not is_synced(name) and name != guard.SNAPSHOT)


def what_lacks(one: t.Union[Old, Apart], there: str, before: str = " ") -> str:
    """Return what the new home lacks, or may lack, in words that begin with before; "" for nothing."""
    parts = [render_bytes(one.written)] if one.written else []
    if one.snapshots:
        shown = ", ".join(f"@{name}" for name in one.snapshots[:_SHOWN])
        more = f" and {len(one.snapshots) - _SHOWN} more" if len(one.snapshots) > _SHOWN else ""
        parts.append(f"its snapshot{'s' if len(one.snapshots) > 1 else ''} {shown}{more}")
    lacks = "lacks" if one.common else "may lack, for they have no snapshot in common"
    return f"{before}with {' and '.join(parts)} that {there} {lacks}" if parts else ""


def given_up(apart: Apart, becomes: bool) -> str:
    """What becomes of a disk whose data is given up."""
    name, there = apart.volume.name, apart.volume.user.get(HOST, "the new home")
    lacking = what_lacks(apart, there)
    if not becomes:
        return f"{name} is destroyed{lacking}"
    return f"{name} loses {lacking[len(' with ') :]}, and becomes a replica" if lacking else f"{name} becomes a replica"


def whose(move: Move) -> t.Dict[str, str]:
    """Where the VM of a disk is now."""
    return {HOME: str(move.pool), HOST: move.host}


def is_kept_of(volume: Dataset, uuid: str) -> bool:
    """Whether a dataset is a disk of this VM that stays here."""
    marked = bool(volume.user.get(DIVERGED)) or is_below(volume.name, diverged(volume.pool))
    return volume.backs and volume.user.get(OF_VM) == uuid and marked


def volumes_of(host: Host, uuid: str) -> t.List[Dataset]:
    """Return the disks of this VM that stay here, wherever they lie."""
    return [d for name, d in sorted(host.datasets.items()) if d.kind != "snapshot" and is_kept_of(d, uuid)]


def diverged_replicas(host: Host, uuid: str) -> t.List[Dataset]:
    """Replicas with data that the new home of their VM lacks, as far as they still lie where replicas lie."""
    there = [volume for volume in volumes_of(host, uuid) if volume.parent == replicas(volume.pool)]
    return [volume for volume in there if as_apart(host, volume).lost or volume.written]


def disks_apart(host: Host, uuid: str) -> t.List[Apart]:
    """Return the disks of the VM that are apart."""
    return [as_apart(host, volume) for volume in volumes_of(host, uuid) if is_below(volume.name, diverged(volume.pool))]


def as_apart(host: Host, volume: Dataset) -> Apart:
    """Return a disk that stays here, compared with what it notes of the new home, and with a replica beside it."""
    points = points_of(host, volume.name)
    text = volume.user.get(DIVERGED, "")
    place = next((n for n, point in enumerate(points) if f"{point.guid:x}" == text), None)
    if volume.user.get(ROLE) and not text:  # it has gone back already, and is about to become a replica again
        place = max((n for n, point in enumerate(points) if is_synced(point.name.partition("@")[2])), default=None)
    newer = points[place + 1 :] if place is not None else points
    older = points[: place + 1] if place is not None else []
    written = volume.written + sum(point.written for point in newer)
    beside = f"{replicas(volume.pool)}/{last_part(volume.name)}"
    there = {point.guid for point in points_of(host, beside)}
    only = [point for point in points if point.guid not in there] if beside in host.datasets else newer
    return Apart(
        volume,
        older[-1].name if older else "",
        tuple(point.name for point in older),
        tuple(point.name for point in reversed(newer)),
        written,
        _of_users(only),
        beside in host.datasets,
    )


def points_of(host: Host, name: str) -> t.List[Dataset]:
    """The snapshots of a dataset, oldest first."""
    points = [d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == name]
    return sorted(points, key=lambda point: point.createtxg)


def facts_of(one: Old, move: Move) -> t.Dict[str, str]:
    """What a disk says of its VM. A replica that still lies where replicas lie says whose it was until it has gone."""
    volume = one.disk.volume
    apart = {OF_VM: move.vm, DIVERGED: f"{one.common:x}"}
    if volume.parent == replicas(volume.pool):
        return apart
    reserved = str(volume.volsize) if volume.refreservation else ""
    return {**apart, **whose(move), REPLICAS_PROPERTY: "", **({RESERVED: reserved} if reserved else {})}
