# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks about one disk of one VM do on which host, and what they refuse."""

from __future__ import annotations

import pytest

from .plays import DATA, DB, OLD, READ, WEB, ZONE, calls, disk, host, order, refused, vm

GIVEN = {"flexdisk_vm": "web", "flexdisk_disk": "data"}
SIZE = {"flexdisk_disk_size": "30GiB"}
FIVE = {"add_disk": SIZE, "resize_disk": SIZE, "remove_disk": {}, "attach_disk": {}, "detach_disk": {}}


def listed(**entry):
    return {"hv01": {"vms": [{"vm": WEB, "unlisted": "keep", "disks": [entry]}]}}


def test_a_disk_is_added():
    given = {**GIVEN, "flexdisk_disk": "more", **SIZE}
    assert calls("add_disk", given) == listed(name="more", size="30GiB")
    more = {"flexdisk_pci_slot": "0:4:5", "flexdisk_preserve": True, "flexdisk_description": "logs"}
    assert calls("add_disk", {**given, **more}) == listed(
        name="more", size="30GiB", pci_slot="0:4:5", preserve=True, description="logs"
    )


def test_a_disk_is_resized():
    call = {"uuid": DATA, "vm": WEB, "size": "30GiB"}
    assert calls("resize_disk", {**GIVEN, **SIZE}) == {"hv01": call}
    given = {"flexdisk_disk": "old", "flexdisk_dangerous_allow_shrink": True}
    assert calls("resize_disk", {**GIVEN, **SIZE, **given}) == {
        "hv01": {**call, "uuid": OLD, "dangerous_allow_shrink": True}
    }
    assert refused("resize_disk", {**GIVEN, **SIZE, "flexdisk_disk": "dat"}) == [
        "VM web on hv01 has no disk dat with a UUID. It has data, old. Nothing was changed."
    ]
    (text,) = refused("resize_disk", {**GIVEN, **SIZE, "flexdisk_vm": "zone"})
    assert "It has none with a name." in text


def test_a_disk_is_destroyed():
    assert calls("remove_disk", GIVEN) == listed(name="data", state="absent")
    given = {"flexdisk_disk": DATA.upper(), "flexdisk_destroy_snapshots": True}
    assert calls("remove_disk", {**GIVEN, **given}) == listed(uuid=DATA, state="absent", destroy_snapshots=True)


@pytest.mark.parametrize(("intent", "does"), [(None, False), ({"task": "vm_disks"}, True)])
def test_a_disk_that_is_not_there_is_none_to_destroy_but_a_run_is_ended(intent, does):
    read = {**READ, "hv01": host(vm(WEB, "web", disk("data", DATA), disk("", ""), intent=intent))}
    found = order("remove_disk", {**GIVEN, "flexdisk_disk": "other"}, read)
    assert found.problems == []
    assert found.calls == (listed(name="other", state="absent") if does else {})
    assert found.lines == {"hv01": ["VM web has no disk other. Its disks: data"]}
    found = order("remove_disk", {**GIVEN, "flexdisk_vm": "zone"})
    assert (found.calls, found.lines) == ({}, {"hv02": ["VM zone has no disk data. Its disks: none has a name"]})


def test_what_destroys_wants_the_whole_uuid_of_the_vm():
    for playbook, more in FIVE.items():
        found = order(playbook, {**GIVEN, "flexdisk_vm": WEB[:4], "flexdisk_disk": "old", **more})
        assert any("is not enough here" in text for text in found.problems) == (playbook == "remove_disk")


def test_a_disk_is_attached():
    call = {"vm": WEB, "state": "attached"}
    assert calls("attach_disk", {**GIVEN, "flexdisk_disk": "old"}) == {"hv01": {**call, "name": "old"}}
    more = {"flexdisk_from_vm": "db", "flexdisk_take": True, "flexdisk_index": 2, "flexdisk_pci_slot": "0:4:5"}
    assert calls("attach_disk", {**GIVEN, "flexdisk_disk": DATA.upper(), **more}) == {
        "hv01": {**call, "uuid": DATA.upper(), "from_vm": "db", "take": True, "index": 2, "pci_slot": "0:4:5"}
    }


def test_a_disk_is_detached_of_a_vm_or_of_whichever_has_it():
    call = {"name": "data", "state": "detached"}
    assert calls("detach_disk", GIVEN) == {"hv01": {**call, "vm": WEB}}
    assert calls("detach_disk", {"flexdisk_disk": "data"}) == {"hv01": call}
    assert calls("detach_disk", {"flexdisk_disk": DATA}) == {"hv01": {"uuid": DATA, "state": "detached"}}
    assert refused("detach_disk", {"flexdisk_disk": "dat"})[0].startswith("disk dat is on none of hv01, hv02.")


@pytest.mark.parametrize("playbook", FIVE)
def test_a_host_that_could_not_be_read_may_have_the_vm(playbook):
    (text,) = refused(playbook, {**GIVEN, **FIVE[playbook]}, unread=["hv03"])
    assert "hv03 could not be read and may have a VM of this name too" in text


@pytest.mark.parametrize("playbook", FIVE)
def test_hosts_are_read_first(playbook):
    found = order(playbook, {**GIVEN, **FIVE[playbook]}, {})
    assert (found.problems, found.reads, found.calls) == ([], True, {})


@pytest.mark.parametrize("playbook", FIVE)
def test_who_has_what_is_told(playbook):
    found = order(playbook, {**GIVEN, "flexdisk_disk": "old", **FIVE[playbook]})
    assert found.here == {"hv01": {"web": {"vm": WEB}}, "hv02": {}}
    assert found.without == "hv02 does not have web"


@pytest.mark.parametrize(
    ("playbook", "entry"),
    [
        ("add_disk", '{"name": "data", "size": "30GiB", "preserve": true}'),
        ("resize_disk", '{"name": "data", "size": "30GiB", "dangerous_allow_shrink": false}'),
        ("remove_disk", '{"name": "data", "state": "absent"}'),
        ("attach_disk", '{"name": "data", "pci_slot": "0:4:5"}'),
    ],
)
def test_what_is_declared_is_changed_there(playbook, entry):
    more = {"flexdisk_preserve": True, "flexdisk_dangerous_allow_shrink": False}
    more.update({"flexdisk_pci_slot": "0:4:5"} if playbook == "attach_disk" else {})
    inventory = {
        "hv01": {"flexible_disks_vms": [{"vm": "web", "disks": []}]},
        "hv02": {"virtual_machine_vms": [{"vm": WEB, "disks": []}]},
    }
    texts = refused(playbook, {**GIVEN, **FIVE[playbook], **more}, inventory=inventory)
    assert texts[0] == (
        "The inventory declares the disks of VM web, which is on hv01, and the next run for it would undo this change. "
        f"Nothing was changed. Write {entry} to flexible_disks_vms of hv01, in the entry web, or to "
        f"virtual_machine_vms of hv02, in the entry {WEB}; then use converge, plan and apply, or "
        "the playbook for that variable."
    )


def test_all_that_is_wrong_is_told_at_once():
    inventory = {"hv01": {"flexible_disks_vms": [{"vm": "web", "disks": []}]}}
    texts = refused("add_disk", {**GIVEN, **SIZE}, inventory=inventory)
    assert [text.split(",")[0] for text in texts] == [
        "The inventory declares the disks of VM web",
        "VM web on hv01: the VM has a disk data of 20 GiB already. resize_disk changes its size. Nothing was changed.",
    ]


@pytest.mark.parametrize(
    ("state", "playbooks"), [("attached", {"attach_disk", "detach_disk"} | {*FIVE}), ("present", {*FIVE})]
)
def test_the_registry_can_leave_open_where_a_disk_is(state, playbooks):
    inventory = {"hv01": {"disk_registry_disks": [{"name": "data", "state": state}]}}
    found = {
        name for name, more in FIVE.items() if order(name, {**GIVEN, **more}, inventory=inventory).problems
    }  # add_disk: the VM has a disk data already
    assert found == (playbooks if state == "attached" else playbooks - {"attach_disk", "detach_disk"})


@pytest.mark.parametrize(("given", "what"), [(GIVEN, "the disks of VM web"), ({"flexdisk_disk": "data"}, "disk data")])
def test_what_is_declared_is_not_detached(given, what):
    inventory = {"hv01": {"flexible_disks_vms": [{"vm": "web", "disks": []}]}}
    (text,) = refused("detach_disk", given, inventory=inventory)
    assert text.startswith(f"The inventory declares {what}, which is on hv01, and the next run for it would undo this")
    assert "Take disk data out of flexible_disks_vms of hv01, in the entry web, which needs unlisted: detach" in text
    assert calls("detach_disk", {"flexdisk_disk": "old"}, inventory=inventory)  # it is detached already


@pytest.mark.parametrize("name", ["disk0", "(disk0)"])
def test_a_disk_without_a_name_is_adopted_first(name):
    read = {**READ, "hv01": host(vm(WEB, "web", disk("", DATA, volume="zones/web/disk0")))}
    for playbook in ("resize_disk", "remove_disk", "detach_disk"):
        (text,) = refused(playbook, {**GIVEN, "flexdisk_disk": name, **FIVE[playbook]}, read=read)
        assert text == (
            f"{name} of VM web is not adopted: it has no name yet. Nothing was changed. Adopt the disks of the VM "
            "first: ansible-playbook flexdisk.hypervisor.adopt -e "
            """'{"flexdisk_adopt_vms": [{"vm": "web"}]}'"""
        )


ORPHANS = [
    {"name": "lost", "uuid": OLD, "volume": "zones/web/disk7"},
    {"name": "", "uuid": "", "volume": "zones/web/disk8"},
    {"name": "disk8", "uuid": "u", "volume": "zones/web/disk9"},
]


@pytest.mark.parametrize(
    ("name", "volume"),
    [("lost", "disk7"), (OLD.upper(), "disk7"), ("(disk8)", "disk8"), ("disk8", "disk9"), ("other", "")],
)
def test_an_orphan_is_looked_for_and_repaired_first(name, volume):
    """By its name, else its UUID, else as reports show it."""
    read = {**READ, "hv01": host(vm(WEB, "web", unmanaged=["zones/web/disk7"]))}
    for playbook in ("resize_disk", "remove_disk", "detach_disk"):
        given = {**GIVEN, "flexdisk_disk": name, **FIVE[playbook]}
        found = order(playbook, given, read)
        assert (found.problems, found.calls, found.orphans) == ([], {}, {"hv01": WEB})
        assert found.without == "hv02 does not have web"
        found = order(playbook, given, read, orphans=ORPHANS)
        assert found.orphans == {}
        assert any(f"{name} of VM web is orphaned: zones/web/{volume} lies" in text for text in found.problems) == bool(
            volume
        )
        repair = '--limit hv01 -e \'{"flexdisk_verify_vms": ["web"], "flexdisk_verify_repair": ["orphan_volume"]}\''
        assert len(found.problems) == (1 if volume or playbook == "resize_disk" else 0)
        assert not volume or found.problems[0].endswith(repair)


def test_a_disk_that_the_vm_knows_is_no_orphan():
    read = {**READ, "hv01": host(vm(WEB, "web", disk("data", DATA), unmanaged=["zones/web/disk7"]))}
    for playbook in ("resize_disk", "remove_disk", "detach_disk"):
        assert calls(playbook, {**GIVEN, **FIVE[playbook]}, read=read)


@pytest.mark.parametrize("playbook", FIVE)
def test_two_disks_of_one_name_are_a_problem(playbook):
    two = vm(WEB, "web", disk("data", DATA), parked=[disk("data", OLD, state="parked")])
    (text,) = refused(playbook, {**GIVEN, **FIVE[playbook]}, read={**READ, "hv01": host(two)})
    assert text.startswith(f"VM {WEB} has 2 disks data: {DATA} (attached) and {OLD} (detached). Name the one")


def test_hosts_can_have_variables_of_their_own():
    """The host that has the VM counts."""
    given = {**GIVEN, "flexdisk_vm": "db", "flexdisk_disk": "more", **SIZE}
    found = calls("add_disk", given, inventory={"hv02": {"flexdisk_disk_size": "5GiB"}})
    assert found["hv02"]["vms"] == [{"vm": DB, "unlisted": "keep", "disks": [{"name": "more", "size": "5GiB"}]}]
    assert ZONE not in str(found)


@pytest.mark.parametrize("playbook", ["resize_disk", "remove_disk", "attach_disk", "detach_disk", "add_disk"])
def test_hosts_that_mean_several_disks_are_refused(playbook):
    """As from variables of hosts: the disk of one host must not be looked for in the VM of another one."""
    more = {"flexdisk_disk_size": 9}
    inventory = {
        "hv01": {"flexdisk_vm": "web", "flexdisk_disk": "data"},
        "hv02": {"flexdisk_vm": "db", "flexdisk_disk": "x"},
    }
    found = order(playbook, more, inventory=inventory)
    assert found.calls == {}
    (text,) = found.problems
    assert "hv01: flexdisk_vm=web flexdisk_disk=data; hv02: flexdisk_vm=db flexdisk_disk=x" in text
