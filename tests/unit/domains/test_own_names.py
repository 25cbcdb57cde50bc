# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of a VM's own dataset that the domain names by another path than that of the volume."""

from __future__ import annotations

import pytest

from .conftest import VM, killed
from .test_disk_adopt import refusal
from .test_vm_disks import spec

WISH = spec({"name": "a", "size": 32}, adopt=True, flexible_disk_size="1GiB")


def renamed(linux, *numbers):
    """web01 in its own dataset, with disks of these numbers named by their devices."""
    linux.create((64, 32))
    text = linux.domains.xml(VM, False)
    for number in numbers:
        volume = f"tank/{VM}/disk{number}"
        text = text.replace(f"/dev/zvol/{volume}", f"/dev/zd{16 * number}")
        linux.domains.links[f"/dev/zd{16 * number}"] = volume
    linux.domains.add(text)


def test_another_name_of_a_volume_in_its_own_dataset_is_taken_in(linux):
    renamed(linux, 1)
    linux.run("guest", "write", f"tank/{VM}/disk1", "0", "8", "7")
    digest = linux.run("guest", "hash", f"tank/{VM}/disk1")
    done = linux.four_steps(WISH)
    assert done.warnings == []
    assert linux.domains.paths(VM) == [f"/dev/zvol/tank/{VM}/disk0", f"/dev/zvol/tank/{VM}/disk1"]
    assert linux.run("guest", "hash", linux.disks()["a"].volume.name) == digest


def test_all_disks_of_its_own_dataset_have_other_names(linux):
    renamed(linux, 0, 1)
    linux.four_steps(WISH)
    assert linux.domains.paths(VM) == [f"/dev/zvol/tank/{VM}/disk0", f"/dev/zvol/tank/{VM}/disk1"]


def test_a_disk_that_is_adopted_keeps_its_identity(linux):
    linux.adopted(32)
    before = linux.disks()["a"].uuid
    text = linux.domains.xml(VM, False).replace(f"/dev/zvol/tank/{VM}/disk1", "/dev/zd16")
    linux.domains.links["/dev/zd16"] = f"tank/{VM}/disk1"
    linux.domains.add(text)
    linux.four_steps(WISH)
    assert linux.disks()["a"].uuid == before


def test_without_an_adoption_the_message_names_it(linux):
    renamed(linux, 1)
    [problem] = linux.converge(spec({"name": "a", "size": 32})).problems
    assert problem.message.startswith(f"it uses tank/{VM}/disk1 as vdb, by the path /dev/zd16, so its list of disks")
    assert problem.message.endswith("(virsh edit web01), or let vm_disks with adopt: true do so")
    assert problem.message in refusal(linux, "InUse")


def test_a_running_vm_is_not_adopted(linux):
    renamed(linux, 1)
    linux.domains.boot(VM)
    [problem] = linux.converge(WISH).problems
    assert (problem.code, problem.message) == ("VmNotStopped", "the VM must be stopped to be adopted: its paths change")


def test_another_hidden_use_is_still_refused(linux):
    renamed(linux, 1)
    linux.run("zfs", "create", "-V", "16M", f"tank/{VM}/disk2")
    linux.domains.links["/dev/zd32"] = f"tank/{VM}/disk2"
    below = "<backingStore type='block'><source dev='/dev/zd32'/></backingStore>"
    overlay = f"<disk type='file' device='disk'><source file='/x'/>{below}<target dev='vdd' bus='virtio'/></disk>"
    linux.domains.add(linux.domains.xml(VM, False).replace("</devices>", f"{overlay}</devices>"))
    [problem] = linux.converge(WISH).problems
    assert f"it uses tank/{VM}/disk2 below the overlay /x (vdd)" in problem.message


@pytest.mark.parametrize("number", range(1, 7))
def test_an_adoption_that_is_killed_goes_on(linux, number):
    renamed(linux, 1)
    killed(linux, number, WISH)
    done = linux.converge(WISH)
    assert (done.problems, done.failure) == ([], None)
    assert linux.disks()["a"].volume.name == f"tank/{VM}/disk1"
    assert not linux.converge(WISH).changed
