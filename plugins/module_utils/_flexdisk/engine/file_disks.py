# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Disks that are files in file systems of their own: made, sized, removed, converted from and to volumes by copy."""

from __future__ import annotations

import time
import typing as t

from ..model.dataset import RECORD, ZVOL, Dataset
from ..model.errors import FlexdiskError
from ..model.sizes import render_apart, render_bytes
from ..model.vm import FILE, SPARSE
from ..plan.disk_steps import Copying
from ..rules import identity
from ..rules.reservation import PoolGeometry, automatic_reservation
from ..zfs.commands import Zfs

# Seconds between two notes of how far a copy is.
PACE = 5.0

# On a copy that is being made.
MARKS = ("from", "copied")

_Facts = t.Mapping[str, str]


def _path(name: str, uuid: str) -> str:
    """Its file. Anybody may have written a uuid, and only a real one may become a path."""
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
    """A file system with its identity and room for the whole file, then the file; size is bytes."""
    options = {
        "mountpoint": _folder(_path(name, facts["uuid"])),
        "canmount": "on",
        "recordsize": str(RECORD),
        "atime": "off",
        "refreservation": str(automatic_reservation(size, RECORD, geometry)),
        **({"compression": compression} if compression else {}),
    }
    marks = {"type": FILE, "size": str(size), "from": identity.MAKING}
    zfs.create_filesystem(name, options, {**marks, **{k: v for k, v in facts.items() if k not in marks or v}})


def ensure(zfs: Zfs, now: Dataset, size: int) -> str:
    """Where its file is, of which size bytes are wanted: mounted, and made where an interrupted run has not come to it.

    Nobody has given up what a file has beyond its size, be it of another hand or of an interrupted grow.
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
            "%s has %s, but its dataset %s is for %s and the task asks for %s; nothing was cut off"
            % (path, have, now.name, recorded, wanted),
        )
    return path


def _mount(zfs: Zfs, name: str, folder: str) -> None:
    if zfs.files.mounted(folder, name):
        return
    zfs.mount(name)
    if not zfs.files.mounted(folder, name):
        raise FlexdiskError("Changed", f"{name} is mounted, but not at {folder}")


def resize(zfs: Zfs, now: Dataset, size: int, geometry: PoolGeometry) -> None:
    """Room before the file, where it grows; the file before its room, where it shrinks.

    Interrupted, it is found at the old size and done again. Snapshots keep theirs: they are marked with it first.
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
    """What is left of it in the file system of the host."""
    if gone.kind == "filesystem" and identity.is_uuid(gone.user.get("uuid", "")):
        zfs.files.remove_folder(_folder(_path_of(gone)))


def copy(zfs: Zfs, now: Dataset, wanted: str, copying: Copying, stamps: _Facts, geometry: PoolGeometry) -> None:
    """A copy of the type that is wanted beside the disk, whole and synced at the end.

    It says whose it is by the guid in its property C(from), and how far it is in C(copied).
    """
    half, size, uuid = copying.half, now.volsize, copying.uuid
    kept = {key: value for key, value in now.user.items() if key in identity.NAMES and key not in ("size", "copied")}
    facts = {**kept, **stamps, "uuid": uuid, **identity.type_fact(wanted), "from": str(now.guid)}
    if now.kind == "filesystem":
        resize(zfs, now, size, geometry)
    if wanted == FILE:
        path = _path(half, uuid)
        make(zfs, half, size, copying.compression, facts, geometry)
        _mount(zfs, half, _folder(path))
        zfs.files.make(path, size)
    else:
        options = {"volblocksize": str(copying.block_size_bytes), "compression": copying.compression}
        zfs.create_volume(half, size, options, facts, wanted == SPARSE)
    zfs.files.copy(_data(zfs, now), _data(zfs, _named(zfs, half)), size, _Notes(zfs, half))


def take_place(zfs: Zfs, half: str, now: Dataset) -> None:
    """The copy of a disk that has gone gets its name."""
    zfs.rename(half, now.name)
    # A disk that a VM waits for keeps its mark until the VM has it again.
    awaited = now.user.get("from") == identity.CONVERTING
    zfs.set_facts(now.name, {**dict.fromkeys(MARKS, ""), **({"from": identity.CONVERTING} if awaited else {})})


def discard(zfs: Zfs, half: Dataset) -> None:
    """What an interrupted conversion has copied so far, with the snapshots that came with the whole pool's."""
    parts = [d for d in zfs.datasets(half.name) if d.name != half.name]
    others = [d.name for d in parts if d.kind != "snapshot"]
    if others:
        words = "%s is an incomplete copy to be destroyed, but it contains %s, which is not part of it"
        raise FlexdiskError("InUse", words % (half.name, ", ".join(others)))
    zfs.destroy(half.name, bool(parts))
    removed(zfs, half)


def _named(zfs: Zfs, name: str) -> Dataset:
    return next(d for d in zfs.datasets(name, snapshots=False) if d.name == name)


def _data(zfs: Zfs, dataset: Dataset) -> str:
    """Where its bytes are."""
    if dataset.kind == "filesystem":
        return _path_of(dataset)
    zfs.await_device(dataset.name)
    return ZVOL + dataset.name


class _Notes:
    """Writes down how far a copy is, now and then."""

    def __init__(self, zfs: Zfs, name: str) -> None:
        self._zfs = zfs
        self._name = name
        self._last = time.monotonic()

    def __call__(self, done: int) -> None:
        if time.monotonic() - self._last >= PACE:
            self._zfs.set_facts(self._name, {"copied": str(done)})
            self._last = time.monotonic()
