# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots: take, destroy, roll back, rename, hold."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple, Union

from simnode.zfs.errors import ZfsError
from simnode.zfs.kernel.guards import NORMAL, RESERVED, pool_space, writable
from simnode.zfs.model import Bookmark, Dataset, Snapshot
from simnode.zfs.storage import Storage


def take_snapshots(storage: Storage, names: List[str], props: Dict[str, Any]) -> List[Tuple[str, str]]:
    """Take snapshots of one pool, all or none. Return (snapshot, errno) of those that prevent it."""
    writable(storage)
    pool = storage.pool_of(names[0])
    errors: List[Tuple[str, str]] = []
    for name in names:
        above, _at, short = name.partition("@")
        try:
            dataset = storage.dataset(above)
            if dataset.snapshot(short) is not None:
                raise ZfsError("EEXIST", name)
            if dataset.incomplete:
                raise ZfsError("EBUSY", name)
            if min(dataset.unique, dataset.refreservation) > pool.room(dataset):
                raise ZfsError("ENOSPC", name)
        except ZfsError as refusal:
            errors.append((name, refusal.code))
    if errors:
        return errors
    pool_space(pool, 3 * len(names), NORMAL, names[0])
    txg = storage.next_txg()
    for name in names:
        above, _at, short = name.partition("@")
        dataset = storage.dataset(above)
        snap = Snapshot(dataset, short, storage.new_guid(), txg, storage.seconds())
        snap.props = dict(props)
        dataset.snapshots.append(snap)
        pool.recount(dataset)
        storage.emit("snapshot", name)
    return []


def destroy_snapshots(storage: Storage, snaps: List[Snapshot], defer: bool) -> List[Tuple[str, str]]:
    """Destroy snapshots, all or none. With `defer`, held or cloned ones are only marked. Return (snapshot, errno)."""
    writable(storage)
    errors: List[Tuple[str, str]] = []
    for snap in snaps:
        if defer:
            continue
        if snap.holds:
            errors.append((snap.fullname, "EBUSY"))
        elif snap.clones or snap.dataset.receiving_from(snap):
            errors.append((snap.fullname, "EEXIST"))
    if errors:
        return errors
    for snap in snaps:
        if snap.holds or snap.clones:
            snap.defer = True
            storage.next_txg()
        else:
            _drop(storage, snap)
    return []


def _drop(storage: Storage, snap: Snapshot) -> None:
    name = snap.fullname
    dataset = snap.dataset
    dataset.snapshots.remove(snap)
    storage.next_txg()
    storage.pool_of(dataset.name).recount(dataset)
    storage.emit("destroy", name)


def reap(storage: Storage, snap: Snapshot) -> None:
    """Finish a deferred destroy once nothing holds the snapshot any more."""
    if snap.defer and not snap.holds and not snap.clones:
        _drop(storage, snap)


def rollback(storage: Storage, dataset: Dataset, snap: Snapshot) -> None:
    """Return to the newest snapshot: contents and volsize, not the reservations nor any property."""
    writable(storage, dataset.name)
    pool = storage.pool_of(dataset.name)
    pool_space(pool, 1, RESERVED, dataset.name)
    if not dataset.snapshots or dataset.snapshots[-1] is not snap:
        raise ZfsError("EEXIST", dataset.name)
    if dataset.refquota and snap.referenced > dataset.refquota:
        raise ZfsError("ENOSPC", dataset.name)
    if 0 < min(dataset.refreservation, dataset.unique) > pool.room(dataset):
        raise ZfsError("ENOSPC", dataset.name)
    dataset.extents = snap.extents
    dataset.volsize = snap.volsize
    storage.next_txg()
    pool.recount(dataset)
    storage.emit("rollback", dataset.name)


def take_bookmark(storage: Storage, source: Union[Snapshot, Bookmark], short: str) -> None:
    """Create a bookmark of a snapshot or bookmark, under a free name."""
    writable(storage, source.fullname)
    bookmark = Bookmark(source.dataset, short, source.guid, source.createtxg, source.created, source.referenced)
    source.dataset.bookmarks.append(bookmark)
    storage.next_txg()
    storage.emit("bookmark", source.fullname)


def destroy_bookmark(storage: Storage, bookmark: Bookmark) -> None:
    """Destroy a bookmark."""
    writable(storage, bookmark.fullname)
    bookmark.dataset.bookmarks.remove(bookmark)
    storage.next_txg()
    storage.emit("destroy", bookmark.fullname)


def hold(storage: Storage, snap: Snapshot, tag: str) -> None:
    """Add a user hold. Raises ZfsError EEXIST if the tag exists."""
    writable(storage, snap.fullname)
    if tag in snap.holds:
        raise ZfsError("EEXIST", snap.fullname)
    snap.holds[tag] = storage.seconds()
    storage.next_txg()
    storage.emit("hold", snap.fullname)


def release(storage: Storage, snap: Snapshot, tag: str) -> None:
    """Remove a user hold. Raises ZfsError ESRCH if there is none."""
    writable(storage, snap.fullname)
    if tag not in snap.holds:
        raise ZfsError("ESRCH", snap.fullname)
    del snap.holds[tag]
    storage.next_txg()
    storage.emit("release", snap.fullname)
    reap(storage, snap)


def rename_snapshots(storage: Storage, snaps: List[Snapshot], short: str) -> None:
    """Rename snapshots of one name to another, all or none. Raises ZfsError EEXIST with an existing one."""
    writable(storage)
    for snap in snaps:
        if snap.dataset.snapshot(short) is not None:
            raise ZfsError("EEXIST", snap.fullname)
        if len(snap.dataset.name) + 1 + len(short) > 255:
            raise ZfsError("ENAMETOOLONG", snap.fullname)
    for snap in snaps:
        old_name = snap.fullname
        snap.name = short
        storage.emit("rename", old_name)
    storage.next_txg()
