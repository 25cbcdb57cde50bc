# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What doing a step needs: the host's tools, and one function for each class of steps."""

from __future__ import annotations

import functools
import time
import typing as t

from ..hypervisor.protocol import Hypervisor
from ..model.dataset import Dataset
from ..model.desired import Policy
from ..model.errors import FlexdiskError
from ..model.vm import Vm
from ..plan.steps import Step
from ..rules import identity
from ..rules.layout import container
from ..rules.reservation import PoolGeometry
from ..zfs.commands import Zfs


class Change(t.NamedTuple):
    """A step's VM as it is before it and as it is to be after it, and how its pool computes reservations."""

    vm: Vm
    after: Vm
    geometry: PoolGeometry


class Tools:
    """What steps are done with, on one host.

    library is libzfs_core or None; containers are the places of detached disks that are known to be there. guards
    collects what protected the disks that were taken out of VMs, destroyers what destroyed volumes.
    """

    def __init__(
        self,
        zfs: Zfs,
        hypervisor: Hypervisor,
        policy: Policy,
        containers: t.Set[str],
        library: t.Any = None,  # a module without types
    ) -> None:
        self.zfs = zfs
        self.hypervisor = hypervisor
        self.capabilities = hypervisor.capabilities
        self.policy = policy
        self.library = library
        self.guards: t.Set[str] = set()
        self.destroyers: t.Set[str] = set()
        self._containers = containers

    def read(self, name: str, guid: int = 0) -> Dataset:
        """The dataset as it is now. Raises C(Changed) if another one has its name: that is not what was planned."""
        now = next((d for d in self.zfs.datasets(name) if d.name == name), None)
        if now is None:
            raise FlexdiskError("UnexpectedOutput", f"zfs get reports nothing about {name}")
        if guid and now.guid != guid:
            raise FlexdiskError("Changed", f"{name} changed since it was read: guid {now.guid}, not {guid}")
        return now

    def make_container(self, pool: str) -> None:
        """Make the place of the pool's detached disks, where it is not there."""
        place = container(pool)
        if place not in self._containers:
            # Devices of what no guest has, without partitions; illumos, which has no such property, looks for none.
            hidden = {} if self.capabilities.platform == "illumos" else {"volmode": "dev"}
            self.zfs.create_container(place, **hidden)
            self._containers.add(place)

    def settle(self, after: Vm) -> None:
        """Quota and reservation of the VM's dataset as they are to be."""
        self.zfs.set(after.root.name, quota=after.root.quota, reservation=after.root.reservation)


@functools.singledispatch
def perform(step: Step, tools: Tools, change: Change) -> None:
    """Do a step. Raises FlexdiskError where it does not end as planned.

    The files apply_*.py and those of some modules register a function for each class of steps. A run imports the files
    for the steps that it can have.
    """
    raise TypeError(f"nobody knows how to do {type(step).__name__}")


def stamp(user: t.Mapping[str, str]) -> t.Dict[str, str]:
    """mtime and serial_no of a disk that changes, ctime of one that has none."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    stamp = {"mtime": now, "serial_no": identity.next_serial(user.get("serial_no", ""))}
    return stamp if user.get("ctime") else dict(stamp, ctime=now)
