# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the members of a group are, from what vm_info says of each host."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.homes import parse_homes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.member_places import (
    MAX_RENAMED,
    adoptions,
    check_places,
    find,
    observed,
    places,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import RollPolicy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.roll import Group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import uuid_for

GUIDS = {"hv01": 11, "hv02": 22}
OTHER = "cccccccc-0000-4000-8000-000000000001"


def vm(alias, uuid=OTHER, **more):
    found = {"alias": alias, "uuid": uuid, "state": "running", "drained": False, "disks": []}
    mark = {"member": alias} if alias.startswith("web-") else {"member": None}
    return {**found, "package": "p", "memory": 512, "vcpus": 1, **mark, **more}


def host(name, *vms, parked=(), skipped=(), intents=(), moves=()):
    """A host whose detached disks are those of VMs with these UUIDs."""
    return {
        "vms": list(vms),
        "parked": [{"vm": uuid} for uuid in parked],
        "skipped_vms": [{"alias": alias, "uuid": OTHER, "reason": "brand joyent"} for alias in skipped],
        "intents": list(intents),
        "moves": list(moves),
        "pools": [{"name": "zones", "guid": GUIDS[name]}],
    }


def found(hosts, size=2, uuids=None):
    return [(place.name, place.host, place.kind) for place in places(hosts, "web", size, uuids or {})]


def wrong(hosts, adopt=()):
    return [problem.message for problem in check_places(places(hosts, "web", 2, {}, adopt), 2)]


def test_vms_are_members_by_their_marks():
    vms = [vm(name) for name in ("web-0", "web-7", "web-00", "web", "web-1x", "other-web-1")]
    assert found({"hv01": host("hv01", *vms)}) == [("web-0", "hv01", "vm"), ("web-7", "hv01", "vm")]


def test_the_detached_disks_of_a_vm_that_is_gone():
    hosts = {name: host(name) for name in GUIDS}
    assert found(hosts) == []
    hosts["hv02"] = host("hv02", parked=[uuid_for(22, "web-1", 0)])
    assert found(hosts) == [("web-1", "hv02", "disks")]
    assert found(hosts, size=1) == []  # nothing is made of them
    hosts["hv02"] = host("hv02", vm("web-1", uuid_for(22, "web-1", 0)), parked=[uuid_for(22, "web-1", 0)])
    assert found(hosts) == [("web-1", "hv02", "vm")]


def test_disks_of_another_pool_are_no_place():
    assert found({"hv01": host("hv01", parked=[uuid_for(22, "web-1", 0)])}) == []


@pytest.mark.parametrize("number", range(MAX_RENAMED + 1))
def test_a_uuid_that_a_renamed_vm_has_is_not_the_one_of_a_new_vm(number):
    renamed = [vm(f"old{earlier}", uuid_for(11, "web-0", earlier), member="") for earlier in range(number)]
    free = uuid_for(11, "web-0", number)
    assert found({"hv01": host("hv01", *renamed, parked=[free])}) == [("web-0", "hv01", "disks")]


def test_a_uuid_that_the_template_gives():
    hosts = {"hv01": host("hv01", parked=[OTHER, uuid_for(11, "web-1", 0)])}
    assert found(hosts, uuids={"web-0": OTHER.upper()}) == [("web-0", "hv01", "disks"), ("web-1", "hv01", "disks")]


def test_a_member_whose_creation_was_interrupted():
    intents = [{"vm": OTHER, "readable": True, "creates": "web-1"}, {"vm": uuid_for(11, "web-0", 0), "readable": False}]
    assert found({"hv01": host("hv01", intents=intents)}) == [("web-0", "hv01", "disks"), ("web-1", "hv01", "disks")]


def test_members_with_several_places():
    assert wrong({"hv01": host("hv01", vm("web-0")), "hv02": host("hv02", vm("web-1"))}) == []
    assert wrong({"hv01": host("hv01", vm("web-0")), "hv02": host("hv02", vm("web-0"), vm("web-1"))}) == [
        "web-0 is in several places: hv01 has a VM of this name and hv02 has a VM of this name"
    ]
    assert wrong({"hv01": host("hv01", parked=[uuid_for(11, "web-1", 0)]), "hv02": host("hv02", vm("web-1"))}) == [
        "web-1 is in several places: hv01 has its detached disks and hv02 has a VM of this name"
    ]
    assert wrong({"hv01": host("hv01", vm("web-0"), vm("web-0", uuid_for(11, "web-0", 0)))}) == [
        "web-0 is in several places: hv01 has a VM of this name and hv01 has a VM of this name"
    ]


def test_a_name_that_another_kind_of_vm_has():
    assert wrong({"hv01": host("hv01", skipped=["web-1", "db"])}) == [
        "hv01 has a VM web-1, which this collection cannot manage"
    ]


def look(hosts, size=2, unread=(), homes=("hv01", "hv02"), surge=0):
    homes = parse_homes(homes if isinstance(homes, dict) else list(homes))
    shape = Group("web", size, (), keeps_disks=not surge)
    members = observed(places(hosts, "web", size, {}), shape, RollPolicy(0, surge), unread, homes)
    return [(m["name"], m["host"], m["there"], m["reachable"]) for m in members]


def test_new_members_get_hosts():
    both = {"hv01": host("hv01", vm("web-0")), "hv02": host("hv02")}
    assert look(both, 3) == [
        ("web-0", "hv01", True, True), ("web-1", "hv02", False, True), ("web-2", "hv01", False, True),
    ]  # fmt: skip
    assert look(both, homes={"web-1": "hv01"})[1] == ("web-1", "hv01", False, True)
    assert look(both, surge=1)[2] == ("web-2", "hv01", False, True)


def test_disks_decide_where_a_member_is_made_again():
    both = {"hv01": host("hv01", vm("web-0")), "hv02": host("hv02", parked=[uuid_for(22, "web-1", 0)])}
    assert look(both, homes=["hv01"])[1] == ("web-1", "hv02", False, True)


def test_a_member_that_is_nowhere_may_be_on_a_host_that_cannot_be_read():
    one = {"hv01": host("hv01", vm("web-0"))}
    assert look(one, 3, unread=["hv02"]) == [
        ("web-0", "hv01", True, True), ("web-1", "hv02", True, False), ("web-2", "hv02", True, False),
    ]  # fmt: skip
    assert look(one, unread=["hv02", "hv03"])[1] == ("web-1", "hv02 or hv03", True, False)


def test_a_member_that_was_given_another_host_may_still_be_on_one_that_cannot_be_read():
    """It was on hv02, which does not answer, and hosts names hv01 for it now: it is not made there a second time."""
    one = {"hv01": host("hv01", vm("web-0"))}
    homes = {"web-1": "hv01", "web-2": "hv02"}
    assert look(one, 3, unread=["hv02"], homes=homes)[1:] == [
        ("web-1", "hv02", True, False), ("web-2", "hv02", True, False),
    ]  # fmt: skip


ADOPT = (
    "A name alone makes no member. If all of them are members (version 0.2.0 set no marks), "
    '-e \'{"flexdisk_adopt_members": '
)


def test_a_vm_without_the_mark_is_no_member_whatever_its_name():
    """A stranger's web-10 on any host, and members of before there were marks."""
    stranger = {"hv01": host("hv01", vm("web-0")), "hv02": host("hv02", vm("web-10", member=None))}
    (said,) = wrong(stranger)
    assert said.startswith(f'not marked as members of the group: web-10 on hv02. {ADOPT}["web-10"]}}\' marks them.')
    assert wrong(stranger, adopt=["web-10"]) == []
    assert adoptions(stranger["hv02"], ["web-10", "web-0"]) == [{"vm": "web-10", "member": "web-10"}]
    assert adoptions(stranger["hv01"], ["web-10", "web-0"]) == []
    old = {name: host(name, *(vm(f"web-{n}", member=None) for n in range(30))) for name in ("hv01",)}
    (said,) = wrong(old)
    assert "web-19 on hv01 and 10 more. " in said
    assert '"web-28", "web-29"]' in said
    for mark in ("", "db-1"):
        assert found({"hv01": host("hv01", vm("web-1", member=mark))}) == [("web-1", "hv01", "stranger")]
        assert wrong({"hv01": host("hv01", vm("web-10", member=mark))}) == []
        (said,) = wrong({"hv01": host("hv01", vm("web-1", member=mark))})
        assert said.startswith(f"hv01 has a VM web-1 ({OTHER}), but that is marked as {mark or 'a VM of no group'}. ")
        assert "if it is web-1, say so with the module vm ({vm: web-1, member: web-1})" in said
        assert "otherwise give it another name" in said


def test_a_member_whose_creation_was_interrupted_before_it_had_its_mark():
    for member, what in (("web-2", "vm"), ("", "unmarked"), ("web-1", "unmarked")):
        half = vm("web-2", member=None, intent={"creates": "web-2", "member": member})
        assert found({"hv01": host("hv01", half)}) == [("web-2", "hv01", what)]


@pytest.mark.parametrize("new", ["old7", "web-7"])
def test_a_member_that_was_renamed_by_hand(new):
    """It keeps its disks and gets no replacement, whether it has a mark or only the UUID of one that was made so."""
    marked = {"hv01": host("hv01", vm(new, member="web-1"))}
    assert found(marked) == [("web-1", "hv01", "renamed")]
    (said,) = wrong(marked)
    assert said.startswith(f"hv01 has a VM {new} ({OTHER}), which is marked as web-1; call it web-1 again, or say ")
    old = uuid_for(11, "web-1", 0)
    (said,) = wrong({"hv01": host("hv01", vm("old7", old), parked=[old])})
    assert said.startswith(f"hv01 has a VM old7 ({old}), which was made as web-1; ")
    assert wrong({"hv01": host("hv01", vm("old7", old, member=""), parked=[old])}) == []
    assert wrong({"hv01": host("hv01", vm("old7", old), vm("web-1"))}) == []  # it has its replacement


def test_a_member_that_has_moved_to_a_host_that_nobody_asked():
    move = {"alias": "web-1", "uuid": OTHER, "phase": "moved", "host": "hv09", "since": ""}
    assert wrong({"hv01": host("hv01", moves=[move])}) == [
        "no host has web-1, but hv01 has a record of its move (moved, hv09)"
    ]
    assert wrong({"hv01": host("hv01", moves=[move]), "hv02": host("hv02", vm("web-1"))}) == []


def test_what_is_known_of_a_member():
    root = {"name": "root", "uuid": "u", "size": 32, "preserve": False, "boot": True, "type": "thick"}
    stopped = vm("web-0", state="stopped", drained=True, disks=[root])
    found = places({"hv01": host("hv01", stopped)}, "web", 1, {})
    (member,) = observed(found, Group("web", 1, ()), RollPolicy(), (), parse_homes(["hv01"]))
    assert member == {
        "name": "web-0", "index": 0, "host": "hv01", "reachable": True, "there": True, "uuid": OTHER, "running": False,
        "guest_agent": "", "nowhere": False,
        "marked": True, "package": "p", "memory": 512, "vcpus": 1,
        "disks": [{"name": "root", "uuid": "u", "size": 32, "preserve": False, "boot": True}],
    }  # fmt: skip


def test_a_member_that_lies_nowhere_is_told_from_one_whose_disks_lie_somewhere():
    known = places({"hv01": host("hv01", parked=[uuid_for(11, "web-0", 0)]), "hv02": host("hv02")}, "web", 2, {})
    members = observed(known, Group("web", 2, ()), RollPolicy(), (), parse_homes(["hv01", "hv02"]))
    assert [(member["name"], member["there"], member["nowhere"]) for member in members] == [
        ("web-0", False, False),
        ("web-1", False, True),
    ]
    blind = observed((), Group("web", 1, ()), RollPolicy(), ["hv02"], parse_homes(["hv01", "hv02"]))
    assert [(member["reachable"], member["nowhere"]) for member in blind] == [(False, False)]


def test_one_host_with_two_names():
    """Members would be spread over both, and lie on one."""
    group = {"name": "web", "size": 2, "hosts": ["hv01", "again"], "policy": {}, "template": {"package": "small"}}
    again = {**host("hv01")}
    found = find({"hv01": host("hv01"), "again": again}, {**group, "members": {}, "replace": []}, ())
    assert "hv01 and again have the same pool (guid 11), so they are one host with several names" in found["problems"]
    assert found["members"] == []
