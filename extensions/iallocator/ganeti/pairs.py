# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pairs of hosts for a VM and its replica, best first.

The change of a pair is nearly the sum of the changes of both hosts. A square root lies above its chords, so the sum of
two figures, one of each host, is a lower bound of the score. Pairs whose bound is above the best score are not looked
at. Hosts that change exactly the same are looked at once.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import (
    NEAR,
    WEIGHTS,
    Delta,
    Score,
)

# What a replica changes of the components of the score: disk, memory for failovers, VMs with replicas, spindles.
_COMPONENTS = (1, 2, 5, 6)
_FAILOVERS = 1  # the place of that memory among them
_Row = t.Tuple[float, ...]
_Change = t.Union[Delta, str]


class First(t.NamedTuple):
    """A possible host of the VM."""

    host: str
    # The change that depends on this host alone.
    delta: Delta
    # Returns the changes of a replica, or why it is impossible, on hosts where they depend on this host.
    others: t.Callable[[], t.Mapping[str, _Change]]


class Seconds(t.NamedTuple):
    """The possible hosts of the replica."""

    # The change on each host, or why it is impossible.
    changes: t.Mapping[str, _Change]
    # By how much the spread of the memory for failovers can be lower on hosts where it depends on the host of the
    # VM, while nothing else is lower there. Infinite if unknown.
    less: float = 0.0


class Pair(t.NamedTuple):
    """The places of two hosts, and the score with them."""

    value: float
    first: int
    second: int


class _FirstChange(t.NamedTuple):
    """Hosts of the VM with the same change."""

    # The score without the components that replicas change.
    fixed: float
    # Squares of deviations by component, times the number of hosts.
    spreads: _Row
    # Twice what they add to the sums, by host.
    doubles: _Row


class _SecondChange(t.NamedTuple):
    """Hosts of the replica with the same change."""

    # Penalties that they add.
    fixed: float
    spreads: _Row
    sums: _Row


_Side = t.TypeVar("_Side", _FirstChange, _SecondChange)
_Group = t.Tuple[_Side, t.List[int]]
_Ranked = t.Tuple[float, _Side, t.List[int]]


def in_order(score: Score, firsts: t.Sequence[First], seconds: Seconds) -> t.Iterator[Pair]:
    """Yield the pairs, best first. Of equal pairs the later one comes first."""
    pairs = _Pairs(score, firsts, seconds)
    likely = list(pairs.likely(False))
    if not likely:
        return
    lowest = min(pair.value for pair in likely)
    best = max((pair for pair in likely if pair.value <= lowest + NEAR), key=lambda pair: pair[1:])
    yield best
    for pair in sorted(pairs.likely(True), key=lambda one: (one.value, -one.first, -one.second)):
        if pair[1:] != best[1:]:
            yield pair


def refused(firsts: t.Sequence[First], seconds: Seconds) -> t.Counter[str]:
    """Return how often each reason rules out a pair."""
    reasons: t.Counter[str] = Counter()
    hosts = {first.host for first in firsts}
    for host, change in seconds.changes.items():
        if isinstance(change, str):
            reasons[change] += len(firsts) - (host in hosts)
    for first in firsts:
        for host, change in first.others().items():
            usual = seconds.changes[host]
            reasons.update([change] if isinstance(change, str) else [])
            reasons.subtract([usual] if isinstance(usual, str) else [])
    return reasons


class _Pairs:
    def __init__(self, score: Score, firsts: t.Sequence[First], seconds: Seconds) -> None:
        self._score = score
        self._firsts = firsts
        self._hosts = {host: place for place, host in enumerate(seconds.changes)}
        self._names = list(seconds.changes)
        self._others: t.Dict[int, t.Mapping[str, _Change]] = {}
        self._kinds: t.Dict[int, _SecondChange] = {}
        self._factors = tuple(WEIGHTS[c] / math.sqrt(score.count) for c in _COMPONENTS)
        self._each = [self._first_change(first.delta) for first in firsts]
        self._ones = _alike(enumerate(self._each))
        every = enumerate(seconds.changes.values())
        twos = ((place, delta) for place, delta in every if not isinstance(delta, str))
        self._twos = _alike((place, self._second_change(delta)) for place, delta in twos)
        self._less = seconds.less if all(one.doubles[_FAILOVERS] == 0 for one in self._each) else math.inf

    def _first_change(self, delta: Delta) -> _FirstChange:
        count = self._score.count
        sums = [s + a for s, a in zip(self._score.sums, delta.sums)]
        spreads = [q + b - s * s / count for q, b, s in zip(self._score.squares, delta.squares, sums)]
        still = [c for c in range(len(WEIGHTS)) if c not in _COMPONENTS]
        fixed = sum(WEIGHTS[c] * math.sqrt(max(0.0, spreads[c]) / count) for c in still)
        doubles = tuple(2 * delta.sums[c] / count for c in _COMPONENTS)
        return _FirstChange(self._score.flat(delta) + fixed, tuple(spreads[c] for c in _COMPONENTS), doubles)

    def _second_change(self, delta: Delta) -> _SecondChange:
        rows = [(self._score.sums[c], delta.sums[c], delta.squares[c]) for c in _COMPONENTS]
        spreads = tuple(b - (2 * s + a) * a / self._score.count for s, a, b in rows)
        return _SecondChange(delta.flat, spreads, tuple(a for _s, a, _b in rows))

    def _value(self, one: _FirstChange, two: _SecondChange) -> float:
        total = one.fixed + two.fixed
        for factor, x, u, double, a in zip(self._factors, one.spreads, two.spreads, one.doubles, two.sums):
            spread = x + u - double * a
            if spread > 0:
                total += factor * math.sqrt(spread)
        return total

    def likely(self, every: bool) -> t.Iterator[Pair]:
        """Yield the pairs whose score may be the lowest, or every one."""
        if not self._ones or not self._twos:
            return
        base, slopes = self._chords()
        ones, twos = _ranked(self._ones, slopes), _ranked(self._twos, slopes)
        lowest = -math.inf if self._less == math.inf else twos[0][0] - slopes[_FAILOVERS] * self._less
        best_value = math.inf
        for low, one, places in ones:
            if base + low + lowest > best_value:
                break
            for pair in self._of(one, places, twos, best_value - base - low, every):
                best_value = best_value if every else min(best_value, pair.value + NEAR)
                yield pair

    def _of(
        self, one: _FirstChange, places: t.List[int], twos: t.Sequence[_Ranked[_SecondChange]], most: float, every: bool
    ) -> t.Iterator[Pair]:
        """Yield the pairs of alike first hosts. most: what a second host may add to the bound."""
        for place in places:
            for host, delta in self._dependent(place).items():
                if not isinstance(delta, str):
                    if id(delta) not in self._kinds:
                        self._kinds[id(delta)] = self._second_change(delta)
                    yield Pair(self._value(one, self._kinds[id(delta)]), place, self._hosts[host])
        for more, two, others in twos:
            if more > most:
                break
            value = self._value(one, two)
            for pair in self._possible(places, others, every):
                yield Pair(value, *pair)

    def _possible(self, ones: t.List[int], twos: t.List[int], every: bool) -> t.Iterator[t.Tuple[int, int]]:
        """Yield the possible pairs of places, or only the last one."""
        for one in reversed(ones):
            host, others = self._firsts[one].host, self._dependent(one)
            for two in reversed(twos):
                if self._names[two] != host and self._names[two] not in others:
                    yield one, two
                    if not every:
                        return

    def _dependent(self, place: int) -> t.Mapping[str, _Change]:
        if place not in self._others:
            self._others[place] = self._firsts[place].others()
        return self._others[place]

    def _chords(self) -> t.Tuple[float, _Row]:
        """Return lines below the square roots of all spreads that pairs can reach: their sum at 0, and their slopes."""
        base, slopes = 0.0, []
        for c, factor in enumerate(self._factors):
            crossed = [
                double * a
                for double in _ends(one.doubles[c] for one, _places in self._ones)
                for a in _ends(two.sums[c] for two, _places in self._twos)
            ]
            xs = _ends(one.spreads[c] for one, _places in self._ones)
            us = _ends(two.spreads[c] for two, _places in self._twos)
            less = self._less if c == _FAILOVERS and self._less < math.inf else 0.0
            low = max(0.0, xs[0] + us[0] - less - max(crossed))
            high = max(low, xs[1] + us[1] - min(crossed))
            slope = (math.sqrt(high) - math.sqrt(low)) / (high - low) if high > low else 0.0
            slopes.append(factor * slope)
            base += factor * (math.sqrt(low) - slope * (low + max(crossed)))
        return base - NEAR, tuple(slopes)


def _ends(values: t.Iterable[float]) -> t.Tuple[float, float]:
    every = list(values)
    return min(every), max(every)


def _alike(sides: t.Iterable[t.Tuple[int, _Side]]) -> t.List[_Group[_Side]]:
    """Group places by equal changes."""
    places_by_side: t.Dict[_Side, t.List[int]] = {}
    for place, side in sides:
        places_by_side.setdefault(side, []).append(place)
    return list(places_by_side.items())


def _ranked(groups: t.Sequence[_Group[_Side]], slopes: _Row) -> t.List[_Ranked[_Side]]:
    """By what they add to the bound."""
    rows = [
        (side.fixed + sum(slope * spread for slope, spread in zip(slopes, side.spreads)), side, places)
        for side, places in groups
    ]
    return sorted(rows, key=lambda row: row[0])
