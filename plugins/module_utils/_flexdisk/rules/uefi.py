# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""UEFI variables of a VM as text, for the way to another host."""

from __future__ import annotations

import base64
import hashlib

from ..model.sizes import MIB

LIMIT = MIB  # a file of OVMF has 128 to 540 KiB


def encode(content: bytes) -> str:
    """Return the text of these bytes; "" for none."""
    return base64.b64encode(content).decode()


def decode(text: str) -> bytes:
    """Return the bytes of a text. Raises ValueError for any that encode() does not give, and above LIMIT bytes."""
    content = base64.b64decode(text, validate=True)
    if encode(content) != text or len(content) > LIMIT:
        raise ValueError("these are no UEFI variables")
    return content


def digest(text: str) -> str:
    """Return the hash of a text; "" for none."""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""
