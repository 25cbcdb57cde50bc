# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest that needs longer than stop_timeout: no VM stays down because of a stop that has failed."""

from __future__ import annotations

import functools
import time

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.results import ending
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.journal import LATEST, UNTOLD

from ..conftest import VM, Simulated, running
from ..modules import test_vm, test_vm_snapshot
from ..modules.test_vm_snapshot import Killed

GROWN = {"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "size": 3072}]}
SAME = {"vm": "web01", "disks": [{"name": "root"}, {"name": "a"}]}
OPTIONS = {"allow_restart": True, "stop_timeout": 30}


def hanging(autoboot=True):
    """A guest that does not shut down in time, and a task that needs it to."""
    sim = running(autoboot)
    sim.admin("vm-stop-hangs", VM, "on")
    return sim


def slow(autoboot=True):
    """The same after the task has failed."""
    sim = hanging(autoboot)
    done = sim.converge(GROWN, **OPTIONS)
    assert done.failure["error_code"] == "VmNotStopped"
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", autoboot)
    sim.admin("vm-stop-hangs", VM, "off")
    return sim


def power_off(sim):
    """The guest ends, as its operator or the task wanted. Its autoboot stays."""
    autoboot = sim.get()["autoboot"]
    sim.run("vmadm", "stop", VM, "-F")
    sim.run("vmadm", "update", VM, f"autoboot={str(autoboot).lower()}")


def entries(sim):
    return [vm for vm in (sim.vm(),) if vm.interrupted or vm.asked]


@pytest.mark.parametrize("autoboot", [True, False])
def test_a_guest_that_ends_soon_after_is_started_again(autoboot):
    sim = hanging(autoboot)

    class Waits(list):
        def append(self, seconds):
            super().append(seconds)
            if len(self) == 5:
                power_off(sim)

    sim.waits = Waits()
    done = sim.converge(GROWN, **OPTIONS)
    assert (done.failure["error_code"], done.failure["restarted"]) == ("VmNotStopped", True)
    assert (sim.get()["state"], sim.get()["autoboot"], entries(sim)) == ("running", autoboot, [])
    assert "may do it later" not in done.failure["message"]


@pytest.mark.parametrize("autoboot", [True, False])
@pytest.mark.parametrize("looks", [0, 1])
def test_a_guest_that_ends_later_is_started_by_the_next_run(autoboot, looks):
    sim = slow(autoboot)
    for _look in range(looks):
        predicted, seen = (sim.converge(SAME, check=check) for check in (True, False))
        assert (seen.problems, seen.failure, seen.changed) == ([], None, False)
        assert any("its guest was asked to shut down at" in warning for warning in seen.warnings)
        assert seen.warnings == predicted.warnings
    power_off(sim)
    predicted, done = (sim.converge(SAME, check=check) for check in (True, False))
    assert predicted.diff == done.diff
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert done.vms[0]["recovered"]
    assert (sim.get()["state"], sim.get()["autoboot"], entries(sim)) == ("running", autoboot, [])
    assert not sim.converge(SAME).changed


def test_nobody_says_that_it_runs_again():
    sim = hanging()
    done = sim.converge(GROWN, **OPTIONS)
    assert done.failure["restarted"] is None
    message = ending(done)["msg"]
    assert "is running again" not in message
    assert "it has been asked to and may do it later: then the next run" in message


def test_the_same_task_ends_it_while_it_still_runs():
    sim = slow()
    sim.four_steps(GROWN, **OPTIONS)
    assert (sim.get()["state"], entries(sim)) == ("running", [])
    assert sim.disks()["a"].size_mib == 3072


def test_other_changes_do_not_lose_it():
    sim = slow()
    assert sim.converge({**SAME, "flexible_disk_size": 40960}).failure is None
    described = {"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "description": "x"}]}
    assert sim.converge(described).failure is None
    power_off(sim)
    assert sim.converge(described).changed
    assert sim.get()["state"] == "running"


def test_a_guest_that_has_refused_is_not_started_any_more(monkeypatch):
    """Whoever shuts it down an hour later does not mean the task."""
    sim = slow()
    began = time.time()
    monkeypatch.setattr(time, "time", lambda: began + LATEST + 1)
    done = sim.converge(SAME)
    assert (done.changed, done.warnings) == (False, [])
    assert entries(sim) == []
    power_off(sim)
    assert not sim.converge(SAME).changed
    assert sim.get()["state"] == "stopped"


def at(sim, monkeypatch, seconds):
    """It is so many seconds later, here and for vmadm."""
    now = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: now)
    sim.node.sleep(now - sim.node.now())


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("nightly", [True, False])
def test_a_vm_that_its_operator_stops_days_later_stays_down(monkeypatch, told, nightly):
    """No run was in between that could have forgotten the stop."""
    sim = slow()
    if told:
        at(sim, monkeypatch, LATEST + 60)
    power_off(sim)
    at(sim, monkeypatch, 600 if told else UNTOLD + 60)
    task = functools.partial(test_vm_snapshot.go, sim, name="one") if nightly else functools.partial(sim.converge, SAME)
    predicted, done = task(check=True), task()
    assert (done.problems, done.failure, done.diff) == ([], None, predicted.diff)
    assert predicted.warnings == done.warnings
    assert any("it is not started; vm with state=running starts it" in warning for warning in done.warnings)
    assert sim.get()["state"] == "stopped"
    assert not sim.converge(SAME).warnings


def test_a_vm_that_ended_soon_is_started_however_late_the_next_run_is(monkeypatch):
    sim = slow()
    at(sim, monkeypatch, 600)
    power_off(sim)
    at(sim, monkeypatch, 7 * UNTOLD)
    assert sim.converge(SAME).changed
    assert (sim.get()["state"], entries(sim)) == ("running", [])


def test_a_vm_that_was_started_since_has_ended_that_stop():
    sim = slow()
    power_off(sim)
    sim.node.clock.advance(5) if hasattr(sim.node, "clock") else None
    sim.run("vmadm", "start", VM)
    assert not sim.converge(SAME).changed
    power_off(sim)
    assert not sim.converge(SAME).changed
    assert sim.get()["state"] == "stopped"


def test_a_stop_that_dies_after_its_signal():
    sim = running()
    sim.fault = lambda argv: "vmadm: it died" if argv[:2] == ["vmadm", "stop"] else None
    assert sim.converge(GROWN, **OPTIONS).failure["restarted"] is None
    sim.fault = None
    power_off(sim)
    assert sim.converge(SAME).changed
    assert (sim.get()["state"], entries(sim)) == ("running", [])


@pytest.mark.parametrize("looks", [0, 1])
def test_a_run_that_is_killed_while_it_waits(looks):
    sim = killed_while_it_waits()
    for _look in range(looks):
        assert sim.converge(SAME).failure is None
        assert not sim.converge(SAME).changed
    power_off(sim)
    assert sim.converge(SAME).changed
    assert (sim.get()["state"], entries(sim)) == ("running", [])


def killed_while_it_waits():
    """A run that was killed while it waited for the guest, which still runs."""
    sim = running()

    def dies(argv):
        if argv[:2] == ["vmadm", "stop"]:
            raise Killed

    sim.fault = dies
    with pytest.raises(Killed):
        sim.converge(GROWN, **OPTIONS)
    sim.fault = None
    return sim


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("task", [SAME, GROWN])
def test_a_vm_that_its_operator_stops_days_after_a_killed_run_stays_down(monkeypatch, told, task):
    """No run was in between. The work of the killed one is taken up all the same, and its entry goes."""
    sim = killed_while_it_waits()
    if told:
        at(sim, monkeypatch, LATEST + 60)
    sim.run("vmadm", "stop", VM, "-F")
    at(sim, monkeypatch, 600 if told else UNTOLD + 60)
    predicted, done = (sim.converge(task, check=check, **OPTIONS) for check in (True, False))
    assert (done.problems, done.failure, done.diff) == ([], None, predicted.diff)
    assert predicted.warnings == done.warnings
    assert any("it is not started; vm with state=running starts it" in warning for warning in done.warnings)
    assert (sim.get()["state"], sim.get()["autoboot"], entries(sim)) == ("stopped", False, [])
    again = sim.converge(task)
    assert (again.changed, again.warnings) == (False, [])


def test_a_vm_that_was_started_by_hand_after_a_killed_run_is_not_started_again(monkeypatch):
    """The next task clears the entry, and whoever stops the VM then means it."""
    sim = killed_while_it_waits()
    power_off(sim)
    sim.run("vmadm", "start", VM)
    at(sim, monkeypatch, 60)
    assert sim.converge(SAME).failure is None
    assert entries(sim) == []
    power_off(sim)
    assert not sim.converge(SAME).changed
    assert sim.get()["state"] == "stopped"


def test_a_declared_stop_leaves_nothing_for_the_next_run():
    """It is what the guest does in the end."""
    sim = hanging()
    done = test_vm.go(sim, {"state": "stopped"}, stop_timeout=30)
    assert (done.failure["error_code"], entries(sim)) == ("VmNotStopped", [])
    assert sim.get()["autoboot"]
    power_off(sim)
    for task in (SAME, GROWN):
        assert sim.converge(task).failure is None
        assert sim.get()["state"] == "stopped"


@pytest.mark.parametrize(
    "options",
    [{"name": "one", "state": "rolled_back", "restart": True}, {"name": "two"}, {"name": "one", "state": "absent"}],
)
def test_tasks_of_snapshots_end_it_too(options):
    sim = running()
    test_vm_snapshot.go(sim, name="one")
    sim.write(f"zones/{VM}/disk1", 5)
    sim.admin("vm-stop-hangs", VM, "on")
    failed = test_vm_snapshot.go(sim, name="one", state="rolled_back", restart=True)
    assert failed.failure["error_code"] == "VmNotStopped"
    sim.admin("vm-stop-hangs", VM, "off")
    power_off(sim)
    predicted, done = (test_vm_snapshot.go(sim, check=check, **options) for check in (True, False))
    assert predicted.diff == done.diff
    assert (done.problems, done.failure) == ([], None)
    assert (sim.get()["state"], sim.get()["autoboot"], entries(sim)) == ("running", True, [])
    assert not test_vm_snapshot.go(sim, **{**options, "restart": False}).changed


@pytest.mark.parametrize("task", ["vm_snapshot", "vm_disks", "vm"])
def test_a_refused_task_says_that_the_vm_stays_down(task):
    """There is no room for the nightly snapshot, so that task cannot be the one that starts the VM again."""
    sim = Simulated()
    sim.adopted(2048, flexible=10240 + 2048)
    sim.run("vmadm", "start", VM)
    sim.write(f"zones/{VM}/disk1", 7, 0, 300)
    sim.admin("vm-stop-hangs", VM, "on")
    failed = sim.converge({"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "model": "nvme"}]}, **OPTIONS)
    assert failed.failure["error_code"] == "VmNotStopped"
    sim.admin("vm-stop-hangs", VM, "off")
    power_off(sim)
    run = {
        "vm_snapshot": functools.partial(test_vm_snapshot.go, sim, name="nightly"),
        "vm_disks": functools.partial(sim.converge, {**SAME, "flexible_disk_size": 8192}),
        "vm": functools.partial(test_vm.go, sim, {"package": None, "flexible_disk_size": 8192, "image": ""}),
    }[task]
    for refused in (run(check=True), run(), run()):
        assert refused.problems
        (message,) = refused.warnings
        assert "its guest was asked to shut down at" in message
        assert "this run leaves it stopped, too; vm with state=running starts it" in message
    assert test_vm.go(sim, {"package": None, "image": "", "state": "running"}).problems == []
    assert (sim.get()["state"], entries(sim)) == ("running", [])


def test_disk_verify_finds_nothing_wrong_while_it_runs():
    from ..modules.test_disk_verify import go

    sim = slow()
    assert "intent" not in {finding.kind for finding in go(sim).findings}
    power_off(sim)
    assert "intent" in {finding.kind for finding in go(sim).findings}
