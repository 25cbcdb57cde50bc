# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks in the record of their VM that are on another node, detached, or in a storage that is off."""

from __future__ import annotations

import json

import pytest

from .test_elsewhere import with_other
from .test_leaving import GONE, LEAVES, ROOT, detached, record, there
from .test_registry import adoption, steps, task
from .test_unseen import KEPT, LVM, OFF, known, moved
from .world import DATA, STORAGE, VM, World

SIZED = {"name": "data", "size": "2GiB"}
RECORD = f"etc/pve/flexdisk/{VM}.json"
RELEASED = [{"vm": "web"}]


def away(world):
    """The detached disks of the record."""
    return json.loads((world.files / RECORD).read_text())["detached"]


def left():
    world = known()
    world.done(ROOT, **LEAVES)
    return world


def on_another_node(world):
    """The VM has been migrated without its detached disk. The pools of that node are called the same."""
    other = World()
    other.node.pools.dataset("tank").guid += 1  # the simulated ones are all alike
    other.run("zfs", "destroy", "tank/vms/vm-100-disk-0")
    other.file = world.file
    (other.files / RECORD).parent.mkdir(exist_ok=True)
    (other.files / RECORD).write_text((world.files / RECORD).read_text())
    return other


# -- the VM goes to another node


@pytest.mark.parametrize("disk", [SIZED, GONE], ids=["sized", "absent"])
def test_a_disk_that_was_detached_on_another_node(disk):
    """It is not made anew there, and not said to be gone: a pool with the same name is another one."""
    first = left()
    world = on_another_node(first)
    said = world.refusal(ROOT, disk)
    assert f"data (uuid {DATA}) was detached to tank/flexdisk/{DATA}, not in the pool tank of this node, but in" in said
    assert "as of another node: it is neither made anew, given up nor released while that is so" in said
    problems = task(world, {**disk, "vm": "web"}).problems
    assert f"(uuid {DATA}) was detached to" in problems[0].message


def test_another_change_on_another_node_keeps_it_in_the_record():
    first = left()
    world = on_another_node(first)
    world.four_steps({"name": "root", "size": "5GiB"})
    assert away(world) == away(first) != {}
    (first.files / RECORD).write_text((world.files / RECORD).read_text())
    first.four_steps(ROOT, SIZED)
    assert first.disks()["data"].uuid == DATA


# -- a release


@pytest.mark.parametrize("storage", [OFF, LVM], ids=["off", "other kind"])
def test_a_release_keeps_what_only_the_record_knows(storage):
    """Its identity is on no volume that could be read, so taking it out of the record would lose it."""
    world = moved()
    world.run("qm", "disk", "move", "100", "scsi1", "thick", "--delete", "1")
    world.write("storage.cfg", storage)
    if storage is LVM:
        world.file = world.file.replace("scsi1: thick:", "scsi1: lvm:")
    before = world.fingerprint()
    (problem,) = adoption(world, RELEASED, "released").outcome.problems
    assert "only the record of the VM has it (serial " in problem.message
    assert f"give it up by vm_disks: - {{uuid: {DATA}, state: absent}}" in problem.message
    assert world.fingerprint() == before
    if storage is OFF:
        world.write("storage.cfg", STORAGE)
        assert adoption(world, RELEASED, "released").outcome.problems == []
        assert adoption(world, RELEASED).outcome.problems == []
        assert [(d.name, d.uuid, d.preserve) for d in world.vm().disks if d.uuid == DATA] == [("data", DATA, True)]


def test_what_was_given_up_stops_no_release():
    world = known()
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.run("qm", "set", "100", "--delete", "unused0")
    problems = adoption(world, RELEASED, "released").outcome.problems
    assert "only the record of the VM has it" in problems[0].message
    world.done(ROOT, {"uuid": DATA, "state": "absent"})
    assert adoption(world, RELEASED, "released").outcome.problems == []


def test_a_release_with_a_detached_disk_in_a_storage_that_is_off():
    world = left()
    world.write("storage.cfg", OFF)
    (problem,) = adoption(world, RELEASED, "released").outcome.problems
    assert "and pool tank is not read: it is neither made anew, given up nor released" in problem.message
    assert record(world) != {}


# -- what the module disk does is in the record


def test_a_detached_disk_that_gets_another_name():
    world = left()
    steps(world, {"uuid": DATA, "name": "archive"})
    assert [one["name"] for one in away(world).values()] == ["archive"]
    world.write("storage.cfg", OFF)
    assert "archive (uuid" in world.refusal(ROOT, {"name": "archive", "size": "1GiB"})
    world.done(ROOT, {"name": "data", "size": "1GiB"})


def test_a_detached_disk_that_is_new():
    world = known()
    world.file = world.file.replace("order=virtio0", "order=scsi1")  # so it lies in tank
    steps(world, {"name": "spare", "vm": "web", "size": "1GiB"})
    (place,) = detached(world).values()
    assert {one["name"]: one["volume"] for one in away(world).values()} == {"spare": place}
    world.file = world.file.replace("order=scsi1", "order=virtio0")
    world.write("storage.cfg", OFF)
    assert f"was detached to {place}" in world.refusal(ROOT, {"name": "spare", "size": "1GiB"})


def test_a_detached_disk_that_is_destroyed():
    world = left()
    steps(world, {"name": "data", "vm": "web", "state": "absent"})
    assert away(world) == {}
    assert not there(world, f"tank/flexdisk/{DATA}")
    world.write("storage.cfg", OFF)
    world.done(ROOT, SIZED)


def test_a_record_that_an_interrupted_run_has_not_written():
    world = left()
    path = world.files / RECORD
    before = path.read_text()
    task(world, {"uuid": DATA, "name": "archive"})
    path.write_text(before)
    assert not task(world, {"uuid": DATA, "name": "archive"}).changed
    assert [one["name"] for one in away(world).values()] == ["archive"]


def test_a_vm_that_cannot_be_changed_keeps_its_record():
    world = left()
    before = away(world)
    world.file = world.file.replace("cores: 2", "cores: 2\nlock: backup")
    assert task(world, {"uuid": DATA, "name": "archive"}).problems == []
    assert away(world) == before
    assert [*detached(world)] == ["archive"]


def test_a_detached_disk_that_another_vm_has_got():
    """It is not in the way of a new one of its name, also while its storage is off."""
    world = with_other()
    world.done(ROOT, KEPT)
    world.done(ROOT, **LEAVES)
    world.done({"uuid": DATA, "name": "data"}, vm={"vm": "other"})
    assert away(world) == {}
    world.write("storage.cfg", OFF)
    world.four_steps(ROOT, {"name": "data", "size": "1GiB"})


@pytest.mark.parametrize("entry", [{"name": "data", "vm": "web"}, {"uuid": DATA}], ids=["name", "uuid"])
def test_a_record_that_the_destruction_of_a_disk_has_not_reached(entry):
    """The run was killed after the disk was gone. The next one finds no disk, and writes the record."""
    world = left()
    world.run("zfs", "destroy", f"tank/flexdisk/{DATA}")
    assert [*away(world)] == [DATA]
    assert not task(world, {**entry, "state": "absent"}).changed
    assert away(world) == {}
