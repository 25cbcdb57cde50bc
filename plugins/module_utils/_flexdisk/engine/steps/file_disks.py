# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that are files in file systems of their own: make, resize and remove them, and convert from and to volumes."""

from __future__ import annotations

import time
import typing as t

from ...model.dataset import RECORD, ZVOL, Dataset
from ...model.errors import FlexdiskError
from ...model.sizes import render_apart, render_bytes
from ...model.vm import FILE, SPARSE
from ...plan.disk_steps import Copying
from ...rules import identity
from ...rules.reservation import PoolGeometry, automatic_reservation
from ...zfs import exact
from ...zfs.commands import Zfs
from ..host import progress
from . import renames

# Seconds between two updates of the progress of a copy.
PACE = 5.0

# Properties that mark a copy that is not finished.
COPY_MARKS = ("from", "copied")

_Facts = t.Mapping[str, str]


def _path(name: str, uuid: str) -> str:
    """Return the path of a disk's file. Anybody can set the property, so only a valid UUID becomes part of the path."""
    if not identity.is_uuid(uuid):
        raise FlexdiskError(
            "IdentityMismatch", f"{name} has uuid {uuid!r}, which is not valid; its file cannot be found without it"
        )
    return identity.file_of(uuid)


def _path_of(dataset: Dataset) -> str:
    return _path(dataset.name, dataset.user.get("uuid", ""))


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def make(zfs: Zfs, name: str, size: int, compression: str, facts: _Facts, geometry: PoolGeometry) -> None:
    """Create the file system of a disk, with a reservation for the file of size bytes. ensure() creates the file."""
    options = {
        **_filesystem_properties(name, facts["uuid"]),
        "refreservation": str(automatic_reservation(size, RECORD, geometry)),
        **({"compression": compression} if compression else {}),
    }
    marks = {"type": FILE, "size": str(size), "from": identity.MAKING}
    zfs.create_filesystem(name, options, {**marks, **{k: v for k, v in facts.items() if k not in marks or v}})


def _filesystem_properties(name: str, uuid: str) -> t.Dict[str, str]:
    """Return the native properties of a disk's file system."""
    folder = _folder(_path(name, uuid))
    return {"recordsize": str(RECORD), "atime": "off", "mountpoint": folder, "canmount": "on"}


def become_disk(zfs: Zfs, name: str, uuid: str) -> None:
    """Turn a replica into the file system of a disk. ensure() mounts it."""
    for key, value in _filesystem_properties(name, uuid).items():
        zfs.set(name, **{key: value})


def become_replica(zfs: Zfs, dataset: Dataset) -> None:
    """Turn the file system of a disk into a replica, which is not mounted, because ZFS writes to it at each mount."""
    zfs.set(dataset.name, canmount="off")
    zfs.set(dataset.name, mountpoint="none")
    remove_folder(zfs, dataset)


def ensure(zfs: Zfs, now: Dataset, size: int) -> str:
    """Mount the file system of a disk, and return the path of its file. Create one that an interrupted run has not.

    size: the wanted bytes. Raises FlexdiskError Changed for a longer file, because nobody has agreed to cut it.
    """
    path = _path_of(now)
    _mount(zfs, now.name, _folder(path))
    if now.user.get("from") == identity.MAKING:
        zfs.files.make(path, now.volsize)
        zfs.set_facts(now.name, {"from": ""})
    length = zfs.files.size(path)
    if length < 0:
        raise FlexdiskError("Changed", f"{path} of {now.name} is missing; it should have {render_bytes(now.volsize)}")
    if length > max(now.volsize, size):
        have, recorded, wanted = render_apart(length, now.volsize, size)
        raise FlexdiskError(
            "Changed",
            f"{path} has {have}, but its dataset {now.name} is for {recorded} and the task asks for "
            f"{wanted}; nothing was cut off",
        )
    return path


def _mount(zfs: Zfs, name: str, folder: str) -> None:
    if zfs.files.mounted(folder, name):
        return
    zfs.mount(name)
    if not zfs.files.mounted(folder, name):
        raise FlexdiskError("Changed", f"{name} is mounted, but not at {folder}")


def resize(zfs: Zfs, now: Dataset, size: int, geometry: PoolGeometry) -> None:
    """Resize a file. The reservation grows before the file, and shrinks after it.

    After an interruption, the property still has the old size, and the resize is repeated. Snapshots get their size as
    a property of their own before, because they would inherit the new one.
    """
    path = ensure(zfs, now, size)
    reservation = {"refreservation": automatic_reservation(size, RECORD, geometry)}
    grows = size >= now.volsize
    if grows and now.refreservation != reservation["refreservation"]:
        zfs.set(now.name, **reservation)
    if size != now.volsize or size != zfs.files.size(path):
        for part in zfs.datasets(now.name):
            if part.kind == "snapshot" and "size" not in part.user:
                zfs.set_facts(part.name, {"size": str(now.volsize)})
        zfs.files.resize(path, size)
        zfs.set_facts(now.name, {"size": str(size)})
    if not grows:
        zfs.set(now.name, **reservation)


def remove_folder(zfs: Zfs, dataset: Dataset) -> None:
    """Remove the mount point of a destroyed disk."""
    if dataset.kind == "filesystem" and identity.is_uuid(dataset.user.get("uuid", "")):
        zfs.files.remove_folder(_folder(_path_of(dataset)))


def copy(zfs: Zfs, now: Dataset, wanted: str, copying: Copying, stamps: _Facts, geometry: PoolGeometry) -> None:
    """Copy a disk to one of the wanted type. The copy is complete and synced at the end.

    Until then, the property C(from) of the copy is the guid of the original, and C(copied) the bytes copied so far.
    """
    partial, size, uuid = copying.partial_copy, now.volsize, copying.uuid
    left_out = ("size", "copied", "image")
    user_properties = {key: value for key, value in now.user.items() if key in identity.NAMES and key not in left_out}
    facts = {**user_properties, **stamps, "uuid": uuid, **identity.type_fact(wanted), "from": str(now.guid)}
    if now.kind == "filesystem":
        resize(zfs, now, size, geometry)
    if wanted == FILE:
        path = _path(partial, uuid)
        make(zfs, partial, size, copying.compression, facts, geometry)
        _mount(zfs, partial, _folder(path))
        zfs.files.make(path, size)
    else:
        options = {"volblocksize": str(copying.block_size_bytes), "compression": copying.compression}
        zfs.create_volume(partial, size, options, facts, wanted == SPARSE)
    renames.copy_values(zfs, now.name, partial)
    progress.current().begin(size)
    zfs.files.copy(_data_path(zfs, now), _data_path(zfs, _read(zfs, partial)), size, _CopyProgress(zfs, partial))


def replace_original(zfs: Zfs, partial: str, now: Dataset) -> None:
    """Rename a copy to the name of its destroyed original."""
    renames.rename(zfs, partial, now.name)
    # A disk that a VM waits for keeps its mark until the VM has it again.
    awaited = now.user.get("from") == identity.CONVERTING
    zfs.set_facts(now.name, {**dict.fromkeys(COPY_MARKS, ""), **({"from": identity.CONVERTING} if awaited else {})})


def discard(zfs: Zfs, partial: Dataset) -> None:
    """Destroy an unfinished copy with its snapshots. It has some if somebody has taken snapshots of the whole pool."""
    parts = [d for d in zfs.datasets(partial.name) if d.name != partial.name]
    others = [d.name for d in parts if d.kind != "snapshot"]
    if others:
        text = (
            f"{partial.name} is an incomplete copy to be destroyed, but it contains "
            f"{', '.join(others)}, which is not part of it"
        )
        raise FlexdiskError("InUse", text)
    exact.destroy(zfs, partial.dataset_id, [one.dataset_id for one in parts])
    remove_folder(zfs, partial)


def _read(zfs: Zfs, name: str) -> Dataset:
    return next(d for d in zfs.datasets(name, snapshots=False) if d.name == name)


def _data_path(zfs: Zfs, dataset: Dataset) -> str:
    """Return the path of a disk's file or device."""
    if dataset.kind == "filesystem":
        return _path_of(dataset)
    zfs.await_device(dataset.name)
    return ZVOL + dataset.name


class _CopyProgress:
    """Reports the progress of a copy, and stores it in a property from time to time."""

    def __init__(self, zfs: Zfs, name: str) -> None:
        self._zfs = zfs
        self._name = name
        self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        progress.current().reach(done)
        if time.monotonic() - self._last >= PACE:
            self._zfs.set_facts(self._name, {"copied": str(done)})
            self._last = time.monotonic()
