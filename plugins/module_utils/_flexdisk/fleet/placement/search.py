# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans for several VMs, never worse than those of the model (hail) that they start from.

What the model leaves, or moves in a way that is not possible, is tried again, the largest first, also after the others
have moved. If some cannot move even then, a plan without the model is made, too. The better one is improved as long as
another way of one VM, or other ways of two where there are few, lower the score of all hosts.
"""

from __future__ import annotations

import itertools
import typing as t

from .jobs import Job, in_feasible_order
from .places import Moved, Places, SomePlaces
from .score import NEAR
from .wanted_moves import WantedMove, best_way
from .ways import Solution, Way

ROUNDS = 10
PAIRS = 1_000  # two VMs get other ways together where there are not more pairs, times hosts
_Solutions = t.Dict[str, Solution]


class Plan(t.NamedTuple):
    """The places after all moves, the moves in an order in which they can be carried out, and the VMs that stay."""

    places: Places
    jobs: t.List[Job]
    failed: t.List[str]


class _Draft(t.NamedTuple):
    places: Places
    solutions: _Solutions
    failed: t.List[str]


def plan(
    start: SomePlaces,
    wanted_moves: t.Sequence[WantedMove],
    model: t.Callable[[SomePlaces], t.Iterable[t.Tuple[str, Solution]]],
) -> Plan:
    """Return the plan for the wanted moves. model: carries out its solutions on the places, each VM with its own."""
    by_name = {wanted.name: wanted for wanted in wanted_moves}
    places = start.duplicate()
    solutions = dict(model(places))
    moved = {}
    for name, solution in solutions.items():
        if solution.moved is not None and start.is_possible(start.vms[name], solution.operations):
            moved[name] = solution
        elif solution.moved is not None:
            places.settle(places.back(start.vms[name]))
    draft = _with_more_ways(_Draft(places, moved, [name for name in solutions if name not in moved]), by_name)
    if draft.failed:
        draft = _better(draft, _with_more_ways(_Draft(start.duplicate(), {}, list(by_name)), by_name))
    polished = _with_more_ways(
        _improved(start, draft, by_name), by_name
    )  # better ways may leave room for what had none
    for one in (polished, draft):
        jobs = in_feasible_order(start, one.solutions)
        if jobs is not None:
            return Plan(one.places, jobs, one.failed)
    raise AssertionError("a plan cannot be carried out in the order in which it was made")


def _with_more_ways(draft: _Draft, wanted_moves: t.Mapping[str, WantedMove]) -> _Draft:
    """Find ways for the VMs that have none, the largest first, until none is left to find."""
    places, solutions, left = draft.places, dict(draft.solutions), list(draft.failed)
    left.sort(key=lambda name: (-places.vms[name].memory, -places.vms[name].disk))
    before = -1
    while len(solutions) != before:
        before = len(solutions)
        for name in list(left):
            way = best_way(places, wanted_moves[name])
            if way is not None:
                places.settle(way.moved)
                solutions[name] = Solution(way.moved, way.operations)
                left.remove(name)
    return _Draft(places, solutions, [name for name in wanted_moves if name in left])


def _better(theirs: _Draft, ours: _Draft) -> _Draft:
    """Return the draft that moves more VMs, including all of the other's, or else the one with the lower score."""
    here, there = set(ours.solutions), set(theirs.solutions)
    if here == there:
        return min(theirs, ours, key=lambda draft: draft.places.score().after())
    return ours if here > there else theirs


def _improved(start: Places, draft: _Draft, wanted_moves: t.Mapping[str, WantedMove]) -> _Draft:
    """Replace ways by better ones, of one VM or of two together, after all others have moved."""
    places, solutions = draft.places.duplicate(), dict(draft.solutions)
    together: t.List[t.Tuple[str, ...]] = [(name,) for name in solutions]
    if len(together) ** 2 * len(start.known.hosts) <= PAIRS:
        together += itertools.permutations(solutions, 2)
    same = 0
    for turn in range(ROUNDS * len(together)):
        changed = _other_ways(start, places, solutions, [wanted_moves[name] for name in together[turn % len(together)]])
        same = 0 if changed else same + 1
        if same == len(together):
            break
    return _Draft(places, solutions, draft.failed)


def _other_ways(start: Places, places: Places, solutions: _Solutions, wanted_moves: t.Sequence[WantedMove]) -> bool:
    """Give VMs other ways, one after the other. Return whether they are better together; otherwise all is undone."""
    value = places.score().after()
    undone: t.List[Moved] = []
    for wanted in wanted_moves:
        _settle(places, places.back(start.vms[wanted.name]), undone)
    ways: t.Dict[str, Way] = {}
    for wanted in wanted_moves:
        way = best_way(places, wanted)
        if way is None:
            break
        ways[wanted.name] = way
        _settle(places, way.moved, undone)
    if len(ways) == len(wanted_moves) and places.score().after() < value - NEAR:
        solutions.update({name: Solution(way.moved, way.operations) for name, way in ways.items()})
        return True
    for before in reversed(undone):
        places.settle(before)
    return False


def _settle(places: Places, moved: Moved, undone: t.List[Moved]) -> None:
    """Make the steps the present state, and store the former one in undone."""
    undone.append(Moved(places.vms[moved.vm.name], {host: places.accounts[host] for host in moved.accounts}))
    places.settle(moved)
