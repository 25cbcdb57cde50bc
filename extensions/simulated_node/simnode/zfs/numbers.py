# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers as zfs reads and prints them."""

from __future__ import annotations

import re

_UNITS = "BKMGTPEZ"
_NUMBER = re.compile(r"(\d*)(\.\d*)?(.*)", re.DOTALL)


def parse(text: str) -> int:
    """Bytes of '10M', '1.5G', '8192', '1GiB'.

    Raises ValueError with libzfs's words.
    """
    if not text or not (text[0].isdigit() or text[0] == "."):
        raise ValueError(f"bad numeric value '{text}'")
    match = _NUMBER.match(text)
    integer, fraction, suffix = match.groups() if match else ("", "", text)
    shift = _shift(suffix or "")
    value = int(float(f"{integer or 0}{fraction}") * (1 << shift)) if fraction else int(integer) << shift
    if value >= 1 << 64:
        raise ValueError("numeric value is too large")
    return value


def _shift(suffix: str) -> int:
    if not suffix:
        return 0
    unit, rest = suffix[0].upper(), suffix[1:].upper()
    if unit not in _UNITS or rest not in ("", "B", "IB") or (rest and unit == "B"):
        raise ValueError(f"invalid numeric suffix '{suffix}'")
    return 10 * _UNITS.index(unit)


def nice(value: int, byte: str = "") -> str:
    """At most five characters, as `zfs_nicenum` prints; `byte` is the unit of values below 1K."""
    index, small = 0, value
    while small >= 1024 and index < 6:
        small >>= 10
        index += 1
    unit = ("", "K", "M", "G", "T", "P", "E")[index] or byte
    if index == 0 or value % (1 << 10 * index) == 0:
        return f"{small}{unit}"
    scaled = value / (1 << 10 * index)
    for digits in (2, 1, 0):
        text = f"{scaled:.{digits}f}{unit}"
        if len(text) <= 5:
            return text
    return text
