# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evacuations as hail 3.0.2 decides them, of VMs and of replicas."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_evacuation import (
    evacuate_one,
    one_by_one,
    single,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    ALL,
    PRIMARY,
    REPLICATED,
    SECONDARY,
    KnownVm,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import (
    FAILOVER,
    REPLACE,
    Operation,
    Solution,
    measure,
)

from .ways import to_pairs, to_primary

if t.TYPE_CHECKING:
    from .places import GanetiPlaces

NO_PAIR = "Can't find any good nodes for relocation"


def evacuate(places: GanetiPlaces, names: t.Sequence[str], mode: str) -> t.Iterator[t.Tuple[str, Solution]]:
    """Return each VM with its solution, which is carried out on the places before the next VM is looked at."""
    closed = closed_hosts(places, names, mode)
    return one_by_one(places, names, lambda name: evacuate_one(places, name, mode, closed))


def closed_hosts(places: GanetiPlaces, names: t.Sequence[str], mode: str) -> t.Set[str]:
    """Return the hosts that none of the VMs gets: those that take no VMs, and those that are to be left."""
    vms = [places.vms[name] for name in names]
    closed = {name for name in places.accounts if not places.usable(name)}
    if mode in (PRIMARY, ALL):
        closed |= {vm.primary for vm in vms}
    if mode in (SECONDARY, ALL):
        closed |= {vm.secondary for vm in vms if vm.template == REPLICATED}
    return closed


def relocate(
    places: GanetiPlaces, vm: KnownVm, mode: str, group: str, targets: t.Sequence[str]
) -> t.Optional[Solution]:
    """Return the best way of a VM, or of its replica, to one or two of the targets; None for one that can go to any
    host.
    """
    if vm.template == REPLICATED:
        if mode == PRIMARY:
            outcome = places.failover(places.begin(vm.name))
            return (
                Solution(None, (), outcome) if isinstance(outcome, str) else Solution(outcome, (Operation(FAILOVER),))
            )
        if mode == SECONDARY:
            return single(places, vm, group, targets, REPLACE)
        return _pair(places, vm, group, targets)
    if not vm.movable:
        return Solution(None, (), f"Instances of type {vm.template} cannot be relocated")
    if mode == SECONDARY:
        return Solution(None, (), f"Instances with disk template '{vm.template}' can't execute change secondary")
    return None


def _pair(places: GanetiPlaces, vm: KnownVm, group: str, targets: t.Sequence[str]) -> Solution:
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
