# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which playbooks run on a slice of the hosts, and which say that they need all."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import slices
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.slices import refusal

COUNT = {"flexdisk_host_count": 4}


@pytest.mark.parametrize("playbook", ["update_group", "plan_moves", "create_vm", "delete_vm"])
def test_a_playbook_that_needs_all_hosts_is_refused_in_a_slice(playbook):
    text = "the inventory has only 2 of 4 hosts of the group hypervisors (flexdisk_host_count)"
    assert text in refusal(playbook, COUNT, 2)
    assert refusal(playbook, COUNT, 2).startswith(f"{playbook} needs all hosts")


@pytest.mark.parametrize(
    "playbook",
    [
        "adopt",
        "apply",
        "converge",
        "grow_guests",
        "list_disks",
        "plan",
        "recalculate_quota",
        "report",
        "verify_disks",
        "write_metrics",
    ],
)
def test_a_playbook_of_single_hosts_may_be_sliced(playbook):
    assert refusal(playbook, COUNT, 2) == ""


@pytest.mark.parametrize(
    ("playbook", "given", "why"),
    [
        ("list_disks", {"flexdisk_list_vm": "web"}, "web must be looked for on all hosts"),
        ("verify_disks", {"flexdisk_verify_vms": ["web", "db"]}, "web, db must be looked for on all hosts"),
        ("recalculate_quota", {"flexdisk_quota_vms": ["web"]}, "web must be looked for on all hosts"),
        ("adopt", {"flexdisk_adopt_vms": [{"vm": "web"}]}, "web must be looked for on all hosts"),
        ("plan", {"flexdisk_vm": "web"}, "web must be looked for on all hosts"),
        ("apply", {"flexdisk_vm": "web"}, "web must be looked for on all hosts"),
        ("report", {"flexdisk_report_html": "/f"}, "flexdisk_report_html has all hosts on one page"),
    ],
)
def test_what_concerns_all_hosts_is_refused_in_a_slice(playbook, given, why):
    assert refusal(playbook, {**COUNT, **given}, 2).startswith(why)
    assert refusal(playbook, {**COUNT, **given}, 4) == ""


def test_status_says_why_it_needs_all_hosts():
    """It only reads, but the table of a slice would be wrong."""
    assert refusal("status", COUNT, 2) == (
        "status needs all hosts: what a move or a failover has left half done is on two of them, but the inventory has "
        "only 2 of 4 hosts of the group hypervisors (flexdisk_host_count). In AWX, set the job slices to 1"
    )


def test_without_the_number_nothing_is_refused():
    assert refusal("update_group", {}, 1) == ""


def test_a_number_that_is_too_small_would_let_slices_pass():
    assert refusal("report", COUNT, 5) == (
        "flexdisk_host_count is 4, but the group hypervisors has 5 hosts. Correct the variable"
    )


def test_each_slice_hands_its_plan_on_under_a_name_of_its_own():
    """AWX keeps one variable of each name. The order in which the inventory has the hosts does not matter."""
    assert slices.suffix(COUNT, ["hv01", "hv02", "hv03", "hv04"]) == ""
    assert slices.suffix({}, ["hv01"]) == ""
    one, other = slices.suffix(COUNT, ["hv01", "hv03"]), slices.suffix(COUNT, ["hv02", "hv04"])
    assert one == slices.suffix(COUNT, ["hv03", "hv01"])
    assert len({one, other}) == 2
    assert slices.base_name("flexdisk_plan_digests" + one) == "flexdisk_plan_digests"
    assert slices.base_name("flexdisk_plan_lines" + other) == "flexdisk_plan_lines"


@pytest.mark.parametrize(
    "name", ["flexdisk_plan_digests", "flexdisk_plan_digest_01234567", "flexdisk_vm_01234567", "flexdisk_plan_lines_x"]
)
def test_no_other_variable_counts_as_one_of_a_slice(name):
    assert slices.base_name(name) == name


def test_what_slices_have_handed_on_is_one_approval():
    wanted = {"flexdisk_plan_digests": {"type": "dict", "required": True, "by_host": True}}
    given = {"flexdisk_plan_digests_0000000a": {"hv01": "a"}, "flexdisk_plan_digests_0000000b": {"hv02": "b"}, "x": 1}
    assert slices.specified(wanted, ["x"]) == wanted
    specified = slices.specified(wanted, given)
    assert sorted(specified) == ["flexdisk_plan_digests", *sorted(given)[:2]]
    assert {name for name, one in specified.items() if one["required"]} == set()
    assert slices.specified({}, given) == {}
    assert slices.joined(given, specified) == ({"flexdisk_plan_digests": {"hv01": "a", "hv02": "b"}, "x": 1}, [])
    with_own = {**given, "flexdisk_plan_digests": {"hv03": "c", "hv01": "a"}}
    (problem,) = slices.joined(with_own, specified)[1]
    assert problem.startswith(
        "flexdisk_plan_digests is that of a plan of all hosts; leave it, or flexdisk_plan_digests_"
    )
    assert slices.joined({"x": 1}, specified) == ({"x": 1}, ["missing required arguments: flexdisk_plan_digests"])
    assert slices.joined({"x": 1}, wanted) == ({"x": 1}, []), "Ansible says that it is missing"


def test_two_digests_of_one_host_are_refused():
    """One of them is older, and nobody knows which one was approved."""
    given = {"flexdisk_plan_digests_0000000a": {"hv01": "a"}, "flexdisk_plan_digests_0000000b": {"hv01": "b"}}
    assert slices.joined(given, {})[1] == [
        "hv01 has two different values in flexdisk_plan_digests and the variables flexdisk_plan_digests_..., so one of "
        "them is from an older plan. Launch the workflow again"
    ]


@pytest.mark.parametrize("older", ["0000000a", "0000000b"])
def test_a_host_that_the_newest_plan_could_not_read_has_no_digest_of_an_older_one(older):
    """An older job had other slices. Nobody knows which of two variables is the newer one."""
    (newer,) = {"0000000a", "0000000b"} - {older}
    given = {
        f"flexdisk_plan_digests_{older}": {"hv01": "a", "hv02": "b"},
        f"flexdisk_plan_digests_{newer}": {"hv01": "a", "hv02": "", "hv03": "c"},
    }
    (problem,) = slices.joined(given, {})[1]
    assert problem.startswith("hv02 has two different values")


def test_a_slice_counts_the_digests_of_other_slices():
    given = {"flexdisk_plan_digests": {"hv01": "a", "hv02": "b", "hv03": "c"}, "flexdisk_host_count": 3}
    kept, shown = slices.of_inventory(given, ["hv01"])
    assert kept == {"flexdisk_plan_digests": {"hv01": "a"}, "flexdisk_host_count": 3}
    assert shown == {"other slices": "2 hosts have a digest, but are not in the inventory of this slice"}
    assert slices.of_inventory(given, ["hv01", "hv02"])[1] == {
        "other slices": "1 host has a digest, but is not in the inventory of this slice"
    }
    assert slices.of_inventory(kept, ["hv01"]) == (kept, {})
    empty = {"flexdisk_plan_digests": {"hv01": "a", "hv02": ""}, "flexdisk_host_count": 3}
    assert slices.of_inventory(empty, ["hv01"]) == (kept, {}), "nothing is approved for hv02"
