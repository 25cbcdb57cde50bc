# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quota law: which quota a VM's dataset must have, and what its disks can still get. All figures are bytes.

Source: RFD 154 (quota + flexible_disk_size + RESV - SIZE). The overhead of each volume is taken from the forecast of
its automatic reservation, so that a sparse or manual reservation does not change what the VM was promised.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.sizes import MIB
from ..model.vm import Disk, Vm
from .pins import without_snapshots_named
from .replicas import SPACE, is_synced
from .reservation import PoolGeometry, automatic_reservation, automatic_size, is_automatic, overhead

_BYTES = re.compile(r"\A[1-9][0-9]{0,18}\Z")


def quota_law(base: int, flexible: t.Optional[int], volumes: t.Iterable[Dataset], geometry: PoolGeometry) -> int:
    """Return quota and reservation of a VM's dataset: C(q + F + sum o(d)), without F C(q + sum auto(d)), at least q.

    base: q, the refquota of the dataset. flexible: the stored flexible_disk_size in bytes, or None.
    """
    if flexible is None:
        return base + sum(automatic_reservation(v.volsize, v.volblocksize, geometry) for v in volumes)
    return max(base, base + flexible + sum(overhead(v.volsize, v.volblocksize, geometry) for v in volumes))


def expected_quota(vm: Vm, geometry: PoolGeometry) -> int:
    """Return the quota and reservation the VM should have: those of quota_law(), and the space for syncs."""
    return quota_law(vm.root.refquota, flexible_bytes(vm), vm.volumes, geometry) + sync_space(vm)


def sync_space(vm: Vm) -> int:
    """Return S, the space for snapshots of syncs that the VM has beside its flexible_disk_size."""
    stored = vm.root.user.get(SPACE, "")
    return int(stored) if _BYTES.match(stored) else 0


def without_syncs(vm: Vm) -> Vm:
    """Return the VM as if no sync had taken snapshots."""
    names = {s.name.partition("@")[2] for disk in vm.disks + vm.orphans for s in disk.snapshots}
    return without_snapshots_named(vm, filter(is_synced, names))


def sync_needs(vm: Vm) -> int:
    """Return the S that the VM needs: what the snapshots of syncs can hold at most, whatever happens to other
    snapshots.

    For each disk, all that the first of them refers to, and what was written from then to the last of them. Detached
    disks count, too: they may return.
    """
    return sum(_needs(disk.snapshots) for disk in vm.disks + vm.orphans + vm.detached)


def quota_with_syncs(vm: Vm, space: int, geometry: PoolGeometry) -> int:
    """Return the quota of the VM with another S. An inflexible VM keeps what its quota has beyond the law."""
    after = with_sync_space(vm, space)
    if vm.flexible:
        return settled_quota(after, geometry)
    return max(expected_quota(after, geometry), vm.root.quota + space - sync_space(vm))


def with_sync_space(vm: Vm, space: int) -> Vm:
    """Return the VM with another S."""
    user = {key: value for key, value in vm.root.user.items() if key != SPACE}
    return replace(vm, root=replace(vm.root, user={**user, SPACE: str(space)} if space else user))


def _needs(snapshots: t.Tuple[Dataset, ...]) -> int:
    ordered = sorted(snapshots, key=lambda s: s.createtxg)
    places = [number for number, s in enumerate(ordered) if is_synced(s.name.partition("@")[2])]
    if not places:
        return 0
    return ordered[places[0]].referenced + sum(s.written for s in ordered[places[0] + 1 : places[-1] + 1])


def flexible_bytes(vm: Vm) -> t.Optional[int]:
    """Return F in bytes, None without F."""
    stored = vm.config.flexible_disk_size
    return None if stored is None else stored * MIB


def root_excess(vm: Vm) -> int:
    """Return what the VM's own file system and its snapshots take beyond its refquota q."""
    root = vm.root
    return max(0, root.usedbydataset + root.usedbyrefreservation + root.usedbysnapshots - root.refquota)


def committed(vm: Vm) -> int:
    """Return the smallest flexible_disk_size, in bytes, for the VM as it is: volumes, what their snapshots hold, other
    datasets.

    Snapshots of syncs count only as far as they hold more than S.
    """
    return _held(vm) - beside(vm)


def beside(vm: Vm) -> int:
    """Return what the snapshots of syncs hold, at most S."""
    space = sync_space(vm)
    return min(space, _held(vm) - _held(without_syncs(vm))) if space else 0


def _held(vm: Vm) -> int:
    return sum(v.volsize + v.pinned for v in vm.volumes) + root_excess(vm) + vm.other_used


def smallest_flexible_mib(vm: Vm) -> int:
    """Return committed() in MiB, rounded up. ZFS would accept 1 MiB less; that slack is never promised."""
    return -(-committed(vm) // MIB)


def allocatable(vm: Vm) -> t.Optional[int]:
    """Return the bytes that disks can still get, exactly. Negative if more is taken; None for an inflexible VM."""
    flexible = flexible_bytes(vm)
    return None if flexible is None else flexible - committed(vm)


def settled_quota(vm: Vm, geometry: PoolGeometry) -> int:
    """Return the quota by the law; the present one while the VM holds so much that ZFS would refuse less."""
    room = allocatable(vm)
    quota = expected_quota(vm, geometry)
    return max(quota, vm.root.quota) if room is not None and room < -MIB else quota


def taken(vm: Vm, geometry: PoolGeometry) -> int:
    """Return the bytes that the VM takes from its pool: its reservation, or its use if it has no quota.

    A VM without a dataset of its own takes what its volumes use, which includes what is reserved for them.
    """
    if vm.config.prefixes:
        return sum(volume.used for volume in vm.volumes if volume.pool == vm.config.pool)
    return max(settled_quota(vm, geometry), vm.root.used)


def free_space_mib(vm: Vm) -> t.Optional[int]:
    """Return RFD 154's figure for the configured disks, C(F - sum(volsize) - sum(usedbysnapshots)), in MiB."""
    flexible = flexible_bytes(vm)
    if flexible is None:
        return None
    disks = without_syncs(vm).disks if sync_space(vm) else vm.disks
    return (flexible - sum(d.volume.volsize + d.volume.usedbysnapshots for d in disks)) // MIB


def off_automatic(vm: Vm, geometry: PoolGeometry) -> t.Tuple[Dataset, ...]:
    """Return the thick volumes whose reservation is not automatic by the formula of this or an older ZFS."""
    return tuple(
        v
        for v in vm.volumes
        if v.refreservation and not is_automatic(v.refreservation, v.volsize, v.volblocksize, geometry)
    )


def thick_off_automatic(vm: Vm, geometries: t.Mapping[str, PoolGeometry]) -> t.Tuple[Disk, ...]:
    """Return the attached thick disks whose reservation is not automatic, as after a rollback over another size.

    For a VM without a dataset of its own, whose disks may lie in several pools. Disks of other pools are left out.
    """
    known = ((disk, disk.volume, geometries.get(disk.volume.pool)) for disk in vm.disks if disk.volume.refreservation)
    return tuple(
        disk
        for disk, v, geometry in known
        if geometry is not None and not is_automatic(v.refreservation, v.volsize, v.volblocksize, geometry)
    )


def base_reservation_ok(root: Dataset) -> bool:
    """Whether the refreservation of the VM's dataset is q - 1 MiB, or q as platforms before OS-8499 set it."""
    return root.refreservation in (max(0, root.refquota - MIB), root.refquota)


def quota_drift(vm: Vm, geometry: PoolGeometry) -> t.Tuple[int, int]:
    """Return quota and reservation of the VM's dataset, each minus what the law says."""
    expected = expected_quota(vm, geometry)
    return vm.root.quota - expected, vm.root.reservation - expected


def _rolled_back(vm: Vm, geometry: PoolGeometry, off: t.Collection[Dataset]) -> bool:
    """Whether these volumes have the reservations of other sizes, and the quota too if vmadm changes it with them."""
    pinned = [d.volume for d in vm.disks + vm.orphans if d.snapshots]
    moved = 0
    for v in off:
        size = automatic_size(v.refreservation, v.volblocksize, geometry)
        if size is None or v not in pinned:
            return False
        moved += v.refreservation - size - overhead(v.volsize, v.volblocksize, geometry)
    return vm.config.identity_in_zfs or moved in quota_drift(vm, geometry)


def _surplus_cause(vm: Vm, geometry: PoolGeometry, more: int) -> str:
    flexible = flexible_bytes(vm)
    for block in {v.volblocksize for v in vm.volumes} or {8192}:
        if flexible is None:
            removed = automatic_size(more, block, geometry) is not None
        else:
            removed = overhead(MIB, block, geometry) <= more <= overhead(flexible, block, geometry)
        if removed:
            return "overhead of a removed disk"
    return "unknown"


def _shortfall_cause(vm: Vm, geometry: PoolGeometry, missing: int) -> str:
    flexible = flexible_bytes(vm)
    law = automatic_reservation if flexible is None else overhead
    if vm.orphans and missing == sum(law(d.size, d.volume.volblocksize, geometry) for d in vm.orphans):
        return "volumes that the VM does not know"
    if missing in [law(d.size, d.volume.volblocksize, geometry) for d in vm.disks]:
        return "disk attached without its overhead"
    # An older flexible_disk_size had whole MiB, too.
    if flexible is not None and missing < flexible and missing % MIB == 0:
        return "poisoned flexible_disk_size or lowered by hand"
    return "unknown"


def drift_cause(vm: Vm, geometry: PoolGeometry) -> str:
    """Return the likely cause of a drift of quota and reservation, judging by the figures; "" only without a drift."""
    quota, reservation = quota_drift(vm, geometry)
    off = off_automatic(vm, geometry)
    if off:
        return "rollback over a resize" if _rolled_back(vm, geometry, off) else "refreservation off auto"
    if quota != reservation:
        return "half-applied set" if 0 in (quota, reservation) else "unknown"
    if quota > 0:
        return _surplus_cause(vm, geometry, quota)
    if quota < 0:
        return _shortfall_cause(vm, geometry, -quota)
    return "" if base_reservation_ok(vm.root) else "refreservation of the VM's dataset"
