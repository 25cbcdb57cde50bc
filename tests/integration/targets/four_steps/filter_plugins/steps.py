# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests compute by themselves, from what zfs prints and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
VOLATILE = ("ctime", "mtime", "serial_no")
Datasets = dict[str, dict[str, Any]]


def datasets(text: str) -> Datasets:
    """`zfs get -Hp -o name,property,value` as a dictionary by dataset and property; figures are integers."""
    found: Datasets = {}
    for line in text.splitlines():
        name, key, value = line.split("\t")
        found.setdefault(name, {})[key] = int(value) if value.isdigit() else value
    return found


def law(found: Datasets, root: str, flexible: int | None) -> int:
    """Bytes of quota and reservation of a VM's dataset by RFD 154: q + F + RESV - SIZE, or q + RESV without F.

    A volume without a reservation counts as another of its size has one; a file system with a disk's file, as that.
    """
    volumes = [d for name, d in found.items() if name.startswith(root + "/") and d["type"] == "volume"]
    thick = {(d["volsize"], d["volblocksize"]): d["refreservation"] for d in volumes if d["refreservation"]}
    reserved: int = sum(d["refreservation"] or thick[d["volsize"], d["volblocksize"]] for d in volumes)
    files = [d for name, d in found.items() if name.startswith(root + "/") and _holds_a_disk(d)]
    reserved += sum(d["refreservation"] for d in files)
    quota: int = found[root]["refquota"]
    if flexible is None:
        return quota + reserved
    sizes: int = sum(d["volsize"] for d in volumes) + sum(d["flexdisk:size"] for d in files)
    return quota + flexible * MIB + reserved - sizes


def _holds_a_disk(dataset: dict[str, Any]) -> bool:
    return dataset["type"] == "filesystem" and dataset.get("flexdisk:type") == "file"


def comparable(vms: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The VMs of a real result without what check mode cannot know and documents: stamps, the uuids of new disks, and
    free_space after a disk with snapshots shrank."""
    result = copy.deepcopy(vms)
    for vm, twin in zip(result, like, strict=True):
        if "free_space" not in twin:
            del vm["free_space"]
        for where in ("disks", "parked"):
            for disk, other in zip(vm[where], twin[where], strict=True):
                for key in (*VOLATILE, *(["uuid"] if "uuid" not in other else [])):
                    disk.pop(key, None)
    return result


def comparable_disks(disks: list[dict[str, Any]], like: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The disks of a real result without what check mode cannot know."""
    unknown = [
        (set(disk) - set(twin)) & {*VOLATILE, "uuid", "volume", "path"} for disk, twin in zip(disks, like, strict=True)
    ]
    return [{k: v for k, v in disk.items() if k not in keys} for disk, keys in zip(disks, unknown, strict=True)]


class FilterModule:
    """Filters for the targets that depend on four_steps."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"datasets": datasets, "law": law, "comparable": comparable, "comparable_disks": comparable_disks}
