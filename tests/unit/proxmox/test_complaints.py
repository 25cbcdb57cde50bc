# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users of Proxmox VE complain of, what surprises them, and the examples of RFD 154: each a test by its name.

C(ELSEWHERE) has those that stand beside what they belong to.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from .test_elsewhere import IN_OTHER, OTHER, other_file, with_other
from .test_leaving import LEAVES, ROOT, detached, there
from .world import DATA, FILE, World

VOLUME = "tank/vms/vm-100-disk-0"
NEW = {"name": "new", "size": "1GiB"}
ELSEWHERE = {
    "test_elsewhere": (
        "test_a_disk_left_out_is_kept",
        "test_removing_the_second_of_three_leaves_the_third_its_key",
        "test_a_disk_survives_the_destruction_of_its_vm",
        "test_the_ganeti_journey",
    ),
    "test_growth": (
        "test_growing_scsi1_keeps_scsi1",
        "test_status_0_and_nothing_done",
        "test_lines_that_proxmox_drops_are_said",
        "test_a_stale_size_is_a_warning_of_every_task",
    ),
    "test_shrink": ("test_a_shrink_happens_or_is_refused",),
    "test_leaving": (
        "test_snapshots_of_the_volume_are_destroyed_only_if_that_is_said",
        "test_a_guest_that_keeps_its_disk",
        "test_an_unused_volume_is_never_destroyed_with_its_line",
        "test_the_boot_disk_and_the_last_disk_stay",
    ),
    "test_records": ("test_a_moved_disk_keeps_its_name_and_all_else", "test_a_clone_has_no_record"),
    "test_lost": ("test_a_disk_that_qemu_lacks", "test_a_detached_disk_and_a_restored_one"),
    "test_stops": ("test_a_vm_that_ha_manages_is_not_stopped", "test_a_change_that_needs_a_stop"),
    "test_adoption": ("test_all_that_a_task_does_not_concern_stays",),
}


@pytest.mark.parametrize("module", ELSEWHERE)
def test_they_are_there(module):
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    assert {*ELSEWHERE[module]} <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def guid(world, volume=VOLUME):
    return world.run("zfs", "get", "-Hpo", "value", "guid", volume).strip()


# -- complaints


@pytest.mark.parametrize("running", [False, True])
def test_a_new_disk_takes_no_place_of_a_disk_left_out(running):
    """Its slot is free for another disk only after a task has said that it goes."""
    world = World(running)
    world.four_steps({"name": "root"}, {**NEW, "pci_slot": "scsi2"})
    assert "scsi1" in world.refusal({"name": "root"}, {"name": "other", "size": "1GiB", "pci_slot": "scsi1"})
    assert world.disks()["data"].key == "scsi1"
    world.four_steps({"name": "root"}, {"name": "new"}, **LEAVES)
    world.four_steps({"name": "root"}, {"name": "new"}, {"name": "other", "size": "1GiB", "pci_slot": "scsi1"})
    assert detached(world).keys() == {"data"}


@pytest.mark.parametrize("running", [False, True])
def test_growth_makes_no_disk_anew(running):
    world = World(running)
    before = guid(world)
    world.run("guest", "write", VOLUME, "0", "8", "7")
    contents = world.run("guest", "hash", VOLUME, "0", "8")
    world.four_steps({"name": "data", "size": "10GiB"})
    assert (guid(world), world.run("guest", "hash", VOLUME, "0", "8")) == (before, contents)
    assert there(world, VOLUME)


def test_a_disk_is_found_by_its_name_whatever_its_key_is():
    world = World()
    world.done({"name": "data", "description": "x"})
    world.run("qm", "set", "100", "--delete", "scsi1", "--virtio7", world.setting("scsi1").replace(",size=2G", ""))
    world.four_steps({"name": "data", "size": "3GiB"})
    assert (world.disks()["data"].key, world.volsize(VOLUME)) == ("virtio7", 3072)


def test_several_disks_of_several_vms_in_one_call():
    """With one plan, which says all that is done."""
    world = with_other()
    world.run("qm", "start", "101")
    first = {"vm": "web", "unlisted": "keep", "disks": [{"name": "data", "size": "3GiB"}, {**NEW, "name": "logs"}]}
    second = {"vm": "other", "unlisted": "keep", "disks": [{"name": "root", "boot": True}, {**NEW, "name": "spare"}]}
    outcome = world.four_steps_of([first, second])
    assert outcome.diff.splitlines()[0].startswith("2 VMs: ")
    assert [vm["alias"] for vm in outcome.vms] == ["web", "other"]


def test_a_plan_says_what_is_lost_before_it_is():
    world = World()
    world.done({"name": "data"})
    world.run("zfs", "snapshot", f"{VOLUME}@mine")
    outcome = world.converge({"name": "data", "state": "absent", "destroy_snapshots": True}, check=True)
    assert "- data 2 GiB DESTROYED with 1 snapshot" in outcome.diff
    assert there(world, VOLUME)


def test_options_of_a_disk_survive_all_that_is_done_to_it():
    """Proxmox VE forgets what a command does not name again."""
    world = World()
    world.done({"name": "root"}, {"name": "data"})
    world.done({"name": "root", "size": "5GiB"})
    world.done({"name": "root", "size": "3GiB", "dangerous_allow_shrink": True}, {"name": "data"})
    world.done(ROOT, **LEAVES)
    world.done(ROOT, {"name": "data"})
    assert "discard=on" in world.setting("scsi1")
    assert all(word in world.setting("virtio0") for word in ("cache=writeback", "iothread=1"))


# -- what Proxmox VE does with the volumes of others


def test_a_volume_that_another_vm_uses_is_not_destroyed_with_the_vm_that_it_is_called_after():
    """Ownership is only a number in the name there."""
    world = with_other()
    world.run("zfs", "create", "-V", "1G", "tank/vms/vm-100-disk-5")
    world.write(
        "nodes/pve1/qemu-server/101.conf", other_file(world).replace("scsihw", "scsi1: thick:vm-100-disk-5\nscsihw")
    )
    file = other_file(world)
    world.done({"name": "root"}, {"name": "data"})
    world.four_steps({"name": "root"}, vm={"unlisted": "destroy"})
    assert (there(world, "tank/vms/vm-100-disk-5"), other_file(world)) == (True, file)


def test_a_volume_is_not_given_to_two_vms():
    world = with_other()
    said = world.refusal({"uuid": DATA, "name": "data"}, **IN_OTHER)
    assert "data" in said
    assert VOLUME not in other_file(world)


def test_a_disk_whose_volume_was_renamed_away_gets_no_other_one():
    """The name is free for the next disk, and two keys would name that then."""
    world = World()
    world.done({"name": "root"}, {"name": "data"})
    world.run("zfs", "rename", VOLUME, "tank/vms/kept")
    outcome = world.done({"name": "root"}, {**NEW, "pci_slot": "scsi4"})
    assert any(f"the volume of /dev/zvol/{VOLUME} does not exist" in text for text in outcome.warnings)
    assert "vm-100-disk-0" not in world.setting("scsi4") or "local-zfs" in world.setting("scsi4")
    assert world.setting("scsi1") == FILE.partition("scsi1: ")[2].partition("\n")[0]


def test_a_clone_with_the_same_serials_is_another_vm():
    """Its disks have the serials of the first VM, and volumes of their own."""
    world = World()
    world.done({"name": "root"}, {"name": "data"})
    world.run("qm", "clone", "100", "102", "--name", "copy", "--full", "1")
    file = (world.files / "etc/pve/nodes/pve1/qemu-server/102.conf").read_bytes()
    world.four_steps({"name": "data", "size": "3GiB"})
    world.four_steps({"name": "data", "state": "absent"})
    assert (world.files / "etc/pve/nodes/pve1/qemu-server/102.conf").read_bytes() == file
    assert there(world, "tank/vms/vm-102-disk-0")


def test_a_number_that_is_used_again_gives_no_disks_of_the_former_vm():
    world = with_other()
    world.done({"name": "root"}, {"name": "data"})
    world.done(ROOT, **LEAVES)
    world.run("qm", "destroy", "100")
    world.file = FILE.replace(FILE.partition("smbios1: uuid=")[2][:36], OTHER.replace("2", "9")).replace(
        FILE.partition("scsi1: ")[2].partition("\n")[0], "thick:vm-100-disk-0,size=2G"
    )
    world.run("zfs", "create", "-s", "-V", "4G", "rpool/data/vm-100-disk-0")
    world.run("zfs", "create", "-V", "2G", VOLUME)
    assert there(world, f"tank/flexdisk/{DATA}")
    assert [disk.uuid for disk in world.vm_of(OTHER.replace("2", "9")).disks if disk.uuid == DATA] == []


# -- the examples of RFD 154 that need no new VM


@pytest.mark.parametrize("running", [False, True])
def test_rfd_154_a_removed_disks_slot_is_used_again(running):
    world = World(running)
    world.done({"name": "root"}, {"name": "data"}, {"name": "disk1", "size": "1GiB"}, {"name": "disk2", "size": "1GiB"})
    keys = {name: disk.key for name, disk in world.disks().items()}
    world.four_steps({"name": "root"}, {"name": "data"}, {"name": "disk1", "state": "absent"}, {"name": "disk2"})
    world.four_steps({"name": "root"}, {"name": "data"}, {"name": "disk2"}, {"name": "other", "size": "512MiB"})
    assert world.disks()["other"].key == keys["disk1"]
    assert world.disks()["disk2"].key == keys["disk2"]


def test_rfd_154_a_disk_grows_within_the_flexible_disk_size():
    """More than that is refused, with the figures."""
    world = World()
    size = {"vm": {"flexible_disk_size": "20GiB"}}
    world.four_steps({"name": "data", "size": "10GiB"}, **size)
    assert world.vm().config.flexible_disk_size == 20480
    said = world.refusal({"name": "data", "size": "20GiB"}, **size)
    assert "flexible_disk_size 20 GiB is 4 GiB too small" in said


def test_rfd_154_the_rest_of_the_flexible_disk_size():
    world = World()
    size = {"vm": {"flexible_disk_size": "20GiB"}}
    world.four_steps({"name": "data"}, {"name": "rest", "size": "remaining"}, **size)
    assert world.disks()["rest"].size_mib == 20480 - 4096 - 2048


def test_rfd_154_a_shrink_is_refused_without_its_flag():
    world = World()
    assert "would cut off data; dangerous_allow_shrink: true allows it" in world.refusal(
        {"name": "data", "size": "1GiB"}
    )
    world.four_steps({"name": "data", "size": "1GiB", "dangerous_allow_shrink": True})
    assert world.volsize(VOLUME) == 1024


def test_rfd_154_a_disk_goes_only_if_it_is_given_up():
    """One that is preserved, only by its name."""
    world = World()
    world.done({"name": "root"}, {"name": "data", "preserve": True})
    world.four_steps({"name": "root"}, vm={"unlisted": "destroy"})
    assert detached(world).keys() == {"data"}
    world.four_steps({"name": "root"}, {"name": "data", "state": "absent"})
    assert not there(world, f"tank/flexdisk/{DATA}")
