# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keys that are taken by drives which no task manages."""

from __future__ import annotations

import pytest

from .world import FILE, World

NEW = {"name": "new", "size": "1GiB"}
LEFT_ALONE = (
    "local:100/vm-100-disk-0.qcow2,size=1G",
    "/dev/sdb",
    "none,media=cdrom",
    "local-zfs:vm-101-disk-0,size=1G",
    "local-zfs:vm-100-disk-0,size=4G",
    "thick:base-100-disk-7",
)


def with_line(key, value):
    world = World()
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-101-disk-0")
    world.file = FILE + f"{key}: {value}\n"
    return world


@pytest.mark.parametrize("value", [one for one in LEFT_ALONE if "media" not in one])
def test_a_new_disk_gets_another_key(value):
    world = with_line("virtio1", value)
    world.four_steps(NEW)
    assert (world.disks()["new"].key, world.setting("virtio1")) == ("virtio2", value)


@pytest.mark.parametrize("value", [one for one in LEFT_ALONE if "vm-100-disk-0,size" not in one])
def test_a_taken_key_is_refused(value):
    world = with_line("scsi5", value)
    said = world.refusal({**NEW, "pci_slot": "scsi5"})
    assert f"scsi5 ({value.partition(',')[0]}) has it" in said
    assert said.count("scsi5 (") == 1


def test_the_drive_for_discs():
    world = World()
    assert "ide2 (none) has it" in world.refusal({**NEW, "pci_slot": "ide2"})
    world.four_steps(*({"name": name, "size": "1GiB", "model": "ide"} for name in ("one", "two", "three")))
    assert sorted(disk.key for disk in world.disks().values() if disk.model == "ide") == ["ide0", "ide1", "ide3"]


def test_what_was_taken_does_not_end_a_task_for_ever():
    """The disk is made, and no key is left: the next task goes on."""
    world = with_line("virtio1", "/dev/sdb")
    for number in range(2, 16):
        world.file += f"virtio{number}: /dev/sdb\n"
    assert "no PCI slot is left" in world.refusal(NEW)
    world.four_steps({**NEW, "model": "scsi"})
