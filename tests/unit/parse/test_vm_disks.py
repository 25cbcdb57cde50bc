# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From arguments to a declaration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    DiskDeclaration,
    VmDisksDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.vm_disks import parse_vm_disks

UUID = "aaaaaaaa-0000-4000-8000-00000000000A"
IMAGE = "bbbbbbbb-0000-4000-8000-000000000001"


def disks(*entries):
    return parse_vm_disks({"vm": "v", "disks": list(entries)})


def test_everything():
    spec, problems = parse_vm_disks(
        {
            "vm": "web01",
            "flexible_disk_size": "1GiB",
            "quota": "2G",
            "unlisted": "keep",
            "disks": [
                {
                    "name": "a.b-c_d",
                    "uuid": UUID,
                    "state": "present",
                    "size": "1.5G",
                    "boot": True,
                    "pci_slot": "4:1",
                    "model": "nvme",
                    "block_size": 4096,
                    "compression": "lz4",
                    "preserve": False,
                    "description": "",
                    "tags": {"a": "1", "2": "b"},
                    "dangerous_allow_shrink": True,
                    "min_size_from_guest": "1.25 GiB",
                    "destroy_snapshots": True,
                    "recreate": True,
                }
            ],
        }
    )
    assert problems == []
    assert (spec.vm, spec.flexible_disk_size, spec.quota, spec.unlisted) == ("web01", 1024, 2 << 30, "keep")
    assert spec.disks == (
        DiskDeclaration(
            name="a.b-c_d",
            uuid=UUID.lower(),
            size=1536,
            boot=True,
            pci_slot="0:4:1",
            model="nvme",
            block_size=4096,
            compression="lz4",
            user_properties={"preserve": False, "description": "", "tags": {"a": "1", "2": "b"}},
            dangerous_allow_shrink=True,
            min_size=1280,
            destroy_snapshots=True,
            recreate=True,
        ),
    )


def test_what_is_left_out_is_not_managed():
    spec, problems = parse_vm_disks({"vm": "v", "disks": [{"name": "a"}]})
    assert problems == []
    assert spec == VmDisksDeclaration("v", None, None, "refuse", (DiskDeclaration(name="a"),))
    assert parse_vm_disks({"vm": "v"})[0].disks is None
    assert parse_vm_disks({"vm": "v", "disks": []})[0].disks == ()


def test_remaining_and_absent():
    spec, problems = disks({"name": "a", "size": "remaining"}, {"name": "b", "state": "absent"})
    assert problems == []
    assert (spec.disks[0].remaining, spec.disks[0].size, spec.disks[1].present) == (True, None, False)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, ["disks[0]", "name or a uuid"]),
        ({"name": "-a"}, ["-a", "64"]),
        ({"name": "a\n"}, ["64"]),
        ({"name": "a" * 65}, ["64"]),
        ({"name": "\u00fc"}, ["64"]),
        ({"uuid": "x"}, ["x", "not a uuid"]),
        ({"name": "a", "size": "0"}, ["0", "1 MiB"]),
        ({"name": "a", "min_size_from_guest": "0"}, ['min_size_from_guest "0" is not valid', "1 MiB"]),
        ({"name": "a", "min_size_from_guest": "remaining"}, ['min_size_from_guest "remaining" is not valid']),
        ({"name": "a", "min_size_from_guest": "1500000K"}, ["min_size_from_guest", "whole number of MiB"]),
        ({"name": "a", "pci_slot": 241}, ["241"]),
        ({"name": "a", "pci_slot": "4:8"}, ["4:8"]),
        ({"name": "a", "image": "x"}, ["uuid of an image"]),
        ({"name": "a", "block_size": 256}, ["256", "512", "131072"]),
        ({"name": "a", "block_size": 262144}, ["262144"]),
        ({"name": "a", "block_size": 12288}, ["12288"]),
        ({"name": "a", "image": IMAGE, "block_size": 8192}, ["exclude"]),
        (
            {"name": "a", "compression": "gzip-10"},
            ["compression 'gzip-10' is not valid: it must be one of on, off, lz4"],
        ),
        ({"name": "a", "description": "\u20ac" * 1000}, ["description", "9000", "8191"]),
        ({"name": "a", "tags": {"k": "v" * 8192}}, ["tags", "8191"]),
    ],
)
def test_one_bad_value_is_one_problem(entry, message):
    problems = disks(entry)[1]
    assert len(problems) == 1
    assert (problems[0].code, problems[0].vm) == ("InvalidArgument", "v")
    text = problems[0].disk + problems[0].message
    assert [word for word in message if word not in text] == []


@pytest.mark.parametrize("slot", ["0:1:0", "5", 7, "255:31:7", "4:0"])
def test_slots_that_may_be(slot):
    spec, problems = disks({"name": "a", "pci_slot": slot})
    assert problems == []
    assert spec.disks[0].pci_slot.count(":") == 2


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([{"name": "a"}, {"name": "a"}], "two disks have the name a"),
        ([{"uuid": UUID}, {"uuid": UUID.lower()}], "two disks have the uuid"),
        ([{"name": "a"}, {"name": "a", "state": "absent"}], "two disks have the name a"),
        ([{"name": "a", "size": "remaining"}, {"name": "b", "size": "remaining"}], "a, b"),
        ([{"name": "a", "boot": True}, {"name": "b", "boot": True}], "a, b"),
        ([{"name": "a", "pci_slot": "4:1"}, {"name": "b", "pci_slot": "0:4:1"}], '"0:4:1" is asked for by a and b'),
    ],
)
def test_the_list_as_a_whole(entries, message):
    problems = disks(*entries)[1]
    assert [message in p.message for p in problems] == [True]


def test_what_goes_takes_no_part_in_the_list():
    gone = {"state": "absent", "size": "remaining", "boot": True, "pci_slot": "4:1"}
    assert disks({"name": "a", **gone}, {"name": "b", **gone, "state": "present"})[1] == []


def test_all_at_once():
    problems = parse_vm_disks(
        {"vm": "", "flexible_disk_size": "x", "quota": "5", "disks": [{"name": "a", "size": "y"}, {"name": "/"}]}
    )[1]
    assert len(problems) == 5


JUNK = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
KEYS = ("name", "uuid", "state", "size", "pci_slot", "image", "compression", "description", "boot", "preserve")


@given(
    st.dictionaries(st.sampled_from(KEYS), st.text(max_size=20)),
    st.dictionaries(st.text(max_size=5), JUNK, max_size=3),
    JUNK,
    JUNK,
)
def test_junk_is_told_never_raised(entry, tags, size, flexible):
    spec, problems = parse_vm_disks(
        {"vm": "v", "flexible_disk_size": flexible, "disks": [{**entry, "size": size, "tags": tags}]}
    )
    for problem in problems:
        assert problem.code == "InvalidArgument"
    assert isinstance(spec, VmDisksDeclaration)


def test_half_a_character_is_no_text():
    """What a byte that is no UTF-8 becomes on its way through Ansible."""
    assert [p.code for p in disks({"name": "a", "description": "\udcff"})[1]] == ["InvalidArgument"]
    assert [p.code for p in disks({"name": "a", "tags": {"k": "\udcff"}})[1]] == ["InvalidArgument"]
