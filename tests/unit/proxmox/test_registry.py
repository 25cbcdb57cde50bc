# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules disk and disk_adopt on Proxmox VE."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk, disk_adopt
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_monitor
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of
from tests.unit.four_steps import four_steps

from .test_elsewhere import OTHER, other_file, with_other
from .test_leaving import PLACE, detached, facts, record, there, unused
from .world import DATA, FILE, VM, Fault, Killed, World

DETACHED = {"name": "data", "vm": "web", "state": "detached"}
ATTACHED = {"name": "data", "vm": "web", "state": "attached"}


def task(world, *entries, check=False):
    world.calls.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pve_monitor, "blocks", world._blocks)
        return disk.run(world.zfs, world.driver, entries, Policy(), None, check)


def adoption(world, entries=None, state="adopted", check=False):
    world.calls.clear()
    return disk_adopt.run(world.zfs, world.driver, entries, state, False, None, check)


def steps(world, *entries):
    return four_steps(
        world,
        lambda check: task(world, *entries, check=check),
        lambda done: {"vms": done.vms, "disks": [{k: v for k, v in one.items() if k != "uuid"} for one in done.disks]},
    )


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_is_detached_and_attached(running):
    world = World(running)
    steps(world, DETACHED)
    assert (detached(world), world.setting("scsi1"), unused(world)) == ({"data": PLACE}, "", [])
    steps(world, ATTACHED)
    assert sorted(world.file.splitlines()) == sorted(FILE.splitlines())
    assert serial_of(DATA) in record(world)


def test_a_disk_is_made_resized_and_destroyed_without_a_vm():
    world = World()
    steps(world, {"name": "spare", "vm": "web", "size": "1GiB"})
    (place,) = detached(world).values()
    steps(world, {"name": "spare", "vm": "web", "size": "2GiB", "type": "sparse"})
    assert world.volsize(place) == 2048
    assert world.file == FILE
    steps(world, {"name": "spare", "vm": "web", "state": "absent"})
    assert not there(world, place)


def test_a_disk_is_copied():
    world = World()
    steps(world, {"name": "copy", "vm": "web", "source": DATA})
    steps(world, {"name": "copy", "vm": "web", "state": "attached"})
    assert world.disks()["copy"].size == world.disks()["data"].size
    assert "@" not in world.run("zfs", "list", "-Ho", "name", "-t", "all")


def test_only_a_detached_disk_is_destroyed():
    world = World()
    problems = task(world, {"name": "data", "vm": "web", "state": "absent"}).problems
    assert "only a detached disk can be destroyed" in problems[0].message


def test_another_vm_takes_a_disk():
    world = with_other()
    wanted = {"name": "data", "vm": "other", "from_vm": "web", "state": "attached"}
    assert "take: true" in task(world, wanted).problems[0].message
    steps(world, {**wanted, "take": True})
    assert f"serial={serial_of(DATA)}" in other_file(world)
    assert facts(world, "tank/vms/vm-101-disk-0")["vm"] == OTHER
    assert serial_of(DATA) not in record(world)


def test_a_disk_that_stays_grows_and_gets_a_name():
    world = World(running=True)
    steps(world, {"uuid": DATA, "name": "shop", "size": "3GiB"})
    assert (world.plugged()["scsi1"], world.disks()["shop"].size_mib) == (3072, 3072)


@pytest.mark.parametrize(("entry", "before"), [(DETACHED, None), (ATTACHED, DETACHED)], ids=["detached", "attached"])
def test_interrupted_at_every_command(entry, before):
    def make():
        world = World()
        if before is not None:
            task(world, before)
        return world

    straight = make()
    task(straight, entry)
    numbers = [number for number, argv in enumerate(straight.calls, 1) if changes(argv)]
    assert len(numbers) > 5
    for fault in [Fault(number, effect) for number in numbers for effect in (False, True)]:
        world = make()
        fault(world)
        with contextlib.suppress(Killed):
            task(world, entry)
        world.spoil = None
        done = task(world, entry)
        assert (done.problems, done.failure) == ([], None), fault
        assert (world.file, detached(world), unused(world)) == (straight.file, detached(straight), []), fault
        assert not task(world, entry).changed, fault


def unnamed():
    world = World()
    for volume in ("rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"):
        for name in ("uuid", "name", "vm"):
            world.run("zfs", "inherit", f"flexdisk:{name}", volume)
    return world


NAMED = [{"vm": "web", "disks": [{"pci_slot": "scsi1", "name": "data"}, {"pci_slot": "virtio0", "name": "root"}]}]


@pytest.mark.parametrize("running", [False, True])
def test_disks_are_adopted(running):
    """They get names; no line of the file changes, and the record has them."""
    world = unnamed()
    if running:
        world.run("qm", "start", "100")
    before = world.file
    four_steps(world, lambda check: adoption(world, NAMED, check=check))
    assert (world.file, set(world.disks())) == (before, {"root", "data"})
    assert serial_of(world.disks()["data"].uuid) == serial_of(DATA)
    assert {saved["name"] for saved in record(world).values()} == {"root", "data"}
    assert not any(argv[0] == "qm" for argv in world.calls)


def test_adoption_interrupted_at_every_command():
    straight = unnamed()
    adoption(straight, NAMED)
    numbers = [number for number, argv in enumerate(straight.calls, 1) if changes(argv)]
    assert numbers
    for fault in [Fault(number, effect) for number in numbers for effect in (False, True)]:
        world = unnamed()
        fault(world)
        with contextlib.suppress(Killed):
            adoption(world, NAMED)
        world.spoil = None
        assert adoption(world, NAMED).outcome.failure is None
        assert {one["name"] for one in record(world).values()} == {"root", "data"}, fault
        assert not adoption(world, NAMED).outcome.changed, fault


def test_all_vms_are_adopted():
    world = with_other()
    four_steps(world, lambda check: adoption(world, check=check))
    assert facts(world, "rpool/data/vm-101-disk-0")["name"] == "disk0"


def test_no_package_is_written():
    world = World()
    before = world.fingerprint()
    (problem,) = adoption(world, [{"vm": "web", "package": "small"}]).outcome.problems
    assert "this VM has none" in problem.message
    assert world.fingerprint() == before
    assert world.vm().config.uuid == VM


def test_an_index_that_two_disks_have():
    """The number of a volume is its own only in its storage, so it is not guessed which one is meant."""
    world = World()
    for wanted in ({"vm": "web", "index": 0, "state": "detached"}, {"vm": "web", "index": -1, "description": "x"}):
        (problem,) = task(world, wanted).problems
        assert problem.code == "Ambiguous"
        assert "2 disks have it" in problem.message
    world.done({"name": "root"}, {"name": "data"}, {"name": "new", "size": "1GiB"})
    steps(world, {"vm": "web", "index": -1, "description": "x"})
    assert world.disks()["new"].user_properties["description"] == "x"
