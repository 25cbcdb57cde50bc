# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM is to go, the best way there, and why there is none."""

from __future__ import annotations

import typing as t

from ...model.sizes import render_exact, render_pair
from .account import NO_CPU, NO_DISK, NO_MEMORY, NO_MIGRATION, NO_POOL, NO_REPLICAS, NO_TAGS, Account
from .known import ALL, POLICIES, SECONDARY, UNALLOCABLE, Known, KnownVm
from .limits import NO_DISK_COUNT, NO_SPINDLES, why_too_large
from .places import Moved, Places
from .redundancy import made_unsafe
from .ways import FAILOVER, Measure, Operation, Way, measure, to_each


class WantedMove(t.NamedTuple):
    """A VM that shall leave hosts."""

    name: str
    # What of it shall leave: the VM (PRIMARY), its replica (SECONDARY), or what is there (ALL).
    mode: str
    # Keys of groups where it may be, in the order in which they are tried.
    ranks: t.Tuple[t.Tuple[str, ...], ...]
    # Hosts where it shall not be, which take nothing.
    leaves: t.FrozenSet[str]
    # It comes into another group, so the group's limits for VMs hold.
    enters: bool = False
    # No host there may become one whose VMs could not go elsewhere if it were lost.
    checked: bool = False


def to_leave(known: Known, names: t.Sequence[str], mode: str, leaves: t.FrozenSet[str]) -> t.List[WantedMove]:
    """Return the wanted moves of VMs that leave hosts, within the groups of the hosts where they are."""
    hosts = known.hosts
    return [WantedMove(name, mode, ((hosts[known.vms[name].primary].group,),), leaves) for name in names]


def to_change_group(known: Known, names: t.Sequence[str], keys: t.Sequence[str], checked: bool) -> t.List[WantedMove]:
    """Return the wanted moves of VMs that leave their groups for some of the groups."""
    hosts = known.hosts
    sources = {hosts[known.vms[name].primary].group for name in names}
    leaves = frozenset(name for name, host in hosts.items() if host.group in sources)
    return [WantedMove(name, ALL, ranks_of(known, keys), leaves, enters=True, checked=checked) for name in names]


def ranks_of(known: Known, keys: t.Iterable[str]) -> t.Tuple[t.Tuple[str, ...], ...]:
    """Return the groups that take VMs, in the order in which they are tried."""
    every = list(keys)
    policies = [policy for policy in POLICIES if policy != UNALLOCABLE]
    return tuple(tuple(key for key in every if known.groups[key].policy == policy) for policy in policies)


def best_way(places: Places, wanted: WantedMove) -> t.Optional[Way]:
    """Return the way after which the score of all hosts is lowest, in the first rank that has one."""
    for rank in wanted.ranks:
        ways = [way for way in (_best_in(places, wanted, key) for key in rank) if way is not None]
        if ways:
            return min(ways, key=lambda way: way.value)
    return None


def _best_in(places: Places, wanted: WantedMove, key: str) -> t.Optional[Way]:
    if why_not_group(places.known, places.vms[wanted.name], key, wanted.enters):
        return None
    for way in _ways(places, wanted, key, measure(places)):
        if not (wanted.checked and made_unsafe(places, key, way.moved)):
            return way
    return None


def why_not_group(known: Known, vm: KnownVm, key: str, enters: bool) -> str:
    """Return why a group cannot take the VM, whatever its hosts have, "" if it can."""
    if not enters:
        return ""
    missing = vm.networks - known.groups[key].networks
    return f"no network {', '.join(sorted(missing))}" if missing else why_too_large(vm, known.groups[key])


def _targets(places: Places, wanted: WantedMove, key: str) -> t.List[str]:
    return [host for host in places.hosts_of(key) if places.usable(host) and host not in wanted.leaves]


def _ways(places: Places, wanted: WantedMove, key: str, by: Measure) -> t.Iterator[Way]:
    """Yield the ways into a group, best first."""
    vm, targets = places.vms[wanted.name], _targets(places, wanted, key)
    if not vm.movable:
        yield from places.other_ways(wanted, targets, by)
    elif wanted.mode != SECONDARY:
        yield from sorted_ways(places, wanted, FAILOVER, targets, by)


def sorted_ways(places: Places, wanted: WantedMove, kind: str, targets: t.Sequence[str], by: Measure) -> t.List[Way]:
    """Return the ways of one operation to targets that have neither the VM nor its replica, best first."""
    vm = places.vms[wanted.name]
    others = [host for host in targets if host not in (vm.primary, vm.secondary)]
    return sorted(to_each(places, places.begin(vm.name), kind, others, by)[0], key=lambda way: way.value)


# -- why not


def why_nowhere(places: Places, wanted: WantedMove) -> t.Dict[str, str]:
    """Return why the VM can go to no host, by host, or by group where the group is the reason."""
    vm = places.vms[wanted.name]
    result: t.Dict[str, str] = {}
    for key in [key for rank in wanted.ranks for key in rank]:
        why = why_not_group(places.known, vm, key, wanted.enters)
        if why:
            result[places.known.groups[key].name] = explain(places, vm, "", why)
            continue
        for host in places.hosts_of(key):
            result[host] = _why_not(places, wanted, host)
    return result


def _why_not(places: Places, wanted: WantedMove, host: str) -> str:
    vm = places.vms[wanted.name]
    if not places.usable(host):
        return places.known.hosts[host].unusable
    if host in wanted.leaves:
        return "is to be left"
    if not vm.movable:
        return places.why_no_other_way(wanted, host)
    if host == vm.primary:
        return "is its host"
    outcome = places.perform(places.begin(vm.name), Operation(FAILOVER, host))
    if isinstance(outcome, str):
        return explain(places, vm, host, outcome)
    return why_unsafe(places, host, outcome) if wanted.checked else ""


def why_unsafe(places: Places, host: str, moved: Moved) -> str:
    """Return why a VM may not come to a host that has room: another host could not be lost then. "" if all could."""
    unsafe = made_unsafe(places, places.known.hosts[host].group, moved)
    return f"host {unsafe} could not be lost then: its VMs could not all go elsewhere" if unsafe else ""


def explain(places: Places, vm: KnownVm, host: str, code: str) -> str:
    """Return a reason as a message, with the figures of the VM and of the host."""
    account = places.accounts.get(host)
    if account is None:
        return _TOO_LARGE.get(code, code)
    return _with_figures(vm, account, code)


_TOO_LARGE = {
    NO_MEMORY: "its memory is outside the limits of the group",
    NO_DISK: "the size or the type of its disks is outside the limits of the group",
    NO_CPU: "its number of CPUs is outside the limits of the group",
    NO_DISK_COUNT: "its number of disks is outside the limits of the group",
    NO_SPINDLES: "its use of spindles is outside the limits of the group",
}


def _with_figures(vm: KnownVm, account: Account, code: str) -> str:
    if code == NO_MEMORY:
        reserve = f", {render_exact(account.reserved)} of them kept for failovers" if account.reserved else ""
        free = min(account.free, account.reported)
        return f"memory: {render_pair(vm.memory, free)}{reserve}"
    if code == NO_POOL:
        return f"has no pool {vm.pool}"
    if code == NO_REPLICAS:
        text = f"-e flexdisk_vm={vm.name} -e flexdisk_replica_host={account.host.name}"
        text = f"playbook replicate {text} -e flexdisk_replica_state=absent gives them up"
        return f"has replicas of it from an earlier home; {text}"
    if code == NO_DISK and vm.pool:
        return f"pool {vm.pool}: {render_pair(vm.disk, account.pools[vm.pool])}"
    if code == NO_DISK:
        spindles = f"; spindles: {vm.spindles} needed, {account.spindles} of {account.spindle_limit:.0f} used"
        return f"disk: {render_pair(vm.disk, account.disk)}{spindles}"
    if code == NO_CPU:
        return f"CPUs: {vm.cpus} needed, {account.cpus} of {max(account.cpu_limit, 0):.0f} used"
    if code == NO_TAGS:
        shared = sorted(tag for tag in vm.exclusive if tag in account.tags)
        return f"has a VM with the exclusive tag {', '.join(shared)}"
    if code == NO_MIGRATION:
        return "lacks tags that VMs of the present host need"
    return code
