# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole run of replica_info: the disks of VMs as a sync sees them, and the replicas that this host has."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ...fleet.replication.copies import Original, Point, Replica
from ...fleet.replication.transfers import replica_told
from ...hypervisor.protocol import Hypervisor
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError, Problem
from ...model.sizes import MIB
from ...model.vm import ABSENT, Disk, Vm, VmConfig
from ...rules import identity
from ...rules.inventory import Host
from ...rules.layout import container, is_below, pool_of, replicas, vm_dataset
from ...rules.moves import COMING as MOVE_COMING
from ...rules.moves import MOVE_PROPERTY, decode_at
from ...rules.replicas import (
    BACK,
    COMING_SNAPSHOTS,
    HOME,
    HOST,
    OF_VM,
    REPLICAS_PROPERTY,
    RESERVED,
    ROLE,
    SENT,
    SYNCED,
    age,
    decode,
    is_changed,
)
from ...zfs.commands import Zfs
from ...zfs.copies import EVERYTHING, Copies, Table
from ..host.journal import host_name
from ..host.observe import observe
from ..modules.vm_info import chosen
from . import records

_Dict = t.Dict[str, t.Any]
HOLD = "flexdisk-replica"  # the tag with which the newest whole set is held on the peer

_OF_POINTS = ("type", "guid", "createtxg", "written", "userrefs", identity.PREFIX + SENT)
_OF_REPLICAS = (
    *_OF_POINTS,
    "used",
    "volsize",
    "volblocksize",
    "refreservation",
    "readonly",
    "receive_resume_token",
    "logicalreferenced",
    *(identity.PREFIX + name for name in (ROLE, OF_VM, HOME, HOST, SYNCED, COMING_SNAPSHOTS, RESERVED, BACK)),
)


class Kept(t.NamedTuple):
    """A replica as it lies on this host."""

    replica: Replica
    vm: str
    # When it was last as its disk, by this host's clock. "" if never.
    synced: str
    used: int
    # It is going back to an older snapshot: what it has since the newest of those that are left is given up.
    back: bool
    # When its disk was as each of its snapshots, or earlier, by their names and by this host's clock. "" if unknown.
    times: t.Mapping[str, str]
    # That of the dataset.
    guid: int

    @property
    def settled(self) -> Replica:
        """The replica when it has gone back."""
        if not self.back:
            return self.replica
        # What others have taken meanwhile holds what is given up.
        points = (p if p.bookmark or not p.written else p._replace(sent=True) for p in self.replica.points)
        return replace(self.replica, written=0, points=tuple(points))


class Seen(t.NamedTuple):
    """What a sync must know of one host."""

    host: Host
    vms: t.Tuple[Vm, ...]
    originals: t.Mapping[str, t.Tuple[Original, ...]]  # by the VMs' uuids
    problems: t.List[Problem]


def look(
    zfs: Zfs,
    copies: Copies,
    hypervisor: Hypervisor,
    names: t.Sequence[str],
    pool: t.Optional[str],
    detached: bool = False,
) -> Seen:
    """The named VMs with their disks as a sync sees them. detached: also with their detached disks. Then a name may be
    the UUID of a VM that has gone and left such disks.
    """
    host = observe(zfs, hypervisor, pool, every=detached)
    gone = [vm for vm in (_gone(host, name.lower()) for name in dict.fromkeys(names)) if vm] if detached else []
    known = {vm.config.uuid for vm in gone}
    there, problems = chosen(host, [name for name in names if name.lower() not in known])
    vms = [*there, *gone]
    disks = {
        vm.config.uuid: [disk for disk in vm.disks + (vm.detached if detached else ()) if not disk.hidden] for vm in vms
    }
    volumes = [disk.volume.name for found in disks.values() for disk in found]
    marks = by_dataset(copies.table(volumes, ("guid", "createtxg"), "bookmark"))
    found = {
        uuid: tuple(_original(disk, marks.get(disk.volume.name, ())) for disk in some) for uuid, some in disks.items()
    }
    return Seen(host, tuple(vms), found, problems)


def _gone(host: Host, uuid: str) -> t.Optional[Vm]:
    """What is left of a VM that this host does not know any more: its detached disks. None if there are none."""
    disks = tuple(disk for disk in host.detached if disk.vm == uuid)
    if not disks or uuid in host.known or uuid in host.moves:
        return None
    pool = disks[0].volume.pool
    place = vm_dataset(pool, uuid)
    return Vm(VmConfig(uuid, "", "", ABSENT, False, pool, place, None), Dataset(place, ""), detached=disks)


def uuid_of(disk: Disk) -> str:
    """The uuid of a disk, or the one that it will get."""
    return disk.uuid or identity.uuid_of(disk.volume.guid)


def _original(disk: Disk, marks: t.Tuple[Point, ...]) -> Original:
    volume, snapshots = disk.volume, disk.snapshots
    points = [Point(one.name.partition("@")[2], one.guid, one.createtxg, written=one.written) for one in snapshots]
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
        peers=tuple(note.peer for note in decode(volume.user.get(REPLICAS_PROPERTY, ""))),
    )


def kept(copies: Copies, containers: t.Sequence[str]) -> t.List[Kept]:
    """The replicas in pools that have these containers."""
    table = copies.table(sorted(containers), _OF_REPLICAS, EVERYTHING, depth=3)
    held = [name for name, row in table.items() if row.get("userrefs", ("0", "-"))[0] not in ("0", "-")]
    grouped = by_dataset(table, copies.on_hold(HOLD, held))
    return [_kept(name, table, grouped[name]) for name in sorted(grouped) if is_below(name, replicas(pool_of(name)))]


def check_alone(name: str, found: t.Collection[str]) -> None:
    """Raise FlexdiskError ReplicaChanged if a replica has datasets below it. found: the names of all datasets there.

    A sync makes none. A host in the wrong hands may send more than the disk.
    """
    below = sorted(one for one in found if one.startswith(f"{name}/"))
    if below:
        text = f"{name} has datasets below it, {', '.join(below)}, which no sync makes: the home of the disk has sent"
        raise FlexdiskError("ReplicaChanged", f"{text} more than the disk. Look at them, and destroy them by hand")


def by_dataset(table: Table, ours: t.Collection[str] = ()) -> t.Dict[str, t.Tuple[Point, ...]]:
    """The snapshots and bookmarks of each dataset that a table has, or has anything of. ours: those that we hold."""
    found: t.Dict[str, t.List[Point]] = {}
    for name, row in table.items():
        whole, _at, short = name.replace("#", "@").partition("@")
        points = found.setdefault(whole, [])
        if short:
            coming = _fact(table.get(whole, {}), COMING_SNAPSHOTS).split(",")
            guid, held = int(row["guid"][0]), row.get("userrefs", ("0", "-"))[0] not in ("0", "-")
            points.append(
                Point(
                    short,
                    guid,
                    int(row["createtxg"][0]),
                    bookmark="#" in name,
                    sent=_fact(row, SENT) == "on",
                    written=_number(row, "written"),
                    held=name in ours,
                    pinned=held and name not in ours,
                    coming=f"{guid:x}" in coming,
                )
            )
    return {name: tuple(points) for name, points in found.items()}


def _kept(name: str, table: Table, points: t.Tuple[Point, ...]) -> Kept:
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
    )
    synced = identity.decode_time(_fact(row, SYNCED))
    back = _fact(row, BACK) == "on"
    owner, used, guid = vm if identity.is_uuid(vm) else "", _number(row, "used"), _number(row, "guid")
    return Kept(replica, owner, synced, used, back, _times(replica, table), guid)


def _times(replica: Replica, table: Table) -> t.Dict[str, str]:
    """What this host has noted of each snapshot. One of which nothing is noted is younger than those before it. When it
    was made is known only by the clock of the disk's host, which cannot be compared with the one here.
    """
    found, last = {}, ""
    for point in replica.snapshots:
        last = identity.decode_time(_fact(table[replica.dataset + point.word], SYNCED)) or last
        found[point.name] = last
    return found


def _fact(row: t.Mapping[str, t.Tuple[str, str]], fact: str) -> str:
    """One of our properties that is set on the dataset itself, on this host."""
    value, source = row.get(identity.PREFIX + fact, ("-", "-"))
    return value if source == "local" else ""


def _text(row: t.Mapping[str, t.Tuple[str, str]], name: str) -> str:
    value = row[name][0]
    return "" if value == "-" else value


def _number(row: t.Mapping[str, t.Tuple[str, str]], name: str) -> int:
    value = row.get(name, ("-", "-"))[0]
    return int(value) if value.isdigit() else 0


def replica_info(copies: Copies, hypervisor: Hypervisor, pool: t.Optional[str] = None) -> _Dict:
    """The replicas of this host or of one pool, and what else the home of a VM must know of it."""
    began, configs = int(time.time()), hypervisor.vms()
    tops = copies.tops(("guid", "available", identity.PREFIX + MOVE_PROPERTY))
    moves = [
        move for move in (decode_at(name, _fact(row, MOVE_PROPERTY)) for name, row in tops.items()) if move is not None
    ]
    coming = {move.vm for move in moves if move.phase == MOVE_COMING and not move.back_to}
    vms = {config.uuid: config.alias for config in configs if config.uuid not in coming}
    # The old home of a VM that is taken over sends nothing more.
    vms.update({move.vm: move.alias for move in moves if move.back_to})
    pools = [name for name in tops if "/" not in name and pool in (None, name)]
    if pool is not None and not pools:
        raise FlexdiskError("ResourceNotFound", f"no such pool: {pool}")
    return {
        "host": host_name(),
        "collected": began,
        "pools": [
            {"name": name, "guid": int(tops[name]["guid"][0]), "available_bytes": int(tops[name]["available"][0])}
            for name in pools
        ],
        "vms": [{"uuid": uuid, "alias": alias} for uuid, alias in vms.items()],
        "failover": records.known(records.FAILOVER),
        "replicas": [_told(one, began) for one in kept(copies, [container(p) for p in pools if container(p) in tops])],
    }


def _told(found: Kept, now: int) -> _Dict:
    replica = found.replica
    return {
        "uuid": replica.uuid,
        "vm": found.vm,
        "host": replica.host,
        "home": replica.home,
        "dataset": replica.dataset,
        "kind": replica.kind,
        "used": -(-found.used // MIB),
        "synced": found.synced,
        "age": age(found.synced, now),
        "written_bytes": replica.written,
        "interrupted": bool(replica.token),
        "sync": replica_told(found.settled),
    }
