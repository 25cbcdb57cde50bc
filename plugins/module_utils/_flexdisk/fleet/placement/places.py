# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the VMs are, and one step of a move: whether it is possible, and the accounts of the hosts after it."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from .account import NO_MIGRATION, Account
from .known import COPIED, Known, KnownVm
from .score import Score

if t.TYPE_CHECKING:
    from .hail_allocation import Candidates, Demand
    from .wanted_moves import WantedMove
    from .ways import Measure, Operation, Solution, Way

Accounts = t.Mapping[str, Account]
SomePlaces = t.TypeVar("SomePlaces", bound="Places")


@dataclass(frozen=True)
class Moved:
    """A VM after some steps, and the accounts of the hosts that they have changed."""

    vm: KnownVm
    accounts: t.Mapping[str, Account]


class Places:
    """The present accounts of all hosts and places of all VMs. force: soft limits do not hold. safe: for hosts that
    were checked, whether all their VMs could go elsewhere.
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
        self._vms_by_host: t.Dict[str, t.Dict[str, KnownVm]] = {name: {} for name in known.hosts}
        for vm in self.vms.values():
            self._vms_by_host[vm.primary][vm.name] = vm
        for name, vms in self._vms_by_host.items():
            self.accounts[name].settle(vms.values())
            self.accounts[name].location = sum(map(self.location, vms.values()))

    def location(self, vm: KnownVm) -> int:
        """Failure domains that the VM shares with its replica, and wanted ones that its host is not in."""
        hosts = self.known.hosts
        here = hosts[vm.primary].locations
        if not here and not vm.wanted:
            return 0
        shared = here & hosts[vm.secondary].locations if vm.secondary else frozenset()
        return len(shared) + len(vm.wanted - here)

    def hosts_of(self, group: str) -> t.Sequence[str]:
        """Return the hosts of a group, in the order of the input."""
        return self._members[group]

    def usable(self, host: str) -> bool:
        """Return whether the host takes VMs."""
        return self.known.hosts[host].usable

    def score(self, group: t.Optional[str] = None) -> Score:
        """Return the score of a group, or of all hosts. settle() keeps it up to date."""
        if group not in self._scores:
            names = self.accounts if group is None else self.hosts_of(group)
            self._scores[group] = Score(self.accounts[name] for name in names)
        return self._scores[group]

    def begin(self, name: str) -> Moved:
        """Return the present place of a VM."""
        return Moved(self.vms[name], {})

    def changes(self, moved: Moved, group: t.Optional[str] = None) -> t.List[t.Tuple[Account, Account]]:
        """Return the hosts of a group, or all, that have other accounts after the steps: before and after."""
        every = [(self.accounts[name], account) for name, account in moved.accounts.items()]
        return [pair for pair in every if group is None or pair[0].host.group == group]

    def settle(self, moved: Moved) -> None:
        """Make the steps the present state."""
        for group, score in self._scores.items():
            score.settle(self.changes(moved, group))
        self.safe = {}
        vm = moved.vm
        if vm.name in self.vms:
            del self._vms_by_host[self.vms[vm.name].primary][vm.name]
        self.vms[vm.name] = self._vms_by_host[vm.primary][vm.name] = vm
        self.accounts.update(moved.accounts)

    def vms_on(self, host: str) -> t.Iterable[KnownVm]:
        """Return the VMs of a host."""
        return self._vms_by_host[host].values()

    def having(self, vm: KnownVm) -> Places:
        """Return the same places with other data of a VM that does not move."""
        other = copy.copy(self)
        other.vms = {**self.vms, vm.name: vm}
        other._vms_by_host = {**self._vms_by_host, vm.primary: {**self._vms_by_host[vm.primary], vm.name: vm}}
        other.safe = {}
        return other

    def duplicate(self: SomePlaces) -> SomePlaces:
        """Return an independent copy."""
        other = copy.copy(self)
        other.vms, other.accounts, other.safe = dict(self.vms), dict(self.accounts), {}
        other._vms_by_host = {name: dict(vms) for name, vms in self._vms_by_host.items()}
        other._scores = {group: score.duplicate() for group, score in self._scores.items()}
        return other

    def forced(self) -> Places:
        """Return the same places, where only physical limits hold."""
        other = copy.copy(self)
        other.force = True
        return other

    def back(self, vm: KnownVm) -> Moved:
        """Return the VM at its former place, regardless of limits."""
        now = self.vms[vm.name]
        accounts = {now.primary: self.accounts[now.primary].without_vm(now, self.location(now))}
        accounts[vm.primary] = self.account(vm.primary, accounts).after_vm(vm, self.location(vm))
        return Moved(vm, accounts)

    # -- steps; each gives what is after it, or why it cannot be

    def account(self, host: str, accounts: t.Mapping[str, Account]) -> Account:
        """Return the account of a host, where some differ from the present ones."""
        return accounts.get(host) or self.accounts[host]

    def _account(self, moved: Moved, host: str) -> Account:
        return self.account(host, moved.accounts)

    def soft(self, leaving: str) -> bool:
        """Return whether soft limits apply to what leaves the host."""
        return not self.force and self.usable(leaving)

    def allowed(self, source: str, target: str) -> bool:
        """Return whether the tags of the hosts let a VM move."""
        here, there = self.known.hosts[source].tags, self.known.hosts[target].tags
        if here <= there:
            return True
        widened = there | {tag for tag, to in self.known.moves if to in there}
        return here <= widened

    def failover_to(self, moved: Moved, target: str) -> t.Union[Moved, str]:
        """Return the VM on another host, or why it cannot go there. All hosts of its group can reach its disks."""
        vm, source = moved.vm, moved.vm.primary
        if not self.allowed(source, target):
            return NO_MIGRATION
        after = vm.at(target, vm.secondary)
        soft = self.soft(source) or (
            vm.template == COPIED and not self.force
        )  # hail is in a hurry where a host is drained
        runs = self._account(moved, target).with_vm(vm, soft, self.location(after))
        if isinstance(runs, str):
            return runs
        left = self._account(moved, source).without_vm(vm, self.location(vm))
        return Moved(after, {**moved.accounts, source: left, target: runs})

    def copied(self, vm: KnownVm, hosts: t.Sequence[str], gone: bool = False) -> t.Union[t.Mapping[str, Account], str]:
        """Return the account of a host if a copy of the VM came there. Where VMs have replicas: also that of a second
        host.

        gone: the VM itself is no longer counted on the first of them.
        """
        primary, secondary = (*hosts, "")[:2]
        before = self.vms[vm.name] if gone else None
        account = self.accounts[primary]
        account = account.without_vm(before, self.location(before)) if before else account
        runs = account.with_vm(vm, True, self.location(vm.at(primary, secondary)))
        return runs if isinstance(runs, str) else {primary: runs}

    # -- what is different where VMs are not only copied from host to host: extensions/iallocator overrides it

    def perform(self, moved: Moved, operation: Operation) -> t.Union[Moved, str]:
        """Return the state after one operation, or why it is impossible."""
        return self.failover_to(moved, operation.target)

    def is_possible(self, vm: KnownVm, operations: t.Iterable[Operation]) -> bool:
        """Return whether the operations can be carried out in this order."""
        return True

    def spans(self, group: str) -> bool:
        """Return whether the loss of a host of the group concerns another group, too."""
        return False

    def send_away(
        self, host: str, vms: t.Sequence[KnownVm], accounts: Accounts
    ) -> t.Optional[t.Tuple[t.Sequence[KnownVm], Accounts]]:
        """Return the VMs of a lost host that must be made again, and the accounts after the others have gone elsewhere;
        None if these cannot.
        """
        return vms, accounts

    def other_ways(self, wanted: WantedMove, targets: t.Sequence[str], by: Measure) -> t.Iterable[Way]:
        """Return the ways of a VM that cannot go to any host, best first."""
        return ()

    def why_no_other_way(self, wanted: WantedMove, host: str) -> str:
        """Return why a VM that cannot go to any host does not go to this one, "" if it can."""
        raise NotImplementedError

    def relocate(self, vm: KnownVm, mode: str, group: str, targets: t.Sequence[str]) -> t.Optional[Solution]:
        """Return how hail moves a VM that cannot go to any host; None for one that can."""
        return None

    def candidates(self, demand: Demand, score: Score, hosts: t.Sequence[str]) -> t.Optional[Candidates]:
        """Return where hail would place a VM with a replica; None for one without."""
        return None
