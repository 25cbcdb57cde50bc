# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Warnings for the user about a planned VM."""

from __future__ import annotations

import typing as t

from ..model.desired import VmDisksDeclaration
from ..model.sizes import MIB, render_bytes, render_exact
from ..model.vm import Vm
from ..rules import slots, space
from ..rules.unmanaged import former_vm, of_former_vm, unmanaged, unread
from ..rules.unused import dangling, left_unused
from .departures import why_still_unused
from .resolve import Resolved


def warnings_of(after: Vm, spec: VmDisksDeclaration, resolved: Resolved) -> t.Iterator[str]:
    """Yield all warnings. Each begins with the VM as the task names it. after: the VM after the plan."""
    vm = resolved.vm
    for text in (*_space(after), *_entries(resolved), *_volumes(vm), *_slots(vm, after), *_unattached(resolved)):
        yield f"{spec.vm}: {text}"


def _space(after: Vm) -> t.Iterator[str]:
    room = space.allocatable(after)
    if room is not None and room < -MIB:
        yield (
            f"disks and snapshots take {render_bytes(-room)} more than flexible_disk_size; no disk can be added or "
            "resized until snapshots are deleted or it is raised to "
            f"{render_exact(space.smallest_flexible_mib(after) - after.hidden_mib)}"
        )


def _entries(resolved: Resolved) -> t.Iterator[str]:
    for target in resolved.targets:
        if target.spec.dangerous_allow_shrink and (target.disk is None or target.bytes >= target.disk.size):
            yield f"disk {target.label}: dangerous_allow_shrink is set, but nothing shrinks; remove it"


def _volumes(vm: Vm) -> t.Iterator[str]:
    for path in vm.missing:
        yield f"the volume of {path} does not exist"
    for name in left_unused(vm):
        why = why_still_unused(vm, name)
        if why:
            yield f"{name} is detached, and the configuration goes on to name it as unused: {why}"
    yield from dangling(vm).values()
    yield from unread(vm)
    yield from unmanaged(vm)


def _slots(vm: Vm, after: Vm) -> t.Iterator[str]:
    placed = [(disk, slots.parse_slot(disk.pci_slot)) for disk in after.disks if disk.pci_slot]
    unseen = slots.unseen((slot for _disk, slot in placed), after.config.pci)
    for disk in (disk for disk, slot in placed if slot in unseen):
        text = f"{disk.label} is at {disk.pci_slot}, but function 0 of that device is empty"
        yield f"{text}, so the guest will not find it"
    for label, place, other in slots.clashes(((disk.label, slot) for disk, slot in placed), after.config.pci):
        yield f"{label} is at {place}, and so is {other}: the VM will not start until pci_slot moves the disk"
    for path in vm.config.unplugged:
        yield f"the running VM does not have {path}; it will after its next start"


def _unattached(resolved: Resolved) -> t.Iterator[str]:
    claimed = [target.disk for target in resolved.targets] + [leaver.disk for leaver in resolved.leavers]
    for orphan in resolved.vm.orphans:
        if any(disk is orphan for disk in claimed):
            continue
        if former_vm(resolved.vm, orphan):
            yield of_former_vm(resolved.vm, orphan)
        else:
            yield f"volume {orphan.volume.name} is not in the VM's configuration"
