# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The whole run of replica_info: the disks of VMs as a sync sees them, and the replicas that this host has."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..fleet.replication.copies import Original, Point, Replica
from ..fleet.replication.transfers import replica_told
from ..hypervisor.protocol import Hypervisor
from ..model.errors import FlexdiskError, Problem
from ..model.sizes import MIB
from ..model.vm import Disk, Vm
from ..rules import identity
from ..rules.inventory import Host
from ..rules.layout import container, is_below, pool_of, replicas
from ..rules.moves import COMING as MOVE_COMING
from ..rules.moves import FACT as FACT_OF_MOVES
from ..rules.moves import read
from ..rules.replicas import (
    BACK,
    COMING,
    FACT,
    HOME,
    HOST,
    OF_VM,
    RESERVED,
    ROLE,
    SENT,
    SYNCED,
    age,
    decode,
    is_changed,
)
from ..zfs.commands import Zfs
from ..zfs.copies import EVERYTHING, Copies, Table
from . import records
from .journal import host_name
from .observe import observe
from .vm_info import chosen

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
    "creation",
    *(identity.PREFIX + name for name in (ROLE, OF_VM, HOME, HOST, SYNCED, COMING, RESERVED, BACK)),
)


class Kept(t.NamedTuple):
    """A replica as it lies on this host. synced: when it was last as its disk, by this host's clock; "" if never. back:
    it is going back to an older snapshot: what it has since the newest of those that are left is given up. times: when
    its disk was last as each of its snapshots, by their names; if that is not noted, when they were taken, by the clock
    of the disk's host.
    """

    replica: Replica
    vm: str
    synced: str
    used: int
    back: bool
    times: t.Mapping[str, str]

    @property
    def settled(self) -> Replica:
        """The replica when it has gone back."""
        return replace(self.replica, written=0) if self.back else self.replica


class Seen(t.NamedTuple):
    """What a sync must know of one host."""

    host: Host
    vms: t.Tuple[Vm, ...]
    originals: t.Mapping[str, t.Tuple[Original, ...]]  # by the VMs' uuids
    problems: t.List[Problem]


def look(zfs: Zfs, copies: Copies, hypervisor: Hypervisor, names: t.Sequence[str], pool: t.Optional[str]) -> Seen:
    """The named VMs with their disks as a sync sees them."""
    host = observe(zfs, hypervisor, pool)
    vms, problems = chosen(host, names)
    disks = {vm.config.uuid: [disk for disk in vm.disks if not disk.hidden] for vm in vms}
    volumes = [disk.volume.name for found in disks.values() for disk in found]
    marks = by_dataset(copies.table(volumes, ("guid", "createtxg"), "bookmark"))
    found = {
        uuid: tuple(_original(disk, marks.get(disk.volume.name, ())) for disk in some) for uuid, some in disks.items()
    }
    return Seen(host, tuple(vms), found, problems)


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
        peers=tuple(note.peer for note in decode(volume.user.get(FACT, ""))),
    )


def kept(copies: Copies, containers: t.Sequence[str]) -> t.List[Kept]:
    """The replicas in pools that have these containers."""
    table = copies.table(sorted(containers), _OF_REPLICAS, EVERYTHING, depth=3)
    held = [name for name, row in table.items() if row.get("userrefs", ("0", "-"))[0] not in ("0", "-")]
    grouped = by_dataset(table, copies.held(HOLD, held))
    return [_kept(name, table, grouped[name]) for name in sorted(grouped) if is_below(name, replicas(pool_of(name)))]


def by_dataset(table: Table, ours: t.Collection[str] = ()) -> t.Dict[str, t.Tuple[Point, ...]]:
    """The snapshots and bookmarks of each dataset that a table has, or has anything of. ours: those that we hold."""
    found: t.Dict[str, t.List[Point]] = {}
    for name, row in table.items():
        whole, _at, short = name.replace("#", "@").partition("@")
        points = found.setdefault(whole, [])
        if short:
            coming = _fact(table.get(whole, {}), COMING).split(",")
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
    row = table[name]
    token = _text(row, "receive_resume_token")
    uuid, vm, home, reserved = (_fact(row, fact) for fact in (ROLE, OF_VM, HOME, RESERVED))
    replica = Replica(
        uuid=uuid if identity.is_uuid(uuid) else "",
        dataset=name,
        volsize=_number(row, "volsize"),
        points=points,
        written=0 if token or not is_changed(_number(row, "written")) else _number(row, "written"),
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
    times = {point.name: _time(table[name + point.word]) for point in points if not point.bookmark}
    return Kept(replica, vm if identity.is_uuid(vm) else "", synced, _number(row, "used"), back, times)


def _time(row: t.Mapping[str, t.Tuple[str, str]]) -> str:
    return identity.decode_time(_fact(row, SYNCED)) or identity.render_time(_number(row, "creation"))


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
    tops = copies.tops(("guid", "available", identity.PREFIX + FACT_OF_MOVES))
    moves = [move for move in (read(name, _fact(row, FACT_OF_MOVES)) for name, row in tops.items()) if move is not None]
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
