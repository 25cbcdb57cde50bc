# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Block devices of volumes. On Linux they get new names asynchronously, a moment after C(zfs rename) has ended."""

from __future__ import annotations

import fcntl
import glob
import os
import stat

from ..model.dataset import ZVOL

_BLKZNAME = 0x8100127D  # include/sys/fs/zfs.h of OpenZFS: _IOR(0x12, 125, char[ZFS_MAX_DATASET_NAME_LEN])
_NAME_BYTES = 256


def path(volume: str) -> str:
    """Return the path of the device itself, not of udev's link. It does not exist if the volume has no device."""
    return os.path.realpath(ZVOL + volume)


def partitions(device: str) -> int:
    """Return how many partitions of a device the host has found."""
    return len(glob.glob(device + "p[0-9]*"))


def called(volume: str) -> str:
    """Return the volume whose device now has this volume's name in the kernel, "" if there is none.

    On Linux udev's links change even later than the kernel. On FreeBSD the names are the devices themselves.
    """
    return at(ZVOL + volume)


def at(path: str) -> str:
    """Return the volume whose device, or a partition of it, is at a path; "" for any other path."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISBLK(mode):
            return path[len(ZVOL) :] if stat.S_ISCHR(mode) and path.startswith(ZVOL) else ""
        if not os.path.basename(os.path.realpath(path)).startswith("zd"):
            return ""
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            answer = fcntl.ioctl(handle, _BLKZNAME, bytes(_NAME_BYTES))
        finally:
            os.close(handle)
    except OSError:
        return ""
    return answer.split(b"\0")[0].decode("utf-8", "replace")
