# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which stream a replica needs next. tests/streams/README.md has the facts about ZFS behind it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import FlexdiskError
from ...rules.keys import KEY_NOT_LOADED
from ...rules.replicas import is_synced
from .copies import Original, Point, Replica
from .retention import foreign_snapshots


@dataclass(frozen=True)
class Full:
    """A full stream, for a dataset that does not exist yet."""

    to: Point


@dataclass(frozen=True)
class Increment:
    """The changes between a snapshot or bookmark of both sides and a snapshot, with the snapshots in between."""

    base: Point
    to: Point


@dataclass(frozen=True)
class Resume:
    """The rest of an interrupted stream."""

    token: str
    to: Point


@dataclass(frozen=True)
class GiveUp:
    """An interrupted stream is discarded, because its snapshot is gone."""

    token: str


@dataclass(frozen=True)
class Rollback:
    """The replica goes back to a snapshot and loses later ones: old ones of its disk, or empty ones of others."""

    to: Point
    lost: t.Tuple[str, ...]


Travelling = t.Union[Full, Increment, Resume]
Stream = t.Union[Travelling, GiveUp, Rollback]


def send_command(dataset: str, stream: Travelling, raw: bool = False) -> t.Tuple[str, ...]:
    """Return the command line of zfs send. Blocks are sent compressed, as they are stored; raw, also encrypted so.

    The token of a raw stream says that it is raw.
    """
    if isinstance(stream, Resume):
        return ("zfs", "send", "-t", stream.token)
    target, form = dataset + stream.to.suffix, "-w" if raw else "-c"
    if isinstance(stream, Full):
        return ("zfs", "send", form, target)
    return ("zfs", "send", form, "-i" if stream.base.bookmark else "-I", stream.base.suffix, target)


def next_stream(disk: Original, replica: t.Optional[Replica], to: Point) -> t.Optional[Stream]:
    """Return the next stream that a replica needs on the way to a snapshot of its disk, None if it has it.

    Raises FlexdiskError: InUse for a dataset that is no replica of this disk, ReplicaChanged for one that was written
    to or has snapshots of others, InvalidArgument for one that would shrink, NoCommonSnapshot without a base; and as
    check_encryption() does.
    """
    if replica is None:
        return Full(disk.snapshots[0])
    check_role(disk, replica)
    check_encryption(disk.dataset, bool(disk.encryptionroot), replica)
    if replica.token:
        wanted = next((point for point in disk.snapshots if point.guid == replica.token_guid), None)
        # What ZFS has begun to receive takes no rollback, and a snapshot of its name stands in its way.
        clashes = wanted is not None and (_clashing(replica, [wanted]) or _in_the_way(disk, replica))
        return Resume(replica.token, wanted) if wanted and not clashes else GiveUp(replica.token)
    if any(point.guid == to.guid for point in replica.snapshots):
        return None
    _check_contents(disk, replica)
    base = common(disk, replica)
    if base is None:
        raise _made_again(disk, replica, f"and {disk.dataset} have no snapshot in common")
    return _rollback_before(disk, replica, base) or Increment(base, _first_after(disk, base) if base.bookmark else to)


def _made_again(disk: Original, replica: Replica, why: str) -> FlexdiskError:
    """Return the error that nothing can follow what a replica has. why: what it has, after its name."""
    text = f"{replica.dataset} {why}, so the replica has to be made again: the playbook replicate with"
    text += " flexdisk_replica_state=absent gives it up, and then makes it. "
    return FlexdiskError("NoCommonSnapshot", f"{text}It has {_names(replica)}; the disk has {_names(disk)}")


def _first_after(disk: Original, base: Point) -> Point:
    return next(point for point in disk.snapshots if point.createtxg > base.createtxg)


def _rollback_before(disk: Original, replica: Replica, base: Point) -> t.Optional[Rollback]:
    """Return the rollback that a replica needs before an increment can follow the base. Snapshots that others have
    taken of it do no harm if nothing was written between. They go with newer ones that its disk has lost, and before
    others of their names come, if nothing is new in them.
    """
    snapshots = replica.snapshots
    place = next(index for index, point in enumerate(snapshots) if point.guid == base.guid)
    newer = snapshots[place + 1 :]
    clashing = _clashing(replica, [point for point in disk.snapshots if point.createtxg > base.createtxg])
    strange = [point for point in newer if not (point.from_disk or is_synced(point.name))]
    # A raw stream follows the newest snapshot only.
    unchanged = not disk.encryptionroot and len(strange) == len(newer) and not any(point.written for point in newer)
    lost = [point for point in snapshots if point in clashing or (point in newer and not unchanged)]
    if not lost:
        return None
    harmless = foreign_snapshots(replica)
    written = [p.name for p in lost if p.pinned or not (p.from_disk or is_synced(p.name) or p in harmless)]
    if written:
        raise FlexdiskError(
            "ReplicaChanged",
            f"{replica.dataset} has snapshots that {disk.dataset} has not, {', '.join(written)}: destroy them if they"
            " are not needed",
        )
    left = [point for point in snapshots if point not in lost]
    if not left:  # the VM has been elsewhere since, and its sets are numbered from 1 again
        raise _made_again(disk, replica, "has only snapshots whose names later ones of the disk have")
    return Rollback(left[-1], tuple(point.name for point in lost))


def _in_the_way(disk: Original, replica: Replica) -> bool:
    """Return whether others have taken snapshots of a replica since its base, and its streams are raw."""
    base = common(disk, replica) if disk.encryptionroot else None
    newest = replica.snapshots[-1] if replica.snapshots else None
    return base is not None and newest is not None and newest.guid != base.guid


def _clashing(replica: Replica, coming: t.Iterable[Point]) -> t.List[Point]:
    """Other snapshots of a replica that have the names of those that come: others take theirs everywhere by one rule.

    ZFS receives nothing over them.
    """
    names = {point.name: point.guid for point in coming}
    return [point for point in replica.snapshots if names.get(point.name, point.guid) != point.guid]


def common(disk: Original, replica: Replica) -> t.Optional[Point]:
    """Return the newest snapshot of the disk that the replica has, too, or a bookmark of one that it has if that is
    newer. The guid decides: names say nothing.
    """
    there = {point.guid for point in replica.snapshots}
    known = [point for point in (*disk.bookmarks, *disk.snapshots) if point.guid in there]
    return max(known, key=lambda point: (point.createtxg, not point.bookmark), default=None)


def check_role(disk: Original, replica: Replica, home: int = 0) -> None:
    """Raise FlexdiskError InUse for what is no replica of this disk. home: the guid of the disk's pool."""
    if replica.uuid != disk.uuid:
        text = f"says that it is a replica of {replica.uuid}" if replica.uuid else "does not say that it is a replica"
        raise FlexdiskError("InUse", f"{replica.dataset} {text}; nothing is received there for the disk {disk.uuid}")
    if replica.kind != disk.kind:
        raise FlexdiskError("InUse", f"{replica.dataset} is a {replica.kind}, and the disk a {disk.kind}")
    if home and replica.home != home:
        where = f"{replica.host or 'another host'} (pool guid {replica.home})"
        text = f"{replica.dataset} is the replica of this disk on {where}, not of the one here"
        more = "If the VM has moved, the playbook replicate with flexdisk_replica_state=absent gives it up. If it was"
        more += " taken over since, this replica can have more than the VM, and absent leaves it: look at it, then"
        raise FlexdiskError("InUse", f"{text}. {more} destroy it by hand there (zfs release, zfs destroy -r)")


def check_encryption(dataset: str, encrypted: bool, replica: Replica) -> None:
    """Raise FlexdiskError for a replica that the streams of a disk do not fit. encrypted: whether the disk is.

    EncryptionRoot: an encrypted disk has raw replicas, which are encryption roots of their own. Into a replica that has
    its key from above, ZFS would receive a raw stream, and nothing could open it any more. KeyNotLoaded: a disk that is
    not encrypted has a replica in an encrypted pool.
    """
    inherits = replica.encryptionroot not in ("", replica.dataset)
    if not encrypted and inherits and not replica.key_loaded:
        raise FlexdiskError(KEY_NOT_LOADED, f"{replica.dataset} receives nothing: {replica.key_missing}")
    if encrypted and not replica.encryptionroot:
        text = f"{replica.dataset} is not encrypted, and {dataset} is"
    elif encrypted and inherits:
        text = f"{replica.dataset} has its key from {replica.encryptionroot}, which does not open what {dataset} sends"
    elif not encrypted and replica.encryptionroot and not inherits:
        text = f"{replica.dataset} is encrypted with a key of its own, and {dataset} is not encrypted"
    else:
        return
    raise FlexdiskError(
        "EncryptionRoot",
        f"{text}. So the replica has to be made again: the playbook replicate with flexdisk_replica_state=absent gives"
        " it up, and then makes it",
    )


def check_rollbacks(replica: Replica, streams: t.Iterable[Stream]) -> None:
    """Raise FlexdiskError ReplicaChanged if a replica would lose more than what was planned, when it goes back."""
    points = replica.snapshots
    for stream in streams:
        if isinstance(stream, Rollback):
            place = next((number for number, one in enumerate(points) if one.guid == stream.to.guid), len(points))
            newer = [one.name for one in points[place + 1 :]]
            if replica.written or place == len(points) or not set(newer) <= set(stream.lost):
                text = f"{replica.dataset} has changed since the sync was planned; it was to go back to"
                raise FlexdiskError(
                    "ReplicaChanged", f"{text} @{stream.to.name} and has {', '.join(newer) or 'nothing'} since"
                )


def _check_contents(disk: Original, replica: Replica) -> None:
    if replica.written:
        raise FlexdiskError(
            "ReplicaChanged",
            f"{replica.dataset} was written to since its newest snapshot, {replica.written} bytes: it is no replica of"
            f" {disk.dataset} any more. zfs rollback gives up what was written",
        )
    if disk.volsize < replica.volsize:
        raise FlexdiskError(
            "InvalidArgument",
            f"{disk.dataset} has {disk.volsize} bytes, its replica {replica.dataset} has {replica.volsize}: a stream"
            " would shrink it",
        )


def _names(disk: Original) -> str:
    return ", ".join(point.suffix for point in (*disk.snapshots, *disk.bookmarks)) or "none"
