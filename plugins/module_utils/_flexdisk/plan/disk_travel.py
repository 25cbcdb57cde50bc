# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that only the hypervisor has of a disk that leaves or returns: texts of plans, and what prevents it."""

from __future__ import annotations

import typing as t

from ..model.errors import Problems
from ..model.sizes import render_change
from ..model.vm import FILE, Disk, DiskElement, Vm, VmConfig
from ..rules import disk_element
from .resolve import Leaver, Target


def facts_of_leaver(disk: Disk) -> t.Dict[str, str]:
    """Return the property in which a leaving disk keeps its settings. check_leaving() has refused the others."""
    return {disk_element.ELEMENT_PROPERTY: disk_element.encode(disk_element.storable(disk.element))}


def facts_of_copy(disk: Disk) -> t.Dict[str, str]:
    """Return the property for a copy or clone of a disk, whose data has the same format; {} for nothing to keep."""
    return _kept(disk.element)


def facts_of_new(config: VmConfig, element: DiskElement) -> t.Dict[str, str]:
    """Return the property for a new disk until its VM has it; {} for nothing to keep. Of a VM without a dataset of its
    own, an interrupted run may leave the volume alone, and the next one attaches that.
    """
    return _kept(element) if config.prefixes else {}


def _kept(element: DiskElement) -> t.Dict[str, str]:
    value = disk_element.encode(disk_element.storable(element))
    return {disk_element.ELEMENT_PROPERTY: value} if value else {}


def lost_text(disk: Disk) -> str:
    """Return the settings that a disk loses when it leaves, as the end of a text; "" for none."""
    return _without(disk_element.storable(disk.element).lost)


def coming(config: VmConfig, disk: Disk, model: str, kind: str) -> t.Tuple[DiskElement, t.Tuple[str, ...]]:
    """Return the settings that a disk gets back when it is attached as kind, and those that its VM cannot have."""
    return disk.element, disk_element.lacking(disk.element, config, model, kind == FILE)


def replacing(config: VmConfig, disk: Disk, model: str, kind: str) -> t.Tuple[DiskElement, t.Tuple[str, ...]]:
    """Return the settings that a new disk takes over from the one that it replaces, without its data's format."""
    element, lacking = coming(config, disk, model, kind)
    secrets = [need for need in element.needs if need.startswith("secret ")]
    return element, (*lacking, *secrets, *([disk_element.FORMAT] if element.format else ()))


def without_text(element: DiskElement, lacking: t.Sequence[str]) -> str:
    """Return the settings that a disk does not get back, as the end of a text; "" for none."""
    shown = [f"its format {element.format}" if word == disk_element.FORMAT else word for word in lacking]
    return _without(shown)


def _without(items: t.Sequence[str]) -> str:
    return f", without {', '.join(items)}" if items else ""


def check_leaving(vm: Vm, leaver: Leaver, problems: Problems) -> None:
    """Refuse a disk that another part of the VM's configuration names, or whose settings cannot be kept."""
    check_mentions(vm.config, leaver.disk.path, leaver.disk.label, problems)
    check_busy(leaver.disk, leaver.disk.label, problems)
    check_keeping(leaver, problems)


def check_keeping(leaver: Leaver, problems: Problems) -> None:
    """Refuse to detach a disk whose data cannot be read without settings that it cannot keep."""
    disk = leaver.disk
    holds = () if leaver.destroy or leaver.becomes_replica else disk_element.storable(disk.element).holds
    for reason in holds if disk.path else ():
        problems.add("NotSupported", f"cannot be detached: {reason}", disk.label)


def check_mentions(config: VmConfig, path: str, label: str, problems: Problems) -> None:
    """Refuse to change a path that the configuration also names in other places, which would not follow."""
    for entry in config.disks:
        if path and entry.path == path and entry.mentions:
            text = f"the VM's configuration also names {path} in {', '.join(entry.mentions)}, which would not follow"
            problems.add("InUse", f"{text}; remove it there first", label)


def check_coming(config: VmConfig, target: Target, problems: Problems) -> None:
    """Refuse to attach a disk that the hypervisor could not open, or whose format is not known."""
    disk = target.disk
    if disk is None or target.stays:
        return
    check_known(disk, target.label, problems)
    for secret in disk_element.lacking_secrets(disk.element, config):
        text = f"is encrypted, and the hypervisor has no {secret}; define it first (virsh secret-define)"
        problems.add("ResourceNotFound", text, target.label)


def check_known(disk: Disk, label: str, problems: Problems) -> None:
    """Refuse a disk that no VM has, if its format is not known."""
    why = "" if disk.path else disk_element.why_not_known(disk.volume)
    if why:
        problems.add("NotSupported", why, label)


def check_size(target: Target, problems: Problems) -> None:
    """Refuse another size for a disk that is busy, or whose data has a size of its own."""
    disk = target.disk
    if disk is None or target.bytes == disk.size:
        return
    check_busy(disk, target.label, problems)
    if not disk_element.has_own_size(disk.element):
        return
    kind, change = disk.element.format, render_change(disk.size, target.bytes)
    text = f"{change} is refused: what lies on {disk.volume.name} is {kind}, with a size of its own that the guest sees"
    problems.add("NotSupported", f"{text}; declare no size, and resize both by hand (zfs set, qemu-img)", target.label)


def check_busy(disk: Disk, label: str, problems: Problems) -> None:
    """Refuse to resize or remove a disk that a job of the hypervisor uses. QEMU would refuse it halfway."""
    if disk.path and disk.element.busy:
        problems.add("InUse", disk.element.busy, label)


def why_cold_growth(disk: Disk) -> str:
    """Return why a running VM does not take a larger disk; "" if it does."""
    why = disk.element.unresizable if disk.path else ""
    return f"{why}, so the guest sees another size only after a start" if why else ""
