# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the replica of a VM changes on each host. Only on few hosts that depends on the host of the VM."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.account import Account
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import KnownVm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.places import Places
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import (
    FAILOVERS,
    LOCATION,
    Delta,
    Score,
)

from .books import backed_up, with_replica
from .pairs import Seconds

_Change = t.Union[Delta, str]
_Accounts = t.Mapping[str, Account]


class Replicas:
    """The changes on some hosts, or why a replica is impossible there. soft: soft limits hold. left: hosts that the VM
    or its replica leaves, where the change can be anything.
    """

    def __init__(
        self,
        places: Places,
        vm: KnownVm,
        hosts: t.Sequence[str],
        soft: bool,
        score: Score,
        left: t.Collection[str] = (),
    ) -> None:
        self._places, self._vm, self._soft, self._score = places, vm, soft, score
        self._needed = backed_up(vm)
        self._usual = {host: self._change(places.accounts[host], "") for host in hosts}
        less = math.inf if any(host in self._usual for host in left) else max(map(self._less, hosts), default=0.0)
        self.seconds = Seconds(self._usual, less)
        self._peers: t.Dict[str, t.List[str]] = {}
        for host in hosts:
            for peer in places.accounts[host].peers:
                self._peers.setdefault(peer, []).append(host)
        self._located = [host for host in hosts if places.known.hosts[host].locations]

    def _change(self, account: Account, primary: str, counted: t.Optional[Account] = None) -> _Change:
        """Return what a replica changes on a host. Of the VM's host only the memory counts that it may need then."""
        vm, needed = self._vm, self._needed + account.peers.get(primary, 0)
        key = (account, counted, self._soft, vm.template, vm.disk, vm.spindles, self._needed, needed)
        if key not in self._score.changes:
            rests = with_replica(account, vm, primary, self._soft)
            change = rests if isinstance(rests, str) else self._score.delta(counted or account, rests)
            self._score.changes[key] = change
        return self._score.changes[key]

    def _less(self, host: str) -> float:
        """By how much the spread of the memory for failovers can be lower with more of it than usual on a host. With a
        more it changes by a * a * (1 - 1 / n) + 2 * a * d, where d is how far the host is from the mean.
        """
        change, account = self._usual[host], self._places.accounts[host]
        if isinstance(change, str):
            return 0.0
        part = 1 - 1 / self._score.count
        far = self._score.deviation_from_mean(account)
        usual = change.sums[FAILOVERS]
        lowest = max(usual, -far / part) if part else usual
        return part * (usual * usual - lowest * lowest) + 2 * far * (usual - lowest)

    def others(self, primary: str, before: _Accounts, counted: _Accounts) -> t.Dict[str, _Change]:
        """The changes that depend on the host of the VM. before: accounts that differ from the places', counted: those
        from which the change is counted.
        """
        changes: t.Dict[str, _Change] = {}
        for host in self._peers.get(primary, ()):
            account = self._places.accounts[host]
            reserved = max(account.reserved, account.peers[primary] + self._needed)
            if host == primary or reserved == max(account.reserved, self._needed):
                continue
            changes[host] = self._change(account, primary)
        for host, account in counted.items():
            if host in self._usual and host != primary:
                changes[host] = self._change(self._places.account(host, before), primary, account)
        return self._with_locations(primary, changes)

    def _with_locations(self, primary: str, changes: t.Dict[str, _Change]) -> t.Dict[str, _Change]:
        here = self._places.known.hosts[primary].locations
        for host in self._located if here else ():
            shared = len(here & self._places.known.hosts[host].locations)
            change = changes.get(host, self._usual[host])
            if shared and host != primary and not isinstance(change, str):
                changes[host] = change._replace(flat=change.flat + shared * LOCATION)
        return changes
