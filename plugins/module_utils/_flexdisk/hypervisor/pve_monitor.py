# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask the QEMU of a VM on Proxmox VE what it has. Its monitor is asked, and told nothing."""

from __future__ import annotations

import json
import socket
import typing as t

from ..model.errors import FlexdiskError

_SECONDS = 10
_LONGEST = 1 << 22  # bytes of an answer
_QUESTIONS = ("qmp_capabilities", "query-block")


class Block(t.NamedTuple):
    """What a QEMU has at one place."""

    parts: t.Tuple[str, ...]  # of the name of the device; one is the key of the disk
    size: int  # bytes
    text: str  # all that QEMU says of it, with the paths of its files


def blocks(path: str) -> t.List[Block]:
    """Return the disks that the QEMU with this socket has.

    Raises FlexdiskError HypervisorUnreachable, UnexpectedOutput.
    """
    return parse_blocks(_converse(path)[-1])


def sizes(found: t.Iterable[Block]) -> t.Dict[str, int]:
    """Return the bytes of each disk by its key."""
    return {part: block.size for block in found for part in block.parts}


def parse_blocks(reply: t.Any) -> t.List[Block]:
    """Return what C(query-block) says of disks. Drives without a disc are left out."""
    found = reply.get("return") if isinstance(reply, dict) else None
    if not isinstance(found, list):
        raise FlexdiskError("UnexpectedOutput", "QEMU does not say which disks it has")
    result: t.List[Block] = []
    for block in found:
        inserted = block.get("inserted") if isinstance(block, dict) else None
        image = inserted.get("image") if isinstance(inserted, dict) else None
        size = image.get("virtual-size") if isinstance(image, dict) else None
        if isinstance(size, int):
            parts = tuple(part for part in str(block.get("qdev", "")).split("/") if part)
            result.append(Block(parts, size, json.dumps(inserted, ensure_ascii=False)))
    return result


def _converse(path: str) -> t.List[t.Any]:
    """Return the replies to all questions."""
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_SECONDS)
            client.connect(path)
            with client.makefile("rwb") as stream:
                _line(stream)  # its greeting
                return [_ask(stream, question) for question in _QUESTIONS]
    except (OSError, ValueError) as exc:
        text = f"QEMU does not answer at {path} ({exc}), so nobody knows what it has"
        raise FlexdiskError("HypervisorUnreachable", text) from exc


def _ask(stream: t.Any, question: str) -> t.Any:
    stream.write(json.dumps({"execute": question}).encode() + b"\n")
    stream.flush()
    while True:
        reply = _line(stream)
        if not (isinstance(reply, dict) and "event" in reply):
            return reply


def _line(stream: t.Any) -> t.Any:
    line = stream.readline(_LONGEST)
    if not line.endswith(b"\n"):
        raise ValueError("it has hung up")
    return json.loads(line)
