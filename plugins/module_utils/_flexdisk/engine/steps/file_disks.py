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

# Seconds between two notes of the progress of a copy.
PACE = 5.0

# Properties that mark a copy that is not finished.
MARKS = ("from", "copied")

_Facts = t.Mapping[str, str]


def _path(name: str, uuid: str) -> str:
    """The path of a disk's file. Anybody can write the property uuid, so only a valid uuid becomes part of a path."""
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
    """Make a file system with its identity and room for the whole file. size is bytes. ensure() makes the file."""
    options = {
        **_native(name, facts["uuid"]),
        "refreservation": str(automatic_reservation(size, RECORD, geometry)),
        **({"compression": compression} if compression else {}),
    }
    marks = {"type": FILE, "size": str(size), "from": identity.MAKING}
    zfs.create_filesystem(name, options, {**marks, **{k: v for k, v in facts.items() if k not in marks or v}})


def _native(name: str, uuid: str) -> t.Dict[str, str]:
    """What the file system of a disk is."""
    folder = _folder(_path(name, uuid))
    return {"recordsize": str(RECORD), "atime": "off", "mountpoint": folder, "canmount": "on"}


def show(zfs: Zfs, name: str, uuid: str) -> None:
    """A replica becomes the file system of a disk. ensure() mounts it."""
    for key, value in _native(name, uuid).items():
        zfs.set(name, **{key: value})


def hide(zfs: Zfs, gone: Dataset) -> None:
    """The file system of a disk becomes a replica, which is not mounted. ZFS writes to it whenever it mounts it.

    So this comes before anything that mounts it again.
    """
    zfs.set(gone.name, canmount="off")
    zfs.set(gone.name, mountpoint="none")
    removed(zfs, gone)


def ensure(zfs: Zfs, now: Dataset, size: int) -> str:
    """The path of a disk's file, mounted, and made if an interrupted run has not made it. size: the wanted bytes.

    A file that is too long is refused: nobody has given up its end, whether others or an interrupted grow made it.
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
    """Resize a file. To grow, reserve room first and then extend the file; to shrink, cut the file first.

    After an interruption, the property still has the old size, and the resize is done again. Before it, snapshots get
    their size as a property of their own, so that they keep it.
    """
    path = ensure(zfs, now, size)
    figure = {"refreservation": automatic_reservation(size, RECORD, geometry)}
    grows = size >= now.volsize
    if grows and now.refreservation != figure["refreservation"]:
        zfs.set(now.name, **figure)
    if size != now.volsize or size != zfs.files.size(path):
        for part in zfs.datasets(now.name):
            if part.kind == "snapshot" and "size" not in part.user:
                zfs.set_facts(part.name, {"size": str(now.volsize)})
        zfs.files.resize(path, size)
        zfs.set_facts(now.name, {"size": str(size)})
    if not grows:
        zfs.set(now.name, **figure)


def removed(zfs: Zfs, gone: Dataset) -> None:
    """Remove the folder that a destroyed disk has left in the host's file system."""
    if gone.kind == "filesystem" and identity.is_uuid(gone.user.get("uuid", "")):
        zfs.files.remove_folder(_folder(_path_of(gone)))


def copy(zfs: Zfs, now: Dataset, wanted: str, copying: Copying, stamps: _Facts, geometry: PoolGeometry) -> None:
    """Copy a disk to one of the wanted type beside it. The copy is complete and synced at the end.

    On the copy, C(from) is the guid of the original, and C(copied) is how far the copy is.
    """
    partial, size, uuid = copying.partial_copy, now.volsize, copying.uuid
    lost = ("size", "copied", "image")
    kept = {key: value for key, value in now.user.items() if key in identity.NAMES and key not in lost}
    facts = {**kept, **stamps, "uuid": uuid, **identity.type_fact(wanted), "from": str(now.guid)}
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
    renames.carry_over(zfs, now.name, partial)
    progress.current().begin(size)
    zfs.files.copy(_data(zfs, now), _data(zfs, _named(zfs, partial)), size, _Notes(zfs, partial))


def take_place(zfs: Zfs, partial: str, now: Dataset) -> None:
    """Give a copy the name of its original, which has gone."""
    renames.rename(zfs, partial, now.name)
    # A disk that a VM waits for keeps its mark until the VM has it again.
    awaited = now.user.get("from") == identity.CONVERTING
    zfs.set_facts(now.name, {**dict.fromkeys(MARKS, ""), **({"from": identity.CONVERTING} if awaited else {})})


def discard(zfs: Zfs, partial: Dataset) -> None:
    """Destroy an unfinished copy, which is ours alone, with its snapshots, which come from those of the whole pool."""
    parts = [d for d in zfs.datasets(partial.name) if d.name != partial.name]
    others = [d.name for d in parts if d.kind != "snapshot"]
    if others:
        text = (
            f"{partial.name} is an incomplete copy to be destroyed, but it contains "
            f"{', '.join(others)}, which is not part of it"
        )
        raise FlexdiskError("InUse", text)
    exact.destroy(zfs, partial.dataset_id, [one.dataset_id for one in parts])
    removed(zfs, partial)


def _named(zfs: Zfs, name: str) -> Dataset:
    return next(d for d in zfs.datasets(name, snapshots=False) if d.name == name)


def _data(zfs: Zfs, dataset: Dataset) -> str:
    """The path of a dataset's data: its file or its device."""
    if dataset.kind == "filesystem":
        return _path_of(dataset)
    zfs.await_device(dataset.name)
    return ZVOL + dataset.name


class _Notes:
    """Writes the progress of a copy to a property from time to time, and tells it."""

    def __init__(self, zfs: Zfs, name: str) -> None:
        self._zfs = zfs
        self._name = name
        self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        progress.current().reach(done)
        if time.monotonic() - self._last >= PACE:
            self._zfs.set_facts(self._name, {"copied": str(done)})
            self._last = time.monotonic()
