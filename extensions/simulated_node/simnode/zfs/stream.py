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
from typing import Any, Dict, List, NamedTuple, Tuple

from simnode.zfs.extents import Piece
from simnode.zfs.model import FILE_BLOCK, MIB, Snapshot

MAGIC = "simnode-stream"
_MAX_PARTS = 64  # a long extent is cut into at most so many parts
_MIN_PART = MIB // 8  # minimum bytes of such a part
_PIECE_BYTES = 312  # what the real format needs for each block, and for the beginning and the end


class Part(NamedTuple):
    """One snapshot of a stream."""

    header: Dict[str, Any]
    pieces: List[Piece]
    complete: bool
    """Whether the stream has its end."""


def pieces(snap: Snapshot, since: int) -> List[Piece]:
    """Return the data born after transaction group `since`, and the holes, sorted."""
    result: List[Piece] = []
    last = 0
    for start, end, content, birth in snap.extents:
        if start < 0:
            continue
        if start > last:
            result.append((last, start, None))
        if birth > since:
            result.extend((at, until, content) for at, until in _cut(start, end))
        last = max(last, end)
    if snap.volsize > last:
        result.append((last, snap.volsize, None))
    return result


def _cut(start: int, end: int) -> Iterator[Tuple[int, int]]:
    step = max(_MIN_PART, (end - start) // _MAX_PARTS // _MIN_PART * _MIN_PART)
    for at in range(start, end, step):
        yield at, min(end, at + step)


def size(snap: Snapshot, body: List[Piece]) -> int:
    """Return the approximate bytes of the real stream with these pieces of a snapshot."""
    block = snap.dataset.block
    blocks = sum(-(-(end - start) // block) for start, end, content in body if content is not None)
    return 2 * _PIECE_BYTES + blocks * (block + _PIECE_BYTES)


def write(header: Dict[str, Any], body: List[Piece]) -> str:
    """Return one part as text."""
    lines = [json.dumps({"magic": MAGIC, **header}), *(json.dumps(piece) for piece in body), json.dumps("end")]
    return "\n".join(lines) + "\n"


def read(text: str) -> List[Part]:
    """Return the parts of a stream, which may be cut anywhere. Raises ValueError if it is no stream."""
    parts: List[Part] = []
    for line in text.splitlines(keepends=True):
        try:
            value = json.loads(line) if line.endswith("\n") else None
        except ValueError:
            value = None
        if isinstance(value, dict) and value.get("magic") == MAGIC:
            parts.append(Part(value, [], False))
        elif not parts:
            raise ValueError("bad magic number")
        elif value == "end":
            parts[-1] = parts[-1]._replace(complete=True)
        elif isinstance(value, list):
            parts[-1].pieces.append((value[0], value[1], value[2]))
    return parts


def cut(text: str, size: int) -> str:
    """Return the lines that correspond to the first `size` bytes of the real stream."""
    lines: List[str] = []
    used = 4 * _PIECE_BYTES
    for line in text.splitlines(keepends=True):
        value = json.loads(line)
        if isinstance(value, dict):
            block = value["block"] or FILE_BLOCK
        elif isinstance(value, list):
            blocks = 0 if value[2] is None else (value[1] - value[0]) // block
            used += _PIECE_BYTES + blocks * (block + _PIECE_BYTES)
        if used > size:
            break
        lines.append(line)
    return "".join(lines)


def token(state: Dict[str, Any]) -> str:
    """Return the `receive_resume_token` of a partly received part."""
    content = {key: state[key] for key in ("toguid", "fromguid", "toname")}
    if state.get("raw"):
        content["rawok"] = True
    data = json.dumps({**content, "pieces": len(state["pieces"])}).encode()
    return f"1-{zlib.crc32(data):x}-{len(data):x}-{zlib.compress(data).hex()}"


def read_token(text: str) -> Dict[str, Any]:
    """Return toguid, fromguid, toname and the number of pieces of a token. Raises ValueError if it is no token."""
    _version, crc, _length, data = text.split("-")
    plain = zlib.decompress(bytes.fromhex(data)) if data else b""
    if f"{zlib.crc32(plain):x}" != crc:
        raise ValueError("wrong checksum")
    content: Dict[str, Any] = json.loads(plain)
    return content
