# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolls a replica back to an older snapshot."""

from __future__ import annotations

import typing as t

from ...fleet.replication.copies import Point, Replica
from ...rules.replicas import BACK, is_synced
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from .own_copies import destroy_with_holds


def roll_back_replica(zfs: Zfs, copies: Copies, replica: Replica, to: Point, lost: t.Collection[str]) -> None:
    """Destroy exactly the lost snapshots, given by their short names, and roll back.

    The replica is marked first, because without the newer snapshots it looks as if it had been written to. Newer
    bookmarks, which a former disk has, are destroyed, because ZFS does not roll back over them.
    """
    name = replica.dataset
    zfs.set_facts([name], {BACK: "on"})
    destroy_with_holds(zfs, copies, [f"{name}@{one.name}" for one in reversed(replica.snapshots) if one.name in lost])
    for bookmark in replica.bookmarks:
        if bookmark.createtxg > to.createtxg and is_synced(bookmark.name):
            exact.destroy_own(zfs, name + bookmark.suffix)
    copies.roll_back(f"{name}@{to.name}")
    zfs.set_facts([name], {BACK: ""})
