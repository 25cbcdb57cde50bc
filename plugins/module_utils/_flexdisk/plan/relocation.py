# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adoption of a VM whose disks are anywhere in a pool: its dataset is created, and its volumes are moved below it."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.dataset import Dataset
from ..model.errors import Problems
from ..model.vm import Disk, DiskConfig, Vm, VmConfig
from ..rules.identity import blank_in
from ..rules.inventory import Host, attached_disk
from ..rules.layout import disk_dataset, find_vm_dataset, index_of, is_below, pool_of, vm_dataset
from ..rules.skipped import adopting
from ..rules.unfinished import is_unfinished, reason
from ..rules.usage import hidden_use, labels, power_problem
from .disk_travel import check_mentions
from .steps import StepReport
from .vm_steps import Relocate


def without_dataset(host: Host, config: VmConfig) -> t.Optional[Vm]:
    """Return a VM without a dataset as it will be, with one; None if why_no_dataset() says why it cannot get one, or if
    the hypervisor stores identities itself.
    """
    pool = _pool(host, config)
    if not config.identity_in_zfs or why_no_dataset(host, config):
        return None
    above = host.datasets[pool]
    name = vm_dataset(pool, config.uuid)
    root = Dataset(name, "", compression=above.compression, encryptionroot=above.encryptionroot)
    strays = tuple(entry.path for entry in config.disks if entry.volume)
    return Vm(replace(config, pool=pool, dataset=name), root, strays=strays)


def _pool(host: Host, config: VmConfig) -> str:
    """Return the pool to which a VM without a dataset belongs, "" if that is not clear."""
    return config.pool or (next(iter(host.geometry)) if len(host.geometry) == 1 else "")


def why_no_dataset(host: Host, config: VmConfig) -> str:
    """Return why a VM without a dataset cannot get one; "" if it can."""
    pool = _pool(host, config)
    if not pool:
        reasons = "; ".join(config.left_out) or "it has no disks"
        return f"which pool it belongs to is not clear, for no disk of it can be adopted: {reasons}"
    if pool not in host.geometry:
        return f"its disks lie in pool {pool}, which this task does not read"
    if blank_in(pool):
        return blank_in(pool)
    name, there = vm_dataset(pool, config.uuid), find_vm_dataset(config.uuid, host.datasets)
    if there and there != name:
        text = f"its disks lie in pool {pool}, and its dataset is {there}; bring the disks back below that, or"
        return f"{text} zfs rename {there} {there}-old, if {pool} is where it belongs now"
    lost = [e.volume for e in config.disks if pool_of(e.volume) == pool and e.volume not in host.datasets]
    return f"its configuration names {', '.join(lost)}, and there is no such volume" if lost else ""


def not_managed(host: Host, config: VmConfig) -> str:
    """Return why no task manages a VM that has no dataset, or is unfinished, and what ends that."""
    text = reason(host, config)
    if not config.identity_in_zfs or is_unfinished(config):
        return text
    why = why_no_dataset(host, config)
    return f"{text}, and adopt: true makes none: {why}" if why else f"{text}; {adopting(config)}"


def by_other_names(host: Host, vm: Vm) -> Vm:
    """Return the VM for an adoption, which gives disks in its own dataset the paths of their volumes."""
    named = {entry.named for entry in vm.config.disks if entry.named}
    if not (vm.overlaid and named):
        return vm
    others = [orphan for orphan in vm.orphans if orphan.volume.name not in named]
    overlaid, doubted = hidden_use(vm.config, host.usage, others)
    frozen = overlaid if vm.config.frozen == vm.overlaid else vm.config.frozen
    return replace(vm, overlaid=overlaid, doubted=doubted, config=replace(vm.config, frozen=frozen))


def adopt(host: Host, vm: Vm, device_prefix: str, problems: Problems) -> t.Optional[Relocate]:
    """Return the step that moves a VM into the layout; None if it is there already. Problems are added to problems."""
    disks = list(_moves(host, vm, device_prefix, problems))
    if problems or not (disks or not vm.root.kind):
        return None
    if vm.config.state != "stopped" or vm.config.frozen:
        why = vm.config.frozen or (vm.config.state != "running" and power_problem(vm))
        text = "its volumes are renamed" if any(e.volume != d.volume.name for e, d in disks) else "its paths change"
        problems.add("VmNotStopped", why or f"the VM must be stopped to be adopted: {text}")
    moves = ", ".join(f"{_source(e, d)} -> {d.volume.name.rsplit('/', 1)[1]}" for e, d in disks)
    return Relocate(StepReport(f"= adopted into {vm.root.name}{': ' + moves if moves else ''}"), moves=tuple(disks))


def as_configured(text: str, step: t.Optional[Relocate]) -> str:
    """Return a message with the paths that disks have now, instead of those that the step would give them."""
    for entry, disk in step.moves if step is not None else ():
        now = entry.path.replace("\\", r"\\")
        text = re.sub(rf"{re.escape(disk.path)}(?!\w)", now, text)
    return text


def _source(entry: DiskConfig, disk: Disk) -> str:
    """Return what a disk was called before: its volume, or its path if only that changes."""
    return entry.path if entry.volume == disk.volume.name else entry.volume


def _moves(host: Host, vm: Vm, device_prefix: str, problems: Problems) -> t.Iterator[t.Tuple[DiskConfig, Disk]]:
    """Yield disks that are elsewhere: the configured entry, and the disk that it will be, at the lowest free index."""
    used = {index_of(v.name) for v in vm.volumes}
    for entry in (replace(entry, volume=entry.volume or entry.named) for entry in vm.config.disks):
        inside = is_below(entry.volume, vm.root.name)
        if pool_of(entry.volume) != vm.root.pool or (inside and not entry.named):
            continue
        check_mentions(vm.config, entry.path, "", problems)
        volume = _volume(host, vm, entry, problems)
        if volume is None:
            continue
        index = min(set(range(len(used) + 1)) - used)
        target = volume.name if is_below(volume.name, vm.root.name) else disk_dataset(vm.root.name, index)
        used.add(index_of(target))
        snapshots = (d for d in host.datasets.values() if d.kind == "snapshot" and d.parent == volume.name)
        moved = replace(entry, path=device_prefix + target, volume=target, left_out="", named="")
        disk = attached_disk(vm.config, moved, entry.pci_slot, volume.renamed(target), 0)
        yield entry, replace(disk, snapshots=tuple(sorted(snapshots, key=lambda s: s.createtxg)))


def _volume(host: Host, vm: Vm, entry: DiskConfig, problems: Problems) -> t.Optional[Dataset]:
    """Return the volume of an entry: at the configured place, or where an interrupted adoption has moved it."""
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
