# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves that make hosts more evenly used, the one that gains most first."""

from __future__ import annotations

import typing as t

from .places import Places
from .score import NEAR
from .wanted_moves import WantedMove, best_way
from .ways import Solution


def rebalance(
    start: Places, wanted_moves: t.Sequence[WantedMove], max_moves: int, min_gain: float
) -> t.Tuple[Places, t.Dict[str, Solution]]:
    """Return the places after some moves, and the moves in their order. No VM moves twice.

    min_gain: how much each move must lower the score of all hosts.
    """
    places = start.duplicate()
    solutions: t.Dict[str, Solution] = {}
    while len(solutions) < max_moves:
        value = places.score().after() - max(min_gain, NEAR)
        ways = [(wanted.name, best_way(places, wanted)) for wanted in wanted_moves if wanted.name not in solutions]
        good = [(name, way) for name, way in ways if way is not None and way.value <= value]
        if not good:
            break
        name, best = min(good, key=lambda named_way: named_way[1].value)
        places.settle(best.moved)
        solutions[name] = Solution(best.moved, best.operations)
    return places, solutions
