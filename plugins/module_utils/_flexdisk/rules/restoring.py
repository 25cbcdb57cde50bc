# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What hosts report of restores in place that were interrupted while volumes changed places."""

from __future__ import annotations

import typing as t

from ..model.vm import Vm
from . import exchange, restore

_Dict = t.Dict[str, t.Any]


def restoring(vm: Vm) -> t.List[_Dict]:
    """Return the disks of a VM whose exchange has begun and not ended, with what the command had said that ends it."""
    every = [disk.volume for disk in (*vm.disks, *vm.orphans, *vm.detached)]
    result = []
    for volume in every:
        begun = exchange.exchange_of(volume)
        if begun is None:
            continue
        origin = restore.decode_origin(volume.user.get(restore.RESTORED, ""))
        named = [one.user.get("name", "") for one in every if one.user.get("uuid") == begun.disk]
        result.append(
            {
                "disk": begun.disk,
                "name": next(filter(None, named), ""),
                "new_name": begun.name,
                "volume": f"{vm.root.name}/{begun.place}",
                "snapshot": origin.snapshot if origin is not None else "",
                "together": begun.together,
            }
        )
    return sorted(result, key=lambda one: str(one["disk"]))
