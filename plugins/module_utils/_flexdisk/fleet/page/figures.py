# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of the page: what takes a pool's space, and what takes a VM's flexible disk size, from modules' results.

All figures are bytes. The parts of a bar add up to its whole.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.sizes import MIB

_Dict = t.Mapping[str, t.Any]

DISKS, SNAPSHOTS, RESERVED, PARKED, REPLICAS, OTHER, LEFT = (
    "disks",
    "snapshots",
    "reserved",
    "parked",
    "replicas",
    "other",
    "left",
)


@dataclass(frozen=True)
class Part:
    """One part of a bar."""

    # Decides its colour.
    kind: str
    # What a reader calls it.
    label: str
    size: int


@dataclass(frozen=True)
class Pool:
    """A pool with all that takes its space."""

    name: str
    size: int
    available: int
    parts: t.Tuple[Part, ...]


@dataclass(frozen=True)
class Room:
    """What a VM's disks have of its flexible disk size."""

    # None without a flexible disk size, and so is left.
    size: t.Optional[int]
    left: t.Optional[int]
    # By how much the VM holds more than that.
    over: int
    parts: t.Tuple[Part, ...]


def pools(results: _Dict) -> t.List[Pool]:
    """Return the pools of a host. results: those of vm_info, host_info and zfs_quota."""
    reserved = {vm["uuid"]: vm["actual"]["reservation_bytes"] for vm in results["zfs_quota"]["vms"]}
    homes = {vm["uuid"]: pool for vm in results["host_info"]["host"]["vms"] for pool in vm["disks"]}
    shares: t.Dict[str, t.List[t.Tuple[int, int, int]]] = {}
    for vm in results["vm_info"]["vms"]:
        shares.setdefault(homes.get(vm["uuid"], ""), []).append(_share(vm, reserved.get(vm["uuid"], 0)))
    return [_pool(pool, shares.get(pool["name"], [])) for pool in results["host_info"]["host"]["pools"]]


def _share(vm: _Dict, reservation: int) -> t.Tuple[int, int, int]:
    """Return what a VM takes of its pool: its disks, their snapshots, and what is reserved for it beside them."""
    disks = MIB * sum(disk["refreservation"] for disk in vm["disks"])
    pinned = MIB * sum(disk["pinned"] for disk in vm["disks"])
    return disks, pinned, max(0, reservation - disks - pinned)


def _pool(pool: _Dict, shares: t.Sequence[t.Tuple[int, int, int]]) -> Pool:
    size, available = pool["size"] * MIB, pool["available"] * MIB
    parts = [
        Part(DISKS, "disks of VMs", sum(share[0] for share in shares)),
        Part(SNAPSHOTS, "their snapshots", sum(share[1] for share in shares)),
        Part(RESERVED, "reserved for VMs beside their disks", sum(share[2] for share in shares)),
        Part(PARKED, "detached disks", pool["parked"] * MIB),
        Part(REPLICAS, "replicas", pool["replicas"] * MIB),
    ]
    other = size - available - sum(part.size for part in parts)
    parts += [Part(OTHER, "other", max(0, other)), Part(LEFT, "allocatable", available)]
    return Pool(pool["name"], size, available, tuple(parts))


def room(vm: _Dict) -> Room:
    """Return the bar of a VM of vm_info. Hidden disks are outside the declared size, so they are left out."""
    shown = [disk for disk in vm["disks"] if not disk["hidden"]]
    parts = [Part(DISKS, disk_label(disk), disk["size"] * MIB) for disk in shown]
    pinned = MIB * sum(disk["pinned"] for disk in vm["disks"])
    parts += [Part(SNAPSHOTS, "snapshots", pinned)] if pinned else []
    if vm["flexible_disk_size"] is None:
        return Room(None, None, 0, tuple(parts))
    size, left = vm["flexible_disk_size"] * MIB, vm["allocatable"] * MIB
    other = size - left - sum(part.size for part in parts)
    # Each figure is rounded down to whole MiB. So much is nothing but that.
    if other > MIB * (len(vm["disks"]) + 1):
        parts.append(Part(OTHER, "other", other))
    if left > 0:
        parts.append(Part(LEFT, "allocatable", left))
    return Room(size, left, max(0, -left), tuple(parts))


def disk_label(disk: _Dict) -> str:
    """Return the name of a disk, or the last part of its volume in parentheses."""
    return str(disk["name"] or f"({disk['volume'].rsplit('/', 1)[-1]})")


def edges(parts: t.Sequence[Part], width: int) -> t.List[t.Tuple[int, int]]:
    """Return where each part begins in a bar of this width, and its width. The widths add up to the bar's, or to 0."""
    total = sum(part.size for part in parts)
    if not total:
        return [(0, 0) for _part in parts]
    spans, before = [], 0
    for part in parts:
        begin, before = before * width // total, before + part.size
        spans.append((begin, before * width // total - begin))
    return spans


def colour_classes(parts: t.Sequence[Part]) -> t.List[str]:
    """Return the class of each part, which decides its colour. Disks beside each other differ."""
    return [part.kind + ("2" if part.kind == DISKS and number % 2 else "") for number, part in enumerate(parts)]
