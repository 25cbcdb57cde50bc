# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Receiving: what `dmu_recv_begin`, `dmu_recv_stream` and `dmu_recv_end` do with a part of a stream."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from simnode.zfs import crypt
from simnode.zfs import extents as ext
from simnode.zfs.errors import ZfsError
from simnode.zfs.extents import Piece
from simnode.zfs.kernel.datasets import clone, create, discard
from simnode.zfs.kernel.guards import writable
from simnode.zfs.model import Dataset, Pool, Snapshot
from simnode.zfs.storage import Storage
from simnode.zfs.stream import Part


def begin_new(storage: Storage, name: str, header: Dict[str, Any], origin: Optional[Snapshot]) -> Dataset:
    """The dataset that a full stream makes, or one that follows a snapshot elsewhere. A volume has no size yet."""
    if origin is not None:
        made = clone(storage, name, origin, {})
    else:
        made = create(storage, name, header["kind"], {}, header["block"], raw=bool(header.get("raw")))
    if header.get("raw"):
        crypt.begin_raw(made, header["raw"])
    made.partial = _state(header, True)
    return made


def begin(storage: Storage, target: Dataset, header: Dict[str, Any], short: str) -> None:
    """The next snapshot of a dataset: EBUSY while another stream is unfinished, EEXIST for a name that is taken, ENODEV
    without its base, ETXTBSY if the dataset has changed since.
    """
    writable(storage, target.name)
    if target.partial is not None:
        raise ZfsError("EBUSY", target.name)
    if target.snapshot(short) is not None:
        raise ZfsError("EEXIST", target.name)
    base = next((snap for snap in target.snapshots if snap.guid == header["fromguid"]), None)
    if base is None:
        raise ZfsError("ENODEV", target.name)
    if header.get("raw") and base is not target.snapshots[-1]:
        raise ZfsError("ETXTBSY", target.name)  # a raw stream follows the newest snapshot only
    if (target.extents, target.volsize) != (base.extents, base.volsize):
        raise ZfsError("ETXTBSY", target.name)
    target.partial = _state(header, False)


def _state(header: Dict[str, Any], new: bool) -> Dict[str, Any]:
    keys = {key: header[key] for key in ("toguid", "fromguid", "toname")}
    return {**keys, "raw": bool(header.get("raw")), "new": new, "pieces": []}


def take_in(storage: Storage, target: Dataset, pieces: List[Piece]) -> bool:
    """Add pieces to what has been received. Whether there was room for all of them."""
    pool, state = storage.pool_of(target.name), target.partial
    assert state is not None
    room = pool.room(target)
    fitting = pieces[: _count_that_fits(pool, target, pieces, room)]
    state["pieces"] += fitting
    if state["new"]:
        _apply(storage, pool, target, fitting)
    pool.rebuild()
    storage.next_txg()
    return len(fitting) == len(pieces)


def _count_that_fits(pool: Pool, target: Dataset, pieces: List[Piece], room: int) -> int:
    """Return how many of the pieces, from the first one on, fit into so many bytes."""
    fits, beyond = 0, len(pieces) + 1
    count = len(pieces)  # mostly all of them do
    while fits < count:
        if pool.weigh(target, _written(pieces[:count])) <= room:
            fits = count
        else:
            beyond = count
        count = (fits + beyond) // 2
    return fits


def finish(storage: Storage, target: Dataset, part: Part, short: str) -> Snapshot:
    """All is there: the dataset gets it, and the snapshot its name and guid."""
    pool, state = storage.pool_of(target.name), target.partial
    assert state is not None
    if not state["new"]:
        _apply(storage, pool, target, state["pieces"])
    target.partial = None
    if part.header.get("raw"):
        crypt.take_raw(target, part.header["raw"])
    elif target.cryptroot and part.header["fromguid"]:
        target.crypt["mixed"] = True  # no raw stream of the same source follows any more
    target.volsize = part.header["volsize"]
    target.extents = ext.cut(target.extents, target.volsize, 1 << 62) if target.volsize else target.extents
    snap = Snapshot(target, short, part.header["toguid"], storage.next_txg(), part.header["created"])
    snap.received.update(part.header["snapprops"])
    target.snapshots.append(snap)
    pool.recount(target)
    pool.rebuild()
    storage.emit("snapshot", snap.fullname)
    return snap


def abort(storage: Storage, target: Dataset) -> None:
    """Forget what has been received; a dataset that was made for it goes."""
    state, target.partial = target.partial, None
    assert state is not None
    if state["new"]:
        discard(storage, target)
    storage.pool_of(target.name).rebuild()
    storage.next_txg()


def _apply(storage: Storage, pool: Pool, target: Dataset, pieces: List[Piece]) -> None:
    txg, before = storage.next_txg(), target.extents
    target.extents = ext.overlay(target.extents, pieces, txg)
    if target.extents != before:
        pool.touch(target, txg)
    pool.recount(target)


def _written(pieces: List[Piece]) -> ext.Extents:
    return [(start, end, content, 0) for start, end, content in pieces if content is not None]
