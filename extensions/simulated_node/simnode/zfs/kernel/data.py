# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Contents: what a guest or a file system writes and discards."""

from __future__ import annotations

from simnode.zfs import crypt
from simnode.zfs import extents as ext
from simnode.zfs.errors import ZfsError
from simnode.zfs.kernel.guards import writable
from simnode.zfs.model import VOLUME, ZEROS, Dataset
from simnode.zfs.storage import Storage


def write(storage: Storage, dataset: Dataset, start: int, end: int, content: str) -> None:
    """Write [start, end). Raises ZfsError ENOSPC if it does not fit (nothing is written), EIO beyond a volume's end,
    ENXIO without its key."""
    writable(storage, dataset.name)
    if dataset.kind == VOLUME and end > dataset.volsize:
        raise ZfsError("EIO", dataset.name)
    pool = storage.pool_of(dataset.name)
    if not crypt.can_read(pool, dataset):
        raise ZfsError("ENXIO", dataset.name)
    txg = storage.next_txg()
    old_extents, avail = dataset.extents, pool.available(dataset)
    before = dataset.unique
    dataset.extents = _written(dataset, start, end, content, txg)
    pool.touch(dataset, txg)
    born = pool.weigh(dataset, [e for e in dataset.extents if e[3] > dataset.last_txg]) - before
    if born > 0 and born > avail + pool.meta_size(dataset.kind):
        dataset.extents = old_extents
        raise ZfsError("ENOSPC", dataset.name)
    pool.recount(dataset)


def _written(dataset: Dataset, start: int, end: int, content: str, txg: int) -> ext.Extents:
    """Return the extents after a write. Only complete blocks are written, so the rest of a block is written again."""
    block = dataset.block
    first, last = start // block * block, -(-end // block) * block
    extents = dataset.extents
    for one, other in ((first, min(start, first + block)), (max(end, last - block), last)):
        for piece in ext.within(extents, one, other):
            extents = ext.write(extents, piece[0], piece[1], piece[2], txg)
    if content.startswith(ZEROS):
        return ext.cut(extents, start, end)
    return ext.write(extents, start, end, content, txg)


def trim(storage: Storage, dataset: Dataset, start: int, end: int) -> None:
    """Discard [start, end)."""
    writable(storage, dataset.name)
    pool = storage.pool_of(dataset.name)
    txg = storage.next_txg()
    dataset.extents = ext.cut(dataset.extents, start, end)
    pool.touch(dataset, txg)
    pool.recount(dataset)
