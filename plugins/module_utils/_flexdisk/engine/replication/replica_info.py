# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of replica_info: the disks of VMs as a sync sees them, and the replicas that this host has."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ...fleet.replication.copies import Original, Point, Replica
from ...fleet.replication.transfers import replica_as_result
from ...hypervisor.protocol import Hypervisor
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import MIB
from ...model.vm import ABSENT, Disk, Vm, VmConfig
from ...rules import identity
from ...rules.inventory import Host
from ...rules.layout import container, is_below, pool_of, replicas_container, vm_dataset
from ...rules.moves import COMING, MOVE_PROPERTY, decode_at
from ...rules.replicas import (
    BACK,
    COMING_SNAPSHOTS,
    HOME,
    HOST,
    KEEP,
    OF_VM,
    REPLICAS_PROPERTY,
    RESERVED,
    ROLE,
    SENT,
    SYNCED,
    TAKEN,
    age,
    decode_notes,
    is_changed,
    is_synced,
)
from ...zfs.commands import Zfs
from ...zfs.copies import EVERYTHING, Copies, Table
from ..host.journal import host_name
from ..host.observe import observe
from ..modules.vm_info import chosen
from . import records

_Dict = t.Dict[str, t.Any]
HOLD = "flexdisk-replica"  # the tag with which the newest whole set is held on the peer

_OF_POINTS = ("type", "guid", "createtxg", "written", "userrefs", identity.PREFIX + SENT, identity.PREFIX + TAKEN)
_OF_REPLICAS = (
    *_OF_POINTS,
    "used",
    "volsize",
    "volblocksize",
    "refreservation",
    "readonly",
    "receive_resume_token",
    "logicalreferenced",
    "encryptionroot",
    "keystatus",
    "keylocation",
    *(identity.PREFIX + name for name in (ROLE, OF_VM, HOME, HOST, SYNCED, COMING_SNAPSHOTS, RESERVED, BACK, KEEP)),
)


class StoredReplica(t.NamedTuple):
    """A replica as it lies on this host."""

    replica: Replica
    vm: str
    """The UUID of its VM, "" if unknown."""
    synced: str
    """When it last equalled its disk, by this host's clock. "" if never."""
    used: int
    """Bytes."""
    back: bool
    """It is being rolled back. What it has after its newest snapshot is given up."""
    times: t.Mapping[str, str]
    """When its disk equalled each snapshot, or earlier, by the names of the snapshots. "" if unknown."""
    guid: int
    """The guid of the dataset."""

    @property
    def settled(self) -> Replica:
        """The replica after the rollback."""
        if not self.back:
            return self.replica
        # Snapshots that others have taken meanwhile hold the data that is given up.
        points = (p if p.bookmark or not p.written else p._replace(sent=True) for p in self.replica.points)
        return replace(self.replica, written=0, points=tuple(points))


class SyncView(t.NamedTuple):
    """The VMs of a host as a sync sees them."""

    host: Host
    vms: t.Tuple[Vm, ...]
    originals: t.Mapping[str, t.Tuple[Original, ...]]  # by the VMs' uuids
    problems: t.List[Problem]


def read_vms(
    zfs: Zfs,
    copies: Copies,
    hypervisor: Hypervisor,
    names: t.Sequence[str],
    pool: t.Optional[str],
    detached: bool = False,
) -> SyncView:
    """Return the named VMs with their disks as a sync sees them.

    detached: also their detached disks. Then a name may be the UUID of a VM that was deleted and left such disks.
    """
    host = observe(zfs, hypervisor, pool, all_pools=detached)
    deleted = (
        [vm for vm in (_vm_of_detached(host, name.lower()) for name in dict.fromkeys(names)) if vm] if detached else []
    )
    known = {vm.config.uuid for vm in deleted}
    existing, problems = chosen(host, [name for name in names if name.lower() not in known])
    vms = [*existing, *deleted]
    disks = {
        vm.config.uuid: [disk for disk in vm.disks + (vm.detached if detached else ()) if not disk.hidden] for vm in vms
    }
    volumes = [disk.volume.name for originals in disks.values() for disk in originals]
    bookmarks = by_dataset(copies.table(volumes, ("guid", "createtxg"), "bookmark"))
    originals = {
        uuid: tuple(_as_original(disk, bookmarks.get(disk.volume.name, ())) for disk in some)
        for uuid, some in disks.items()
    }
    return SyncView(host, tuple(vms), originals, problems)


def _vm_of_detached(host: Host, uuid: str) -> t.Optional[Vm]:
    """Return a VM that this host does not have any more, with its detached disks. None if it left no disks."""
    disks = tuple(disk for disk in host.detached if disk.vm == uuid)
    if not disks or uuid in host.known or uuid in host.moves:
        return None
    pool = disks[0].volume.pool
    place = vm_dataset(pool, uuid)
    return Vm(VmConfig(uuid, "", "", ABSENT, False, pool, place, None), Dataset(place, ""), detached=disks)


def uuid_of(disk: Disk) -> str:
    """Return the UUID of a disk, or the one that it will get."""
    return disk.uuid or identity.uuid_of(disk.volume.guid)


def _as_original(disk: Disk, marks: t.Tuple[Point, ...]) -> Original:
    volume, snapshots = disk.volume, disk.snapshots
    points = [
        Point(one.name.partition("@")[2], one.guid, one.createtxg, written=one.written, time=one.creation)
        for one in snapshots
    ]
    if snapshots:  # what a clone has from its image is sent, too
        points[0] = points[0]._replace(written=snapshots[0].referenced)
    return Original(
        uuid=uuid_of(disk),
        dataset=volume.name,
        volsize=volume.volsize,
        points=(*points, *marks),
        written=volume.written if snapshots else volume.referenced,
        refreservation=volume.refreservation,
        kind=volume.kind,
        block=volume.volblocksize,
        compression=volume.logicalreferenced / volume.referenced if volume.referenced else 1.0,
        peers=tuple(note.peer for note in decode_notes(volume.user.get(REPLICAS_PROPERTY, ""))),
        encryptionroot=volume.encryptionroot,
    )


def stored_replicas(copies: Copies, containers: t.Sequence[str]) -> t.List[StoredReplica]:
    """Return the replicas in the pools of these containers."""
    table = copies.table(sorted(containers), _OF_REPLICAS, EVERYTHING, depth=3)
    on_hold = [name for name, row in table.items() if row.get("userrefs", ("0", "-"))[0] not in ("0", "-")]
    grouped = by_dataset(table, copies.on_hold(HOLD, on_hold))
    return [
        _stored_replica(name, table, grouped[name])
        for name in sorted(grouped)
        if is_below(name, replicas_container(pool_of(name)))
    ]


def check_alone(name: str, datasets: t.Collection[str]) -> None:
    """Raise FlexdiskError ReplicaChanged if a replica has datasets below it. datasets: the names of all datasets.

    A sync makes none, but a compromised host may send more than the disk.
    """
    below = sorted(one for one in datasets if one.startswith(f"{name}/"))
    if below:
        text = f"{name} has datasets below it, {', '.join(below)}, which no sync makes: the home of the disk has sent"
        raise FlexdiskError("ReplicaChanged", f"{text} more than the disk. Look at them, and destroy them by hand")


def by_dataset(table: Table, held_by_us: t.Collection[str] = ()) -> t.Dict[str, t.Tuple[Point, ...]]:
    """Return the snapshots and bookmarks of each dataset of the table. held_by_us: snapshots with a hold of ours."""
    result: t.Dict[str, t.List[Point]] = {}
    for name, row in table.items():
        dataset, _at, short = name.replace("#", "@").partition("@")
        points = result.setdefault(dataset, [])
        if short:
            coming = _fact(table.get(dataset, {}), COMING_SNAPSHOTS).split(",")
            guid, is_held = int(row["guid"][0]), row.get("userrefs", ("0", "-"))[0] not in ("0", "-")
            points.append(
                Point(
                    short,
                    guid,
                    int(row["createtxg"][0]),
                    bookmark="#" in name,
                    sent=_fact(row, SENT) == "on",
                    written=_number(row, "written"),
                    held=name in held_by_us,
                    pinned=is_held and name not in held_by_us,
                    coming=f"{guid:x}" in coming,
                    time=_time(row),
                )
            )
    return {name: tuple(points) for name, points in result.items()}


def _stored_replica(name: str, table: Table, points: t.Tuple[Point, ...]) -> StoredReplica:
    row, empty = table[name], _number(table.get(container(pool_of(name)), {}), "logicalreferenced")
    token = _text(row, "receive_resume_token")
    uuid, vm, home, reserved = (_fact(row, fact) for fact in (ROLE, OF_VM, HOME, RESERVED))
    replica = Replica(
        uuid=uuid if identity.is_uuid(uuid) else "",
        dataset=name,
        volsize=_number(row, "volsize"),
        points=tuple(p if is_changed(p.written, empty) else p._replace(written=0) for p in points),
        written=0 if token or not is_changed(_number(row, "written"), empty) else _number(row, "written"),
        refreservation=_number(row, "refreservation"),
        kind=row["type"][0],
        token=token,
        readonly=row["readonly"][0] == "on",
        home=int(home) if home.isdigit() else 0,
        host=_fact(row, HOST),
        reserved=int(reserved) if reserved.isdigit() else 0,
        encryptionroot=_text(row, "encryptionroot"),
        key_loaded=row["keystatus"][0] != "unavailable",
        key_location=_text(row, "keylocation"),
        keep=_fact(row, KEEP),
    )
    synced = identity.decode_time(_fact(row, SYNCED))
    rolling_back = _fact(row, BACK) == "on"
    owner, used_bytes, guid = vm if identity.is_uuid(vm) else "", _number(row, "used"), _number(row, "guid")
    return StoredReplica(replica, owner, synced, used_bytes, rolling_back, _times(replica, table), guid)


def _times(replica: Replica, table: Table) -> t.Dict[str, str]:
    """Return the noted time of each snapshot. One without a note counts as old as the one before it.

    Its creation time is by the clock of the disk's host, which cannot be compared with this host's clock.
    """
    times, last = {}, ""
    for point in replica.snapshots:
        last = identity.decode_time(_fact(table[replica.dataset + point.suffix], SYNCED)) or last
        times[point.name] = last
    return times


def _time(row: t.Mapping[str, t.Tuple[str, str]]) -> int:
    """Return when the disk was like a snapshot: of a replica as first noted, of a disk when the snapshot was taken. 0
    for a snapshot of a replica without a note: its creation time is by the clock of the disk's host.
    """
    noted = identity.decode_time(_fact(row, TAKEN)) or identity.decode_time(_fact(row, SYNCED))
    return identity.seconds_of(noted) if noted else _number(row, "creation")


def _fact(row: t.Mapping[str, t.Tuple[str, str]], fact: str) -> str:
    """Return a property of ours if it is set on the dataset itself, on this host, else ""."""
    value, source = row.get(identity.PREFIX + fact, ("-", "-"))
    return value if source == "local" else ""


def _text(row: t.Mapping[str, t.Tuple[str, str]], name: str) -> str:
    value = row[name][0]
    return "" if value == "-" else value


def _number(row: t.Mapping[str, t.Tuple[str, str]], name: str) -> int:
    value = row.get(name, ("-", "-"))[0]
    return int(value) if value.isdigit() else 0


def replica_info(copies: Copies, hypervisor: Hypervisor, pool: t.Optional[str] = None) -> _Dict:
    """Return the replicas of this host, or of one pool, and what else the home of a VM needs for a sync."""
    began, configs = int(time.time()), hypervisor.vms()
    tops = copies.tops(("guid", "available", "encryptionroot", "keystatus", identity.PREFIX + MOVE_PROPERTY))
    moves = [
        move for move in (decode_at(name, _fact(row, MOVE_PROPERTY)) for name, row in tops.items()) if move is not None
    ]
    coming = {move.vm for move in moves if move.phase == COMING and not move.back_to}
    vms = {config.uuid: config.alias for config in configs if config.uuid not in coming}
    # The old home of a VM that is taken over sends nothing more.
    vms.update({move.vm: move.alias for move in moves if move.back_to})
    pools = [name for name in tops if "/" not in name and pool in (None, name)]
    if pool is not None and not pools:
        raise FlexdiskError("ResourceNotFound", f"no such pool: {pool}")
    encrypting = copies.encrypting(pools)
    return {
        "host": host_name(),
        "collected": began,
        "pools": [
            {
                "name": name,
                "guid": int(tops[name]["guid"][0]),
                "available_bytes": int(tops[name]["available"][0]),
                "encryption": name in encrypting,
                **_place(tops, name),
            }
            for name in pools
        ],
        "vms": [{"uuid": uuid, "alias": alias} for uuid, alias in vms.items()],
        "failover": records.known(records.FAILOVER),
        "replicas": [
            _replica_result(one, began)
            for one in stored_replicas(copies, [container(p) for p in pools if container(p) in tops])
        ],
    }


def _place(tops: Table, pool: str) -> _Dict:
    """Return whether the place of replicas is in a pool, and the encryption root whose key it, or its making, lacks."""
    above = next(name for name in (replicas_container(pool), container(pool), pool) if name in tops)
    row = tops[above]
    locked = row["encryptionroot"][0] if row["keystatus"][0] == "unavailable" else ""
    return {"locked": locked, "prepared": above == replicas_container(pool)}


def _replica_result(stored: StoredReplica, now: int) -> _Dict:
    replica = stored.replica
    return {
        "uuid": replica.uuid,
        "vm": stored.vm,
        "host": replica.host,
        "home": replica.home,
        "dataset": replica.dataset,
        "kind": replica.kind,
        "used": -(-stored.used // MIB),
        "synced": stored.synced,
        "age": age(stored.synced, now),
        "written_bytes": replica.written,
        "interrupted": bool(replica.token),
        "encrypted": bool(replica.encryptionroot),
        "key_loaded": replica.key_loaded,
        "snapshots": [
            {"name": point.name, "synced": stored.times[point.name]}
            for point in replica.snapshots
            if point.sent or is_synced(point.name)
        ],
        "sync": replica_as_result(stored.settled),
    }
