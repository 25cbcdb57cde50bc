# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Adoption of a VM whose disks lie anywhere in a pool: its dataset is made, and its volumes are moved below it."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.errors import Problems
from ..model.vm import Disk, DiskConfig, Vm, VmConfig
from ..rules.inventory import Host, attached_disk
from ..rules.layout import disk_dataset, index_of, is_below, pool_of, vm_dataset
from ..rules.usage import labels, power_problem
from .disk_travel import check_mentions
from .steps import Told
from .vm_steps import Relocate


def without_dataset(host: Host, config: VmConfig) -> t.Optional[Vm]:
    """A VM without a dataset, given the one that it will have; None if it is not bare, or its pool is not clear."""
    pool = config.pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")
    if pool not in host.geometry or not config.bare:
        return None
    above = host.datasets[pool]
    name = vm_dataset(pool, config.uuid)
    root = Dataset(name, "", compression=above.compression, encryptionroot=above.encryptionroot)
    strays = tuple(entry.path for entry in config.disks if entry.volume)
    return Vm(replace(config, pool=pool, dataset=name), root, strays=strays)


def why_not(host: Host, config: VmConfig) -> str:
    """Why without_dataset() makes none."""
    if config.pool:
        return f"its disks lie in pool {config.pool}, which this task does not read"
    found = "; ".join(config.left_out) or "it has no disks"
    return f"which pool it belongs to is not clear, for no disk of it can be adopted: {found}"


def adopt(host: Host, vm: Vm, device_prefix: str, problems: Problems) -> t.Optional[Relocate]:
    """The step that moves a VM into the layout; None if it is there. Problems are added to problems."""
    disks = list(_moves(host, vm, device_prefix, problems))
    if problems or not (disks or not vm.root.kind):
        return None
    if vm.config.state != "stopped" or vm.config.frozen:
        why = vm.config.frozen or (vm.config.state != "running" and power_problem(vm.config))
        problems.add("VmNotStopped", why or "the VM must be stopped to be adopted: its volumes are renamed")
    moves = ", ".join(f"{e.volume} -> {d.volume.name.rsplit('/', 1)[1]}" for e, d in disks)
    return Relocate(Told(f"= adopted into {vm.root.name}{': ' + moves if moves else ''}"), moves=tuple(disks))


def _moves(host: Host, vm: Vm, device_prefix: str, problems: Problems) -> t.Iterator[t.Tuple[DiskConfig, Disk]]:
    """Disks that lie elsewhere: the configured entry, and the disk that it will be, at the lowest free index."""
    used = {index_of(v.name) for v in vm.volumes}
    for entry in (replace(entry, volume=entry.volume or entry.named) for entry in vm.config.disks):
        if pool_of(entry.volume) != vm.root.pool or is_below(entry.volume, vm.root.name):
            continue
        check_mentions(vm.config, entry.path, "", problems)
        volume = _volume(host, vm, entry, problems)
        if volume is None:
            continue
        index = min(set(range(len(used) + 1)) - used)
        target = volume.name if volume.parent == vm.root.name else disk_dataset(vm.root.name, index)
        used.add(index_of(target))
        snapshots = (d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == volume.name)
        moved = replace(entry, path=device_prefix + target, volume=target, left_out="", named="")
        disk = attached_disk(vm.config, moved, entry.pci_slot, replace(volume, name=target), 0)
        yield entry, replace(disk, snapshots=tuple(sorted(snapshots, key=lambda s: s.createtxg)))


def _volume(host: Host, vm: Vm, entry: DiskConfig, problems: Problems) -> t.Optional[Dataset]:
    """The volume of an entry: at the configured place, or where an interrupted adoption has moved it."""
    moved = [d.volume for d in vm.orphans if d.volume.user.get("from") == entry.volume]
    volume = moved[0] if moved else host.datasets.get(entry.volume)
    others = host.usage.of(entry.volume, vm.config.uuid)
    if others:
        problems.add("InUse", f"{entry.volume} is also attached to {labels(others)}")
    elif volume is None or volume.kind != "volume":
        problems.add(
            "ResourceNotFound",
            f"{entry.volume} cannot be adopted: there is no such volume in pool {vm.config.pool}",
        )
    elif volume.encryptionroot not in ("", volume.name, vm.root.encryptionroot):
        problems.add("EncryptionRoot", f"{entry.volume} would leave its encryption root {volume.encryptionroot}")
    else:
        return volume
    return None
