# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which playbooks run on a slice of the hosts, and which say that they need all."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.slices import refusal

COUNT = {"flexdisk_host_count": 4}


@pytest.mark.parametrize("playbook", ["update_group", "plan_moves", "create_vm", "plan", "apply", "delete_vm"])
def test_a_playbook_that_needs_all_hosts_is_refused_in_a_slice(playbook):
    text = "the inventory has only 2 of 4 hosts of the group hypervisors (flexdisk_host_count)"
    assert text in refusal(playbook, COUNT, 2)
    assert refusal(playbook, COUNT, 2).startswith(f"{playbook} needs all hosts")


@pytest.mark.parametrize(
    "playbook", ["adopt", "converge", "list_disks", "recalculate_quota", "report", "verify_disks", "write_metrics"]
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
