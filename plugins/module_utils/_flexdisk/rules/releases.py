# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What destroying a disk with its snapshots would give back, and to whom. All figures are bytes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.sizes import MIB
from ..model.vm import Disk, Vm
from . import space
from .reservation import PoolGeometry, automatic_reservation, overhead


@dataclass(frozen=True)
class Release:
    """pool is what the pool has more for others; allocatable what the VM's other disks can get, None without a flexible
    VM; reserved what stays with an inflexible VM as room for another disk, None without one.
    """

    pool: int
    allocatable: t.Optional[int] = None
    reserved: t.Optional[int] = None


def of_detached(disk: Disk) -> Release:
    """A detached disk gives back all that it takes: its reservation and what its snapshots hold."""
    return Release(disk.volume.used)


def of_vm(vm: Vm, geometry: PoolGeometry) -> t.Dict[str, Release]:
    """What each volume of a VM would give back, by its name, if it alone were destroyed.

    A VM's reservation is its own, so the pool gets only what the quota law gives up: what the volume needs for its
    metadata, and drift.
    """
    law, room = space.expected_quota(vm, geometry), space.allocatable(vm)
    result = {}
    for volume in vm.volumes:
        if room is None:
            result[volume.name] = Release(0, None, automatic_reservation(volume.volsize, volume.volblocksize, geometry))
            continue
        gain = volume.volsize + volume.pinned
        after = max(vm.root.refquota, law - overhead(volume.volsize, volume.volblocksize, geometry))
        if room + gain < -MIB:
            after = max(after, vm.root.quota)
        result[volume.name] = Release(max(0, vm.root.reservation - after), gain)
    return result
