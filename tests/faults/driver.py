# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Injection points: which there are, and what is right after each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults import checks, world
from tests.faults.backend import Backend
from tests.faults.kinds import KINDS, Kind
from tests.faults.scenarios import Scenario
from tests.faults.world import World

MOST_DIFFERENCES = 6


@dataclass(frozen=True)
class Point:
    """Where a scenario is interrupted: kinds of faults with the numbers of their commands, one for each run in turn."""

    scenario: str
    faults: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return ":".join([self.scenario, *(f"{kind}:{nth}" for kind, nth in self.faults)])

    @classmethod
    def parse(cls, text: str) -> Point:
        """The inverse of str. Raises ValueError."""
        scenario, *fields = text.split(":")
        faults = tuple((kind, int(nth)) for kind, nth in zip(fields[::2], fields[1::2], strict=True))
        if not scenario or not faults or not all(kind in KINDS for kind, _nth in faults):
            raise ValueError(f"no such point: {text}")
        return cls(scenario, faults)


@dataclass
class Baseline:
    """An undisturbed run: its commands, the state it begins with and the one it ends in."""

    scenario: Scenario
    calls: list[list[str]]
    known: set[str]
    wanted: dict[str, Any]
    after: World
    complaints: list[str] = field(default_factory=list)


def undisturbed(scenario: Scenario, backend: Backend) -> Baseline:
    """Run the scenario on a prepared backend, and judge that, too: it must do something, and be right."""
    before = world.read(backend, contents=False)
    result = backend.task(scenario.task)
    calls = list(backend.calls())
    after = world.read(backend)
    known = before.uuids()
    complaints = checks.succeeded(result, "undisturbed")
    if not complaints and not result["changed"]:
        complaints.append("the undisturbed run changed nothing")
    baseline = Baseline(scenario, calls, known, world.comparable(after, known), after, complaints)
    complaints += verdict(baseline, backend, ())
    return baseline


def points(baseline: Baseline, fits: Callable[[Kind], bool]) -> Iterator[Point]:
    """Every command of the undisturbed run, with every kind of fault that can happen to it."""
    for nth, argv in enumerate(baseline.calls, 1):
        for name, kind in KINDS.items():
            if fits(kind) and kind.where(argv):
                yield Point(baseline.scenario.name, ((name, nth),))


def nested(baseline: Baseline, fits: Callable[[Kind], bool], count: int, seed: int) -> list[Point]:
    """A sample of faults that happen during the run after a fault. Commands that lie are not among them: a run that
    fails for another reason does not compare what it has left.
    """
    dice = random.Random(f"{baseline.scenario.name}:{seed}")
    first = [point.faults[0] for point in points(baseline, fits) if point.faults[0][0] != "silent"]
    names = [name for name, kind in KINDS.items() if fits(kind) and name != "silent" and not kind.fault.boundary]
    result: set[Point] = set()
    while len(result) < count:
        second = (dice.choice(names), dice.randint(1, len(baseline.calls) + 2))
        result.add(Point(baseline.scenario.name, (dice.choice(first), second)))
    return sorted(result, key=str)


def judge(point: Point, baseline: Baseline, backend: Backend) -> list[str]:
    """Interrupt the scenario on a freshly prepared backend; complaints about what comes of it."""
    contents = checks.ledger(backend, world.read(backend, contents=False), baseline.after)
    if baseline.scenario.rewrites:
        contents = [one for one in contents if one.digest == _digest(baseline.after, one)]
    complaints: list[str] = []
    for name, nth in point.faults:
        result = backend.task(baseline.scenario.task, fault=KINDS[name].at(nth))
        complaints += checks.honest(result)
    if name == "silent" and result.get("error_code") == "NotApplied":
        # Nothing told the run that the command had done nothing, and it has found out: the user looks what is missing.
        return complaints + checks.lost_data(backend, contents, world.read(backend))
    outlived = KINDS[name].outlives
    predicted = None if outlived else backend.task(baseline.scenario.task, check=True)
    second = backend.task(baseline.scenario.task)
    if predicted is not None:
        complaints += checks.foretold(predicted, second)
    if not result.get("failed") and not result.get("killed") and second.get("changed"):
        complaints.append("the interrupted run claimed success, and the second changed something")
    complaints += checks.succeeded(second, "second")
    try:
        return complaints + verdict(baseline, backend, contents)
    except AssertionError as error:
        return [*complaints, f"what is there cannot be read: {error}"]


def _digest(after: World, content: checks.Content) -> str:
    """The digest of the same dataset or snapshot after the undisturbed run."""
    return next(after.contents.get(n, "") for n, props in after.datasets.items() if props["guid"] == content.guid)


def verdict(baseline: Baseline, backend: Backend, contents: Sequence[checks.Content]) -> list[str]:
    """Look at everything after a run that succeeded, and run the task once more."""
    now = world.read(backend)
    complaints = checks.lost_data(backend, contents, now) + checks.quota_law(now)
    actual = world.comparable(now, baseline.known)
    rest = world.comparable(replace(now, contents={}), baseline.known)
    complaints += list(checks.differences(baseline.wanted, actual))[:MOST_DIFFERENCES]
    third = backend.task(baseline.scenario.task)
    complaints += checks.idle(third, backend.calls(), "last")
    # That no command changed anything has just been checked: contents are not read once more.
    if world.comparable(world.read(backend, contents=False), baseline.known) != rest:
        complaints.append("the last run said that it changed nothing, and did")
    return complaints + [f"left behind: {name}" for name in backend.litter()]
