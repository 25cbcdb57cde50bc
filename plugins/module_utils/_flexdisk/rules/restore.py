# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restored disks: which snapshot of a replica a new disk is made from, and what the disk notes about it."""

from __future__ import annotations

import re
import typing as t

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError
from . import identity
from .inventory import Host
from .layout import is_below, replicas_container
from .replicas import ROLE, SENT, SYNCED, is_synced

RESTORED = "restored"  # our property of a restored disk: what it was made from
_NOTE = re.compile(r"([0-9a-f-]{36})/([0-9]{1,20})@([A-Za-z0-9_.: -]{1,255})\Z")


class Origin(t.NamedTuple):
    """What a restored disk was made from."""

    # The UUID of the disk that has the replica.
    disk: str
    # The guid of the snapshot, and its name after the @.
    guid: int
    snapshot: str


def encode_origin(origin: Origin) -> str:
    """Return the value of RESTORED."""
    return f"{origin.disk}/{origin.guid}@{origin.snapshot}"


def decode_origin(value: str) -> t.Optional[Origin]:
    """Return what a value of RESTORED says, None for an invalid one."""
    match = _NOTE.match(value)
    return Origin(match[1], int(match[2]), match[3]) if match and identity.is_uuid(match[1]) else None


def find_replica(host: Host, disk: str) -> Dataset:
    """Return the replica of a disk, by the UUID of the disk. Raises FlexdiskError ResourceNotFound or Ambiguous."""
    replicas = _replicas(host)
    matches = [one for one in replicas if one.user[ROLE] == disk]
    if len(matches) > 1:
        names = ", ".join(one.name for one in matches)
        raise FlexdiskError("Ambiguous", f"{len(matches)} replicas of the disk {disk} are here: {names}")
    if not matches:
        have = ", ".join(f"{one.user[ROLE]} ({one.name})" for one in replicas) or "none"
        pools = ", ".join(sorted(host.geometry)) or "none"
        text = f"no replica of the disk {disk} is in the pools that were read ({pools}); the replicas there: {have}"
        raise FlexdiskError("ResourceNotFound", text)
    return matches[0]


def _replicas(host: Host) -> t.List[Dataset]:
    """Return all replicas of the host. A role counts only if it was set here: a stream could have brought it."""
    places = [replicas_container(pool) for pool in host.geometry]
    return [
        one
        for name, one in sorted(host.datasets.items())
        if one.kind != "snapshot"
        and any(is_below(name, place) for place in places)
        and identity.is_uuid(one.user.get(ROLE, ""))
        and ROLE not in one.received
    ]


def snapshots_of(host: Host, replica: Dataset) -> t.List[Dataset]:
    """Return the snapshots of a replica that have come from its disk, oldest first. Those that others have taken of the
    replica are left out: nobody knows of what.
    """
    snapshots = [one for one in host.datasets.values() if one.kind == "snapshot" and one.parent == replica.name]
    return sorted(filter(_from_disk, snapshots), key=lambda one: one.createtxg)


def _from_disk(snapshot: Dataset) -> bool:
    return snapshot.user.get(SENT) == "on" or is_synced(short_name(snapshot))


def short_name(snapshot: Dataset) -> str:
    """Return the part of a snapshot's name after the @."""
    return snapshot.name.partition("@")[2]


def time_of(snapshot: Dataset) -> str:
    """Return when the disk was like the snapshot: when its sync began by the clock of this host, else when it was
    taken by the clock of the disk's host.
    """
    return identity.decode_time(snapshot.user.get(SYNCED, "")) or identity.render_time(snapshot.creation)


def choose(host: Host, replica: Dataset, name: str) -> Dataset:
    """Return the snapshot of a replica with this short name; without a name, the newest one of a sync. Raises
    FlexdiskError ResourceNotFound with all that there are.
    """
    snapshots = snapshots_of(host, replica)
    matches = [one for one in snapshots if (short_name(one) == name if name else is_synced(short_name(one)))]
    if not matches:
        wanted = f"snapshot {name}" if name else "snapshot of a sync"
        text = f"{replica.name} has no {wanted} that has come from its disk; it has: {listed(snapshots)}"
        raise FlexdiskError("ResourceNotFound", text)
    return matches[-1]


_TOGETHER = 5  # seconds: the snapshots of one moment get their times one after another


def choose_set(host: Host, disks: t.Sequence[str], name: str) -> str:
    """Return the short name of the snapshots from which these disks, by their UUIDs, are restored together; without a
    name, of the newest sync that the replicas of all have.

    Raises FlexdiskError ResourceNotFound or Ambiguous, also if snapshots of this name were not taken together.
    """
    have = {disk: {short_name(one): one for one in snapshots_of(host, find_replica(host, disk))} for disk in disks}
    first = have[disks[0]]
    names = [name] if name else [short for short in reversed(list(first)) if is_synced(short)]
    chosen = next((short for short in names if all(short in points for points in have.values())), None)
    if chosen is None:
        wanted = f"snapshot {name}" if name else "sync that has come completely"
        each = "; ".join(f"{disk}: {listed([*points.values()])}" for disk, points in have.items())
        raise FlexdiskError("ResourceNotFound", f"the replicas have no {wanted} in common. They have {each}")
    times = [points[chosen].creation for points in have.values()]
    if max(times) - min(times) > _TOGETHER:
        each = "; ".join(f"{disk}: {time_of(points[chosen])}" for disk, points in have.items())
        text = f"the snapshots {chosen} were not taken together, so the disks would not fit together: {each}"
        raise FlexdiskError("Ambiguous", text)
    return chosen


def outlook(host: Host, replica: Dataset, snapshot: Dataset) -> str:
    """Return what the next sync destroys on a replica if its disk gets back what it had at a snapshot; "" for nothing.

    As after a rollback, that is what is newer. The restored disk does not have the older snapshots of the disk either,
    so they go as those that a disk has lost. Older sets stay up to the number that is retained.
    """
    points = snapshots_of(host, replica)
    newer = [short_name(one) for one in points if one.createtxg > snapshot.createtxg]
    older = [
        short_name(one) for one in points if one.createtxg <= snapshot.createtxg and not is_synced(short_name(one))
    ]
    parts = (("what is newer", newer), ("what the disk no longer has itself", older))
    gone = " and ".join(f"{what} ({shortened(names)})" for what, names in parts if names)
    return f"the next sync destroys of {replica.name} {gone}" if gone else ""


def lost_text(snapshot: str) -> str:
    """Return what follows if a disk gets back what it had at a snapshot that its replica does not have any more."""
    return (
        f"the replica does not have {snapshot} any more, so the next sync is refused (NoCommonSnapshot) until the"
        " replica is made again: the playbook replicate with flexdisk_replica_state=absent gives it up, and then makes"
        " it"
    )


def shortened(names: t.Sequence[str]) -> str:
    """Return at most 20 names in one line, and how many more there are."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def listed(snapshots: t.Sequence[Dataset]) -> str:
    """Return the snapshots with their times as text, newest first."""
    return ", ".join(f"{short_name(one)} of {time_of(one)}" for one in reversed(snapshots)) or "none"


def check_restorable(replica: Dataset) -> None:
    """Raise FlexdiskError EncryptionRoot or NotSupported for a replica of which no disk is made."""
    if replica.encryptionroot:
        text = f"{replica.name} is encrypted, and a replica that is encrypted is not restored as a disk of its own; the"
        text += " playbooks move_vm and failover_vm bring its VM to where the replica is"
        raise FlexdiskError("EncryptionRoot", text)
    if replica.kind != "volume":
        raise FlexdiskError("NotSupported", f"{replica.name}: a replica of a disk of type file is not restored")


def why_not_same(user: t.Mapping[str, str], wanted: Origin, named: bool) -> str:
    """Return why an existing disk is not the one that a restore would make; "" if it is.

    user: the properties of the existing disk. wanted: what the restore would make a disk from. named: the task has
    named the snapshot, so that a newer one is not meant.
    """
    known = decode_origin(user.get(RESTORED, ""))
    if known is None or known.disk != wanted.disk:
        made = "was not restored from a replica" if known is None else f"was restored from the replica of {known.disk}"
        return f"exists already, and {made}; give the restored disk another name"
    if known.guid == wanted.guid:
        return ""
    newest = f"{wanted.snapshot} is {'another one' if named else 'the newest one now'}"
    more = "" if named else f", or name {known.snapshot} if that is meant"
    return f"was restored from the snapshot {known.snapshot}, and {newest}; give the restored disk another name{more}"


def is_from(user: t.Mapping[str, str], disk: str, snapshot: str) -> bool:
    """Return whether a disk with these properties was made from a snapshot of this name of the replica of a disk."""
    known = decode_origin(user.get(RESTORED, ""))
    return known is not None and bool(snapshot) and (known.disk, known.snapshot) == (disk, snapshot)
