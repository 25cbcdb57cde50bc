# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sample of all injection points, another one for each FLEXDISK_SEED. `make faults` runs them all."""

from __future__ import annotations

import os
import random

import pytest

from tests.faults import campaign
from tests.faults.kinds import KINDS
from tests.faults.scenarios import SCENARIOS

SAMPLED_SCENARIOS = 5
POINTS_EACH = 8
REAL_POINTS = 1


@pytest.fixture(scope="module")
def seed() -> int:
    return int(os.environ["FLEXDISK_SEED"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_ends_well_undisturbed(name):
    _state, baseline = campaign.prepared(name)
    assert baseline.complaints == []


def test_a_sample(seed, capsys):
    dice = random.Random(seed)
    jobs, real = [], []
    for name in dice.sample(sorted(SCENARIOS), SAMPLED_SCENARIOS):
        mine = list(campaign.jobs(name, seed))
        jobs += dice.sample([job for job in mine if not job.real], POINTS_EACH)
        real += [job for job in mine if job.real]
    jobs += dice.sample(real, REAL_POINTS)
    with capsys.disabled():
        print(f"\nfaults: seed {seed}, {len(jobs)} points", flush=True)
    failed = {str(job): found.complaints for job in jobs if (found := campaign.try_out(job)).complaints}
    assert failed == {}, f"FLEXDISK_SEED={seed}"


def test_every_kind_happens_in_a_scenario_with_everything(seed):
    _state, baseline = campaign.prepared("restart")
    assert baseline.complaints == []
    jobs = list(campaign.jobs("restart", seed))
    kinds = {kind for job in jobs for kind, _nth in job.point.faults}
    assert {name for name, kind in KINDS.items() if kind.in_process} <= kinds
    assert len(jobs) > 300
    assert {job.point.faults[0] for job in jobs} >= {("kill-before", nth) for nth in range(1, len(baseline.calls) + 1)}
    assert sum(len(job.point.faults) > 1 for job in jobs) == campaign.NESTED
    assert abs(sum(job.real for job in jobs) * campaign.REAL_ONE_IN - len(jobs)) <= campaign.REAL_ONE_IN


def test_the_seed_decides():
    def chosen(seed):
        return [str(job) for job in campaign.jobs("grow", seed)]

    assert chosen(1) == chosen(1) != chosen(2)
