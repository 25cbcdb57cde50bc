# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the platform brings along: hidden disks, CD-ROMs, files, lost events, stale caches, other people's volumes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated

NOCLOUD = "aaaaaaaa-0000-4000-8000-000000000004"
ROOT = {"name": "root"}


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def update(sim, payload):
    sim.run("vmadm", "update", VM, stdin=json.dumps(payload))


# -- the hidden cloud-init disk


@pytest.fixture
def nocloud(sim):
    sim.admin("image-import", NOCLOUD, "1024", "nocloud=yes")
    disks = [{"image_uuid": NOCLOUD, "boot": True, "model": "virtio"}, {"size": 512, "model": "virtio"}]
    sim.create(flexible=8192, disks=disks)
    assert sim.get()["flexible_disk_size"] == 8208
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "a", "size": 512}]})
    return sim


def test_the_hidden_disk_is_never_unlisted(nocloud):
    sim = nocloud
    hidden = [d for d in sim.vm().disks if d.hidden]
    assert [d.size_mib for d in hidden] == [16]
    for unlisted in ("detach", "destroy"):
        sim.four_steps({"vm": "web01", "disks": [ROOT], "unlisted": unlisted})
        assert [d.volume.guid for d in sim.vm().disks if d.hidden] == [hidden[0].volume.guid]
    sim.run("vmadm", "start", VM)


def test_declared_and_stored_flexible_disk_size_differ_by_it(nocloud):
    sim = nocloud
    assert not sim.converge(one({"name": "a"}, flexible_disk_size=8192)).changed
    done = sim.four_steps(one({"name": "a"}, flexible_disk_size=4096))
    assert "flexible_disk_size 8 GiB -> 4 GiB" in done.diff
    assert (done.vms[0]["flexible_disk_size"], done.vms[0]["hidden_disk_size"]) == (4096, 16)
    assert sim.get()["flexible_disk_size"] == 4112
    refused = sim.converge(one({"name": "a"}, flexible_disk_size=1535))
    assert "1536 MiB" in refused.problems[0].message
    sim.four_steps(one({"name": "a"}, flexible_disk_size=1536))
    assert sim.get()["free_space"] == 0


def test_conversion_with_the_hidden_disk(sim):
    sim.admin("image-import", NOCLOUD, "1024", "nocloud=yes")
    sim.create(flexible=None, disks=[{"image_uuid": NOCLOUD, "boot": True, "model": "virtio"}])
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}], "flexible_disk_size": 1024})
    assert sim.get()["flexible_disk_size"] == 1040


def test_its_index_and_slot_are_taken(nocloud):
    hidden = next(d for d in nocloud.vm().disks if d.hidden)
    nocloud.four_steps(one({"name": "a"}, {"name": "n", "size": 64}))
    new = nocloud.disks()["n"]
    assert new.index != hidden.index
    assert new.pci_slot != hidden.pci_slot


# -- CD-ROMs and files


def cdrom(sim, **more):
    iso = {"path": "/isos/x.iso", "media": "cdrom", "model": "ahci", "boot": False, **more}
    update(sim, {"add_disks": [iso]})


def test_a_cdrom_is_left_alone(sim):
    sim.adopted(512, 64)
    cdrom(sim)
    for spec in (
        one({"name": "b"}, unlisted="destroy"),
        one({"name": "b", "size": 128}, {"name": "n", "size": 64}),
        one({"name": "b"}, unlisted="detach"),
        one({"name": "b"}, {"name": "n"}, flexible_disk_size="40GiB"),
    ):
        sim.four_steps(spec)
        assert [d["path"] for d in sim.get()["disks"] if d.get("media") == "cdrom"] == ["/isos/x.iso"]
    assert len(sim.vm().unbacked) == 1


def test_the_slot_of_a_cdrom_is_taken(sim):
    sim.adopted()
    cdrom(sim)
    refused = sim.converge(one({"name": "n", "size": 64, "pci_slot": "0:3:0"}))
    assert [p.code for p in refused.problems] == ["InvalidArgument"]
    assert "x.iso" in refused.problems[0].message


# -- events and caches


@pytest.mark.parametrize(
    "spec",
    [
        one({"name": "a", "size": 4096}),
        one({"name": "a", "pci_slot": "0:4:5"}),
        one({"name": "a"}, flexible_disk_size="40GiB"),
        one({"name": "a"}, {"name": "n", "size": 64}),
        one(unlisted="detach"),
        one({"name": "a", "state": "absent"}),
    ],
    ids=["grow", "edit", "flexible", "create", "detach", "destroy"],
)
def test_a_lost_event_is_no_failure(sim, spec):
    """vmadm waits 60 s and says that it failed; what it did is there."""
    sim.adopted(2048)
    sim.admin("vm-lose-event", VM)
    began = sim.node.now()
    sim.four_steps(spec)
    assert sim.node.now() - began > 60


def test_stale_sizes_of_vmadm_do_not_count(sim):
    """A rollback or a guest's writes raise no event that vmadm sees: sizes and space are read from ZFS."""
    sim.adopted(2048, flexible=10240 + 2048 + 300)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 1, 0, 200)
    sim.run("zfs", "snapshot", volume + "@s")
    sim.get()
    sim.write(volume, 2, 0, 200)
    assert sim.get()["free_space"] == 300
    outcome = sim.converge(one({"name": "a"}, {"name": "n", "size": 150}))
    assert [p.code for p in outcome.problems] == ["InsufficientSpace"]
    sim.four_steps(one({"name": "a"}, {"name": "n", "size": 90}))


# -- other people's volumes


def test_an_orphan_is_neither_taken_nor_overwritten(sim):
    sim.adopted()
    sim.run("zfs", "create", "-V", "64M", f"zones/{VM}/disk1")
    sim.write(f"zones/{VM}/disk1", 3)
    digest = sim.digest(f"zones/{VM}/disk1")
    sim.quota()
    done = sim.four_steps(one({"name": "n", "size": 64}))
    assert sim.disks()["n"].index == 2
    assert sim.digest(f"zones/{VM}/disk1") == digest
    assert done.vms[0]["unmanaged"] == [f"zones/{VM}/disk1"]
    assert f"web01: volume zones/{VM}/disk1 is not in the VM's configuration" in done.warnings
    assert done.vms[0]["allocatable"] == 30720 - 10240 - 128


def test_a_volume_of_ours_that_no_config_knows_is_continued(sim):
    """What an interrupted create or attach leaves behind."""
    sim.adopted()
    uuid = "eeeeeeee-0000-4000-8000-00000000000e"
    facts = ("-o", f"flexdisk:uuid={uuid}", "-o", "flexdisk:name=n", "-o", f"flexdisk:vm={VM}")
    sim.run("zfs", "create", *facts, "-V", "64M", f"zones/{VM}/disk1")
    sim.write(f"zones/{VM}/disk1", 3)
    digest = sim.digest(f"zones/{VM}/disk1")
    sim.four_steps(one({"name": "n", "size": 64}))
    assert sim.disks()["n"].uuid == uuid
    assert sim.digest(f"zones/{VM}/disk1") == digest


def test_volumes_below_a_file_system_of_the_vm_count(sim):
    """The law is vmadm's: every volume below the VM's dataset, however deep; their space counts once."""
    sim.adopted(512)
    sim.run("zfs", "create", f"zones/{VM}/data")
    sim.run("zfs", "create", "-V", "256M", f"zones/{VM}/data/deep")
    sim.run("guest", "write", f"zones/{VM}/data", "0", "100", "1")
    sim.quota()
    sim.run("vmadm", "update", VM, "flexible_disk_size=20480")
    assert not sim.quota(check=True).changed
    room = sim.vm()
    done = sim.converge(one({"name": "a"}), check=True)
    assert 20480 - 10240 - 512 - 256 - 101 <= done.vms[0]["allocatable"] <= 20480 - 10240 - 512 - 256 - 100
    assert room.disks[-1].name == "a"


def test_a_place_for_the_detached_disk_is_taken(sim):
    sim.adopted(64)
    uuid = sim.disks()["a"].uuid
    sim.run("zfs", "create", "-V", "64M", "zones/flexdisk/" + uuid)
    before = sim.fingerprint()
    refused = sim.converge(one(unlisted="detach"))
    assert [p.code for p in refused.problems] == ["AlreadyExists"]
    assert "zones/flexdisk/" + uuid in refused.problems[0].message
    assert sim.fingerprint() == before


def test_a_disk_whose_volume_is_gone_is_reported(sim):
    sim.adopted(64)
    disk = sim.disks()["a"]
    sim.run("zfs", "destroy", disk.volume.name)
    sim.quota()
    done = sim.converge(one())
    assert done.warnings == [f"web01: the volume of {disk.path} does not exist"]
    assert done.vms[0]["missing"] == [disk.path]
    sim.four_steps(one({"name": "n", "size": 64}))
    assert sim.disks()["n"].index == 2


def test_another_pool(sim):
    from simnode import Node
    from simnode.node import PoolSpec
    from simnode.vmadm.admin import COMMANDS

    from ..conftest import IMAGE

    sim.node = Node.create(None, [PoolSpec("zones", 64 << 30), PoolSpec("tank", 64 << 30)])
    assert COMMANDS["image-import"](sim.node, [IMAGE, "1024", "pool=tank"])[0] == 0
    boot = {"image_uuid": IMAGE, "boot": True, "model": "virtio", "zpool": "tank"}
    sim.create(zpool="tank", disks=[boot], flexible=4096)
    assert sim.vm().config.pool == "tank"
    sim.four_steps(
        {"vm": "web01", "disks": [{"name": "root", "boot": True}, {"name": "n", "size": 64}]},
    )
    sim.four_steps(one(unlisted="detach"))
    assert sim.detached()["n"].volume.name.startswith("tank/flexdisk/")
    sim.four_steps(one({"name": "n"}))


def test_a_node_without_vms():
    sim = Simulated()
    assert [p.code for p in sim.converge({"vm": "web01"}).problems] == ["ResourceNotFound"]
    assert not sim.converge().changed


def test_detached_disks_of_a_node_without_vms(sim):
    sim.adopted(64)
    sim.four_steps({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"})
    sim.run("vmadm", "delete", VM)
    result = info(Zfs(sim.runner), Vmadm(sim.runner), None, None, True)
    assert (result.vms, [disk["name"] for disk in result.detached]) == ([], ["a"])
