# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose disk a volume of Proxmox VE is: only its name, its properties and the record connect it with a VM."""

from __future__ import annotations

import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_disks import converge
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy

from .world import DATA, STORAGE, VM, World

OTHER = VM[:-1] + "9"


def reused():
    """The number 100 has a new VM, and a disk of the VM that had it before."""
    world = World()
    world.done({"name": "old", "size": "1GiB"})
    world.run("qm", "set", "100", "--delete", "virtio1")
    world.run("zfs", "create", "-s", "-V", "4G", "rpool/data/vm-100-disk-5")
    text = re.sub("virtio0: .*", "virtio0: local-zfs:vm-100-disk-5,size=4G", world.file.replace(VM, OTHER))
    world.file = re.sub("(unused0|scsi1): .*\n", "", text)
    return world


def test_a_disk_that_an_earlier_vm_of_the_number_has_left():
    world = reused()
    said = world.refusal({"name": "old", "size": "1GiB"})
    assert f"rpool/data/vm-100-disk-1 is old of VM {VM}, which is another VM" in said
    assert "zfs inherit flexdisk:name rpool/data/vm-100-disk-1" in said
    done = world.four_steps({"name": "fresh", "size": "1GiB"})
    assert any("rpool/data/vm-100-disk-1 is old of VM" in text for text in done.warnings)
    assert "vm-100-disk-1," not in world.file


def test_the_ways_out_of_it():
    world = reused()
    uuid = world.run("zfs", "get", "-Hpo", "value", "flexdisk:uuid", "rpool/data/vm-100-disk-1").strip()
    world.four_steps({"uuid": uuid, "name": "old"})
    assert world.setting("virtio1").startswith("local-zfs:vm-100-disk-1,")
    assert world.run("zfs", "get", "-Hpo", "value", "flexdisk:vm", "rpool/data/vm-100-disk-1").strip() == OTHER
    world = reused()
    world.run("zfs", "inherit", "flexdisk:name", "rpool/data/vm-100-disk-1")
    world.four_steps({"name": "old", "size": "1GiB"})
    assert not world.setting("virtio1").startswith("local-zfs:vm-100-disk-1,")


def test_an_unused_disk_in_a_pool_in_which_no_vm_has_one():
    """Its pool is read, so it is found by its name."""
    world = World()
    world.done({"name": "data", "preserve": True})
    world.run("qm", "set", "100", "--delete", "scsi1")
    done = world.four_steps({"name": "data", "size": "2GiB"})
    assert "re-attached" in done.diff
    assert world.disks()["data"].volume.name == "tank/vms/vm-100-disk-0"


def without_thick(world):
    world.write("storage.cfg", STORAGE + "\tdisable\n")


def test_no_new_disk_while_an_unused_one_cannot_be_read():
    world = World()
    world.run("qm", "set", "100", "--delete", "scsi1")
    without_thick(world)
    said = world.refusal({"name": "data", "size": "2GiB"}, {"name": "root", "size": "5GiB"})
    assert "tank/vms/vm-100-disk-0 of the VM cannot be read, and may be this disk" in said
    world.four_steps({"name": "root", "size": "5GiB"})
    world.write("storage.cfg", STORAGE)
    world.four_steps({"name": "data", "size": "2GiB"})
    assert world.disks()["data"].uuid == DATA


def test_no_new_disk_while_one_that_no_record_knows_cannot_be_read():
    world = World()
    without_thick(world)
    assert "thick:vm-100-disk-0 (scsi1) of the VM cannot be read" in world.refusal({"name": "data", "size": "2GiB"})
    world.write("storage.cfg", STORAGE)
    world.done({"name": "data"})
    without_thick(world)
    assert "[NameConflict]" in world.refusal({"name": "data", "size": "2GiB"})
    world.four_steps({"name": "other", "size": "2GiB"})


def test_adopt_moves_nothing_there():
    assert "adopt" in World().refusal({"name": "data"}, vm={"adopt": True})
    world = World()
    world.file = world.file.replace("smbios1", "template: 1\nsmbios1")
    assert "template" in world.refusal({"name": "data"}, vm={"adopt": True})


def test_a_disk_that_was_moved_without_delete():
    """Both volumes are it, as far as anybody knows. It is said once, with the way out."""
    world = World()
    world.done({"name": "data", "preserve": True})
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs")
    said = world.refusal({"name": "data", "size": "3GiB"})
    assert said.count("is on several volumes: rpool/data/vm-100-disk-1, tank/vms/vm-100-disk-0") == 1
    assert "rpool/data/vm-100-disk-1 is attached" in said
    assert "zfs inherit flexdisk:uuid tank/vms/vm-100-disk-0" in said
    world.run("zfs", "inherit", "flexdisk:uuid", "tank/vms/vm-100-disk-0")
    world.four_steps({"name": "data", "size": "3GiB"})
    assert world.disks()["data"].volume.name == "rpool/data/vm-100-disk-1"


@pytest.mark.parametrize("known", [False, True])
def test_no_new_disk_of_a_name_in_another_pool_than_the_task_is_given(known):
    """The VM is of that pool, and all its disks are seen."""
    world = World()
    if known:
        world.done({"name": "data"})
    declared = {"vm": "web", "unlisted": "keep", "disks": [{"name": "data", "size": "2GiB"}]}
    outcome = converge(world.zfs, world.driver, [declared], Policy(), "rpool", True)
    assert (outcome.problems, "+ data" in outcome.diff) == ([], False)
