# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Datasets: create, clone, destroy, rename."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from simnode.zfs import crypt
from simnode.zfs.errors import ZfsError
from simnode.zfs.kernel.guards import NORMAL, RESERVED, busy, pool_space, writable
from simnode.zfs.kernel.properties import set_props
from simnode.zfs.kernel.snapshots import reap
from simnode.zfs.model import FILESYSTEM, VOLUME, Dataset, Pool, Snapshot
from simnode.zfs.storage import Storage


def _insert(storage: Storage, pool: Pool, parent: Dataset, dataset: Dataset) -> None:
    dataset.parent = parent
    parent.children[dataset.name.rpartition("/")[2]] = dataset
    pool.datasets[dataset.name] = dataset
    storage.dirty = True


def _parent(storage: Storage, name: str) -> Tuple[Pool, Dataset]:
    pool = storage.pool_of(name)
    parent = pool.datasets.get(name.rpartition("/")[0])
    if parent is None:
        raise ZfsError("ENOENT", name)
    if parent.kind != FILESYSTEM:
        raise ZfsError("EWRONGPARENT", name)
    if name in pool.datasets:
        raise ZfsError("EEXIST", name)
    return pool, parent


def create(
    storage: Storage,
    name: str,
    kind: str,
    props: Dict[str, Any],
    volblocksize: int = 0,
    key: str = "",
    raw: bool = False,
) -> Dataset:
    """Create a dataset with checked properties; `volsize` is among `props` for a volume. Nothing stays on failure.

    key: the user's key of an encryption root. raw: the stream that it is made for brings the keys.
    """
    writable(storage, name)
    pool, parent = _parent(storage, name)
    if not raw and "encryption" not in props and parent.cryptroot and not crypt.is_loaded(pool, parent):
        raise ZfsError("ENOKEY", name)
    pool_space(pool, 5, NORMAL, name)
    txg = storage.next_txg()
    dataset = Dataset(name, kind, storage.new_guid(), txg, storage.seconds())
    dataset.volblocksize = volblocksize
    props = dict(props)
    dataset.volsize = props.pop("volsize", 0)
    encryption = props.get("encryption")
    if encryption is None:
        crypt.follow(pool, dataset, parent)
    elif encryption != "off":
        crypt.encrypt(dataset, key)
    _insert(storage, pool, parent, dataset)
    pool.touch(dataset, txg)
    pool.recount(dataset)
    errors = set_props(storage, dataset, props, quiet=True)
    if errors:
        _remove(pool, dataset)
        raise ZfsError(errors[0][1], name)
    storage.emit("create", name)
    return dataset


def clone(storage: Storage, name: str, origin: Snapshot, props: Dict[str, Any]) -> Dataset:
    """Clone a snapshot. When a property is refused the clone stays behind, as in real ZFS."""
    writable(storage, name)
    pool, parent = _parent(storage, name)
    if storage.pool_of(origin.dataset.name) is not pool:
        raise ZfsError("EXDEV", name)
    pool_space(pool, 6, NORMAL, name)
    txg = storage.next_txg()
    dataset = Dataset(name, origin.dataset.kind, storage.new_guid(), txg, storage.seconds())
    dataset.origin = origin
    origin.clones.append(dataset)
    dataset.cryptroot = origin.dataset.cryptroot
    dataset.crypt = {**origin.dataset.crypt, "master": crypt.master_of(origin.dataset)} if dataset.cryptroot else {}
    dataset.volblocksize = origin.dataset.volblocksize
    dataset.volsize = origin.volsize
    dataset.extents = origin.extents
    _insert(storage, pool, parent, dataset)
    pool.recount(dataset)
    storage.emit("clone", name)
    errors = set_props(storage, dataset, props, quiet=True)
    if errors:
        raise ZfsError(errors[0][1], name)
    return dataset


def _remove(pool: Pool, dataset: Dataset) -> None:
    parent = dataset.parent
    if parent is None:
        raise ZfsError("EBUSY", dataset.name)
    del pool.datasets[dataset.name]
    del parent.children[dataset.name.rpartition("/")[2]]
    parent.charge -= max(dataset.used, dataset.reservation)
    pool.settle(parent)


def discard(storage: Storage, dataset: Dataset) -> None:
    """Remove a dataset without a check."""
    _remove(storage.pool_of(dataset.name), dataset)
    if dataset.origin is not None:
        dataset.origin.clones.remove(dataset)
    storage.emit("destroy", dataset.name)


def destroy(storage: Storage, dataset: Dataset) -> None:
    """Destroy a dataset that has neither children nor snapshots: EEXIST for a file system's, EBUSY for a volume's."""
    writable(storage, dataset.name)
    busy(storage, dataset.name)
    if dataset.guid in storage.faults.get("open", ()):
        raise ZfsError("EBUSY", dataset.name)
    if dataset.snapshots or dataset.children:
        raise ZfsError("EBUSY" if dataset.kind == VOLUME else "EEXIST", dataset.name)
    _remove(storage.pool_of(dataset.name), dataset)
    storage.next_txg()
    storage.emit("destroy", dataset.name)
    if dataset.origin is not None:
        dataset.origin.clones.remove(dataset)
        reap(storage, dataset.origin)


def rename(storage: Storage, dataset: Dataset, target: str) -> None:
    """Move a dataset with everything below it, all quotas and the encryption root checked."""
    writable(storage, dataset.name)
    busy(storage, dataset.name)
    pool, parent = _parent(storage, target)
    if storage.pool_of(dataset.name) is not pool:
        raise ZfsError("EXDEV", dataset.name)
    pool_space(pool, 3, RESERVED, dataset.name)
    old_parent = dataset.parent
    if old_parent is None:
        raise ZfsError("EINVAL", dataset.name)
    grown = len(target) - len(dataset.name)
    for below in dataset.walk():
        longest = max([len(below.name)] + [len(snap.fullname) for snap in below.snapshots])
        if longest + grown > 255:
            raise ZfsError("ENAMETOOLONG", dataset.name)
    if parent is not old_parent:
        if dataset.cryptroot not in (0, dataset.guid, parent.cryptroot):
            raise ZfsError("EACCES", dataset.name)
        _transfer(pool, dataset, old_parent, parent)
    old_name = dataset.name
    del old_parent.children[old_name.rpartition("/")[2]]
    old_parent.charge -= max(dataset.used, dataset.reservation)
    pool.settle(old_parent)
    dataset.parent = parent
    parent.children[target.rpartition("/")[2]] = dataset
    parent.charge += max(dataset.used, dataset.reservation)
    pool.settle(parent)
    for below in list(dataset.walk()):
        del pool.datasets[below.name]
        below.name = target + below.name[len(old_name) :]
        pool.datasets[below.name] = below
    storage.next_txg()
    storage.emit("rename", old_name)


def _transfer(pool: Pool, dataset: Dataset, source: Dataset, target: Dataset) -> None:
    """`dsl_dir_transfer_possible`."""
    space = max(dataset.used, dataset.reservation)
    above = list(target.ancestors())
    delta = -space
    node = source
    while node not in above:
        delta = max(node.used + delta, node.reservation) - max(node.used, node.reservation)
        if node.parent is None:
            break
        node = node.parent
    if pool.room(target, node, delta) < space:
        raise ZfsError("ENOSPC", dataset.name)
