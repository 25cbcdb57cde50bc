# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts the VMs with failover after the boot of a host, and reports which VMs have failover."""

from __future__ import annotations

import typing as t

from ...fleet.replication import takeover
from ...fleet.replication.claims import (
    Claims,
    home_elsewhere,
    hosts_in_dispute,
    hosts_taking_over,
    moved_on_texts,
    not_asked,
    running_on,
    unknown_successors,
)
from ...fleet.replication.copies import Point
from ...fleet.replication.record import read_record
from ...hypervisor.protocol import Hypervisor
from ...model.dataset import Dataset
from ...model.errors import FlexdiskError
from ...model.vm import Sharer, Vm
from ...rules.failover import FAILOVER_PROPERTY, decode_setting, setting_of, takers_of, term_of
from ...rules.inventory import Host
from ...rules.layout import container, last_part, pool_of
from ...rules.moves import COMING, Move, is_place, previous_tombstone
from ...rules.power import START_HOST, interrupted_run_text, is_off, stop_command, why_not_started
from ...rules.usage import also_attached, labels
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from ..host import progress
from ..host.observe import observe
from ..moves.vm_arrival import disks_here, is_arriving
from ..replication import records, replica_info
from ..steps import autoboot, power
from .vm_takeover import KnownVm, is_named, known_vms, read_replicas

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
    """VMs whose home is another host now."""
    failures: t.List[str]
    """VMs that should run and were not started, and VMs that run here although another host has them, too."""
    repaired: t.List[str]
    """VMs whose autoboot a killed run had left on."""

    @property
    def lines(self) -> t.List[str]:
        """What was done, for the user."""
        repaired = [f"{label}: autoboot of the hypervisor turned off" for label in self.repaired]
        return [*repaired, *(f"{label}: started" for label in self.started), *self.left]


def look(zfs: Zfs, hypervisor: Hypervisor, copies: Copies, name: str = "", uuids: t.Collection[str] = ()) -> _Dict:
    """Return the VMs of this host, and those that it could take over.

    name: only VMs of this name, with details. uuids: the UUIDs of VMs that have this name on other hosts, because the
    VM may have another name here.
    """

    def is_asked_for(uuid: str, alias: str) -> bool:
        return not name or uuid in uuids or is_named(uuid, alias, name)

    host = observe(zfs, hypervisor, snapshots=False, all_pools=True)
    linked = {vm.config.uuid: vm for vm in host.vms}
    taken_over = {uuid: move for uuid, move in host.moves.items() if move.back_to}
    shells = {uuid for uuid, move in host.moves.items() if move.phase == COMING and not move.back_to}
    names = {config.uuid: config.alias for config in host.configs if config.uuid not in shells}
    names.update({uuid: move.alias for uuid, move in taken_over.items()})
    running = {config.uuid for config in host.configs if not is_off(config)}
    vms = [
        {
            "vm": uuid,
            "alias": alias,
            **_failover_state(linked.get(uuid)),
            "taking": taken_over[uuid].host if uuid in taken_over else "",
            "running": uuid in running,
            "left": uuid in host.moves and host.moves[uuid].phase != COMING,
            **(_points(zfs, copies, hypervisor, host, uuid) if name else {"pool": 0, "points": {}}),
        }
        for uuid, alias in sorted(names.items())
        if is_asked_for(uuid, alias)
    ]
    moved = [
        {
            "vm": uuid,
            "alias": one.alias,
            "phase": one.phase,
            "host": one.host,
            "term": one.term,
            "since": one.since,
            **(_result_of_expected(zfs, copies, host, one) if name and one.phase == COMING else {}),
        }
        for uuid, move in sorted(host.moves.items())
        for one in (move, previous_tombstone(move))  # a VM may be about to come back to where it has a tombstone
        if one is not None and uuid not in names and is_asked_for(uuid, one.alias)
    ]
    all_known = known_vms()
    known = [one for one in all_known if is_asked_for(one.record.uuid, one.record.alias)]
    known_records = [_result_of_record(zfs, copies, one, bool(name)) for one in known]
    others = {*names.values(), *(move.alias for move in host.moves.values()), *(one.record.alias for one in all_known)}
    nothing_matches = bool(name) and not (vms or moved or known_records)
    result = {"vms": vms, "moved": moved, "records": known_records, "boot": hypervisor.boot_id()}
    return {**result, "known": sorted(others - {""}) if nothing_matches else []}


def _result_of_record(zfs: Zfs, copies: Copies, known: KnownVm, with_sets: bool) -> _Dict:
    """Return what this host could bring back. with_sets: also the state that its replicas have."""
    record, setting = known.record, decode_setting(known.record.marks.get(FAILOVER_PROPERTY, ""))
    replicas = read_replicas(zfs, copies, known.pool) if with_sets else {}
    has_replica = any(disk.uuid in replicas for disk in record.disks)
    planned, problems = takeover.plan(record, replicas, needs_keys=False) if has_replica else (None, [])
    return {
        "vm": record.uuid,
        "alias": record.alias,
        "host": record.host,
        "home": record.home,
        "term": setting.term if setting is not None else 0,
        "synced": planned.synced if planned is not None else "",
        "points": planned.points if planned is not None else {},
        "why_not": "; ".join(f"disk {one.disk}: {one.message}" if one.disk else one.message for one in problems),
    }


def _result_of_expected(zfs: Zfs, copies: Copies, host: Host, move: Move) -> _Dict:
    """Return what has come here of a VM that moves, to compare it with what other hosts could bring back."""
    begun = is_arriving(host, move)
    planned = takeover.Takeover("", "", ())
    why_not, home = "", 0
    try:
        record = read_record(records.load(move.vm))
        home = record.home
        replicas = read_replicas(zfs, copies, pool_of(_place(host, move)))
        takeover_plan, problems = takeover.plan(record, replicas, disks_here(host, move.vm), needs_keys=False)
        planned, why_not = takeover_plan or planned, "; ".join(problem.message for problem in problems)
    except FlexdiskError as exc:
        why_not = exc.message
    sets = {"home": home, "synced": planned.synced, "points": planned.points}
    return {**sets, "why_not": why_not, "begun": begun}


def _failover_state(vm: t.Optional[Vm]) -> _Dict:
    if vm is None or not vm.config.failover:
        return {"failover": False, "autoboot": vm is not None and vm.config.autoboot, "term": 0, "peers": []}
    setting = setting_of(vm.config, vm.root)
    return {"failover": True, "autoboot": setting.autoboot, "term": setting.term, "peers": takers_of(vm)}


def _points(zfs: Zfs, copies: Copies, hypervisor: Hypervisor, host: Host, uuid: str) -> _Dict:
    """Return the pool of a VM that is here or comes, and the snapshots and bookmarks of its disks."""
    move = host.moves.get(uuid)
    if move is not None and move.back_to:
        return _coming_points(copies, host, move)
    vm = next((one for one in host.vms if one.config.uuid == uuid), None)
    if vm is None:
        return {"pool": 0, "points": {}}
    pool = vm.config.pool
    seen = replica_info.read_vms(zfs, copies, hypervisor, [uuid], pool)
    points = {disk.uuid: [point.guid for point in disk.points] for disk in seen.originals[uuid]}
    return {"pool": seen.host.datasets[pool].guid, "points": points}


def _coming_points(copies: Copies, host: Host, move: Move) -> _Dict:
    """Like _points() for a VM that is being taken over, without points newer than the set that it goes back to."""
    pool, attached = pool_of(_place(host, move)), [vm for vm in host.vms if vm.config.uuid == move.vm]
    disks = [disk for vm in attached for disk in vm.disks + vm.orphans]
    disks += [disk for disk in host.detached if disk.vm == move.vm]
    names = {disk.uuid: disk.volume.name for disk in disks if not disk.hidden}
    stored = replica_info.stored_replicas(copies, [container(pool)])
    names.update({one.replica.uuid: one.replica.dataset for one in stored if one.vm == move.vm})
    table = copies.table(sorted(names.values()), ("guid", "createtxg"), "snapshot,bookmark")
    points_by_dataset = replica_info.by_dataset(table)
    points = {uuid: _no_newer(points_by_dataset.get(name, ()), move.back_to) for uuid, name in names.items()}
    return {"pool": host.datasets[pool].guid, "points": points}


def _place(host: Host, move: Move) -> str:
    """Return the dataset with the entry that a VM comes."""
    (place, *more) = [name for name in host.datasets if is_place(name) and last_part(name) == move.vm]
    if more:
        raise FlexdiskError("Ambiguous", f"{', '.join([place, *more])} all have an entry of VM {move.label}")
    return place


def _no_newer(points: t.Sequence[Point], name: str) -> t.List[int]:
    newest = max((point.createtxg for point in points if point.name == name), default=0)
    return [point.guid for point in points if point.createtxg <= newest]


def start(
    zfs: Zfs, hypervisor: Hypervisor, claims: Claims, unasked: bool, check_mode: bool, here: str = "", boot: str = ""
) -> Started:
    """Start the VMs with failover whose home is here and that should run.

    Args:
        unasked: start them even if a host cannot be asked.
        here: the name of this host for others. Its own answers in claims are ignored.
        boot: the boot id of this host when the others were asked, "" if that is not known.
    """
    if boot and hypervisor.boot_id() != boot:
        raise FlexdiskError("Changed", _BOOTED)
    claims = {name: of_host for name, of_host in claims.items() if name != here}
    host = observe(zfs, hypervisor, all_pools=True)
    result = Started([], [], [], [])
    to_start = {vm.config.uuid for vm in host.vms if _shall_start(vm) and not _why_left(host, vm, claims)}
    for vm in (vm for vm in host.vms if vm.config.failover):
        why_not_running = _why_not_running(vm, claims)
        why_left = _why_left(host, vm, claims)
        why_unsure = _why_unsure(vm, claims, unasked, here)
        if not (why_left or why_unsure or vm.at_home or check_mode):
            power.note_home(zfs, hypervisor, vm)
        if autoboot.keep_off(hypervisor, vm, check_mode):
            result.repaired.append(vm.label)
        if why_not_running:
            result.failures.append(f"{vm.label}: {why_not_running}")
        elif why_left:
            result.left.append(f"{vm.label}: {why_left}")
        elif vm.config.autoboot and not is_off(vm.config) and vm.config.state != "running":
            result.failures.append(f"{vm.label}: it is {vm.config.state}")
        elif vm.config.autoboot and is_off(vm.config):
            problem = (
                why_unsure or _interrupted(vm) or _why_shared(vm, to_start) or _failure(hypervisor, vm, check_mode)
            )
            (result.failures if problem else result.started).append(f"{vm.label}: {problem}" if problem else vm.label)
    for uuid, dataset in _undefined(host) if hypervisor.capabilities.name == "libvirt" else ():
        others = home_elsewhere(uuid, term_of(dataset.user[FAILOVER_PROPERTY]), claims)
        lacks = "libvirt does not have its domain; define it again (virsh define) with its UUID and the disks of"
        lacks = f"{lacks} {dataset.name}"
        if others:
            text = (
                f"{' and '.join(sorted(others))} has taken it over; what is left here is not ended: {lacks}, and end it"
            )
            result.left.append(f"{uuid}: {text} with {_RETURNED}")
        else:
            result.failures.append(f"{uuid}: {dataset.name} has its disks and its failover, but {lacks}")
    return result


def _undefined(host: Host) -> t.Iterator[t.Tuple[str, Dataset]]:
    """Yield the UUIDs and datasets of VMs with failover that the hypervisor does not know."""
    for name, dataset in sorted(host.datasets.items()):
        uuid, setting = last_part(name), decode_setting(dataset.user.get(FAILOVER_PROPERTY, ""))
        if setting is not None and name == f"{dataset.pool}/{uuid}" and uuid not in host.known | {*host.moves}:
            yield uuid, dataset


def _why_left(host: Host, vm: Vm, claims: Claims) -> str:
    """Return why the home of the VM is not here, "" if it is."""
    if vm.config.uuid in host.moves:
        return vm.config.frozen
    identity = (vm.config.uuid, setting_of(vm.config, vm.root).term, claims)
    others = sorted({*home_elsewhere(*identity)} - {*hosts_in_dispute(*identity)})
    if not others:
        return ""
    text = f"{' and '.join(others)} has taken it over"
    if hosts_taking_over(vm.config.uuid, claims):
        text = f"{' and '.join(others)} has begun to take it over; the playbook failover_vm goes on, or gives that up"
        text += " with flexdisk_failover_state=stays"
    return "; ".join([text, *moved_on_texts(*identity)])


def _why_not_running(vm: Vm, claims: Claims) -> str:
    """Return why a VM that runs here must not: another host has it, too. "" if it may, or is stopped."""
    identity = (vm.config.uuid, setting_of(vm.config, vm.root).term, claims)
    others, unclear = home_elsewhere(*identity), hosts_in_dispute(*identity)
    if is_off(vm.config) or not (others or unclear):
        return ""
    begun, here, stop = (
        hosts_taking_over(vm.config.uuid, claims),
        f"it is {vm.config.state} here",
        stop_command(vm.config),
    )
    runs_on = running_on(vm.config.uuid, claims)
    if begun:
        text = f"{here}, and {' and '.join(begun)} has begun to take it over"
        remedy = f"Stop it here ({stop}), then the playbook failover_vm goes on; or flexdisk_failover_state=stays gives"
        remedy += " that up, and it may run on"
    elif unclear:
        text = (
            f"{here}, and {' and '.join(unclear)} has it, too{', and runs it' if set(unclear) & set(runs_on) else ''}"
        )
        remedy = f"Find out on which host it is right, stop it on the other one ({stop}), and end it there with"
        remedy += f" flexdisk_old_host and {_RETURNED}"
    else:
        text = "; ".join([f"{here}, and {' and '.join(others)} has taken it over", *moved_on_texts(*identity)])
        text += f"; it also runs on {' and '.join(runs_on)}" if runs_on else ""
        remedy = f"Stop it here ({stop}), and end it here with {_RETURNED}: what only this host has is kept"
    return f"{text}. {remedy}"


def _why_unsure(vm: Vm, claims: Claims, unasked: bool, here: str) -> str:
    """Return why it is not certain that the home of the VM is here, "" if it is."""
    uuid, peers = vm.config.uuid, takers_of(vm)
    unclear = hosts_in_dispute(uuid, setting_of(vm.config, vm.root).term, claims)
    if unclear:
        text = f"{' and '.join(unclear)} has it, too, and it is not clear whose it is; end it on one of the hosts with"
        return f"{text} flexdisk_old_host and flexdisk_failover_state=returned of the playbook failover_vm"
    asked = {*peers, *unknown_successors(uuid, claims)} - {here}
    without_answer = [] if unasked else not_asked(asked, claims)
    if not peers and not unasked:
        return _WITHOUT_REPLICAS
    if without_answer:
        return f"{' and '.join(without_answer)} could not be asked whether they have taken it over"
    return ""


def _interrupted(vm: Vm) -> str:
    return interrupted_run_text(vm.interrupted, vm) if vm.interrupted is not None else ""


def _shall_start(vm: Vm) -> bool:
    return vm.config.failover and vm.config.autoboot and is_off(vm.config)


def _why_shared(vm: Vm, to_start: t.Collection[str]) -> str:
    """Return why the VM is not started: VMs that start, too, share its disks. "" if there are none."""
    others: t.Dict[str, t.List[Sharer]] = {}
    for one in vm.sharers:
        if one.uuid in to_start:
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
