# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rate of the last transfer to another host. It is stored until this host boots."""

from __future__ import annotations

import contextlib
import os

from ...hypervisor import whole_files
from ...rules.replicas import short_peer
from ..host import lock

_MIN_BYTES = 1 << 20  # a transfer of fewer bytes says little about the rate


def _path(peer: int) -> str:
    return os.path.join(lock.place(), f"rate-{short_peer(peer)}")


def store(peer: int, size: int, seconds: float) -> None:
    """Store the rate of a transfer to the pool with this guid. Errors are ignored."""
    if size < _MIN_BYTES or seconds <= 0:
        return
    with contextlib.suppress(OSError):
        whole_files.replace(_path(peer), str(int(size / seconds)).encode(), durable=False)


def load(peer: int) -> int:
    """Return the bytes per second of the last transfer to the pool with this guid, 0 if that is not known."""
    try:
        with open(_path(peer), encoding="utf-8") as file:
            return max(0, int(file.read(20)))
    except (OSError, ValueError):
        return 0
