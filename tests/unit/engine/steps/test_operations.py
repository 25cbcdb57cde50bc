# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes, new disks, properties, quota: each operation in four steps."""

from __future__ import annotations

import pytest
from simnode import export

from ..conftest import IMAGE, VM, Simulated

ROOT = {"name": "root"}


def kinds(done):
    return [step["step"] for step in done.vms[0]["steps"]]


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


# -- sizes


def test_grow(sim):
    sim.adopted(2048)
    sim.write(sim.disks()["a"].volume.name, 3, 0, 64)
    digest = sim.digest(sim.disks()["a"].volume.name, "0", "2048")
    done = sim.four_steps(one({"name": "a", "size": "5GiB"}))
    assert kinds(done) == ["grow"]
    assert done.diff.startswith(f"{done.msg}\nweb01 ({VM}):\n  ~ a 2 GiB -> 5 GiB\n  quota ")
    assert sim.disks()["a"].size_mib == 5120
    assert sim.digest(sim.disks()["a"].volume.name, "0", "2048") == digest
    assert sim.disks()["a"].volume.user["serial_no"] == "2"


def test_shrink_keeps_what_is_below_the_new_end(sim):
    sim.adopted(2048)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 3, 0, 64)
    digest = sim.digest(volume, "0", "1024")
    done = sim.four_steps(one({"name": "a", "size": 1024, "dangerous_allow_shrink": True}))
    step = {"step": "shrink", "disk": "a", "text": "~ a 2 GiB -> 1 GiB", "destroys": True, "class": "restart"}
    assert done.vms[0]["steps"] == [step]
    assert sim.digest(volume) == digest
    idle = sim.converge(one({"name": "a", "size": 1024, "dangerous_allow_shrink": True}))
    assert idle.warnings == ["web01: disk a: dangerous_allow_shrink is set, but nothing shrinks; remove it"]


def test_a_shrink_to_what_the_guest_needs(sim):
    sim.adopted(2048)
    min_size = {"name": "a", "min_size_from_guest": "1 GiB"}
    done = sim.four_steps(one({**min_size, "size": 1024, "dangerous_allow_shrink": True}))
    assert kinds(done) == ["shrink"]


def test_what_the_guest_needs_matters_only_to_a_shrink(sim):
    """The figure may be older than the disk is small, or of a disk that has grown since."""
    sim.adopted(2048)
    sim.four_steps(one({"name": "a", "size": 3072, "min_size_from_guest": "4GiB"}))
    idle = sim.converge(
        one({"name": "a", "size": 3072, "min_size_from_guest": "4GiB"}, {"name": "b", "state": "absent"})
    )
    assert (idle.problems, idle.changed, idle.warnings) == ([], False, [])
    sim.four_steps(
        one({"name": "a", "min_size_from_guest": 4096}, {"name": "n", "size": 64, "min_size_from_guest": 128})
    )


def test_shrink_and_grow_with_snapshots(sim):
    sim.adopted(2048, 1024)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 3, 0, 2000)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    sim.write(volume, 4, 0, 500)
    sim.four_steps(one({"name": "a", "size": 512, "dangerous_allow_shrink": True}, {"name": "b", "size": 3000}))
    assert sim.vm().root.used <= sim.vm().root.quota


def test_space_moves_between_disks_of_a_full_vm(sim):
    sim.adopted(2048, 1024, flexible=10240 + 3072)
    done = sim.four_steps(one({"name": "a", "size": 512, "dangerous_allow_shrink": True}, {"name": "b", "size": 2560}))
    assert kinds(done) == ["shrink", "grow"]
    done = sim.four_steps(one({"name": "b", "state": "absent"}, {"name": "a", "size": 3072}))
    assert kinds(done) == ["destroy", "grow"]
    assert done.vms[0]["allocatable"] == 0


def test_flexible_up_with_growth_and_down_with_shrink(sim):
    sim.adopted(2048, flexible=10240 + 2048)
    done = sim.four_steps(one({"name": "a", "size": 8192}, flexible_disk_size=10240 + 8192))
    assert kinds(done) == ["flexible", "grow"]
    done = sim.four_steps(
        one({"name": "a", "size": 1024, "dangerous_allow_shrink": True}, flexible_disk_size=10240 + 1024)
    )
    assert kinds(done) == ["shrink", "flexible"]
    done = sim.four_steps(
        one(
            {"name": "a", "size": 512, "dangerous_allow_shrink": True},
            {"name": "n", "size": 128},
            flexible_disk_size=10240 + 640,
        )
    )
    assert kinds(done) == ["shrink", "flexible", "create"]


def test_root_disk_grows(sim):
    sim.adopted()
    sim.four_steps({"vm": VM[:8], "disks": [{"name": "root", "size": "12GiB"}]})
    assert sim.get()["disks"][0]["size"] == 12288


def test_an_inflexible_vm_shrinks_and_loses_disks(sim):
    sim.adopted(2048, 1024, flexible=None)
    sim.four_steps(one({"name": "a", "size": 1024, "dangerous_allow_shrink": True}, {"name": "b", "state": "absent"}))
    sim.four_steps(one({"name": "a", "description": "kept", "pci_slot": "0:4:5"}))
    sim.four_steps(one(unlisted="detach"))
    assert sim.detached()["a"].size_mib == 1024


def test_conversion_to_flexible(sim):
    sim.adopted(2048, flexible=None)
    done = sim.four_steps(one({"name": "a", "size": 4096}, flexible_disk_size="20GiB"))
    assert kinds(done) == ["flexible", "grow"]
    assert done.vms[0]["steps"][0]["text"] == "flexible_disk_size none -> 20 GiB"
    assert done.vms[0]["flexible"]


@pytest.mark.parametrize("version", ["illumos", "2.1", "2.3"])
@pytest.mark.parametrize("vdev", ["disk", "mirror", "raidz1", "raidz2"])
def test_every_pool(vdev, version):
    sim = Simulated(vdev=vdev, version=version)
    sim.adopted(2048, flexible=40960)
    old = {"name": "a", "size": 3000}
    sim.four_steps(one(old, {"name": "n", "size": 512}, {"name": "i", "image": IMAGE}))
    sim.four_steps(one(old, {"name": "i"}, unlisted="detach"))
    sim.four_steps(one(old, {"name": "i"}, {"name": "n", "size": "remaining"}))


@pytest.mark.parametrize("ashift", [9, 12])
def test_an_exported_pool_is_rehearsed(ashift):
    """An export loaded elsewhere needs no repair, and a change does the same there."""
    sim = Simulated(vdev="raidz1")
    sim.node.pools.pools["zones"].ashift = ashift
    sim.adopted(2048, flexible=40960)
    vms, status, zdb = sim.run("vmadm", "lookup", "-j"), sim.run("zpool", "status"), sim.run("zdb", "-C", "zones")
    zfs = sim.run("zfs", "get", "-Hpr", "-t", "filesystem,volume,snapshot", "all", "zones")
    copy = Simulated()
    export.load(copy.node, vms, zfs, status, zdb)
    declaration = one({"name": "a", "size": 3000}, {"name": "n", "size": 512})
    assert not copy.quota(check=True).changed
    assert copy.converge(declaration, check=True).diff == sim.converge(declaration, check=True).diff
    copy.four_steps(declaration)


# -- new disks


def test_create_with_everything(sim):
    sim.adopted()
    done = sim.four_steps(
        one(
            {
                "name": "new",
                "size": 512,
                "model": "nvme",
                "block_size": 65536,
                "compression": "lz4",
                "pci_slot": "0:4:6",
                "preserve": True,
                "description": "scratch",
                "tags": {"tier": "fast"},
            }
        )
    )
    assert kinds(done) == ["create"]
    result = done.vms[0]["disks"][1]
    assert result["uuid"] == sim.get()["disks"][1]["uuid"]
    config = sim.get()["disks"][1]
    shown = {key: config[key] for key in ("size", "model", "block_size", "compression", "pci_slot", "media", "boot")}
    assert shown == {
        "size": 512,
        "model": "nvme",
        "block_size": 65536,
        "compression": "lz4",
        "pci_slot": "0:4:6",
        "media": "disk",
        "boot": False,
    }
    assert (result["preserve"], result["description"], result["tags"]) == (True, "scratch", {"tier": "fast"})
    sim.run("vmadm", "start", VM)


def test_create_from_image(sim):
    sim.adopted()
    done = sim.four_steps(
        one({"name": "copy", "image": IMAGE}, {"name": "big", "image": IMAGE, "size": "11GiB"})
        | {"flexible_disk_size": "40GiB"}
    )
    assert [d["size"] for d in done.vms[0]["disks"]] == [10240, 10240, 11264]
    assert [d.get("image_uuid") for d in sim.get()["disks"]] == [IMAGE, IMAGE, IMAGE]
    assert [d.get("image_size") for d in sim.get()["disks"]] == [10240, 10240, 10240]
    assert sim.disks()["big"].volume.refreservation > 11264 << 20


def test_new_disks_take_the_lowest_index_and_slot(sim):
    sim.adopted(64, 64, 64)
    sim.four_steps(one({"name": "a"}, {"name": "b", "state": "absent"}, {"name": "c"}))
    sim.four_steps(one({"name": "a"}, {"name": "c"}, {"name": "x", "size": 64}, {"name": "y", "size": 64}))
    places = {d.name: (d.index, d.pci_slot) for d in sim.vm().disks}
    assert places["x"] == (2, "0:4:2")
    assert places["y"] == (4, "0:4:4")
    assert places["c"] == (3, "0:4:3")


def test_a_slot_freed_in_the_same_run_is_taken(sim):
    sim.adopted(64)
    sim.four_steps(one({"name": "a", "state": "absent"}, {"name": "x", "size": 64, "pci_slot": "0:4:1"}))
    assert sim.disks()["x"].pci_slot == "0:4:1"


# -- configuration


def test_two_disks_swap_their_slots(sim):
    sim.adopted(64, 64)
    done = sim.four_steps(one({"name": "a", "pci_slot": "0:4:2"}, {"name": "b", "pci_slot": "4:1"}))
    assert kinds(done) == ["edit"]
    assert {d.name: d.pci_slot for d in sim.vm().disks} == {"root": "0:4:0", "a": "0:4:2", "b": "0:4:1"}
    assert sim.disks()["a"].volume.user["slot"] == "0:4:2"
    sim.run("vmadm", "start", VM)


def test_slots_written_otherwise_are_the_same(sim):
    sim.adopted(64)
    sim.run(
        "vmadm", "update", VM, stdin='{"update_disks": [{"path": "%s", "pci_slot": "4:1"}]}' % sim.disks()["a"].path
    )
    assert not sim.converge(one({"name": "a", "pci_slot": "0:4:1"})).changed


def test_model_and_boot(sim):
    sim.adopted(2048)
    done = sim.four_steps(
        {"vm": "web01", "disks": [{"name": "root", "boot": False}, {"name": "a", "boot": True, "model": "nvme"}]}
    )
    assert kinds(done) == ["edit"]
    assert [(d["boot"], d["model"]) for d in sim.get()["disks"]] == [(False, "virtio"), (True, "nvme")]


def test_a_new_boot_disk_takes_over(sim):
    sim.adopted()
    done = sim.four_steps(
        {"vm": "web01", "disks": [{"name": "root", "boot": False}, {"name": "next", "image": IMAGE, "boot": True}]}
    )
    assert kinds(done) == ["edit", "create"]
    assert [d["boot"] for d in sim.get()["disks"]] == [False, True]
    sim.run("vmadm", "start", VM)


def test_compression_of_a_running_vm(sim):
    sim.adopted(64)
    sim.run("vmadm", "start", VM)
    done = sim.four_steps(one({"name": "a", "compression": "lz4"}))
    assert kinds(done) == ["compression"]
    assert sim.get()["state"] == "running"
    assert sim.disks()["a"].volume.compression == "lz4"


# -- facts


TEXTS = [
    "plain",
    "gr\u00fc\u00df\u20ac \U0001f4be",
    "two\nlines\tand a tab",
    "100 % of %41",
    "-",
    " spaced ",
    "",
    "=x,y@z",
    "x" * 8191,
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_descriptions_come_back_as_they_went(sim, text):
    sim.adopted(64)
    sim.four_steps(one({"name": "a", "description": "before"}))
    sim.four_steps(one({"name": "a", "description": text}))
    assert sim.disks()["a"].user_properties["description"] == text
    for value in sim.disks()["a"].volume.user.values():
        assert not set(value) & set("\t\n")


def test_tags(sim):
    sim.adopted(64)
    tags = {"tier": "fast", "owner": "\u00fc=\n%", "-": "-", "empty": ""}
    sim.four_steps(one({"name": "a", "tags": tags}))
    assert sim.disks()["a"].user_properties["tags"] == tags
    sim.four_steps(one({"name": "a", "tags": {"tier": "slow"}}))
    assert sim.disks()["a"].user_properties["tags"] == {"tier": "slow"}
    assert not sim.converge(one({"name": "a"})).changed
    sim.four_steps(one({"name": "a", "tags": {}}))
    assert "tags" not in sim.disks()["a"].volume.user


def test_preserve(sim):
    sim.adopted(64)
    sim.four_steps(one({"name": "a", "preserve": True}))
    assert sim.disks()["a"].preserve
    sim.four_steps(one({"name": "a", "preserve": False}))
    assert not sim.disks()["a"].preserve


def test_facts_of_a_running_vm_need_no_stop(sim):
    sim.adopted(64)
    sim.run("vmadm", "start", VM)
    done = sim.four_steps(one({"name": "a", "preserve": True, "tags": {"a": "b"}, "description": "d"}))
    assert kinds(done) == ["identity"]


def test_rename_by_uuid_and_name(sim):
    sim.adopted(64, 64)
    uuid = sim.disks()["a"].uuid
    done = sim.four_steps(one({"uuid": uuid, "name": "logs"}, {"name": "b"}))
    assert done.vms[0]["steps"][0]["text"] == "~ logs renamed from a"
    assert sim.disks()["logs"].uuid == uuid


def test_two_disks_swap_their_names(sim):
    sim.adopted(64, 128)
    a, b = sim.disks()["a"].uuid, sim.disks()["b"].uuid
    sim.four_steps(one({"uuid": a, "name": "b"}, {"uuid": b, "name": "a"}))
    assert (sim.disks()["b"].uuid, sim.disks()["a"].uuid) == (a, b)


def test_what_vmadm_changed_is_copied_silently(sim):
    sim.adopted(64)
    path = sim.disks()["a"].path
    sim.run("vmadm", "update", VM, stdin='{"update_disks": [{"path": "%s", "pci_slot": "0:4:5"}]}' % path)
    predicted = sim.converge(one({"name": "a"}), check=True)
    assert not predicted.changed
    assert sim.disks()["a"].volume.user["slot"] == "0:4:1"
    done = sim.converge(one({"name": "a"}))
    assert (done.changed, done.diff, done.failure) == (False, "", None)
    assert sim.disks()["a"].volume.user["slot"] == "0:4:5"


# -- quota and flexible_disk_size


def test_quota_up_and_down(sim):
    sim.adopted(64)
    for quota, expected in (("5GiB", 5), ("2G", 2)):
        done = sim.four_steps(one({"name": "a"}, quota=quota))
        assert kinds(done) == ["quota"]
        assert sim.get()["quota"] == expected
        assert sim.vm().root.refreservation == (expected << 30) - (1 << 20)


def test_quota_and_flexible_together_in_a_full_pool(sim):
    sim.adopted(2048)
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (64 << 20)}", "zones/ballast")
    sim.four_steps({"vm": "web01", "quota": "11GiB", "flexible_disk_size": 20480})
    sim.four_steps({"vm": "web01", "quota": "1GiB", "flexible_disk_size": 30720})


def test_nothing_declared_changes_nothing(sim):
    sim.adopted(64)
    sim.calls.clear()
    assert not sim.converge({"vm": "web01"}).changed
    assert not sim.converge({"vm": "web01", "disks": [ROOT], "unlisted": "keep"}).changed
    assert all(call[1] not in ("set", "update", "inherit") for call in sim.calls)


def test_steps_of_disks_follow_the_declaration(sim):
    """A disk that is found by its name is not told of before one that is found by its place."""
    sim.create(sizes=(64,))
    slot = sim.vm().disks[1].pci_slot
    sim.four_steps({"vm": "web01", "disks": [{"name": "data", "pci_slot": slot}], "unlisted": "keep"})
    entries = [{"name": "root", "boot": True}, {"name": "data", "description": "kept"}]
    done = sim.four_steps({"vm": "web01", "disks": entries})
    assert [step["disk"] for step in done.vms[0]["steps"] if step["disk"]] == ["root", "data"]
