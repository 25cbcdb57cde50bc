# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replicas in the account of a host: what one replica more or less changes."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.account import (
    NO_DISK,
    NO_MEMORY,
    Account,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    OFFLINE,
    REPLICATED,
    KnownVm,
)


def settle_replicas(account: Account, replicas: t.Iterable[KnownVm]) -> None:
    """Enter the replicas that the host has, after its VMs."""
    for vm in replicas:
        account.secondaries += 1
        account.spindles += vm.spindles
        _lean(account, vm, vm.primary, 1)
    account.unsafe = account.host.free_memory < account.reserved


def _lean(account: Account, vm: KnownVm, primary: str, times: int) -> None:
    account.peers = dict(account.peers)
    account.peers[primary] = account.peers.get(primary, 0) + times * backed_up(vm)
    account.reserved = max(account.peers.values(), default=0)


def without_replica(account: Account, vm: KnownVm, primary: str) -> Account:
    """Return the account without the replica of a VM that runs on the host primary."""
    after = account.copy()
    after.secondaries -= 1
    _lean(after, vm, primary, -1)
    if vm.local:
        after.disk += vm.disk
        after.spindles -= vm.spindles
    after.unsafe = after.free <= after.reserved
    return after


def with_replica(account: Account, vm: KnownVm, primary: str, soft: bool, there: bool = False) -> t.Union[Account, str]:
    """Return the account with the replica of a VM that runs on the host primary, or why it cannot come. there: its
    disks exist already.
    """
    if vm.template != REPLICATED:
        return NO_DISK
    after = after_replica(account, vm, primary)
    if after.disk <= 0 and not there:
        return NO_DISK
    if not soft:
        return after
    if after.spindles > account.spindle_limit:
        return NO_DISK
    needed = backed_up(vm)
    if needed >= account.free or needed >= account.reported or (after.unsafe and not account.unsafe):
        return NO_MEMORY
    return after


def after_replica(account: Account, vm: KnownVm, primary: str) -> Account:
    """Return the account with the replica of a VM that runs on the host primary, regardless of limits."""
    after = account.copy()
    after.secondaries += 1
    after.disk -= vm.disk
    after.spindles += vm.spindles
    _lean(after, vm, primary, 1)
    after.unsafe = after.free <= after.reserved
    return after


def backed_up(vm: KnownVm) -> int:
    """Return the memory that the host of a VM's replica must have for it, in MiB."""
    return 0 if vm.state == OFFLINE else vm.memory
