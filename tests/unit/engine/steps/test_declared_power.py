# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""After a run, a VM's power is what the task declares, else what it was before, however the run went."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes

from ..conftest import running
from ..modules.test_vm import go
from ..modules.test_vm_snapshot import Killed, kill

OFF = {"state": "stopped", "memory": 2048, "indestructible": True}
TASKS = {
    "stop": OFF,
    "stop, with autoboot": {**OFF, "autoboot": True},
    "stop and grow": {**OFF, "disks": [{"name": "root"}, {"name": "a", "size": 4096}]},
}
GROWN = {"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "size": 3072}]}


def end(sim):
    vm = sim.vm()
    sizes = [disk.size_mib for disk in vm.disks]
    return vm.config.state, vm.config.autoboot, vm.config.memory, vm.config.indestructible, sizes, vm.interrupted


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_stop_that_was_killed_stays_a_stop(task, after):
    """Killed at every change: the same task ends as it would have."""
    sim = running()
    assert go(sim, task).failure is None
    wanted, number = end(sim), 0
    assert wanted[0] == "stopped"
    while True:
        number += 1
        sim = running()
        restore = kill(sim, number, after)
        try:
            go(sim, task)
            break
        except Killed:
            pass
        finally:
            restore()
        done = go(sim, task)
        assert (done.problems, done.failure) == ([], None), number
        assert end(sim) == wanted, number
        assert not go(sim, task).changed
    assert number > 5


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_stop_with_a_later_step_that_fails_stays_a_stop(task):
    sim = running()
    assert go(sim, task).failure is None
    wanted, number = end(sim), 0
    while True:
        number += 1
        sim, left = running(), [number]

        def fails(argv, left=left):  # pylint: disable=dangerous-default-value
            left[0] -= 1 if changes(argv) else 0
            return "it failed" if changes(argv) and left[0] == 0 else None

        sim.fault = fails
        done = go(sim, task)
        sim.fault = None
        if done.failure is not None and done.failure["step"] != "stop":
            assert (sim.get()["state"], done.failure["restarted"]) == ("stopped", None), number
        done = go(sim, task)
        assert (done.problems, done.failure) == ([], None), number
        assert end(sim) == wanted, number
        if left[0] > 0:
            break
    assert number > 5


def test_a_stop_that_was_killed_is_undone_by_no_other_task():
    """Whoever declared the VM stopped has not asked for a start."""
    for number in range(1, 9):
        sim = running()
        restore = kill(sim, number, True)
        try:
            go(sim, OFF)
        except Killed:
            pass
        finally:
            restore()
        state = sim.get()["state"]
        assert sim.converge(GROWN, allow_restart=True).failure is None
        assert sim.get()["state"] == state, number


def test_a_stop_ends_a_run_that_had_stopped_the_vm():
    """Declared as stopped, the VM is not started by what another task has left."""
    sim = running()
    sim.fault = lambda argv: "it failed" if "start" in argv else None
    assert sim.converge(GROWN, allow_restart=True).failure is not None
    sim.fault = None
    assert sim.vm().halted
    assert go(sim, {"state": "stopped"}).failure is None
    assert (sim.get()["state"], sim.get()["autoboot"], sim.vm().interrupted) == ("stopped", False, None)
