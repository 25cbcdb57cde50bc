# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""How evenly hosts are used: one number, the lower the better, with the components and weights of Ganeti's hail 3.0.2.

It is a sum of standard deviations over the usable hosts, and of what should not be at all. The sums behind it are kept,
so that a host with another account costs the same however many hosts there are.
"""

from __future__ import annotations

import math
import typing as t
from collections import Counter

from .account import Account

# Weights of what deviates: free memory, free disk, memory for failovers, CPUs, VMs, VMs with replicas, spindles, and
# reported free memory. hail counts disk, CPUs and spindles twice (each of 0.5), and VMs three times.
_DEVIATIONS = (0.5, 1.0, 1.0, 1.0, 3.0, 1.0, 1.0, 0.5)
_SIZE = len(_DEVIATIONS)
_UNSAFE, _OFFLINE, _OFFLINE_VMS, _SURPLUS, _LOCATION, _TOGETHER, _RESERVED = 1.0, 4.0, 16.0, 2.0, 1.0, 1.0, 0.25
_Values = t.Tuple[float, ...]


def _values(account: Account) -> _Values:
    """What deviates, of a usable host."""
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


def _pairs(account: Account) -> t.Dict[t.Tuple[str, str], int]:
    """How often each exclusive tag is in each failure domain of the host, if it is usable."""
    found = {}
    for location in account.host.locations if account.host.usable else ():
        for tag, count in account.tags.items():
            found[location, tag] = count
    return found


def _flat(account: Account) -> float:
    """What should not be at all, weighted."""
    total = account.primaries + account.secondaries
    if not account.host.usable:
        return _OFFLINE * total + _OFFLINE_VMS * account.primaries
    found = _SURPLUS * account.surplus + _LOCATION * account.location
    found += _UNSAFE * total if account.unsafe else 0.0
    return found + _RESERVED * account.reserved / (account.host.memory or 1)


class Score:
    """The sums of some hosts. The values are taken from a fixed middle, so that little is lost where they are close."""

    def __init__(self, accounts: t.Iterable[Account]) -> None:
        every = list(accounts)
        rows = [_values(account) for account in every if account.host.usable]
        self._count = len(rows)
        self._middle = [math.fsum(column) / self._count for column in zip(*rows)] if rows else [0.0] * _SIZE
        away = [[value - middle for value, middle in zip(row, self._middle)] for row in rows]
        self._sums = [math.fsum(column) for column in zip(*away)] if rows else [0.0] * _SIZE
        self._squares = [math.fsum(x * x for x in column) for column in zip(*away)] if rows else [0.0] * _SIZE
        self._flat = math.fsum(map(_flat, every))
        self._pairs: t.Counter[t.Tuple[str, str]] = Counter()
        for account in every:
            self._pairs.update(_pairs(account))
        self._apart = sum(count - 1 for count in self._pairs.values())

    def after(self, changes: t.Iterable[t.Tuple[Account, Account]]) -> float:
        """The score if some hosts had other accounts: pairs of before and after."""
        sums, squares, flat = list(self._sums), list(self._squares), self._flat
        moved: t.Counter[t.Tuple[str, str]] = Counter()
        for before, after in changes:
            flat += _flat(after) - _flat(before)
            if after.tags is not before.tags and after.host.locations:
                moved.update(_pairs(after))
                moved.subtract(_pairs(before))
            if not before.host.usable:
                continue
            for place, (old, new, middle) in enumerate(zip(_values(before), _values(after), self._middle)):
                old -= middle
                new -= middle
                sums[place] += new - old
                squares[place] += new * new - old * old
        flat += self._together(moved)
        if not self._count:
            return flat
        spread = (max(0.0, square - total * total / self._count) for total, square in zip(sums, squares))
        return flat + sum(weight * math.sqrt(s / self._count) for weight, s in zip(_DEVIATIONS, spread))

    def _together(self, moved: t.Mapping[t.Tuple[str, str], int]) -> float:
        """VMs with the same exclusive tag in one failure domain beyond the first, after so many more of some pairs."""
        more = sum(max(0, self._pairs[key] + count - 1) - max(0, self._pairs[key] - 1) for key, count in moved.items())
        return _TOGETHER * (self._apart + more)
