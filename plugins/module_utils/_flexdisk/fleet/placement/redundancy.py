# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

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
from .ways import FAILOVER, last_of_best, measure, to_each

SHARED = ("sharedfile", "ext", "rbd", "gluster", "diskless")
_Accounts = t.Mapping[str, Account]


def are_safe(
    places: Places, groups: t.Iterable[str], more: t.Mapping[str, t.Sequence[KnownVm]], accounts: _Accounts
) -> bool:
    """Whether all VMs of each host of the groups could go elsewhere.

    more: VMs that hosts have in addition. accounts: those that differ from the places'. Groups without either are as
    they were when they were looked at last.
    """
    touched = {places.known.hosts[name].group for name in (*more, *accounts)}
    for group in groups:
        hosts = places.hosts_of(group)
        if group not in touched and not _split(places, group):
            safe = all(_is_safe(places, host) for host in hosts)
        else:
            safe = all(_could_go(places, host, [*places.vms_on(host), *more.get(host, ())], accounts) for host in hosts)
        if not safe:
            return False
    return True


def made_unsafe(places: Places, group: str, moved: Moved) -> str:
    """The first host of a group whose VMs could go elsewhere, but not after a VM has moved, "" if there is none."""
    vm = moved.vm
    for host in places.hosts_of(group):
        vms = [one for one in places.vms_on(host) if one.name != vm.name]
        after = [*vms, vm] if vm.primary == host else vms
        if not _could_go(places, host, after, moved.accounts) and _is_safe(places, host):
            return host
    return ""


def _is_safe(places: Places, host: str) -> bool:
    if host not in places.safe:
        places.safe[host] = _could_go(places, host, list(places.vms_on(host)), {})
    return places.safe[host]


def _split(places: Places, group: str) -> bool:
    """Whether the group has a VM with its replica in another one."""
    hosts = places.known.hosts
    vms = (vm for host in places.hosts_of(group) for vm in places.vms_on(host) if vm.secondary)
    return any(hosts[vm.secondary].group != group for vm in vms)


def _could_go(places: Places, host: str, vms: t.Sequence[KnownVm], accounts: _Accounts) -> bool:
    places, group = places.forced(), places.known.hosts[host].group
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
        ways, _reasons = to_each(places, Moved(vm, accounts), FAILOVER, others, measure(places, group))
        best = last_of_best(ways)
        if best is None:
            return False
        accounts = best.moved.accounts
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
    sources = {vm.primary for vm in vms if places.known.hosts[vm.primary].tags}
    return all(places.allowed(source, name) for source in sources for name in others)


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
