# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of the group as hail 3.0.2 decides them. For each VM it first chooses the group, by the best hosts for a copy
in the whole cluster. Then it chooses the hosts in this group, as an evacuation does.
"""

from __future__ import annotations

import typing as t

from .hail_allocation import Demand, best_group
from .hail_evacuation import one_by_one, relocate
from .known import ALL
from .places import Places
from .ways import Solution

NO_GROUPS = "no groups for evacuation: those that were asked for have no hosts, or VMs of this request"


def change_group(
    places: Places, names: t.Sequence[str], targets: t.Optional[t.Sequence[str]], checked: bool
) -> t.Iterator[t.Tuple[str, Solution]]:
    """Return each VM with its solution, which is carried out on the places before the next VM is looked at.

    targets: keys of groups, None for all. Those with VMs of the request are left out. checked: see Demand.
    """
    keys = possible_groups(places, names, targets)
    return one_by_one(places, names, lambda name: move_to_best(places, name, keys, checked))


def possible_groups(places: Places, names: t.Sequence[str], targets: t.Optional[t.Sequence[str]]) -> t.List[str]:
    """Return the keys of the groups into which the VMs can go."""
    sources = {places.known.hosts[places.vms[name].primary].group for name in names}
    wanted = places.known.groups if targets is None else targets
    return [key for key in places.known.groups if key in wanted and key not in sources and places.hosts_of(key)]


def move_to_best(places: Places, name: str, keys: t.Sequence[str], checked: bool) -> Solution:
    """Return the solution for one VM, which is not carried out."""
    if not keys:
        return Solution(None, (), NO_GROUPS)
    best, _choices, text = best_group(places, Demand(places.vms[name], checked, moves=True), keys)
    if best is None:
        return Solution(None, (), text)
    return relocate(places, name, ALL, best, [host for host in places.hosts_of(best) if places.usable(host)])
