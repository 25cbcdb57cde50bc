# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Replace small files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import typing as t

NEW = ".flexdisk-new"  # at the end of the name of a file that is being written, and that a killed run has left


def replace(
    path: str,
    content: bytes,
    mode: t.Optional[int] = 0o600,
    owner: t.Optional[t.Tuple[int, int]] = None,
    durable: bool = True,
) -> None:
    """Write a file so that readers find either the old or the new content. Links are not followed.

    mode: None on a file system without modes. owner: user and group, by default the user and group of this process.
    durable: the file must survive a loss of power, so wait until it is on storage.
    Raises OSError, and leaves the old file.
    """
    new = path + NEW
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    if durable:
        _sync(os.path.dirname(path))


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
