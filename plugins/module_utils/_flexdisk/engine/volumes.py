# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Makes, fits and destroys the volumes of disks."""

from __future__ import annotations

import typing as t

from ..model.dataset import RECORD, Dataset
from ..model.sizes import MIB
from ..model.vm import FILE, SPARSE, THICK
from ..plan.disk_steps import AttachDisk, CreateDetached, CreateDisk
from ..rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from ..zfs import exact
from . import file_disks
from .perform import Tools

Properties = t.Dict[str, t.Union[int, str]]
RESERVATION: t.Dict[str, Properties] = {THICK: {"refreservation": "auto"}, SPARSE: {"refreservation": "none"}}


def is_auto(volume: Dataset, geometry: PoolGeometry) -> bool:
    """Whether its reservation is the automatic one."""
    return is_automatic(volume.refreservation, volume.volsize, volume.volblocksize, geometry)


def reservation(kind: str) -> Properties:
    """What goes with a volsize. One that has no reservation gets none by that."""
    return RESERVATION[THICK] if kind == THICK else {}


def make_disk(
    step: t.Union[CreateDisk, CreateDetached], tools: Tools, facts: t.Mapping[str, str], geometry: PoolGeometry
) -> None:
    """The volume of a new disk, or its file, with its identity from the first moment."""
    if step.type == FILE:
        size = step.size_mib * MIB
        file_disks.make(tools.zfs, step.volume, size, step.own_compression, facts, geometry)
        file_disks.ensure(tools.zfs, tools.read(step.volume), size)
    else:
        _make_volume(step, tools, facts)


def _make_volume(step: t.Union[CreateDisk, CreateDetached], tools: Tools, facts: t.Mapping[str, str]) -> None:
    options = {"compression": step.own_compression} if step.own_compression else {}
    size = step.size_mib * MIB
    if step.origin:
        tools.zfs.clone(step.origin, step.volume, options, facts)
        tools.zfs.set(step.volume, volsize=size, **reservation(step.type))
    else:
        options["volblocksize"] = str(step.block_size_bytes)
        tools.zfs.create_volume(step.volume, size, options, facts, step.type == SPARSE)


def fit_before(step: AttachDisk, tools: Tools, geometry: PoolGeometry) -> Properties:
    """Set what a disk must have before it is moved into a VM. Returns what it must be set to after the move.

    What it gives back comes first, for the VM has no room for that; what it takes is the VM's own reservation, so only
    then.
    """
    if step.type == FILE:
        _fit_file(step.source, step.size_mib * MIB, tools, geometry)
        return {}
    early, late = _fitted(step.attached.volume, step.size_mib * MIB, step.type, geometry)
    if early:
        tools.zfs.set(step.source, **early)
    return late


def _fit_file(name: str, size: int, tools: Tools, geometry: PoolGeometry) -> None:
    """A smaller file outside the VM; a larger one inside, where there is the room (fit_file_after)."""
    now = tools.read(name)
    file_disks.ensure(tools.zfs, now, size)
    if size < now.volsize or now.refreservation > automatic_reservation(size, RECORD, geometry):
        file_disks.resize(tools.zfs, now, size, geometry)


def fit_file_after(step: AttachDisk, tools: Tools, geometry: PoolGeometry) -> None:
    """The file at the size of the step, in its VM."""
    now, size = tools.read(step.volume), step.size_mib * MIB
    file_disks.ensure(tools.zfs, now, size)
    file_disks.resize(tools.zfs, now, size, geometry)


def _fitted(volume: Dataset, size: int, wanted: str, geometry: PoolGeometry) -> t.Tuple[Properties, Properties]:
    """What is set before and after the move. A volsize that stays is not set: even that moves blocks to the snapshots
    alone.
    """
    resized: Properties = {} if size == volume.volsize else {"volsize": size}
    if wanted == SPARSE:
        return {**resized, **(RESERVATION[SPARSE] if volume.refreservation else {})}, {}
    if not resized and is_auto(volume, geometry):
        return {}, {}
    automatic = RESERVATION[THICK]
    if volume.refreservation > automatic_reservation(size, volume.volblocksize, geometry):
        return {**resized, **automatic}, {}
    if size < volume.volsize:
        return resized, automatic
    return {}, {**resized, **automatic}


def destroy_volume(tools: Tools, name: str, guid: int, snapshots: t.Iterable[str], held: t.Iterable[str] = ()) -> None:
    """Destroy exactly this volume with exactly these snapshots (short names). held: holds of these are released."""
    for snapshot in held:
        for tag in tools.zfs.holds(snapshot):
            tools.zfs.release(tag, snapshot)
    now = tools.read(name, guid)
    # A channel program cannot unmount a file system.
    library = tools.library if now.kind == "volume" else None
    tools.destroyers.add(exact.destroy(tools.zfs, library, now, [f"{name}@{short}" for short in snapshots]))
    file_disks.removed(tools.zfs, now)
