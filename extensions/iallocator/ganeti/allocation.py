# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for new VMs, and for replicas, as hail 3.0.2 decides them."""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import replace
from functools import partial

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_allocation import (
    Candidates,
    Choice,
    Demand,
    best_group,
    best_hosts,
    first_safe,
    listed,
    no_choice,
    not_connected,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import REPLICATED
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.limits import why_too_large
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import Score

from .pairs import First, in_order, refused
from .replicas import Replicas

if t.TYPE_CHECKING:
    from .places import GanetiPlaces


def allocate(
    places: GanetiPlaces, demand: Demand, key: t.Optional[str], allowed: t.Optional[t.Collection[str]]
) -> Choice:
    """Return the hosts of a new VM. key: its group, None for any. allowed: the only hosts that it may get, None for
    all.
    """
    if key is not None:
        group = places.known.groups[key]
        if not demand.vm.networks <= group.networks:
            return Choice(f"The group {group.name} {not_connected(demand.vm)}")
        alone = demand._replace(alone=True)
        return best_hosts(places, alone, group, places.score(key), allowed)
    keys = [one for one in places.known.groups if places.hosts_of(one)]
    best, choices, text = best_group(places, demand, keys, allowed)
    if best is None:
        return Choice(text)
    return choices[best]._replace(text=f"Selected group: {places.known.groups[best].name}, {text}")


def replicate(places: GanetiPlaces, demand: Demand) -> Choice:
    """Return the host of a VM that has no replica yet, and that of its replica."""
    vm = demand.vm
    group = places.known.groups[places.known.hosts[vm.primary].group]
    others = [name for name in places.hosts_of(group.key) if places.usable(name) and name != vm.primary]
    demand = demand._replace(vm=replace(vm, template=REPLICATED), stays=True)
    large = why_too_large(demand.vm, group)
    if large:
        return no_choice({large: len(others)})
    candidates = listed(places, demand, places.score(), [(vm.primary, name) for name in others])
    return first_safe(places, demand, candidates)


def pairs_for(places: GanetiPlaces, demand: Demand, score: Score, hosts: t.Sequence[str]) -> Candidates:
    """Return the pairs of hosts for a VM and its replica."""
    failures: t.Counter[str] = Counter()
    replicas = Replicas(places, demand.vm, hosts, True, score)
    firsts = []
    for host in hosts:
        accounts = places.copied(demand.vm, (host,))
        if isinstance(accounts, str):
            failures[accounts] += len(hosts) - 1
            continue
        delta = score.delta(places.accounts[host], accounts[host])
        firsts.append(First(host, delta, partial(replicas.others, host, {}, {})))
    pairs = in_order(score, firsts, replicas.seconds)
    names = ((pair.value, (firsts[pair.first].host, hosts[pair.second])) for pair in pairs)
    return Candidates(len(hosts) * (len(hosts) - 1), failures, lambda: refused(firsts, replicas.seconds), names)
