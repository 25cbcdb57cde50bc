# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock that Proxmox VE takes for every change, start and stop of a VM. While it is held, qm does none of these."""

from __future__ import annotations

import contextlib
import fcntl
import os
import typing as t

from ..model.errors import FlexdiskError

_SECONDS = 10  # as long as qm waits
_INTERVAL = 0.5


@contextlib.contextmanager
def held(root: str, vmid: int, pause: t.Callable[[float], None]) -> t.Iterator[None]:
    """Hold the lock of a VM. qm must not be called meanwhile: it would wait for it.

    root: the directory with the files of the node. Raises FlexdiskError Busy, FileFailed.
    """
    path = f"/var/lock/qemu-server/lock-{vmid}.conf"
    try:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        lock = os.open(root + path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as exc:
        raise FlexdiskError("FileFailed", f"{path} cannot be opened: {exc.strerror}") from exc
    try:
        _lock(lock, path, pause)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, path: str, pause: t.Callable[[float], None]) -> None:
    for _attempt in range(int(_SECONDS / _INTERVAL)):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        pause(_INTERVAL)
    raise FlexdiskError("Busy", f"Proxmox VE works on the VM: {path} is locked by another process")
