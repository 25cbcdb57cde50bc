# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random histories of a group on hosts in process: members fail, hosts vanish, runs are killed at any command, and the
size, the image and the policy change in between. FLEXDISK_SEQUENCES says how many there are.
"""

from __future__ import annotations

import copy
import os

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.unit.engine.conftest import IMAGE

from .cluster import SECOND, Cluster, Killed, Roll, boot_image, group_of

PARTS = 4  # so that several processors share them
SEQUENCES = int(os.environ.get("FLEXDISK_SEQUENCES") or (300 if os.environ.get("FLEXDISK_FULL") else 120))
HOSTS = ["hv0", "hv1"]
MOST_STEPS = 40

ROUNDS = st.fixed_dictionaries({
    "size": st.integers(0, 4),
    "image": st.sampled_from([IMAGE, SECOND]),
    "cpus": st.sampled_from([1, 2]),
    "floor": st.integers(0, 4),
    "batch": st.integers(1, 3),
    "per_host": st.sampled_from([1, 2, 9]),
    "budget": st.sampled_from([0, 0, 1, 9]),
    "on_failure": st.sampled_from(["stop", "continue"]),
    "broken": st.sets(st.sampled_from([IMAGE, SECOND]), max_size=1),
    "cut": st.sets(st.sampled_from(HOSTS), max_size=1),
    "kill_at": st.sampled_from([0, 0, *range(1, 60)]),
})  # fmt: skip
EMPTY = Cluster(len(HOSTS))


class History:
    """A cluster, what its disks should hold, and what must be true all the time."""

    def __init__(self) -> None:
        self.cluster = copy.deepcopy(EMPTY)
        self.contents: dict[str, str] = {}

    def round(self, size, image, cpus, floor, batch, per_host, budget, on_failure, broken, cut, kill_at):
        """One run, which may be killed at its command of that number. What it says, {} if it was killed."""
        cluster = self.cluster
        cluster.broken, cluster.cut = broken, cut
        cluster.commands, cluster.kill_at = 0, kill_at
        names = {f"web-{index}" for index in range(size)}
        most, serving = len(names | set(cluster.vms())), len(cluster.serving())
        least = min(floor, size, serving)

        def check():
            vms = cluster.vms()
            assert len(cluster.serving()) >= least
            assert all(vms[name][1]["state"] == "running" for name in cluster.pooled if name in vms)
            assert len(vms) <= most, "none is made above the size"

        cluster.on_change = check
        limits = {"min_in_service": floor, "max_batch_size": batch, "max_down_per_host": per_host}
        policy = {**limits, "failure_budget": budget, "on_failure": on_failure}
        group = group_of(size, image, hosts=HOSTS, policy=policy, template={"vcpus": cpus, "destroy_disks": True})
        roll = Roll(cluster, group)
        try:
            said = roll.run()
        except Killed:
            said = {}
        assert roll.steps <= MOST_STEPS
        cluster.on_change, cluster.kill_at = lambda: None, 0
        self.look_at_contents()
        return said

    def look_at_contents(self):
        """Disks of new members are written, and those of the others hold what they held."""
        for name, (_host, vm) in sorted(self.cluster.vms().items()):
            sim, volume = self.cluster.volume(name)
            _status, said, _err = sim.node.run(["zfs", "get", "-Hpo", "value", "flexdisk:preserve", volume], "")
            if len(vm["disks"]) < 2 or said.strip() != "true":
                continue  # the run that makes or deletes the member was killed
            if name not in self.contents:
                sim.write(volume, len(self.contents) + 1, 0, 16)
                self.contents[name] = sim.digest(volume, "0", "16")
            assert sim.digest(volume, "0", "16") == self.contents[name], name


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_on_hosts(part):
    @seed(int(os.environ["FLEXDISK_SEED"]) + part)
    @settings(
        max_examples=-(-SEQUENCES // PARTS),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # a history is short, and it takes minutes to make it shorter
    )
    @given(st.lists(ROUNDS, min_size=1, max_size=4), st.integers(1, 4), st.sampled_from([IMAGE, SECOND]))
    def run(rounds, size, image):
        history = History()
        for what in rounds:
            history.round(**what)
        end = {"size": size, "image": image, "cpus": 1, "floor": 0, "batch": 4, "per_host": 9, "budget": 0}
        calm = {"on_failure": "stop", "broken": set(), "cut": set(), "kill_at": 0}
        said = history.round(**end, **calm)
        assert said.get("done"), said
        vms = history.cluster.vms()
        assert set(vms) == {f"web-{index}" for index in range(size)} == history.cluster.pooled & set(vms)
        assert {boot_image(vm) for _host, vm in vms.values()} == {image}
        assert history.round(**end, **calm)["steps"] == []
        grown = history.round(**{**end, "size": 4}, **calm)
        assert grown["done"], "members that come back have their disks"

    run()
