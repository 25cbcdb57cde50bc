# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which replicas the playbooks restore_disk and restore_vm take, and what they do not understand."""

from __future__ import annotations

import pytest

from .plays import DATA, OLD, WEB, calls, disk, host, order, refused, vm

GIVEN = {"flexdisk_vm": "web", "flexdisk_disk": "data", "flexdisk_restored_name": "copy"}
CALL = {"name": "copy", "replica": DATA}


def read(*replicas):
    """web on hv01, whose disk data has replicas on these hosts."""
    has = [{"host": name, "synced": "2026-01-01T00:00:00Z", "age": 1} for name in replicas]
    data = {**disk("data", DATA), "replicas": has}
    return {"hv01": host(vm(WEB, "web", data, parked=[disk("old", OLD, state="parked", slot="")])), "hv02": host()}


def test_the_host_of_the_replica_makes_the_disk():
    assert order("restore_disk", GIVEN, {}).reads
    assert calls("restore_disk", GIVEN, read=read("hv02")) == {"hv02": CALL}
    by_uuid = {**GIVEN, "flexdisk_disk": DATA.upper(), "flexdisk_replica_snapshot": "nightly"}
    assert calls("restore_disk", by_uuid, read=read("hv02")) == {"hv02": {**CALL, "source_snapshot": "nightly"}}
    which = {**GIVEN, "flexdisk_replica_host": "hv02"}
    assert calls("restore_disk", which, read=read("hv02", "hv03")) == {"hv02": CALL}


def test_another_host_gets_the_disk():
    """Where the replica is, the call begins. The host of the replica itself is no other host."""
    given = {**GIVEN, "flexdisk_target": "hv01"}
    call = {"restore": {"disks": [{"disk": DATA, "new_name": "copy"}]}, "target": "hv01"}
    assert calls("restore_disk", given, read=read("hv02")) == {"hv02": call}
    given["flexdisk_replica_snapshot"] = call["restore"]["snapshot"] = "nightly"
    assert calls("restore_disk", given, read=read("hv02")) == {"hv02": call}
    assert calls("restore_disk", {**GIVEN, "flexdisk_target": "hv02"}, read=read("hv02")) == {"hv02": CALL}


def test_a_disk_whose_host_is_down():
    """Nothing is read, so nothing can fail of it."""
    given = {"flexdisk_disk": DATA, "flexdisk_restored_name": "copy", "flexdisk_replica_host": "hv02"}
    found = order("restore_disk", given, {})
    assert (found.reads, found.problems, found.calls) == (False, [], {"hv02": CALL})


def test_a_detached_disk():
    """vm_info says nothing of its replicas."""
    given = {**GIVEN, "flexdisk_disk": "old"}
    (text,) = refused("restore_disk", given, read=read())
    assert text.endswith("is detached. Say with flexdisk_replica_host where its replica is")
    given["flexdisk_replica_host"] = "hv02"
    assert calls("restore_disk", given, read=read()) == {"hv02": {**CALL, "replica": OLD}}


@pytest.mark.parametrize(
    ("given", "replicas", "text"),
    [
        ({}, [], "disk data of VM web has no replicas. The playbook replicate makes some"),
        (
            {},
            ["hv02", "hv03"],
            "has replicas on hv02 (of 2026-01-01T00:00:00Z), hv03 (of 2026-01-01T00:00:00Z). Say with "
            "flexdisk_replica_host which one you mean",
        ),
        ({"flexdisk_replica_host": "hv01"}, ["hv02"], "has no replica on hv01, but on hv02"),
        ({}, ["hv03"], "hv03, which has the replica, is none of the hosts here: hv01, hv02"),
        ({"flexdisk_disk": "logs"}, ["hv02"], "VM web on hv01 has no disk logs with a UUID. It has data, old"),
        ({"flexdisk_vm": "db"}, ["hv02"], "VM db is on none of hv01, hv02."),
    ],
)
def test_what_is_not_certain(given, replicas, text):
    (problem,) = refused("restore_disk", {**GIVEN, **given}, read=read(*replicas))
    assert text in problem


def test_a_disk_without_a_name():
    unnamed = {"hv01": host(vm(WEB, "web", disk("", "", volume="zones/web/disk1"))), "hv02": host()}
    (text,) = refused("restore_disk", {**GIVEN, "flexdisk_disk": "(disk1)"}, read=unnamed)
    assert "is not adopted" in text


def test_without_the_vm():
    texts = refused("restore_disk", {"flexdisk_disk": "data", "flexdisk_restored_name": "copy"})
    assert "flexdisk_disk data is no UUID, so it needs flexdisk_vm" in texts[0]
    assert "flexdisk_replica_host must say which host has the replica" in texts[1]


def test_the_hosts_mean_one_disk():
    inventory = {"hv02": {"flexdisk_restored_name": "other"}}
    (text,) = refused("restore_disk", GIVEN, read=read("hv02"), inventory=inventory)
    assert "the hosts of this run mean several disks" in text


IN_PLACE = {"flexdisk_vm": "web", "flexdisk_disk": "data", "flexdisk_replaced_name": "wrong"}
ROOT = "cccccccc-0000-4000-8000-000000000009"
WHOLE = {"flexdisk_vm": "web", "flexdisk_replaced_suffix": "wrong"}


def test_in_place():
    """The host of the VM gets the contents, and what the disk has becomes a disk of this name."""
    call = {"disks": [{"disk": DATA, "new_name": "wrong"}], "in_place": True}
    assert calls("restore_disk", IN_PLACE, read=read("hv02")) == {"hv02": {"restore": call, "target": "hv01"}}
    more = {"flexible_disks_allow_restart": True, "flexible_disks_stop_timeout": 9, "flexdisk_replica_snapshot": "a"}
    call.update(allow_restart=True, stop_timeout=9, snapshot="a")
    found = calls("restore_disk", {**IN_PLACE, **more}, read=read("hv02"))
    assert found == {"hv02": {"restore": call, "target": "hv01"}}


@pytest.mark.parametrize(
    ("name", "given", "text"),
    [
        ("restore_disk", {**GIVEN, **IN_PLACE}, "Give either flexdisk_restored_name, the name of what is restored"),
        (
            "restore_disk",
            {"flexdisk_vm": "web", "flexdisk_disk": "data"},
            "or flexdisk_replaced_name, the name of what",
        ),
        (
            "restore_disk",
            {**IN_PLACE, "flexdisk_target": "hv02", "flexdisk_target_pool": "tank"},
            "flexdisk_target and flexdisk_target_pool cannot be given with flexdisk_replaced_name",
        ),
        ("restore_vm", {"flexdisk_vm": "web"}, "Give either flexdisk_restored_suffix"),
        ("restore_vm", {**WHOLE, "flexdisk_restored_suffix": "x"}, "Give either flexdisk_restored_suffix"),
        ("restore_vm", {"flexdisk_vm": "web", "flexdisk_replaced_suffix": ""}, "flexdisk_replaced_suffix is empty"),
        ("restore_vm", {"flexdisk_vm": "web", "flexdisk_restored_suffix": ""}, "flexdisk_restored_suffix is empty"),
        ("restore_vm", {**WHOLE, "flexdisk_target": "hv02"}, "cannot be given with flexdisk_replaced_suffix"),
    ],
)
def test_one_way(name, given, text):
    (problem,) = refused(name, given)
    assert text in problem


def test_in_place_without_the_vm():
    given = {"flexdisk_disk": DATA, "flexdisk_replaced_name": "wrong", "flexdisk_replica_host": "hv02"}
    assert refused("restore_disk", given) == ["flexdisk_replaced_name needs flexdisk_vm, whose disk gets the contents"]


def whole(root, data):
    """web on hv01, with the hosts of the replicas of both disks."""
    disks = [
        {**disk(name, uuid), "replicas": [{"host": one, "synced": "x", "age": 1} for one in hosts]}
        for name, uuid, hosts in (("root", ROOT, root), ("data", DATA, data))
    ]
    hidden = {**disk("", ""), "hidden": True}
    parked = [disk("old", OLD, state="parked", slot="")]
    return {"hv01": host(vm(WEB, "web", *disks, hidden, parked=parked)), "hv02": host()}


def test_all_disks_of_a_vm():
    disks = [{"disk": ROOT, "new_name": "root-wrong"}, {"disk": DATA, "new_name": "data-wrong"}]
    read_ = whole(["hv02"], ["hv02", "hv03"])
    restore = {"disks": disks, "in_place": True}
    assert calls("restore_vm", WHOLE, read=read_) == {"hv02": {"restore": restore, "target": "hv01"}}
    beside = {"flexdisk_vm": "web", "flexdisk_restored_suffix": "wrong", "flexdisk_replica_snapshot": "nightly"}
    restore = {"disks": disks, "snapshot": "nightly"}
    assert calls("restore_vm", beside, read=read_) == {"hv02": {"restore": restore, "target": "hv01"}}
    beside["flexdisk_target"] = "hv03"
    assert calls("restore_vm", beside, read=read_) == {"hv02": {"restore": restore, "target": "hv03"}}


@pytest.mark.parametrize(
    ("given", "root", "data", "text"),
    [
        ({}, ["hv02"], [], "VM web has replicas of all its disks on no host, but on hv02 (1 of 2 disks)"),
        ({}, [], [], "VM web has replicas of all its disks on no host, but on no host"),
        ({}, ["hv02", "hv03"], ["hv02", "hv03"], "VM web has replicas on hv02, hv03. Say with flexdisk_replica_host"),
        (
            {"flexdisk_replica_host": "hv03"},
            ["hv02", "hv03"],
            ["hv02"],
            "VM web has not all its replicas on hv03, but on hv02 (2 of 2 disks), hv03 (1 of 2 disks)",
        ),
        ({}, ["hv03"], ["hv03"], "hv03, which has the replicas, is none of the hosts here: hv01, hv02"),
    ],
)
def test_all_disks_are_not_certain(given, root, data, text):
    (problem,) = refused("restore_vm", {**WHOLE, **given}, read=whole(root, data))
    assert text in problem


def test_all_disks_where_the_replicas_are():
    given = {"flexdisk_vm": "web", "flexdisk_restored_suffix": "x", "flexdisk_target": "hv02"}
    (problem,) = refused("restore_vm", given, read=whole(["hv02"], ["hv02"]))
    assert "hv02 has the replicas: restore_disk makes disks there, one by one, and failover_vm brings up" in problem


def test_a_disk_of_the_vm_without_a_name():
    unnamed = {"hv01": host(vm(WEB, "web", disk("", "", volume="zones/web/disk1"))), "hv02": host()}
    (text,) = refused("restore_vm", WHOLE, read=unnamed)
    assert "is not adopted" in text


def begun(name, uuid, together, new_name="", volume="zones/web/disk1"):
    """A disk whose volumes were changing places."""
    more = {"volume": volume, "snapshot": "nightly", "together": together}
    return {"disk": uuid, "name": name, "new_name": new_name or f"{name}-wrong", **more}


def interrupted(*restoring):
    """web on hv01, whose disk data is out of its place. Nothing tells of its replicas."""
    root = {**disk("root", ROOT, volume="zones/web/disk0"), "replicas": [{"host": "hv02", "synced": "x", "age": 1}]}
    other = disk("data-wrong", OLD, volume="zones/web/disk1")
    parked = [disk("data", DATA, state="parked", slot="")]
    return {"hv01": host(vm(WEB, "web", root, other, parked=parked, restoring=restoring)), "hv02": host()}


ONE = {"flexdisk_vm": "web", "flexdisk_disk": "data", "flexdisk_replaced_name": "data-wrong"}


@pytest.mark.parametrize("given", [{}, {"flexdisk_disk": DATA}, {"flexdisk_replica_snapshot": "nightly"}])
def test_an_interrupted_restore_of_a_disk(given):
    """The host of the VM has all that it needs."""
    call = {"disks": [{"disk": DATA, "new_name": "data-wrong"}], "in_place": True, "begun": True}
    call.update(snapshot="nightly") if "flexdisk_replica_snapshot" in given else None
    found = calls("restore_disk", {**ONE, **given}, read=interrupted(begun("data", DATA, 1)))
    assert found == {"hv01": {"restore": call, "target": "hv01"}}


@pytest.mark.parametrize(
    ("playbook", "given"),
    [
        ("restore_disk", {**ONE, "flexdisk_replaced_name": "other"}),
        ("restore_disk", {**ONE, "flexdisk_disk": "root"}),
        ("restore_disk", {**ONE, "flexdisk_replica_snapshot": "monday"}),
        ("restore_disk", GIVEN),
        ("restore_vm", WHOLE),
        ("restore_vm", {"flexdisk_vm": "web", "flexdisk_restored_suffix": "wrong"}),
    ],
)
def test_another_restore_than_the_interrupted_one(playbook, given):
    (text,) = refused(playbook, given, read=interrupted(begun("data", DATA, 1)))
    assert text.startswith(
        "VM web on hv01: the restore of its disks was interrupted while volumes changed places: data ("
    )
    end = f"restore_disk -e flexdisk_vm={WEB} -e flexdisk_disk={DATA} -e flexdisk_replaced_name=data-wrong"
    assert text.endswith(f"has ended it: ansible-playbook flexdisk.hypervisor.{end}")


def test_an_interrupted_restore_of_all_disks():
    """Even if only one is marked so far."""
    read_ = interrupted(begun("data", DATA, 2))
    disks = [{"disk": ROOT, "new_name": "root-wrong"}, {"disk": DATA, "new_name": "data-wrong"}]
    call = {"disks": disks, "in_place": True, "begun": True}
    assert calls("restore_vm", WHOLE, read=read_) == {"hv01": {"restore": call, "target": "hv01"}}
    for playbook, given in (("restore_disk", ONE), ("restore_vm", {**WHOLE, "flexdisk_replaced_suffix": "other"})):
        (text,) = refused(playbook, given, read=read_)
        assert text.endswith(f"restore_vm -e flexdisk_vm={WEB} -e flexdisk_replaced_suffix=wrong")
