# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the growth of a disk does, one after another. A run that is killed between two of them plans the rest anew."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """A program."""

    argv: t.Tuple[str, ...]
    stdin: str = ""
    # The program reads the passphrase from its stdin.
    secret: bool = False
    # Programs that undo it, one by one.
    undo: t.Tuple[t.Tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Backup:
    """The table as it was goes to a file of this name, with these words."""

    name: str
    text: str


@dataclass(frozen=True)
class SetActive:
    """The protective MBR gets its active flag back, which sfdisk clears. The file of this name is not needed then."""

    name: str


@dataclass(frozen=True)
class CopySwapHeader:
    """The header of a swap goes to where the swap shall be. All figures are bytes on the disk."""

    source: int
    target: int


@dataclass(frozen=True)
class Unchanged:
    """The table is read again. It must still be that of the plan."""

    text: str


Step = t.Union[Run, Backup, CopySwapHeader, Unchanged, SetActive]


@dataclass(frozen=True)
class Plan:
    """A growth."""

    device: str
    size: int
    # The plan for a reader.
    lines: t.Tuple[str, ...] = ()
    steps: t.Tuple[Step, ...] = ()
    # How many of the steps concern the table, while the disk is locked.
    table: int = 0
    # Programs that change nothing, and fail if a later step would. They come first, in check mode too. A secret one
    # reads
    # the passphrase, and fails if it is wrong.
    tests: t.Tuple[Run, ...] = ()

    @property
    def backup(self) -> str:
        """The name of the backup's file, "" for none."""
        return next((step.name for step in self.steps if isinstance(step, Backup)), "")

    @property
    def later(self) -> bool:
        """Whether what was told to grow does so in the background, a moment later: ZFS."""
        return any(isinstance(step, Run) and step.argv[0] == "zpool" for step in self.steps)
