# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The digest of a plan that people approve."""

from __future__ import annotations

import hashlib
import json
import typing as t

_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


# Any: whatever JSON has.
def digest_of(content: t.Any) -> str:
    """Return 32 letters and digits, the same for the same content. The first one is a letter, so that no tool on the
    way from a plan to its approval reads the digest as a number.
    """
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
    return digest[0].translate(_LETTERS) + digest[1:]
