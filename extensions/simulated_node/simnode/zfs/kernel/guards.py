# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that every change of a pool goes through first."""

from __future__ import annotations

from simnode.zfs.errors import ZfsError
from simnode.zfs.model import Pool
from simnode.zfs.storage import Storage

NORMAL, RESERVED, EXTRA = 0, 1, 2
"""How far into the slop space an operation may go: not at all, half, three quarters."""

_BLOCK = 16384


def writable(storage: Storage, name: str = "") -> None:
    """Refuse when the pool is read-only or suspended."""
    if storage.faults.get("readonly"):
        raise ZfsError("EROFS", name)
    if storage.faults.get("suspended"):
        raise ZfsError("EAGAIN", name)


def pool_space(pool: Pool, blocks: int, policy: int, name: str) -> None:
    """Refuse with ENOSPC when a sync task of `blocks` blocks does not fit into the pool."""
    if pool.root.used + 3 * blocks * _BLOCK > pool.size - (pool.slop >> policy):
        raise ZfsError("ENOSPC", name)


def busy(storage: Storage, name: str) -> None:
    """Refuse with EBUSY while the fault `busy:<dataset>` lasts."""
    key = f"busy:{name}"
    left = int(storage.faults.get(key, 0))
    if left > 0:
        storage.faults[key] = left - 1
        if left == 1:
            del storage.faults[key]
        storage.dirty = True
        raise ZfsError("EBUSY", name)
