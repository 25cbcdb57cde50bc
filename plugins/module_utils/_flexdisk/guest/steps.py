# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps that grow a disk, in order. If a run is killed between two of them, the next run plans the rest."""

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
    """Save the partition table as it was to a file with this name and text."""

    name: str
    text: str


@dataclass(frozen=True)
class SetActive:
    """Set the active flag of the protective MBR again, which sfdisk clears, and remove the file with this name."""

    name: str


@dataclass(frozen=True)
class CopySwapHeader:
    """Copy the header of a swap to its new place. All figures are bytes on the disk."""

    source: int
    target: int


@dataclass(frozen=True)
class Unchanged:
    """Check that the table is still the planned one."""

    text: str


Step = t.Union[Run, Backup, CopySwapHeader, Unchanged, SetActive]


@dataclass(frozen=True)
class Plan:
    """The growth of a disk."""

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
        """Whether the growth happens in the background, a moment after the step: with ZFS."""
        return any(isinstance(step, Run) and step.argv[0] == "zpool" for step in self.steps)
