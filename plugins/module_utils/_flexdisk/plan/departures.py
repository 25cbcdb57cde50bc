# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps that detach or destroy disks, and steps that remove what interrupted runs have left."""

from __future__ import annotations

import typing as t

from ..model.sizes import render_bytes, render_mib
from ..model.text import count
from ..model.vm import Disk, Vm
from ..rules import disk_element, identity, snapshots
from ..rules.layout import detached_place, within
from ..rules.unused import left_unused
from . import disk_travel
from .changes import facts_of, facts_without_marks, missing_facts, short_names
from .disk_steps import Destroy, DestroyDetached, Detach, DetachUnattached, DiscardCopy, ForgetDisk, LiftGuard
from .resolve import Leaver
from .steps import StepReport

DETACHED_PREFIX = "flexdisk-parked-"
_NOT_ATTACHED = " (not attached)"


def remove_ghosts(vm: Vm) -> t.Iterator[ForgetDisk]:
    """Remove ghosts from the configuration. Their volumes are detached already, so vmadm finds nothing to destroy."""
    configured = {entry.path: entry for entry in vm.config.disks}
    detached = {disk.uuid: disk for disk in vm.detached}
    for entry in (configured[path] for path in vm.ghosts):
        label = detached[entry.uuid].label
        report = StepReport(f"- {label}, detached already, out of the configuration", label)
        yield ForgetDisk(report, volume=entry.volume, path=entry.path)


def why_still_unused(vm: Vm, volume: str) -> str:
    """Return why Proxmox VE does not take what it says of an unused volume out of the configuration; "" if it does."""
    particulars = vm.config.proxmox
    if particulars.get("protection"):
        return f"the VM is protected; qm set {particulars['vmid']} --protection 0 ends that"
    return "" if within(vm.config, volume) else "no storage that is active on this node has it"


def remove_unused(vm: Vm, device_prefix: str) -> t.Iterator[ForgetDisk]:
    """Remove what the configuration says of volumes as unused ones, which an interrupted run has moved away."""
    for volume in (name for name in left_unused(vm) if not why_still_unused(vm, name)):
        report = StepReport(f"- {volume}, detached already, out of the configuration")
        yield ForgetDisk(report, volume=volume, path=device_prefix + volume)


def lift_guards(disks: t.Iterable[Disk]) -> t.Iterator[LiftGuard]:
    """Remove the guards of an interrupted run."""
    for disk in (d for d in disks if d.guarded):
        report = StepReport(f"- left-over guard of {disk.label}", disk.label)
        yield LiftGuard(report, volume=disk.volume.name, snapshots=bool(disk.snapshots))


def discard_copies(disks: t.Iterable[Disk]) -> t.Iterator[DiscardCopy]:
    """Remove the partial copies that interrupted conversions have left. The original disks are complete."""
    for disk in (d for d in disks if d.partial_copy):
        text = f"- half a copy of {disk.label}, left by an interrupted conversion, DESTROYED"
        report = StepReport(text, disk.label, destroys=True)
        yield DiscardCopy(report, volume=disk.volume.name, guid=disk.volume.guid, partial_copy=disk.partial_copy)


def detach(vm: Vm, leaver: Leaver, reservation_set_later: bool) -> Detach:
    """Detach a disk with its data: Detach if the VM has it attached, DetachUnattached if not.

    reservation_set_later: so the pool need not provide the disk's space twice.
    """
    disk = leaver.disk
    attached = "" if disk.path else _NOT_ATTACHED
    named = f" without its name (uuid {disk.uuid})" if leaver.nameless else ""
    lost = "" if leaver.becomes_replica else disk_travel.lost_text(disk)
    report = StepReport(f"- {disk.label} {render_mib(disk.size_mib)}{attached} detached{named}{lost}", disk.label)
    changes = {"boot": False, "remaining": "", **({"name": ""} if leaver.nameless else {})}
    travels = {disk_element.ELEMENT_PROPERTY: ""} if leaver.becomes_replica else disk_travel.facts_of_leaver(disk)
    facts = {**facts_of(disk, **changes), **facts_without_marks(disk), **travels}
    return _leaving(
        disk, report, facts, reservation_set_later, renames={} if leaver.becomes_replica else _renames(vm, disk)
    )


def detach_to_copy(vm: Vm, disk: Disk, label: str) -> Detach:
    """Detach a disk while its data is copied. It keeps all its facts, also boot and remaining, until it returns."""
    facts = {**facts_of(disk), **facts_without_marks(disk), **disk_travel.facts_of_leaver(disk)}
    if disk.volume.user.get("from") != identity.MAKING:
        facts["from"] = identity.CONVERTING
    lost = disk_travel.lost_text(disk)
    report = StepReport(f"- {label} {render_mib(disk.size_mib)} detached to be copied{lost}", label)
    return _leaving(disk, report, facts, reservation_set_later=True, renames=_renames(vm, disk), vm_waits=True)


def _renames(vm: Vm, disk: Disk) -> t.Dict[str, str]:
    """Return new names for parts of VM snapshots, by the present ones. No later snapshot can have these names."""
    parts = ((snapshot, snapshot.name.split("@", 1)[1]) for snapshot in disk.snapshots)
    return {
        short: f"{DETACHED_PREFIX}{vm.config.uuid[:8]}-{snapshot.createtxg}-{short}"
        for snapshot, short in parts
        if short.startswith(snapshots.PREFIX)
    }


def _leaving(
    disk: Disk,
    report: StepReport,
    facts: t.Mapping[str, str],
    reservation_set_later: bool,
    renames: t.Mapping[str, str],
    vm_waits: bool = False,
) -> Detach:
    kind = Detach if disk.path else DetachUnattached
    return kind(
        report,
        volume=disk.volume.name,
        path=disk.path,
        target=detached_place(disk),
        facts=missing_facts(disk, facts),
        guid=disk.volume.guid,
        newest=_newest(disk, renames),
        renames=tuple(renames.items()),
        reservation_set_later=reservation_set_later,
        vm_waits=vm_waits,
    )


def _newest(disk: Disk, renamed: t.Mapping[str, str]) -> str:
    """Return the short name of the newest snapshot after the renames; "" if there is no snapshot."""
    if not disk.snapshots:
        return ""
    short = disk.snapshots[-1].name.split("@", 1)[1]
    return renamed.get(short, short)


def destroy(leaver: Leaver, by_name: bool = False) -> t.Union[Destroy, DestroyDetached]:
    """Destroy a disk. An attached disk leaves the VM first, as for a detach; only then is its volume destroyed.

    by_name: a volume belongs to the VM by its name, so that one that is not attached has to leave, too.
    """
    disk = leaver.disk
    if disk.detached or not (disk.path or by_name):
        return destroy_detached(leaver)
    return Destroy(
        _destroyed(disk, "" if disk.path else _NOT_ATTACHED),
        volume=disk.volume.name,
        path=disk.path,
        target=detached_place(disk),
        facts=missing_facts(disk, facts_of(disk, uuid=disk.uuid or identity.uuid_of(disk.volume.guid))),
        guid=disk.volume.guid,
        newest=_newest(disk, {}),
        snapshots=short_names(disk),
    )


def destroy_detached(leaver: Leaver) -> DestroyDetached:
    """Destroy a volume that no VM has attached."""
    disk = leaver.disk
    report = _destroyed(disk, " (detached)" if disk.detached else _NOT_ATTACHED)
    return DestroyDetached(report, volume=disk.volume.name, guid=disk.volume.guid, snapshots=short_names(disk))


def _destroyed(disk: Disk, where: str) -> StepReport:
    lost = (
        f" with {count(len(disk.snapshots), 'snapshot')} ({render_bytes(disk.volume.pinned)})" if disk.snapshots else ""
    )
    return StepReport(f"- {disk.label} {render_mib(disk.size_mib)}{where} DESTROYED{lost}", disk.label, destroys=True)
