# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether anything was written to a disk, judging by the figures of ZFS before compression, exact to the byte.

C(referenced) and C(written) do not suffice: a block that compresses to 112 bytes is stored in its pointer and takes
nothing. C(logicalused) counts each block of data in full, those of snapshots too, and never the origin of a clone. The
measurements are in tests/unit/rules/test_unwritten.py.
"""

from __future__ import annotations

import typing as t

from ..model.dataset import Dataset
from .layout import container

if t.TYPE_CHECKING:
    from .inventory import Host

# logicalused of a volume that nobody has written to, by logicalreferenced of an empty file system of the same pool,
# which tells its sector size, and by whether both are encrypted. Where a ZFS has other figures, nothing is unwritten.
FRESH_VOLUMES = {
    # sectors of 512 bytes to 64 KiB, then draid1 of 4096
    (12288, False): 6144,
    (14848, False): 7168,
    (24576, False): 14336,
    (43008, False): 28672,
    (79872, False): 53248,
    (153600, False): 102400,
    (235520, False): 184320,
    (399360, False): 348160,
    (116736, False): 77824,
    (50176, True): 26112,
    (51712, True): 26112,
    (58368, True): 31232,
    (70656, True): 41472,
    (99328, True): 61952,
    (156672, True): 102912,
    (238592, True): 184832,
    (402432, True): 348672,
}


def unwritten(dataset: Dataset, empty: t.Optional[Dataset]) -> bool:
    """Whether a volume or file system uses exactly what a fresh one uses.

    empty: an empty file system of the same pool, the container of detached disks. A fresh clone has either none of its
    own metadata yet or all of it, and a write always adds all of it.
    """
    if empty is None or empty.kind != "filesystem" or bool(empty.encryptionroot) != bool(dataset.encryptionroot):
        return False
    if dataset.kind == "volume":
        fresh = FRESH_VOLUMES.get((empty.logicalreferenced, bool(empty.encryptionroot)))
        if fresh is None:
            return False
        return dataset.logicalused <= fresh if dataset.origin else dataset.logicalused == fresh
    if dataset.kind != "filesystem" or dataset.origin:
        return False
    used = dataset.logicalused if dataset.backs else dataset.logicalreferenced  # a VM's has its disks below it
    return 0 < used == empty.logicalreferenced


def never_used(host: Host, volume: Dataset) -> bool:
    """Whether nothing was written to a disk, its snapshots hold nothing, and it did not begin as a copy."""
    return not volume.origin and unwritten(volume, host.datasets.get(container(volume.pool)))
