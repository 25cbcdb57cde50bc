# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""The pairs of hosts for a VM and its replica, best first.

What a pair changes is nearly the sum of what each host changes. A square root lies above its chords, so the sum of two
figures, one of each host, is a lower bound of the score. Pairs whose bound is above the best score are not looked at.
Hosts that change exactly the same are looked at once.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter

from .score import NEAR, WEIGHTS, Delta, Score

# What a replica changes of the components of the score: disk, memory for failovers, VMs with replicas, spindles.
_COMPONENTS = (1, 2, 5, 6)
_Row = t.Tuple[float, ...]
_Change = t.Union[Delta, str]


class First(t.NamedTuple):
    """A host of the VM. delta: all that depends on it alone. others: what a replica changes, or why it cannot be, on
    hosts where that depends on this one, too.
    """

    host: str
    delta: Delta
    others: t.Mapping[str, _Change]


class Pair(t.NamedTuple):
    """The places of two hosts, and the score with them."""

    value: float
    first: int
    second: int


class _One(t.NamedTuple):
    """First hosts that change the same. fixed: the score without what replicas change. spreads: squares of deviations
    by components, times the number of hosts. doubles: twice what they add to the sums, by host.
    """

    fixed: float
    spreads: _Row
    doubles: _Row


class _Two(t.NamedTuple):
    """Second hosts that change the same: what they add to what should not be at all, to the spreads, to the sums."""

    fixed: float
    spreads: _Row
    sums: _Row


_Side = t.TypeVar("_Side", _One, _Two)
_Group = t.Tuple[_Side, t.List[int]]


def in_order(score: Score, firsts: t.Sequence[First], seconds: t.Mapping[str, _Change]) -> t.Iterator[Pair]:
    """The pairs, best first. seconds: what a replica changes on each host, or why it cannot be there. Of equal pairs
    the later one comes first.
    """
    pairs = _Pairs(score, firsts, seconds)
    likely = list(pairs.likely(False))
    if not likely:
        return
    least = min(pair.value for pair in likely)
    best = max((pair for pair in likely if pair.value <= least + NEAR), key=lambda pair: pair[1:])
    yield best
    for pair in sorted(pairs.likely(True), key=lambda one: (one.value, -one.first, -one.second)):
        if pair[1:] != best[1:]:
            yield pair


def refused(firsts: t.Sequence[First], seconds: t.Mapping[str, _Change]) -> t.Counter[str]:
    """Why how many of the pairs cannot be."""
    found: t.Counter[str] = Counter()
    hosts = {first.host for first in firsts}
    for host, change in seconds.items():
        if isinstance(change, str):
            found[change] += len(firsts) - (host in hosts)
    for first in firsts:
        for host, change in first.others.items():
            usual = seconds[host]
            found.update([change] if isinstance(change, str) else [])
            found.subtract([usual] if isinstance(usual, str) else [])
    return found


class _Pairs:
    def __init__(self, score: Score, firsts: t.Sequence[First], seconds: t.Mapping[str, _Change]) -> None:
        self._score = score
        self._firsts = firsts
        self._hosts = list(seconds)
        self._factors = tuple(WEIGHTS[c] / math.sqrt(score.count) for c in _COMPONENTS)
        self._each = [self._one(first.delta) for first in firsts]
        self._ones = _alike(enumerate(self._each))
        twos = ((place, delta) for place, delta in enumerate(seconds.values()) if not isinstance(delta, str))
        self._twos = _alike((place, self._two(delta)) for place, delta in twos)

    def _one(self, delta: Delta) -> _One:
        count = self._score.count
        sums = [s + a for s, a in zip(self._score.sums, delta.sums)]
        spreads = [q + b - s * s / count for q, b, s in zip(self._score.squares, delta.squares, sums)]
        still = [c for c in range(len(WEIGHTS)) if c not in _COMPONENTS]
        fixed = sum(WEIGHTS[c] * math.sqrt(max(0.0, spreads[c]) / count) for c in still)
        doubles = tuple(2 * delta.sums[c] / count for c in _COMPONENTS)
        return _One(self._score.flat(delta) + fixed, tuple(spreads[c] for c in _COMPONENTS), doubles)

    def _two(self, delta: Delta) -> _Two:
        rows = [(self._score.sums[c], delta.sums[c], delta.squares[c]) for c in _COMPONENTS]
        spreads = tuple(b - (2 * s + a) * a / self._score.count for s, a, b in rows)
        return _Two(delta.flat, spreads, tuple(a for _s, a, _b in rows))

    def _value(self, one: _One, two: _Two) -> float:
        found = one.fixed + two.fixed
        for factor, x, u, double, a in zip(self._factors, one.spreads, two.spreads, one.doubles, two.sums):
            spread = x + u - double * a
            if spread > 0:
                found += factor * math.sqrt(spread)
        return found

    def likely(self, every: bool) -> t.Iterator[Pair]:
        """The pairs whose score may be the lowest, or every one."""
        base, slopes = self._chords() if self._ones and self._twos else (0.0, ())
        ones, twos = _ranked(self._ones, slopes), _ranked(self._twos, slopes)
        least = math.inf
        for low, one, places in ones:
            if not twos or base + low + twos[0][0] > least:
                break
            for more, two, others in twos:
                if base + low + more > least:
                    break
                value = self._value(one, two)
                for pair in self._possible(places, others, every):
                    least = least if every else min(least, value + NEAR)
                    yield Pair(value, *pair)
        yield from self._dependent()

    def _possible(self, ones: t.List[int], twos: t.List[int], every: bool) -> t.Iterator[t.Tuple[int, int]]:
        """The pairs of places that may be, or the last one."""
        for one in reversed(ones):
            first = self._firsts[one]
            for two in reversed(twos):
                if self._hosts[two] != first.host and self._hosts[two] not in first.others:
                    yield one, two
                    if not every:
                        return

    def _dependent(self) -> t.Iterator[Pair]:
        places = {host: place for place, host in enumerate(self._hosts)}
        twos: t.Dict[int, _Two] = {}
        for place, (first, one) in enumerate(zip(self._firsts, self._each)):
            for host, delta in first.others.items():
                if isinstance(delta, str):
                    continue
                if id(delta) not in twos:
                    twos[id(delta)] = self._two(delta)
                yield Pair(self._value(one, twos[id(delta)]), place, places[host])

    def _chords(self) -> t.Tuple[float, _Row]:
        """Lines below the square roots of all spreads that pairs can reach: their sum at 0, and their slopes."""
        base, slopes = 0.0, []
        for c, factor in enumerate(self._factors):
            crossed = [
                double * a
                for double in _ends(one.doubles[c] for one, _places in self._ones)
                for a in _ends(two.sums[c] for two, _places in self._twos)
            ]
            xs = _ends(one.spreads[c] for one, _places in self._ones)
            us = _ends(two.spreads[c] for two, _places in self._twos)
            low = max(0.0, xs[0] + us[0] - max(crossed))
            high = max(low, xs[1] + us[1] - min(crossed))
            slope = (math.sqrt(high) - math.sqrt(low)) / (high - low) if high > low else 0.0
            slopes.append(factor * slope)
            base += factor * (math.sqrt(low) - slope * (low + max(crossed)))
        return base - NEAR, tuple(slopes)


def _ends(values: t.Iterable[float]) -> t.Tuple[float, float]:
    every = list(values)
    return min(every), max(every)


def _alike(sides: t.Iterable[t.Tuple[int, _Side]]) -> t.List[_Group[_Side]]:
    """The places of those that change the same."""
    found: t.Dict[_Side, t.List[int]] = {}
    for place, side in sides:
        found.setdefault(side, []).append(place)
    return list(found.items())


def _ranked(groups: t.Sequence[_Group[_Side]], slopes: _Row) -> t.List[t.Tuple[float, _Side, t.List[int]]]:
    """By what they add to the bound."""
    rows = [
        (side.fixed + sum(slope * spread for slope, spread in zip(slopes, side.spreads)), side, places)
        for side, places in groups
    ]
    return sorted(rows, key=lambda row: row[0])
