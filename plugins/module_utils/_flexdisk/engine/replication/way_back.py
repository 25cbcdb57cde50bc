# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A replica goes back to an older snapshot."""

from __future__ import annotations

import typing as t

from ...fleet.replication.copies import Point, Replica
from ...rules.replicas import BACK, is_synced
from ...zfs import exact
from ...zfs.commands import Zfs
from ...zfs.copies import Copies
from .own_copies import destroy_held


def go_back(zfs: Zfs, copies: Copies, replica: Replica, to: Point, lost: t.Collection[str]) -> None:
    """Destroy exactly the lost snapshots, by their short names, and roll back.

    Once the newer snapshots have gone, the replica looks as if it was written to. So the mark comes first. A replica
    that has been the disk has bookmarks, and ZFS does not go back over newer ones.
    """
    name = replica.dataset
    zfs.set_facts([name], {BACK: "on"})
    destroy_held(zfs, copies, [f"{name}@{one.name}" for one in reversed(replica.snapshots) if one.name in lost])
    for rope in replica.bookmarks:
        if rope.createtxg > to.createtxg and is_synced(rope.name):
            exact.destroy_own(zfs, name + rope.suffix)
    copies.roll_back(f"{name}@{to.name}")
    zfs.set_facts([name], {BACK: ""})
