# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Days of replication by policies: two hosts fail and return, a pool is full, others take snapshots and look into sets.

At each run what is retained is what the policies say, no replica is older than its policy without a word, and nothing
of a retained set is lost. FLEXDISK_FULL: a week with twenty VMs. FLEXDISK_SEED chooses what happens,
FLEXDISK_DAYS how long.
"""

from __future__ import annotations

import os

import pytest

from .week import HOUR, TICK, Week

FULL = bool(os.environ.get("FLEXDISK_FULL"))
SEED = int(os.environ.get("FLEXDISK_SEED") or 7)
DAYS = int(os.environ.get("FLEXDISK_DAYS") or 7)
TICKS_PER_DAY = 24 * HOUR // TICK


def days(week, number):
    """So many days, each with its trouble. In a shorter time, trouble comes sooner."""
    ticks = number * TICKS_PER_DAY
    trouble = {
        0.15: lambda: week.fills("hv04"),
        0.25: lambda: week.empties("hv04"),
        0.30: lambda: week.dies("hv01"),
        0.33: lambda: week.taken_over("hv01"),
        0.45: lambda: week.returns("hv01"),
        0.60: lambda: week.dies("hv03"),
        0.62: lambda: week.taken_over("hv03"),
        0.75: lambda: week.returns("hv03"),
    }
    due = {int(part * ticks): run for part, run in trouble.items()}
    for tick in range(ticks):
        week.goes_on()
        due.get(tick, lambda: None)()
        week.snapshotter("hv02")
        if tick % (4 * HOUR // TICK) == 0:
            week.restores()
        failures = week.replicate()
        week.counts["alerts"] += len(failures)
        week.check(failures)
        if tick % TICKS_PER_DAY == 0:
            week.check_contents()
    return failures


def ends_well(week, failures):
    assert week.check_contents() > len(week.uuids)
    assert week.counts["failovers"] >= 2
    assert week.counts["restores"] >= 2
    assert week.counts["complete"] > 5 * len(week.uuids)
    assert not week.dead
    print(dict(week.counts), failures)


def test_some_hours_with_some_vms(tmp_path, monkeypatch):
    week = Week(tmp_path, monkeypatch, SEED, vms=4)
    ends_well(week, days(week, 1))


@pytest.mark.long
@pytest.mark.skipif(not FULL, reason="an hour; FLEXDISK_FULL=1 runs it")
def test_a_week_with_twenty_vms(tmp_path, monkeypatch):
    week = Week(tmp_path, monkeypatch, SEED, vms=20)
    ends_well(week, days(week, DAYS))
