# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How evenly hosts are used: one number, the lower the better, with the components and weights of Ganeti's hail 3.0.2.

It is a sum of standard deviations over the usable hosts, and of penalties. The sums behind it are stored, so that the
cost of a change does not depend on the number of hosts.
"""

from __future__ import annotations

import copy
import math
import typing as t
from collections import Counter

from .account import Account

# Weights of what deviates: free memory, free disk, memory for failovers, CPUs, VMs, VMs with replicas, spindles, and
# reported free memory. hail counts disk, CPUs and spindles twice (each of 0.5), and VMs three times.
WEIGHTS = (0.5, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0, 0.5)
FAILOVERS = 2  # the place of memory for failovers
_SIZE = len(WEIGHTS)
_NOTHING = (0.0,) * _SIZE
_NO_PAIRS: t.Mapping[t.Tuple[str, str], int] = {}
_UNSAFE, _OFFLINE, _OFFLINE_VMS, _SURPLUS, _TOGETHER, _RESERVED = 1.0, 4.0, 16.0, 2.0, 1.0, 0.25
LOCATION = 1.0  # the weight of a failure domain that a VM shares with its replica, and of a wanted one that is missing
NEAR = 1e-9  # scores that are nearer to each other are equal
_Values = t.Tuple[float, ...]
_Pair = t.Tuple[str, str]
_Change = t.Tuple[Account, Account]


class Delta(t.NamedTuple):
    """The change of a score."""

    # Penalties.
    flat: float
    # Sums of the components.
    sums: _Values
    # Sums of their squares.
    squares: _Values
    # Exclusive tags in failure domains, counted.
    pairs: t.Mapping[_Pair, int]


def _values(account: Account) -> _Values:
    """Return what deviates, of a usable host."""
    if account.values is None:
        account.values = _worked_out(account)
    return account.values


def _worked_out(account: Account) -> _Values:
    host = account.host
    memory, disk, spindles = host.memory or 1, host.disk, account.spindle_limit
    return (
        account.free / memory,
        account.disk / disk if disk else 1.0,
        account.reserved / memory,
        account.cpus / host.cpus if host.cpus else 0.0,
        float(account.primaries),
        float(account.primaries + account.secondaries),
        account.spindles / spindles if spindles else 0.0,
        account.reported / memory,
    )


def _pairs(account: Account) -> t.Dict[_Pair, int]:
    """Return the number of each exclusive tag in each failure domain of a usable host."""
    result = {}
    for location in account.host.locations if account.host.usable else ():
        for tag, count in account.tags.items():
            result[location, tag] = count
    return result


def _flat(account: Account) -> float:
    """Return the weighted penalties."""
    total = account.primaries + account.secondaries
    if not account.host.usable:
        return _OFFLINE * total + _OFFLINE_VMS * account.primaries
    penalty = _SURPLUS * account.surplus + LOCATION * account.location
    penalty += _UNSAFE * total if account.unsafe else 0.0
    return penalty + _RESERVED * account.reserved / (account.host.memory or 1)


class Score:
    """The sums of some hosts. The values are taken from a fixed middle, so that little is lost where they are close."""

    def __init__(self, accounts: t.Iterable[Account]) -> None:
        every = list(accounts)
        rows = [_values(account) for account in every if account.host.usable]
        self.count = len(rows)
        self._middle = [math.fsum(column) / self.count for column in zip(*rows)] if rows else list(_NOTHING)
        away = [[value - middle for value, middle in zip(row, self._middle)] for row in rows]
        self.sums = [math.fsum(column) for column in zip(*away)] if rows else list(_NOTHING)
        self.squares = [math.fsum(x * x for x in column) for column in zip(*away)] if rows else list(_NOTHING)
        self._flat = math.fsum(map(_flat, every))
        self._pairs: t.Counter[_Pair] = Counter()
        for account in every:
            self._pairs.update(_pairs(account))
        self._crowding = _beyond(self._pairs)
        self.changes: t.Dict[t.Any, t.Union[Delta, str]] = {}  # those that were asked for, by what decides them

    def duplicate(self) -> Score:
        """Return an independent copy."""
        other = copy.copy(self)
        other._pairs = Counter(self._pairs)
        return other

    def delta(self, before: Account, after: Account) -> Delta:
        """Return the change of the score's parts if a host gets another account."""
        flat = _flat(after) - _flat(before)
        pairs = _NO_PAIRS
        if after.tags is not before.tags and after.host.locations:
            pairs = _added(_pairs(after), {pair: -count for pair, count in _pairs(before).items()})
        if not before.host.usable:
            return Delta(flat, _NOTHING, _NOTHING, pairs)
        rows = list(zip(_values(before), _values(after), self._middle))
        sums = tuple([new - previous for previous, new, _middle in rows])
        squares = tuple([(new - previous) * (new + previous - middle - middle) for previous, new, middle in rows])
        return Delta(flat, sums, squares, pairs)

    def deviation_from_mean(self, account: Account) -> float:
        """Return how far the memory for failovers of a host is from the mean."""
        return _values(account)[FAILOVERS] - self._middle[FAILOVERS] - self.sums[FAILOVERS] / self.count

    def after(self, changes: t.Iterable[_Change] = ()) -> float:
        """Return the score if some hosts had other accounts: pairs of before and after."""
        return self.value(together(self.delta(before, after) for before, after in changes))

    def value(self, delta: Delta) -> float:
        """Return the score after a change."""
        flat = self.flat(delta)
        if not self.count:
            return flat
        rows = zip(WEIGHTS, self.sums, delta.sums, self.squares, delta.squares)
        return flat + math.fsum(w * math.sqrt(self._spread(s + a, q + b)) for w, s, a, q, b in rows)

    def _spread(self, total: float, squares: float) -> float:
        return max(0.0, squares - total * total / self.count) / self.count

    def flat(self, delta: Delta) -> float:
        """Return the penalties after a change. VMs with one exclusive tag in a failure domain count from the second."""
        more = (max(0, self._pairs[key] + n - 1) - max(0, self._pairs[key] - 1) for key, n in delta.pairs.items())
        return self._flat + delta.flat + _TOGETHER * (self._crowding + sum(more))

    def settle(self, changes: t.Iterable[_Change]) -> None:
        """Make the new accounts the present state."""
        delta = together(self.delta(before, after) for before, after in changes)
        self._flat += delta.flat
        self.sums = [s + a for s, a in zip(self.sums, delta.sums)]
        self.squares = [q + b for q, b in zip(self.squares, delta.squares)]
        self._pairs.update(delta.pairs)
        self._crowding = _beyond(self._pairs)


def _beyond(pairs: t.Mapping[_Pair, int]) -> int:
    """Return how many VMs there are beyond the first one of each pair."""
    return sum(max(0, count - 1) for count in pairs.values())


def together(deltas: t.Iterable[Delta]) -> Delta:
    """Several changes in one."""
    every = iter(deltas)
    result = next(every, None)
    if result is None:
        return Delta(0.0, _NOTHING, _NOTHING, _NO_PAIRS)
    for delta in every:
        sums = tuple([one + other for one, other in zip(result.sums, delta.sums)])
        squares = tuple([one + other for one, other in zip(result.squares, delta.squares)])
        result = Delta(result.flat + delta.flat, sums, squares, _added(result.pairs, delta.pairs))
    return result


def _added(one: t.Mapping[_Pair, int], other: t.Mapping[_Pair, int]) -> t.Mapping[_Pair, int]:
    if not one or not other:
        return one or other
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
