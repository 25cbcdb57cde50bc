# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for VMs that do not exist yet: the largest first, each where the score is lowest afterwards."""

from __future__ import annotations

import typing as t
from collections import Counter

from .known import KnownVm
from .new_vms import NewVm
from .places import Moved, Places
from .redundancy import made_unsafe
from .wanted_moves import explain, why_unsafe

_Ranks = t.Sequence[t.Sequence[str]]


def place(
    places: Places, new: t.Iterable[NewVm], ranks: _Ranks, checked: bool
) -> t.Tuple[t.Dict[str, Moved], t.List[NewVm]]:
    """Return the new VMs that get a host, and those that get none. The places change.

    ranks: keys of groups, in the order in which they are tried. checked: no host may become one whose VMs could not go
    elsewhere if it were lost.
    """
    placed: t.Dict[str, Moved] = {}
    left: t.List[NewVm] = []
    more: t.Counter[t.Tuple[str, str]] = Counter()
    for one in sorted(new, key=_largest):
        moved = _best(places, one, ranks, checked, more)
        if moved is None:
            left.append(one)
        else:
            places.settle(moved)
            placed[one.name] = moved
            more[one.spread, moved.vm.primary] += 1
    return placed, left


def _largest(new: NewVm) -> t.Tuple[int, int]:
    vms = [vm for vm in new.at.values() if isinstance(vm, KnownVm)]
    return -max((vm.memory for vm in vms), default=0), -max((vm.disk for vm in vms), default=0)


def _best(
    places: Places, new: NewVm, ranks: _Ranks, checked: bool, more: t.Mapping[t.Tuple[str, str], int]
) -> t.Optional[Moved]:
    """Return the best host in the first rank that has one, the later of equal ones. more: VMs of a set by host."""

    def worth(way: t.Tuple[float, Moved]) -> t.Tuple[int, float]:
        host = way[1].vm.primary
        return (new.beside.get(host, 0) + more[new.spread, host] if new.spread else 0), way[0]

    for rank in ranks:
        ways = [way for key in rank for way in _ways(places, new, key)]
        ways.reverse()
        for _value, moved in sorted(ways, key=worth):
            if not (checked and made_unsafe(places, places.known.hosts[moved.vm.primary].group, moved)):
                return moved
    return None


def _ways(places: Places, new: NewVm, key: str) -> t.Iterator[t.Tuple[float, Moved]]:
    for host in places.hosts_of(key):
        moved = _at(places, new, host)
        if not isinstance(moved, str):
            value = places.score().after(places.changes(moved))
            yield round(value, 9), moved


def _at(places: Places, new: NewVm, host: str) -> t.Union[Moved, str]:
    """Return the VM on a host, or why it cannot be there."""
    vm = new.at.get(host, "is not among its hosts")
    if isinstance(vm, str):
        return vm
    if not places.usable(host):
        return places.known.hosts[host].unusable
    accounts = places.copied(vm, (host,))
    return explain(places, vm, host, accounts) if isinstance(accounts, str) else Moved(vm.at(host, ""), accounts)


def why_no_host(places: Places, new: NewVm, ranks: _Ranks) -> t.Dict[str, str]:
    """Return why a VM can be on no host of the ranks, by host. A host that fits would make another one unsafe."""
    result = {}
    for host in [host for rank in ranks for key in rank for host in places.hosts_of(key)]:
        moved = _at(places, new, host)
        result[host] = moved if isinstance(moved, str) else why_unsafe(places, host, moved)
    return result
