# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""After the boot of a host: which of its VMs have failover, and which of these it starts."""

from __future__ import annotations

import typing as t

from ...fleet.replication import takeover
from ...fleet.replication.claims import (
    Claims,
    followed,
    home_elsewhere,
    not_asked,
    running_on,
    takers,
    went_on,
    without_order,
)
from ...fleet.replication.copies import Point
from ...fleet.replication.record import read_record
from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError
from ...model.vm import Sharer, Vm
from ...rules.failover import FAILOVER_PROPERTY, decode, setting_of, takers_of
from ...rules.inventory import Host
from ...rules.layout import container, last_part, pool_of
from ...rules.moves import COMING, Move, is_place, previous_tombstone
from ...rules.power import START_HOST, interrupted_run_text, why_not_started
from ...rules.usage import also_attached, labels
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.observe import observe
from ..moves.vm_arrival import disks_here, is_arriving
from ..replication import records, replica_info
from ..steps import autoboot, power
from .vm_takeover import Known, held, is_named, known_vms

_Dict = t.Dict[str, t.Any]
_WITHOUT_REPLICAS = (
    "no replicas of it are known, so no host can be asked whether it has taken it over. flexdisk_start_unasked=true"
    " starts it. After that, the playbook replicate with flexdisk_vm, flexdisk_replica_host for the host that had the"
    " last ones, flexdisk_replica_state=absent and flexdisk_failover=false lets it start with this host again"
)

_BOOTED = (
    "this host has booted after the other hosts were asked, and they may have taken its VMs over while it was down; run"
    " the playbook start_host again"
)


_RETURNED = "flexdisk_failover_state=returned of the playbook failover_vm"


class Started(t.NamedTuple):
    """What was started. The lists have labels of VMs, or messages about them."""

    started: t.List[str]
    left: t.List[str]
    # Those that shall run and were not started, and those that run here although another host has them, too.
    failures: t.List[str]
    # Those whose autoboot a killed run had left on.
    repaired: t.List[str]


def look(zfs: Zfs, hypervisor: Hypervisor, copies: Copies, name: str = "", uuids: t.Collection[str] = ()) -> _Dict:
    """The VMs of this host, and those that it could take over. With a name, only those that have it, and uuids: those
    of other hosts that have it. Somebody may have renamed such a VM here.
    """

    def meant(uuid: str, alias: str) -> bool:
        return not name or uuid in uuids or is_named(uuid, alias, name)

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
        if meant(uuid, alias)
    ]
    moved = [
        {
            "vm": uuid,
            "alias": one.alias,
            "phase": one.phase,
            "host": one.host,
            "term": one.term,
            "since": one.since,
            **(_of_coming(zfs, copies, host, one) if name and one.phase == COMING else {}),
        }
        for uuid, move in sorted(host.moves.items())
        for one in (move, previous_tombstone(move))  # a VM may be about to come back to where it has a tombstone
        if one is not None and uuid not in names and meant(uuid, one.alias)
    ]
    every = known_vms()
    known = [one for one in every if meant(one.record.uuid, one.record.alias)]
    could = [_of_record(zfs, copies, one, bool(name)) for one in known]
    others = {*names.values(), *(move.alias for move in host.moves.values()), *(one.record.alias for one in every)}
    unmet = bool(name) and not (vms or moved or could)
    shown = {"vms": vms, "moved": moved, "records": could, "boot": hypervisor.boot_id()}
    return {**shown, "known": sorted(others - {""}) if unmet else []}


def _of_record(zfs: Zfs, copies: Copies, known: Known, whole: bool) -> _Dict:
    """What this host could bring back. whole: also as of when."""
    record, wish = known.record, decode(known.record.marks.get(FAILOVER_PROPERTY, ""))
    replicas = held(zfs, copies, known.pool) if whole else {}
    there = any(disk.uuid in replicas for disk in record.disks)
    found, problems = takeover.plan(record, replicas) if there else (None, [])
    return {
        "vm": record.uuid,
        "alias": record.alias,
        "host": record.host,
        "home": record.home,
        "term": wish.term if wish is not None else 0,
        "synced": found.synced if found is not None else "",
        "points": found.points if found is not None else {},
        "why_not": "; ".join(f"disk {one.disk}: {one.message}" if one.disk else one.message for one in problems),
    }


def _of_coming(zfs: Zfs, copies: Copies, host: Host, move: Move) -> _Dict:
    """What has come here of a VM that moves, to be compared with what other hosts could bring back."""
    begun = is_arriving(host, move)
    found = takeover.Takeover("", "", ())
    why_not, home = "", 0
    try:
        record = read_record(records.load(move.vm))
        home = record.home
        made, problems = takeover.plan(
            record, held(zfs, copies, pool_of(_place(host, move))), disks_here(host, move.vm)
        )
        found, why_not = made or found, "; ".join(problem.message for problem in problems)
    except FlexdiskError as exc:
        why_not = exc.message
    whole = {"home": home, "synced": found.synced, "points": found.points}
    return {**whole, "why_not": why_not, "begun": begun}


def _of_vm(vm: t.Optional[Vm]) -> _Dict:
    if vm is None or not vm.config.failover:
        return {"failover": False, "autoboot": vm is not None and vm.config.autoboot, "term": 0, "peers": []}
    wish = setting_of(vm.config, vm.root)
    return {"failover": True, "autoboot": wish.autoboot, "term": wish.term, "peers": takers_of(vm)}


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
    pool, attached = pool_of(_place(host, move)), [vm for vm in host.vms if vm.config.uuid == move.vm]
    disks = [disk for vm in attached for disk in vm.disks + vm.orphans]
    disks += [disk for disk in host.detached if disk.vm == move.vm]
    names = {disk.uuid: disk.volume.name for disk in disks if not disk.hidden}
    kept = replica_info.kept(copies, [container(pool)])
    names.update({one.replica.uuid: one.replica.dataset for one in kept if one.vm == move.vm})
    table = copies.table(sorted(names.values()), ("guid", "createtxg"), "snapshot,bookmark")
    found = replica_info.by_dataset(table)
    points = {uuid: _no_newer(found.get(name, ()), move.back_to) for uuid, name in names.items()}
    return {"pool": host.datasets[pool].guid, "points": points}


def _place(host: Host, move: Move) -> str:
    """The dataset that says that a VM comes."""
    (place, *more) = [name for name in host.datasets if is_place(name) and last_part(name) == move.vm]
    if more:
        raise FlexdiskError("Ambiguous", f"{', '.join([place, *more])} all tell of VM {move.label}")
    return place


def _no_newer(points: t.Sequence[Point], name: str) -> t.List[int]:
    at = max((point.createtxg for point in points if point.name == name), default=0)
    return [point.guid for point in points if point.createtxg <= at]


def start(
    zfs: Zfs, hypervisor: Hypervisor, claims: Claims, unasked: bool, check_mode: bool, here: str = "", boot: str = ""
) -> Started:
    """Start the VMs with failover that shall run, and whose home is here. unasked: even if a host cannot be asked.
    here: the name of this host for others; what it has said itself does not count. boot: the one in which this host
    was when the others were asked, "" if that is not known.
    """
    if boot and hypervisor.boot_id() != boot:
        raise FlexdiskError("Changed", _BOOTED)
    claims = {name: said for name, said in claims.items() if name != here}
    host = observe(zfs, hypervisor, every=True)
    done = Started([], [], [], [])
    starts = {vm.config.uuid for vm in host.vms if _shall_start(vm) and not _elsewhere(host, vm, claims)}
    for vm in (vm for vm in host.vms if vm.config.failover):
        twice = _twice(vm, claims)
        elsewhere = _elsewhere(host, vm, claims)
        unsure = _unsure(vm, claims, unasked, here)
        if not (elsewhere or unsure or vm.at_home or check_mode):
            power.note_home(zfs, hypervisor, vm)
        if autoboot.keep_off(hypervisor, vm, check_mode):
            done.repaired.append(vm.label)
        if twice:
            done.failures.append(f"{vm.label}: {twice}")
        elif elsewhere:
            done.left.append(f"{vm.label}: {elsewhere}")
        elif vm.config.autoboot and vm.config.state not in ("stopped", "running"):
            done.failures.append(f"{vm.label}: it is {vm.config.state}")
        elif vm.config.autoboot and vm.config.state == "stopped":
            problem = unsure or _interrupted(vm) or _beside(vm, starts) or _failure(hypervisor, vm, check_mode)
            (done.failures if problem else done.started).append(f"{vm.label}: {problem}" if problem else vm.label)
    return done


def _elsewhere(host: Host, vm: Vm, claims: Claims) -> str:
    """Why the home of a VM is not here; "" if it is."""
    if vm.config.uuid in host.moves:
        return vm.config.frozen
    what = (vm.config.uuid, setting_of(vm.config, vm.root).term, claims)
    others = sorted({*home_elsewhere(*what)} - {*without_order(*what)})
    if not others:
        return ""
    text = f"{' and '.join(others)} has taken it over"
    if takers(vm.config.uuid, claims):
        text = f"{' and '.join(others)} has begun to take it over; the playbook failover_vm goes on, or gives that up"
        text += " with flexdisk_failover_state=stays"
    return "; ".join([text, *went_on(*what)])


def _twice(vm: Vm, claims: Claims) -> str:
    """Why the VM must not run here, where it does: another host has it, too; "" if it may, or is stopped."""
    what = (vm.config.uuid, setting_of(vm.config, vm.root).term, claims)
    others, unclear = home_elsewhere(*what), without_order(*what)
    if vm.config.state == "stopped" or not (others or unclear):
        return ""
    begun, here, stop = takers(vm.config.uuid, claims), f"it is {vm.config.state} here", f"vmadm stop {vm.config.uuid}"
    runs = running_on(vm.config.uuid, claims)
    if begun:
        text = f"{here}, and {' and '.join(begun)} has begun to take it over"
        way = f"Stop it here ({stop}), then the playbook failover_vm goes on; or flexdisk_failover_state=stays gives"
        way += " that up, and it may run on"
    elif unclear:
        text = f"{here}, and {' and '.join(unclear)} has it, too{', and runs it' if set(unclear) & set(runs) else ''}"
        way = f"Find out on which host it is right, stop it on the other one ({stop}), and end it there with"
        way += f" flexdisk_old_host and {_RETURNED}"
    else:
        text = "; ".join([f"{here}, and {' and '.join(others)} has taken it over", *went_on(*what)])
        text += f"; it also runs on {' and '.join(runs)}" if runs else ""
        way = f"Stop it here ({stop}), and end it here with {_RETURNED}: what only this host has is kept"
    return f"{text}. {way}"


def _unsure(vm: Vm, claims: Claims, unasked: bool, here: str) -> str:
    """Why it is not known that the home of a VM is here; "" if it is."""
    uuid, peers = vm.config.uuid, takers_of(vm)
    unclear = without_order(uuid, setting_of(vm.config, vm.root).term, claims)
    if unclear:
        text = f"{' and '.join(unclear)} has it, too, and it is not clear whose it is; end it on one of the hosts with"
        return f"{text} flexdisk_old_host and flexdisk_failover_state=returned of the playbook failover_vm"
    asked = {*peers, *followed(uuid, claims)} - {here}
    silent = [] if unasked else not_asked(asked, claims)
    if not peers and not unasked:
        return _WITHOUT_REPLICAS
    if silent:
        return f"{' and '.join(silent)} could not be asked whether they have taken it over"
    return ""


def _interrupted(vm: Vm) -> str:
    return interrupted_run_text(vm.interrupted) if vm.interrupted is not None else ""


def _shall_start(vm: Vm) -> bool:
    return vm.config.failover and vm.config.autoboot and vm.config.state == "stopped"


def _beside(vm: Vm, starts: t.Collection[str]) -> str:
    """Why the VM is not started: others that shall start, too, have its disks. "" if there are none."""
    others: t.Dict[str, t.List[Sharer]] = {}
    for one in vm.sharers:
        if one.uuid in starts:
            others.setdefault(one.volume, []).append(one)
    return "; ".join(f"{also_attached(volume, labels(users))} [InUse]" for volume, users in others.items())


def _failure(hypervisor: Hypervisor, vm: Vm, check_mode: bool) -> str:
    """Start the VM, and return why it could not be started, or "". In check mode, ask only whether it may be."""
    if check_mode:
        code, message = why_not_started(vm, START_HOST)
        return f"{message} [{code}]" if code else ""
    progress.current().now(vm.config.alias or vm.config.uuid, "", "start")
    try:
        power.start(hypervisor, vm, START_HOST)
    except FlexdiskError as exc:
        return f"{exc.message} [{exc.code}]"
    return ""
