# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How fast the last transfer to another host was. It is known until this host boots."""

from __future__ import annotations

import contextlib
import os

from ...hypervisor import whole_files
from ...rules.replicas import short_peer
from ..host import lock

_LEAST = 1 << 20  # of fewer bytes, most of the time is not that of sending


def _path(peer: int) -> str:
    return os.path.join(lock.place(), f"rate-{short_peer(peer)}")


def note(peer: int, size: int, seconds: float) -> None:
    """Note that so many bytes took so long. peer: the guid of the pool there. This never fails a transfer."""
    if size < _LEAST or seconds <= 0:
        return
    with contextlib.suppress(OSError):
        whole_files.replace(_path(peer), str(int(size / seconds)).encode(), durable=False)


def measured(peer: int) -> int:
    """Bytes a second of the last transfer to the pool with this guid, 0 if that is not known."""
    try:
        with open(_path(peer), encoding="utf-8") as file:
            return max(0, int(file.read(20)))
    except (OSError, ValueError):
        return 0
