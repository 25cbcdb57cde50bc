# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios on Proxmox VE, and a sample of the points at which they are interrupted.

C(faults.py --driver proxmox) tries all of them.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.faults import campaign, proxmox, scenarios

SAMPLED_SCENARIOS, POINTS_EACH = 5, 8


@pytest.mark.parametrize("name", proxmox.SCENARIOS)
def test_a_scenario_ends_well_undisturbed(name):
    _state, baseline = campaign.prepared(name, campaign.PROXMOX)
    assert baseline.complaints == []


def test_every_scenario_runs_or_is_refused_or_cannot_begin():
    of_vms = {name for name in scenarios.SCENARIOS if name.startswith("vm-")}
    assert of_vms | {*proxmox.SCENARIOS, *proxmox.REFUSED, *proxmox.ELSEWHERE} >= {*scenarios.SCENARIOS}
    assert not {*proxmox.SCENARIOS} & {*proxmox.REFUSED, *proxmox.ELSEWHERE}


@pytest.mark.parametrize(("name", "text"), proxmox.REFUSED.items())
def test_a_scenario_that_is_refused_changes_nothing(name, text):
    backend = proxmox.ProxmoxBackend()
    scenario = scenarios.SCENARIOS[name]
    scenario.prepare(backend)
    before = backend.host.fingerprint()
    said = [backend.task(scenario.task, check=check) for check in (True, False)]
    assert all(one["failed"] and text in one["msg"] for one in said), said
    assert said[0]["problems"] == said[1]["problems"]
    assert backend.host.fingerprint() == before


def test_a_sample(capsys):
    seed = int(os.environ["FLEXDISK_SEED"])
    dice = random.Random(seed)
    jobs = []
    for name in dice.sample(sorted(proxmox.SCENARIOS), SAMPLED_SCENARIOS):
        jobs += dice.sample(campaign.jobs(name, seed, campaign.PROXMOX), POINTS_EACH)
    with capsys.disabled():
        print(f"\nfaults: proxmox, seed {seed}, {len(jobs)} points", flush=True)
    failed = {str(job): found.complaints for job in jobs if (found := campaign.try_out(job)).complaints}
    assert failed == {}, f"FLEXDISK_SEED={seed}"


def test_qm_ends_in_the_middle_of_a_sequence_of_its_own_steps():
    """Alone, or with the module."""
    jobs = campaign.jobs("detach", 1, campaign.PROXMOX)
    kinds = {kind for job in jobs for kind, _nth in job.point.faults}
    assert {f"qm-{way}-{step}" for way in ("torn", "dead") for step in range(1, 7)} <= kinds
    assert not any(job.real for job in jobs)
