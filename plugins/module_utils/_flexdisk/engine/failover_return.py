# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The old home of a VM that another host has taken over: the VM ends here, and what only its disks have is kept."""

from __future__ import annotations

import time
import typing as t

from ..fleet.replication.claims import Claim, Claims, home_elsewhere
from ..hypervisor.protocol import Hypervisor
from ..model.command import Runner
from ..model.dataset import Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError, Problem
from ..model.sizes import render_bytes
from ..model.vm import Disk, Vm
from ..plan.planner import find_vm
from ..plan.vm_move import refusals
from ..rules import moves
from ..rules.failover import wish_of
from ..rules.identity import render_time
from ..rules.inventory import Host
from ..rules.layout import detached_dataset, diverged, is_below, last_part, replicas
from ..rules.moves import MOVED, Move
from ..rules.replicas import DIVERGED, HOME, HOST, OF_VM, RESERVED, ROLE, SENT, is_synced
from ..rules.replicas import FACT as NOTE
from ..zfs import guard
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from .journal import forget_vm
from .move_marks import write_move
from .observe import observe
from .outcome import Outcome
from .replica_info import HOLD
from .vm_departure import EndOfVm


class Old(t.NamedTuple):
    """A disk on the old home. common: the guid of its newest snapshot that the new home has, 0 for none. written: bytes
    since.
    """

    disk: Disk
    common: int
    written: int


class Apart(t.NamedTuple):
    """A disk in the place of those that have diverged. lost: its snapshots after the common one, the newest first.
    replicated: there is a replica beside it.
    """

    volume: Dataset
    common: str
    lost: t.List[str]
    written: int
    replicated: bool


class Ending(t.NamedTuple):
    """vm: what ends, None if it has ended. move: what is written down. words: what is kept, and what becomes of it."""

    vm: t.Optional[Vm]
    move: t.Optional[Move]
    disks: t.List[Old]
    words: t.List[str]
    problems: t.List[Problem]

    @property
    def uuid(self) -> str:
        """That of the VM, "" if there is nothing to do."""
        return self.move.vm if self.move is not None else ""


class FailoverReturn:
    """What the old home does when it is there again."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner) -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)

    # -- end

    def look(self, name: str, claims: Claims, begun: bool = False) -> Ending:
        """What becomes of a VM of this host that another one has taken over. Nothing is changed. begun: or has only
        begun to; the VM must be able to come back there after it has ended here.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        vm = find_vm(host, name)
        if isinstance(vm, Problem):
            known = [move for move in moves.named(host.moves, name) if move.phase == MOVED]
            left = _left(host, known[0].vm) if len(known) == 1 else []  # of an interrupted run
            return Ending(None, known[0] if left else None, [], left, [])
        term = wish_of(vm.config, vm.root).term
        others = home_elsewhere(vm.config.uuid, term, claims)
        if not others and vm.config.uuid not in host.moves:
            return Ending(None, None, [], [], [])
        found = {one: c for one in others for c in claims[one] or () if c.vm == vm.config.uuid}
        ends = vm.config.uuid in host.moves
        problems = [*_unclear(vm, term, found, begun), *(() if ends else refusals(host, vm, ()))]
        if problems:
            return Ending(vm, None, [], [], problems)
        ((there, claim),) = found.items()
        config = vm.config
        since = render_time(time.time())
        move = Move(MOVED, config.uuid, config.alias, there, claim.pool, "stopped", config.autoboot, since)
        disks = [_old(disk, claim) for disk in vm.disks if not disk.hidden]
        return Ending(vm, move, disks, [_words(one, there) for one in disks], [])

    def end(self, name: str, claims: Claims, begun: bool = False) -> None:
        """The VM ends here. First the tombstone is written; then each disk says what it has in common with its VM.
        begun: as for look.
        """
        ending = self.look(name, claims, begun)
        if ending.problems:
            raise FlexdiskError(ending.problems[0].code, ending.problems[0].message)
        move = ending.move
        if move is None:
            return
        if ending.vm is not None:
            write_move(self._zfs, self._hypervisor, ending.vm.config.pool, move)
            for one in ending.disks:
                self._zfs.set_facts(one.disk.volume.name, _facts(one, move))
            self._end(ending.vm.config.uuid)
        self._set_apart(move.vm)
        for apart in self._apart(move.vm):
            if apart.common and not apart.written:
                self._become_replica(apart)

    def _end(self, uuid: str) -> None:
        outcome = _EndAnyway(uuid, self._zfs, self._hypervisor, Policy(), False, Outcome()).run()
        if outcome.failure is not None:
            raise FlexdiskError(outcome.failure["error_code"], outcome.failure["message"])
        if outcome.problems:
            raise FlexdiskError(outcome.problems[0].code, outcome.problems[0].message)

    def _set_apart(self, uuid: str) -> None:
        host = observe(self._zfs, self._hypervisor, every=True)
        forget_vm(self._zfs, host, uuid)
        for disk in (disk for disk in host.detached if _is_of(disk.volume, uuid)):
            volume, place = disk.volume, diverged(disk.volume.pool)
            if disk.guarded:
                guard.lift(self._zfs, volume.name)
            if not self._zfs.exists(place):
                self._zfs.create_container(place, readonly="on")
            self._zfs.set(volume.name, readonly="on")
            self._zfs.rename(volume.name, f"{place}/{last_part(volume.name)}")

    def _apart(self, uuid: str) -> t.List[Apart]:
        """The disks of the VM that are apart, as they are now."""
        host = observe(self._zfs, self._hypervisor, every=True)
        return [
            _as_apart(host, volume) for volume in _volumes(host, uuid) if is_below(volume.name, diverged(volume.pool))
        ]

    def _become_replica(self, apart: Apart) -> None:
        """The disk goes back to the common snapshot, and lies where replicas lie. What it was goes last."""
        name = apart.volume.name
        for snapshot in apart.lost:
            self._copies.destroy(snapshot)
        for bookmark in self._newer_bookmarks(apart):
            self._copies.destroy(bookmark)
        if apart.lost or apart.volume.written:
            self._copies.roll_back(apart.common)
        uuid = last_part(name)
        self._zfs.set_facts(name, {ROLE: uuid})
        self._zfs.set_facts([*self._copies.table([name], ("guid",), "snapshot")], {SENT: "on"})
        if apart.common not in self._copies.held(HOLD, [apart.common]):
            self._zfs.hold(HOLD, apart.common)
        place = replicas(apart.volume.pool)
        if not self._zfs.exists(place):
            self._zfs.create_container(place, readonly="on")
        self._zfs.rename(name, f"{place}/{uuid}")
        self._zfs.set_facts(f"{place}/{uuid}", {DIVERGED: ""})

    def _newer_bookmarks(self, apart: Apart) -> t.List[str]:
        """Those of syncs with other hosts after the common snapshot. ZFS does not roll back over them."""
        rows = self._copies.table([apart.volume.name], ("createtxg",), "snapshot,bookmark")
        at = int(rows[apart.common]["createtxg"][0])
        marks = [name for name in rows if "#" in name and is_synced(name.partition("#")[2])]
        return [name for name in marks if int(rows[name]["createtxg"][0]) > at]

    # -- give up

    def give_up(self, name: str, check_mode: bool) -> t.Tuple[str, t.List[str]]:
        """What only the disks here have is given up: those without a replica become one, the others go. The uuid of
        the VM that has left, "" for none, and what was done, in words.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        known = [move for move in moves.named(host.moves, name) if move.phase == MOVED]
        if len(known) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs that have left are called {name}; give the whole uuid")
        told = []
        for apart in self._apart(known[0].vm) if known else ():
            becomes = bool(apart.common) and not apart.replicated
            words = f"{apart.volume.name} loses {render_bytes(apart.written)}"
            told.append(f"{words}, and becomes a replica" if becomes else f"{apart.volume.name} is destroyed")
            if check_mode:
                continue
            if becomes:
                self._become_replica(apart)
            else:
                self._destroy(apart)
        return known[0].vm if told else "", told

    def _destroy(self, apart: Apart) -> None:
        names = [*self._copies.table([apart.volume.name], ("guid",), "snapshot")]
        held = self._copies.held(HOLD, names)
        if held:
            self._zfs.release(HOLD, *sorted(held))
        for name in reversed(names):
            self._copies.destroy(name)
        self._zfs.destroy(apart.volume.name)


class _EndAnyway(EndOfVm):
    """Whatever was written: nothing of it is lost."""

    def check(self, vm: Vm) -> None:
        if vm.config.state != "stopped":
            raise FlexdiskError("VmNotStopped", f"VM {vm.label} is {vm.config.state}")


def _unclear(vm: Vm, term: int, found: t.Mapping[str, Claim], begun: bool) -> t.Iterator[Problem]:
    """Why the VM must not end here yet."""
    name = vm.config.label
    if len(found) != 1:
        yield Problem("Ambiguous", f"its new home is not clear: {' and '.join(found) or 'no host'} has it", name)
    for there, claim in found.items():
        if claim.taking and not begun:
            words = f"{there} has begun to take it over; flexdisk_failover_state=taken_over of the playbook failover_vm"
            yield Problem("InUse", f"{words} goes on, and stays gives that up", name)
        elif not (claim.taking or (claim.term is not None and claim.term > term and claim.points)):
            yield Problem("Ambiguous", f"{there} has it, too, and does not say that it has taken it over", name)
    if vm.config.state != "stopped":
        words = f"it is {vm.config.state} here, and another host has taken it over"
        if any(claim.taking for claim in found.values()):
            words = (
                f"it is {vm.config.state} here, and another host has begun to take it over: stop it here (vmadm stop"
            )
            words += f" {vm.config.uuid}), or give that up with flexdisk_failover_state=stays"
        yield Problem("VmNotStopped", words, name)


def _old(disk: Disk, claim: Claim) -> Old:
    known = claim.points.get(disk.uuid, ())
    written, common = disk.volume.written if disk.snapshots else disk.volume.referenced, 0
    for snapshot in reversed(disk.snapshots):
        if snapshot.guid in known:
            common = snapshot.guid
            break
        written += snapshot.written
    return Old(disk, common, written)


def _words(one: Old, there: str) -> str:
    place = f"{diverged(one.disk.volume.pool)}/{one.disk.uuid}"
    if one.common and not one.written:
        return f"disk {one.disk.label} becomes a replica of that on {there}"
    return f"disk {one.disk.label} is kept as {place}, with {render_bytes(one.written)} that {there} lacks"


def _facts(one: Old, move: Move) -> t.Dict[str, str]:
    volume = one.disk.volume
    reserved = str(volume.volsize) if volume.refreservation else ""
    of_vm = {OF_VM: move.vm, HOME: str(move.pool), HOST: move.host}
    return {**of_vm, DIVERGED: f"{one.common:x}", NOTE: "", **({RESERVED: reserved} if reserved else {})}


def _is_of(volume: Dataset, uuid: str) -> bool:
    return volume.backs and volume.user.get(OF_VM) == uuid and bool(volume.user.get(DIVERGED))


def _volumes(host: Host, uuid: str) -> t.List[Dataset]:
    return [d for name, d in sorted(host.datasets.items()) if d.kind != "snapshot" and _is_of(d, uuid)]


def _left(host: Host, uuid: str) -> t.List[str]:
    """What an interrupted run has left to do."""
    found = [f"the journal of {pool} still tells of it" for pool, vm in host.intents if vm == uuid]
    for volume in _volumes(host, uuid):
        apart = _as_apart(host, volume)
        if volume.name == detached_dataset(volume.pool, last_part(volume.name)) or (apart.common and not apart.written):
            found.append(f"{volume.name} is not where it belongs")
    return found


def _as_apart(host: Host, volume: Dataset) -> Apart:
    points = [d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == volume.name]
    points.sort(key=lambda point: point.createtxg)
    text = volume.user[DIVERGED]
    place = next((n for n, point in enumerate(points) if f"{point.guid:x}" == text), None)
    newer = points[place + 1 :] if place is not None else points
    common = points[place].name if place is not None else ""
    written = volume.written + sum(point.written for point in newer)
    replicated = f"{replicas(volume.pool)}/{last_part(volume.name)}" in host.datasets
    return Apart(volume, common, [point.name for point in reversed(newer)], written, replicated)
