# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that no VM has, on Proxmox VE: they come to their VM again or to another one, and unused volumes are such."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .test_leaving import GONE, LEAVES, PLACE, ROOT, detached, facts, there, unused
from .world import DATA, FILE, VM, Killed, World, faults

OTHER = "cccccccc-0000-4000-8000-000000000002"
IN_OTHER = {"vm": {"vm": "other"}}
DATA_DISK = {"name": "data"}
BY_UUID = {"uuid": DATA, "name": "data"}


def with_other(running=False):
    """A second VM, with one disk, on the same node."""
    world = World(running)
    world.volume("rpool/data/vm-101-disk-0", "1G")
    world.write(
        "nodes/pve1/qemu-server/101.conf",
        f"boot: order=scsi0\nname: other\nscsi0: local-zfs:vm-101-disk-0,size=1G\n"
        f"scsihw: virtio-scsi-single\nsmbios1: uuid={OTHER}\n",
    )
    return world


def other_file(world):
    return (world.files / "etc/pve/nodes/pve1/qemu-server/101.conf").read_text()


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_goes_to_another_vm(running):
    """By its UUID; it is called after that VM then, and no command on the first one reaches it."""
    world = with_other()
    if running:
        world.run("qm", "start", "101")
    world.done(ROOT, **LEAVES)
    world.four_steps({"uuid": DATA, "name": "data"}, **IN_OTHER)
    line = f"scsi1: thick:vm-101-disk-0,discard=on,serial={serial_of(DATA)},size=2G"
    assert line in other_file(world)
    assert facts(world, "tank/vms/vm-101-disk-0")["vm"] == OTHER
    assert detached(world) == {}
    world.run("qm", "destroy", "100", "--destroy-unreferenced-disks", "1")
    assert there(world, "tank/vms/vm-101-disk-0")


def test_the_ganeti_journey():
    """Create, detach, attach elsewhere, destroy."""
    world = with_other()
    world.four_steps(ROOT, DATA_DISK, {"name": "journey", "size": "1GiB"})
    uuid = world.disks()["journey"].uuid
    world.four_steps(ROOT, DATA_DISK, **LEAVES)
    assert detached(world) == {"journey": f"rpool/flexdisk/{uuid}"}
    world.four_steps({"uuid": uuid, "name": "journey"}, **IN_OTHER)
    assert "virtio1: local-zfs:vm-101-disk-1" in other_file(world)
    world.four_steps({"name": "journey", "state": "absent"}, **IN_OTHER)
    assert "virtio1" not in other_file(world)
    assert not there(world, "rpool/data/vm-101-disk-1")
    assert not there(world, f"rpool/flexdisk/{uuid}")


def test_a_disk_survives_the_destruction_of_its_vm():
    """qm destroy takes everything that is called after the VM. A detached disk is not."""
    world = with_other()
    world.done(ROOT, **LEAVES)
    world.run("qm", "destroy", "100", "--purge", "1", "--destroy-unreferenced-disks", "1")
    assert there(world, PLACE)
    world.four_steps(BY_UUID, **IN_OTHER)
    assert serial_of(DATA) in other_file(world)


def test_a_disk_left_out_is_kept():
    """Nothing happens to it unless the task says what: by default, it is refused."""
    world = World()
    assert "is attached but not listed" in world.refusal(ROOT, vm={"unlisted": "refuse"})
    world.four_steps(ROOT)
    assert (world.file, world.disks().keys()) == (FILE, {"root", "data"})


@pytest.mark.parametrize("running", [False, True])
def test_removing_the_second_of_three_leaves_the_third_its_key(running):
    world = World(running)
    world.done(ROOT, DATA_DISK, {"name": "second", "size": "1GiB"}, {"name": "third", "size": "1GiB"})
    keys = {name: disk.key for name, disk in world.disks().items()}
    world.four_steps(ROOT, DATA_DISK, {"name": "third"}, vm={"unlisted": "destroy"})
    assert {name: disk.key for name, disk in world.disks().items()} == {n: keys[n] for n in ("root", "data", "third")}
    world.four_steps(ROOT, DATA_DISK, {"name": "fourth", "size": "1GiB"}, {"name": "third"})
    assert (world.disks()["fourth"].key, world.disks()["third"].key) == (keys["second"], keys["third"])


def test_a_taken_key():
    """A disk comes back at its own key, and at the lowest free one if another disk has that."""
    world = World()
    world.done(ROOT, **LEAVES)
    world.done(ROOT, {"name": "thief", "size": "1GiB", "pci_slot": "scsi1"})
    world.four_steps(ROOT, DATA_DISK)
    assert world.disks()["data"].key == "scsi0"


def test_what_another_bus_cannot_have():
    """The plan says which options the disk does not get back."""
    world = World()
    world.file = FILE.replace("discard=on,", "discard=on,iothread=1,queues=2,")
    world.done(ROOT, **LEAVES)
    done = world.four_steps(ROOT, {"name": "data", "pci_slot": "virtio2"})
    assert "without queues=2, which only scsi disks have" in done.diff
    assert world.setting("virtio2") == f"thick:vm-100-disk-0,discard=on,iothread=1,serial={serial_of(DATA)},size=2G"


def test_a_pool_without_a_storage():
    world = World()
    world.done(ROOT, **LEAVES)
    world.write("storage.cfg", "zfspool: local-zfs\n\tpool rpool/data\n\tcontent images\n\tsparse 1\n")
    assert "no disk of this VM and no detached disk has the uuid" in world.refusal(ROOT, BY_UUID)


# -- unused volumes


def unused_by_hand(running=False):
    world = World(running)
    world.done(ROOT, DATA_DISK)
    world.run("qm", "set", "100", "--delete", "scsi1")
    assert world.setting("unused0") == "thick:vm-100-disk-0"
    return world


TASKS = {
    "detach": ((ROOT,), LEAVES),
    "destroy": ((ROOT, GONE), {}),
    "attach": ((ROOT, DATA_DISK), {}),
}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("task", sorted(TASKS))
def test_an_unused_volume(task, running):
    """One that was detached by hand is detached, destroyed or attached like any other."""
    world = unused_by_hand(running)
    wanted, more = TASKS[task]
    world.four_steps(*wanted, **more)
    assert unused(world) == []
    assert detached(world) == ({"data": PLACE} if task == "detach" else {})
    assert there(world, "tank/vms/vm-100-disk-0") == (task == "attach")
    assert not (task == "destroy" and there(world, PLACE))
    if task == "attach":
        assert world.disks()["data"].key == "scsi1"


@pytest.mark.parametrize("task", ["detach", "destroy"])
def test_an_unused_volume_interrupted_at_every_command(task):
    wanted, more = TASKS[task]
    found = [*faults(unused_by_hand, *wanted, **more)]
    assert len(found) > 15
    for fault in found:
        world = unused_by_hand()
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*wanted, **more).problems == []
        world.spoil = None
        world.done(*wanted, **more)
        assert unused(world) == [], fault
        assert detached(world) == ({"data": PLACE} if task == "detach" else {}), fault
        assert (there(world, PLACE), world.vm().interrupted) == (task == "detach", None), fault
        assert not world.converge(*wanted, **more).changed, fault


def test_a_volume_of_a_former_vm_stays():
    """An earlier VM with the same number has left it: only its UUID gives it to this one."""
    world = World()
    world.run("zfs", "create", "-V", "1G", "rpool/data/vm-100-disk-5")
    for key, value in {"uuid": OTHER, "name": "old", "vm": OTHER}.items():
        world.run("zfs", "set", f"flexdisk:{key}={value}", "rpool/data/vm-100-disk-5")
    world.four_steps(ROOT, DATA_DISK, **LEAVES)
    assert there(world, "rpool/data/vm-100-disk-5")
    assert world.vm().config.uuid == VM


@pytest.mark.parametrize("task", ["detach", "destroy"])
def test_an_unused_volume_that_is_attached_meanwhile(task):
    """Between the plan and the rename, by hand: it stays where the VM has it."""
    world = unused_by_hand(running=True)
    wanted, more = TASKS[task]

    def spoil(number, argv, real):
        if argv[:2] == ["zfs", "set"] and not world.setting("scsi3"):
            world.run("qm", "set", "100", "--scsi3", "thick:vm-100-disk-0")
        return real(argv)

    world.spoil = spoil
    failure = world.converge(*wanted, **more).failure
    assert (failure["error_code"], "uses tank/vms/vm-100-disk-0" in failure["message"]) == ("Changed", True)
    world.spoil = None
    assert world.setting("scsi3").startswith("thick:vm-100-disk-0,")
    assert there(world, "tank/vms/vm-100-disk-0")
