# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of moves, and which of them must have ended before another one begins.

Jobs without dependencies may run at the same time, with their operations in any order. So a job counts with its peak
use of a host, and what it frees counts only for jobs that wait for its end.
"""

from __future__ import annotations

import typing as t

from .account import Account
from .places import Moved, Places
from .ways import Solution

_Resource = t.Tuple[str, str]  # a host, and what of it


class Use(t.NamedTuple):
    """MiB of a resource of a host that a job takes: the most at any time, and at its end. Below 0 it gives back."""

    peak: int
    end: int


class Job(t.NamedTuple):
    """The operations of one VM, and what it takes of hosts."""

    name: str
    solution: Solution
    uses: t.Mapping[_Resource, Use]


def in_feasible_order(start: Places, solutions: t.Mapping[str, Solution]) -> t.Optional[t.List[Job]]:
    """Return the jobs, each possible after those before it, or None if there is no such order."""
    places = start.duplicate()
    jobs: t.List[Job] = []
    left = dict(solutions)
    while left:
        before = len(left)
        for name, solution in list(left.items()):
            job = _carried_out(places, name, solution)
            if job is not None:
                jobs.append(job)
                del left[name]
        if len(left) == before:
            return None
    return jobs


def _carried_out(places: Places, name: str, solution: Solution) -> t.Optional[Job]:
    moved = places.begin(name)
    states: t.List[Moved] = []
    for operation in solution.operations:
        outcome = places.perform(moved, operation)
        if isinstance(outcome, str):
            return None
        moved = outcome
        states.append(moved)
    uses = _uses(places, states)
    places.settle(moved)
    return Job(name, Solution(moved, solution.operations), uses)


def _uses(places: Places, states: t.Sequence[Moved]) -> t.Dict[_Resource, Use]:
    result = {}
    for host, last in states[-1].accounts.items() if states else ():
        first = places.accounts[host]
        ways = [state.accounts.get(host, first) for state in states]
        for kind in ("memory",) if first.pools else ("memory", "disk"):  # what pools give away never comes back
            taken = [_free(first, kind) - _free(account, kind) for account in ways]
            if any(taken):
                result[host, kind] = Use(max(0, *taken), _free(first, kind) - _free(last, kind))
    return result


def _free(account: Account, kind: str) -> int:
    return account.free if kind == "memory" else account.disk


def dependencies(start: Places, jobs: t.Sequence[Job]) -> t.List[t.List[int]]:
    """For each job the numbers of those that must have ended before it begins, all of them earlier ones."""
    needed: t.List[t.Set[int]] = [set() for _job in jobs]
    for resource in dict.fromkeys(resource for job in jobs for resource in job.uses):
        users = [(number, job.uses[resource]) for number, job in enumerate(jobs) if resource in job.uses]
        _bind(_free(start.accounts[resource[0]], resource[1]), users, needed)
    return [sorted(_direct(numbers, needed)) for numbers in needed]


def _bind(free: int, users: t.Sequence[t.Tuple[int, Use]], needed: t.Sequence[t.Set[int]]) -> None:
    """Let the takers of one resource wait for what they need.

    Each waits for as many of the earlier givers as make room for it beside all earlier takers at their most. Where all
    of them do not suffice, it waits for all earlier users, and all later ones wait for it.
    """
    givers: t.List[t.Tuple[int, int]] = []
    waited = 0
    barrier: t.Optional[int] = None
    room = free
    for place, (number, use) in enumerate(users):
        if barrier is not None:
            needed[number].add(barrier)
        if use.peak <= 0:
            givers.append((number, -use.end))
            continue
        while room - use.peak <= 0 and waited < len(givers):
            room += givers[waited][1]
            waited += 1
        if room - use.peak > 0:
            room -= use.peak
            needed[number].update(giver for giver, _end in givers[:waited])
            continue
        needed[number].update(other for other, _use in users[:place])
        barrier, givers, waited = number, [], 0
        room = free - sum(one.end for _number, one in users[: place + 1])


def limit_parallel(uses: t.Sequence[t.Iterable[t.Hashable]], limit: int) -> t.List[t.Set[int]]:
    """For each job the earlier ones that must have ended, so that no more than some jobs use one thing at a time.

    uses: the things that each job uses. The jobs that use one thing stand in as many lines as may use it at a time.
    """
    result: t.List[t.Set[int]] = []
    lines: t.Dict[t.Hashable, t.List[int]] = {}
    for number, things in enumerate(uses):
        before = [lines.setdefault(thing, []) for thing in things]
        result.append({line[-limit] for line in before if len(line) >= limit})
        for line in before:
            line.append(number)
    return result


def _direct(numbers: t.Set[int], needed: t.Sequence[t.Set[int]]) -> t.Set[int]:
    """Return the numbers that no other one of them waits for."""
    indirect: t.Set[int] = set()
    for number in numbers:
        indirect |= needed[number]
    return numbers - indirect
