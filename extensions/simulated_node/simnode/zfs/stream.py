# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `zfs send` writes, in a form of its own: lines of JSON. Each snapshot is a part: a header, the pieces, an end.

A piece is `[start, end, content]`, or `[start, end, null]` where nothing is. As in the real format, a stream has what
was born after the base, and says where holes are, so that it can follow a bookmark, too.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from simnode.zfs.model import FILE_BLOCK, MIB, Snapshot

MAGIC = "simnode-stream"
_PARTS = 64  # that a long extent is cut into
_LEAST = MIB // 8  # bytes of such a part
_PIECE_BYTES = 312  # what the real format needs for each block, and for the beginning and the end
Piece = Tuple[int, int, Optional[str]]


class Part(NamedTuple):
    """One snapshot of a stream; `whole` says whether its end has come."""

    header: Dict[str, Any]
    pieces: List[Piece]
    whole: bool


def pieces(snap: Snapshot, since: int) -> List[Piece]:
    """What was born after transaction group `since`, and the holes; sorted."""
    found: List[Piece] = []
    last = 0
    for start, end, content, birth in snap.extents:
        if start < 0:
            continue
        if start > last:
            found.append((last, start, None))
        if birth > since:
            found.extend((at, until, content) for at, until in _cut(start, end))
        last = max(last, end)
    if snap.volsize > last:
        found.append((last, snap.volsize, None))
    return found


def _cut(start: int, end: int) -> Iterator[Tuple[int, int]]:
    step = max(_LEAST, (end - start) // _PARTS // _LEAST * _LEAST)
    for at in range(start, end, step):
        yield at, min(end, at + step)


def size(snap: Snapshot, found: List[Piece]) -> int:
    """About the bytes of the real stream that has these pieces of a snapshot."""
    block = snap.dataset.block
    blocks = sum(-(-(end - start) // block) for start, end, content in found if content is not None)
    return 2 * _PIECE_BYTES + blocks * (block + _PIECE_BYTES)


def write(header: Dict[str, Any], body: List[Piece]) -> str:
    """One part as text."""
    lines = [json.dumps({"magic": MAGIC, **header}), *(json.dumps(piece) for piece in body), json.dumps("end")]
    return "\n".join(lines) + "\n"


def read(text: str) -> List[Part]:
    """The parts of a stream, which may have been cut anywhere; ValueError if it is none."""
    parts: List[Part] = []
    for line in text.splitlines(keepends=True):
        try:
            found = json.loads(line) if line.endswith("\n") else None
        except ValueError:
            found = None
        if isinstance(found, dict) and found.get("magic") == MAGIC:
            parts.append(Part(found, [], False))
        elif not parts:
            raise ValueError("bad magic number")
        elif found == "end":
            parts[-1] = parts[-1]._replace(whole=True)
        elif isinstance(found, list):
            parts[-1].pieces.append((found[0], found[1], found[2]))
    return parts


def cut(text: str, size: int) -> str:
    """The lines of a stream that the first `size` bytes of the real one would have."""
    kept: List[str] = []
    used = 4 * _PIECE_BYTES
    for line in text.splitlines(keepends=True):
        found = json.loads(line)
        if isinstance(found, dict):
            block = found["block"] or FILE_BLOCK
        elif isinstance(found, list):
            blocks = 0 if found[2] is None else (found[1] - found[0]) // block
            used += _PIECE_BYTES + blocks * (block + _PIECE_BYTES)
        if used > size:
            break
        kept.append(line)
    return "".join(kept)


def token(state: Dict[str, Any]) -> str:
    """The `receive_resume_token` of what has been received of a part."""
    told = {key: state[key] for key in ("toguid", "fromguid", "toname")}
    data = json.dumps({**told, "pieces": len(state["pieces"])}).encode()
    return f"1-{zlib.crc32(data):x}-{len(data):x}-{zlib.compress(data).hex()}"


def read_token(text: str) -> Dict[str, Any]:
    """The inverse: toguid, fromguid, toname, and the number of pieces; ValueError if it is none."""
    _version, crc, _length, data = text.split("-")
    plain = zlib.decompress(bytes.fromhex(data)) if data else b""
    if f"{zlib.crc32(plain):x}" != crc:
        raise ValueError("wrong checksum")
    found: Dict[str, Any] = json.loads(plain)
    return found
