# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations as Ganeti's hail 3.0.2 decides them: in the order of the request, each VM to where the score of its group
is lowest. Of equal candidates the later one is taken.
"""

from __future__ import annotations

import typing as t

from .known import ALL, PRIMARY, REPLICATED, SECONDARY, KnownVm
from .places import Places
from .ways import FAILOVER, REPLACE, Operation, Solution, last_of_best, measure, to_each, to_pairs, to_primary

NO_PAIR = "Can't find any good nodes for relocation"


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
    if not vm.movable:
        return Solution(None, (), f"Instances of type {vm.template} cannot be relocated")
    if mode == SECONDARY:
        return Solution(None, (), f"Instances with disk template '{vm.template}' can't execute change secondary")
    return _single(places, vm, group, targets, FAILOVER)


def _single(places: Places, vm: KnownVm, group: str, targets: t.Sequence[str], kind: str) -> Solution:
    ways, reasons = to_each(places, places.begin(vm.name), kind, targets, measure(places, group))
    best = last_of_best(ways)
    if best is None:
        told = "".join(f" Node {target} failed: {reason};" for target, reason in reasons.items())
        return Solution(None, (), f"Can't find any good node: {told}")
    return Solution(best.moved, best.operations)


def _pair(places: Places, vm: KnownVm, group: str, targets: t.Sequence[str]) -> Solution:
    """The replica goes to the new host, VM and replica change places, and the replica goes on to its own new host."""
    if len(targets) < 2:
        return Solution(None, (), f"{NO_PAIR}: no nodes available")
    starts = [to_primary(places, vm, target) for target in targets]
    for way in to_pairs(places, starts, targets, measure(places, group)):
        return Solution(way.moved, way.operations)
    why = starts[-1].why
    if starts[-1].moved is not None:
        failed = places.replace_secondary(starts[-1].moved, targets[-2])
        why = f"Changing secondary to final secondary: {failed}"
    return Solution(None, (), f"{NO_PAIR}: Allocation failed: {why}")
