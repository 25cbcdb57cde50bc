# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How near plans are to the best ones, on clusters so small that everything can be tried."""

from __future__ import annotations

import functools
import itertools
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import NEAR

from .compare import options_of
from .optimum import Best, Names, best, end, replay, score
from .small import OPTIONS, request
from .test_hail import FIRST, REQUESTS

COUNT, MORE = 200, 2000
TOLD = 1_000_000  # the figures of the page are those of the requests from this seed on, whatever the environment says
PAGE = (Path(__file__).resolve().parents[3] / "extensions" / "iallocator" / "README.md").read_text()
SECTION = " ".join(PAGE.partition("## How near to the best\n")[2].partition("\n## ")[0].split())


class Outcome(NamedTuple):
    """The VMs that a plan moves, the score then, and what could be reached."""

    seed: int
    moved: Names
    score: float
    best: Best

    def above(self, same: bool) -> float:
        """By what part the score is above the lowest one. same: of the plans that move the same VMs."""
        return above(self.score, min(self.best.scores(self.moved if same else None)))


class Figures(NamedTuple):
    """In how many requests the plan is the best one, in how many it moves fewer VMs than possible, and by what part the
    score of the others is above that of the best plan.
    """

    exact: int
    fewer: int
    mean: float
    worst: float


def above(score: float, lowest: float) -> float:
    """By what part a score is above the lowest one."""
    far = score - lowest
    return (far / lowest if lowest else far) if far > NEAR else 0.0


@functools.cache
def best_of(seed: int) -> Best:
    """What could be reached."""
    return best(request(seed))


@functools.cache
def outcome(seed: int, like_hail: bool = False) -> Outcome:
    """The plan for a request. It is one of those that were tried."""
    raw = request(seed)
    moved, _left, jobs = answer(raw, options_of(OPTIONS)._replace(like_hail=like_hail))["result"]
    there, names = replay(raw, jobs), frozenset(name for name, *_rest in moved)
    assert (names, end(there, raw["request"]["instances"])) in best_of(seed).tried, seed
    return Outcome(seed, names, score(there), best_of(seed))


def outcomes(first: int, count: int, like_hail: bool = False) -> list[Outcome]:
    """Those of so many requests that can be met in more than one way."""
    seeds = (seed for seed in itertools.count(first) if len(best_of(seed).plans) > 1)
    return [outcome(seed, like_hail) for seed in itertools.islice(seeds, count)]


def figures(found: list[Outcome], same: bool = False) -> Figures:
    """same: beside the plans that move the same VMs."""
    most = [one for one in found if same or len(one.moved) == one.best.most]
    parts = [one.above(same) for one in most]
    return Figures(parts.count(0.0), len(found) - len(most), sum(parts) / len(parts), max(parts))


def test_no_plan_is_better_than_the_best():
    for one in outcomes(FIRST, REQUESTS):
        assert len(one.moved) <= one.best.most, one.seed
        assert one.score >= min(one.best.scores(one.moved)) - NEAR, one.seed
        assert len(one.moved) < one.best.most or one.score >= min(one.best.scores(None)) - NEAR, one.seed


def test_requests_leave_a_choice():
    """Else every plan would be near the best."""
    found = outcomes(TOLD, COUNT)
    assert found[-1].seed - TOLD < 4 * COUNT
    every = [one.best.scores(None) for one in found]
    assert sum(above(max(scores), min(scores)) > 0.01 for scores in every) >= COUNT // 2
    assert sum(above(max(scores), min(scores)) for scores in every) / COUNT > 0.3


def test_plans_are_near_the_best():
    """The bounds are a little above what is measured."""
    found = outcomes(TOLD, COUNT)
    ours, same = figures(found), figures(found, same=True)
    assert (ours.exact >= 190, ours.fewer <= 1, ours.mean < 0.0045, ours.worst < 0.4) == (True,) * 4, ours
    assert (same.exact >= 196, same.mean < 0.0002, same.worst < 0.02) == (True,) * 3, same
    assert figures(outcomes(TOLD, COUNT, like_hail=True)).exact < ours.exact


def test_the_page_has_the_figures():
    found = outcomes(TOLD, COUNT)
    ours, same, theirs = figures(found), figures(found, same=True), figures(outcomes(TOLD, COUNT, like_hail=True))
    first, score, alike, hail, _more = re.findall(r"(?<= - ).*?(?= - |$)", SECTION)
    assert numbers(first) == [f"{ours.exact}", f"{COUNT}", f"{ours.fewer}"]
    assert numbers(score) == percents(ours)
    assert numbers(alike) == [f"{same.exact}", *percents(same)]
    assert numbers(hail) == [f"{theirs.exact}", f"{theirs.fewer}"]


@pytest.mark.skipif(not os.environ.get("FLEXDISK_FULL"), reason="takes half a minute; FLEXDISK_FULL=1 runs it")
def test_the_page_has_the_figures_of_more_requests():
    ours = figures(outcomes(TOLD, MORE))
    more = numbers(SECTION.rpartition(" - ")[2])
    assert more == [f"{MORE:,}", f"{ours.exact:,}", f"{ours.fewer}", f"{ours.worst + 1:.1f}"]


def numbers(text: str) -> list[str]:
    """The figures of a text."""
    return re.findall(r"\d[\d,]*(?:\.\d+)?(?=\D)", text.replace(", ", " "))


def percents(found: Figures) -> list[str]:
    """The mean and the worst distance, as the page has them."""
    return [f"{found.mean * 100:.2f}", f"{found.worst * 100:.1f}"]
