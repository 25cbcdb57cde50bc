# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The best plan for a small cluster, found by trying all: every order of the VMs, and every way of each.

Only what a VM is asked to do, what one step does to a host, and the score are the planner's own. What is tried is said
here: one job for each VM, of the kinds that plans have, which takes it where it is asked to go, and nothing for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.places import GanetiPlaces
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.requests import read
from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.ways import hosts_to_leave
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_change_group import (
    possible_groups,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Moved
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import Score
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wanted_moves import (
    WantedMove,
    to_change_group,
    to_leave,
    why_not_group,
)

from .clusters import Raw
from .compare import replayed
from .small import SHARED

Names = frozenset[str]
End = frozenset[tuple[str, str, str]]


class Best(NamedTuple):
    """What can be reached. tried: the lowest score with the VMs of the request at these hosts, by the VMs that have
    moved. plans: how many VMs move, and the score to nine places, of each plan that leaves no other VM a way.
    """

    tried: dict[tuple[Names, End], float]
    plans: set[tuple[int, float]]

    @property
    def most(self) -> int:
        """How many VMs can move."""
        return max(len(names) for names, _end in self.tried)

    def scores(self, moved: Names | None) -> list[float]:
        """Those with these VMs, None for as many as can move."""
        most = self.most
        ends = self.tried.items()
        return [score for (names, _end), score in ends if (len(names) == most if moved is None else names == moved)]


def score(places: GanetiPlaces) -> float:
    """The score, worked out anew: it depends on nothing but the accounts."""
    return Score(places.accounts.values()).after()


def replay(raw: Raw, jobs: Iterable[list[dict[str, Any]]]) -> GanetiPlaces:
    """The places after jobs of an answer, each of which must be possible after those before it."""
    places = GanetiPlaces(read(raw))
    for job in jobs:
        moved = replayed(places, job[0]["instance_name"], job)
        assert isinstance(moved, Moved), moved
        places.settle(moved)
    return places


def wishes_of(places: GanetiPlaces, wanted: Raw) -> list[WantedMove]:
    """What the request wants of each VM."""
    known, names = places.known, wanted["instances"]
    if wanted["type"] == "change-group":
        keys = possible_groups(places, names, wanted["target_groups"] or None)
        return to_change_group(known, names, keys, False)
    mode = wanted["evac_mode"]
    return to_leave(known, names, mode, hosts_to_leave(known, names, mode))


def end(places: GanetiPlaces, names: Iterable[str]) -> End:
    """Where the VMs are."""
    return frozenset((name, places.vms[name].primary, places.vms[name].secondary) for name in names)


def best(raw: Raw) -> Best:
    """All that can be reached. With the VMs at the same hosts, different hosts may count as unsafe: that is looked at
    anew only where a step changes something.
    """
    start = GanetiPlaces(read(raw))
    wishes = {wish.name: wish for wish in wishes_of(start, raw["request"])}
    found = Best({}, set())
    seen = set()
    ahead = [(start, frozenset(wishes))]
    while ahead:
        now, left = ahead.pop()
        moved, here = frozenset(wishes) - left, end(now, wishes)
        state = (moved, here, frozenset(name for name, account in now.accounts.items() if account.unsafe))
        if state in seen:
            continue
        seen.add(state)
        value = score(now)
        found.tried[moved, here] = min(value, found.tried.get((moved, here), value))
        further = [(_after(now, step), left - {name}) for name in left for step in _ways(now, wishes[name])]
        if not further:
            found.plans.add((len(moved), round(value, 9)))
        ahead += further
    return found


def _after(places: GanetiPlaces, moved: Moved) -> GanetiPlaces:
    after = places.duplicate()
    after.settle(moved)
    return after


def _ways(places: GanetiPlaces, wish: WantedMove) -> list[Moved]:
    """All that one job can do with a VM: in the first rank of groups where there is anything."""
    for rank in wish.ranks:
        found = [moved for key in rank for moved in _into(places, wish, key) if isinstance(moved, Moved)]
        if found:
            return found
    return []


def _into(places: GanetiPlaces, wish: WantedMove, key: str) -> Iterator[Moved | str]:
    vm, begin = places.vms[wish.name], places.begin(wish.name)
    if why_not_group(places.known, vm, key, wish.enters):
        return
    free = [host for host in places.hosts_of(key) if places.usable(host) and host not in wish.leaves]
    if vm.template in SHARED and wish.mode != "secondary-only":
        yield from (places.failover_to(begin, host) for host in free if host != vm.primary)
    elif vm.template == "drbd" and wish.mode == "primary-only":
        yield places.failover(begin)
    elif vm.template == "drbd" and wish.mode == "secondary-only":
        yield from _replaced(places, begin, free)
    elif vm.template == "drbd":
        yield from _anywhere(places, begin, free)


def _anywhere(places: GanetiPlaces, begin: Moved, free: list[str]) -> Iterator[Moved | str]:
    """A VM with a replica, neither of which may stay on a host that is left."""
    vm = begin.vm
    if vm.primary in free:
        yield from _replaced(places, begin, free)
    over = places.failover(begin)
    if vm.secondary in free:
        yield from _replaced(places, over, free)
    for copied in _replaced(places, begin if places.usable(vm.primary) else over, free):
        if isinstance(copied, Moved):
            yield from _replaced(places, places.failover(copied), free)


def _replaced(places: GanetiPlaces, moved: Moved | str, free: list[str]) -> Iterator[Moved | str]:
    """The replica on each other host."""
    if isinstance(moved, Moved):
        hosts = (moved.vm.primary, moved.vm.secondary)
        yield from (places.replace_secondary(moved, host) for host in free if host not in hosts)
