# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of the pool model and the texts libzfs prints for them."""

from __future__ import annotations

_STANDARD = {
    "ENOENT": "dataset does not exist",
    "ENOSPC": "out of space",
    "EEXIST": "dataset already exists",
    "EBUSY": "dataset is busy",
    "EROFS": "pool is read-only",
    "EAGAIN": "pool I/O is currently suspended",
    "ENAMETOOLONG": "dataset name is too long",
    "EINVAL": "Invalid argument",
    "EIO": "I/O error",
    "ENXIO": "No such device or address",
    "EWRONGPARENT": "invalid parent dataset",
    "EXDEV": "Invalid cross-device link",
    "EACCES": "cannot move encrypted child outside of its encryption root",
    "ENOKEY": "encryption root's key is not loaded or provided",
    "E2BIG": "Argument list too long",
}


class ZfsError(Exception):
    """A refused operation: `code` is an errno name, `subject` the dataset or snapshot it failed on ('' if none)."""

    def __init__(self, code: str, subject: str = "") -> None:
        super().__init__(f"{code} {subject}".strip())
        self.code = code
        self.subject = subject

    @property
    def text(self) -> str:
        """The message of `zfs_standard_error`."""
        return _STANDARD.get(self.code, self.code)


class CliError(Exception):
    """Ends a command: `text` goes to stderr as it is (a newline is added), `rc` is the exit status."""

    def __init__(self, text: str, rc: int = 1) -> None:
        super().__init__(text)
        self.text = text
        self.rc = rc


class UsageError(CliError):
    """Wrong command line: exit status 2."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 2)
