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

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, List, Optional, Tuple

Extent = Tuple[int, int, str, int]
Extents = List[Extent]
Piece = Tuple[int, int, Optional[str]]  # a part of a stream; without content, it is a hole
Span = Tuple[Any, ...]  # begins with the first byte, and the one behind the last; an extent is one


def cut(extents: Extents, start: int, end: int) -> Extents:
    """Return the extents without the bytes [start, end)."""
    return _without(extents, [(start, end)])


def write(extents: Extents, start: int, end: int, content: str, birth: int) -> Extents:
    """Return the extents with `content` at [start, end), born in transaction group `birth`."""
    return sorted([*cut(extents, start, end), (start, end, content, birth)])


def overlay(extents: Extents, pieces: Sequence[Piece], birth: int) -> Extents:
    """Return the extents with all these pieces in place of what was there. The pieces are sorted and free of overlaps.

    As write() and cut() for each piece, but for the pieces of a large stream in one pass.
    """
    written = [(start, end, content, birth) for start, end, content in pieces if content is not None]
    left = _without(extents, [(start, end) for start, end, _content in pieces])
    return sorted([*left, *((*one, birth) for one in _merged(written))])


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
    for extent, overlapping in _overlaps(extents, others):
        result.extend(_outside(extent, [other for other in overlapping if other[3] == extent[3]]))
    return result


def _without(extents: Extents, spans: Sequence[Span]) -> Extents:
    return [part for extent, overlapping in _overlaps(extents, spans) for part in _outside(extent, overlapping)]


def _overlaps(extents: Extents, spans: Sequence[Span]) -> Iterator[Tuple[Extent, Sequence[Span]]]:
    """Each extent with the spans that overlap it, in one pass through both. `spans` are sorted and free of overlaps."""
    at = 0
    for extent in extents:
        while at < len(spans) and spans[at][1] <= extent[0]:
            at += 1
        end = at
        while end < len(spans) and spans[end][0] < extent[1]:
            end += 1
        yield extent, spans[at:end]


def _outside(extent: Extent, spans: Sequence[Span]) -> Iterator[Extent]:
    """The parts of an extent between these spans, which are sorted and overlap it."""
    first, last, content, birth = extent
    for span in spans:
        if first < span[0]:
            yield first, span[0], content, birth
        first = max(first, span[1])
    if first < last:
        yield first, last, content, birth


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
