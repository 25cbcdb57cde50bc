# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations as Ganeti's hail 3.0.2 decides them: in the order of the request, each VM to where the score of its group
is lowest. Of equal candidates the later one is taken.
"""

from __future__ import annotations

import typing as t

from .known import KnownVm
from .places import Places
from .ways import FAILOVER, Solution, last_of_best, measure, to_each


def one_by_one(
    places: Places, names: t.Sequence[str], solve: t.Callable[[str], Solution]
) -> t.Iterator[t.Tuple[str, Solution]]:
    """Yield each VM with its solution, which is carried out on the places before the next VM is looked at."""
    for name in names:
        solution = solve(name)
        if solution.moved is not None:
            places.settle(solution.moved)
        yield name, solution


def closed_hosts(places: Places, names: t.Sequence[str]) -> t.Set[str]:
    """Return the hosts that none of the VMs gets: those that take no VMs, and those that are to be left."""
    return {name for name in places.accounts if not places.usable(name)} | {places.vms[name].primary for name in names}


def evacuate_one(places: Places, name: str, mode: str, closed: t.Collection[str]) -> Solution:
    """Return the solution for one VM, which is not carried out. It stays in the group of its host."""
    vm = places.vms[name]
    group = places.known.hosts[vm.primary].group
    targets = [host for host in places.hosts_of(group) if host not in closed and host != vm.primary]
    return relocate(places, name, mode, group, targets)


def relocate(places: Places, name: str, mode: str, group: str, targets: t.Sequence[str]) -> Solution:
    """Return the best way of one VM to one or two of the targets, which are hosts of the group."""
    vm = places.vms[name]
    other = places.relocate(vm, mode, group, targets)
    return other if other is not None else single(places, vm, group, targets, FAILOVER)


def single(places: Places, vm: KnownVm, group: str, targets: t.Sequence[str], kind: str) -> Solution:
    """Return the best way of one operation to one of the targets."""
    ways, reasons = to_each(places, places.begin(vm.name), kind, targets, measure(places, group))
    best = last_of_best(ways)
    if best is None:
        text = "".join(f" Node {target} failed: {reason};" for target, reason in reasons.items())
        return Solution(None, (), f"Can't find any good node: {text}")
    return Solution(best.moved, best.operations)
