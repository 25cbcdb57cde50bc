# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which one VM can get to other hosts, each with the score that there is then."""

from __future__ import annotations

import typing as t

from .places import Moved, Places
from .score import NEAR, Score

FAILOVER, REPLACE = "failover", "replace"


class Operation(t.NamedTuple):
    """One operation of a move."""

    # FAILOVER: the VM changes its host. REPLACE: its replica does.
    kind: str
    # "" for the host of the replica.
    target: str = ""


class Solution(t.NamedTuple):
    """How a VM moves."""

    # The VM afterwards, None if it does not move.
    moved: t.Optional[Moved]
    operations: t.Tuple[Operation, ...] = ()
    # Why it does not move, "" if it does.
    why: str = ""


class Way(t.NamedTuple):
    """One way to move a VM."""

    # The score afterwards.
    value: float
    moved: Moved
    operations: t.Tuple[Operation, ...] = ()


class Measure(t.NamedTuple):
    """The score that is to be improved."""

    score: Score
    # The group that is measured, None for all hosts.
    group: t.Optional[str]


def measure(places: Places, group: t.Optional[str] = None) -> Measure:
    """Return the score of a group, or of all hosts."""
    return Measure(places.score(group), group)


def to_each(
    places: Places, moved: Moved, kind: str, targets: t.Iterable[str], by: Measure
) -> t.Tuple[t.List[Way], t.Dict[str, str]]:
    """Return the ways with one operation more, in the order of the targets, and why others are none."""
    ways, reasons = [], {}
    for target in targets:
        operation = Operation(kind, target)
        outcome = places.perform(moved, operation)
        if isinstance(outcome, str):
            reasons[target] = outcome
        else:
            ways.append(Way(by.score.after(places.changes(outcome, by.group)), outcome, (operation,)))
    return ways, reasons


def last_of_best(ways: t.Iterable[Way]) -> t.Optional[Way]:
    """Return the way with the lowest score. Of equal ones the later one is taken."""
    best: t.Optional[Way] = None
    for way in ways:
        if best is None or way.value <= best.value + NEAR:
            best = way
    return best
