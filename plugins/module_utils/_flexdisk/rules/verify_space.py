# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about quotas and reservations that do not follow the quota law."""

from __future__ import annotations

from ..model.sizes import MIB, render_bytes, render_change, render_exact
from ..model.vm import Vm
from . import space
from .findings import OURS, Finding, own_task
from .reservation import PoolGeometry
from .verify_facts import About, Facts, Findings, busy, listed, of_vm, vm_disks, within


def quota_and_reservation(facts: Facts, vm: Vm) -> Findings:
    """Yield reservations that are not the automatic ones, and quotas that do not follow from the sizes of the disks."""
    if vm.config.prefixes:  # there is no quota law without a dataset of the VM
        yield from _reservations(facts, vm)
        return
    volumes = [disk.volume.name for disk in vm.disks]
    counted = len({*volumes}) == len(volumes) and all(within(vm, name) for name in volumes)
    if not counted or (vm.config.identity_in_zfs and not vm.flexible and not vm.root.refquota):
        return
    geometry = facts.host.geometry[vm.config.pool]
    off = space.off_automatic(vm, geometry)
    if off:
        parts = [f"{render_bytes(v.refreservation)} of {v.name}" for v in off]
        yield _lawless(vm, "reservation_off_auto", f"{listed(parts)} is not the automatic one")
    if not off or any(space.quota_drift(vm, geometry)):
        yield from _drift(vm, geometry)


def _reservations(facts: Facts, vm: Vm) -> Findings:
    """Yield thick disks without their automatic reservation. The next task that names the VM puts that right."""
    geometries = facts.host.geometry
    for disk in space.thick_off_automatic(vm, geometries):
        name, pool = disk.volume.name, disk.volume.pool
        message = f"{render_bytes(disk.volume.refreservation)} of {name} is not the automatic one"
        if geometries[pool] == geometries[vm.config.pool]:
            task = vm_disks(vm, unlisted="keep")
            yield About(facts, disk, vm)("reservation_off_auto", message, repair=task)
        else:
            by_hand = f"{message}; zfs set refreservation=auto {name} puts it right"
            yield About(facts, disk, vm)("reservation_off_auto", by_hand)


def _drift(vm: Vm, geometry: PoolGeometry) -> Findings:
    quota, reservation = space.quota_drift(vm, geometry)
    cause = space.drift_cause(vm, geometry)
    if not cause:
        return
    law, root = space.expected_quota(vm, geometry), vm.root
    figures = f"quota {render_change(root.quota, law)}, reservation {render_change(root.reservation, law)} ({cause})"
    if not vm.flexible and min(quota, reservation) >= 0 and space.base_reservation_ok(root):
        if max(quota, reservation):
            task = {OURS + "zfs_quota": {"vms": [vm.config.uuid], "reclaim": True}}
            yield of_vm(vm, "unused_quota", figures + "; kept as room for another disk", repair=task)
        return
    yield _lawless(vm, "quota_drift", figures)


def _lawless(vm: Vm, kind: str, message: str) -> Finding:
    """Return a finding about the quota law. It is repaired unless the VM is busy or its disks do not fit."""
    room = space.allocatable(vm)
    why_not = busy(vm)
    if room is not None and room < -MIB:
        min_mib = space.smallest_flexible_mib(vm) - vm.hidden_mib
        why_not = f"disks and snapshots take {render_bytes(-room)} more than flexible_disk_size"
        why_not += f", which must be at least {render_exact(min_mib)}"
    if why_not:
        return of_vm(vm, kind, f"{message}; not repaired here: {why_not}")
    return of_vm(vm, kind, message, repair=own_task(kind, vm.config.uuid), repairable=True)
