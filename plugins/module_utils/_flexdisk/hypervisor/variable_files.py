# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files with the UEFI variables of domains. They are written whole or not at all."""

from __future__ import annotations

import os

from ..model.errors import FlexdiskError
from ..rules.uefi import LIMIT
from . import whole_files


def read(path: str) -> bytes:
    """Return the first LIMIT + 1 bytes of a file; none if it does not exist. Raises FlexdiskError FileFailed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(LIMIT + 1)
    except FileNotFoundError:
        return b""
    except OSError as exc:
        raise _failed(path, exc) from exc


def write(path: str, content: bytes) -> None:
    """Write a file, whole or not at all. It gets the owner of the folder; libvirt gives it to the user of its guests
    when it starts the domain. Raises FlexdiskError FileFailed.
    """
    try:
        owner = os.stat(os.path.dirname(path))
        whole_files.replace(path, content, owner=(owner.st_uid, owner.st_gid))
    except OSError as exc:
        raise _failed(path, exc) from exc


def _failed(path: str, exc: OSError) -> FlexdiskError:
    return FlexdiskError("FileFailed", f"{path}: {exc.strerror or exc}")
