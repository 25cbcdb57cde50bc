# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best plan for a small cluster, found by trying all: every order of the VMs, and every way of each.

Only what one step does to a host, and the score, are the planner's own; what is tried is said here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_change_group import (
    possible_groups,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.iallocator import Options
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.iallocator_read import read
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Moved, Places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wishes import (
    Wish,
    hosts_to_leave,
    to_change_group,
    to_leave,
)

from . import clusters

Raw = dict[str, Any]
SHARED = ("ext", "sharedfile", "rbd", "gluster", "blockdev", "diskless")
State = tuple[tuple[str, str, str], ...]


class Best(NamedTuple):
    """moved: the most VMs that can move. score: the lowest with so many. ends: how many different scores there are."""

    moved: int
    score: float
    ends: int


def request(seed: int) -> tuple[Raw, list[str]]:
    """A cluster with 2 to 4 hosts and up to 6 VMs, and a request to empty a host or to change the group."""
    rng = random.Random(seed)
    groups = {f"uuid-{n}": clusters.group(rng, f"g{n}") for n in range(rng.choice([1, 2]))}
    for one in groups.values():
        one.update(networks=["net"], alloc_policy=rng.choice(["preferred", "preferred", "last_resort"]))
    keys = list(groups)
    names = [f"n{n}" for n in range(rng.choice([3, 4, 4]))]
    homes = {name: keys[number % len(keys)] for number, name in enumerate(names)}
    nodes = {name: {**clusters.node(rng, homes[name]), "offline": False, "vm_capable": True} for name in names}
    found: Raw = {
        "version": 2,
        "cluster_name": "small",
        "cluster_tags": ["htools:iextags:service"] if rng.random() < 0.3 else [],
        "enabled_hypervisors": ["xen-pvm"],
        "nodegroups": groups,
        "nodes": nodes,
        "instances": {},
    }
    for number in range(rng.randint(3, 6)):
        primary = rng.choice(names)
        others = [name for name in names if homes[name] == homes[primary] and name != primary]
        template = "drbd" if others and rng.random() < 0.6 else "ext"
        here = [primary, rng.choice(others)] if template == "drbd" else [primary]
        made = clusters.instance(rng, template, here)
        found["instances"][f"vm{number}"] = made
        nodes[primary]["free_memory"] -= made["memory"] if made["admin_state"] == "up" else 0
        for name in here if template == "drbd" else ():
            nodes[name]["free_disk"] -= made["disk_space_total"]
    for one in nodes.values():
        one["free_memory"] = max(0, one["free_memory"])
    vms = found["instances"]
    home = vms["vm0"]["nodes"][0]
    if len(keys) > 1:
        inside = [name for name in vms if homes[vms[name]["nodes"][0]] == homes[home]]
        found["request"] = {"type": "change-group", "instances": inside, "target_groups": []}
    else:
        here = [name for name in vms if home in vms[name]["nodes"]]
        found["request"] = {
            "type": "node-evacuate",
            "instances": here,
            "evac_mode": rng.choice(["all", *clusters.MODES]),
        }
    return found, ["--no-capacity-checks"]


def wishes_of(raw: Raw, options: Options) -> tuple[Places, list[Wish]]:
    """The places and what the request wants of each VM."""
    known, wanted = read(raw, options.kvm_memory), raw["request"]
    places, names = Places(known), wanted["instances"]
    if wanted["type"] == "change-group":
        return places, to_change_group(known, names, possible_groups(places, names, None), False)
    mode = wanted["evac_mode"]
    return places, to_leave(known, names, mode, hosts_to_leave(known, names, mode))


def best(places: Places, wishes: list[Wish]) -> Best:
    """What is best of all that can be done."""
    ends: dict[int, set[float]] = {}
    seen: set[tuple[frozenset[str], State]] = set()

    def go_on(now: Places, left: frozenset[str]) -> None:
        state = tuple(sorted((vm.name, vm.primary, vm.secondary) for vm in now.vms.values()))
        if (left, state) in seen:
            return
        seen.add((left, state))
        ends.setdefault(len(wishes) - len(left), set()).add(round(now.score().after(), 9))
        for wish in wishes:
            if wish.name in left:
                for moved in _ways(now, wish):
                    after = now.duplicate()
                    after.settle(moved)
                    go_on(after, left - {wish.name})

    go_on(places, frozenset(wish.name for wish in wishes))
    most = max(ends)
    return Best(most, min(ends[most]), len(ends[most]))


def _ways(places: Places, wish: Wish) -> Iterator[Moved]:
    """All that one job can do with a VM: in the first rank of groups where there is anything."""
    for rank in wish.ranks:
        found = [moved for key in rank for moved in _into(places, wish, key)]
        if found:
            yield from found
            return


def _into(places: Places, wish: Wish, key: str) -> Iterator[Moved]:
    vm, group = places.vms[wish.name], places.known.groups[key]
    if wish.enters and not vm.networks <= group.networks:
        return
    if wish.enters and not any(_inside(vm, *pair) for pair in group.sizes):
        return
    free = [host for host in places.hosts_of(key) if places.usable(host) and host not in wish.leaves]
    begin = places.begin(vm.name)
    if vm.template in SHARED:
        if wish.mode != "secondary-only":
            yield from _good(places.failover_to(begin, host) for host in free if host != vm.primary)
    elif wish.mode == "primary-only":
        yield from _good([places.failover(begin)])
    elif wish.mode == "secondary-only":
        yield from _good(_replaced(places, begin, free))
    else:
        yield from _anywhere(places, begin, free)


def _anywhere(places: Places, begin: Moved, free: list[str]) -> Iterator[Moved]:
    """A VM with a replica, neither of which may stay on a host that is left."""
    vm = begin.vm
    if vm.primary in free:
        yield from _good(_replaced(places, begin, free))
    over = places.failover(begin)
    if vm.secondary in free and not isinstance(over, str):
        yield from _good(_replaced(places, over, free))
    for first in free:
        state = begin if places.usable(vm.primary) else over
        if isinstance(state, str) or first in (vm.primary, vm.secondary):
            continue
        copied = places.replace_secondary(state, first)
        runs = copied if isinstance(copied, str) else places.failover(copied)
        if not isinstance(runs, str):
            yield from _good(_replaced(places, runs, free))


def _replaced(places: Places, moved: Moved, free: list[str]) -> Iterator[Moved | str]:
    vm = moved.vm
    return (places.replace_secondary(moved, host) for host in free if host not in (vm.primary, vm.secondary))


def _good(found: Any) -> Iterator[Moved]:
    return (moved for moved in found if not isinstance(moved, str))


def _inside(vm: Any, least: Any, most: Any) -> bool:
    sizes = all(least.disk_size <= size <= most.disk_size for size in vm.disks)
    memory = least.memory <= vm.memory <= most.memory
    return sizes and memory and least.cpus <= vm.cpus <= most.cpus and least.spindles <= vm.spindles <= most.spindles
