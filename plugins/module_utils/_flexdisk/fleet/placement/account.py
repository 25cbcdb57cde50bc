# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The resources of a host that are in use, and how VMs change them. Immutable: each step returns a new one."""

from __future__ import annotations

import typing as t

from .known import COPIED, OFFLINE, UP, KnownGroup, KnownHost, KnownVm

NO_MEMORY, NO_DISK, NO_CPU, NO_TAGS, NO_MIGRATION = "FailMem", "FailDisk", "FailCPU", "FailTags", "FailMig"
NO_POOL, NO_REPLICAS = "no such pool", "old replicas"


class Account:
    """The resources of a host.

    free: memory that is neither its own nor of running VMs, less what it lacks by its own report. reported: the free
    memory that it reports, less that of VMs that do not run, and of all that came later. disk: free. pools: free of
    each pool. cpus: its own and those of VMs. primaries and secondaries are numbers of VMs. peers: memory of replicas
    by the host where their VM runs. reserved: the most that can come from one of them. unsafe: it could not take that.
    tags: exclusive tags of its VMs, counted. location: failure domains that VMs here share with their replica, and
    wanted ones that are missing. values: what the score takes of it, once it has been worked out.
    """

    __slots__ = (
        *("host", "cpu_limit", "spindle_limit", "free", "reported", "disk", "pools", "cpus", "spindles"),
        *("primaries", "secondaries", "peers", "reserved", "unsafe", "tags", "location", "values"),
    )

    def __init__(self, host: KnownHost, group: KnownGroup) -> None:
        self.host = host
        self.cpu_limit = group.cpu_ratio * host.cpus
        self.spindle_limit = group.spindle_ratio * host.spindles
        self.free = host.memory - host.own_memory
        self.reported = host.free_memory
        self.disk = host.free_disk
        self.pools = host.pools
        self.cpus = host.own_cpus
        self.spindles = self.primaries = self.secondaries = self.reserved = self.location = 0
        self.peers: t.Dict[str, int] = {}
        self.tags: t.Dict[str, int] = {}
        self.unsafe = False
        self.values: t.Optional[t.Tuple[float, ...]] = None

    def copy(self) -> Account:
        """Another one with the same figures."""
        made: Account = Account.__new__(Account)
        made.host, made.cpu_limit, made.spindle_limit = self.host, self.cpu_limit, self.spindle_limit
        made.free, made.reported, made.disk, made.pools = self.free, self.reported, self.disk, self.pools
        made.cpus, made.spindles, made.peers, made.reserved = self.cpus, self.spindles, self.peers, self.reserved
        made.primaries, made.secondaries, made.unsafe = self.primaries, self.secondaries, self.unsafe
        made.tags, made.location, made.values = self.tags, self.location, None
        return made

    @property
    def surplus(self) -> int:
        """How many of its VMs share an exclusive tag with another one, counted by tag."""
        return sum(self.tags.values()) - len(self.tags)

    # -- VMs that were here before

    def settle(self, vms: t.Iterable[KnownVm]) -> None:
        """Enter the VMs that the host has. Memory that is missing in its report stays unavailable."""
        for vm in vms:
            self._enter(vm, 1)
            self.reported -= vm.memory if vm.state != UP else 0
        self.free -= max(0, self.free - self.host.free_memory)
        self.unsafe = self.host.free_memory < self.reserved

    def _enter(self, vm: KnownVm, times: int) -> None:
        self.primaries += times
        self.free -= times * (vm.memory if vm.state == UP else 0)
        self.cpus += times * (vm.cpus if vm.state != OFFLINE else 0)
        self.spindles += times * (vm.spindles if vm.local else 0)
        if vm.exclusive:
            self.tags = dict(self.tags)
            for tag in vm.exclusive:
                self.tags[tag] = self.tags.get(tag, 0) + times
                if not self.tags[tag]:
                    del self.tags[tag]

    # -- one VM more or less

    def without_vm(self, vm: KnownVm, location: int = 0) -> Account:
        """Return the account without the VM. location: what it adds to that of the account."""
        after = self.copy()
        after._enter(vm, -1)
        after.location -= location
        after.reported += vm.memory
        after.disk += vm.disk if vm.local else 0
        after._store(vm, -1)
        after.unsafe = after.free <= after.reserved
        return after

    def with_vm(self, vm: KnownVm, soft: bool, location: int = 0) -> t.Union[Account, str]:
        """Return the account with the VM, or why it cannot come. soft: soft limits hold, too."""
        if self._copies(vm) and vm.pool not in self.pools:
            return NO_POOL
        if vm.name in self.host.replicas and self._copies(vm):
            return NO_REPLICAS
        after = self.after_vm(vm, location)
        minimum = 0 if vm.template == COPIED else 1  # hail leaves something of everything
        if after.free < minimum:
            return NO_MEMORY
        if (after.pools[vm.pool] < 0) if self._copies(vm) else (vm.local and not vm.pool and after.disk <= 0):
            return NO_DISK
        if not soft:
            return after
        return self._soft_vm(vm, after, minimum) or after

    def after_vm(self, vm: KnownVm, location: int = 0) -> Account:
        """Return the account with the VM, regardless of limits."""
        after = self.copy()
        after._enter(vm, 1)
        after.location += location
        after.reported -= vm.memory
        after.disk -= vm.disk if vm.local else 0
        after._store(vm, 1)
        after.unsafe = after.free <= after.reserved
        return after

    def _copies(self, vm: KnownVm) -> bool:
        """Return whether the VM's disks are copied into a pool here when it comes."""
        return bool(vm.pool) and vm.home != self.host.name

    def _store(self, vm: KnownVm, times: int) -> None:
        if self._copies(vm):
            self.pools = {**self.pools, vm.pool: self.pools[vm.pool] - times * vm.disk}

    def _soft_vm(self, vm: KnownVm, after: Account, minimum: int) -> str:
        if vm.local and after.spindles > self.spindle_limit:
            return NO_DISK
        if after.free < after.reserved + minimum and not self.unsafe:
            return NO_MEMORY
        if 0 <= self.cpu_limit < after.cpus:
            return NO_CPU
        if any(tag in self.tags for tag in vm.exclusive):
            return NO_TAGS
        return NO_MEMORY if after.reported < minimum else ""
