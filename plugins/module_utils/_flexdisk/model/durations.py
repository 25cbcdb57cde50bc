# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Durations as users write them: seconds, or ISO 8601 with hours, minutes and seconds."""

from __future__ import annotations

import re

from .errors import FlexdiskError

_ISO = re.compile(r"PT(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)S)?")
_SECONDS = re.compile(r"[0-9]+")
_LONGEST = 9  # figures of a number; more would be centuries


def parse_duration(text: object) -> int:
    """Return the seconds of C(PT1H30M5S): whole numbers, capital letters, in this order. C(PT) alone is 0.

    Days and longer have no fixed length in ISO 8601, so they are not accepted. Raises FlexdiskError InvalidArgument.
    """
    match = _ISO.fullmatch(text) if isinstance(text, str) else None
    if match is None or any(part and len(part) > _LONGEST for part in match.groups()):
        raise FlexdiskError("InvalidArgument", f"{text!r} is not a duration: write PT1H30M5S, or parts of it in order")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (hours * 60 + minutes) * 60 + seconds


def parse_seconds(value: object) -> int:
    """Return seconds from a whole number, or as parse_duration() does. Raises FlexdiskError InvalidArgument."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and _SECONDS.fullmatch(value) and len(value) <= _LONGEST:
        return int(value)
    if isinstance(value, str) and value.startswith("P"):
        return parse_duration(value)
    raise FlexdiskError("InvalidArgument", f"{value!r} is not a duration: write seconds, or PT1H30M5S")
