# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the VMs of each host could go elsewhere if it were lost, as hail 3.0.2 demands it of a whole cluster.

Their VMs are restarted on other hosts of the group. Only physical limits count.
"""

from __future__ import annotations

import typing as t

from .known import KnownVm
from .limits import why_too_large
from .places import Accounts, Moved, Places


def are_safe(
    places: Places, groups: t.Iterable[str], more: t.Mapping[str, t.Sequence[KnownVm]], accounts: Accounts
) -> bool:
    """Return whether all VMs of each host of the groups could go elsewhere.

    more: VMs that hosts have in addition. accounts: those that differ from the places'. Groups without either are as
    they were when they were looked at last.
    """
    touched = {places.known.hosts[name].group for name in (*more, *accounts)}
    for group in groups:
        hosts = places.hosts_of(group)
        if group not in touched and not places.spans(group):
            safe = all(_is_safe(places, host) for host in hosts)
        else:
            safe = all(
                _can_be_evacuated(places, host, [*places.vms_on(host), *more.get(host, ())], accounts) for host in hosts
            )
        if not safe:
            return False
    return True


def made_unsafe(places: Places, group: str, moved: Moved) -> str:
    """Return the first host of a group whose VMs could go elsewhere now, but not after a VM has moved, or ""."""
    vm = moved.vm
    for host in places.hosts_of(group):
        vms = [one for one in places.vms_on(host) if one.name != vm.name]
        after = [*vms, vm] if vm.primary == host else vms
        if not _can_be_evacuated(places, host, after, moved.accounts) and _is_safe(places, host):
            return host
    return ""


def _is_safe(places: Places, host: str) -> bool:
    if host not in places.safe:
        places.safe[host] = _can_be_evacuated(places, host, list(places.vms_on(host)), {})
    return places.safe[host]


def _can_be_evacuated(places: Places, host: str, vms: t.Sequence[KnownVm], accounts: Accounts) -> bool:
    places, group = places.forced(), places.known.hosts[host].group
    sent = places.send_away(host, vms, accounts)
    if sent is None:
        return False
    rest, accounts = sent
    others = [name for name in places.hosts_of(group) if name != host]
    for vm in sorted(rest, key=lambda one: -one.memory):
        made = _recreated(places, vm, group, others, accounts)
        if made is None:
            return False
        accounts = made
    return True


def _recreated(
    places: Places, vm: KnownVm, group: str, others: t.Sequence[str], accounts: Accounts
) -> t.Optional[Accounts]:
    """Return the accounts after the VM has been made on one of the other hosts."""
    if why_too_large(vm, places.known.groups[group]):
        return None
    for name in others:
        account = places.account(name, accounts).with_vm(vm, False)
        if not isinstance(account, str):
            return {**accounts, name: account}
    return None
