# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""After the boot of a host: which of its VMs have failover, and which of these it starts."""

from __future__ import annotations

import typing as t

from ..fleet.replication import takeover
from ..fleet.replication.claims import Claims, home_elsewhere, not_asked, takers, without_order
from ..fleet.replication.copies import Point
from ..hypervisor.protocol import Hypervisor
from ..model.errors import FlexdiskError
from ..model.vm import Vm
from ..plan.recovery import unfinished
from ..rules.failover import FACT, decode, wish_of
from ..rules.inventory import Host
from ..rules.layout import container, last_part, pool_of
from ..rules.moves import COMING, Move, is_place
from ..rules.replicas import hosts
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from . import autoboot, progress, replica_info
from .observe import observe
from .vm_takeover import Known, held, is_named, known_vms

_Dict = t.Dict[str, t.Any]
_WITHOUT_REPLICAS = (
    "no replicas of it are known, so no host can be asked whether it has taken it over. flexdisk_start_unasked=true"
    " starts it. The playbook replicate with flexdisk_vm, flexdisk_replica_host for the host that had the last ones,"
    " flexdisk_replica_state=absent and flexdisk_failover=false lets it start with this host again"
)


class Started(t.NamedTuple):
    """Labels of VMs, and words about others. failures: those that shall run, and were not started."""

    started: t.List[str]
    left: t.List[str]
    failures: t.List[str]


def look(zfs: Zfs, hypervisor: Hypervisor, copies: Copies, name: str = "") -> _Dict:
    """The VMs of this host, and those that it could take over. With a name, only those that have it."""
    host = observe(zfs, hypervisor, snapshots=False, every=True)
    linked = {vm.config.uuid: vm for vm in host.vms}
    comes = {uuid: move for uuid, move in host.moves.items() if move.back_to}
    shells = {uuid for uuid, move in host.moves.items() if move.phase == COMING and not move.back_to}
    names = {config.uuid: config.alias for config in host.configs if config.uuid not in shells}
    names.update({uuid: move.alias for uuid, move in comes.items()})
    running = {config.uuid for config in host.configs if config.state != "stopped"}
    vms = [
        {
            "vm": uuid,
            "alias": alias,
            **_of_vm(linked.get(uuid)),
            "taking": comes[uuid].host if uuid in comes else "",
            "running": uuid in running,
            "left": uuid in host.moves and host.moves[uuid].phase != COMING,
            **(_points(zfs, copies, hypervisor, host, uuid) if name else {"pool": 0, "points": {}}),
        }
        for uuid, alias in sorted(names.items())
        if not name or is_named(uuid, alias, name)
    ]
    known = [one for one in known_vms() if not name or is_named(one.record.uuid, one.record.alias, name)]
    return {"vms": vms, "records": [_of_record(zfs, copies, one, bool(name)) for one in known]}


def _of_record(zfs: Zfs, copies: Copies, known: Known, whole: bool) -> _Dict:
    """What this host could bring back. whole: also as of when."""
    record, wish = known.record, decode(known.record.marks.get(FACT, ""))
    found = takeover.plan(record, held(zfs, copies, known.pool))[0] if whole else None
    term, synced = wish.term if wish is not None else 0, found.synced if found is not None else ""
    return {"vm": record.uuid, "alias": record.alias, "host": record.host, "term": term, "synced": synced}


def _of_vm(vm: t.Optional[Vm]) -> _Dict:
    if vm is None or not vm.config.failover:
        return {"failover": False, "autoboot": vm is not None and vm.config.autoboot, "term": 0, "peers": []}
    wish = wish_of(vm.config, vm.root)
    return {"failover": True, "autoboot": wish.autoboot, "term": wish.term, "peers": _peers(vm)}


def _points(zfs: Zfs, copies: Copies, hypervisor: Hypervisor, host: Host, uuid: str) -> _Dict:
    """The pool of a VM that is here or comes, and the snapshots and bookmarks of its disks."""
    move = host.moves.get(uuid)
    if move is not None and move.back_to:
        return _coming_points(copies, host, move)
    vm = next((one for one in host.vms if one.config.uuid == uuid), None)
    if vm is None:
        return {"pool": 0, "points": {}}
    pool = vm.config.pool
    seen = replica_info.look(zfs, copies, hypervisor, [uuid], pool)
    points = {disk.uuid: [point.guid for point in disk.points] for disk in seen.originals[uuid]}
    return {"pool": seen.host.datasets[pool].guid, "points": points}


def _coming_points(copies: Copies, host: Host, move: Move) -> _Dict:
    """The same of a VM that is being taken over: none that is newer than the set that it goes back to."""
    (place, *more) = [name for name in host.datasets if is_place(name) and last_part(name) == move.vm]
    if more:
        raise FlexdiskError("Ambiguous", f"{', '.join([place, *more])} all tell of VM {move.label}")
    pool, attached = pool_of(place), [vm for vm in host.vms if vm.config.uuid == move.vm]
    disks = [disk for vm in attached for disk in vm.disks + vm.orphans]
    disks += [disk for disk in host.detached if disk.vm == move.vm]
    names = {disk.uuid: disk.volume.name for disk in disks if not disk.hidden}
    kept = replica_info.kept(copies, [container(pool)])
    names.update({one.replica.uuid: one.replica.dataset for one in kept if one.vm == move.vm})
    table = copies.table(sorted(names.values()), ("guid", "createtxg"), "snapshot,bookmark")
    found = replica_info.by_dataset(table)
    points = {uuid: _no_newer(found.get(name, ()), move.back_to) for uuid, name in names.items()}
    return {"pool": host.datasets[pool].guid, "points": points}


def _no_newer(points: t.Sequence[Point], name: str) -> t.List[int]:
    at = max((point.createtxg for point in points if point.name == name), default=0)
    return [point.guid for point in points if point.createtxg <= at]


def _peers(vm: Vm) -> t.List[str]:
    return sorted({name for disk in vm.disks for name in hosts(disk)})


def start(zfs: Zfs, hypervisor: Hypervisor, claims: Claims, unasked: bool, check_mode: bool) -> Started:
    """Start the VMs with failover that shall run, and whose home is here. unasked: even if a host cannot be asked."""
    host = observe(zfs, hypervisor, every=True)
    done = Started([], [], [])
    for vm in (vm for vm in host.vms if vm.config.failover):
        elsewhere = _elsewhere(host, vm, claims)
        if elsewhere:
            done.left.append(f"{vm.label}: {elsewhere}")
        elif vm.config.autoboot and vm.config.state not in ("stopped", "running"):
            done.failures.append(f"{vm.label}: it is {vm.config.state}")
        elif vm.config.autoboot and vm.config.state == "stopped":
            why_not = _why_not(vm, claims, unasked) or ("" if check_mode else _failure(hypervisor, vm))
            (done.failures if why_not else done.started).append(f"{vm.label}: {why_not}" if why_not else vm.label)
    return done


def _elsewhere(host: Host, vm: Vm, claims: Claims) -> str:
    """Why the home of a VM is not here; "" if it is."""
    if vm.config.uuid in host.moves:
        return vm.config.frozen
    what = (vm.config.uuid, wish_of(vm.config, vm.root).term, claims)
    others = sorted({*home_elsewhere(*what)} - {*without_order(*what)})
    if not others:
        return ""
    words = f"{' and '.join(others)} has taken it over"
    if takers(vm.config.uuid, claims):
        words = f"{' and '.join(others)} has begun to take it over; the playbook failover_vm goes on, or gives that up"
        words += " with flexdisk_failover_state=stays"
    return f"{words}, and it is {vm.config.state} here" if vm.config.state != "stopped" else words


def _why_not(vm: Vm, claims: Claims, unasked: bool) -> str:
    uuid, peers = vm.config.uuid, _peers(vm)
    unclear = without_order(uuid, wish_of(vm.config, vm.root).term, claims)
    if unclear:
        return f"{' and '.join(unclear)} has it, too, and it is not clear whose it is; end it on one of the hosts"
    silent = [] if unasked else not_asked(peers, claims)
    if not peers and not unasked:
        return _WITHOUT_REPLICAS
    if silent:
        return f"{' and '.join(silent)} could not be asked whether they have taken it over"
    return unfinished(vm.interrupted) if vm.interrupted is not None else ""


def _failure(hypervisor: Hypervisor, vm: Vm) -> str:
    progress.current().now(vm.config.alias or vm.config.uuid, "", "start")
    try:
        autoboot.start(hypervisor, vm)
    except FlexdiskError as exc:
        return f"{exc.message} [{exc.code}]"
    return ""
