# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What qm prints, and zfs for it, and what that means. Its exit status proves nothing, neither 0 nor another one."""

from __future__ import annotations

import re
import typing as t

from ..model.command import Answer
from ..model.errors import FlexdiskError

_ERRORS = (
    (r"checksum mismatch|detected modified configuration", "Changed"),
    (r"VM is locked", "InUse"),
    (r"can't lock file", "Busy"),
    (r"dataset is busy", "Busy"),
    (r"size is greater than available space|out of space", "InsufficientSpace"),
    (r"still busy in guest|can't unplug bootdisk", "GuestHoldsDisk"),
    (r"read-only|no quorum", "ReadOnly"),
    (r"does not exist", "ResourceNotFound"),
    (r"currently suspended", "Suspended"),
)
# What qm says beside its errors: the way to its options, and lines of the file that it cannot read.
_BESIDE = re.compile(
    r"qm (set|disk) <vmid>.*|vm \d+ - .*|trying to acquire lock\.\.\.|400 Parameter verification failed\.|"
)


def failure(argv: t.Sequence[str], answer: Answer, lacking: str) -> FlexdiskError:
    """Return the error for a command without its effect. lacking: what was read back, as a sentence."""
    lines = [line.strip() for line in answer.stderr.splitlines()]
    reasons = [line for line in lines if not _BESIDE.fullmatch(line)]
    code = next((code for pattern, code in _ERRORS if re.search(pattern, answer.stderr)), "QmFailed")
    if not reasons and answer.rc == 0:
        code = "NotApplied"
    silent = f"{argv[0]} has {'reported no error' if answer.rc == 0 else 'failed without a message'}"
    text = "; ".join(reasons) or silent
    return FlexdiskError(code, f"{text}; {lacking} (rc {answer.rc} of: {' '.join(argv)})")
