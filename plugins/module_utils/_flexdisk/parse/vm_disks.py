# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arguments of vm_disks: a VM with the list of its disks."""

from __future__ import annotations

import typing as t

from ..model.desired import DiskDeclaration, VmDisksDeclaration
from ..model.errors import Problem, Problems
from .disk_entry import parse_disk_entry
from .values import Raw, check_vm, optional_quota, optional_size


def parse_vm_disks(raw: Raw) -> t.Tuple[VmDisksDeclaration, t.List[Problem]]:
    """Return one entry of O(vms), and all its problems."""
    vm = str(raw.get("vm") or "")
    problems = Problems(vm)
    check_vm(vm, problems)
    flexible = optional_size(raw.get("flexible_disk_size"), "flexible_disk_size", problems)
    quota = optional_quota(raw.get("quota"), problems)
    entries = raw.get("disks")
    disks = None if entries is None else tuple(_disk(problems, *numbered) for numbered in enumerate(entries))
    if disks is not None:
        _check_list(problems, disks)
    unlisted = raw.get("unlisted") or "refuse"
    return VmDisksDeclaration(vm, flexible, quota, unlisted, disks, bool(raw.get("adopt"))), problems


def _disk(problems: Problems, number: int, raw: Raw) -> DiskDeclaration:
    label = str(raw.get("name") or raw.get("uuid") or f"disks[{number}]")
    if not (raw.get("name") or raw.get("uuid")):
        problems.add("InvalidArgument", "a disk needs a name or a uuid", label)
    return parse_disk_entry(raw, label, problems)


def _check_list(problems: Problems, disks: t.Sequence[DiskDeclaration]) -> None:
    """Check what concerns the whole list of disks."""
    _check_twice((disk.name for disk in disks), "name", problems)
    _check_twice((disk.uuid for disk in disks), "uuid", problems)
    present = [disk for disk in disks if disk.present]
    _check_one(problems, "size=remaining", [disk.label for disk in present if disk.remaining])
    _check_one(problems, "boot: true", [disk.label for disk in present if disk.boot])
    by_slot: t.Dict[str, t.List[str]] = {}
    for disk in present:
        if disk.pci_slot:
            by_slot.setdefault(disk.pci_slot, []).append(disk.label)
    for slot, labels in by_slot.items():
        if len(labels) > 1:
            problems.add("InvalidArgument", f'pci_slot "{slot}" is asked for by {" and ".join(labels)}')


def _check_twice(values: t.Iterable[str], key: str, problems: Problems) -> None:
    """Refuse a name or uuid that two disks have. key: which of the two."""
    seen: t.Set[str] = set()
    for value in filter(None, values):
        if value in seen:
            problems.add("InvalidArgument", f"two disks have the {key} {value}", value)
        seen.add(value)


def _check_one(problems: Problems, key: str, labels: t.Sequence[str]) -> None:
    if len(labels) > 1:
        problems.add("InvalidArgument", f"only one disk of a VM can have {key}, not {', '.join(labels)}")
