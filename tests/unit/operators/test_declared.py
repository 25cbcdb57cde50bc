# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One VM: what the inventory says of it, and which of its disks a name means."""

from __future__ import annotations

import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.declared import (
    declarations_of_disks,
    declarations_undoing,
    declared_vm,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.disks import (
    is_unadopted,
    vm_disk,
    why_not_new,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

WEB, OTHER, DB = (f"{start}0000-0000-4000-8000-000000000000" for start in ("cafe", "beef", "abcd"))


def disk(name, size, uuid="", state="running", remaining=False):
    return {"name": name, "size": size, "uuid": uuid, "state": state, "remaining": remaining}


def vm(uuid, alias, *disks, parked=()):
    return {"uuid": uuid, "alias": alias, "disks": list(disks), "parked": list(parked)}


DATA = disk("data", 20480, "abcdef11-0000-4000-8000-000000000001")
FOUND = {
    "hv01": {
        "vms": [vm(WEB, "web01", DATA, disk("", 64), parked=[disk("old", 1024, "u2", "parked")])],
        "skipped_vms": [],
    },
    "hv02": {"vms": [vm(DB, "web-3")], "skipped_vms": [{"uuid": OTHER, "alias": "web01"}]},
}


def declared(lists, uuid=WEB, name="web01"):
    return declared_vm(FOUND, lists, uuid, name)


@pytest.mark.parametrize("named", ["web01", WEB, WEB.upper(), "cafe"])
def test_an_entry_means_the_vm_by_any_of_its_names(named):
    assert declared({"hv01": [{"vm": "nobody"}, {"vm": named}], "hv02": None}) == {
        "host": "hv01",
        "name": named,
        "problem": "",
    }


def test_the_name_of_a_vm_that_another_host_has_itself_means_that_one():
    assert declared({"hv01": [{"vm": "web01"}], "hv02": [{"vm": "web01"}]})["problem"] == ""
    assert declared({"hv01": [], "hv02": [{"vm": "web01"}]}, OTHER)["host"] == "hv02"


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ({"hv01": [{"vm": "a"}, {"vm": "b"}]},
         "is on hv01, but flexible_disks_vms does not declare it there. It declares a, b."),
        ({}, "It declares no VM."),
        ({"hv01": [], "hv02": [{"vm": "cafe"}]}, "is on hv01, but flexible_disks_vms declares it for hv02."),
        ({"hv01": [{"vm": "web01"}, {"vm": WEB}]},
         f"declares VM web01 2 times, as web01 and {WEB}; it has to be there once."),
    ],
)  # fmt: skip
def test_what_is_not_declared_once_where_it_is(lists, words):
    assert declared(lists)["problem"].endswith(words)
    assert declared(lists)["name"] == ""


@pytest.mark.parametrize(
    ("inventory", "places"),
    [
        ({"hv01": {"flexible_disks_vms": [{"vm": "web01", "disks": []}]}},
         ["flexible_disks_vms of hv01, in the entry web01"]),
        ({"hv01": {"flexible_disks_vms": [{"vm": "web01", "flexible_disk_size": "100GiB"}, {"vm": "x", "disks": []}]}},
         []),
        ({"hv01": {"virtual_machine_vms": [{"name": "web01", "disks": [{}]}, {"vm": "cafe", "disks": [{}]}]}},
         ["virtual_machine_vms of hv01, in the entry web01", "virtual_machine_vms of hv01, in the entry cafe"]),
        ({"hv02": {"virtual_machine_vms": [{"vm": "cafe", "disks": [{}]}, {"vm": "web01", "disks": [{}]}]}},
         ["virtual_machine_vms of hv02, in the entry cafe"]),
        ({"hv01": {"disk_registry_disks": [{"name": "data", "vm": "web01"}, {"name": "more", "vm": "web01"}]}},
         ["disk_registry_disks of hv01, in the entry data"]),
        ({"hv01": {"disk_registry_disks": [{"name": "data", "vm": "nobody"}]}}, []),
        ({"hv01": {"disk_registry_disks": [{"uuid": DATA["uuid"]}]}},
         ["disk_registry_disks of hv01, in the entry data"]),
        ({"hv01": {"disk_registry_disks": [{"uuid": DATA["uuid"].upper()}]}},
         ["disk_registry_disks of hv01, in the entry data"]),
        ({"hv01": {"disk_registry_disks": [{"name": "data"}]}}, ["disk_registry_disks of hv01, in the entry data"]),
        ({"hv01": {"flexdisk_groups": [{"name": "web"}]}}, []),
        ({"hv01": {"flexible_disks_vms": None}}, []),
    ],
)  # fmt: skip
def test_where_disks_are_declared(inventory, places):
    assert declarations_of_disks(FOUND, inventory, WEB, "data") == places
    uuid = DATA["uuid"]  # detach_disk may know the disk only, not its VM
    assert declarations_of_disks(FOUND, inventory, uuid, uuid) == [
        place.replace("entry data", f"entry {uuid}") for place in places
    ]


@pytest.mark.parametrize(
    ("state", "refused"), [(None, False), ("present", False), ("attached", True), ("detached", True)]
)
def test_the_registry_can_leave_open_where_a_disk_is_attached(state, refused):
    inventory = {"hv01": {"disk_registry_disks": [{"name": "data", **({"state": state} if state else {})}]}}
    assert bool(declarations_of_disks(FOUND, inventory, WEB, "data", True)) == refused


def test_members_of_a_group_have_the_disks_of_its_template():
    groups = {"flexdisk_groups": [{"name": "web"}, {"name": "db"}]}
    assert declarations_of_disks(FOUND, {"hv01": groups, "hv02": groups}, DB) == ["flexdisk_groups, in the group web"]


@pytest.mark.parametrize(
    ("inventory", "package", "deletion"),
    [
        ({"virtual_machine_vms": [{"name": "web01", "package": "small"}]}, True, True),
        ({"virtual_machine_vms": [{"name": "web01", "package": "large"}]}, False, True),
        ({"virtual_machine_vms": [{"vm": "web01", "memory": "2GiB"}]}, False, True),
        ({"virtual_machine_vms": [{"vm": "web01", "state": "absent"}]}, True, False),
        ({"virtual_machine_vms": [{"vm": "other", "package": "small"}]}, False, False),
        ({"flexible_disks_vms": [{"vm": "web01", "disks": []}]}, False, False),
        ({}, False, False),
    ],
)
def test_what_the_next_run_would_undo(inventory, package, deletion):
    """A change of the package, or a deletion. Disks alone make no VM again."""
    place = ["virtual_machine_vms of hv01, in the entry web01"]
    assert declarations_undoing(FOUND, {"hv01": inventory}, WEB, {"package": "large"}) == (place if package else [])
    assert declarations_undoing(FOUND, {"hv01": inventory}, WEB) == (place if deletion else [])


def test_what_a_group_would_undo():
    """Its members have the package of its template, and it makes those again that it lacks, up to its size."""
    alias = next(one["alias"] for one in FOUND["hv02"]["vms"] + FOUND["hv01"]["vms"] if one["uuid"] == DB)
    group, _dash, index = alias.rpartition("-")
    large = {"name": group, "size": int(index) + 1, "template": {"package": "large"}}
    place = [f"flexdisk_groups, in the group {group}"]
    inventory = {host: {"flexdisk_groups": [large]} for host in FOUND}
    assert declarations_undoing(FOUND, inventory, DB) == place
    assert declarations_undoing(FOUND, inventory, DB, {"package": "small"}) == place
    assert declarations_undoing(FOUND, inventory, DB, {"package": "large"}) == []
    large["size"] = int(index)
    assert declarations_undoing(FOUND, inventory, DB) == []


@pytest.mark.parametrize(
    ("name", "size"), [("data", 20480), (DATA["uuid"].upper(), 20480), ("old", 1024), ("dat", None)]
)
def test_a_disk_of_the_vm(name, size):
    assert vm_disk(FOUND["hv01"], WEB, name).get("size") == size


def test_two_disks_of_one_name():
    """The module would take the attached one, and the other one in the next run."""
    found = {"vms": [vm(WEB, "web01", DATA, disk("", 1), disk("", 2), parked=[disk("data", 1, "u2", "parked")])]}
    words = rf"has 2 disks data: {DATA['uuid']} \(attached\) and u2 \(detached\)\. Name .* by its UUID"
    for choose, more in ((vm_disk, ()), (why_not_new, ("20GiB",))):
        with pytest.raises(FlexdiskError, match=words):
            choose(found, WEB, "data", *more)
    assert vm_disk(found, WEB, "u2")["size"] == 1
    assert vm_disk(found, WEB, "") == {}


def test_a_vm_that_is_left_alone_has_no_disk():
    assert vm_disk(FOUND["hv02"], OTHER, "data") == {}
    assert declarations_of_disks(FOUND, {}, OTHER, "data") == []


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("more", "1GiB", ""),
        ("data", "20GiB", ""),
        ("data", "20480", ""),
        ("data", "30GiB", "the VM has a disk data of 20 GiB already. resize_disk changes its size"),
        ("data", "remaining", "the VM has a disk data of 20 GiB already. resize_disk changes its size"),
        ("old", "1GiB", "a disk old of 1 GiB has been detached from the VM. attach_disk brings it back"),
    ],
)
def test_a_new_disk(name, size, why):
    assert why_not_new(FOUND["hv01"], WEB, name, size) == why


@pytest.mark.parametrize(
    ("name", "slot", "why"),
    [
        ("more", "0:5:1", ""),
        ("data", "4:5", ""),
        ("more", "4:5", "pci_slot 4:5 has a disk data of 20 GiB, and a new disk needs a free one"),
        (
            "more",
            "0:4:0",
            r"pci_slot 0:4:0 has its boot disk without a name \(zones/x\) of 64 MiB, .* The playbook adopt",
        ),
    ],
)
def test_the_slot_of_a_new_disk(name, slot, why):
    """A slot that another disk has makes no difference for the one that is there already."""
    boot = {**disk("", 64), "pci_slot": "0:4:0", "boot": True, "volume": "zones/x"}
    found = {"vms": [vm(WEB, "web01", {**DATA, "pci_slot": "0:4:5", "boot": False}, boot)], "skipped_vms": []}
    assert re.fullmatch(why + ".*" if why else why, why_not_new(found, WEB, name, "20GiB", slot))


def test_a_disk_that_has_what_remains_is_there():
    found = {"vms": [vm(WEB, "web01", disk("data", 5, remaining=True))], "skipped_vms": []}
    assert why_not_new(found, WEB, "data", "remaining") == ""
    assert why_not_new(found, WEB, "data", "much").startswith('size "much" is not valid')


@pytest.mark.parametrize(
    ("name", "means"), [("disk1", True), ("(disk1)", True), ("disk0", False), ("disk2", False), ("", False)]
)
def test_a_disk_that_only_reports_name(name, means):
    disks = [{**disk("disk0", 1), "volume": "zones/u/disk0"}, {**disk("", 2), "volume": "zones/u/disk1"}]
    found = {"vms": [vm(WEB, "web01", *disks)], "skipped_vms": []}
    assert is_unadopted(found, WEB, name) is means
    assert is_unadopted(found, DB, name) is False
    named = {"vms": [vm(WEB, "web01", *disks, {**disk("disk1", 3), "volume": "zones/u/disk2"})], "skipped_vms": []}
    assert is_unadopted(named, WEB, name) is (name == "(disk1)")
