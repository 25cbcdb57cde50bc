# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which VMs the playbook replicate replicates from which host, and what it does not understand."""

from __future__ import annotations

import pytest

from .plays import DATA, DB, READ, WEB, calls, disk, host, order, refused

ENTRIES = [
    {"vm": "web", "host": "hv02"},
    {"vm": WEB, "host": "hv02"},
    {"vm": "web", "host": "hv03", "pool": "tank"},
    {"vm": "db", "host": "hv01"},
]
GIVEN = {"flexdisk_replicas": ENTRIES}


def peer(name, *vms, pool=""):
    return {"host": name, "pool": pool, "vms": list(vms)}


def test_each_host_has_the_peers_of_its_vms():
    assert order("replicate", GIVEN, {}).reads
    assert calls("replicate", GIVEN) == {
        "hv01": {"peers": [peer("hv02", WEB), peer("hv03", WEB, pool="tank")]},
        "hv02": {"peers": [peer("hv01", DB)]},
    }
    assert calls("replicate", {**GIVEN, "flexdisk_vm": "db"})["hv01"] == {"peers": []}
    given = {**GIVEN, "flexdisk_vm": "web", "flexdisk_replica_host": "hv09"}
    assert calls("replicate", given)["hv01"] == {"peers": [peer("hv09", WEB)]}


def test_a_host_without_an_entry_has_nothing_to_replicate():
    """As where each home has its own in host_vars."""
    found = order("replicate", {}, inventory={"hv01": GIVEN})
    assert (found.problems, found.calls["hv02"]) == ([], {"peers": []})
    assert found.calls["hv01"]["peers"]
    found = order("replicate", {"flexdisk_vm": "web"}, inventory={"hv01": GIVEN})
    assert (found.problems, found.calls["hv02"]) == ([], {"peers": []})


def test_a_name_that_means_none_is_left_out_and_told_at_the_end():
    found = order("replicate", {"flexdisk_replicas": [*ENTRIES, {"vm": "nobody", "host": "hv02"}]})
    assert (found.problems, found.left_out) == ([], ["VM nobody is on none of hv01, hv02."])
    assert found.calls["hv02"] == {"peers": [peer("hv01", DB)]}


def test_replicas_of_a_vm_that_is_gone_can_be_given_up_if_all_hosts_are_read():
    gone = "dddd0000-0000-4000-8000-000000000000"
    read = {**READ, "hv02": {**host(), "parked": [{**disk("old", DATA), "vm": gone}]}}
    given = {"flexdisk_vm": gone, "flexdisk_replica_host": "hv01"}
    assert order("replicate", given, read).left_out
    given["flexdisk_replica_state"] = "absent"
    assert order("replicate", given, read).calls["hv02"] == {"peers": [peer("hv01", gone)]}
    found = order("replicate", given, read, unread=["hv03"])
    assert "hv03 could not be read" in found.left_out[0]
    assert found.calls["hv02"] == {"peers": []}
    assert not order("replicate", GIVEN, unread=["hv03"]).left_out


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"flexdisk_replica_host": "hv02"}, ["flexdisk_replica_host needs flexdisk_vm"]),
        ({**GIVEN, "flexdisk_replica_state": "absent"}, ["flexdisk_replica_state=absent needs flexdisk_vm"]),
        (
            {**GIVEN, "flexdisk_vm": "web", "flexdisk_replica_state": "absent", "flexdisk_failover": True},
            ["flexdisk_failover=true needs the replicas that flexdisk_replica_state=absent gives up"],
        ),
        (
            {"flexdisk_replica_host": "hv02", "flexdisk_replica_state": "absent"},
            ["flexdisk_replica_host needs flexdisk_vm", "flexdisk_replica_state=absent needs flexdisk_vm"],
        ),
        ({}, ["flexdisk_replicas has no entry"]),
        (
            {**GIVEN, "flexdisk_vm": "webb"},
            [
                f"flexdisk_replicas has no entry with vm: webb, but with web, {WEB}, db. Name the VM as it stands "
                "there, or say with flexdisk_replica_host where its replica is"
            ],
        ),
    ],
)
def test_what_does_not_say_what_is_meant(given, texts):
    assert refused("replicate", given, read={}) == texts


def test_without_entries_any_name_is_missing():
    (text,) = refused("replicate", {"flexdisk_vm": "web"}, read={})
    assert "with vm: web, but with none." in text
    failover = {"flexdisk_vm": "web", "flexdisk_replica_host": "hv02", "flexdisk_failover": True}
    assert calls("replicate", {**failover, "flexdisk_replica_state": "present"})
    assert calls("replicate", {**failover, "flexdisk_failover": False, "flexdisk_replica_state": "absent"})
