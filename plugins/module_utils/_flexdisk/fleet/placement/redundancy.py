# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Whether the VMs of each host could go elsewhere if it were lost, as hail 3.0.2 demands it of a whole cluster.

VMs with a replica go to its host, those on shared storage to other hosts of the group, and the others are made anew
there. Only physical limits count.
"""

from __future__ import annotations

import typing as t

from .account import Account
from .known import REPLICATED, KnownVm
from .limits import why_too_large
from .places import Moved, Places

SHARED = ("sharedfile", "ext", "rbd", "gluster", "diskless")
_Accounts = t.Mapping[str, Account]


def first_unsafe(
    places: Places, hosts: t.Iterable[str], more: t.Mapping[str, t.Sequence[KnownVm]], accounts: _Accounts
) -> str:
    """The first of the hosts whose VMs could not all go elsewhere, "" if there is none.

    more: VMs that hosts have in addition. accounts: those that differ from the places'.
    """
    forced = places.forced()
    own = places.vms_by_host()
    for host in hosts:
        if not _could_go(forced, host, [*own.get(host, ()), *more.get(host, ())], accounts):
            return host
    return ""


def _could_go(places: Places, host: str, vms: t.Sequence[KnownVm], accounts: _Accounts) -> bool:
    group = places.known.hosts[host].group
    for vm in vms:
        if vm.template == REPLICATED:
            found = places.failover(Moved(vm, accounts))
            if isinstance(found, str):
                return False
            accounts = found.accounts
    others = [name for name in places.hosts_of(group) if name != host]
    shared = [vm for vm in vms if vm.template in SHARED]
    rest = [vm for vm in vms if vm.template not in SHARED and vm.template != REPLICATED]
    if not rest and _surely_fit(places, shared, others, accounts):
        return True
    for vm in shared:
        best = _best(places, vm, group, others, accounts)
        if best is None:
            return False
        accounts = best
    for vm in sorted(rest, key=lambda one: -one.memory):
        made = _anew(places, vm, group, others, accounts)
        if made is None:
            return False
        accounts = made
    return True


def _surely_fit(places: Places, vms: t.Sequence[KnownVm], others: t.Sequence[str], accounts: _Accounts) -> bool:
    """Whether VMs fit in whatever way they are spread: if none had room for one, all together would have less free."""
    if not vms:
        return True
    free = [max(0, places.account(name, accounts).free) for name in others if places.usable(name)]
    left = sum(free)
    for vm in vms:
        if left <= len(free) * vm.memory:
            return False
        left -= vm.memory
    sources = {vm.primary for vm in vms}
    return all(places.allowed(source, name) for source in sources for name in others)


def _best(
    places: Places, vm: KnownVm, group: str, others: t.Sequence[str], accounts: _Accounts
) -> t.Optional[_Accounts]:
    """The accounts after the VM has gone to where the score of the group is lowest."""
    score, best, least = places.score(group), None, 0.0
    for name in others:
        found = places.failover_to(Moved(vm, accounts), name)
        if isinstance(found, str):
            continue
        value = score.after(places.changes(found, group))
        if best is None or value <= least:
            best, least = found.accounts, value
    return best


def _anew(
    places: Places, vm: KnownVm, group: str, others: t.Sequence[str], accounts: _Accounts
) -> t.Optional[_Accounts]:
    """The accounts after the VM has been made on one of the other hosts."""
    if why_too_large(vm, places.known.groups[group]):
        return None
    for name in others:
        found = places.account(name, accounts).with_vm(vm, False)
        if not isinstance(found, str):
            return {**accounts, name: found}
    return None
