# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the VMs are, and one step of a move: what it needs, and what the hosts have after it."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from .account import NO_MIGRATION, Account
from .known import COPIED, Known, KnownVm
from .score import Score


@dataclass(frozen=True)
class Moved:
    """A VM after some steps, and the accounts of the hosts that they have changed."""

    vm: KnownVm
    accounts: t.Mapping[str, Account]


class Places:
    """The present accounts of all hosts and places of all VMs. force: limits that are no physical ones do not hold.
    safe: whether the VMs of a host could all go elsewhere, of hosts that were looked at.
    """

    def __init__(self, known: Known, force: bool = False) -> None:
        self.known = known
        self.force = force
        self.vms = dict(known.vms)
        self.accounts = {name: Account(host, known.groups[host.group]) for name, host in known.hosts.items()}
        self._members: t.Dict[str, t.List[str]] = {key: [] for key in known.groups}
        for name, host in known.hosts.items():
            self._members[host.group].append(name)
        self._scores: t.Dict[t.Optional[str], Score] = {}
        self.safe: t.Dict[str, bool] = {}
        self._dropped: t.Optional[t.Tuple[KnownVm, t.Union[Moved, str]]] = None  # the last answer, which many ask for
        self._own: t.Dict[str, t.Dict[str, KnownVm]] = {name: {} for name in known.hosts}
        replicas: t.Dict[str, t.List[KnownVm]] = {}
        for vm in self.vms.values():
            self._own[vm.primary][vm.name] = vm
            if vm.secondary:
                replicas.setdefault(vm.secondary, []).append(vm)
        for name, own in self._own.items():
            self.accounts[name].settle(own.values(), replicas.get(name, ()))
            self.accounts[name].location = sum(map(self.location, own.values()))

    def location(self, vm: KnownVm) -> int:
        """Failure domains that the VM shares with its replica, and wanted ones that its host is not in."""
        hosts = self.known.hosts
        here = hosts[vm.primary].locations
        if not here and not vm.wanted:
            return 0
        shared = here & hosts[vm.secondary].locations if vm.secondary else frozenset()
        return len(shared) + len(vm.wanted - here)

    def hosts_of(self, group: str) -> t.Sequence[str]:
        """The hosts of a group, in the order in which they were told."""
        return self._members[group]

    def usable(self, host: str) -> bool:
        """Whether the host takes VMs."""
        return self.known.hosts[host].usable

    def score(self, group: t.Optional[str] = None) -> Score:
        """The sums of the hosts of a group, or of all. They follow what is settled."""
        if group not in self._scores:
            names = self.accounts if group is None else self.hosts_of(group)
            self._scores[group] = Score(self.accounts[name] for name in names)
        return self._scores[group]

    def begin(self, name: str) -> Moved:
        """A VM where it is."""
        return Moved(self.vms[name], {})

    def changes(self, moved: Moved, group: t.Optional[str] = None) -> t.List[t.Tuple[Account, Account]]:
        """The hosts of a group, or all, that have other accounts after the steps: before and after."""
        every = [(self.accounts[name], account) for name, account in moved.accounts.items()]
        return [pair for pair in every if group is None or pair[0].host.group == group]

    def settle(self, moved: Moved) -> None:
        """Let the steps be done."""
        for group, score in self._scores.items():
            score.settle(self.changes(moved, group))
        self.safe, self._dropped = {}, None
        vm = moved.vm
        if vm.name in self.vms:
            del self._own[self.vms[vm.name].primary][vm.name]
        self.vms[vm.name] = self._own[vm.primary][vm.name] = vm
        self.accounts.update(moved.accounts)

    def vms_on(self, host: str) -> t.Iterable[KnownVm]:
        """The VMs of a host."""
        return self._own[host].values()

    def having(self, vm: KnownVm) -> Places:
        """The same places, where this is what is known of a VM that stays where it is."""
        other = copy.copy(self)
        other.vms = {**self.vms, vm.name: vm}
        other._own = {**self._own, vm.primary: {**self._own[vm.primary], vm.name: vm}}
        other.safe = {}
        return other

    def duplicate(self) -> Places:
        """The same places, on which other steps can be done."""
        other = copy.copy(self)
        other.vms, other.accounts, other.safe = dict(self.vms), dict(self.accounts), {}
        other._own = {name: dict(vms) for name, vms in self._own.items()}
        other._scores = {group: score.duplicate() for group, score in self._scores.items()}
        return other

    def forced(self) -> Places:
        """The same places, where only physical limits hold."""
        other = copy.copy(self)
        other.force = True
        return other

    def back(self, vm: KnownVm) -> Moved:
        """A VM where it was before, whatever limits there are."""
        now = self.vms[vm.name]
        found = {now.primary: self.accounts[now.primary].without_vm(now, self.location(now))}
        if now.secondary:
            found[now.secondary] = self.account(now.secondary, found).without_replica(now, now.primary)
        found[vm.primary] = self.account(vm.primary, found).after_vm(vm, self.location(vm))
        if vm.secondary:
            found[vm.secondary] = self.account(vm.secondary, found).after_replica(vm, vm.primary)
        return Moved(vm, found)

    # -- steps; each gives what is after it, or why it cannot be

    def account(self, host: str, accounts: t.Mapping[str, Account]) -> Account:
        """The account of a host, where some differ from the present ones."""
        return accounts.get(host) or self.accounts[host]

    def _account(self, moved: Moved, host: str) -> Account:
        return self.account(host, moved.accounts)

    def soft(self, leaving: str) -> bool:
        """Whether limits that are no physical ones hold for what leaves the host."""
        return not self.force and self.usable(leaving)

    def allowed(self, source: str, target: str) -> bool:
        """Whether the tags of the hosts let a VM move."""
        here, there = self.known.hosts[source].tags, self.known.hosts[target].tags
        if here <= there:
            return True
        widened = there | {tag for tag, to in self.known.moves if to in there}
        return here <= widened

    def failover(self, moved: Moved) -> t.Union[Moved, str]:
        """The VM and its replica change places."""
        vm, (old, new) = moved.vm, (moved.vm.primary, moved.vm.secondary)
        if not self.allowed(old, new):
            return NO_MIGRATION
        after = vm.at(new, old)
        left = self._account(moved, old).without_vm(vm, self.location(vm))
        gone = self._account(moved, new).without_replica(vm, old)
        runs = gone.with_vm(vm, self.soft(old), self.location(after))
        if isinstance(runs, str):
            return runs
        rests = left.with_replica(vm, new, self.soft(old), there=not self.usable(old))
        if isinstance(rests, str):
            return rests
        return Moved(after, {**moved.accounts, old: rests, new: runs})

    def failover_to(self, moved: Moved, target: str) -> t.Union[Moved, str]:
        """The VM, whose disks all hosts of its group can reach, goes to another host."""
        vm, old = moved.vm, moved.vm.primary
        if not self.allowed(old, target):
            return NO_MIGRATION
        after = vm.at(target, vm.secondary)
        soft = self.soft(old) or (
            vm.template == COPIED and not self.force
        )  # hail is in a hurry where a host is drained
        runs = self._account(moved, target).with_vm(vm, soft, self.location(after))
        if isinstance(runs, str):
            return runs
        left = self._account(moved, old).without_vm(vm, self.location(vm))
        return Moved(after, {**moved.accounts, old: left, target: runs})

    def replace_secondary(self, moved: Moved, target: str) -> t.Union[Moved, str]:
        """The replica goes to another host. See drop_secondary for that of the VM."""
        vm, old = moved.vm, moved.vm.secondary
        if target == vm.primary:
            return NO_MIGRATION
        rests = self._account(moved, target).with_replica(vm, vm.primary, self.soft(old))
        if isinstance(rests, str):
            return rests
        alone = self.drop_secondary(moved)
        if isinstance(alone, str):
            return alone
        after = vm.at(vm.primary, target)
        runs = alone.accounts[vm.primary].copy()
        runs.location += self.location(after) - self.location(alone.vm)
        return Moved(after, {**alone.accounts, target: rests, vm.primary: runs})

    def drop_secondary(self, moved: Moved) -> t.Union[Moved, str]:
        """The replica has left its host. The host of the VM itself must be within its physical limits."""
        if moved.accounts:
            return self._without_secondary(moved)
        if self._dropped is None or self._dropped[0] is not moved.vm:
            self._dropped = (moved.vm, self._without_secondary(moved))
        return self._dropped[1]

    def _without_secondary(self, moved: Moved) -> t.Union[Moved, str]:
        vm, old = moved.vm, moved.vm.secondary
        after = vm.at(vm.primary, "")
        gone = self._account(moved, old).without_replica(vm, vm.primary)
        left = self._account(moved, vm.primary).without_vm(vm, self.location(vm))
        runs = left.with_vm(vm, False, self.location(after))
        if isinstance(runs, str):
            return runs
        return Moved(after, {**moved.accounts, old: gone, vm.primary: runs})

    def copied(self, vm: KnownVm, hosts: t.Sequence[str], gone: bool = False) -> t.Union[t.Mapping[str, Account], str]:
        """The accounts of one host, or of a host and that of the replica, if a copy of the VM came there.

        gone: the VM itself, which has no replica, is no longer counted on the first of them.
        """
        primary, secondary = hosts[0], hosts[1] if len(hosts) > 1 else ""
        there = vm.at(primary, secondary)
        before = self.vms[vm.name] if gone else None
        account = self.accounts[primary]
        account = account.without_vm(before, self.location(before)) if before else account
        runs = account.with_vm(vm, True, self.location(there))
        if isinstance(runs, str):
            return runs
        if not secondary:
            return {primary: runs}
        rests = self.accounts[secondary].with_replica(vm, primary, True)
        return rests if isinstance(rests, str) else {primary: runs, secondary: rests}
