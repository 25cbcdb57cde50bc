# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The old home of a VM that another host has taken over: the VM ends here, and what only its disks have is kept."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ..fleet.replication.claims import Claim, Claims, home_elsewhere
from ..fleet.replication.record import read_record
from ..hypervisor.protocol import Hypervisor
from ..model.command import Runner
from ..model.dataset import Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError, Problem
from ..model.sizes import render_bytes
from ..model.vm import Disk, Vm, VmConfig
from ..plan.planner import find_vm
from ..plan.vm_move import refusals
from ..rules import moves
from ..rules.failover import wish_of
from ..rules.identity import render_time
from ..rules.inventory import Host, detached_disk
from ..rules.layout import detached_dataset, diverged, is_below, last_part, pool_of, replicas
from ..rules.moves import COMING, MOVED, Move
from ..rules.replicas import DIVERGED, HOME, HOST, OF_VM, RESERVED, ROLE, SENT, is_synced
from ..rules.replicas import FACT as NOTE
from ..rules.unfinished import is_unfinished
from ..zfs import guard
from ..zfs.commands import Zfs
from ..zfs.copies import Copies
from ..zfs.errors import ZfsError
from . import records, renames
from .journal import forget_vm
from .move_marks import rewrite_move, write_move
from .observe import observe
from .outcome import Outcome
from .own_copies import destroy_held
from .replica_info import HOLD
from .vm_arrival import Arrival, disks_here, is_arriving, why_it_comes
from .vm_departure import EndOfVm, end_rest, rest_of

_SHOWN = 20  # snapshots that a message names


class Old(t.NamedTuple):
    """A disk on the old home."""

    disk: Disk
    common: int
    """The guid of its newest snapshot that the new home has, 0 for none."""
    written: int
    """Bytes written since the common snapshot."""
    snapshots: t.Tuple[str, ...]
    """Short names of its snapshots that are newer than the common one. Those of syncs do not count."""

    @property
    def becomes_replica(self) -> bool:
        """Whether the new home lacks nothing of it."""
        return bool(self.common) and not self.written and not self.snapshots


class Apart(t.NamedTuple):
    """A disk of a VM that has ended here, detached or in the place of those that have diverged."""

    volume: Dataset
    common: str
    """Its newest snapshot that the new home has, "" for none."""
    shared: t.Tuple[str, ...]
    """Its snapshots up to the common one."""
    lost: t.Tuple[str, ...]
    """Its newer snapshots, the newest first."""
    written: int
    """Bytes written since the common snapshot."""
    snapshots: t.Tuple[str, ...]
    """Short names of snapshots that only this copy is known to have, without those of syncs."""
    replicated: bool
    """Whether there is a replica beside it."""

    @property
    def becomes_replica(self) -> bool:
        """Whether the new home lacks nothing of it."""
        return bool(self.common) and not self.written and not self.snapshots


class Ending(t.NamedTuple):
    """vm: what ends, None if it has ended. move: what is written down, in this pool. disks: those that it does not
    say of yet what the new home has of them. words: what is kept, and what becomes of it.
    """

    vm: t.Optional[Vm]
    move: t.Optional[Move]
    disks: t.List[Old]
    words: t.List[str]
    problems: t.List[Problem]
    pool: str = ""
    even: t.Tuple[str, ...] = ()
    """Replicas that came with a move and hold nothing that the new home lacks. They stay replicas, now of its disks."""
    only_shell: bool = False
    """Nothing but a VM without disks has come here: it goes, and the replicas stay as they are."""

    @property
    def uuid(self) -> str:
        """That of the VM, "" if there is nothing to do."""
        return self.move.vm if self.move is not None else ""


class FailoverReturn:
    """What the old home does when it is there again. authorized: as for Arrival."""

    def __init__(self, zfs: Zfs, hypervisor: Hypervisor, runner: Runner, authorized: str = "") -> None:
        self._zfs = zfs
        self._hypervisor = hypervisor
        self._copies = Copies(runner)
        self._arrival = Arrival(zfs, hypervisor, runner, Policy(), authorized)

    # -- end

    def look(
        self,
        name: str,
        claims: Claims,
        begun: bool = False,
        old: bool = False,
        moved: t.Optional[Claims] = None,
    ) -> Ending:
        """What becomes of a VM of this host that another one has taken over. Nothing is changed. begun: or has only
        begun to; the VM must be able to come back there after it has ended here. old: the user says that this is the
        old home, so another host that has the VM needs not say that it has taken it over. moved: what hosts say of VMs
        that they do not have any more.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        vm = find_vm(host, name)
        known = moves.named(host.moves, name if isinstance(vm, Problem) else vm.config.uuid)
        if len(known) == 1 and known[0].phase == COMING:
            return _come(host, None if isinstance(vm, Problem) else vm, known[0], (claims, moved or {}), begun, old)
        if isinstance(vm, Problem):
            known = [move for move in known if move.phase == MOVED]
            return _rest(host, known[0], claims, begun) if len(known) == 1 else Ending(None, None, [], [], [])
        ended = host.moves.get(vm.config.uuid)
        term = ended.term - 1 if ended is not None and ended.taken else wish_of(vm.config, vm.root).term
        others = home_elsewhere(vm.config.uuid, term, claims)
        if ended is not None and ended.taken and ended.host in others:
            others = [ended.host]
        if not (others or old) and vm.config.uuid not in host.moves:
            return Ending(None, None, [], [], [])
        found = {one: c for one in others for c in claims[one] or () if c.vm == vm.config.uuid}
        if not found:
            return Ending(
                vm, None, [], [], [Problem("Ambiguous", _no_home_but_this(vm.config.uuid, claims), vm.config.label)]
            )
        ends = vm.config.uuid in host.moves
        unclear = _unclear(vm.config.label, vm.config, term, found, begun, old)
        problems = [*unclear, *(() if ends else _keeping(host, vm))]
        if problems:
            return Ending(vm, None, [], [], problems)
        ((there, claim),) = found.items()
        config = vm.config
        since = render_time(time.time())
        raised = term + 1 if claim.term is None else claim.term
        what = (config.uuid, config.alias, there, claim.pool, "stopped", config.autoboot, since)
        came = ended is not None and ended.has_left
        move = Move(MOVED, *what, term=raised, taken=True, has_left=came)
        attached = [disk for disk in vm.disks if not disk.hidden]
        disks = [_old(disk, claim) for disk in [*attached, *_half_gone(host, config.uuid)]]
        newer, even = _of_replicas(host, move, claim)
        disks += newer
        words = [_words(one, there) for one in disks] or [
            f"what is left here of VM {config.label} goes, for {there} has it"
        ]
        taken = list(_place_is_taken(host, move, disks))
        return Ending(vm, None if taken else move, disks, words, taken, config.pool, even)

    def end(
        self, name: str, claims: Claims, begun: bool = False, old: bool = False, moved: t.Optional[Claims] = None
    ) -> None:
        """The VM ends here. First the tombstone is written; then each disk says what it has in common with its VM.
        begun, old and moved: as for look.
        """
        ending = self.look(name, claims, begun, old, moved)
        if ending.problems:
            raise FlexdiskError(ending.problems[0].code, ending.problems[0].message)
        move = ending.move
        if move is None:
            return
        if ending.only_shell:
            self._arrival.unexpect(move.vm, taking=True)
            return
        self._arrival.shut_out(move.vm)
        self._write_down(ending, move)
        if ending.vm is not None:
            self._end(ending.vm.config.uuid)
        else:
            end_rest(self._zfs, self._hypervisor, observe(self._zfs, self._hypervisor, every=True), move.vm)
        self._set_apart(move.vm)
        for apart in _disks_apart(observe(self._zfs, self._hypervisor, every=True), move.vm):
            if apart.becomes_replica and not apart.replicated:
                self._become_replica(apart)
        if not records.absent(move.vm):
            self._arrival.forget(move.vm)
        if move.has_left:  # until now, no sync was let in
            places = observe(self._zfs, self._hypervisor, every=True).datasets
            for name in [name for name in places if moves.is_place(name) and last_part(name) == move.vm]:
                rewrite_move(self._zfs, pool_of(name), move._replace(has_left=False))

    def _write_down(self, ending: Ending, move: Move) -> None:
        if ending.vm is not None or ending.disks or ending.even:
            write_move(self._zfs, self._hypervisor, ending.pool, move)
        for one in ending.disks:
            self._zfs.set_facts(one.disk.volume.name, _facts(one, move))
        if ending.even:
            self._zfs.set_facts(ending.even, _whose(move))

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
            renames.rename(self._zfs, volume.name, f"{place}/{last_part(volume.name)}")
        for volume in _diverged_replicas(host, uuid):
            if not self._zfs.exists(diverged(volume.pool)):
                self._zfs.create_container(diverged(volume.pool), readonly="on")
            self._zfs.set_facts(volume.name, {ROLE: ""})  # first: what has it is brought up to date
            self._zfs.set_facts(volume.name, _whose(host.moves[uuid]))
            renames.rename(self._zfs, volume.name, f"{diverged(volume.pool)}/{last_part(volume.name)}")

    def _become_replica(self, apart: Apart) -> None:
        """The disk goes back to the common snapshot, and lies where replicas lie. What it was goes last.

        Exactly the known newer snapshots are destroyed. ZFS does not roll back over one that has come since.
        """
        name = apart.volume.name
        destroy_held(self._zfs, self._copies, apart.lost)  # a move has held its last one
        for bookmark in self._newer_bookmarks(apart):
            self._copies.destroy(bookmark)
        if apart.lost or apart.volume.written:
            self._roll_back(apart)
        uuid = last_part(name)
        self._zfs.set_facts(name, {ROLE: uuid, DIVERGED: ""})  # it lies apart until it has its place
        self._zfs.set_facts([*apart.shared], {SENT: "on"})
        if apart.common not in self._copies.held(HOLD, [apart.common]):
            self._zfs.hold(HOLD, apart.common)
        place = replicas(apart.volume.pool)
        if not self._zfs.exists(place):
            self._zfs.create_container(place, readonly="on")
        renames.rename(self._zfs, name, f"{place}/{uuid}")

    def _roll_back(self, apart: Apart) -> None:
        try:
            self._copies.roll_back(apart.common)
        except ZfsError as exc:
            if exc.code != "HasNewer":
                raise
            words = f"{apart.volume.name} has got a snapshot since it was read, so it was not rolled back to "
            words += f"{apart.common}, and its data is all there; run the same command again, which looks what to keep"
            raise FlexdiskError("Changed", f"{words}: {exc.message}") from exc

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

        Raises FlexdiskError InUse, before anything goes, if others hold one of the snapshots or have cloned it.
        """
        host = observe(self._zfs, self._hypervisor, every=True)
        known = [move for move in moves.named(host.moves, name) if move.phase == MOVED]
        if len(known) > 1:
            raise FlexdiskError("Ambiguous", f"several VMs that have left are called {name}; give the whole uuid")
        uuid = known[0].vm if known else name.lower()  # its tombstone may have been given up before
        own = {disk.uuid for vm in host.vms for disk in vm.disks + vm.orphans} | {disk.uuid for disk in host.detached}
        found = _disks_apart(host, uuid) if uuid not in host.moves or known else []
        becomes = [a for a in found if a.common and not a.replicated and last_part(a.volume.name) not in own]
        self._check_unused(host, [one for a in found for one in (a.lost if a in becomes else (*a.lost, *a.shared))])
        for apart in () if check_mode else found:
            if apart in becomes:
                self._become_replica(apart)
            else:
                self._destroy(apart)
        return uuid if found else "", [_given_up(apart, apart in becomes) for apart in found]

    def _check_unused(self, host: Host, snapshots: t.Sequence[str]) -> None:
        points = [host.datasets[name] for name in snapshots]
        ours = self._copies.held(HOLD, [point.name for point in points if point.userrefs])
        used = [f"{point.name} has the clone {', '.join(point.clones)}" for point in points if point.clones]
        foreign = [point.name for point in points if point.userrefs > (point.name in ours)]
        used += [f"{name} is held by others (zfs holds {name})" for name in foreign]
        if used:
            raise FlexdiskError("InUse", f"nothing was given up: {'; '.join(used)}")

    def _destroy(self, apart: Apart) -> None:
        """Exactly the known snapshots go. ZFS does not destroy a volume with another one."""
        destroy_held(self._zfs, self._copies, [*apart.lost, *reversed(apart.shared)])
        self._zfs.destroy(apart.volume.name)


class _EndAnyway(EndOfVm):
    """Whatever was written: nothing of it is lost."""

    def check(self, vm: Vm, host: Host) -> None:
        if vm.config.state != "stopped":
            raise FlexdiskError("VmNotStopped", f"VM {vm.label} is {vm.config.state}")


def _come(host: Host, vm: t.Optional[Vm], move: Move, said: t.Tuple[Claims, Claims], begun: bool, old: bool) -> Ending:
    """What becomes of a VM that began to come here, by a failover or a move, and that another host has now.

    vm: what was made of it here, None if it is not whole. said: claims and moved, begun and old: as for look. A
    failover that has only begun ends nothing that has begun to arrive here: all that the VM had is here.
    """
    claims, moved = said
    have = {there: one for there, its in claims.items() for one in its or () if one.vm == move.vm and not one.phase}
    least = move.term - 1 if move.back_to else move.term  # a failover that has begun has raised it already
    older, have = have, {there: one for there, one in have.items() if one.term is None or one.term >= least}
    taken = any(one.taking or _has_taken(one, move.term) for one in have.values())
    if not (old or taken or move.back_to):
        return Ending(None, None, [], [], [])  # it is only on its way
    term = max((one.term for one in have.values() if one.term is not None), default=0)  # lower ones are old homes
    found = {there: one for there, one in have.items() if one.term in (None, term)}
    config = next((one for one in host.configs if one.uuid == move.vm), None)
    arriving = is_arriving(host, move)
    if old and older and not (have or move.back_to or arriving or _says_left(move, moved)):
        goes = f"what was made here of VM {move.label}, which was to come from {move.host}, goes; its replicas stay"
        return Ending(vm, move, [], [goes], [], only_shell=True)
    problems = list(_unclear(move.label, config, move.term, found, begun, old))
    if arriving and not found:
        problems.append(Problem("InUse", why_it_comes(host, move), move.label))
    arrived = why_it_comes(host, move) if begun else ""
    if arrived:
        problems.append(Problem("InUse", arrived, move.label))
    if problems:
        return Ending(vm, None, [], [], problems)
    ((there, claim),) = found.items()
    (pool,) = {pool_of(name) for name in host.datasets if moves.is_place(name) and last_part(name) == move.vm}
    disks = [_old(disk, claim) for disk in disks_here(host, move.vm).values()]
    newer, even = _of_replicas(host, move, claim)
    disks += newer
    words = [f"what was made here of VM {move.label} from {move.host} goes, for {there} has it"]
    what = (move.vm, move.alias, there, claim.pool, "stopped", move.autoboot, render_time(time.time()))
    term = claim.term if claim.term is not None else move.term + (0 if move.back_to else 1)
    ended = Move(MOVED, *what, term=term, taken=True, has_left=move.has_left)
    problems = list(_place_is_taken(host, move, disks))
    if problems:
        return Ending(vm, None, [], [], problems)
    return Ending(vm, ended, disks, [*words, *(_words(one, there) for one in disks)], [], pool, even, not disks)


def _says_left(move: Move, moved: Claims) -> bool:
    """Whether a host says that it has let the VM go: then what came here may be all that is left of it."""
    stones = [one for said in moved.values() for one in said or () if one.vm == move.vm and one.phase == MOVED]
    return any(one.term is None or one.term >= move.term for one in stones)


def _replicas_that_came(host: Host, move: Move) -> t.List[Disk]:
    """The replicas of a VM that had left its host, as far as they have not become disks, or are known to be newer than
    the VM. They have what it wrote there last. What somebody has taken a snapshot of since then is the same.
    """
    if not move.has_left or records.absent(move.vm):
        return []
    found = []
    names = {disk.uuid: disk.name for disk in read_record(records.load(move.vm)).disks}
    for _name, volume in sorted(host.datasets.items()):
        uuid, lies = last_part(volume.name), volume.backs and volume.parent == replicas(volume.pool)
        if uuid in names and lies and volume.user.get(ROLE) == uuid and not volume.user.get(DIVERGED):
            points = _points(host, volume.name)
            last = max((n for n, one in enumerate(points) if is_synced(one.name.partition("@")[2])), default=-1)
            came = detached_disk(volume, 0, snapshots=tuple(points[: last + 1]))
            found.append(replace(came, uuid=uuid, name=names[uuid]))
    return found


def _of_replicas(host: Host, move: Move, claim: Claim) -> t.Tuple[t.List[Old], t.Tuple[str, ...]]:
    """Of the replicas that came with a move, those with something that the new home lacks, and the names of the others,
    which become replicas of its disks.
    """
    came = [_old(disk, claim) for disk in _replicas_that_came(host, move)]
    even = tuple(one.disk.volume.name for one in came if one.becomes_replica)
    return [one for one in came if not one.becomes_replica], even


def _unclear(
    name: str, config: t.Optional[VmConfig], term: int, found: t.Mapping[str, Claim], begun: bool, old: bool
) -> t.Iterator[Problem]:
    """Why the VM must not end here yet. config: None if the hypervisor does not know it."""
    if len(found) != 1:
        yield Problem("Ambiguous", _several(found), name)
    for there, claim in found.items():
        if claim.taking and not begun:
            yield Problem("InUse", _has_begun(there), name)
        elif not (claim.taking or (old and claim.points) or _has_taken(claim, term)):
            yield Problem("Ambiguous", _unsaid(there, claim, term), name)
    if config is not None and config.state != "stopped" and not is_unfinished(config):
        words = (
            f"it is {config.state} here, and {' and '.join(sorted(found)) or 'another host'} has taken it over. Stop it"
        )
        words += f" here (vmadm stop {config.uuid}), and run the same command again: what only this host has is kept"
        if any(claim.taking for claim in found.values()):
            words = f"it is {config.state} here, and another host has begun to take it over: stop it here (vmadm stop"
            words += f" {config.uuid}), or give that up with flexdisk_failover_state=stays"
        yield Problem("VmNotStopped", words, name)


def _has_taken(claim: Claim, term: int) -> bool:
    """Whether a host says that it has taken the VM over from one with this term."""
    return claim.term is not None and claim.term > term and bool(claim.points)


def _several(found: t.Mapping[str, Claim]) -> str:
    names = sorted(found)
    words = f"its new home is not clear: {' and '.join(names) or 'no other host'} has it"
    if not names:
        words += ", or only an older copy of it"
    if len(names) > 1:
        words += f". Find out which one is old, and end it there first: flexdisk_old_host={names[0]}, or another one,"
        words += " with flexdisk_failover_state=returned of the playbook failover_vm"
    return words


def _unsaid(there: str, claim: Claim, term: int) -> str:
    words = f"{there} has it, too, and does not say that it has taken it over"
    if claim.term is None:
        words += ", for it has no failover there"
    elif claim.term == term:
        words += ", for both were taken over equally often"
    return (
        f"{words}. If the VM of {there} is the right one, flexdisk_old_host with the name of this host and"
        " flexdisk_failover_state=returned of the playbook failover_vm end it here; what only this host has is kept"
    )


def _no_home_but_this(vm: str, claims: Claims) -> str:
    """Why a VM must not end on a host that no other one has taken it over from."""
    older = [host for host, said in claims.items() if any(one.vm == vm and not one.phase for one in said or ())]
    words = "this is no old home of it: no other host has it, or only an older copy of it"
    if older:
        first = min(older)
        words += f", namely {' and '.join(sorted(older))}. The old home is {first}: flexdisk_old_host={first}"
    return words


def _keeping(host: Host, vm: Vm) -> t.List[Problem]:
    """Why the VM cannot end here. It needs no room anywhere: it is on its new home."""
    return [problem for problem in refusals(host, vm, ()) if problem.code != "InsufficientSpace"]


def _half_gone(host: Host, uuid: str) -> t.List[Disk]:
    """The detached disks of a VM whose move died before they had become replicas, or that had come here."""
    move = host.moves.get(uuid)
    if move is None or move.phase != MOVED:
        return []
    come = disks_here(host, uuid) if move.taken and not records.absent(uuid) else {}
    left = [disk for disk in host.detached if not _is_of(disk.volume, uuid)]
    return [disk for disk in left if disk.uuid in come or _was_replica(disk, uuid)]


def _was_replica(disk: Disk, uuid: str) -> bool:
    return disk.volume.user.get(OF_VM) == uuid and disk.volume.user.get(ROLE) == disk.uuid


def _rest(host: Host, move: Move, claims: Claims, begun: bool) -> Ending:
    """What is left to do of a VM that has ended here: what an interrupted end has left, or an interrupted move."""
    left, disks, came = _left(host, move.vm), _half_gone(host, move.vm), _replicas_that_came(host, move)
    problems = list(_place_is_taken(host, move, ()))
    if problems:
        return Ending(None, None, [], [], problems)
    if move.has_left:
        left.append("its replicas can be brought up to date again")
    if not (disks or came):
        return Ending(None, move if left else None, [], left, [])
    found = {there: one for there, said in claims.items() for one in said or () if one.vm == move.vm}
    if move.taken and move.host in found:
        found = {move.host: found[move.host]}
    problems = list(_unclear_rest(move, found, begun))
    if problems:
        return Ending(None, None, [], [], problems)
    ((there, claim),) = found.items()
    newer, even = _of_replicas(host, move, claim)
    old = [*(_old(disk, claim) for disk in disks), *newer]
    problems = list(_place_is_taken(host, move, old))
    if problems:
        return Ending(None, None, [], [], problems)
    (pool,) = {pool_of(name) for name in host.datasets if moves.is_place(name) and last_part(name) == move.vm}
    taken = move._replace(host=there, pool=claim.pool, taken=True)
    return Ending(None, taken, old, [*left, *(_words(one, there) for one in old)], [], pool, even)


def _place_is_taken(host: Host, move: Move, disks: t.Sequence[Old]) -> t.Iterator[Problem]:
    """Yield why data cannot be kept: where it would lie is what an earlier failover has left of the same disk. disks:
    those that do not say of themselves yet that they are kept.
    """
    kept = [(one.disk.volume.pool, one.disk.uuid) for one in disks if not one.becomes_replica]
    waiting = [disk.volume for disk in host.detached if _is_of(disk.volume, move.vm)]
    kept += [(one.pool, last_part(one.name)) for one in (*waiting, *_diverged_replicas(host, move.vm))]
    for pool, uuid in kept:
        place = f"{diverged(pool)}/{uuid}"
        if place in host.datasets:
            words = f"{place} is there already: it is what this host had of the disk when the VM was taken over before."
            words += " Look at it, then give it up with flexdisk_failover_state=given_up and flexdisk_old_host with the"
            words += " name of this host, or give it another name by hand (zfs rename), and run the same command again"
            yield Problem("InUse", words, move.label)


def _unclear_rest(move: Move, found: t.Mapping[str, Claim], begun: bool) -> t.Iterator[Problem]:
    """Why the disks of a VM that has ended here must stay as they are."""
    if not found:
        words = f"it was moved to {move.host}, and its disks here have not become replicas yet, but no host that was"
        words += f" asked has it; the playbook move_vm with flexdisk_target={move.host} goes on"
        yield Problem("InUse", words, move.label)
    if len(found) > 1:
        yield Problem("Ambiguous", _several(found), move.label)
    for there, claim in found.items():
        if claim.taking and not begun:
            yield Problem("InUse", _has_begun(there), move.label)


def _has_begun(there: str) -> str:
    words = f"{there} has begun to take it over; flexdisk_failover_state=taken_over of the playbook failover_vm"
    return f"{words} goes on, and stays gives that up"


def _old(disk: Disk, claim: Claim) -> Old:
    known = claim.points.get(disk.uuid, ())
    written, common, newer = disk.volume.written if disk.snapshots else disk.volume.referenced, 0, []
    for snapshot in reversed(disk.snapshots):
        if snapshot.guid in known:
            common = snapshot.guid
            break
        written += snapshot.written
        newer.append(snapshot)
    return Old(disk, common, written, _of_users(reversed(newer)))


def _of_users(points: t.Iterable[Dataset]) -> t.Tuple[str, ...]:
    """The short names of snapshots that neither a sync nor a guard has taken. Their contents do not matter: somebody
    may count on them.
    """
    names = (point.name.partition("@")[2] for point in points)
    return tuple(name for name in names if not is_synced(name) and name != guard.SNAPSHOT)


def _words(one: Old, there: str) -> str:
    place = f"{diverged(one.disk.volume.pool)}/{one.disk.uuid}"
    if one.becomes_replica:
        return f"disk {one.disk.label} becomes a replica of that on {there}"
    return f"disk {one.disk.label} is kept as {place}{_lacking(one, there, ', ')}"


def _lacking(one: t.Union[Old, Apart], there: str, before: str = " ") -> str:
    """Return what the new home lacks, or may lack, in words that begin with before; "" for nothing."""
    parts = [render_bytes(one.written)] if one.written else []
    if one.snapshots:
        shown = ", ".join(f"@{name}" for name in one.snapshots[:_SHOWN])
        more = f" and {len(one.snapshots) - _SHOWN} more" if len(one.snapshots) > _SHOWN else ""
        parts.append(f"its snapshot{'s' if len(one.snapshots) > 1 else ''} {shown}{more}")
    lacks = "lacks" if one.common else "may lack, for they have no snapshot in common"
    return f"{before}with {' and '.join(parts)} that {there} {lacks}" if parts else ""


def _given_up(apart: Apart, becomes: bool) -> str:
    """What becomes of a disk whose data is given up."""
    name, there = apart.volume.name, apart.volume.user.get(HOST, "the new home")
    lacking = _lacking(apart, there)
    if not becomes:
        return f"{name} is destroyed{lacking}"
    return f"{name} loses {lacking[len(' with ') :]}, and becomes a replica" if lacking else f"{name} becomes a replica"


def _facts(one: Old, move: Move) -> t.Dict[str, str]:
    """What a disk says of its VM. A replica that still lies where replicas lie says whose it was until it has gone."""
    volume = one.disk.volume
    apart = {OF_VM: move.vm, DIVERGED: f"{one.common:x}"}
    if volume.parent == replicas(volume.pool):
        return apart
    reserved = str(volume.volsize) if volume.refreservation else ""
    return {**apart, **_whose(move), NOTE: "", **({RESERVED: reserved} if reserved else {})}


def _whose(move: Move) -> t.Dict[str, str]:
    """Where the VM of a disk is now."""
    return {HOME: str(move.pool), HOST: move.host}


def _is_of(volume: Dataset, uuid: str) -> bool:
    marked = bool(volume.user.get(DIVERGED)) or is_below(volume.name, diverged(volume.pool))
    return volume.backs and volume.user.get(OF_VM) == uuid and marked


def _volumes(host: Host, uuid: str) -> t.List[Dataset]:
    return [d for name, d in sorted(host.datasets.items()) if d.kind != "snapshot" and _is_of(d, uuid)]


def _diverged_replicas(host: Host, uuid: str) -> t.List[Dataset]:
    """Replicas with data that the new home of their VM lacks, as far as they still lie where replicas lie."""
    there = [volume for volume in _volumes(host, uuid) if volume.parent == replicas(volume.pool)]
    return [volume for volume in there if _as_apart(host, volume).lost or volume.written]


def _left(host: Host, uuid: str) -> t.List[str]:
    """What an interrupted run has left to do, in words."""
    found = [f"the journal of {pool} forgets the VM" for pool, vm in host.intents if vm == uuid]
    if not records.absent(uuid):
        found.append("what it was to be made from here goes")
    configs, roots = rest_of(host, uuid)
    found += [f"the configuration of VM {config.label} goes" for config in configs]
    found += [f"{root.name} goes" for root in roots]
    waiting = _diverged_replicas(host, uuid)
    for volume in _volumes(host, uuid):
        apart, there = _as_apart(host, volume), volume.user.get(HOST, "the new home")
        if apart.becomes_replica and not apart.replicated:
            found.append(f"{volume.name} becomes a replica of the disk on {there}")
        elif volume in waiting or volume.name == detached_dataset(volume.pool, last_part(volume.name)):
            place = f"{diverged(volume.pool)}/{last_part(volume.name)}"
            found.append(f"{volume.name} is kept as {place}{_lacking(apart, there, ', ')}")
    return found


def _disks_apart(host: Host, uuid: str) -> t.List[Apart]:
    """Return the disks of the VM that are apart."""
    return [_as_apart(host, volume) for volume in _volumes(host, uuid) if is_below(volume.name, diverged(volume.pool))]


def _as_apart(host: Host, volume: Dataset) -> Apart:
    points = _points(host, volume.name)
    text = volume.user.get(DIVERGED, "")
    place = next((n for n, point in enumerate(points) if f"{point.guid:x}" == text), None)
    if volume.user.get(ROLE) and not text:  # it has gone back already, and is about to become a replica again
        place = max((n for n, point in enumerate(points) if is_synced(point.name.partition("@")[2])), default=None)
    newer = points[place + 1 :] if place is not None else points
    older = points[: place + 1] if place is not None else []
    written = volume.written + sum(point.written for point in newer)
    beside = f"{replicas(volume.pool)}/{last_part(volume.name)}"
    there = {point.guid for point in _points(host, beside)}
    only = [point for point in points if point.guid not in there] if beside in host.datasets else newer
    return Apart(
        volume,
        older[-1].name if older else "",
        tuple(point.name for point in older),
        tuple(point.name for point in reversed(newer)),
        written,
        _of_users(only),
        beside in host.datasets,
    )


def _points(host: Host, name: str) -> t.List[Dataset]:
    """The snapshots of a dataset, oldest first."""
    points = [d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == name]
    return sorted(points, key=lambda point: point.createtxg)
