# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a driver declares about its hypervisor, for the planner to use."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """What the planner must know about a hypervisor.

    live names the step kinds that work while a VM runs: C(grow), for hot-plug C(attach), C(create), C(detach) and
    C(destroy). slotless are models without a PCI slot of their own; whole_quota is the unit in bytes of a VM's quota;
    models are those that it gives disks, and that come and go by hot-plug if any do;
    device_prefix makes a volume's name the path of its disk; functions_per_slot is 1 where a running guest gives up a
    PCI device only as a whole; platform chooses the default block size.

    usual_quota is that of a new VM, in bytes; default_pool where it is made if nothing is said. types are those that
    its disks can be of. of_new_vms are the options of module vm that only some hypervisors have a use for.

    keeps_storage: it sizes volumes, sets quotas and takes snapshots itself, else the engine does. removal_destroys: it
    destroys a volume that it is told to forget, so that this must have been moved away before. moves_autoboot: a stop
    turns autoboot off, a start on.
    """

    name: str
    brand: str
    live: t.FrozenSet[str]
    models: t.Tuple[str, ...]
    whole_quota: int
    device_prefix: str
    functions_per_slot: int
    slotless: t.FrozenSet[str] = frozenset()
    platform: str = "illumos"
    keeps_storage: bool = True
    removal_destroys: bool = True
    moves_autoboot: bool = True
    usual_quota: int = 0
    default_pool: str = ""
    types: t.Tuple[str, ...] = ("thick",)
    of_new_vms: t.FrozenSet[str] = frozenset()
