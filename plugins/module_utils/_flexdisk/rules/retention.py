# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sets of snapshots of syncs a host retains: a rule about the sets alone, in which no present time occurs."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime, timezone

PERIODS: t.Mapping[str, str] = {"hourly": "%Y-%m-%dT%H", "daily": "%Y-%m-%d", "weekly": "%G-%V", "monthly": "%Y-%m"}
"""How the hour, day, ISO week or month of a moment is written, in UTC."""
MOST_RETAINED = 1000  # of each kind
_LATEST = 253402300799  # the last second of the year 9999
_COUNT = re.compile(r"(last|hourly|daily|weekly|monthly)=([0-9]{1,4})\Z")


class RetainCounts(t.NamedTuple):
    """How many sets are retained, beside the newest one, which always is."""

    last: int = 0
    """So many of the newest."""
    hourly: int = 0
    """The newest one of each of so many hours that have any. The others are alike."""
    daily: int = 0
    weekly: int = 0
    monthly: int = 0


class Keep(t.NamedTuple):
    """What is retained on both sides of a sync."""

    replica: RetainCounts = RetainCounts()
    """On the host of the replicas."""
    home: RetainCounts = RetainCounts()
    """On the VM's own host."""


NEWEST_ONLY = Keep()


class DatedSet(t.NamedTuple):
    """A set of snapshots that all disks of a VM have."""

    name: str
    time: int
    """When it was taken, in seconds since 1970 by the clock of the host that has it. 0 if unknown."""


def retained(sets: t.Sequence[DatedSet], counts: RetainCounts) -> t.Set[str]:
    """Return the names of the sets to retain: the newest, and those that the counts ask for.

    sets: in their order, oldest first. A set goes only because of newer sets. So their order counts first, and their
    times only as far as they agree with it: a set that claims to be older than its predecessor pushes that one out of
    no hour and no day. Nor does a set that claims to be newer than its successor. A clock that was set back destroys
    nothing that was there before. A set without a time is retained, and pushes nothing out either.
    """
    dated = [one for one in sets if one.time]
    names = {one.name for one in (*sets[-1:], *dated[-max(1, counts.last) :])}
    names |= {one.name for one in sets if not one.time}
    newer: t.List[int] = []  # times of newer sets that no still newer set contradicts, newest first
    for one in reversed(dated):
        later = [moment for moment in newer if moment >= one.time]
        for period, form in PERIODS.items():
            count = getattr(counts, period)
            periods = {_written(moment, form) for moment in later} if count else set()
            if count and _written(one.time, form) not in periods and len(periods) < count:
                names.add(one.name)
        if not newer or one.time <= newer[-1]:
            newer.append(one.time)
    return names


def _written(moment: int, form: str) -> str:
    return datetime.fromtimestamp(min(moment, _LATEST), timezone.utc).strftime(form)


def encode_keep(keep: Keep) -> str:
    """Return what is retained as text, C(hourly=24,daily=14/last=2). "" if it is the newest set only."""
    return "/".join(map(_encode, keep)) if any(map(any, keep)) else ""


def decode_keep(text: str) -> Keep:
    """Return what such a text means. Anything else retains the newest set only: it is text that no run has written."""
    parts = [_decode(part) for part in text.split("/")]
    return Keep(*parts) if len(parts) == len(Keep._fields) else NEWEST_ONLY


def _encode(counts: RetainCounts) -> str:
    return ",".join(f"{kind}={count}" for kind, count in counts._asdict().items() if count)


def _decode(text: str) -> RetainCounts:
    matches = [_COUNT.match(part) for part in text.split(",")]
    return RetainCounts(**{match[1]: min(int(match[2]), MOST_RETAINED) for match in matches if match})


def read_counts(given: t.Mapping[str, t.Any]) -> RetainCounts:
    """Return the counts that a user gives. Raises ValueError for anything else."""
    unknown = sorted(map(str, given.keys() - set(RetainCounts._fields)))
    if unknown:
        raise ValueError(f"it has {', '.join(unknown)}, but can have {', '.join(RetainCounts._fields)}")
    counts = {key: value for key, value in given.items() if value is not None}
    for key, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_RETAINED:
            raise ValueError(f"{key} is {value!r:.50}, but must be a number from 0 to {MOST_RETAINED}")
    if not any(counts.values()):
        raise ValueError("it needs a number above 0; last: 1 keeps the newest set only")
    return RetainCounts(**counts)
