# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose disk a volume of Proxmox VE is: only its name, its properties and the record connect it with a VM."""

from __future__ import annotations

import re

from .world import VM, World

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
