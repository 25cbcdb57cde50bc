# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Contents as sparse extents.

An extent is `(start, end, content, birth)`: bytes [start, end) hold the pseudo-random data named `content`, written in
transaction group `birth`. Data at one offset is a function of `content` and the offset alone, so extents of equal
content that touch are one. A list of extents is sorted and free of overlaps and is never changed in place: snapshots
share it.

Two extents at one offset are the same block on disk if and only if their births agree, because every write has its own
transaction group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import List, Tuple

Extent = Tuple[int, int, str, int]
Extents = List[Extent]


def cut(extents: Extents, start: int, end: int) -> Extents:
    """Return the extents without the bytes [start, end)."""
    result: Extents = []
    for first, last, content, birth in extents:
        if first < start:
            result.append((first, min(last, start), content, birth))
        if last > end:
            result.append((max(first, end), last, content, birth))
    result.sort()
    return [extent for extent in result if extent[0] < extent[1]]


def write(extents: Extents, start: int, end: int, content: str, birth: int) -> Extents:
    """Return the extents with `content` at [start, end), born in transaction group `birth`."""
    return sorted([*cut(extents, start, end), (start, end, content, birth)])


def within(extents: Extents, start: int, end: int) -> Extents:
    """Return the part inside [start, end)."""
    return [
        (max(first, start), min(last, end), content, birth)
        for first, last, content, birth in extents
        if first < end and last > start
    ]


def difference(extents: Extents, others: Extents) -> Extents:
    """Return the blocks of `extents` that are not in `others` (same offset and same birth)."""
    if extents is others:
        return []
    result: Extents = []
    for extent in extents:
        first, last, _content, birth = extent
        pieces: Extents = [extent]
        for other in others:
            if other[0] >= last:
                break
            if other[1] > first and other[3] == birth:
                pieces = cut(pieces, other[0], other[1])
        result.extend(pieces)
    return result


def _merged(extents: Iterable[Extent]) -> Iterator[Tuple[int, int, str]]:
    current: Tuple[int, int, str] | None = None
    for first, last, content, _birth in extents:
        if current is not None and current[1] == first and current[2] == content:
            current = (current[0], last, content)
            continue
        if current is not None:
            yield current
        current = (first, last, content)
    if current is not None:
        yield current


def digest(extents: Extents, start: int, end: int) -> str:
    """Return a hex digest of the bytes [start, end). It is equal only for equal contents and ranges."""
    import hashlib  # slow to import, and seldom needed

    state = hashlib.sha256(f"{start}:{end}".encode())
    for first, last, content in _merged(within(extents, start, end)):
        state.update(f";{first}:{last}:{content}".encode())
    return state.hexdigest()
