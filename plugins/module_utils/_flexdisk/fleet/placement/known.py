# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a planner knows of hosts, host groups and VMs. Memory and disks are MiB."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

PREFERRED, LAST_RESORT, UNALLOCABLE = "preferred", "last_resort", "unallocable"
POLICIES = (PREFERRED, LAST_RESORT, UNALLOCABLE)  # the order in which groups are taken
REPLICATED = "drbd"
MOVABLE = ("sharedfile", "ext", "rbd", "gluster", "blockdev", "diskless")  # the storage is not the host's own
TEMPLATES = (REPLICATED, "plain", "file", *MOVABLE)
COPIED = "copied"  # no word of Ganeti: the disks lie in a pool of the host, and are copied to a pool of the next one
UP, DOWN, OFFLINE = "up", "down", "offline"
PRIMARY, SECONDARY, ALL = "primary-only", "secondary-only", "all"  # what of VMs leaves a host
MODES = (PRIMARY, SECONDARY, ALL)


class Size(t.NamedTuple):
    """A limit of a group for one VM. disk_size is that of each disk."""

    memory: int
    cpus: int
    disk_size: int
    disks: int
    spindles: int


@dataclass(frozen=True)
class KnownGroup:
    """A host group."""

    name: str
    key: str
    policy: str = PREFERRED
    networks: t.FrozenSet[str] = frozenset()
    # Pairs of minimum and maximum. A VM must fit into one of them.
    sizes: t.Tuple[t.Tuple[Size, Size], ...] = ()
    templates: t.FrozenSet[str] = frozenset(TEMPLATES)
    # Virtual CPUs for each physical one, negative for no limit.
    cpu_ratio: float = -1.0
    # As cpu_ratio, for spindles.
    spindle_ratio: float = 64.0


@dataclass(frozen=True)
class KnownHost:
    """A host."""

    name: str
    group: str
    # The host is there, and takes VMs.
    usable: bool = True
    memory: int = 0
    # What the host needs itself, as own_cpus.
    own_memory: int = 0
    # What the host reports, as free_disk.
    free_memory: int = 0
    disk: int = 0
    free_disk: int = 0
    cpus: int = 0
    own_cpus: int = 0
    spindles: int = 0
    # Those that restrict moves.
    tags: t.FrozenSet[str] = frozenset()
    # Its failure domains.
    locations: t.FrozenSet[str] = frozenset()
    # What is free in each pool that VMs can name.
    pools: t.Mapping[str, int] = field(default_factory=dict)
    # Why the host is not usable.
    unusable: str = "is drained, offline or takes no VMs"
    # VMs whose replicas here are those of an earlier home.
    replicas: t.FrozenSet[str] = frozenset()


@dataclass(frozen=True)
class KnownVm:
    """A VM."""

    name: str
    primary: str
    # The host of its replica, "" for none.
    secondary: str = ""
    memory: int = 0
    cpus: int = 0
    spindles: int = 0
    template: str = REPLICATED
    disks: t.Tuple[int, ...] = ()
    # What it takes on each of its hosts.
    disk: int = 0
    state: str = UP
    networks: t.FrozenSet[str] = frozenset()
    # Tags of which a host shall have one VM at most.
    exclusive: t.FrozenSet[str] = frozenset()
    # Locations where it shall be.
    wanted: t.FrozenSet[str] = frozenset()
    # The pool that has its disks, "" if hosts have one only.
    pool: str = ""
    # A host on which its disks stay when it leaves, so it gives nothing back there.
    home: str = ""

    def at(self, primary: str, secondary: str) -> KnownVm:
        """Return the VM on other hosts. Quicker than replace, for steps are counted by the ten thousand."""
        made: KnownVm = object.__new__(KnownVm)
        made.__dict__.update(self.__dict__, primary=primary, secondary=secondary)
        return made

    @property
    def local(self) -> bool:
        """Whether its disks take space of the hosts on which it is."""
        return self.template in (REPLICATED, COPIED, "plain")

    @property
    def movable(self) -> bool:
        """Whether it can go to any host, without a replica there."""
        return self.template == COPIED or self.template in MOVABLE


@dataclass(frozen=True)
class Known:
    """All groups by key, hosts and VMs by name, in the order of the input.

    moves: pairs of host tags, from and to, that are allowed although the target lacks the first.
    """

    groups: t.Mapping[str, KnownGroup]
    hosts: t.Mapping[str, KnownHost]
    vms: t.Mapping[str, KnownVm]
    moves: t.FrozenSet[t.Tuple[str, str]] = field(default_factory=frozenset)
