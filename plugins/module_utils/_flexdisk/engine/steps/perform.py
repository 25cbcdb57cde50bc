# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What functions that carry out steps need: the tools of the host, and the VM before and after the step."""

from __future__ import annotations

import contextlib
import time
import typing as t

from ...hypervisor.protocol import Hypervisor
from ...model.dataset import Dataset
from ...model.desired import Policy
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...plan.steps import Step
from ...rules import identity, released_identity
from ...rules.layout import container
from ...rules.reservation import PoolGeometry
from ...zfs.commands import Zfs
from ..host.container import make_container


class Change(t.NamedTuple):
    """The VM before and after a step."""

    vm: Vm
    after: Vm
    """As predicted."""
    geometry: PoolGeometry
    """How its pool computes reservations."""


class Tools:
    """The tools that steps use on one host.

    Args:
        containers: the containers that are known to exist.
        library: libzfs_core or None.
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
        """What has protected the disks that were removed from VMs."""
        self.destroyers: t.Set[str] = set()
        """What has destroyed volumes."""
        self._containers = containers

    def read(self, name: str, guid: int = 0) -> Dataset:
        """Return the dataset as it is now. Raises FlexdiskError Changed if its guid is not the given one."""
        now = next((d for d in self.zfs.datasets(name) if d.name == name), None)
        if now is None:
            raise FlexdiskError("UnexpectedOutput", f"zfs get reports nothing about {name}")
        if guid and now.guid != guid:
            raise FlexdiskError("Changed", f"{name} changed since it was read: guid {now.guid}, not {guid}")
        return now

    def make_container(self, pool: str) -> None:
        """Create the container of the pool if it does not exist."""
        place = container(pool)
        if place not in self._containers:
            make_container(self.zfs, self.capabilities, pool)
            self._containers.add(place)

    @contextlib.contextmanager
    def unused(self, vm: Vm, volume: str) -> t.Iterator[None]:
        """Keep a volume from being used, while it changes, where a configuration can name any volume."""
        guests = self.hypervisor.guests if vm.config.prefixes else None
        with contextlib.ExitStack() as stack:
            if guests is not None:
                stack.enter_context(guests.unused(vm.config.uuid, volume))
            yield

    def settle(self, after: Vm) -> None:
        """Give the VM's dataset the quota and reservation that after has. Some VMs have no dataset."""
        if after.config.prefixes:
            return
        self.zfs.set(after.root.name, quota=after.root.quota, reservation=after.root.reservation)

    def make_room(self, after: Vm) -> None:
        """Set the quota of the VM's dataset, if it has one, to that of after, before a disk comes."""
        if not after.config.prefixes:
            self.zfs.set(after.root.name, quota=after.root.quota)

    def lower_reservation(self, vm: Vm, figure: int) -> None:
        """Give what a disk took (bytes) of the reservation of the VM's dataset, if it has one, back to the pool."""
        if not vm.config.prefixes:
            self.zfs.set(vm.root.name, reservation=max(0, vm.root.reservation - figure))


# Carries out a step. Raises FlexdiskError if it does not end as planned. Any: each function takes its own class.
Perform = t.Callable[[t.Any, Tools, Change], None]
# Who carries out the steps that a module can have, by the class of the step.
Performers = t.Mapping[t.Type[Step], Perform]


def stamp(user: t.Mapping[str, str]) -> t.Dict[str, str]:
    """Return new stamps for a changed disk: mtime and serial_no, and ctime if it has none."""
    known = released_identity.stamp_properties(user)
    now = identity.render_time(time.time())
    stamp = {"mtime": now, "serial_no": identity.next_serial(known.get("serial_no", ""))}
    return stamp if user.get("ctime") else dict(stamp, ctime=known.get("ctime") or now)
