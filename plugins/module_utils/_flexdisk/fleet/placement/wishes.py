# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM shall go, the best way there, and why there is none."""

from __future__ import annotations

import heapq
import typing as t

from ...model.sizes import render_exact, render_pair
from .account import NO_CPU, NO_DISK, NO_MEMORY, NO_MIGRATION, NO_POOL, NO_REPLICAS, NO_TAGS, Account
from .known import ALL, POLICIES, PRIMARY, REPLICATED, SECONDARY, UNALLOCABLE, Known, KnownVm
from .limits import NO_DISK_COUNT, NO_SPINDLES, why_too_large
from .places import Moved, Places
from .redundancy import made_unsafe
from .ways import FAILOVER, REPLACE, Measure, Operation, Way, measure, perform, to_each, to_pairs, to_primary


class Wish(t.NamedTuple):
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


def to_leave(known: Known, names: t.Sequence[str], mode: str, leaves: t.FrozenSet[str]) -> t.List[Wish]:
    """The wishes of VMs that leave hosts, within the groups of the hosts where they are."""
    hosts = known.hosts
    return [Wish(name, mode, ((hosts[known.vms[name].primary].group,),), leaves) for name in names]


def hosts_to_leave(known: Known, names: t.Sequence[str], mode: str) -> t.FrozenSet[str]:
    """The hosts that VMs leave, where a request has only their names. With ALL that is what all VMs have in common, if
    there is anything: other hosts of theirs can take VMs.
    """
    vms = [known.vms[name] for name in names]
    primaries = [{vm.primary} if mode != SECONDARY else set() for vm in vms]
    secondaries = [{vm.secondary} if mode != PRIMARY and vm.secondary else set() for vm in vms]
    hosts = [one | other for one, other in zip(primaries, secondaries)]
    common = frozenset(set.intersection(*hosts)) if hosts else frozenset()
    return common if mode == ALL and common else frozenset().union(*hosts)


def to_change_group(known: Known, names: t.Sequence[str], keys: t.Sequence[str], checked: bool) -> t.List[Wish]:
    """The wishes of VMs that leave their groups for some of the groups."""
    hosts = known.hosts
    sources = {hosts[known.vms[name].primary].group for name in names}
    leaves = frozenset(name for name, host in hosts.items() if host.group in sources)
    return [Wish(name, ALL, ranks_of(known, keys), leaves, enters=True, checked=checked) for name in names]


def ranks_of(known: Known, keys: t.Iterable[str]) -> t.Tuple[t.Tuple[str, ...], ...]:
    """The groups that take VMs, in the order in which they are tried."""
    every = list(keys)
    policies = [policy for policy in POLICIES if policy != UNALLOCABLE]
    return tuple(tuple(key for key in every if known.groups[key].policy == policy) for policy in policies)


def best_way(places: Places, wish: Wish) -> t.Optional[Way]:
    """The way after which the score of all hosts is lowest, in the first rank that has one."""
    for rank in wish.ranks:
        ways = [way for way in (_best_in(places, wish, key) for key in rank) if way is not None]
        if ways:
            return min(ways, key=lambda way: way.value)
    return None


def _best_in(places: Places, wish: Wish, key: str) -> t.Optional[Way]:
    if why_not_group(places.known, places.vms[wish.name], key, wish.enters):
        return None
    for way in _ways(places, wish, key, measure(places)):
        if not (wish.checked and made_unsafe(places, key, way.moved)):
            return way
    return None


def why_not_group(known: Known, vm: KnownVm, key: str, enters: bool) -> str:
    """Why a group cannot take the VM, whatever its hosts have, "" if it can."""
    if not enters:
        return ""
    missing = vm.networks - known.groups[key].networks
    return f"no network {', '.join(sorted(missing))}" if missing else why_too_large(vm, known.groups[key])


def _targets(places: Places, wish: Wish, key: str) -> t.List[str]:
    return [host for host in places.hosts_of(key) if places.usable(host) and host not in wish.leaves]


def _ways(places: Places, wish: Wish, key: str, by: Measure) -> t.Iterator[Way]:
    """The ways into a group, best first."""
    vm, targets = places.vms[wish.name], _targets(places, wish, key)
    if vm.movable and wish.mode != SECONDARY:
        yield from _sorted(places, wish, FAILOVER, targets, by)
    elif vm.template == REPLICATED and wish.mode == PRIMARY:
        yield from _over(places, vm, by)
    elif vm.template == REPLICATED and wish.mode == SECONDARY:
        yield from _sorted(places, wish, REPLACE, targets, by)
    elif vm.template == REPLICATED:
        yield from heapq.merge(*_all(places, wish, targets, by), key=lambda way: way.value)


def _sorted(places: Places, wish: Wish, kind: str, targets: t.Sequence[str], by: Measure) -> t.List[Way]:
    vm = places.vms[wish.name]
    others = [host for host in targets if host not in (vm.primary, vm.secondary)]
    return sorted(to_each(places, places.begin(vm.name), kind, others, by)[0], key=lambda way: way.value)


def _over(places: Places, vm: KnownVm, by: Measure) -> t.List[Way]:
    found = places.failover(places.begin(vm.name))
    if isinstance(found, str):
        return []
    return [Way(by.score.after(places.changes(found, by.group)), found, (Operation(FAILOVER),))]


def _all(places: Places, wish: Wish, targets: t.Sequence[str], by: Measure) -> t.Iterator[t.Iterable[Way]]:
    """All ways of a VM with a replica: what need not leave may stay."""
    vm = places.vms[wish.name]
    others = [host for host in targets if host not in (vm.primary, vm.secondary)]
    if vm.primary in targets:
        yield _sorted(places, wish, REPLACE, targets, by)
    if vm.secondary in targets:
        over = places.failover(places.begin(vm.name))
        if not isinstance(over, str):
            ways = to_each(places, over, REPLACE, others, by)[0]
            yield sorted((_after(Operation(FAILOVER), way) for way in ways), key=lambda way: way.value)
    seconds = [*others, *(host for host in (vm.secondary,) if host in targets and places.usable(vm.primary))]
    yield to_pairs(places, [to_primary(places, vm, host) for host in others], seconds, by)


def _after(first: Operation, way: Way) -> Way:
    return way._replace(operations=(first, *way.operations))


# -- why not


def why_nowhere(places: Places, wish: Wish) -> t.Dict[str, str]:
    """Why the VM can go to no host, by host, or by group where the group is the reason."""
    vm = places.vms[wish.name]
    found: t.Dict[str, str] = {}
    for key in [key for rank in wish.ranks for key in rank]:
        why = why_not_group(places.known, vm, key, wish.enters)
        if why:
            found[places.known.groups[key].name] = told(places, vm, "", why)
            continue
        for host in places.hosts_of(key):
            found[host] = _why_not(places, wish, host)
    return found


def why_never(vm: KnownVm, mode: str) -> str:
    """Why no VM of this kind can go, wherever, "" if it can."""
    if vm.template == REPLICATED or (vm.movable and mode != SECONDARY):
        return ""
    if vm.movable:
        return f"a VM with disks of type {vm.template} has no replica that could leave"
    return f"a VM with disks of type {vm.template} cannot leave its host: the disks are its host's own"


def _why_not(places: Places, wish: Wish, host: str) -> str:
    vm = places.vms[wish.name]
    if not places.usable(host):
        return places.known.hosts[host].unusable
    if host in wish.leaves:
        return "is to be left"
    begin = places.begin(vm.name)
    replicated = vm.template == REPLICATED
    if replicated and wish.mode == PRIMARY:
        if host != vm.secondary:
            return "has no replica of it"
        over = places.failover(begin)
        return told(places, vm, host, over) if isinstance(over, str) else ""
    if host == vm.primary:
        return "is its host" if wish.mode != SECONDARY else "is the host of the VM itself"
    if wish.mode == SECONDARY and host == vm.secondary:
        return "has its replica"
    if replicated and wish.mode == ALL:
        start = to_primary(places, vm, host)
        found: t.Union[Moved, str] = start.moved or start.why.rpartition(": ")[2]
    else:
        found = perform(places, begin, Operation(REPLACE if replicated else FAILOVER, host))
    if isinstance(found, str):
        return told(places, vm, host, found)
    if replicated and wish.mode == ALL:
        return "could take it, but with no other host for its replica" + (_SAFELY if wish.checked else "")
    return why_unsafe(places, host, found) if wish.checked else ""


def why_unsafe(places: Places, host: str, moved: Moved) -> str:
    """Why a VM may not come to a host, although it could: another one could not be lost then, "" if all could."""
    unsafe = made_unsafe(places, places.known.hosts[host].group, moved)
    return f"host {unsafe} could not be lost then: its VMs could not all go elsewhere" if unsafe else ""


_SAFELY = " so that the VMs of each host could still go elsewhere if it were lost"


def told(places: Places, vm: KnownVm, host: str, code: str) -> str:
    """A reason with the figures of the VM and of the host."""
    account = places.accounts.get(host)
    if account is None:
        return _TOO_LARGE.get(code, code)
    return _words(vm, account, code)


_TOO_LARGE = {
    NO_MEMORY: "its memory is outside the limits of the group",
    NO_DISK: "the size or the type of its disks is outside the limits of the group",
    NO_CPU: "its number of CPUs is outside the limits of the group",
    NO_DISK_COUNT: "its number of disks is outside the limits of the group",
    NO_SPINDLES: "its use of spindles is outside the limits of the group",
}


def _words(vm: KnownVm, account: Account, code: str) -> str:
    if code == NO_MEMORY:
        kept = f", {render_exact(account.reserved)} of them kept for failovers" if account.reserved else ""
        free = min(account.free, account.reported)
        return f"memory: {render_pair(vm.memory, free)}{kept}"
    if code == NO_POOL:
        return f"has no pool {vm.pool}"
    if code == NO_REPLICAS:
        words = f"-e flexdisk_vm={vm.name} -e flexdisk_replica_host={account.host.name}"
        words = f"playbook replicate {words} -e flexdisk_replica_state=absent gives them up"
        return f"has replicas of it from an earlier home; {words}"
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
