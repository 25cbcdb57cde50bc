# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody takes a snapshot of the whole pool after the plan, at any moment: it is never destroyed with the rest."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm, vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Policy,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated, running

ROOT = f"zones/{VM}"
BACK = SnapshotDeclaration("rolled_back", "one")
GONE = {
    "vm": VM,
    "state": "absent",
    "unlisted": "refuse",
    "destroy_disks": True,
    "destroy_snapshots": False,
}
DESTROY = {"vm": VM, "disks": [{"name": "root"}, {"name": "a", "state": "absent", "destroy_snapshots": True}]}


def tools(sim):
    return Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner, sim.waits.append)


def roll_back(sim):
    return vm_snapshot.run(*tools(sim), [VM], BACK, Policy(allow_restart=True), None, False, 1_800_000_000)


def delete(sim):
    return vm.run(*tools(sim), [GONE], [], Policy(), None, False)


def destroy(sim):
    return sim.converge(DESTROY, allow_restart=True)


def taken(sim):
    """The names of what somebody else has taken of the VM."""
    names = sim.run("zfs", "list", "-Ho", "name", "-t", "snapshot", "-r", "zones").split()
    return [name for name in names if name.endswith("@hourly")]


def prepared(action):
    sim = running()
    if action is roll_back:
        sim.run("vmadm", "create-snapshot", VM, "one")
        sim.write(f"{ROOT}/disk1", 5)
    elif action is destroy:
        sim.run("zfs", "snapshot", f"{ROOT}/disk1@mine")
    return sim


def snapshot_at(sim, number):
    """Take the snapshot before the changing command with this number. Whether that came."""
    count, came = iter(range(1000)), []

    def fault(argv):
        if changes(argv) and next(count) == number:
            sim.run("zfs", "snapshot", "-r", "zones@hourly")
            came.append(argv)

    sim.fault = fault
    return came


@pytest.mark.parametrize("action", [roll_back, delete, destroy])
def test_a_snapshot_taken_at_any_moment_outlives_the_task(action):
    """All but the moment in which vmadm itself begins to destroy, right after the last look."""
    refused = 0
    for number in range(100):
        sim = prepared(action)
        came = snapshot_at(sim, number)
        done = action(sim)
        sim.fault = None
        assert done.problems == []
        if not came:
            break
        if came[0][:2] == ["vmadm", "delete"]:
            continue
        left = [name for name in taken(sim) if "disk1@" in name or "/flexdisk/" in name]
        if done.failure is None:
            assert came[0][1] not in ("stop", "snapshot")
            assert action is roll_back or not left
            continue
        refused += 1
        assert done.failure["error_code"] == "Changed", done.failure
        late = came[0][:2] == ["zfs", "rollback"]  # which ZFS itself refuses, without the name
        assert ("more recent snapshots" if late else "@hourly was added") in done.failure["message"]
        assert left
        # Some disks may have gone back when ZFS refuses: then the VM stays down until the same rollback has ended.
        assert sim.get()["state"] == "running" or action is delete or late
    assert refused


def test_a_rollback_is_refused_before_anything_changes_and_the_vm_runs_again():
    """The guest's shutdown takes minutes, and the hourly snapshot comes in them."""
    sim = prepared(roll_back)
    before = sim.digest(f"{ROOT}/disk1")
    sim.fault = lambda argv: (argv[1] == "stop" and sim.run("zfs", "snapshot", "-r", "zones@hourly")) or None
    done = roll_back(sim)
    sim.fault = None
    assert done.failure["error_code"] == "Changed"
    assert "it was not rolled back" in done.failure["message"]
    assert sim.digest(f"{ROOT}/disk1") == before
    assert sim.get()["state"] == "running"
    assert sim.vm().interrupted is None
    refused = roll_back(sim)
    assert "destroys newer snapshots: hourly; allow that with newer: [hourly]" in refused.problems[0].message


def test_a_disk_that_has_got_a_snapshot_stays_in_its_vm():
    sim = prepared(destroy)
    sim.fault = lambda argv: (argv[1] == "stop" and sim.run("zfs", "snapshot", "-r", "zones@hourly")) or None
    done = destroy(sim)
    assert (done.failure["error_code"], list(sim.disks())) == ("Changed", ["root", "a"])
    assert sim.get()["state"] == "running"


def test_another_snapshot_of_the_same_name_is_not_gone_back_to():
    sim = prepared(roll_back)

    def fault(argv):
        if argv[:2] == ["vmadm", "stop"]:
            sim.run("vmadm", "delete-snapshot", VM, "one")
            sim.run("vmadm", "create-snapshot", VM, "one")

    sim.fault = fault
    done = roll_back(sim)
    assert (done.failure["error_code"], sim.get()["state"]) == ("Changed", "running")
    assert "@vmsnap-one is another one now" in done.failure["message"]


def test_vmadm_deletes_a_snapshot_only_as_planned():
    sim = Simulated()
    sim.adopted(2048)
    sim.run("vmadm", "create-snapshot", VM, "one")
    spec = SnapshotDeclaration("absent", "one")

    def fault(argv):
        if argv[:2] == ["vmadm", "delete-snapshot"]:
            raise AssertionError("vmadm must not be asked")
        if argv[:2] == ["zfs", "get"] and argv[-1] == ROOT and len(sim.calls) > calls:
            sim.fault = None
            sim.run("vmadm", "delete-snapshot", VM, "one")
            sim.run("vmadm", "create-snapshot", VM, "one")

    done = vm_snapshot.run(*tools(sim), [VM], spec, Policy(), None, True, 1_800_000_000)
    calls = len(sim.calls) + 3
    sim.fault = fault
    done = vm_snapshot.run(*tools(sim), [VM], spec, Policy(), None, False, 1_800_000_000)
    assert done.failure["error_code"] == "Changed"
    assert [s["name"] for s in sim.get()["snapshots"]] == ["one"]
