# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which a VM with a replica can get to other hosts, and why there is none."""

from __future__ import annotations

import heapq
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    ALL,
    PRIMARY,
    REPLICATED,
    SECONDARY,
    Known,
    KnownVm,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Moved
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import together
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wanted_moves import (
    WantedMove,
    explain,
    sorted_ways,
    why_unsafe,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import (
    FAILOVER,
    REPLACE,
    Measure,
    Operation,
    Solution,
    Way,
    to_each,
)

from .pairs import First, in_order
from .replicas import Replicas

if t.TYPE_CHECKING:
    from .places import GanetiPlaces

_OVER = Operation(FAILOVER)


def hosts_to_leave(known: Known, names: t.Sequence[str], mode: str) -> t.FrozenSet[str]:
    """Return the hosts that VMs leave, where a request has only their names. With ALL that is what all VMs have in
    common, if there is anything: other hosts of theirs can take VMs.
    """
    vms = [known.vms[name] for name in names]
    primaries = [{vm.primary} if mode != SECONDARY else set() for vm in vms]
    secondaries = [{vm.secondary} if mode != PRIMARY and vm.secondary else set() for vm in vms]
    hosts = [one | other for one, other in zip(primaries, secondaries)]
    common = frozenset(set.intersection(*hosts)) if hosts else frozenset()
    return common if mode == ALL and common else frozenset().union(*hosts)


def other_ways(places: GanetiPlaces, wanted: WantedMove, targets: t.Sequence[str], by: Measure) -> t.Iterator[Way]:
    """Yield the ways into a group, best first."""
    vm = places.vms[wanted.name]
    if vm.template != REPLICATED:
        return
    if wanted.mode == PRIMARY:
        yield from _over(places, vm, by)
    elif wanted.mode == SECONDARY:
        yield from sorted_ways(places, wanted, REPLACE, targets, by)
    else:
        yield from heapq.merge(*_all(places, wanted, targets, by), key=lambda way: way.value)


def _over(places: GanetiPlaces, vm: KnownVm, by: Measure) -> t.List[Way]:
    moved = places.failover(places.begin(vm.name))
    if isinstance(moved, str):
        return []
    return [Way(by.score.after(places.changes(moved, by.group)), moved, (Operation(FAILOVER),))]


def _all(
    places: GanetiPlaces, wanted: WantedMove, targets: t.Sequence[str], by: Measure
) -> t.Iterator[t.Iterable[Way]]:
    """Yield all ways of a VM with a replica: what need not leave may stay."""
    vm = places.vms[wanted.name]
    others = [host for host in targets if host not in (vm.primary, vm.secondary)]
    if vm.primary in targets:
        yield sorted_ways(places, wanted, REPLACE, targets, by)
    if vm.secondary in targets:
        over = places.failover(places.begin(vm.name))
        if not isinstance(over, str):
            ways = to_each(places, over, REPLACE, others, by)[0]
            yield sorted((_after(Operation(FAILOVER), way) for way in ways), key=lambda way: way.value)
    seconds = [*others, *(host for host in (vm.secondary,) if host in targets and places.usable(vm.primary))]
    yield to_pairs(places, [to_primary(places, vm, host) for host in others], seconds, by)


def _after(first: Operation, way: Way) -> Way:
    return way._replace(operations=(first, *way.operations))


def to_pairs(
    places: GanetiPlaces, starts: t.Sequence[Solution], seconds: t.Sequence[str], by: Measure
) -> t.Iterator[Way]:
    """Yield the ways of a VM with a replica to two other hosts, best first. starts: how the VM gets to its host, where
    its replica is on the old one then. seconds: where the replica can go on to.
    """
    ready = [start for start in starts if start.moved is not None]
    if not ready:
        return
    leaving = t.cast(Moved, ready[0].moved).vm
    now = places.vms[leaving.name]
    left = (now.primary, now.secondary)
    replicas = Replicas(places, leaving, seconds, places.soft(leaving.secondary), by.score, left)
    candidates = ((start, _first(places, t.cast(Moved, start.moved), by, replicas)) for start in ready)
    firsts = [(start, first) for start, first in candidates if first is not None]
    for pair in in_order(by.score, [first for _start, first in firsts], replicas.seconds):
        start, target = firsts[pair.first][0], seconds[pair.second]
        moved = places.replace_secondary(t.cast(Moved, start.moved), target)
        if not isinstance(moved, str):
            yield Way(pair.value, moved, (*start.operations, Operation(REPLACE, target)))


def _first(places: GanetiPlaces, moved: Moved, by: Measure, replicas: Replicas) -> t.Optional[First]:
    """The host of a VM before its replica goes on, None if it could not."""
    alone = places.drop_secondary(moved)
    if isinstance(alone, str):
        return None
    delta = together(by.score.delta(before, after) for before, after in places.changes(alone, by.group))
    primary = moved.vm.primary
    return First(primary, delta, lambda: replicas.others(primary, moved.accounts, alone.accounts))


def to_primary(places: GanetiPlaces, vm: KnownVm, primary: str) -> Solution:
    """Return the VM on its new host, with its replica on the old one; a host that is not there is left first."""
    steps = [("Changing secondary to new primary", Operation(REPLACE, primary)), ("Failing over to new primary", _OVER)]
    if not places.usable(vm.primary):
        steps.insert(0, ("Failing over to the secondary", _OVER))
    moved = places.begin(vm.name)
    for label, operation in steps:
        outcome = places.perform(moved, operation)
        if isinstance(outcome, str):
            return Solution(None, (), f"{label}: {outcome}")
        moved = outcome
    return Solution(moved, tuple(operation for _label, operation in steps))


# -- why not


def why_never(vm: KnownVm, mode: str) -> str:
    """Return why no VM of this kind can go, wherever, "" if it can."""
    if vm.template == REPLICATED or (vm.movable and mode != SECONDARY):
        return ""
    if vm.movable:
        return f"a VM with disks of type {vm.template} has no replica that could leave"
    return f"a VM with disks of type {vm.template} cannot leave its host: the disks are its host's own"


def why_not(places: GanetiPlaces, wanted: WantedMove, host: str) -> str:
    """Return why a VM with a replica, or its replica, does not go to a host that takes VMs, "" if it can."""
    vm, begin = places.vms[wanted.name], places.begin(wanted.name)
    if vm.template != REPLICATED:
        return why_never(vm, wanted.mode)
    if wanted.mode == PRIMARY:
        if host != vm.secondary:
            return "has no replica of it"
        over = places.failover(begin)
        return explain(places, vm, host, over) if isinstance(over, str) else ""
    if host == vm.primary:
        return "is its host" if wanted.mode != SECONDARY else "is the host of the VM itself"
    if wanted.mode == SECONDARY and host == vm.secondary:
        return "has its replica"
    if wanted.mode == SECONDARY:
        outcome = places.perform(begin, Operation(REPLACE, host))
    else:
        start = to_primary(places, vm, host)
        outcome = start.moved or start.why.rpartition(": ")[2]
    if isinstance(outcome, str):
        return explain(places, vm, host, outcome)
    if wanted.mode == ALL:
        return "could take it, but with no other host for its replica" + (_SAFELY if wanted.checked else "")
    return why_unsafe(places, host, outcome) if wanted.checked else ""


_SAFELY = " so that the VMs of each host could still go elsewhere if it were lost"
