# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that a running guest has with another size than their volumes, or not at all, although the VM has them."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.errors import FlexdiskError, Problems
from ..model.sizes import render_apart
from .disk_steps import AttachDisk, CreateDisk, DiskDeparture, EditDisks, Resize
from .steps import VmPlan
from .vm_steps import Recover

# Steps after which it is asked what the guest has.
_OF_DISKS = (AttachDisk, CreateDisk, DiskDeparture, EditDisks, Recover, Resize)
_WAY_OUT = "a stop and a start of the VM"


def compared(plan: VmPlan, sizes: t.Mapping[str, int]) -> VmPlan:
    """Return the plan of a running VM, with warnings about disks whose size its guest does not have.

    A disk that the plan makes larger is no such disk: the guest is told then. One that the guest lacks cannot grow.

    Args:
        sizes: the bytes of the disks that the guest has, by their paths.
    """
    problems, warnings = Problems(plan.name), list(plan.warnings)
    resized = {step.path for step in plan.steps if isinstance(step, Resize)}
    staying = {disk.path for disk in plan.after.disks}
    for disk in (disk for disk in plan.before.disks if disk.path in staying):
        if disk.path not in sizes and disk.path in resized:
            text = f"the running VM does not have the disk, so it cannot be told a size; {_WAY_OUT} gives it the disk"
            problems.add("VmNotStopped", text, disk.label)
        elif disk.path not in sizes:
            warnings.append(f"{plan.name}: the running VM does not have {disk.label}; {_WAY_OUT} gives it the disk")
        elif sizes[disk.path] != disk.size and disk.path not in resized:
            text = "the running VM still has %s, and its volume has %s" % render_apart(sizes[disk.path], disk.size)
            warnings.append(f"{plan.name}: disk {disk.label}: {text}; {_WAY_OUT} gives it the size of the volume")
    return _refused(plan, problems) if problems else replace(plan, warnings=tuple(warnings))


def unknown(plan: VmPlan, why: FlexdiskError) -> VmPlan:
    """Return the plan of a running VM of which nobody knows what its guest has. It is refused if that must be known."""
    if any(isinstance(step, _OF_DISKS) for step in plan.steps):
        problems = Problems(plan.name)
        problems.add(why.code, why.message)
        return _refused(plan, problems)
    return replace(plan, warnings=(*plan.warnings, f"{plan.name}: {why.message}"))


def _refused(plan: VmPlan, problems: Problems) -> VmPlan:
    return VmPlan(plan.vm, plan.before, plan.before, (), tuple(problems))
