# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The simulated zfs against the real one: a few sequences in `make verify`, all counts in `lab.py full`.

FLEXDISK_SEED fixes the first seed; a failing sequence is printed for `tests/lab/differential/run.py --replay FILE`.
"""

from __future__ import annotations

import os
import random

import pytest
from differential.profile import GENERAL, Profile
from differential.run import LANES, MOST_SEQUENCES, compare, explain
from differential.runners import in_lab, usable_in_lab
from differential.shrinking import shrink
from differential.streams import PROFILE
from differential.tally import Tally
from harness import Lab

SAMPLE = 2
STREAMS = 20
SHRINK_SECONDS = 240.0


def first_seed() -> int:
    return int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))


def run(
    sequences: int, capsys: pytest.CaptureFixture[str], *, until_full: bool = False, profile: Profile = GENERAL
) -> Tally:
    """Compare, print the statistics whatever comes out, and fail with the first difference, shrunk."""
    seed = first_seed()
    with capsys.disabled():
        print(f"\ndifferential test: first seed {seed}", flush=True)
        usable = usable_in_lab()
        lanes = [in_lab(lane) for lane in range(LANES)]
        tally = compare(range(seed, seed + sequences), usable, lanes, until_full=until_full, profile=profile)
        print(tally.report(), flush=True)
    if tally.failures:
        pytest.fail(explain(shrink(tally.failures[0], in_lab(), usable, SHRINK_SECONDS)))
    return tally


def test_sampled_sequences(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(SAMPLE, capsys)
    assert tally.total >= 100
    assert tally.shares() == []


def test_sampled_streams(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(SAMPLE, capsys, profile=PROFILE).total >= 80


@pytest.mark.full
def test_many_streams(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(STREAMS, capsys, profile=PROFILE)
    assert tally.total >= 1000
    assert tally.kinds.keys() >= PROFILE.makers.keys()


@pytest.mark.full
def test_all_counts_are_reached(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run(MOST_SEQUENCES, capsys, until_full=True)
    assert tally.total >= 2000
    assert tally.shares() == []
    assert tally.missing() == []
