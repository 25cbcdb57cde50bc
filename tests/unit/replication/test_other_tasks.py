# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What other tasks do with disks that have replicas: the table in docs/replicas.md."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm as vms
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk import run as run_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted

from .world import REPLICAS, VM, World

ROOT = {"name": "root"}
DATA = {"name": "data"}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A stopped VM whose disks have names and replicas."""
    made = World(tmp_path, monkeypatch)
    root, data = made.disks()
    done(made, {**ROOT, "uuid": root}, {**DATA, "uuid": data})
    assert made.sync() == (True, True)
    return made


def task(world, *disks, **more):
    """The task vm_disks, with the disks that each task of this world lists."""
    disks = [*disks, *(one for one in world.listed if one["name"] not in [disk["name"] for disk in disks])]
    declared = {"vm": "db01", **more, "disks": disks}
    policy = Policy(allow_restart=True, stop_timeout=9, allow_force_stop=True)
    return converge(world.home.zfs(), world.home.driver(), [declared], policy, None, False)


def done(world, *disks, **more):
    ended = task(world, *disks, **more)
    assert (ended.problems, ended.failure) == ([], None)


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ({**DATA, "size": 32, "dangerous_allow_shrink": True}, {}),
        ({**DATA, "state": "absent", "destroy_snapshots": True}, {}),
        ({**DATA, "block_size": 16384, "recreate": True, "destroy_snapshots": True}, {}),
        (None, {"unlisted": "destroy", "destroy_snapshots": True}),
    ],
    ids=["shrink", "destroy", "recreate", "unlisted"],
)
def test_refused(world, entry, more):
    before = world.saved()[0].pools.to_json()
    ended = task(world, ROOT, *([entry] if entry else []), **more)
    assert "Replicated" in {problem.code for problem in ended.problems}
    (message,) = {problem.message for problem in ended.problems if problem.code == "Replicated"}
    assert "it has replicas on hv02; the playbook replicate with flexdisk_replica_state=absent" in message
    assert world.home.node.pools.to_json()["pools"] == before["pools"]


def test_a_disk_grows(world):
    done(world, ROOT, {**DATA, "size": 96})
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()


def test_a_disk_goes_and_comes_back(world):
    """Meanwhile the sync of the others goes on. Afterwards an increment is enough."""
    uuid = list(world.disks())[1]
    done(world, ROOT, unlisted="detach")
    world.write(0, 1, 3)
    assert world.sync() == (True, True)
    assert len(world.peer.points(f"{REPLICAS}/{uuid}")) == 1
    done(world, ROOT, DATA)
    assert list(world.disks())[1] == uuid
    plan = world.planned()
    assert not plan.problems
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()
    assert world.sync() == (False, True)


def snapshot(world, **options):
    zfs, hypervisor = world.home.zfs(), world.home.driver()
    policy = Policy(allow_restart=True, stop_timeout=9, allow_force_stop=True)
    ended = vm_snapshot.run(zfs, hypervisor, ["db01"], wanted(**options), policy, None, False, NOW)
    assert (ended.problems, ended.failure) == ([], None)
    return ended.changed


def test_a_rollback(world):
    """Snapshots of a sync need not be named. Once the replica has gone back too, the same rollback is idle."""
    snapshot(world, name="one")
    world.write(0, 3, 9)
    assert world.sync() == (True, True)
    assert snapshot(world, name="one", state="rolled_back", newer=[])
    hashes = world.hashes()
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes() == hashes
    assert not snapshot(world, name="one", state="rolled_back", newer=[])
    assert world.sync() == (False, True)


def destroy_detached(world):
    """The problems of a task that destroys all detached disks."""
    zfs, hypervisor = world.home.zfs(), world.home.driver()
    entries = [
        {"uuid": one.uuid, "state": "absent", "destroy_snapshots": True} for one in observe(zfs, hypervisor).detached
    ]
    return run_disk(zfs, hypervisor, entries, Policy(), "zones", False).problems


def given_up(world, name):
    """What the role does when it gives the replicas of a VM up. The first of two runs has something to do."""
    for noted in (True, False):
        removed = world.sender().remove([name], "hv02", False)
        assert (removed.problems, removed.had_notes, removed.uuids) == ([], noted, [VM])
        assert len(removed.homes) == 1
        world.receiver().remove(["zones"], removed.uuids, removed.homes, False)
    assert world.peer.ok("zfs", "list", "-H", "-o", "name", "-r", REPLICAS) == REPLICAS


def test_preserved_disks_of_a_vm_that_is_gone(world):
    """The message names the command that gives their replicas up. After that, they can be destroyed."""
    done(world, {**ROOT, "preserve": True}, {**DATA, "preserve": True})
    gone = {"vm": "db01", "state": "absent", "destroy_snapshots": True}
    ended = vms.run(world.home.zfs(), world.home.driver(), [gone], [], Policy(), "zones", False)
    assert (ended.problems, ended.failure) == ([], None)
    uuids = [disk.uuid for disk in observe(world.home.zfs(), world.home.driver(), all_pools=True).detached]
    unprotected = [{"uuid": uuid, "preserve": False} for uuid in uuids]
    assert not run_disk(world.home.zfs(), world.home.driver(), unprotected, Policy(), "zones", False).problems
    text = f"flexdisk_replica_state=absent and flexdisk_vm={VM}, flexdisk_replica_host=hv02 gives them up"
    result = destroy_detached(world)
    assert [problem.code for problem in result] == ["Replicated"] * 2
    assert all(text in problem.message for problem in result)
    assert [problem.code for problem in world.sender().remove(["db01"], "hv02", False).problems] == ["ResourceNotFound"]
    given_up(world, VM)
    assert destroy_detached(world) == []
    assert observe(world.home.zfs(), world.home.driver(), all_pools=True).detached == ()


def test_a_detached_disk_loses_its_replicas_with_its_vm(world):
    done(world, ROOT, unlisted="detach")
    assert [problem.code for problem in destroy_detached(world)] == ["Replicated"]
    given_up(world, "db01")
    assert destroy_detached(world) == []
