# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Setting properties: the order, the second pass and the refusals of ZFS_IOC_SET_PROP."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from simnode.zfs import extents as ext
from simnode.zfs.errors import ZfsError
from simnode.zfs.kernel.guards import EXTRA, pool_space, writable
from simnode.zfs.model import Dataset, Pool
from simnode.zfs.storage import Storage

MAX_USER_VALUE = 8191
SPECIAL = ("quota", "refquota", "reservation", "refreservation", "volsize")


def set_props(storage: Storage, dataset: Dataset, props: Dict[str, Any], quiet: bool = False) -> List[Tuple[str, str]]:
    """Set several properties as ZFS_IOC_SET_PROP does, NOT all or nothing; returns (property, errno) of those refused.

    The special ones are applied one by one in the order given, refused ones once more afterwards; then all others.
    """
    writable(storage, dataset.name)
    pool = storage.pool_of(dataset.name)
    special = [name for name in props if name in SPECIAL]
    again: List[str] = []
    applied = False
    for name in special:
        if _try(storage, pool, dataset, name, props[name]) is None:
            applied = True
        else:
            again.append(name)
    errors: List[Tuple[str, str]] = []
    for name in again:
        code = _try(storage, pool, dataset, name, props[name])
        if code is None:
            applied = True
        else:
            errors.append((name, code))
    for name, value in props.items():
        if name in SPECIAL:
            continue
        if ":" in name and len(str(value).encode()) > MAX_USER_VALUE:
            errors.append((name, "E2BIG"))
            continue
        dataset.props[name] = value
        applied = True
    if applied:
        storage.next_txg()
        if not quiet:
            storage.emit("set", dataset.name)
    return errors


def _try(storage: Storage, pool: Pool, dataset: Dataset, name: str, value: Any) -> Optional[str]:
    try:
        _SETTERS[name](storage, pool, dataset, int(value))
    except ZfsError as refusal:
        return refusal.code
    return None


def _set_quota(storage: Storage, pool: Pool, dataset: Dataset, value: int) -> None:
    pool_space(pool, 0, EXTRA, dataset.name)
    if value and (value < dataset.reservation or value < dataset.used):
        raise ZfsError("ENOSPC", dataset.name)
    dataset.props["quota"] = value


def _set_refquota(storage: Storage, pool: Pool, dataset: Dataset, value: int) -> None:
    pool_space(pool, 0, EXTRA, dataset.name)
    if value and (value < dataset.referenced or value < dataset.refreservation):
        raise ZfsError("ENOSPC", dataset.name)
    dataset.props["refquota"] = value


def _set_reservation(storage: Storage, pool: Pool, dataset: Dataset, value: int) -> None:
    pool_space(pool, 0, EXTRA, dataset.name)
    delta = max(dataset.used, value) - max(dataset.used, dataset.reservation)
    if delta > 0:
        room = pool.room(dataset.parent) if dataset.parent else pool.size - pool.slop - dataset.used
        if delta > room or (dataset.quota and value > dataset.quota):
            raise ZfsError("ENOSPC", dataset.name)
    pool.reserve(dataset, value)


def _set_refreservation(storage: Storage, pool: Pool, dataset: Dataset, value: int) -> None:
    pool_space(pool, 0, EXTRA, dataset.name)
    delta = max(dataset.unique, value) - max(dataset.unique, dataset.refreservation)
    if delta > 0 and (delta > pool.room(dataset) or (dataset.refquota and value > dataset.refquota)):
        raise ZfsError("ENOSPC", dataset.name)
    dataset.props["refreservation"] = value
    pool.settle(dataset)


def _read_only(dataset: Dataset) -> bool:
    for node in dataset.ancestors():
        if node.props.get("readonly") is not None:
            return bool(node.props["readonly"] == "on")
    return False


def _set_volsize(storage: Storage, pool: Pool, dataset: Dataset, value: int) -> None:
    if _read_only(dataset):
        raise ZfsError("EROFS", dataset.name)
    if value <= 0 or value % dataset.volblocksize:
        raise ZfsError("EINVAL", dataset.name)
    if value < dataset.volsize:
        dataset.extents = ext.cut(dataset.extents, value, max(dataset.volsize, value))
    dataset.volsize = value
    pool.touch(dataset, storage.next_txg())
    pool.recount(dataset)


_SETTERS = {
    "quota": _set_quota,
    "refquota": _set_refquota,
    "reservation": _set_reservation,
    "refreservation": _set_refreservation,
    "volsize": _set_volsize,
}
