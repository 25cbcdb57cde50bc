# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the volumes of disks, fits them to size and type, and destroys them."""

from __future__ import annotations

import typing as t

from ...model.dataset import RECORD, Dataset, DatasetId
from ...model.sizes import MIB
from ...model.vm import FILE, SPARSE, THICK
from ...plan.disk_steps import AttachDisk, CreateDetached, CreateDisk
from ...rules.reservation import PoolGeometry, automatic_reservation, is_automatic
from ...zfs import exact
from . import file_disks
from .perform import Tools

Properties = t.Dict[str, t.Union[int, str]]
RESERVATION: t.Dict[str, Properties] = {THICK: {"refreservation": "auto"}, SPARSE: {"refreservation": "none"}}


def is_auto(volume: Dataset, geometry: PoolGeometry) -> bool:
    """Return whether the volume has the automatic reservation."""
    return is_automatic(volume.refreservation, volume.volsize, volume.volblocksize, geometry)


def reservation(kind: str) -> Properties:
    """Return the properties to set with a volsize. A sparse volume gets no reservation by a new volsize."""
    return RESERVATION[THICK] if kind == THICK else {}


def make_disk(
    step: t.Union[CreateDisk, CreateDetached], tools: Tools, facts: t.Mapping[str, str], geometry: PoolGeometry
) -> None:
    """Create the volume or file of a new disk, with its identity from the first moment."""
    if step.type == FILE:
        size = step.size_mib * MIB
        file_disks.make(tools.zfs, step.volume, size, step.own_compression, facts, geometry)
        file_disks.ensure(tools.zfs, tools.read(step.volume), size)
    else:
        _make_volume(step, tools, facts)


def confirm_origin(tools: Tools, name: str, guid: int) -> None:
    """Raise FlexdiskError if the dataset to clone or copy is not the planned one. guid: 0 for one made since."""
    if guid:
        tools.read(name, guid)


def _make_volume(step: t.Union[CreateDisk, CreateDetached], tools: Tools, facts: t.Mapping[str, str]) -> None:
    options = {"compression": step.own_compression} if step.own_compression else {}
    size = step.size_mib * MIB
    if step.origin:
        confirm_origin(tools, step.origin, step.origin_guid)
        tools.zfs.clone(step.origin, step.volume, options, facts)
        tools.zfs.set(step.volume, volsize=size, **reservation(step.type))
    else:
        options["volblocksize"] = str(step.block_size_bytes)
        tools.zfs.create_volume(step.volume, size, options, facts, step.type == SPARSE)


def resize_before_move(step: AttachDisk, tools: Tools, geometry: PoolGeometry) -> Properties:
    """Shrink a disk before it is moved into a VM. Return the properties to set after the move.

    A disk is shrunk before the move, because the VM has no room for more. It grows after the move, because the space
    for that is in the VM's reservation.
    """
    if step.type == FILE:
        _shrink_file(step.source, step.size_mib * MIB, tools, geometry)
        return {}
    early, late = _properties_around_move(step.attached.volume, step.size_mib * MIB, step.type, geometry)
    if early:
        tools.zfs.set(step.source, **early)
    return late


def _shrink_file(name: str, size: int, tools: Tools, geometry: PoolGeometry) -> None:
    """Shrink a file outside the VM. resize_file_after_move() grows a file inside the VM, which has the space."""
    now = tools.read(name)
    file_disks.ensure(tools.zfs, now, size)
    if size < now.volsize or now.refreservation > automatic_reservation(size, RECORD, geometry):
        file_disks.resize(tools.zfs, now, size, geometry)


def resize_file_after_move(step: AttachDisk, tools: Tools, geometry: PoolGeometry) -> None:
    """Resize a file in its VM to the size of the step."""
    now, size = tools.read(step.volume), step.size_mib * MIB
    file_disks.ensure(tools.zfs, now, size)
    file_disks.resize(tools.zfs, now, size, geometry)


def _properties_around_move(
    volume: Dataset, size: int, wanted: str, geometry: PoolGeometry
) -> t.Tuple[Properties, Properties]:
    """Return the properties to set before and after the move.

    An unchanged volsize is not set, because even that makes blocks belong to the snapshots alone.
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


def snapshots_of_dataset(snapshots: t.Iterable[DatasetId], name: str) -> t.List[DatasetId]:
    """Return the snapshots (full names) of this dataset."""
    return [one for one in snapshots if one.name.partition("@")[0] == name]


def full_names(name: str, snapshots: t.Iterable[DatasetId]) -> t.List[DatasetId]:
    """Return snapshots with full names from a plan's short ones."""
    return [DatasetId(f"{name}@{short}", guid) for short, guid in snapshots]


def destroy_volume(
    tools: Tools, volume: DatasetId, snapshots: t.Iterable[DatasetId], with_holds: t.Sequence[str] = ()
) -> None:
    """Destroy exactly this volume with exactly these snapshots (short names). Release the holds of with_holds first."""
    planned = full_names(volume.name, snapshots)
    if with_holds:
        exact.confirm(tools.zfs, volume, (), planned)
    for snapshot in with_holds:
        for tag in tools.zfs.holds(snapshot):
            tools.zfs.release(tag, snapshot)
    destroyed = exact.destroy(tools.zfs, volume, planned, tools.library)
    tools.destroyers.add(destroyed.by)
    file_disks.remove_folder(tools.zfs, destroyed.dataset)
