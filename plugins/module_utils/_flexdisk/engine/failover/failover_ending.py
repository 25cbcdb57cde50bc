# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans the end of a VM on its old home, after another host has taken it over. Read only."""

from __future__ import annotations

import time
import typing as t
from dataclasses import replace
from types import MappingProxyType

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
from ...rules.keys import KEY_NOT_LOADED, locked_pool
from ...rules.layout import detached_dataset, diverged_container, last_part, pool_of, replicas_container
from ...rules.moves import COMING, MOVED, Move
from ...rules.power import stop_command
from ...rules.replicas import DIVERGED, HOST, OF_VM, ROLE, is_synced
from ...rules.unfinished import is_unfinished
from ..moves.vm_arrival import disks_here, is_arriving, why_not_cancelled
from ..moves.vm_departure import leftovers_of
from ..replication import records
from .diverged import (
    OldHomeDisk,
    compare_with_claim,
    diverged_disk_of,
    diverged_replicas,
    is_retained,
    render_difference,
    retained_volumes,
    snapshots_of,
)


class EndRequest(t.NamedTuple):
    """Which VM should end on this host, and what is known of it elsewhere."""

    name: str
    """The name, UUID or beginning of the UUID of the VM."""
    claims: Claims
    """What other hosts say of the VMs that they have."""
    begun: bool = False
    """Also end the VM if the other host has only begun to take it over. It must be able to come back there later."""
    is_old_home: bool = False
    """The user says that this is the old home. Another host that has the VM need not say that it has taken it over."""
    moved: Claims = MappingProxyType({})
    """What other hosts say of VMs that have left them."""


class Ending(t.NamedTuple):
    """How a VM that another host has taken over ends here."""

    vm: t.Optional[Vm]
    """The VM that ends, None if it has ended already."""
    move: t.Optional[Move]
    """The tombstone to write, None if there is nothing to do."""
    disks: t.List[OldHomeDisk]
    """The disks that are not marked yet with what the new home has of them."""
    messages: t.List[str]
    """What is retained, and what becomes of it, for the user."""
    problems: t.List[Problem]
    pool: str = ""
    """The pool of the tombstone."""
    unchanged_replicas: t.Tuple[str, ...] = ()
    """Replicas that came with a move and have nothing that the new home lacks. They become replicas of its disks."""
    only_shell: bool = False
    """Only a VM without disks has come here. It is removed, and the replicas stay as they are."""

    @property
    def uuid(self) -> str:
        """The UUID of the VM, "" if there is nothing to do."""
        return self.move.vm if self.move is not None else ""


def ending_of(host: Host, request: EndRequest) -> Ending:
    """Return how a VM of this host ends that another host has taken over."""
    ending = _ending_of(host, request)
    missing = locked_pool(host.datasets, ending.pool) if ending.pool else ""
    if not missing or ending.move is None or ending.only_shell:
        return ending
    return ending._replace(move=None, problems=[Problem(KEY_NOT_LOADED, missing, ending.move.label)])


def _ending_of(host: Host, request: EndRequest) -> Ending:
    name, claims, begun, is_old_home, moved = request
    vm = find_vm(host, name)
    known = moves.find_by_name(host.moves, name if isinstance(vm, Problem) else vm.config.uuid)
    if len(known) == 1 and known[0].phase == COMING:
        return _ending_of_expected(
            host, None if isinstance(vm, Problem) else vm, known[0], (claims, moved or {}), begun, is_old_home
        )
    if isinstance(vm, Problem):
        known = [move for move in known if move.phase == MOVED]
        return (
            _ending_of_leftovers(host, known[0], claims, begun) if len(known) == 1 else Ending(None, None, [], [], [])
        )
    ended = host.moves.get(vm.config.uuid)
    term = ended.term - 1 if ended is not None and ended.taken else setting_of(vm.config, vm.root).term
    others = home_elsewhere(vm.config.uuid, term, claims)
    if ended is not None and ended.taken and ended.host in others:
        others = [ended.host]
    if not (others or is_old_home) and vm.config.uuid not in host.moves:
        return Ending(None, None, [], [], [])
    claimed = {one: c for one in others for c in claims[one] or () if c.vm == vm.config.uuid}
    if not claimed:
        return Ending(
            vm, None, [], [], [Problem("Ambiguous", _no_home_but_this(vm.config.uuid, claims), vm.config.label)]
        )
    is_ending = vm.config.uuid in host.moves
    claim_problems = list(_problems_of_claims(vm.config.label, vm.config, term, claimed, begun, is_old_home))
    runs = any(problem.code == "VmNotStopped" for problem in claim_problems)
    problems = [*claim_problems, *(() if is_ending else _problems_of_vm(host, vm, runs))]
    if problems:
        return Ending(vm, None, [], [], problems)
    ((there, claim),) = claimed.items()
    config = vm.config
    since = render_time(time.time())
    raised = term + 1 if claim.term is None else claim.term
    fields = (config.uuid, config.alias, there, claim.pool, "stopped", config.autoboot, since)
    has_left = ended is not None and ended.has_left
    move = Move(MOVED, *fields, term=raised, taken=True, has_left=has_left)
    attached = [disk for disk in vm.disks if not disk.hidden]
    disks = [compare_with_claim(disk, claim) for disk in [*attached, *_detached_by_move(host, config.uuid)]]
    newer, unchanged = _split_replicas(host, move, claim)
    disks += newer
    messages = [_render_disk(one, there) for one in disks] or [
        f"what is left here of VM {config.label} goes, for {there} has it"
    ]
    taken = list(_place_is_taken(host, move, disks))
    return Ending(vm, None if taken else move, disks, messages, taken, config.pool, unchanged)


def _ending_of_expected(
    host: Host, vm: t.Optional[Vm], move: Move, all_claims: t.Tuple[Claims, Claims], begun: bool, is_old_home: bool
) -> Ending:
    """Return how a VM ends that began to come here, by a failover or a move, and that another host has now.

    A failover that has only begun does not end a VM that has begun to arrive here, because all its data is here.

    Args:
        vm: the VM as it was created here, None if it is incomplete.
        all_claims: claims and moved, as in EndRequest.
        begun, old: as in EndRequest.
    """
    claims, moved = all_claims
    have = {
        there: one for there, of_host in claims.items() for one in of_host or () if one.vm == move.vm and not one.phase
    }
    min_term = move.term - 1 if move.back_to else move.term  # a failover that has begun has raised it already
    older, have = have, {there: one for there, one in have.items() if one.term is None or one.term >= min_term}
    taken = any(one.taking or _has_taken(one, move.term) for one in have.values())
    if not (is_old_home or taken or move.back_to):
        return Ending(None, None, [], [], [])  # it is only on its way
    term = max((one.term for one in have.values() if one.term is not None), default=0)  # lower ones are old homes
    claimed = {there: one for there, one in have.items() if one.term in (None, term)}
    config = next((one for one in host.configs if one.uuid == move.vm), None)
    arriving = is_arriving(host, move)
    if is_old_home and older and not (have or move.back_to or arriving or _says_left(move, moved)):
        message = f"what was made here of VM {move.label}, which was to come from {move.host}, goes; its replicas stay"
        return Ending(vm, move, [], [message], [], only_shell=True)
    problems = list(_problems_of_claims(move.label, config, move.term, claimed, begun, is_old_home))
    if arriving and not claimed:
        problems.append(Problem("InUse", why_not_cancelled(host, move), move.label))
    reason = why_not_cancelled(host, move) if begun else ""
    if reason:
        problems.append(Problem("InUse", reason, move.label))
    if problems:
        return Ending(vm, None, [], [], problems)
    ((there, claim),) = claimed.items()
    (pool,) = {pool_of(name) for name in host.datasets if moves.is_place(name) and last_part(name) == move.vm}
    disks = [compare_with_claim(disk, claim) for disk in disks_here(host, move.vm).values()]
    newer, unchanged = _split_replicas(host, move, claim)
    disks += newer
    messages = [f"what was made here of VM {move.label} from {move.host} goes, for {there} has it"]
    fields = (move.vm, move.alias, there, claim.pool, "stopped", move.autoboot, render_time(time.time()))
    term = claim.term if claim.term is not None else move.term + (0 if move.back_to else 1)
    ended = Move(MOVED, *fields, term=term, taken=True, has_left=move.has_left)
    problems = list(_place_is_taken(host, move, disks))
    if problems:
        return Ending(vm, None, [], [], problems)
    return Ending(
        vm, ended, disks, [*messages, *(_render_disk(one, there) for one in disks)], [], pool, unchanged, not disks
    )


def _says_left(move: Move, moved: Claims) -> bool:
    """Return whether a host says that the VM has left it. Then the data here may be all that is left."""
    tombstones = [
        one for of_host in moved.values() for one in of_host or () if one.vm == move.vm and one.phase == MOVED
    ]
    return any(one.term is None or one.term >= move.term for one in tombstones)


def _replicas_that_came(host: Host, move: Move) -> t.List[Disk]:
    """Return the replicas with the last data of a VM that had left its host, if they have not become disks here.

    Snapshots that somebody has taken of them since then hold nothing new, and are left out.
    """
    if not move.has_left or records.absent(move.vm):
        return []
    result = []
    names = {disk.uuid: disk.name for disk in read_record(records.load(move.vm)).disks}
    for _name, volume in sorted(host.datasets.items()):
        uuid, is_replica = last_part(volume.name), volume.backs and volume.parent == replicas_container(volume.pool)
        if uuid in names and is_replica and volume.user.get(ROLE) == uuid and not volume.user.get(DIVERGED):
            points = snapshots_of(host, volume.name)
            last = max((n for n, one in enumerate(points) if is_synced(one.name.partition("@")[2])), default=-1)
            came = detached_disk(volume, 0, snapshots=tuple(points[: last + 1]))
            result.append(replace(came, uuid=uuid, name=names[uuid]))
    return result


def _split_replicas(host: Host, move: Move, claim: Claim) -> t.Tuple[t.List[OldHomeDisk], t.Tuple[str, ...]]:
    """Return the replicas with data that the new home lacks, and the names of the others.

    The others become replicas of the new home's disks.
    """
    came = [compare_with_claim(disk, claim) for disk in _replicas_that_came(host, move)]
    unchanged = tuple(one.disk.volume.name for one in came if one.difference.is_empty)
    return [one for one in came if not one.difference.is_empty], unchanged


def _problems_of_claims(
    name: str, config: t.Optional[VmConfig], term: int, claimed: t.Mapping[str, Claim], begun: bool, is_old_home: bool
) -> t.Iterator[Problem]:
    """Yield why the VM must not end here yet. config: None if the hypervisor does not know it."""
    if len(claimed) != 1:
        yield Problem("Ambiguous", _render_several_homes(claimed), name)
    for there, claim in claimed.items():
        if claim.taking and not begun:
            yield Problem("InUse", _render_takeover_begun(there), name)
        elif not (claim.taking or (is_old_home and claim.points) or _has_taken(claim, term)):
            yield Problem("Ambiguous", _render_unclaimed(there, claim, term), name)
    if config is not None and config.state != "stopped" and not is_unfinished(config):
        homes = " and ".join(sorted(claimed)) or "another host"
        text = f"it is {config.state} here, and {homes} has taken it over. Stop it here ({stop_command(config)}), and"
        text += " run the same command again: what only this host has is kept"
        if any(claim.taking for claim in claimed.values()):
            text = f"it is {config.state} here, and another host has begun to take it over: stop it here"
            text += f" ({stop_command(config)}), or give that up with flexdisk_failover_state=stays"
        yield Problem("VmNotStopped", text, name)


def _has_taken(claim: Claim, term: int) -> bool:
    """Return whether a host says that it has taken the VM over from a home with this term."""
    return claim.term is not None and claim.term > term and bool(claim.points)


def _render_several_homes(claimed: t.Mapping[str, Claim]) -> str:
    names = sorted(claimed)
    text = f"its new home is not clear: {' and '.join(names) or 'no other host'} has it"
    if not names:
        text += ", or only an older copy of it"
    if len(names) > 1:
        text += f". Find out which one is old, and end it there first: flexdisk_old_host={names[0]}, or another one,"
        text += " with flexdisk_failover_state=returned of the playbook failover_vm"
    return text


def _render_unclaimed(there: str, claim: Claim, term: int) -> str:
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
    """Return the message for a host that is no old home of the VM."""
    older = [host for host, of_host in claims.items() if any(one.vm == vm and not one.phase for one in of_host or ())]
    text = "this is no old home of it: no other host has it, or only an older copy of it"
    if older:
        first = min(older)
        text += f", namely {' and '.join(sorted(older))}. The old home is {first}: flexdisk_old_host={first}"
    return text


def _problems_of_vm(host: Host, vm: Vm, runs: bool) -> t.List[Problem]:
    """Return the problems of the VM itself. Space does not matter: the VM is on its new home.

    runs: it is reported already that the VM is not stopped.
    """
    left_out = ["InsufficientSpace", *(["VmInTransition"] if runs else [])]
    return [problem for problem in refusals(host, vm, ()) if problem.code not in left_out]


def _detached_by_move(host: Host, uuid: str) -> t.List[Disk]:
    """Return disks that an interrupted move has detached, or brought here, and that are no replicas."""
    move = host.moves.get(uuid)
    if move is None or move.phase != MOVED:
        return []
    arrived = disks_here(host, uuid) if move.taken and not records.absent(uuid) else {}
    left = [disk for disk in host.detached if not is_retained(disk.volume, uuid)]
    return [disk for disk in left if disk.uuid in arrived or _was_replica(disk, uuid)]


def _was_replica(disk: Disk, uuid: str) -> bool:
    return disk.volume.user.get(OF_VM) == uuid and disk.volume.user.get(ROLE) == disk.uuid


def _ending_of_leftovers(host: Host, move: Move, claims: Claims, begun: bool) -> Ending:
    """Return what an interrupted end, or an interrupted move, has left to do for a VM that has ended here."""
    messages, disks, arrived = (
        _remaining_work(host, move.vm),
        _detached_by_move(host, move.vm),
        _replicas_that_came(host, move),
    )
    problems = list(_place_is_taken(host, move, ()))
    if problems:
        return Ending(None, None, [], [], problems)
    if move.has_left:
        messages.append("its replicas can be brought up to date again")
    if not (disks or arrived):
        return Ending(None, move if messages else None, [], messages, [])
    claimed = {there: one for there, of_host in claims.items() for one in of_host or () if one.vm == move.vm}
    if move.taken and move.host in claimed:
        claimed = {move.host: claimed[move.host]}
    problems = list(_problems_of_leftover_claims(move, claimed, begun))
    if problems:
        return Ending(None, None, [], [], problems)
    ((there, claim),) = claimed.items()
    newer, unchanged = _split_replicas(host, move, claim)
    compared = [*(compare_with_claim(disk, claim) for disk in disks), *newer]
    problems = list(_place_is_taken(host, move, compared))
    if problems:
        return Ending(None, None, [], [], problems)
    (pool,) = {pool_of(name) for name in host.datasets if moves.is_place(name) and last_part(name) == move.vm}
    taken = move._replace(host=there, pool=claim.pool, taken=True)
    return Ending(
        None, taken, compared, [*messages, *(_render_disk(one, there) for one in compared)], [], pool, unchanged
    )


def _place_is_taken(host: Host, move: Move, disks: t.Sequence[OldHomeDisk]) -> t.Iterator[Problem]:
    """Yield a problem for each diverged disk whose place holds one of an earlier failover already.

    disks: those that are not marked as diverged yet.
    """
    retained = [(one.disk.volume.pool, one.disk.uuid) for one in disks if not one.difference.is_empty]
    waiting = [disk.volume for disk in host.detached if is_retained(disk.volume, move.vm)]
    retained += [(one.pool, last_part(one.name)) for one in (*waiting, *diverged_replicas(host, move.vm))]
    for pool, uuid in retained:
        place = f"{diverged_container(pool)}/{uuid}"
        if place in host.datasets:
            text = f"{place} is there already: it is what this host had of the disk when the VM was taken over before."
            text += " Look at it, then give it up with flexdisk_failover_state=given_up and flexdisk_old_host with the"
            text += " name of this host, or give it another name by hand (zfs rename), and run the same command again"
            yield Problem("InUse", text, move.label)


def _problems_of_leftover_claims(move: Move, claimed: t.Mapping[str, Claim], begun: bool) -> t.Iterator[Problem]:
    """Yield why the disks of a VM that has ended here must stay as they are."""
    if not claimed:
        text = f"it was moved to {move.host}, and its disks here have not become replicas yet, but no host that was"
        text += f" asked has it; the playbook move_vm with flexdisk_target={move.host} goes on"
        yield Problem("InUse", text, move.label)
    if len(claimed) > 1:
        yield Problem("Ambiguous", _render_several_homes(claimed), move.label)
    for there, claim in claimed.items():
        if claim.taking and not begun:
            yield Problem("InUse", _render_takeover_begun(there), move.label)


def _render_takeover_begun(there: str) -> str:
    text = f"{there} has begun to take it over; flexdisk_failover_state=taken_over of the playbook failover_vm"
    return f"{text} goes on, and stays gives that up"


def _render_disk(old_disk: OldHomeDisk, new_home: str) -> str:
    place = f"{diverged_container(old_disk.disk.volume.pool)}/{old_disk.disk.uuid}"
    if old_disk.difference.is_empty:
        return f"disk {old_disk.disk.label} becomes a replica of that on {new_home}"
    return f"disk {old_disk.disk.label} is kept as {place}{render_difference(old_disk.difference, new_home, ', ')}"


def _remaining_work(host: Host, uuid: str) -> t.List[str]:
    """Return messages about what an interrupted run has left to do."""
    result = [f"the journal of {pool} forgets the VM" for pool, vm in host.intents if vm == uuid]
    if not records.absent(uuid):
        result.append("what it was to be made from here goes")
    configs, roots = leftovers_of(host, uuid)
    result += [f"the configuration of VM {config.label} goes" for config in configs]
    result += [f"{root.name} goes" for root in roots]
    waiting = diverged_replicas(host, uuid)
    for volume in retained_volumes(host, uuid):
        disk, new_home = diverged_disk_of(host, volume), volume.user.get(HOST, "the new home")
        if disk.difference.is_empty and not disk.replicated:
            result.append(f"{volume.name} becomes a replica of the disk on {new_home}")
        elif volume in waiting or volume.name == detached_dataset(volume.pool, last_part(volume.name)):
            place = f"{diverged_container(volume.pool)}/{last_part(volume.name)}"
            result.append(f"{volume.name} is kept as {place}{render_difference(disk.difference, new_home, ', ')}")
    return result
