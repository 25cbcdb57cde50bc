# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a driver declares about its hypervisor, for the planner to use."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Capabilities:
    """What the planner must know of a hypervisor.

    live names the step kinds that work while a VM runs; snapshot_prefix marks the hypervisor's own snapshots;
    whole_quota is the unit in bytes of a VM's quota; device_prefix makes a volume's name the path of its disk;
    disk_device is the PCI device that disks are packed on.
    """

    name: str
    brand: str
    live: t.FrozenSet[str]
    models: t.Tuple[str, ...]
    snapshot_prefix: str
    whole_quota: int
    device_prefix: str
    disk_device: int
    functions_per_slot: int
