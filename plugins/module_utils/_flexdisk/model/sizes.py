# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse sizes as users write them, and render them for people.

All units are binary: C(K) and C(KiB) are 1024 bytes. Disk sizes are MiB, quotas are bytes.
"""

from __future__ import annotations

import math
import re
import typing as t

from .errors import FlexdiskError

KIB = 1024
MIB = 1048576
GIB = 1024 * MIB
TIB = 1024 * GIB
REMAINING = "remaining"

# ZFS stores volsize as a signed 64 bit number of bytes.
_LIMIT = 2**63
_UNITS = {"": MIB, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": TIB, "tib": TIB}
_SIZE = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,20}))? ?([A-Za-z]*)")
_HOW_SIZE = "give whole MiB (20480) or a number with K, M, G, T, KiB, MiB, GiB or TiB (20GiB)"
_HOW_QUOTA = "give a number with its unit K, M, G, T, KiB, MiB, GiB or TiB (10GiB, 512M)"


def parse_size(value: object, *, name: str = "size") -> int:
    """Return a size in MiB.

    value is an integer (MiB; an integral float, as JSON may carry it, counts) or a string: digits with an optional
    fraction, an optional space and an optional unit in any case; without a unit it is MiB. Raises FlexdiskError
    C(InvalidArgument) for anything else, for a size that is not a whole number of MiB, below 1 MiB, or 8 EiB and more.
    name: what messages call it.
    """
    if isinstance(value, str):
        return _in_range(_bytes(value, name, _HOW_SIZE), value, name) // MIB
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise _invalid(name, value, _HOW_SIZE)
    if isinstance(value, float) and not value.is_integer():
        raise _invalid(name, value, "a size is a whole number of MiB")
    return _in_range(int(value) * MIB, value, name) // MIB


def parse_size_or_remaining(value: object, *, name: str = "size") -> t.Union[int, str]:
    """Return a size in MiB, or REMAINING. Raises like parse_size()."""
    if value == REMAINING:
        return REMAINING
    if isinstance(value, str) and value.strip()[:1].isalpha():
        raise _invalid(name, value, _HOW_SIZE + ', or "remaining"')
    return parse_size(value, name=name)


def parse_quota(value: object, *, name: str = "quota") -> int:
    """Return a quota in bytes, a whole number of MiB, at least 1 MiB.

    A unit is required: vmadm counts quotas in GiB and disks in MiB, so a bare number would be ambiguous. Raises
    FlexdiskError C(InvalidArgument).
    """
    if not isinstance(value, str) or not re.search("[A-Za-z]", value):
        raise _invalid(name, value, _HOW_QUOTA)
    return _in_range(_bytes(value, name, _HOW_QUOTA), value, name)


def render_mib(mib: int) -> str:
    """Return MiB for people: C(512 MiB), C(20 GiB), C(29.4 GiB), rounded down to a tenth. TiB only if exact."""
    return render_bytes(mib * MIB) if mib else "0 MiB"


def render_exact(mib: int) -> str:
    """Return a size in MiB that a user may copy: C(120 GiB), C(122881 MiB), in the largest unit that is exact."""
    return render_mib(mib) if mib % 1024 == 0 else f"{mib} MiB"


def render_pair(needed: int, free: int) -> str:
    """Return two figures in MiB to be compared, exact and in one unit: C(16 GiB needed, 10 GiB free)."""
    in_gib = needed % 1024 == free % 1024 == 0
    return "%s needed, %s free" % tuple(render_mib(mib) if in_gib else f"{mib} MiB" for mib in (needed, free))


def render_bytes(size: int) -> str:
    """Return bytes for people, in the largest unit that is not above the figure, rounded down to a tenth."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size) >= unit and (unit != TIB or size % TIB == 0):
            return _in_unit(size, unit, name)
    return f"{size} B"


def _in_unit(size: int, unit: int, unit_name: str) -> str:
    units, tenth = divmod(abs(size * 10 // unit), 10)
    sign = "-" if size < 0 else ""
    return f"{sign}{units} {unit_name}" if size % unit == 0 else f"{sign}{units}.{tenth} {unit_name}"


def render_apart(*sizes: int) -> t.Tuple[str, ...]:
    """Return figures in bytes to be compared. They get more digits if rounding would make different ones look equal."""
    finer = [tuple(_in_unit(size, unit, name) for size in sizes) for unit, name in ((MIB, "MiB"), (KIB, "KiB"))]
    for texts in (tuple(map(render_bytes, sizes)), *finer):
        if len({text.replace(".0 ", " ") for text in texts}) == len(set(sizes)):  # who reads 10.0 and 10 reads the same
            return texts
    return tuple(f"{size} B" for size in sizes)


def render_change(before: int, after: int) -> str:
    """Return two figures in bytes as C(BEFORE -> AFTER)."""
    return "%s -> %s" % render_apart(before, after)


def _bytes(text: str, name: str, how: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match.group(3).lower()) if match else None
    if match is None or unit is None:
        raise _invalid(name, text, how)
    fraction = match.group(2) or ""
    scale: int = 10 ** len(fraction)
    size, rest = divmod(int(match.group(1) + fraction) * unit, scale)
    if rest or size % MIB:
        raise _invalid(name, text, "it must come out as a whole number of MiB")
    return size


def _in_range(size: int, value: object, name: str) -> int:
    if size < MIB:
        raise _invalid(name, value, "it must be at least 1 MiB")
    if size >= _LIMIT:
        raise _invalid(name, value, "it must be below 8 EiB")
    return size


def _invalid(name: str, value: object, rule: str) -> FlexdiskError:
    return FlexdiskError("InvalidArgument", f"{name} {_quoted(value)} is not valid: {rule}")


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return f'"{text if len(text) <= 60 else text[:57] + "..."}"'
