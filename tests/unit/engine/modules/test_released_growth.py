# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A host whose disks were released, and then a task of vm_disks that is killed: the same task ends it."""

from __future__ import annotations

import pytest

from ..conftest import VM, running
from . import test_disk_adopt
from .test_vm_snapshot import Killed, kill


def released():
    sim = running()
    uuids = [disk.uuid for disk in sim.vm().disks]
    assert test_disk_adopt.go(sim, state="released").outcome.failure is None
    names = ("root", "a")
    entries = [{"name": name, "uuid": uuid} for name, uuid in zip(names, uuids, strict=True)]
    return sim, {"vm": VM, "disks": [entries[0], {**entries[1], "size": 4096}]}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_change_the_same_task_ends_it(after):
    number = 0
    while True:
        number += 1
        sim, task = released()
        restore = kill(sim, number, after)
        try:
            sim.converge(task, allow_restart=True)
            break
        except Killed:
            pass
        finally:
            restore()
        done = sim.converge(task, allow_restart=True)
        assert (done.problems, done.failure) == ([], None), number
        vm = sim.vm()
        assert (vm.config.state, vm.interrupted, [disk.size_mib for disk in vm.disks]) == (
            "running",
            None,
            [10240, 4096],
        )
        assert [disk.name for disk in vm.disks] == ["root", "a"]
        assert not sim.converge(task, allow_restart=True).changed
    assert number > 5
