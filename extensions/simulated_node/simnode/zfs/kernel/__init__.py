# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the ZFS kernel module does: each function is one ioctl, checks first, all or nothing unless it says otherwise.

Checks and their order follow OpenZFS `dsl_dir.c`, `dsl_dataset.c`, `dsl_destroy.c`, `dsl_synctask.c` and `zfs_ioctl.c`.
Every function raises `ZfsError` when it refuses.
"""

from __future__ import annotations

from simnode.zfs.kernel.data import trim, write
from simnode.zfs.kernel.datasets import clone, create, destroy, rename
from simnode.zfs.kernel.guards import writable
from simnode.zfs.kernel.properties import MAX_USER_VALUE, set_props
from simnode.zfs.kernel.receive import abort as abort_receive
from simnode.zfs.kernel.receive import begin as begin_receive
from simnode.zfs.kernel.receive import begin_new, take_in
from simnode.zfs.kernel.receive import finish as finish_receive
from simnode.zfs.kernel.snapshots import (
    destroy_bookmark,
    destroy_snapshots,
    hold,
    release,
    rename_snapshots,
    rollback,
    take_bookmark,
    take_snapshots,
)

__all__ = [
    "MAX_USER_VALUE",
    "abort_receive",
    "begin_new",
    "begin_receive",
    "clone",
    "create",
    "destroy",
    "destroy_bookmark",
    "destroy_snapshots",
    "finish_receive",
    "hold",
    "release",
    "rename",
    "rename_snapshots",
    "rollback",
    "set_props",
    "take_bookmark",
    "take_in",
    "take_snapshots",
    "trim",
    "writable",
    "write",
]
