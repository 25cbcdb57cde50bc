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
        stream = open(root + path, "a", encoding="ascii")  # noqa: SIM115  it is closed below
    except OSError as exc:
        raise FlexdiskError("FileFailed", f"{path} cannot be opened: {exc.strerror}") from exc
    with stream:
        _lock(stream, path, pause)
        yield


def _lock(stream: t.IO[str], path: str, pause: t.Callable[[float], None]) -> None:
    for _attempt in range(int(_SECONDS / _INTERVAL)):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        pause(_INTERVAL)
    raise FlexdiskError("Busy", f"Proxmox VE works on the VM: {path} is locked by another process")
