# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How near plans are to the best ones, on clusters so small that everything can be tried."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.iallocator import answer

from .compare import options_of
from .optimum import best, request, wishes_of
from .test_plans import score

COUNT = 200
EXACT = 1e-6  # a square root of almost nothing is no more exact
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "placement.md").read_text()


def test_plans_are_near_the_best():
    fewer, distances, choices = 0, [], 0
    for seed in range(COUNT):
        raw, words = request(seed)
        options = options_of(words)._replace(like_hail=False)
        places, wishes = wishes_of(raw, options)
        wanted = best(places, wishes)
        moved, _left, jobs = answer(raw, options)["result"]
        assert len(moved) <= wanted.moved, seed
        if len(moved) < wanted.moved:
            fewer += 1
            continue
        ours = score(raw, options, jobs)
        assert ours >= wanted.score - EXACT, seed
        distances.append(max(0.0, ours / wanted.score - 1 if wanted.score else ours))
        choices += wanted.ends > 1
    exact = sum(distance < EXACT for distance in distances)
    mean, worst = sum(distances) / len(distances), max(distances)
    said = f"{exact} of {COUNT}, {fewer} with fewer VMs, mean {mean:.2%}, worst {worst:.1%}, {choices} with a choice"
    print(said)
    assert choices >= COUNT // 3
    figures = (f"{exact}", f"{COUNT}", f"{mean * 100:.2f}", f"{worst * 100:.1f}", f"{fewer}")
    assert re.findall(
        r"(?s)best plan for (\d+) of (\d+) .* by ([\d.]+) % in the mean.*by\s([\d.]+) % .* In (\d+)\s", PAGE
    ) == [figures], said
