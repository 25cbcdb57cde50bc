# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The policy of a rolling update: its parser, and its limits for a group of a given size."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ...model.durations import parse_seconds
from ...model.errors import FlexdiskError, Problem, Problems, named

CEILINGS = ("live", "restart", "recreate")
STOP, CONTINUE, REVERT = ON_FAILURE = ("stop", "continue", "revert")
LONGEST_PAUSE = 3600  # seconds, Heat's limit
_PERCENT = re.compile(r"([0-9]{1,3})%")
_NUMBER = re.compile(r"[0-9]{1,9}")
_HEAT = ("min_in_service", "max_batch_size")
_SHARE = ("max_unavailable", "max_surge")
OPTIONS = (
    *_HEAT,
    *_SHARE,
    "pause_time", "max_down_per_host", "max_members_per_host", "canary", "canary_pause", "failure_budget", "on_failure",
    "action_ceiling", "max_removed", "deadline",
)  # fmt: skip


class Amount(t.NamedTuple):
    """A number of members, or a percentage of the size of the group."""

    number: int
    percent: bool = False

    def of(self, size: int, up: bool = False) -> int:
        """Return the number of members in a group of that size. A percentage is rounded down, or up."""
        if not self.percent:
            return self.number
        return -(-size * self.number // 100) if up else size * self.number // 100

    def __str__(self) -> str:
        return f"{self.number}{'%' if self.percent else ''}"


NONE = Amount(0)


class Limits(t.NamedTuple):
    """What each step of a roll keeps to: members in service at least, members changed at most."""

    min_in_service: int
    max_batch_size: int


@dataclass(frozen=True)
class RollPolicy:
    """A policy as declared. Either min_in_service and max_batch_size hold, or the other two if they are set."""

    min_in_service: int = 0
    max_batch_size: int = 1
    max_unavailable: t.Optional[Amount] = None
    max_surge: t.Optional[Amount] = None
    # Seconds.
    pause: int = 0
    max_down_per_host: int = 1
    max_members_per_host: t.Optional[int] = None
    # Names of members, or how many.
    canary: t.Union[int, t.Tuple[str, ...]] = 0
    # Seconds, None for the same as pause.
    canary_pause: t.Optional[int] = None
    failure_budget: Amount = NONE
    on_failure: str = STOP
    action_ceiling: str = "restart"
    # Members that one roll may delete. None: as many as surge, or none if members keep disks.
    max_removed: t.Optional[int] = None
    # Seconds, None for no deadline.
    deadline: t.Optional[int] = None

    def limits(self, size: int) -> Limits:
        """Return the limits for a group of that size.

        Of u members that may be missing (a percentage is rounded down) and s that may be there in excess (rounded up),
        size - u are in service, and u + s are changed at a time. Where rounding leaves none at all, u is 1.
        """
        if self.max_unavailable is None or self.max_surge is None:
            return Limits(self.min_in_service, self.max_batch_size)
        missing, extra = self.max_unavailable.of(size), self.max_surge.of(size, up=True)
        if not missing and not extra:
            missing = 1
        missing = min(missing, size)
        return Limits(size - missing, max(missing + extra, 1))

    def floor(self, size: int) -> int:
        """Return members that must stay in service. With a limit above the size of the group, none may be missing."""
        return min(self.limits(size).min_in_service, size)


def parse_policy(raw: t.Mapping[str, t.Any]) -> t.Tuple[RollPolicy, t.List[Problem]]:
    """Return the policy that a user has written, and everything that is wrong with it. None counts as not written."""
    problems = Problems("")
    given = {key: value for key, value in raw.items() if value is not None}
    for key in sorted(set(given) - set(OPTIONS)):
        problems.add("InvalidArgument", f'policy has no option "{key}"; it has {", ".join(OPTIONS)}')
    both = [[key for key in keys if key in given] for keys in (_HEAT, _SHARE)]
    if all(both):
        problems.add("InvalidArgument", f"policy takes {both[0][0]} or {both[1][0]}, but not both")
    values: t.Dict[str, t.Any] = {}
    for key, read in _READERS.items():
        if key in given:
            values[_FIELDS.get(key, key)] = problems.attempt("", named, key, read, given[key])
    if both[1]:
        values.setdefault("max_unavailable", NONE)
        values.setdefault("max_surge", NONE)
        if values["max_unavailable"] == values["max_surge"] == NONE:
            problems.add("InvalidArgument", "max_unavailable and max_surge are both 0, so no member could be changed")
    return (RollPolicy() if problems else RollPolicy(**values)), list(problems)


def _integer(value: object, minimum: int) -> int:
    text = str(value)
    if isinstance(value, (bool, float)) or not _NUMBER.fullmatch(text) or int(text) < minimum:
        raise FlexdiskError("InvalidArgument", f"{value!r} is not a whole number of {minimum} or more")
    return int(text)


def _amount(value: object) -> Amount:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return Amount(_integer(value, 0))
    if int(match[1]) > 100:
        raise FlexdiskError("InvalidArgument", f"{value} is more than 100%")
    return Amount(int(match[1]), match[1].strip("0") != "")


def _pause(value: object) -> int:
    seconds = parse_seconds(value)
    if seconds > LONGEST_PAUSE:
        raise FlexdiskError("InvalidArgument", f"{seconds} s is longer than a pause may be, {LONGEST_PAUSE} s")
    return seconds


def _canary(value: object) -> t.Union[int, t.Tuple[str, ...]]:
    if not isinstance(value, (list, tuple)):
        return _integer(value, 0)
    if not value:
        raise FlexdiskError("InvalidArgument", "an empty list chooses no members; leave it out, or write 0")
    if any(not isinstance(name, str) or not name for name in value) or len(set(value)) < len(value):
        raise FlexdiskError("InvalidArgument", f"{value!r} is not a list of different names of members")
    return tuple(value)


def _choice(choices: t.Tuple[str, ...]) -> t.Callable[[object], str]:
    def read(value: object) -> str:
        if value not in choices:
            raise FlexdiskError("InvalidArgument", f"{value!r} is none of {', '.join(choices)}")
        return str(value)

    return read


_FIELDS = {"pause_time": "pause"}
_READERS: t.Dict[str, t.Callable[[object], t.Any]] = {
    "min_in_service": lambda value: _integer(value, 0),
    "max_batch_size": lambda value: _integer(value, 1),
    "max_unavailable": _amount,
    "max_surge": _amount,
    "pause_time": _pause,
    "max_down_per_host": lambda value: _integer(value, 1),
    "max_members_per_host": lambda value: _integer(value, 1),
    "canary": _canary,
    "canary_pause": _pause,
    "failure_budget": _amount,
    "on_failure": _choice(ON_FAILURE),
    "action_ceiling": _choice(CEILINGS),
    "max_removed": lambda value: _integer(value, 0),
    "deadline": parse_seconds,
}
