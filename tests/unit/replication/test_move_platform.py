# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM with a disk of the platform for cloud-init moves, killed at every command. Its boot disk is a clone."""

from __future__ import annotations

import json
import re

import pytest
from simnode.vmadm.admin import COMMANDS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .test_move import config, findings, hosts, killed_moves, look, move, startable, swap
from .test_move_snapshots import SOME, vm_of
from .test_other_tasks import DATA, ROOT, done, snapshot, task
from .world import VM, World

IMAGE = "aaaaaaaa-0000-4000-8000-000000000004"
HIDDEN = f"/dev/zvol/rdsk/zones/{VM}/disk1"


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A running VM whose disk0 is a clone, disk1 the platform's and disk2 data, with 512 MiB of its own to use."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = World(tmp_path, monkeypatch)
    made.home.ok("vmadm", "delete", VM)
    assert COMMANDS["image-import"](made.home.node, [IMAGE, "128", "nocloud=yes"])[0] == 0
    made.home.ok("zfs", "destroy", f"zones/{IMAGE}@final")
    made.home.ok("guest", "write", f"zones/{IMAGE}", "0", "5", "image")
    made.home.ok("zfs", "snapshot", f"zones/{IMAGE}@final")
    payload = {
        "uuid": VM,
        "alias": "db01",
        "brand": "bhyve",
        "ram": 256,
        "vcpus": 1,
        "quota": 1,
        "flexible_disk_size": 512,
        "disks": [{"boot": True, "model": "virtio", "image_uuid": IMAGE}],
    }
    assert made.home.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0
    made.home.ok("vmadm", "start", VM)
    made.home.ok("vmadm", "stop", VM, "-F")
    done(made, {**ROOT, "boot": True}, {**DATA, "size": 64})
    made.home.ok("vmadm", "start", VM)
    made.write(0, 3, 9)
    made.home.ok("guest", "write", f"zones/{VM}/disk2", "0", "9", "data")
    assert vm_of(made.home).hidden_mib == 16
    return made


def known(host):
    """The configuration. A disk that came is no clone any more."""
    config_now = config(host)
    del config_now["free_space"]
    disks = [{key: value for key, value in disk.items() if key != "image_uuid"} for disk in config_now["disks"]]
    return {**config_now, "disks": disks}


def hashes(host):
    return [host.ok("guest", "hash", f"zones/{VM}/{disk}") for disk in ("disk0", "disk2")]


def arrived(world, before):
    assert not startable(world.home)
    assert (known(world.peer), hashes(world.peer)) == before
    host = observe(Zfs(world.peer), Vmadm(world.peer))
    (vm,) = host.vms
    assert vm.root.quota == vm.root.reservation == space.expected_quota(vm, host.geometry["zones"])
    assert (vm.interrupted, host.moves) == (None, {})
    assert [(disk.path, disk.size_mib, disk.volume.volblocksize) for disk in vm.disks if disk.hidden] == [
        (HIDDEN, 16, 512)
    ]
    assert findings(world) == []


def test_it_moves(world):
    before = known(world.home), hashes(world.home)
    assert before[0]["flexible_disk_size"] == 512 + 16
    assert move(world)
    arrived(world, before)
    assert not move(world)
    swap(world)
    assert not task(world, {**ROOT, "image": IMAGE}, DATA).changed
    (problem,) = task(world, {**ROOT, "image": VM}, DATA).problems
    assert problem.code == "FixedAtBirth"
    assert move(world)
    arrived(world, before)
    swap(world)
    assert space.allocatable(vm_of(world.home)) == (512 - 128 - 64) << 20
    done(world, ROOT, DATA, flexible_disk_size=640)
    assert config(world.home)["flexible_disk_size"] == 640 + 16


def test_killed_anywhere(world):
    """At every command, it arrives as it was, and starts."""
    before = known(world.home), hashes(world.home)
    print(f"{killed_moves(world, SOME, lambda: arrived(world, before))} points")


def test_a_snapshot_of_the_vm(world):
    """The platform's disk has no past where it was made again, and it needs none."""
    then = hashes(world.home)
    assert snapshot(world, name="one")
    world.home.ok("guest", "write", f"zones/{VM}/disk2", "0", "9", "more")
    assert move(world)
    swap(world)
    assert snapshot(world, name="one", state="rolled_back")
    assert hashes(world.home) == then
    assert known(world.home)["state"] == "running"


def test_snapshots_of_a_clone_need_more_where_it_is_none(world):
    """What the disk shares with the image, its snapshots hold there."""
    assert snapshot(world, name="one")
    tight = 128 + 64 + 15
    done(world, ROOT, DATA, flexible_disk_size=tight)
    (problem,) = look(world)["refusals"]
    assert problem.code == "InsufficientSpace"
    match = re.search(
        r"need 5\.\d MiB more, and .* is left; flexible_disk_size must be at least (\d+) MiB", problem.message
    )
    assert match, problem.message
    done(world, ROOT, DATA, flexible_disk_size=int(match[1]))
    assert move(world)
    assert 0 <= space.allocatable(vm_of(world.peer)) < 2 << 20


def test_a_part_that_is_held_and_stays(world):
    """The VM could not be deleted after its disks have left."""
    assert snapshot(world, name="one")
    world.home.ok("zfs", "hold", "mine", f"zones/{VM}/disk1@vmsnap-one")
    (problem,) = look(world)["refusals"]
    assert (problem.code, "disk1@vmsnap-one has clones or holds" in problem.message) == ("InUse", True)


def test_another_pool(world):
    """The platform knows the disk by its path only."""
    record = look(world)["record"]
    problems = hosts(world)[1].refusals(record, "zones")
    assert problems == []
    moved = [
        {**disk, "volume": disk["volume"].replace("zones/", "tank/")} for disk in record_as_result(record)["hidden"]
    ]
    (problem,) = hosts(world)[1].refusals(read_record({**record_as_result(record), "hidden": moved}), "zones")
    assert problem.code == "NotSupported"
    assert f"the platform knows its disk only as tank/{VM}/disk1" in problem.message


def test_what_another_host_says_of_it_is_data(world):
    record = json.loads(json.dumps(record_as_result(look(world)["record"])))
    (good,) = record["hidden"]
    for wrong in (
        {"volume": f"zones/{VM}"},
        {"volume": f"zones/{IMAGE}/disk1"},
        {"volume": f"-o/{VM}/disk1"},
        {"uuid": "x"},
        {"pci_slot": "99"},
        {"size": "16M"},
        {"block_size": None},
    ):
        with pytest.raises(FlexdiskError, match="this is no record of a VM"):
            read_record({**record, "hidden": [{**good, **wrong}]})
