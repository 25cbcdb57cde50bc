# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Error messages of zfs (LC_ALL=C) as typed errors. Exit codes differ between versions, texts hardly do."""

from __future__ import annotations

import typing as t

from ..model.errors import FlexdiskError


class ZfsError(FlexdiskError):
    """A zfs or zpool command failed; code is one of the names below, message has the command and its stderr."""


# The first match counts: a snapshot on hold is followed by a misleading "dataset already exists".
_PATTERNS = (
    ("it's being held", "Held"),
    ("has dependent clones", "HasClones"),
    ("has children", "HasChildren"),
    ("more recent snapshots or bookmarks exist", "HasNewer"),
    ("out of space", "InsufficientSpace"),
    ("size is greater than available space", "InsufficientSpace"),
    ("size is less than current used or reserved space", "InUse"),
    ("dataset does not exist", "ResourceNotFound"),
    ("no such pool", "ResourceNotFound"),
    ("could not find any snapshots to destroy", "ResourceNotFound"),
    ("no such tag on this dataset", "ResourceNotFound"),
    ("dataset already exists", "AlreadyExists"),
    ("tag already exists", "AlreadyExists"),
    ("dataset is busy", "Busy"),
    ("outside of its encryption root", "EncryptionRoot"),
    ("key is not loaded", "KeyNotLoaded"),
    ("key must be loaded", "KeyNotLoaded"),
    ("permission denied", "NotPermitted"),
    ("Operation not permitted", "NotPermitted"),
    ("read-only", "ReadOnly"),
    ("pool I/O is currently suspended", "Suspended"),
    ("pool is unavailable", "Suspended"),
    ("I/O error", "Suspended"),
    ("must be a multiple of volume block size", "InvalidArgument"),
)


def classify(argv: t.Sequence[str], rc: int, stderr: str) -> ZfsError:
    """Return the error for a failed command. A negative or 128+ rc means a signal, except 255 of zfs set."""
    code = next((code for text, code in _PATTERNS if text in stderr), "ZfsFailed")
    if rc < 0 or 128 <= rc < 255:
        code = "ZfsCrashed"
    return ZfsError(code, f"{stderr.strip() or 'the command failed without a message'} (rc {rc} of: {' '.join(argv)})")
