# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a driver declares about its hypervisor, for the planner."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """The properties of a hypervisor that the planner needs."""

    name: str
    brand: str
    # Step kinds that work while a VM runs: C(grow), for hot-plug C(attach), C(create), C(detach) and C(destroy).
    live: t.FrozenSet[str]
    # Models of disks. With hot-plug, those that support it.
    models: t.Tuple[str, ...]
    # The unit of a VM's quota, in bytes.
    quota_unit: int
    # This and a volume's name make the path of a disk.
    device_prefix: str
    # 1 if a running guest releases only whole PCI devices.
    functions_per_slot: int
    # Models without a PCI slot of their own.
    slotless: t.FrozenSet[str] = frozenset()
    # Chooses the default block size.
    platform: str = "illumos"
    # The hypervisor sizes volumes, sets quotas and takes snapshots itself. Otherwise the engine does.
    keeps_storage: bool = True
    # The hypervisor destroys a volume that it is told to forget, unless the volume has been moved away before.
    removal_destroys: bool = True
    # A stop turns autoboot off, a start on.
    moves_autoboot: bool = True
    # The quota of a new VM, in bytes.
    usual_quota: int = 0
    # The pool of a new VM if none is declared.
    default_pool: str = ""
    # Types of disks.
    types: t.Tuple[str, ...] = ("thick",)
    # Options of module vm that only some hypervisors have a use for.
    new_vm_options: t.FrozenSet[str] = frozenset()
    # Tasks only read such a host.
    only_read: bool = False
    # What the driver carries out of steps (Step.abilities). Empty: everything.
    abilities: t.FrozenSet[str] = frozenset()
    # What that is, as a sentence for refusals.
    scope: str = ""
