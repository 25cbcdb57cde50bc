# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Files with the UEFI variables of domains: read, and written whole or not at all."""

from __future__ import annotations

import contextlib
import os

from ..model.errors import FlexdiskError
from ..rules.uefi import LIMIT

_NEW = ".flexdisk-new"


def read(path: str) -> bytes:
    """The first LIMIT + 1 bytes of a file; none if it does not exist. Raises FlexdiskError FileFailed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise _failed(path, exc) from exc


def write(path: str, content: bytes) -> None:
    """Write a file, whole or not at all. Its owner is that of the folder, until libvirt starts the domain and gives it
    to the user of its guests. Raises FlexdiskError FileFailed.
    """
    try:
        _write(path, content)
    except OSError as exc:
        raise _failed(path, exc) from exc


def _write(path: str, content: bytes) -> None:
    folder, new = os.path.dirname(path), path + _NEW
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
        owner = os.stat(folder)
        os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    _sync(folder)


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _failed(path: str, exc: OSError) -> FlexdiskError:
    return FlexdiskError("FileFailed", f"{path}: {exc.strerror or exc}")
