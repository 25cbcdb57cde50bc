# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rolls as users run them, with ansible-playbook on nodes in folders: what they promise, and how they fail."""

from __future__ import annotations

import getpass
import socket

from tests.unit.engine.conftest import IMAGE
from tests.unit.fleet.cluster import SECOND

from .farm import Farm, images, recap, watched


def table(output, title):
    """The rows of a table in the output, each as its words."""
    rows = [line.strip().strip('",').split() for line in output.splitlines() if line.startswith('        "')]
    heads = [number for number, row in enumerate(rows) if row[0] == "STEP" and title in " ".join(row)]
    if not heads:
        return []
    rest = rows[heads[-1] + 1 :]
    ends = [number for number, row in enumerate(rest) if not row[0].isdigit()]
    return rest[: ends[0]] if ends else rest


def done(output):
    """What was done: step, member, action and result of each."""
    return [(int(row[0]), row[1], row[3], " ".join(row[6:])) for row in table(output, "RESULT")]


def test_one_step_and_a_second_run_at_the_same_time(tmp_path):
    farm = Farm(tmp_path, 4, 2)
    before, digests = farm.look().vms(), farm.look().digests()
    policy = {"min_in_service": 2, "max_batch_size": 2, "action_ceiling": "recreate"}
    with watched(farm, floor=2) as watch, farm.start(SECOND, policy=policy, most_steps=1) as first:
        assert first.wait_until("Take the members out of service"), first.output
        second = farm.run(SECOND, policy=policy)
        assert first.running, second.output
        first.wait()
    assert second.code != 0
    who = f"{getpass.getuser()} on {socket.gethostname()}, process {first.pid}"
    assert f"hv0: web: {who}" in second.words
    assert "Read the VMs of each host" not in second.output
    assert set(recap(second.output).values()) == {0}
    # The first did its one step, and the rest is left.
    assert first.code == 0, first.output
    assert done(first.output) == [(1, "web-3", "recreate", "ok"), (1, "web-2", "recreate", "ok")]
    assert watch.broken == []
    wanted = {"web-0": IMAGE, "web-1": IMAGE, "web-2": SECOND, "web-3": SECOND}
    assert images(farm.look()) == wanted
    assert farm.pooled() == set(before)
    assert farm.lease() is None
    assert farm.look().digests() == digests
