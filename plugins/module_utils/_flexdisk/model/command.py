# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The interface to programs: arguments in, answer out."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """The result of a program. rc is negative if a signal ended it, as in subprocess."""

    rc: int
    stdout: str
    stderr: str


_READS = (
    ("zfs", "get"),
    ("zfs", "create", "-nP"),
    ("zfs", "holds"),
    ("zpool", "status"),
    ("zpool", "get"),
    ("zdb", "-C"),
    ("vmadm", "get"),
    ("vmadm", "lookup"),
    ("imgadm", "get"),
    ("nictagadm", "exists"),
    ("sysinfo",),
    ("kstat", "-p"),
    ("qemu-img", "info"),
)


def changes(argv: t.Sequence[str]) -> bool:
    """Whether a command may change something. True for unknown commands."""
    return not any(tuple(argv[: len(read)]) == read for read in _READS)


class Runner(t.Protocol):
    """Runs an argv list without a shell, under LC_ALL=C.

    timeout: seconds. Raises FlexdiskError CommandNotFound, CommandFailed or CommandTimeout; the caller handles a
    non-zero rc.
    """

    def __call__(self, argv: t.Sequence[str], stdin: str = "", timeout: float = 300) -> Answer: ...


class Carrier(Runner, t.Protocol):
    """A Runner that can also connect the output of one program with the input of another."""

    def carry(
        self, first: t.Sequence[str], second: t.Sequence[str], carried: t.Callable[[int], None]
    ) -> t.Tuple[Answer, Answer]:
        """Return both answers. carried is called with the number of bytes of each piece."""


# Runs two programs, the second of which reads the output of the first, without a time-out. Returns both answers.
Pipe = t.Callable[[t.Sequence[str], t.Sequence[str]], t.Tuple[Answer, Answer]]
