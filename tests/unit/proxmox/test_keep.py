# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which snapshots a retention rule deletes on Proxmox VE, and in which order it counts them."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Keep

from .test_snapshots import DATA, ROOT, Snapshots

DAILY = ("daily*",)


def taken(world, *names):
    for name in names:
        world.node.sleep(86400)
        world.run("qm", "snapshot", "100", name)


def older_pool(world):
    """Let one pool be at a much later transaction group than the other."""

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:2] != ["zfs", "get"]:
            return answer
        rows = [line.split("\t") for line in answer.stdout.split("\n")]
        for row in rows:
            if row[0].startswith("rpool") and "createtxg" in row:
                row[2] = str(int(row[2]) + 1000000)
        return Answer(answer.rc, "\n".join("\t".join(row) for row in rows), answer.stderr)

    world.spoil = spoil


@pytest.fixture
def two_pools():
    """Only the root disk, in the pool with the higher numbers, was in the VM when the oldest snapshot was taken."""
    world = Snapshots()
    world.run("qm", "set", "100", "--delete", "scsi1")
    taken(world, "daily1")
    world.run("qm", "set", "100", "--scsi1", "thick:vm-100-disk-0")
    taken(world, "daily2", "daily3")
    older_pool(world)
    return world


def test_the_order_is_that_of_the_times(two_pools):
    """Numbers of transaction groups of two pools say nothing of each other."""
    assert [one["name"] for one in two_pools.made("daily3").vms[0]["snapshots"]] == ["daily1", "daily2", "daily3"]
    two_pools.steps("daily4", keep=Keep(last=3))
    assert two_pools.sections == ["daily2", "daily3", "daily4"]
    two_pools.steps("", "absent", keep=Keep(last=1, names=DAILY))
    assert two_pools.sections == ["daily4"]


def test_days_and_weeks(two_pools):
    """The newest of each of so many days is kept."""
    two_pools.run("qm", "snapshot", "100", "daily3b")
    two_pools.steps("", "absent", keep=Keep(daily=2, names=DAILY))
    assert two_pools.sections == ["daily2", "daily3b"]


def test_a_disk_that_has_left_is_in_two_snapshots():
    """The last of them that is deleted would leave its volume as an unused one. So it stays."""
    world = Snapshots()
    world.done({"name": "data"})
    taken(world, "daily1", "daily2")
    world.run("qm", "set", "100", "--delete", "scsi1")
    taken(world, "daily3")
    outcome = world.steps("", "absent", keep=Keep(last=1, names=DAILY))
    (warning,) = outcome.warnings
    assert f"keep leaves snapshot daily2: {DATA} is in snapshot daily2, and no disk of the VM any more" in warning
    assert world.sections == ["daily2", "daily3"]
    assert f"{DATA} is in snapshot daily2, and no disk of the VM any more" in world.refused("daily2", "absent")


def test_a_clock_that_was_set_back():
    """Nobody can tell which is the oldest, if the times contradict the pool: nothing is deleted."""
    world = Snapshots()
    world.done({"name": "data"})
    taken(world, "daily1", "daily2", "daily3")
    lines = [line for line in world.file.splitlines() if line.startswith("snaptime: ")]
    world.file = world.file.replace(lines[2], f"snaptime: {int(lines[0].split()[1]) - 10}")
    before = world.fingerprint()
    outcome = world.made("", "absent", keep=Keep(last=1, names=DAILY))
    assert world.fingerprint() == before
    (warning,) = outcome.warnings
    assert "keep deletes nothing: by their times, daily1 is newer than daily3, and older on " in warning
    assert ROOT in warning or DATA in warning
