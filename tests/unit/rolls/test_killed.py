# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A roll that is killed again and again, and begun again by the same command each time.

FLEXDISK_KILLS=60 kills so often, on twelve members of four nodes; make verify kills six times, on four of two.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import random
import time

from tests.unit.engine.conftest import IMAGE
from tests.unit.fleet.cluster import SECOND

from .farm import Farm, recap, watched

KILLS = int(os.environ.get("FLEXDISK_KILLS", "6"))
CAMPAIGN = "FLEXDISK_KILLS" in os.environ
SIZE, HOSTS, FLOOR = (12, 4, 10) if CAMPAIGN else (4, 2, 2)
POLICY = {"min_in_service": FLOOR, "max_batch_size": 2, "action_ceiling": "recreate"}
# The number of tasks until the first step has ended, and some: so a run is killed anywhere, and rolls end now and then.
TASKS = 60
WAYS = ("controller", "everything", "module")


def kill(run, way):
    """Kill the run, and say what it was at. "" if it has ended before."""
    if way == "module":
        return run.kill_module()
    at = run.task
    if not run.running:
        return ""
    if way == "controller":
        run.kill_controller()
    else:
        run.kill_all()
    return at


def test_a_roll_that_is_killed_again_and_again(tmp_path, record_property):
    rng = random.Random(f"{os.environ['FLEXDISK_SEED']} kills")
    farm = Farm(tmp_path, SIZE, HOSTS, processes=True)
    before, digests = farm.look().vms(), farm.look().digests()
    ways = itertools.cycle(rng.sample(WAYS, len(WAYS)))
    log = []
    counts = collections.Counter()
    rolls, ended, begun = 0, False, time.monotonic()
    with contextlib.ExitStack() as runs, watched(farm, FLOOR) as watch:
        while not ended:
            wanted, holder, way = (SECOND, IMAGE)[rolls % 2], farm.lease(), next(ways)
            run, at = runs.enter_context(farm.start(wanted, policy=POLICY)), ""
            counts["runs"] += 1
            if counts["kills"] < KILLS and run.wait_for(rng.randint(1, TASKS)):
                time.sleep(rng.uniform(0, 1.5))
                at = kill(run, way)
            counts.update({"kills": 1, f"kills of the {way}": 1} if at else {})
            if way == "everything" and at:
                assert run.processes() == []
            if way == "module" or not at:
                run.wait()  # a run without its module ends by itself
                counts["runs that failed and said so"] += run.code != 0
            log.append(f"{way} at {at}" if at else "ended by itself")
            print(f"{time.monotonic() - begun:7.1f} s, run {counts['runs']}: {log[-1]}, code {run.code}", flush=True)
            # The lease of a run that is dead is in nobody's way.
            assert "take_over: true this run" not in run.output, run.output
            if holder and run.came_to("Read the VMs of each host"):
                counts[f"leases taken over after {'a module' if 'module' in log[-2] else log[-2].split()[0]}"] += 1
            assert at or run.code == 0, (log, run.output)
            assert watch.broken == [], (watch.broken[:5], log, run.output)
            farm.check_safe(before, digests)
            if run.code == 0:
                rolls += 1
                farm.check_whole(before, digests, dict.fromkeys(before, wanted), rolls)
                ended = counts["kills"] >= KILLS
        again = farm.run(wanted, policy=POLICY)
        assert (again.code, recap(again.output)) == (0, dict.fromkeys(farm.hosts, 0)), again.output
        assert "skipping: [hv0] => (item" not in again.output, "a turn, where there is nothing to do"
        farm.check_whole(before, digests, dict.fromkeys(before, wanted), rolls)
    assert (watch.broken, watch.least) == ([], FLOOR)
    assert farm.lease() is None
    counts.update({"rolls": rolls, "looks at the nodes": watch.looks})
    print(f"{dict(counts)} in {time.monotonic() - begun:.0f} s")
    for name, count in counts.items():
        record_property(name, count)
    assert min(counts[f"kills of the {way}"] for way in WAYS) >= KILLS // 4
    assert {"leases taken over after controller", "leases taken over after everything"} <= set(counts)
