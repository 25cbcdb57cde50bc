# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much space the destruction of a disk with its snapshots would release, and for whom. All figures are bytes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..model.sizes import MIB
from ..model.vm import Disk, Vm
from . import space
from .reservation import PoolGeometry, automatic_reservation, overhead


@dataclass(frozen=True)
class Release:
    """pool: for everybody in the pool. allocatable: for other disks of the VM, None for an inflexible VM. reserved:
    what an inflexible VM keeps as room for another disk, None for a flexible one.
    """

    pool: int
    allocatable: t.Optional[int] = None
    reserved: t.Optional[int] = None


def of_detached(disk: Disk) -> Release:
    """Return what a detached disk releases: its reservation and what its snapshots hold."""
    return Release(disk.volume.used)


def of_vm(vm: Vm, geometry: PoolGeometry) -> t.Dict[str, Release]:
    """Return what each volume of a VM would release, by its name, if it alone were destroyed.

    A VM keeps its reservation, so the pool gets only what the quota law gives up: the overhead of the volume, and
    drift.
    """
    if vm.config.prefixes:  # there is no quota law without a dataset of the VM
        return {volume.name: Release(volume.used) for volume in vm.volumes}
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
