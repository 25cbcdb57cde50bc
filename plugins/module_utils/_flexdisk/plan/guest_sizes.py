# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What running guests have otherwise than their VMs: disks of another size, none, or one that the VM does not have."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.errors import FlexdiskError, Problems
from ..model.sizes import render_apart
from ..model.vm import GuestDisk
from .disk_steps import AttachDisk, CreateDisk, DestroyDetached, DiskArrival, DiskDeparture, EditDisks, Resize
from .steps import Step, VmPlan
from .vm_steps import Recover

# Steps after which it is asked what the guest has.
_OF_DISKS = (AttachDisk, CreateDisk, DiskDeparture, EditDisks, Recover, Resize)
# Steps that give a volume to a VM, or take it away.
_OF_VOLUMES = (DestroyDetached, DiskArrival, DiskDeparture)
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
    if asked(plan) is not None or any(isinstance(step, _OF_DISKS) for step in plan.steps):
        problems = Problems(plan.name)
        problems.add(why.code, why.message)
        return _refused(plan, problems)
    return replace(plan, warnings=(*plan.warnings, f"{plan.name}: {why.message}"))


def asked(plan: VmPlan) -> t.Optional[str]:
    """Return the UUID of the VM that free() must know, "" for all VMs, and None if it need not be asked."""
    steps = [step for step in plan.steps if isinstance(step, _OF_VOLUMES)] if plan.before.config.prefixes else []
    if any(_unused(step, plan) for step in steps):
        return ""
    arrives = any(isinstance(step, DiskArrival) for step in steps)
    return plan.vm if arrives and not plan.stops else None


def free(plan: VmPlan, opened: t.Sequence[GuestDisk]) -> VmPlan:
    """Return the plan, refused if a running VM has open what its configuration does not say, and the plan needs it.

    That is a volume that looks unused, or the place of a disk that comes. opened: what these VMs have open.
    """
    problems, keys = Problems(plan.name), {entry.key for entry in plan.before.config.disks}
    opened = [one for one in opened if not (plan.stops and one.vm == plan.vm)]
    mine = {one.key for one in opened if one.vm == plan.vm and one.key not in keys}
    for step in (step for step in plan.steps if isinstance(step, _OF_VOLUMES)):
        for name, one in ((name, one) for name in _unused(step, plan) for one in opened if name in one.volumes):
            text = f"{name} looks unused, but the running VM {one.label} has it as {one.key or 'a device'}"
            problems.add("InUse", f"{text}; a stop and a start of that VM ends this", step.disk)
        if isinstance(step, DiskArrival) and step.attachment.pci_slot in mine:
            text = f"the running VM still has a disk at {step.attachment.pci_slot} that its configuration lacks"
            problems.add("InUse", f"{text}; a stop and a start of the VM ends this", step.disk)
    return _refused(plan, problems) if problems else plan


def _unused(step: Step, plan: VmPlan) -> t.List[str]:
    """Return the volumes of a step that the VM has beside its disks."""
    unused = {disk.volume.name for disk in plan.before.orphans}
    return [name for name in dict.fromkeys(step.volumes) if name in unused]


def _refused(plan: VmPlan, problems: Problems) -> VmPlan:
    return VmPlan(plan.vm, plan.before, plan.before, (), tuple(problems))
