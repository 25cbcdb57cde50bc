# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways in which one VM can get to other hosts, each with the score that there is then."""

from __future__ import annotations

import typing as t

from .known import KnownVm
from .pairs import First, in_order
from .places import Moved, Places
from .replicas import Replicas
from .score import NEAR, Score, together

FAILOVER, REPLACE = "failover", "replace"


class Operation(t.NamedTuple):
    """One operation of a move: the VM changes its host (FAILOVER) or its replica does (REPLACE). target: "" where the
    replica's host is meant.
    """

    kind: str
    target: str = ""


class Solution(t.NamedTuple):
    """How a VM moves: where it is then, and the operations. why: the reason if it does not, "" otherwise."""

    moved: t.Optional[Moved]
    operations: t.Tuple[Operation, ...] = ()
    why: str = ""


class Way(t.NamedTuple):
    """One way to move a VM. value: the score after it."""

    value: float
    moved: Moved
    operations: t.Tuple[Operation, ...] = ()


class Measure(t.NamedTuple):
    """What is measured: the score of a group, or of all hosts (None)."""

    score: Score
    group: t.Optional[str]


def measure(places: Places, group: t.Optional[str] = None) -> Measure:
    """The score of a group, or of all hosts."""
    return Measure(places.score(group), group)


def perform(places: Places, moved: Moved, operation: Operation) -> t.Union[Moved, str]:
    """What is after one operation, or why it cannot be."""
    if operation.kind == REPLACE:
        return places.replace_secondary(moved, operation.target)
    return places.failover_to(moved, operation.target) if operation.target else places.failover(moved)


def possible(vm: KnownVm, operations: t.Iterable[Operation]) -> bool:
    """Whether no operation sends the replica of a VM to the host where it or the VM is then. Ganeti refuses that, but
    hail plans it where a replica is in the group that its VM enters.
    """
    primary, secondary = vm.primary, vm.secondary
    for operation in operations:
        if operation.kind == REPLACE and operation.target in (primary, secondary):
            return False
        if operation.kind == REPLACE:
            secondary = operation.target
        elif not operation.target:
            primary, secondary = secondary, primary
    return True


def to_each(
    places: Places, moved: Moved, kind: str, targets: t.Iterable[str], by: Measure
) -> t.Tuple[t.List[Way], t.Dict[str, str]]:
    """The ways with one operation more, in the order of the targets, and why others are none."""
    ways, reasons = [], {}
    for target in targets:
        operation = Operation(kind, target)
        found = perform(places, moved, operation)
        if isinstance(found, str):
            reasons[target] = found
        else:
            ways.append(Way(by.score.after(places.changes(found, by.group)), found, (operation,)))
    return ways, reasons


def last_of_best(ways: t.Iterable[Way]) -> t.Optional[Way]:
    """The way with the lowest score. Of equal ones the later one is taken."""
    best: t.Optional[Way] = None
    for way in ways:
        if best is None or way.value <= best.value + NEAR:
            best = way
    return best


def to_pairs(places: Places, starts: t.Sequence[Solution], seconds: t.Sequence[str], by: Measure) -> t.Iterator[Way]:
    """The ways of a VM with a replica to two other hosts, best first. starts: how the VM gets to its host, where its
    replica is on the old one then. seconds: where the replica can go on to.
    """
    ready = [start for start in starts if start.moved is not None]
    if not ready:
        return
    leaving = t.cast(Moved, ready[0].moved).vm
    now = places.vms[leaving.name]
    left = (now.primary, now.secondary)
    replicas = Replicas(places, leaving, seconds, places.soft(leaving.secondary), by.score, left)
    found = ((start, _first(places, t.cast(Moved, start.moved), by, replicas)) for start in ready)
    firsts = [(start, first) for start, first in found if first is not None]
    for pair in in_order(by.score, [first for _start, first in firsts], replicas.seconds):
        start, target = firsts[pair.first][0], seconds[pair.second]
        moved = places.replace_secondary(t.cast(Moved, start.moved), target)
        if not isinstance(moved, str):
            yield Way(pair.value, moved, (*start.operations, Operation(REPLACE, target)))


def _first(places: Places, moved: Moved, by: Measure, replicas: Replicas) -> t.Optional[First]:
    """The host of a VM before its replica goes on, None if it could not."""
    alone = places.drop_secondary(moved)
    if isinstance(alone, str):
        return None
    delta = together(by.score.delta(before, after) for before, after in places.changes(alone, by.group))
    primary = moved.vm.primary
    return First(primary, delta, lambda: replicas.others(primary, moved.accounts, alone.accounts))


def to_primary(places: Places, vm: KnownVm, primary: str) -> Solution:
    """The VM on its new host, with its replica on the old one; a host that is not there is left first."""
    steps = [("Changing secondary to new primary", Operation(REPLACE, primary)), ("Failing over to new primary", _OVER)]
    if not places.usable(vm.primary):
        steps.insert(0, ("Failing over to the secondary", _OVER))
    moved = places.begin(vm.name)
    for said, operation in steps:
        found = perform(places, moved, operation)
        if isinstance(found, str):
            return Solution(None, (), f"{said}: {found}")
        moved = found
    return Solution(moved, tuple(operation for _said, operation in steps))


_OVER = Operation(FAILOVER)
