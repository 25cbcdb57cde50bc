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
from ...rules.layout import diverged_container, is_below, last_part, replicas_container
from ...rules.moves import Move
from ...rules.replicas import DIVERGED, HOME, HOST, OF_VM, REPLICAS_PROPERTY, RESERVED, ROLE, is_synced
from ...zfs import guard

_SHOWN = 20  # snapshots that a message names


class Difference(t.NamedTuple):
    """What a disk on the old home has that the new home lacks."""

    has_base: bool
    """The new home has a snapshot of the disk. Without one it may lack everything."""
    written: int
    """Bytes written since the newest snapshot that the new home has."""
    snapshots: t.Tuple[str, ...]
    """Short names of the snapshots that only this disk is known to have, except those that syncs have taken."""

    @property
    def is_empty(self) -> bool:
        """Whether the new home lacks nothing. Then the disk becomes a replica."""
        return self.has_base and not self.written and not self.snapshots


class OldHomeDisk(t.NamedTuple):
    """A disk of a VM that still is, or was until now, on its old home."""

    disk: Disk
    common: int
    """The guid of its newest snapshot that the new home has, 0 for none."""
    difference: Difference


class DivergedDisk(t.NamedTuple):
    """A disk of a VM that has ended here. It lies detached, or where diverged disks lie."""

    volume: Dataset
    common: str
    """Its newest snapshot that the new home has, "" for none."""
    shared: t.Tuple[str, ...]
    """Its snapshots up to the common one."""
    lost: t.Tuple[str, ...]
    """Its newer snapshots, the newest first."""
    difference: Difference
    replicated: bool
    """Whether this host also has a replica of the disk."""


def compare_with_claim(disk: Disk, claim: Claim) -> OldHomeDisk:
    """Return the disk, compared with the snapshots that the new home says it has."""
    known = claim.points.get(disk.uuid, ())
    written, common, newer_snapshots = disk.volume.written if disk.snapshots else disk.volume.referenced, 0, []
    for snapshot in reversed(disk.snapshots):
        if snapshot.guid in known:
            common = snapshot.guid
            break
        written += snapshot.written
        newer_snapshots.append(snapshot)
    difference = Difference(bool(common), written, _of_users(reversed(newer_snapshots)))
    return OldHomeDisk(disk, common, difference)


def _of_users(points: t.Iterable[Dataset]) -> t.Tuple[str, ...]:
    """Return the short names of snapshots that users have taken, also of empty ones: somebody may count on them."""
    names = (point.name.partition("@")[2] for point in points)
    return tuple(name for name in names if not is_synced(name) and name != guard.SNAPSHOT)


def render_difference(difference: Difference, there: str, lead: str = " ") -> str:
    """Return what the new home lacks, or may lack, as the end of a sentence after lead; "" for nothing."""
    parts = [render_bytes(difference.written)] if difference.written else []
    if difference.snapshots:
        shown = ", ".join(f"@{name}" for name in difference.snapshots[:_SHOWN])
        more = f" and {len(difference.snapshots) - _SHOWN} more" if len(difference.snapshots) > _SHOWN else ""
        parts.append(f"its snapshot{'s' if len(difference.snapshots) > 1 else ''} {shown}{more}")
    lacks = "lacks" if difference.has_base else "may lack, for they have no snapshot in common"
    return f"{lead}with {' and '.join(parts)} that {there} {lacks}" if parts else ""


def render_given_up(disk: DivergedDisk, becomes_replica: bool) -> str:
    """Return the message about a disk whose data is given up."""
    name, new_home = disk.volume.name, disk.volume.user.get(HOST, "the new home")
    lacking = render_difference(disk.difference, new_home)
    if not becomes_replica:
        return f"{name} is destroyed{lacking}"
    return f"{name} loses {lacking[len(' with ') :]}, and becomes a replica" if lacking else f"{name} becomes a replica"


def new_home_of(move: Move) -> t.Dict[str, str]:
    """Return the properties that say where the VM of a disk is now."""
    return {HOME: str(move.pool), HOST: move.host}


def is_retained(volume: Dataset, uuid: str) -> bool:
    """Return whether a dataset is a disk of this VM that is kept on its old home."""
    marked = bool(volume.user.get(DIVERGED)) or is_below(volume.name, diverged_container(volume.pool))
    return volume.backs and volume.user.get(OF_VM) == uuid and marked


def retained_volumes(host: Host, uuid: str) -> t.List[Dataset]:
    """Return all disks of this VM that are kept on its old home."""
    return [d for name, d in sorted(host.datasets.items()) if d.kind != "snapshot" and is_retained(d, uuid)]


def diverged_replicas(host: Host, uuid: str) -> t.List[Dataset]:
    """Return replicas with data that the new home of their VM lacks, and that have not been renamed yet."""
    there = [volume for volume in retained_volumes(host, uuid) if volume.parent == replicas_container(volume.pool)]
    return [volume for volume in there if diverged_disk_of(host, volume).lost or volume.written]


def diverged_disks(host: Host, uuid: str) -> t.List[DivergedDisk]:
    """Return the disks of the VM that lie where diverged disks lie."""
    return [
        diverged_disk_of(host, volume)
        for volume in retained_volumes(host, uuid)
        if is_below(volume.name, diverged_container(volume.pool))
    ]


def diverged_disk_of(host: Host, volume: Dataset) -> DivergedDisk:
    """Return a disk that is kept here, compared with its noted base and with a replica of it on this host."""
    points = snapshots_of(host, volume.name)
    base_guid = volume.user.get(DIVERGED, "")
    base = next((n for n, point in enumerate(points) if f"{point.guid:x}" == base_guid), None)
    if volume.user.get(ROLE) and not base_guid:  # it has gone back already, and is about to become a replica again
        base = max((n for n, point in enumerate(points) if is_synced(point.name.partition("@")[2])), default=None)
    newer = points[base + 1 :] if base is not None else points
    older = points[: base + 1] if base is not None else []
    written = volume.written + sum(point.written for point in newer)
    beside = f"{replicas_container(volume.pool)}/{last_part(volume.name)}"
    there = {point.guid for point in snapshots_of(host, beside)}
    unshared = [point for point in points if point.guid not in there] if beside in host.datasets else newer
    return DivergedDisk(
        volume,
        older[-1].name if older else "",
        tuple(point.name for point in older),
        tuple(point.name for point in reversed(newer)),
        Difference(bool(older), written, _of_users(unshared)),
        beside in host.datasets,
    )


def snapshots_of(host: Host, name: str) -> t.List[Dataset]:
    """Return the snapshots of a dataset, the oldest first."""
    points = [d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == name]
    return sorted(points, key=lambda point: point.createtxg)


def diverged_facts(disk: OldHomeDisk, move: Move) -> t.Dict[str, str]:
    """Return the properties of a disk whose VM ends here. A replica keeps those of its VM until it is renamed."""
    volume = disk.disk.volume
    facts = {OF_VM: move.vm, DIVERGED: f"{disk.common:x}"}
    if volume.parent == replicas_container(volume.pool):
        return facts
    reserved = str(volume.volsize) if volume.refreservation else ""
    return {**facts, **new_home_of(move), REPLICAS_PROPERTY: "", **({RESERVED: reserved} if reserved else {})}
