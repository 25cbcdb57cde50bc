# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory properties that follow from ram, and the defaults of a new VM."""

from __future__ import annotations

import math
from typing import Any, Dict

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties

Payload = Dict[str, Any]
MINIMUM_SWAP = 256
NIL_UUID = "00000000-0000-0000-0000-000000000000"


def fix_memory(payload: Payload, vm: Payload, brand: str) -> None:
    """Derive max_physical_memory, max_locked_memory, max_swap and the shared memory limits."""
    if "ram" in payload and "max_physical_memory" not in payload:
        payload["max_physical_memory"] = _number(payload["ram"]) + properties.MEMORY_OVERHEAD.get(brand, 0)
    if "max_physical_memory" in payload:
        _follow(payload, vm)
        if brand in properties.OS and "tmpfs" not in payload:
            payload["tmpfs"] = _same_ratio(payload, vm)
    _raise_to_minimum(payload, vm, brand)
    _clamp(payload, vm)


def _number(value: Any) -> int:
    number = js.to_number(value)
    return 0 if math.isnan(number) else int(number)


def _follow(payload: Payload, vm: Payload) -> None:
    physical = _number(payload["max_physical_memory"])
    for key in ("max_locked_memory", "max_swap"):
        if key not in payload:
            known = key in vm and "max_physical_memory" in vm
            payload[key] = physical + (vm[key] - vm["max_physical_memory"] if known else 0)
    payload["max_swap"] = max(MINIMUM_SWAP, _number(payload["max_swap"]))
    if "max_shm_memory" not in vm:
        payload.setdefault("max_shm_memory", physical)
    for key in ("max_msg_ids", "max_sem_ids", "max_shm_ids"):
        if key not in vm:
            payload.setdefault(key, 4096)


def _same_ratio(payload: Payload, vm: Payload) -> int:
    physical = _number(payload["max_physical_memory"])
    if vm.get("max_physical_memory") and "tmpfs" in vm:
        return int(float(vm["tmpfs"]) / float(vm["max_physical_memory"]) * physical + 0.5)
    return physical


def _raise_to_minimum(payload: Payload, vm: Payload, brand: str) -> None:
    overhead = properties.MIN_MEMORY_OVERHEAD.get(brand)
    ram = payload.get("ram", vm.get("ram"))
    if overhead is None or ram is None:
        return
    for key in ("max_physical_memory", "max_locked_memory"):
        current = payload.get(key, vm.get(key))
        if current is not None and _number(ram) + overhead > _number(current):
            payload[key] = _number(ram) + overhead


def _clamp(payload: Payload, vm: Payload) -> None:
    physical = payload.get("max_physical_memory", vm.get("max_physical_memory"))
    if physical is None:
        return
    if "max_locked_memory" in payload:
        payload["max_locked_memory"] = min(_number(payload["max_locked_memory"]), _number(physical))
    if "max_swap" in payload:
        payload["max_swap"] = max(_number(payload["max_swap"]), _number(physical))


def apply_defaults(payload: Payload) -> None:
    """Fill in the defaults of a create payload."""
    payload.setdefault("owner_uuid", NIL_UUID)
    payload.setdefault("autoboot", True)
    brand = payload.setdefault("brand", "joyent")
    payload.setdefault("zpool", "zones")
    payload.setdefault("dns_domain", "local")
    payload["cpu_shares"] = min(_number(payload.get("cpu_shares", 100)), 65535)
    payload.setdefault("zfs_io_priority", 100)
    payload.setdefault("max_lwps", 2000)
    payload.setdefault("ram", 256)
    fix_memory(payload, {}, brand)
    if brand in properties.HVM:
        payload.setdefault("vcpus", 1)
    default_priv = list(properties.HVM_LIMIT_PRIV) if brand in properties.HVM else ["default"]
    payload.setdefault("limit_priv", default_priv)
    payload.setdefault("quota", 1 if brand == "bhyve" else 10)
    payload.setdefault("billing_id", NIL_UUID)
    disks = payload.get("add_disks", payload.get("disks"))
    for disk in disks if isinstance(disks, list) else []:
        if isinstance(disk, dict):
            if "disk_driver" in payload:
                disk.setdefault("model", payload["disk_driver"])
            disk.setdefault("media", "disk")
