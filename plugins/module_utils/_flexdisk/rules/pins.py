# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space that snapshots hold. All figures are bytes."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.vm import Disk, Vm
from .replicas import is_synced

_Snapshots = t.Tuple[Dataset, ...]


def charge(dataset: Dataset) -> int:
    """Return the bytes that a new snapshot of a volume takes at once: what was written since the last one must stay
    rewritable.

    Source: dsl_dataset_snapshot_reserve_space of OpenZFS, min(unique, refreservation).
    """
    return min(dataset.written, dataset.refreservation)


def shared(dataset: Dataset, snapshots: t.Sequence[Dataset], snapshot: Dataset) -> int:
    """Return the bytes that only this snapshot and its dataset hold. When the snapshot is destroyed, they count as
    written since the last snapshot. Only the newest snapshot has any.
    """
    if max(snapshots, key=lambda s: s.createtxg) is not snapshot:
        return 0
    moved = snapshot.written - snapshot.used
    return min(moved, max(0, dataset.refreservation - dataset.written)) if dataset.refreservation else moved


def frees(dataset: Dataset, snapshots: t.Sequence[Dataset], snapshot: Dataset) -> int:
    """Return the bytes that the dataset gets back if this snapshot is destroyed."""
    return snapshot.used + (shared(dataset, snapshots, snapshot) if dataset.refreservation else 0)


def holds(dataset: Dataset) -> int:
    """Return the bytes of the disk's promised space that a new snapshot takes. Without a reservation ZFS takes nothing
    at once, but what is written now can no longer be overwritten.
    """
    return charge(dataset) if dataset.refreservation or not dataset.backs else dataset.written


def beside_rollback(dataset: Dataset, newer: t.Iterable[Dataset]) -> int:
    """Return the bytes, at most, that a rollback needs for a moment beside what the dataset uses.

    newer: the snapshots after the one to which the dataset goes back. ZFS takes back the data of the snapshot before it
    frees what was written since, and the whole reservation must be available then. Source: dsl_dataset_rollback_check
    of OpenZFS, min(refreservation, unique).
    """
    return min(dataset.refreservation, dataset.referenced, dataset.written + content_bytes(newer))


def beyond_reservation(root: Dataset, beside: int) -> int:
    """Return the bytes the pool must have if a VM needs `beside` bytes for a moment. root: the VM's dataset."""
    return min(beside, max(0, root.used + beside - root.reservation))


def content_bytes(snapshots: t.Iterable[Dataset]) -> int:
    """Return the bytes of a dataset that these snapshots hold, if they are its oldest ones and its own data is gone.

    Each block is counted by the first snapshot that has it.
    """
    return sum(snapshot.written for snapshot in snapshots)


def held_without_syncs(dataset: Dataset, snapshots: t.Iterable[Dataset]) -> t.Tuple[int, int]:
    """Return two figures for a dataset without its snapshots of syncs: the bytes that the other snapshots hold, at
    most, and the bytes written since the last of them. The dataset is no clone.
    """
    ordered = sorted(snapshots, key=lambda s: s.createtxg)
    syncs = [is_synced(s.name.partition("@")[2]) for s in ordered]
    last = max((number for number, sync in enumerate(syncs, 1) if not sync), default=0)
    freed = sum(s.used for s, sync in zip(ordered[:last], syncs) if sync)
    return content_bytes(ordered[:last]) - freed, dataset.written + content_bytes(ordered[last:])


def of_origins(vm: Vm) -> int:
    """Return the bytes that snapshots of disks hold in addition if the disks are no clones of images."""
    result = 0
    for disk in vm.disks + vm.orphans:
        snapshots = [s for s in disk.snapshots if not is_synced(s.name.partition("@")[2])]
        if disk.volume.origin and snapshots:
            result += max(0, disk.snapshots[0].referenced - disk.snapshots[0].written)
    return result


def without_snapshots(vm: Vm, parts: t.Collection[str]) -> Vm:
    """Return the VM without these snapshots, at most one of each dataset."""

    def freed_of(dataset: Dataset, before: _Snapshots) -> t.Tuple[Dataset, _Snapshots]:
        part = next((s for s in before if s.name in parts), None)
        if part is None:
            return dataset, before
        again = shared(dataset, before, part)
        reserved = again if dataset.refreservation else 0
        left = replace(
            dataset,
            used=dataset.used - frees(dataset, before, part),
            usedbysnapshots=dataset.usedbysnapshots - part.used,
            usedbyrefreservation=dataset.usedbyrefreservation - reserved,
            written=dataset.written + again,
        )
        return left, tuple(s for s in before if s is not part)

    return each_dataset(vm, freed_of)


def without_snapshots_named(vm: Vm, names: t.Iterable[str]) -> Vm:
    """Return the VM without all snapshots with these short names."""
    for name in sorted(names):
        vm = without_snapshots(vm, {f"{dataset.name}@{name}" for dataset in (vm.root, *vm.volumes)})
    return vm


def each_dataset(vm: Vm, change: t.Callable[[Dataset, _Snapshots], t.Tuple[Dataset, _Snapshots]]) -> Vm:
    """Return the VM after `change` of its dataset and each of its volumes, together with their snapshots.

    Volumes that only its snapshots have (Vm.beside) are changed as well.
    """

    def each(disks: t.Iterable[Disk]) -> t.Iterator[Disk]:
        for disk in disks:
            volume, left = change(disk.volume, disk.snapshots)
            yield replace(disk, volume=volume, snapshots=left)

    root, left = change(vm.root, vm.snapshots)
    disks, orphans, beside = (tuple(each(disks)) for disks in (vm.disks, vm.orphans, vm.beside))
    return replace(vm, root=root, snapshots=left, disks=disks, orphans=orphans, beside=beside)
