# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Which snapshots of the sync are kept: the newest set that all disks of a VM have on both sides, and newer ones."""

from __future__ import annotations

import typing as t

from .copies import Original, Point, Replica, sync_number

Pair = t.Tuple[Original, t.Optional[Replica]]


def complete(pairs: t.Sequence[Pair], pools: t.Collection[int]) -> str:
    """The name of the newest set of snapshots that every disk of a VM has on both sides, with equal guids; "" for none.

    pools: the guids of both pools. A snapshot is named after the pool that it was sent to, and that may have been
    either of them.
    """
    names = [_in_both(disk, replica, pools) for disk, replica in pairs]
    common = set(names[0]).intersection(*names[1:]) if names else ()
    return max(common, key=lambda name: names[0][name], default="")


def _in_both(disk: Original, replica: t.Optional[Replica], pools: t.Collection[int]) -> t.Dict[str, int]:
    """The createtxg of each snapshot of the sync that both have."""
    there = {point.guid for point in replica.snapshots} if replica else set()
    return {point.name: point.createtxg for point in _synced(disk, pools) if point.guid in there}


def _synced(disk: Original, pools: t.Collection[int]) -> t.List[Point]:
    return [point for point in disk.snapshots if any(sync_number(point.name, pool) is not None for pool in pools)]


def released(copy: Original, base: str, pools: t.Collection[int]) -> t.List[Point]:
    """The snapshots of the sync that a side gives up: those older than the base, and none without a base.

    A set that is newer, complete or not, stays: it may be on its way.
    """
    found = {point.name: point.createtxg for point in copy.snapshots}
    if base not in found:
        return []
    return [point for point in _synced(copy, pools) if point.createtxg < found[base]]
