# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a vmadm command ends other than well."""

from __future__ import annotations

from typing import Optional


class VmError(Exception):
    """An error that vmadm prints: exit code 1."""

    def __init__(self, message: str, code: Optional[str] = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Abort(Exception):
    """An uncaught assertion: the process dies of SIGABRT, exit code 134."""


class Cut(Exception):
    """vmadm ends in the middle of its work: by a signal (-9), or because nobody waits for it any longer (-15)."""

    def __init__(self, status: int) -> None:
        super().__init__("vmadm has ended with %d" % status)
        self.status = status


class Usage(Exception):
    """Wrong arguments: exit code 2, or 0 for help."""

    def __init__(self, message: Optional[str] = None, code: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def first_of_one(error: VmError) -> VmError:
    """Return the error as the parallel phase of a command reports it."""
    return VmError("first of 1 error: " + error.message, error.code)


def rtrim(text: str) -> str:
    return text.rstrip()
