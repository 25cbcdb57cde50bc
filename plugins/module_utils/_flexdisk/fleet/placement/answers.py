# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers to requests: which VM goes where, in which order, and why another one cannot."""

from __future__ import annotations

import typing as t

from .declared import CHANGE_GROUP, EVACUATE, PLACE, Request
from .hail_change_group import change_group, possible_groups
from .hail_evacuation import closed_hosts, evacuate_one, one_by_one
from .jobs import Job, dependencies, in_feasible_order, limit_parallel
from .known import PRIMARY, Known
from .places import Places
from .placing import place, why_no_host
from .rebalance import rebalance
from .search import plan
from .wanted_moves import WantedMove, ranks_of, to_change_group, to_leave, why_nowhere
from .ways import Solution


class Answer(t.NamedTuple):
    """The answer to a request."""

    # The score before.
    before: float
    # The score afterwards.
    after: float
    # The moves, or the new VMs, in an order in which they can be done.
    jobs: t.Sequence[Job]
    # Why VMs cannot go to any host, by host, by VM.
    failed: t.Mapping[str, t.Mapping[str, str]]


def answer(known: Known, request: Request) -> Answer:
    """Return the answer to a request that has no problems."""
    start = Places(known)
    if request.kind == PLACE:
        return _placed(start, request)
    if request.kind in (CHANGE_GROUP, EVACUATE):
        return _moved(start, request)
    wanted_moves = _with_redundancy(to_leave(known, request.names, PRIMARY, frozenset()), request)
    places, solutions = rebalance(start, wanted_moves, request.max_moves, request.min_gain)
    return _answer(start, places, in_feasible_order(start, solutions) or [], {})


def _moved(start: Places, request: Request) -> Answer:
    known, names = start.known, request.names
    if request.kind == EVACUATE:
        wanted_moves = _with_redundancy(to_leave(known, names, PRIMARY, request.leaves), request)
        result = plan(start, wanted_moves, lambda there: _evacuate_like_hail(there, request))
    else:
        keys = possible_groups(start, names, request.targets or None)
        wanted_moves = to_change_group(known, names, keys, request.redundancy)
        result = plan(start, wanted_moves, lambda there: change_group(there, names, keys, request.redundancy))
    left = [wanted for wanted in wanted_moves if wanted.name in result.failed]
    return _answer(
        start, result.places, result.jobs, {wanted.name: why_nowhere(result.places, wanted) for wanted in left}
    )


def _evacuate_like_hail(places: Places, request: Request) -> t.Iterator[t.Tuple[str, Solution]]:
    """Evacuate as hail does, but also hosts without any of the VMs."""
    closed = closed_hosts(places, request.names) | request.leaves
    return one_by_one(places, request.names, lambda name: evacuate_one(places, name, PRIMARY, closed))


def _with_redundancy(wanted_moves: t.Sequence[WantedMove], request: Request) -> t.List[WantedMove]:
    return [wanted._replace(checked=request.redundancy) for wanted in wanted_moves]


def _placed(start: Places, request: Request) -> Answer:
    places, ranks = start.duplicate(), ranks_of(start.known, request.targets or start.known.groups)
    placed, left = place(places, request.new, ranks, request.redundancy)
    jobs = [Job(one.name, Solution(placed[one.name]), {}) for one in request.new if one.name in placed]
    return _answer(start, places, jobs, {one.name: why_no_host(places, one, ranks) for one in left})


def _answer(
    start: Places, places: Places, jobs: t.Sequence[Job], failed: t.Mapping[str, t.Mapping[str, str]]
) -> Answer:
    return Answer(start.score().after(), places.score().after(), jobs, failed)


class JobDependencies(t.NamedTuple):
    """The numbers of earlier jobs that a job depends on."""

    # Those that must have ended.
    depends: t.Sequence[int]
    # Those that must have moved their VMs, because they make room.
    needs: t.Sequence[int]


def job_dependencies(
    known: Known, jobs: t.Sequence[Job], per_host: int, between_groups: int
) -> t.List[JobDependencies]:
    """Return what each job waits for.

    That is what memory on hosts demands, and that no more than per_host moves concern one host, and no more than
    between_groups one pair of host groups, at a time (0 for no limit).
    """
    needs = dependencies(Places(known), jobs)
    earlier = [set(numbers) for numbers in needs]
    routes = [_route(known, job) for job in jobs]
    if per_host:
        earlier = [one | more for one, more in zip(earlier, limit_parallel(routes, per_host))]
    if between_groups:
        groups = [tuple(known.hosts[host].group for host in route) for route in routes]
        pairs = [[tuple(sorted(pair))] if len(set(pair)) == 2 else [] for pair in groups]
        earlier = [one | more for one, more in zip(earlier, limit_parallel(pairs, between_groups))]
    return [JobDependencies(depends, needed) for depends, needed in zip(_direct(earlier), needs)]


def _direct(earlier: t.Sequence[t.Set[int]]) -> t.List[t.List[int]]:
    """Return the dependencies without indirect ones."""
    every: t.List[t.Set[int]] = []
    for numbers in earlier:
        every.append(numbers.union(*(every[number] for number in numbers)))
    return [sorted(numbers.difference(*(every[number] for number in numbers))) for numbers in earlier]


def _route(known: Known, job: Job) -> t.Tuple[str, ...]:
    """Return the hosts of a move, from and to; nothing is moved for a new VM."""
    before = known.vms.get(job.name)
    return (
        (before.primary, job.solution.moved.vm.primary) if before is not None and job.solution.moved is not None else ()
    )
