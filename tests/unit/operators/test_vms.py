# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks about VMs do on which host, and what they refuse."""

from __future__ import annotations

import pytest

from .plays import DATA, DB, READ, WEB, ZONE, calls, disk, host, order, refused

PACKAGES = {"flexdisk_packages": [{"name": "small"}, {"name": "large"}]}
LARGE = {"flexdisk_vm": "web", "flexdisk_package": "large", **PACKAGES}
NAME = {"flexdisk_snapshot_name": "one"}
# By playbook: the variable that names VMs, and what else makes it refuse to go on without a host
SEVERAL = {
    "recalculate_quota": ("flexdisk_quota_vms", []),
    "verify_disks": ("flexdisk_verify_vms", [{"flexdisk_verify_repair": ["quota_drift"]}]),
    "snapshot": (
        "flexdisk_snapshot_vms",
        [{"flexdisk_snapshot_keep": {"daily": 1}}, {"flexdisk_snapshot_state": "absent"}],
    ),
}


def test_a_package_is_changed():
    assert calls("change_package", LARGE) == {"hv01": {"vms": [{"vm": WEB, "package": "large"}]}}
    assert calls("change_package", {**LARGE, "flexdisk_vm": "abcd"})["hv02"]["vms"][0]["vm"] == DB


def test_a_package_is_one_that_is_declared_and_not_otherwise():
    inventory = {"hv01": {"virtual_machine_vms": [{"vm": "web", "package": "small"}]}}
    (text,) = refused("change_package", LARGE, inventory=inventory)
    assert text == (
        "The inventory declares the package of VM web, which is on hv01, and the next run for it would undo this "
        'change. Nothing was changed. Write {"package": "large"} to virtual_machine_vms of hv01, in the entry web; '
        "then use create_vm for virtual_machine_vms, and update_group for flexdisk_groups."
    )
    wrong, text = refused("change_package", {**LARGE, "flexdisk_package": "huge"}, inventory=inventory)
    assert wrong == "flexdisk_package is huge, but flexdisk_packages has small, large"
    assert '{"package": "huge"}' in text
    (wrong,) = refused("change_package", {"flexdisk_vm": "web", "flexdisk_package": "small"})
    assert wrong.endswith("flexdisk_packages has none")


def test_a_vm_is_deleted():
    given = {"flexdisk_vm": "web"}
    entry = {"vm": WEB, "state": "absent"}
    assert calls("delete_vm", given) == {"hv01": {"vms": [entry]}}
    more = {"flexdisk_destroy_disks": True, "flexdisk_destroy_snapshots": False}
    assert calls("delete_vm", {**given, **more}) == {
        "hv01": {"vms": [{**entry, "destroy_disks": True, "destroy_snapshots": False}]}
    }


def test_a_declared_vm_is_not_deleted_nor_one_named_by_the_beginning_of_its_uuid():
    inventory = {"hv02": {"virtual_machine_vms": [{"name": WEB}]}}
    (text,) = refused("delete_vm", {"flexdisk_vm": "web"}, inventory=inventory)
    assert text == (
        "The inventory declares VM web, which is on hv01, and the next run for it would undo this change. Nothing was "
        f"changed. Take it out of virtual_machine_vms of hv02, in the entry {WEB}, or make the group smaller with "
        "scale_group; then run this again."
    )
    assert "is not enough here" in refused("delete_vm", {"flexdisk_vm": WEB[:6]})[0]


@pytest.mark.parametrize("playbook", ["change_package", "delete_vm", "rollback"])
def test_a_host_that_could_not_be_read_may_have_the_vm(playbook):
    assert "hv03 could not be read" in refused(playbook, LARGE, unread=["hv03"])[0]


def test_a_rollback_of_one_vm_or_several():
    assert calls("rollback", {"flexdisk_vm": "web", **NAME}) == {"hv01": {"vms": [WEB]}}
    assert calls("rollback", {"flexdisk_snapshot_vms": ["db", "web", WEB], **NAME}) == {
        "hv01": {"vms": [WEB]},
        "hv02": {"vms": [DB]},
    }
    for given in {}, {"flexdisk_vm": "web", "flexdisk_snapshot_vms": ["db"]}:
        (text,) = refused("rollback", given, read={})
        assert text.startswith("Name the VM with flexdisk_vm, or several VMs with flexdisk_snapshot_vms; exactly one")


def test_a_snapshot_of_one_vm():
    assert calls("snapshot", {"flexdisk_vm": "db"}) == {"hv02": {"vms": [DB]}}
    (text,) = refused("snapshot", {"flexdisk_vm": "web", "flexdisk_snapshot_vms": ["db"]}, read={})
    assert text == "Name one VM with flexdisk_vm, or several with flexdisk_snapshot_vms, but not both"


@pytest.mark.parametrize("playbook", SEVERAL)
def test_named_vms_or_all(playbook):
    name, _strict = SEVERAL[playbook]
    assert calls(playbook, {}, read={}) == {"hv01": {}, "hv02": {}}  # no host is read
    assert order(playbook, {name: ["web"]}, {}).reads
    assert calls(playbook, {name: ["web", WEB]}) == {"hv01": {"vms": [WEB]}}
    assert calls(playbook, {name: []}, read={}) == {}
    assert refused(playbook, {name: ["web", "nobody", "dbb"]})[1].endswith("Did you mean db on hv02?")
    assert calls(playbook, {}, inventory={"hv01": {name: ["web"]}}) == {"hv01": {"vms": [WEB]}, "hv02": {}}


@pytest.mark.parametrize("playbook", SEVERAL)
def test_a_host_that_could_not_be_read_matters_to_what_changes_named_vms(playbook):
    name, strict = SEVERAL[playbook]
    assert calls(playbook, {name: ["web"]}, unread=["hv03"]) == {"hv01": {"vms": [WEB]}}
    for more in strict:
        assert "hv03 could not be read" in refused(playbook, {name: ["web"], **more}, unread=["hv03"])[0]
    assert calls("snapshot", {"flexdisk_vm": "web", "flexdisk_snapshot_state": "present"}, unread=["hv03"])
    assert calls("verify_disks", {"flexdisk_verify_vms": ["web"], "flexdisk_verify_repair": []}, unread=["hv03"])


def test_entries_of_adopt_go_where_their_vms_are():
    entries = [{"vm": "web", "disks": [{"index": 1, "name": "data"}]}, {"vm": "db"}, {"vm": ZONE}]
    assert calls("adopt", {"flexdisk_adopt_vms": entries}) == {
        "hv01": {"vms": [{**entries[0], "vm": WEB}]},
        "hv02": {"vms": [{"vm": DB}, {"vm": ZONE}]},
    }
    assert calls("adopt", {}, read={}) == {"hv01": {}, "hv02": {}}
    assert calls("adopt", {"flexdisk_adopt_vms": entries}, unread=["hv03"])
    released = {"flexdisk_adopt_vms": entries, "flexdisk_adopt_state": "released"}
    assert "hv03 could not be read" in refused("adopt", released, unread=["hv03"])[0]


@pytest.mark.parametrize("name", [" web", "web ", "web\n"])
def test_names_for_adopt_have_no_blanks_around_them(name):
    (text,) = refused("adopt", {"flexdisk_adopt_vms": [{"vm": "db"}, {"vm": name}]}, read={})
    assert text == f"flexdisk_adopt_vms: vm must be a name without blanks around it, got: {name}"


def test_disks_of_one_vm_or_all_are_listed():
    assert calls("list_disks", {}, read={}) == {"hv01": {}, "hv02": {}}
    assert calls("list_disks", {"flexdisk_list_vm": "web"}, unread=["hv03"]) == {"hv01": {"vms": [WEB]}}
    gone = {**host(), "parked": [{**disk("old", DATA), "vm": "dddd0000-0000-4000-8000-000000000000"}]}
    uuid = gone["parked"][0]["vm"]
    assert calls("list_disks", {"flexdisk_list_vm": uuid}, read={**READ, "hv02": gone}) == {"hv02": {"vms": [uuid]}}


@pytest.mark.parametrize(
    ("playbook", "more"), [("plan", {}), ("apply", {"approved": {"hv01": "1f"}, "inventory_hosts": {"hv01"}})]
)
def test_declared_disks_of_one_vm_or_all(playbook, more):
    lists = {"hv01": {"flexible_disks_vms": [{"vm": WEB}, {"vm": "x"}]}, "hv02": {"flexible_disks_vms": []}}
    assert calls(playbook, {}, inventory=lists, read={}, **more) == {"hv01": {"only": ""}}
    assert calls(playbook, {"flexdisk_vm": "web"}, inventory=lists, **more) == {"hv01": {"only": WEB}}
    assert refused(playbook, {"flexdisk_vm": "db"}, inventory=lists) == [
        "VM db is on hv02, but flexible_disks_vms does not declare it there. It declares no VM."
    ]
    assert "hv03 could not be read" in refused(playbook, {"flexdisk_vm": "web"}, unread=["hv03"])[0]


def test_digests_that_do_not_fit_the_hosts_are_refused():
    lists = {"hv01": {"flexible_disks_vms": [{"vm": WEB}]}}
    approved = {"hv02": "1f", "hv03": "2f", "hv07": "3f", "hv08": "4f"}
    known = {"hv01", "hv02", "hv03", "hv07"}
    assert refused("apply", {}, inventory=lists, unread=["hv03"], approved=approved, inventory_hosts=known) == [
        "hv01 has declared VMs, but flexdisk_plan_digests has no digest of it.",
        "hv08 is in flexdisk_plan_digests, but not in the inventory.",
        "hv02 is in flexdisk_plan_digests, but none of the VMs that are meant is declared for it.",
        "hv03 is in flexdisk_plan_digests, but none of the VMs that are meant is declared for it.",
        "Nothing was changed. Look at a new plan, or leave hosts out with --limit.",
    ]


def test_an_empty_digest_approves_nothing():
    """As plan leaves it for a host that it could not read. It is no matter where nothing is declared."""
    lists = {"hv01": {"flexible_disks_vms": [{"vm": WEB}]}}
    approved = dict.fromkeys(("hv01", "hv02", "hv03", "hv08"), "")
    known = {"hv01", "hv02", "hv03"}
    assert refused("apply", {}, inventory=lists, unread=["hv03"], approved=approved, inventory_hosts=known) == [
        "hv01 has declared VMs, but its digest in flexdisk_plan_digests is empty: the playbook plan had no plan for it "
        "(NO PLAN).",
        "Nothing was changed. Look at a new plan, or leave hosts out with --limit.",
    ]


def test_a_problem_of_one_host_says_so():
    found = refused("rollback", {"flexdisk_vm": "web"}, inventory={"hv02": {"flexdisk_snapshot_vms": ["db"]}}, read={})
    assert found[0].startswith("hv02: Name the VM with flexdisk_vm")


@pytest.mark.parametrize(
    ("playbook", "state", "other"),
    [("start_vm", "running", "stopped"), ("stop_vm", "stopped", "running"), ("restart_vm", "restarted", "stopped")],
)
def test_vms_are_started_and_stopped(playbook, state, other):
    """Each on the host that has it. What the inventory declares otherwise is said."""
    assert calls(playbook, {"flexdisk_vm": "web"}) == {"hv01": {"vms": [{"vm": WEB, "state": state}]}}
    several = {"flexdisk_power_vms": ["web", WEB, "abcd"]}
    assert calls(playbook, several) == {
        "hv01": {"vms": [{"vm": WEB, "state": state}]},
        "hv02": {"vms": [{"vm": DB, "state": state}]},
    }
    for declared, lines in ((other, 1), ("present", 0), ("running" if other == "stopped" else "stopped", 0)):
        inventory = {"hv01": {"virtual_machine_vms": [{"name": "web", "state": declared}]}}
        found = order(playbook, {"flexdisk_vm": "web"}, inventory=inventory)
        assert (found.problems, len(found.lines)) == ([], lines)
    assert order(
        playbook, {"flexdisk_vm": "web"}, inventory={"hv01": {"virtual_machine_vms": [{"name": "web", "state": other}]}}
    ).lines["hv01"] == [
        "VM web: the next run for the inventory changes this again. See virtual_machine_vms of hv01, in the entry web"
    ]
    for given in ({}, {"flexdisk_vm": "web", "flexdisk_power_vms": ["web"]}):
        (text,) = refused(playbook, given)
        assert text.startswith("Name the VM with flexdisk_vm, or several VMs with flexdisk_power_vms")
    assert "nobody is on none of hv01, hv02" in refused(playbook, {"flexdisk_vm": "nobody"})[0]
    assert "hv03 could not be read" in refused(playbook, {"flexdisk_vm": "web"}, unread=["hv03"])[0]
