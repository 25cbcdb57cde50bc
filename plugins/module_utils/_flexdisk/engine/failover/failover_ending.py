# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of a VM that another host has taken over, and of its disks here. Nothing is changed."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace

from ...fleet.replication.claims import Claim, Claims, home_elsewhere
from ...fleet.replication.record import read_record
from ...model.errors import Problem
from ...model.vm import Disk, Vm, VmConfig
from ...plan.planner import find_vm
from ...plan.vm_move import refusals
from ...rules import moves
from ...rules.failover import setting_of
from ...rules.identity import render_time
from ...rules.inventory import Host, detached_disk
from ...rules.layout import detached_dataset, diverged, last_part, pool_of, replicas
from ...rules.moves import COMING, MOVED, Move
from ...rules.replicas import DIVERGED, HOST, OF_VM, ROLE, is_synced
from ...rules.unfinished import is_unfinished
from ..moves.vm_arrival import disks_here, is_arriving, why_it_comes
from ..moves.vm_departure import rest_of
from ..replication import records
from .diverged import Old, as_apart, diverged_replicas, is_kept_of, old_disk, points_of, volumes_of, what_lacks


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
        """The UUID of the VM, "" if there is nothing to do."""
        return self.move.vm if self.move is not None else ""


def ending_of(
    host: Host,
    name: str,
    claims: Claims,
    begun: bool = False,
    old: bool = False,
    moved: t.Optional[Claims] = None,
) -> Ending:
    """What becomes of a VM of a host that another one has taken over. begun: or has only begun to; the VM must be able
    to come back there after it has ended here. old: the user says that this is the old home, so another host that has
    the VM needs not say that it has taken it over. moved: what hosts say of VMs that they do not have any more.
    """
    vm = find_vm(host, name)
    known = moves.find_by_name(host.moves, name if isinstance(vm, Problem) else vm.config.uuid)
    if len(known) == 1 and known[0].phase == COMING:
        return _come(host, None if isinstance(vm, Problem) else vm, known[0], (claims, moved or {}), begun, old)
    if isinstance(vm, Problem):
        known = [move for move in known if move.phase == MOVED]
        return _rest(host, known[0], claims, begun) if len(known) == 1 else Ending(None, None, [], [], [])
    ended = host.moves.get(vm.config.uuid)
    term = ended.term - 1 if ended is not None and ended.taken else setting_of(vm.config, vm.root).term
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
    disks = [old_disk(disk, claim) for disk in [*attached, *_half_gone(host, config.uuid)]]
    newer, even = _of_replicas(host, move, claim)
    disks += newer
    words = [_words(one, there) for one in disks] or [
        f"what is left here of VM {config.label} goes, for {there} has it"
    ]
    taken = list(_place_is_taken(host, move, disks))
    return Ending(vm, None if taken else move, disks, words, taken, config.pool, even)


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
    disks = [old_disk(disk, claim) for disk in disks_here(host, move.vm).values()]
    newer, even = _of_replicas(host, move, claim)
    disks += newer
    parts = [f"what was made here of VM {move.label} from {move.host} goes, for {there} has it"]
    what = (move.vm, move.alias, there, claim.pool, "stopped", move.autoboot, render_time(time.time()))
    term = claim.term if claim.term is not None else move.term + (0 if move.back_to else 1)
    ended = Move(MOVED, *what, term=term, taken=True, has_left=move.has_left)
    problems = list(_place_is_taken(host, move, disks))
    if problems:
        return Ending(vm, None, [], [], problems)
    return Ending(vm, ended, disks, [*parts, *(_words(one, there) for one in disks)], [], pool, even, not disks)


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
    result = []
    names = {disk.uuid: disk.name for disk in read_record(records.load(move.vm)).disks}
    for _name, volume in sorted(host.datasets.items()):
        uuid, lies = last_part(volume.name), volume.backs and volume.parent == replicas(volume.pool)
        if uuid in names and lies and volume.user.get(ROLE) == uuid and not volume.user.get(DIVERGED):
            points = points_of(host, volume.name)
            last = max((n for n, one in enumerate(points) if is_synced(one.name.partition("@")[2])), default=-1)
            came = detached_disk(volume, 0, snapshots=tuple(points[: last + 1]))
            result.append(replace(came, uuid=uuid, name=names[uuid]))
    return result


def _of_replicas(host: Host, move: Move, claim: Claim) -> t.Tuple[t.List[Old], t.Tuple[str, ...]]:
    """Of the replicas that came with a move, those with something that the new home lacks, and the names of the others,
    which become replicas of its disks.
    """
    came = [old_disk(disk, claim) for disk in _replicas_that_came(host, move)]
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
        text = (
            f"it is {config.state} here, and {' and '.join(sorted(found)) or 'another host'} has taken it over. Stop it"
        )
        text += f" here (vmadm stop {config.uuid}), and run the same command again: what only this host has is kept"
        if any(claim.taking for claim in found.values()):
            text = f"it is {config.state} here, and another host has begun to take it over: stop it here (vmadm stop"
            text += f" {config.uuid}), or give that up with flexdisk_failover_state=stays"
        yield Problem("VmNotStopped", text, name)


def _has_taken(claim: Claim, term: int) -> bool:
    """Whether a host says that it has taken the VM over from one with this term."""
    return claim.term is not None and claim.term > term and bool(claim.points)


def _several(found: t.Mapping[str, Claim]) -> str:
    names = sorted(found)
    text = f"its new home is not clear: {' and '.join(names) or 'no other host'} has it"
    if not names:
        text += ", or only an older copy of it"
    if len(names) > 1:
        text += f". Find out which one is old, and end it there first: flexdisk_old_host={names[0]}, or another one,"
        text += " with flexdisk_failover_state=returned of the playbook failover_vm"
    return text


def _unsaid(there: str, claim: Claim, term: int) -> str:
    text = f"{there} has it, too, and does not say that it has taken it over"
    if claim.term is None:
        text += ", for it has no failover there"
    elif claim.term == term:
        text += ", for both were taken over equally often"
    return (
        f"{text}. If the VM of {there} is the right one, flexdisk_old_host with the name of this host and"
        " flexdisk_failover_state=returned of the playbook failover_vm end it here; what only this host has is kept"
    )


def _no_home_but_this(vm: str, claims: Claims) -> str:
    """Why a VM must not end on a host that no other one has taken it over from."""
    older = [host for host, said in claims.items() if any(one.vm == vm and not one.phase for one in said or ())]
    text = "this is no old home of it: no other host has it, or only an older copy of it"
    if older:
        first = min(older)
        text += f", namely {' and '.join(sorted(older))}. The old home is {first}: flexdisk_old_host={first}"
    return text


def _keeping(host: Host, vm: Vm) -> t.List[Problem]:
    """Why the VM cannot end here. It needs no room anywhere: it is on its new home."""
    return [problem for problem in refusals(host, vm, ()) if problem.code != "InsufficientSpace"]


def _half_gone(host: Host, uuid: str) -> t.List[Disk]:
    """The detached disks of a VM whose move died before they had become replicas, or that had come here."""
    move = host.moves.get(uuid)
    if move is None or move.phase != MOVED:
        return []
    come = disks_here(host, uuid) if move.taken and not records.absent(uuid) else {}
    left = [disk for disk in host.detached if not is_kept_of(disk.volume, uuid)]
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
    old = [*(old_disk(disk, claim) for disk in disks), *newer]
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
    waiting = [disk.volume for disk in host.detached if is_kept_of(disk.volume, move.vm)]
    kept += [(one.pool, last_part(one.name)) for one in (*waiting, *diverged_replicas(host, move.vm))]
    for pool, uuid in kept:
        place = f"{diverged(pool)}/{uuid}"
        if place in host.datasets:
            text = f"{place} is there already: it is what this host had of the disk when the VM was taken over before."
            text += " Look at it, then give it up with flexdisk_failover_state=given_up and flexdisk_old_host with the"
            text += " name of this host, or give it another name by hand (zfs rename), and run the same command again"
            yield Problem("InUse", text, move.label)


def _unclear_rest(move: Move, found: t.Mapping[str, Claim], begun: bool) -> t.Iterator[Problem]:
    """Why the disks of a VM that has ended here must stay as they are."""
    if not found:
        text = f"it was moved to {move.host}, and its disks here have not become replicas yet, but no host that was"
        text += f" asked has it; the playbook move_vm with flexdisk_target={move.host} goes on"
        yield Problem("InUse", text, move.label)
    if len(found) > 1:
        yield Problem("Ambiguous", _several(found), move.label)
    for there, claim in found.items():
        if claim.taking and not begun:
            yield Problem("InUse", _has_begun(there), move.label)


def _has_begun(there: str) -> str:
    text = f"{there} has begun to take it over; flexdisk_failover_state=taken_over of the playbook failover_vm"
    return f"{text} goes on, and stays gives that up"


def _words(one: Old, there: str) -> str:
    place = f"{diverged(one.disk.volume.pool)}/{one.disk.uuid}"
    if one.becomes_replica:
        return f"disk {one.disk.label} becomes a replica of that on {there}"
    return f"disk {one.disk.label} is kept as {place}{what_lacks(one, there, ', ')}"


def _left(host: Host, uuid: str) -> t.List[str]:
    """What an interrupted run has left to do, in words."""
    result = [f"the journal of {pool} forgets the VM" for pool, vm in host.intents if vm == uuid]
    if not records.absent(uuid):
        result.append("what it was to be made from here goes")
    configs, roots = rest_of(host, uuid)
    result += [f"the configuration of VM {config.label} goes" for config in configs]
    result += [f"{root.name} goes" for root in roots]
    waiting = diverged_replicas(host, uuid)
    for volume in volumes_of(host, uuid):
        apart, there = as_apart(host, volume), volume.user.get(HOST, "the new home")
        if apart.becomes_replica and not apart.replicated:
            result.append(f"{volume.name} becomes a replica of the disk on {there}")
        elif volume in waiting or volume.name == detached_dataset(volume.pool, last_part(volume.name)):
            place = f"{diverged(volume.pool)}/{last_part(volume.name)}"
            result.append(f"{volume.name} is kept as {place}{what_lacks(apart, there, ', ')}")
    return result
