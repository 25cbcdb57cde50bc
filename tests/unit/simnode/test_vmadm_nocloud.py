# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hidden disk for cloud-init, and pools whose blocks are large."""

from __future__ import annotations

import pytest
from simnode import PoolSpec
from simnode.vmadm.create import add_nocloud_disk
from simnode.vmadm.lifecycle import valid_nocloud_disk

from tests.unit.simnode.vmadm_support import ROOT, UUID, Machine

PATH = f"/dev/zvol/rdsk/{ROOT}/disk1"
HIDDEN = {"path": PATH, "size": 16, "block_size": 512, "boot": False}


def test_hidden_disk_at_create() -> None:
    machine = Machine("nocloud=yes")
    machine.create(flexible_disk_size=2048)
    found = machine.get()
    assert found["flexible_disk_size"] == 2064
    assert found["free_space"] == 1024
    disk = found["disks"][1]
    assert {key: disk[key] for key in HIDDEN} == HIDDEN
    assert (disk["model"], disk["media"]) == ("virtio", "disk")
    assert found["internal_metadata"] == {"cloudinit_datasource": "nocloud", "cloudinit_nocloud_path": PATH}
    machine.good("start", UUID)


def test_start_needs_the_hidden_disk() -> None:
    machine = Machine("nocloud=yes")
    machine.create(flexible_disk_size=2048)
    machine.good("update", UUID, update_disks=[{"path": PATH, "size": 32}])
    assert machine.bad("start", UUID) == f"Unable to start VM {UUID}: Invalid cloudinit_nocloud_path: {PATH}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"quota": 10}, {"quota": 10}),
        ({"flexible_disk_size": 100}, {"flexible_disk_size": 116}),
        ({"quota": 0}, {"quota": 1}),
        ({"quota": 100}, {"quota": 100}),
        ({"flexible_disk_size": 50, "quota": 0}, {"flexible_disk_size": 66, "quota": 0}),
    ],
)
def test_room_for_it(before: dict[str, int], after: dict[str, int]) -> None:
    payload: dict[str, object] = {"add_disks": [], **before}
    add_nocloud_disk(payload)
    disks = payload.pop("add_disks")
    assert payload == after
    assert disks == [{"size": 16, "model": "virtio", "boot": False, "media": "disk", "block_size": 512,
                      "cloudinit_datasource": "nocloud"}]  # fmt: skip


@pytest.mark.parametrize("change", [{"path": "/other"}, {"size": 17}, {"block_size": 8192}, {"boot": True}])
def test_what_is_not_it(change: dict[str, object]) -> None:
    assert valid_nocloud_disk([{"path": "/other"}, HIDDEN], PATH)
    assert not valid_nocloud_disk([{**HIDDEN, **change}], PATH)
    assert not valid_nocloud_disk([], PATH)


@pytest.mark.parametrize(
    ("vdev", "ashift", "block_size"),
    [("raidz1", 12, 32768), ("raidz1", 9, 8192), ("mirror", 12, 8192), ("raidz2", 12, 32768)],
)
def test_default_block_size(vdev: str, ashift: int, block_size: int) -> None:
    pool = PoolSpec(size=128 << 30, ashift=ashift, vdevs=[{"type": vdev, "disks": 5}])
    machine = Machine(pool=pool)
    machine.create({"size": 64, "model": "virtio"}, flexible_disk_size=2048)
    sizes = [disk["block_size"] for disk in machine.get()["disks"]]
    assert sizes == [8192, block_size]
