# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interrupted tasks on real ZFS: the module's Python or Ansible itself killed, lost answers, torn commands.

After each the same task is run again; then every byte, every property and every VM must be as after an undisturbed
run. FLEXDISK_SEED fixes the sample.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from faults_backend import DomainsBackend, LabBackend, parse
from harness import Lab

from tests.faults import driver
from tests.faults.driver import Baseline, Point
from tests.faults.kinds import KINDS
from tests.faults.scenarios import SCENARIOS

SHARE = ["grow", "shrink", "add", "detach", "restart"]
SHARE_POINTS = 2
FULL_POINTS = 4
FULL = [
    "grow-snapshots",
    "shrink",
    "add-remaining",
    "clone",
    "remove-snapshots",
    "detach-snapshots",
    "attach-grown",
    "flexible-down",
    "restart",
    "drift",
    "recreate-preserved",
    "two-vms",
]
DOMAINS = [
    "grow-snapshots",
    "shrink",
    "add",
    "clone",
    "remove",
    "detach-snapshots",
    "attach-grown",
]
RUNNING = ["attach-running", "detach-running", "grow-running"]
LEAST_STEPS = 7
SEED = int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))
# These always come first: who is killed, and where.
DEADLY = ["kill-after", "controller", "outlived", "kill-before"]


def sample(count: int, deadly: Sequence[str], baseline: Baseline) -> list[Point]:
    """So many points of a scenario: one of each deadly kind, the rest of any kind."""
    dice = random.Random(f"{baseline.scenario.name}:{SEED}")
    everything = list(driver.points(baseline, lambda kind: kind.in_lab))
    chosen = [dice.choice([p for p in everything if p.faults[0][0] == kind]) for kind in deadly]
    others = [point for point in everything if point not in chosen]
    return chosen + dice.sample(others, count - len(chosen))


def steps(baseline: Baseline) -> list[Point]:
    """Death after every command that changes something, before and after every such call to libvirt.

    Before such a call the guest has done what the last one asked for.
    """
    found = [
        point
        for point in driver.points(baseline, lambda kind: kind in (KINDS["kill-before"], KINDS["kill-after"]))
        for kind, nth in point.faults
        if kind == "kill-after" or baseline.calls[nth - 1][0] == "libvirt"
    ]
    assert len(found) >= LEAST_STEPS
    assert any(baseline.calls[point.faults[0][1] - 1][0] == "libvirt" for point in found)
    return found


def interrupt(
    kind: type[LabBackend],
    lab: Lab,
    name: str,
    choose: Callable[[Baseline], list[Point]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The chosen points of one scenario; fails with all complaints."""
    backend = kind(lab, SCENARIOS[name].prepare)
    baseline = driver.undisturbed(SCENARIOS[name], backend)
    assert baseline.complaints == []
    failed = {}
    for point in choose(baseline):
        backend.again()
        complaints = driver.judge(point, baseline, backend)
        with capsys.disabled():
            hit = " ".join(baseline.calls[point.faults[0][1] - 1][:2])
            print(f"\nfaults: {point} ({hit}): {complaints or 'as undisturbed'}", flush=True)
        if complaints:
            failed[str(point)] = complaints
    assert failed == {}, f"FLEXDISK_SEED={SEED}"


def test_a_sample(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    name = random.Random(SEED).choice(SHARE)
    with capsys.disabled():
        print(f"\nfaults: seed {SEED}, scenario {name}", flush=True)
    chosen = partial(sample, SHARE_POINTS, ("kill-after", "controller"))
    interrupt(LabBackend, lab, name, chosen, capsys)


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_in_full(lab: Lab, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    number = FULL.index(name)
    chosen = partial(sample, FULL_POINTS, (DEADLY[number % 4], DEADLY[(number + 1) % 4]))
    interrupt(LabBackend, lab, name, chosen, capsys)


@pytest.mark.full
@pytest.mark.parametrize("name", DOMAINS)
def test_domains_in_full(lab: Lab, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    number = DOMAINS.index(name)
    deadly = [kind for kind in DEADLY if kind != DEADLY[number % 4]]
    interrupt(DomainsBackend, lab, name, partial(sample, FULL_POINTS, deadly), capsys)


@pytest.mark.full
@pytest.mark.parametrize("name", RUNNING)
def test_running_domains_at_every_step(lab: Lab, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    interrupt(DomainsBackend, lab, name, steps, capsys)


def test_the_full_counts() -> None:
    kinds = Counter(DEADLY[(number + step) % 4] for number in range(len(FULL)) for step in (0, 1))
    assert len(FULL) * FULL_POINTS >= 40
    assert len(DOMAINS) * (len(DEADLY) - 1) + len(RUNNING) * LEAST_STEPS >= 40
    assert all(kinds[kind] >= 5 for kind in DEADLY)
    assert all(KINDS[kind].in_lab for kind in DEADLY)
    assert set(SHARE + FULL + DOMAINS + RUNNING) <= set(SCENARIOS)


def test_what_ansible_prints() -> None:
    assert parse('lab01 | CHANGED => {"changed": true}') == {"changed": True, "failed": False}
    assert parse('lab01 | FAILED! => {"error_code": "x", "rc": 137}')["failed"]
    assert parse('lab01 | FAILED! => {"msg": "MODULE FAILURE", "rc": 137}') == {"killed": True}
    assert parse('lab01 | FAILED! => {"msg": "MODULE FAILURE", "rc": 1}')["failed"]
