# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Evacuations as Ganeti's hail 3.0.2 decides them: in the order of the request, each VM to where the score of its group
is lowest. Of equal candidates the later one is taken.
"""

from __future__ import annotations

import typing as t

from .known import MOVABLE, REPLICATED, KnownVm
from .pairs import First, in_order
from .places import Moved, Places
from .replicas import Replicas
from .score import NEAR, Score, together

PRIMARY, SECONDARY, ALL = "primary-only", "secondary-only", "all"
MODES = (PRIMARY, SECONDARY, ALL)
FAILOVER, REPLACE = "failover", "replace"
NO_PAIR = "Can't find any good nodes for relocation"


class Operation(t.NamedTuple):
    """One operation of a move: the VM changes its host (FAILOVER) or its replica does (REPLACE). target: "" where the
    replica's host is meant.
    """

    kind: str
    target: str = ""


class Solution(t.NamedTuple):
    """How a VM moves: where it is then, and the operations. why: the reason if it does not, "" otherwise."""

    moved: t.Optional[Moved]
    operations: t.Tuple[Operation, ...] = ()
    why: str = ""


def evacuate(places: Places, names: t.Sequence[str], mode: str) -> t.Iterator[t.Tuple[str, Solution]]:
    """Each VM with its solution, which is carried out on the places before the next VM is looked at."""
    shut = closed_hosts(places, names, mode)
    return one_by_one(places, names, lambda name: evacuate_one(places, name, mode, shut))


def one_by_one(
    places: Places, names: t.Sequence[str], solve: t.Callable[[str], Solution]
) -> t.Iterator[t.Tuple[str, Solution]]:
    """Each VM with its solution, which is carried out on the places before the next VM is looked at."""
    for name in names:
        solution = solve(name)
        if solution.moved is not None:
            places.settle(solution.moved)
        yield name, solution


def closed_hosts(places: Places, names: t.Sequence[str], mode: str) -> t.Set[str]:
    """The hosts that none of the VMs gets: those that take no VMs, and those that are to be left."""
    vms = [places.vms[name] for name in names]
    shut = {name for name in places.accounts if not places.usable(name)}
    if mode in (PRIMARY, ALL):
        shut |= {vm.primary for vm in vms}
    if mode in (SECONDARY, ALL):
        shut |= {vm.secondary for vm in vms if vm.template == REPLICATED}
    return shut


def evacuate_one(places: Places, name: str, mode: str, shut: t.Collection[str]) -> Solution:
    """The solution for one VM, which is not carried out. It stays in the group of its host."""
    vm = places.vms[name]
    group = places.known.hosts[vm.primary].group
    targets = [host for host in places.hosts_of(group) if host not in shut and host != vm.primary]
    return relocate(places, name, mode, group, targets)


def relocate(places: Places, name: str, mode: str, group: str, targets: t.Sequence[str]) -> Solution:
    """The best way of one VM to one or two of the targets, which are hosts of the group."""
    vm = places.vms[name]
    if vm.template == REPLICATED:
        if mode == PRIMARY:
            found = places.failover(places.begin(name))
            return Solution(None, (), found) if isinstance(found, str) else Solution(found, (Operation(FAILOVER),))
        if mode == SECONDARY:
            return _single(places, vm, group, targets, REPLACE)
        return _pair(places, vm, group, targets)
    if vm.template not in MOVABLE:
        return Solution(None, (), f"Instances of type {vm.template} cannot be relocated")
    if mode == SECONDARY:
        return Solution(None, (), f"Instances with disk template '{vm.template}' can't execute change secondary")
    return _single(places, vm, group, targets, FAILOVER)


def _single(places: Places, vm: KnownVm, group: str, targets: t.Sequence[str], kind: str) -> Solution:
    step = places.failover_to if kind == FAILOVER else places.replace_secondary
    score = places.score(group)
    best, least, reasons = Solution(None), 0.0, ""
    for target in targets:
        found = step(places.begin(vm.name), target)
        if isinstance(found, str):
            reasons += f" Node {target} failed: {found};"
            continue
        value = score.after(places.changes(found, group))
        if best.moved is None or value <= least + NEAR:
            best, least = Solution(found, (Operation(kind, target),)), value
    return best if best.moved is not None else Solution(None, (), f"Can't find any good node: {reasons}")


def _pair(places: Places, vm: KnownVm, group: str, targets: t.Sequence[str]) -> Solution:
    """The replica goes to the new host, VM and replica change places, and the replica goes on to its own new host."""
    if len(targets) < 2:
        return Solution(None, (), f"{NO_PAIR}: no nodes available")
    score = places.score(group)
    solutions = {target: _to_primary(places, vm, target) for target in targets}
    ready = [one.moved for one in solutions.values() if one.moved is not None]
    if ready:
        replicas = Replicas(places, ready[0].vm, targets, places.soft(ready[0].vm.secondary), score)
        firsts = [first for first in (_first(places, moved, group, score, replicas) for moved in ready) if first]
        for pair in in_order(score, firsts, replicas.seconds):
            first, secondary = solutions[firsts[pair.first].host], targets[pair.second]
            found = places.replace_secondary(t.cast(Moved, first.moved), secondary)
            return Solution(t.cast(Moved, found), (*first.operations, Operation(REPLACE, secondary)))
    last = solutions[targets[-1]]
    if last.moved is None:
        return Solution(None, (), f"{NO_PAIR}: Allocation failed: {last.why}")
    why = places.replace_secondary(last.moved, targets[-2])
    return Solution(None, (), f"{NO_PAIR}: Allocation failed: Changing secondary to final secondary: {why}")


def _first(places: Places, moved: Moved, group: t.Optional[str], score: Score, replicas: Replicas) -> t.Optional[First]:
    """The host of a VM before its replica goes on, None if it could not."""
    alone = places.drop_secondary(moved)
    if isinstance(alone, str):
        return None
    changes = places.changes(alone, group)
    delta = together(score.delta(before, after) for before, after in changes)
    primary = moved.vm.primary
    return First(primary, delta, replicas.others(primary, moved.accounts, alone.accounts))


def _to_primary(places: Places, vm: KnownVm, primary: str) -> Solution:
    """The VM on its new host, with its replica on the old one; a host that is not there is left first."""
    moved, operations = places.begin(vm.name), []
    steps: t.List[t.Tuple[str, t.Callable[[Moved], t.Union[Moved, str]], Operation]] = [
        (
            "Changing secondary to new primary",
            lambda at: places.replace_secondary(at, primary),
            Operation(REPLACE, primary),
        ),
        ("Failing over to new primary", places.failover, Operation(FAILOVER)),
    ]
    if not places.usable(vm.primary):
        steps.insert(0, ("Failing over to the secondary", places.failover, Operation(FAILOVER)))
    for said, step, operation in steps:
        found = step(moved)
        if isinstance(found, str):
            return Solution(None, (), f"{said}: {found}")
        moved = found
        operations.append(operation)
    return Solution(moved, tuple(operations))
