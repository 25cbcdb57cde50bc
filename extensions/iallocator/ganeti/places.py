# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where VMs and their replicas are, the steps of a move with replicas, and what differs for Ganeti's VMs."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.account import (
    NO_MIGRATION,
    Account,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.hail_allocation import (
    Candidates,
    Demand,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    REPLICATED,
    Known,
    KnownVm,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import (
    Accounts,
    Moved,
    Places,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import Score
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.wanted_moves import (
    WantedMove,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.ways import (
    FAILOVER,
    REPLACE,
    Measure,
    Operation,
    Solution,
    Way,
    last_of_best,
    measure,
    to_each,
)

from . import allocation, evacuation, ways
from .books import after_replica, settle_replicas, with_replica, without_replica

SHARED = ("sharedfile", "ext", "rbd", "gluster", "diskless")


class GanetiPlaces(Places):
    """The present accounts of all hosts and places of all VMs and their replicas."""

    def __init__(self, known: Known, force: bool = False) -> None:
        super().__init__(known, force)
        self._dropped: t.Optional[t.Tuple[KnownVm, t.Union[Moved, str]]] = None  # the last answer, which many ask for
        replicas: t.Dict[str, t.List[KnownVm]] = {}
        for vm in self.vms.values():
            if vm.secondary:
                replicas.setdefault(vm.secondary, []).append(vm)
        for host, account in self.accounts.items():
            settle_replicas(account, replicas.get(host, ()))

    def settle(self, moved: Moved) -> None:
        super().settle(moved)
        self._dropped = None

    def back(self, vm: KnownVm) -> Moved:
        now = self.vms[vm.name]
        accounts = {now.primary: self.accounts[now.primary].without_vm(now, self.location(now))}
        if now.secondary:
            accounts[now.secondary] = without_replica(self.account(now.secondary, accounts), now, now.primary)
        accounts[vm.primary] = self.account(vm.primary, accounts).after_vm(vm, self.location(vm))
        if vm.secondary:
            accounts[vm.secondary] = after_replica(self.account(vm.secondary, accounts), vm, vm.primary)
        return Moved(vm, accounts)

    def copied(self, vm: KnownVm, hosts: t.Sequence[str], gone: bool = False) -> t.Union[t.Mapping[str, Account], str]:
        accounts = super().copied(vm, hosts, gone)
        if isinstance(accounts, str) or not hosts[1:]:
            return accounts
        rests = with_replica(self.accounts[hosts[1]], vm, hosts[0], True)
        return rests if isinstance(rests, str) else {**accounts, hosts[1]: rests}

    # -- steps; each gives what is after it, or why it cannot be

    def perform(self, moved: Moved, operation: Operation) -> t.Union[Moved, str]:
        if operation.kind == REPLACE:
            return self.replace_secondary(moved, operation.target)
        return self.failover_to(moved, operation.target) if operation.target else self.failover(moved)

    def failover(self, moved: Moved) -> t.Union[Moved, str]:
        """Let the VM and its replica change places."""
        vm, (source, target) = moved.vm, (moved.vm.primary, moved.vm.secondary)
        if not self.allowed(source, target):
            return NO_MIGRATION
        after = vm.at(target, source)
        left = self._account(moved, source).without_vm(vm, self.location(vm))
        gone = without_replica(self._account(moved, target), vm, source)
        runs = gone.with_vm(vm, self.soft(source), self.location(after))
        if isinstance(runs, str):
            return runs
        rests = with_replica(left, vm, target, self.soft(source), there=not self.usable(source))
        if isinstance(rests, str):
            return rests
        return Moved(after, {**moved.accounts, source: rests, target: runs})

    def replace_secondary(self, moved: Moved, target: str) -> t.Union[Moved, str]:
        """The replica goes to another host. See drop_secondary for that of the VM."""
        vm, source = moved.vm, moved.vm.secondary
        if target == vm.primary:
            return NO_MIGRATION
        rests = with_replica(self._account(moved, target), vm, vm.primary, self.soft(source))
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
        vm, source = moved.vm, moved.vm.secondary
        after = vm.at(vm.primary, "")
        gone = without_replica(self._account(moved, source), vm, vm.primary)
        left = self._account(moved, vm.primary).without_vm(vm, self.location(vm))
        runs = left.with_vm(vm, False, self.location(after))
        if isinstance(runs, str):
            return runs
        return Moved(after, {**moved.accounts, source: gone, vm.primary: runs})

    def is_possible(self, vm: KnownVm, operations: t.Iterable[Operation]) -> bool:
        # Ganeti refuses a replica on the host where it or the VM is then, but hail plans it where a replica is in the
        # group that its VM enters.
        primary, secondary = vm.primary, vm.secondary
        for operation in operations:
            if operation.kind == REPLACE and operation.target in (primary, secondary):
                return False
            if operation.kind == REPLACE:
                secondary = operation.target
            elif not operation.target:
                primary, secondary = secondary, primary
        return True

    # -- the loss of a host

    def spans(self, group: str) -> bool:
        hosts = self.known.hosts
        vms = (vm for host in self.hosts_of(group) for vm in self.vms_on(host) if vm.secondary)
        return any(hosts[vm.secondary].group != group for vm in vms)

    def send_away(
        self, host: str, vms: t.Sequence[KnownVm], accounts: Accounts
    ) -> t.Optional[t.Tuple[t.Sequence[KnownVm], Accounts]]:
        """VMs with a replica go to its host, those on shared storage to other hosts of the group."""
        for vm in vms:
            if vm.template == REPLICATED:
                over = self.failover(Moved(vm, accounts))
                if isinstance(over, str):
                    return None
                accounts = over.accounts
        group = self.known.hosts[host].group
        others = [name for name in self.hosts_of(group) if name != host]
        shared = [vm for vm in vms if vm.template in SHARED]
        rest = [vm for vm in vms if vm.template not in SHARED and vm.template != REPLICATED]
        if not rest and self._surely_fit(shared, others, accounts):
            return rest, accounts
        for vm in shared:
            possible, _reasons = to_each(self, Moved(vm, accounts), FAILOVER, others, measure(self, group))
            best = last_of_best(possible)
            if best is None:
                return None
            accounts = best.moved.accounts
        return rest, accounts

    def _surely_fit(self, vms: t.Sequence[KnownVm], others: t.Sequence[str], accounts: Accounts) -> bool:
        """Return whether VMs fit however they are spread: if none had room for one, all together would have
        less free.
        """
        if not vms:
            return True
        free = [max(0, self.account(name, accounts).free) for name in others if self.usable(name)]
        left = sum(free)
        for vm in vms:
            if left <= len(free) * vm.memory:
                return False
            left -= vm.memory
        sources = {vm.primary for vm in vms if self.known.hosts[vm.primary].tags}
        return all(self.allowed(source, name) for source in sources for name in others)

    # -- ways of VMs that cannot go to any host

    def other_ways(self, wanted: WantedMove, targets: t.Sequence[str], by: Measure) -> t.Iterable[Way]:
        return ways.other_ways(self, wanted, targets, by)

    def why_no_other_way(self, wanted: WantedMove, host: str) -> str:
        return ways.why_not(self, wanted, host)

    def relocate(self, vm: KnownVm, mode: str, group: str, targets: t.Sequence[str]) -> t.Optional[Solution]:
        return evacuation.relocate(self, vm, mode, group, targets)

    def candidates(self, demand: Demand, score: Score, hosts: t.Sequence[str]) -> t.Optional[Candidates]:
        return allocation.pairs_for(self, demand, score, hosts) if demand.vm.template == REPLICATED else None
