# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The `guest` command: what a guest does to its disk (write, discard, look)."""

from __future__ import annotations

from typing import List, Tuple

from simnode.zfs import crypt, extents, kernel
from simnode.zfs.errors import ZfsError
from simnode.zfs.model import MIB, VOLUME, Dataset
from simnode.zfs.storage import Storage

USAGE = """usage: guest write DATASET OFFSET LENGTH SEED
       guest trim DATASET OFFSET LENGTH
       guest hash DATASET [OFFSET LENGTH]
Figures are MiB, with a K behind them KiB, with a B bytes. A SEED that begins with text or zeros is what is written.
"""
Result = Tuple[int, str, str]
_UNITS = {"K": 1024, "B": 1}


def size(text: str) -> int:
    """Return the bytes of a size, -1 for anything else."""
    unit = _UNITS.get(text[-1:], MIB)
    digits = text[:-1] if text[-1:] in _UNITS else text
    return int(digits) * unit if digits.isdigit() else -1


def main(storage: Storage, argv: List[str]) -> Result:
    """Run `guest` with these arguments; exit status, stdout, stderr."""
    command, rest = argv[0] if argv else "", argv[1:]
    wanted = {"write": (4,), "trim": (3,), "hash": (1, 3)}.get(command, ())
    if len(rest) not in wanted or any(size(text) < 0 for text in rest[1:3]):
        return 2, "", USAGE
    try:
        dataset = storage.dataset(rest[0])
        start = size(rest[1]) if len(rest) > 1 else 0
        end = start + size(rest[2]) if len(rest) > 1 else dataset.volsize or 1 << 62
        if command == "hash":
            if not crypt.can_read(storage.pool_of(rest[0]), dataset):
                raise ZfsError("ENXIO", rest[0])
            return _hash(dataset, start, end)
        if command == "trim":
            kernel.trim(storage, dataset, start, min(end, dataset.volsize or end))
            return 0, "", ""
        return _write(storage, dataset, start, end, rest[3])
    except ZfsError as refusal:
        return 1, "", f"guest: cannot {command} '{rest[0]}': {refusal.text}\n"


def _hash(dataset: Dataset, start: int, end: int) -> Result:
    if dataset.kind == VOLUME and end > dataset.volsize:
        return 1, "", f"guest: cannot hash '{dataset.name}': beyond the end\n"
    return 0, extents.digest(dataset.extents, start, end) + "\n", ""


def _write(storage: Storage, dataset: Dataset, start: int, end: int, seed: str) -> Result:
    """Write all of it, or as many MiB as fit, because a guest's write stops where the space ends."""
    if start >= end:
        return 0, "", ""
    try:
        kernel.write(storage, dataset, start, end, seed)
        return 0, "", ""
    except ZfsError as refusal:
        if refusal.code != "ENOSPC":
            raise
    low, high = 0, (end - start) // MIB
    while high - low > 1:
        middle = (low + high) // 2
        try:
            kernel.write(storage, dataset, start + low * MIB, start + middle * MIB, seed)
            low = middle
        except ZfsError:
            high = middle
    done = start // MIB + low
    return 1, "", f"guest: cannot write '{dataset.name}': No space left on device at {done} MiB\n"
