# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks that leave a VM with their data, come back, go to another one, or are destroyed; each in four steps."""

from __future__ import annotations

import json

import pytest

from ..conftest import IMAGE, VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
ROOT = {"name": "root"}


def kinds(done, which=0):
    return [step["step"] for step in done.vms[which]["steps"]]


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def names_below(sim, dataset, kind="volume,snapshot"):
    return sim.run("zfs", "list", "-Hr", "-t", kind, "-o", "name", dataset).split()


def detached_data(sim, size=2048, **more):
    """Disk a of web01, with a digest of its data, detached."""
    sim.adopted(size, **more)
    disk = sim.disks()["a"]
    sim.write(disk.volume.name, 5, 0, 100)
    digest = sim.digest(disk.volume.name, "0", "512")
    done = sim.four_steps(one(unlisted="detach"))
    assert kinds(done) == ["detach"]
    return disk, digest


# -- detaching


def test_a_detached_disk_keeps_everything(sim):
    sim.adopted(2048)
    sim.four_steps(one({"name": "a", "description": "d", "tags": {"k": "v"}, "preserve": True, "model": "nvme"}))
    before = sim.disks()["a"]
    done = sim.four_steps(one(unlisted="detach"))
    assert done.diff.splitlines()[2] == "  - a 2 GiB detached"
    disk = sim.detached()["a"]
    assert disk.volume.name == "zones/flexdisk/" + before.uuid
    assert (disk.uuid, disk.pci_slot, disk.model, disk.index) == (before.uuid, "0:4:1", "nvme", 1)
    assert (disk.user_properties["description"], disk.user_properties["tags"], disk.preserve) == ("d", {"k": "v"}, True)
    assert disk.volume.refreservation == before.volume.refreservation
    assert disk.volume.guid == before.volume.guid
    assert [d["path"] for d in sim.get()["disks"]] == [sim.vm().disks[0].path]
    assert names_below(sim, "zones/flexdisk") == [disk.volume.name], "a guard was left behind"


def test_unlisted_decides(sim):
    sim.adopted(64, 64, 64)
    sim.four_steps(one({"name": "a", "preserve": True}, {"name": "b"}, {"name": "c"}))
    assert not sim.converge(one(unlisted="keep")).changed
    assert {p.disk for p in sim.converge(one()).problems} == {"a", "b", "c"}
    done = sim.four_steps(one({"name": "c"}, unlisted="destroy"))
    assert sorted(kinds(done)) == ["destroy", "detach"]
    assert set(sim.detached()) == {"a"}
    assert set(sim.disks()) == {"root", "c"}


def test_an_unadopted_disk_is_detached_under_its_uuid(sim):
    sim.create(sizes=(64,))
    uuid = sim.vm().disks[1].uuid
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}], "unlisted": "detach"})
    assert sim.vm().detached[0].uuid == uuid
    sim.four_steps(one({"uuid": uuid, "name": "found"}))
    assert sim.disks()["found"].uuid == uuid


def test_space_of_a_detached_disk_can_be_used(sim):
    sim.adopted(2048, flexible=10240 + 2048)
    done = sim.four_steps(one({"name": "n", "size": 2048}, unlisted="detach"))
    assert kinds(done) == ["detach", "create"]
    assert done.vms[0]["disks"][1]["index"] == 1


# -- snapshots


def test_the_old_vms_snapshots_do_not_touch_a_detached_disk(sim):
    """Rollback of the VM that had the disk must not revert it where it lies, nor where it comes back to."""
    sim.adopted(2048)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 1, 0, 50)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    sim.run("zfs", "snapshot", volume + "@mine")
    sim.write(volume, 2, 0, 50)
    digest = sim.digest(volume)
    sim.four_steps(one(unlisted="detach"))
    disk = sim.detached()["a"]
    shorts = [s.name.split("@")[1] for s in disk.snapshots]
    assert shorts[0].startswith(f"flexdisk-parked-{VM[:8]}-")
    assert shorts[0].endswith("-vmsnap-s1")
    assert shorts[1:] == ["mine"]
    sim.run("vmadm", "rollback-snapshot", VM, "s1")
    sim.run("vmadm", "stop", VM, "-F")
    assert sim.digest(disk.volume.name) == digest
    sim.four_steps(one({"name": "a"}))
    sim.run("vmadm", "rollback-snapshot", VM, "s1")
    assert sim.digest(volume) == digest


def test_snapshots_of_one_name_from_several_times(sim):
    sim.adopted(64)
    for _round in range(3):
        sim.run("vmadm", "create-snapshot", VM, "s1")
        sim.four_steps(one(unlisted="detach"))
        sim.four_steps(one({"name": "a"}))
        sim.run("vmadm", "delete-snapshot", VM, "s1")
    assert len(sim.disks()["a"].snapshots) == 3
    sim.run("vmadm", "create-snapshot", VM, "s1")


def test_a_full_vm_with_snapshots_detaches_its_disk(sim):
    sim.adopted(2048, flexible=10240 + 2048 + 300)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 1, 0, 200)
    sim.run("zfs", "snapshot", volume + "@x")
    sim.write(volume, 2, 0, 2048)
    sim.four_steps(one(unlisted="detach"))
    sim.four_steps(one({"name": "a"}))


def test_a_full_disk_of_a_full_vm_detaches_without_a_guard(sim):
    sim.adopted(1024, flexible=10240 + 1024)
    sim.write(sim.disks()["a"].volume.name, 1, 0, 1024)
    done = sim.four_steps(one(unlisted="detach"))
    assert done.guard.startswith("none")
    assert names_below(sim, "zones/flexdisk") == [sim.detached()["a"].volume.name]


def test_the_guard_is_named(sim):
    sim.adopted(64)
    assert sim.four_steps(one(unlisted="detach")).guard.startswith("cli (libzfs_core cannot be imported")


# -- coming back


def test_back_with_data_uuid_and_slot(sim):
    disk, digest = detached_data(sim)
    done = sim.four_steps(one({"name": "a"}))
    text = done.vms[0]["steps"][0]["text"]
    assert text.startswith("+ a 2 GiB re-attached at 0:4:1, detached since 20")
    assert (sim.disks()["a"].uuid, sim.disks()["a"].volume.guid) == (disk.uuid, disk.volume.guid)
    assert sim.digest(disk.volume.name, "0", "512") == digest
    assert not sim.detached()
    sim.run("vmadm", "start", VM)


def test_back_grown_and_shrunk(sim):
    disk, digest = detached_data(sim)
    sim.four_steps(one({"name": "a", "size": 4096}))
    assert sim.disks()["a"].size_mib == 4096
    assert sim.digest(disk.volume.name, "0", "512") == digest
    sim.four_steps(one(unlisted="detach"))
    refused = sim.converge(one({"name": "a", "size": 512}))
    assert [p.code for p in refused.problems] == ["InvalidArgument"]
    done = sim.four_steps(one({"name": "a", "size": 512, "dangerous_allow_shrink": True}))
    assert done.vms[0]["steps"][0]["destroys"]
    assert sim.digest(disk.volume.name) == digest


def test_back_shrunk_with_snapshots(sim):
    sim.adopted(2048)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 1, 0, 1500)
    sim.run("zfs", "snapshot", volume + "@x")
    sim.write(volume, 2, 0, 300)
    sim.four_steps(one(unlisted="detach"))
    sim.four_steps(one({"name": "a", "size": 512, "dangerous_allow_shrink": True}))


def test_back_into_a_full_vm_of_a_full_pool(sim):
    """Growth of the disk takes the VM's own reservation, not the pool's last space."""
    disk, digest = detached_data(sim)
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (64 << 20)}", "zones/ballast")
    done = sim.four_steps(one({"name": "a", "size": 20480}))
    assert done.vms[0]["allocatable"] == 0
    assert sim.digest(disk.volume.name, "0", "512") == digest


def test_remembered_slot_taken(sim):
    detached_data(sim)
    sim.four_steps(one({"name": "n", "size": 64}))
    assert sim.disks()["n"].pci_slot == "0:4:1"
    done = sim.four_steps(one({"name": "n"}, {"name": "a"}))
    assert sim.disks()["a"].pci_slot == "0:4:2"
    assert "re-attached at 0:4:2" in done.diff


def test_remembered_slot_asked_for_by_another_entry_of_the_run(sim):
    detached_data(sim)
    sim.four_steps(one({"name": "a"}, {"name": "n", "size": 64, "pci_slot": "0:4:1"}))
    assert (sim.disks()["n"].pci_slot, sim.disks()["a"].pci_slot) == ("0:4:1", "0:4:2")


def test_back_with_other_wishes(sim):
    detached_data(sim)
    wanted = {"name": "a", "pci_slot": "0:4:5", "model": "nvme", "description": "x", "preserve": True}
    done = sim.four_steps(one({**wanted, "compression": "lz4"}))
    assert kinds(done)[0] == "attach"
    disk = sim.disks()["a"]
    assert (disk.pci_slot, disk.model, disk.user_properties["description"], disk.preserve) == (
        "0:4:5",
        "nvme",
        "x",
        True,
    )
    assert disk.volume.compression == "lz4"


def test_a_boot_disk_goes_and_comes_back(sim):
    """Its image and the limit that the image sets to its size are known again."""
    sim.adopted()
    root = sim.disks()["root"].uuid
    second = {"name": "second", "image": IMAGE, "boot": True}
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": False}, second]})
    sim.four_steps({"vm": "web01", "disks": [{"name": "second"}], "unlisted": "detach"})
    assert sim.detached()["root"].uuid == root
    sim.four_steps({"vm": "web01", "disks": [{"name": "second"}, {"name": "root"}]})
    config = {d["uuid"]: d for d in sim.get()["disks"]}[root]
    assert (config["image_uuid"], config["image_size"]) == (IMAGE, 10240)
    sim.four_steps({"vm": "web01", "disks": [{"name": "second"}], "unlisted": "detach"})
    small = {"name": "root", "size": "1GiB", "dangerous_allow_shrink": True}
    refused = sim.converge({"vm": "web01", "disks": [{"name": "second"}, small]})
    assert ["image" in p.message for p in refused.problems] == [True]


def test_a_sparse_detached_volume_becomes_thick(sim):
    sim.adopted()
    uuid = "eeeeeeee-0000-4000-8000-00000000000e"
    facts = ("-o", f"flexdisk:uuid={uuid}", "-o", "flexdisk:name=thin", "-o", f"flexdisk:vm={VM}")
    sim.run("zfs", "create", "-s", *facts, "-V", "128M", f"zones/flexdisk/{uuid}")
    sim.four_steps(one({"name": "thin"}))
    assert sim.disks()["thin"].volume.refreservation > 128 << 20


def test_an_oversized_reservation_stays_outside_a_full_vm(sim):
    """As after a rollback over a resize: the VM has room for the disk, not for what is reserved for it besides."""
    sim.adopted(64, flexible=10240 + 64)
    sim.four_steps(one(unlisted="detach"))
    sim.run("zfs", "set", "refreservation=200M", sim.detached()["a"].volume.name)
    done = sim.four_steps(one({"name": "a"}))
    assert done.vms[0]["allocatable"] == 0


def test_a_reservation_moves_nothing_to_the_snapshots(sim):
    """Setting a volsize does, even the one that is there already: free_space would not be what was predicted."""
    sim.adopted(64)
    sim.run("zfs", "snapshot", sim.disks()["a"].volume.name + "@x")
    sim.four_steps(one(unlisted="detach"))
    sim.run("zfs", "set", "refreservation=none", sim.detached()["a"].volume.name)
    done = sim.four_steps(one({"name": "a"}))
    assert done.vms[0]["free_space"] == 30720 - 10240 - 64


@pytest.mark.parametrize("beyond", [0, 1000])
def test_a_sparse_disk_shrinks_on_the_way_into_a_full_vm_of_a_full_pool(sim, beyond):
    """Shrunk outside, where the VM need not hold what is cut off; reserved inside, where the pool need not give it."""
    sim.adopted(2048, flexible=10240 + 2048)
    sim.four_steps(one(unlisted="detach"))
    volume = sim.detached()["a"].volume.name
    sim.run("zfs", "set", "refreservation=none", volume)
    sim.write(volume, 5, 0, 100)
    if beyond:
        sim.write(volume, 6, 1024, beyond)
    sim.four_steps({"vm": "web01", "disks": [ROOT], "flexible_disk_size": 10240 + 512})
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (64 << 20)}", "zones/ballast")
    done = sim.four_steps(one({"name": "a", "size": 512, "dangerous_allow_shrink": True}))
    assert done.vms[0]["allocatable"] == 0


def test_an_odd_size_is_never_cut(sim):
    """A volume of 40 MiB and 16 KiB: a whole MiB more, or it stays."""
    sim.adopted()
    uuid = "eeeeeeee-0000-4000-8000-00000000000e"
    facts = ("-o", f"flexdisk:uuid={uuid}", "-o", "flexdisk:name=odd", "-o", f"flexdisk:vm={VM}")
    sim.run("zfs", "create", *facts, "-V", str((40 << 20) + 16384), f"zones/flexdisk/{uuid}")
    sim.four_steps(one({"name": "odd"}))
    assert sim.disks()["odd"].size == 41 << 20


def test_an_odd_size_in_place(sim):
    sim.adopted(64)
    sim.run("zfs", "set", "volsize=%d" % ((64 << 20) + 16384), "refreservation=auto", sim.disks()["a"].volume.name)
    sim.quota()
    assert not sim.converge(one({"name": "a"})).changed
    refused = sim.converge(one({"name": "a", "size": 64}))
    assert [p.code for p in refused.problems] == ["InvalidArgument"]
    sim.four_steps(one({"name": "a", "size": 65}))


# -- to another VM


def pair(sim):
    sim.adopted(2048)
    sim.create(uuid=OTHER, alias="web02", sizes=(64,))
    disks = [{"name": "root", "boot": True}, {"name": "x", "size": 64}]
    assert not sim.converge({"vm": "web02", "disks": disks}).problems


def _guard(sim, volume):
    sim.run("zfs", "snapshot", f"{volume}@flexdisk-guard")
    sim.run("zfs", "hold", "flexdisk-guard", f"{volume}@flexdisk-guard")


def test_to_another_vm_by_uuid(sim):
    pair(sim)
    disk = sim.disks()["a"]
    sim.write(disk.volume.name, 5, 0, 100)
    digest = sim.digest(disk.volume.name)
    sim.four_steps(one(unlisted="detach"))
    assert [p.code for p in sim.converge({"vm": "web02", "disks": [ROOT, {"name": "x"}, {"name": "a"}]}).problems] == [
        "MissingParameter"
    ], "another VM's detached disk is not taken by name"
    done = sim.four_steps({"vm": "web02", "disks": [ROOT, {"name": "x"}, {"uuid": disk.uuid}]})
    assert kinds(done) == ["attach"]
    moved = sim.disks(OTHER)["a"]
    assert (moved.uuid, moved.volume.user["vm"], moved.pci_slot) == (disk.uuid, OTHER, "0:4:2")
    assert sim.digest(moved.volume.name) == digest
    assert not sim.detached()


@pytest.mark.parametrize("vm", ["web01", "web02"])
@pytest.mark.parametrize("entry", [{"size": 2049}, {"state": "absent"}])
def test_a_guard_that_a_killed_run_has_left(sim, vm, entry):
    """It is lifted before the disk is used, also if that was another VM's; what it pinned is not predicted to stay."""
    pair(sim)
    disk = sim.disks()["a"]
    sim.write(disk.volume.name, 5, 0, 1)
    sim.four_steps(one(unlisted="detach"))
    _guard(sim, f"zones/flexdisk/{disk.uuid}")
    done = sim.four_steps({"vm": vm, "unlisted": "keep", "disks": [{"uuid": disk.uuid, **entry}]})
    assert kinds(done) == ["unguard", "destroy_parked" if "state" in entry else "attach"]
    assert not [name for name in names_below(sim, "zones") if "guard" in name]


@pytest.mark.parametrize("overwritten", [0, 1])
def test_what_only_a_left_over_guard_pinned_is_free_again(sim, overwritten):
    pair(sim)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 5, 0, 2)
    _guard(sim, volume)
    sim.write(volume, 6, 0, overwritten)
    done = sim.four_steps(one({"name": "a", "description": "d"}))
    assert kinds(done) == ["unguard", "identity"]
    assert done.vms[0]["free_space"] == done.vms[0]["allocatable"]


def test_a_guard_beside_a_snapshot_hides_what_will_be_free(sim):
    """Only ZFS knows which blocks the snapshot shares with the guard: check mode gives no figure."""
    pair(sim)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 5, 0, 2)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    sim.write(volume, 6, 0, 1)
    _guard(sim, volume)
    sim.write(volume, 7, 0, 2)
    spec = one({"name": "a", "description": "d"})
    reported = sim.converge(spec, check=True).vms[0]
    assert not {"free_space", "allocatable"} & set(reported)
    assert not any("pinned" in disk for disk in reported["disks"])
    done = sim.four_steps(spec)
    assert [disk["pinned"] for disk in done.vms[0]["disks"]] == [0, 2]


def test_another_vms_disk_while_its_old_vm_changes_in_the_same_call(sim):
    pair(sim)
    disk = sim.disks()["a"]
    sim.four_steps(one(unlisted="detach"))
    done = sim.four_steps(
        one({"name": "n", "size": 64}), {"vm": "web02", "disks": [ROOT, {"name": "x"}, {"uuid": disk.uuid}]}
    )
    assert [v["parked"] for v in done.vms] == [[], []]


def test_one_disk_wanted_by_two_vms(sim):
    pair(sim)
    disk = sim.disks()["a"]
    sim.four_steps(one(unlisted="detach"))
    before = sim.fingerprint()
    claims = [one({"name": "a"}), {"vm": "web02", "disks": [ROOT, {"name": "x"}, {"uuid": disk.uuid}]}]
    refused = sim.converge(*claims)
    assert [(p.code, p.vm) for p in refused.problems] == [("Ambiguous", "web01"), ("Ambiguous", "web02")]
    assert sim.fingerprint() == before


def test_its_name_is_taken_there(sim):
    pair(sim)
    disk = sim.disks()["a"]
    sim.four_steps(one(unlisted="detach"))
    sim.four_steps({"vm": "web02", "disks": [ROOT, {"uuid": sim.disks(OTHER)["x"].uuid, "name": "a"}]})
    refused = sim.converge({"vm": "web02", "disks": [ROOT, {"name": "a"}, {"uuid": disk.uuid}]})
    assert [p.code for p in refused.problems] == ["NameConflict"]
    sim.four_steps({"vm": "web02", "disks": [ROOT, {"name": "a"}, {"uuid": disk.uuid, "name": "guest"}]})


# -- destroying


@pytest.mark.parametrize("detached", [False, True], ids=["attached", "parked"])
@pytest.mark.parametrize("snapshots", [0, 2])
def test_destroy_by_name(detached, snapshots):
    sim = Simulated()
    sim.adopted(64, 64)
    volume = sim.disks()["a"].volume.name
    for number in range(snapshots):
        sim.run("zfs", "snapshot", "%s@s%d" % (volume, number))
    if detached:
        sim.four_steps(one({"name": "b"}, unlisted="detach"))
    done = sim.four_steps(one({"name": "b"}, {"name": "a", "state": "absent", "destroy_snapshots": bool(snapshots)}))
    assert kinds(done) == ["destroy_parked" if detached else "destroy"]
    assert done.vms[0]["steps"][0]["destroys"]
    assert "DESTROYED" in done.diff
    assert ("with %d snapshots" % snapshots in done.diff) == bool(snapshots)
    assert set(sim.disks()) == {"root", "b"}
    assert not sim.detached()
    assert names_below(sim, f"zones/{VM}", "volume") == [d.volume.name for d in sim.vm().disks]


def test_destroy_by_uuid(sim):
    sim.adopted(64)
    sim.four_steps(one({"uuid": sim.disks()["a"].uuid, "state": "absent"}))
    assert set(sim.disks()) == {"root"}


def test_destroying_a_detached_disk_needs_no_stop(sim):
    detached_data(sim)
    sim.run("vmadm", "start", VM)
    assert kinds(sim.four_steps(one({"name": "a", "state": "absent"}))) == ["destroy_parked"]
    assert sim.get()["state"] == "running"


def test_what_is_absent_already_is_no_change(sim):
    sim.adopted()
    gone = "eeeeeeee-0000-4000-8000-00000000000e"
    assert not sim.converge(one({"name": "old", "state": "absent"}, {"uuid": gone, "state": "absent"})).changed


def test_a_volume_that_was_never_configured_can_be_destroyed(sim):
    """A disk whose attach was interrupted: our identity, below the VM, unknown to vmadm."""
    sim.adopted()
    uuid = "eeeeeeee-0000-4000-8000-00000000000e"
    facts = ("-o", f"flexdisk:uuid={uuid}", "-o", "flexdisk:name=adrift", "-o", f"flexdisk:vm={VM}")
    sim.run("zfs", "create", *facts, "-V", "64M", f"zones/{VM}/disk1")
    done = sim.four_steps(one({"name": "adrift", "state": "absent"}))
    assert done.diff.count("DESTROYED") == 1
    assert names_below(sim, f"zones/{VM}", "volume") == [f"zones/{VM}/disk0"]


# -- recreating


def test_recreate_destroys_what_is_not_preserved(sim):
    sim.adopted(64)
    old = sim.disks()["a"]
    done = sim.four_steps(one({"name": "a", "size": 64, "block_size": 4096, "recreate": True}))
    assert kinds(done) == ["destroy", "create"]
    new = sim.disks()["a"]
    assert (new.volume.volblocksize, new.pci_slot, new.index) == (4096, old.pci_slot, old.index)
    assert new.uuid != old.uuid
    assert not sim.vm().detached


def test_recreate_detaches_what_is_preserved(sim):
    sim.adopted(2048)
    sim.four_steps(one({"name": "a", "preserve": True}))
    old = sim.disks()["a"]
    sim.write(old.volume.name, 9)
    digest = sim.digest(old.volume.name)
    done = sim.four_steps(one({"name": "a", "image": IMAGE, "recreate": True}))
    assert kinds(done) == ["detach", "create"]
    assert f"- a 2 GiB detached without its name (uuid {old.uuid})" in done.diff
    assert sim.vm().detached[0].name == ""
    assert sim.digest("zones/flexdisk/" + old.uuid) == digest
    assert sim.disks()["a"].image == IMAGE


def test_recreate_of_a_detached_disk_that_is_preserved(sim):
    """It stays detached, under its uuid alone, and the new disk has its name."""
    sim.adopted(64)
    sim.four_steps(one({"name": "a", "preserve": True}))
    old = sim.disks()["a"]
    sim.write(old.volume.name, 9)
    digest = sim.digest(old.volume.name)
    sim.four_steps(one(unlisted="detach"))
    done = sim.four_steps(one({"name": "a", "size": 64, "block_size": 4096, "recreate": True}))
    assert kinds(done) == ["identity", "create"]
    assert sim.disks()["a"].uuid != old.uuid
    assert [(d.name, d.uuid) for d in sim.vm().detached] == [("", old.uuid)]
    assert sim.digest("zones/flexdisk/" + old.uuid) == digest


def test_recreate_of_a_detached_disk_that_is_not(sim):
    detached_data(sim)
    done = sim.four_steps(one({"name": "a", "size": 64, "block_size": 4096, "recreate": True}))
    assert kinds(done) == ["destroy_parked", "create"]
    assert sim.vm().detached == ()


SECOND = IMAGE.replace("1", "5")


@pytest.mark.parametrize("preserve", [True, False])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_recreate_of_the_boot_disk_leaves_everything_else(sim, state, preserve):
    """Another image for a VM that keeps its UUID, its network cards and its data disks."""
    sim.admin("image-import", SECOND, "1024")
    sim.adopted(64)
    if state == "running":
        sim.run("vmadm", "start", VM)
    sim.four_steps({"vm": "web01", "disks": [{**ROOT, "preserve": preserve}, {"name": "a"}]})
    old, data = sim.disks()["root"], sim.disks()["a"]
    sim.write(old.volume.name, 9)
    sim.write(data.volume.name, 7)
    data = sim.disks()["a"]
    digests = [sim.digest(disk.volume.name) for disk in (old, data)]
    before = machine_of(sim)
    done = sim.four_steps(
        {
            "vm": "web01",
            "disks": [{**ROOT, "boot": True, "image": SECOND, "recreate": True, "preserve": preserve}, {"name": "a"}],
        },
        allow_restart=True,
    )
    assert kinds(done) == (["stop", "detach", "create", "start"] if state == "running" else ["detach", "create"])
    new = sim.disks()["root"]
    assert (new.image, new.boot, new.pci_slot, new.index) == (SECOND, True, old.pci_slot, old.index)
    assert new.uuid != old.uuid
    same = sim.disks()["a"]
    assert (same.uuid, same.path, same.pci_slot, same.volume.user) == (
        data.uuid, data.path, data.pci_slot, data.volume.user,
    )  # fmt: skip
    assert sim.digest(data.volume.name) == digests[1]
    assert machine_of(sim) == before
    assert [disk.uuid for disk in sim.vm().detached] == [old.uuid]
    assert sim.digest("zones/flexdisk/" + old.uuid) == digests[0]


def machine_of(sim):
    """What vmadm says of the VM besides its disks and what a clock sets."""
    config = json.loads(sim.run("vmadm", "get", sim.vm().config.uuid))
    left = ("disks", "free_space", "last_modified", "boot_timestamp", "pid", "zoneid", "snapshots")
    return {key: value for key, value in config.items() if key not in left}


def test_recreate_of_the_boot_disk_of_a_protected_vm_is_refused(sim):
    sim.admin("image-import", SECOND, "1024")
    sim.adopted(64)
    sim.run("vmadm", "update", VM, "indestructible_zoneroot=true")
    entry = {**ROOT, "boot": True, "image": SECOND, "recreate": True}
    for preserve in (True, False):
        done = sim.converge({"vm": "web01", "disks": [{**entry, "preserve": preserve}, {"name": "a"}]})
        assert "Indestructible" in [p.code for p in done.problems]


def test_recreate_of_the_boot_disk_needs_its_word(sim):
    sim.admin("image-import", SECOND, "1024")
    sim.adopted(64)
    done = sim.converge({"vm": "web01", "disks": [{**ROOT, "image": SECOND}, {"name": "a"}]})
    assert [(p.code, p.disk) for p in done.problems] == [("FixedAtBirth", "root")]
    for boot in (None, False):
        entry = {**ROOT, "image": SECOND, "recreate": True, "boot": boot}
        done = sim.converge({"vm": "web01", "disks": [entry, {"name": "a"}]})
        assert (done.problems[0].code, done.problems[0].disk) == ("InvalidArgument", "root")
        assert "recreate: true makes a boot disk anew only with boot: true" in done.problems[0].message


def test_recreate_of_the_same_is_nothing(sim):
    sim.adopted(64)
    assert not sim.converge(one({"name": "a", "size": 64, "block_size": 8192, "recreate": True})).changed


def test_recreate_by_uuid_is_refused(sim):
    """The new disk has a uuid of its own, so that the same entry would not find it in the next run."""
    sim.adopted(64)
    before = sim.fingerprint()
    entry = {"uuid": sim.disks()["a"].uuid, "name": "a", "size": 64, "block_size": 4096, "recreate": True}
    done = sim.converge(one(entry))
    assert [(p.code, p.disk) for p in done.problems] == [("InvalidArgument", "a")]
    assert sim.fingerprint() == before
    assert not sim.converge(one({**entry, "block_size": 8192})).changed
