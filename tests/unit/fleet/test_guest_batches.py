# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which guests grow in which batch, and when no further batch is begun."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.action import guest_batches as action
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet import guest_batches
from ansible_collections.flexdisk.hypervisor.plugins.modules import guest_batches as documented
from tests.unit.action.actions import plain


def batches_of(vms, group=None, declared=(), unseen=()):
    return guest_batches.batches(vms, group, declared, unseen)


def vms(*names, **states):
    return {name: {"alias": name, "hypervisor": "hv01", "state": states.get(name, "running")} for name in names}


WEB = vms("web-0", "web-1", "web-2", "web-3", "web-10", "web", "web-01", "web-1-0", "db-1")


def rolled(policy, size=4, hosts=None):
    """(guests, pause) of each batch, and the budget."""
    growth = batches_of(hosts or WEB, "web", [{"name": "web", "size": size, "policy": policy}, {"name": "db"}])
    assert growth["problems"] == []
    return [(batch["guests"], batch["pause"]) for batch in growth["batches"]], growth["budget"]


def test_without_a_group_all_that_run_are_one_batch():
    growth = batches_of({**vms("a", "b", b="stopped"), "c": {}, "d": {"alias": "d", "reason": "not adopted"}})
    assert growth == {
        "batches": [{"guests": ["a", "c"], "pause": 0}],
        "left_out": ["b: it is stopped", "d: not adopted"],
        "absent": [],
        "budget": -1,
        "problems": [],
    }
    assert batches_of({})["batches"] == []


@pytest.mark.parametrize(
    ("policy", "batches", "budget"),
    [
        ({}, [(["web-10"], 0), (["web-3"], 0), (["web-2"], 0), (["web-1"], 0), (["web-0"], 0)], 0),
        ({"max_batch_size": 2, "pause_time": 5, "failure_budget": 1},
         [(["web-10", "web-3"], 5), (["web-2", "web-1"], 5), (["web-0"], 0)], 1),
        ({"max_unavailable": "75%", "canary": ["web-1"], "canary_pause": 9, "failure_budget": "50%"},
         [(["web-1"], 9), (["web-10", "web-3", "web-2"], 0), (["web-0"], 0)], 2),
        ({"max_batch_size": 9, "canary": 1, "pause_time": 4, "on_failure": "continue"},
         [(["web-10"], 4), (["web-3", "web-2", "web-1", "web-0"], 0)], -1),
        ({"max_batch_size": 9, "canary": 9, "canary_pause": 9, "on_failure": "revert"},
         [(["web-10", "web-3", "web-2", "web-1", "web-0"], 0)], 0),
    ],
)  # fmt: skip
def test_batches_of_a_policy(policy, batches, budget):
    assert rolled(policy) == (batches, budget)


def test_members_that_are_left_out_or_not_there():
    growth = batches_of(vms("web-0", "web-1", **{"web-1": "stopped"}), "web", [{"name": "web", "size": 3}] * 2)
    assert [batch["guests"] for batch in growth["batches"]] == [["web-0"]]
    assert growth["left_out"] == ["web-1: it is stopped", "web-2: not among the guests of this run"]
    assert growth["absent"] == ["web-2"]


@pytest.mark.parametrize(
    ("group", "declared", "message"),
    [
        ("api", [{"name": "web"}], "group api is not declared; flexdisk_groups has web"),
        ("", [], "group  is not declared; flexdisk_groups has no group"),
        ("web", [{"name": "web", "size": 1}, {"name": "web", "size": 2}], "group web is declared in 2 ways"),
        ("web", [{"name": "web", "size": 1, "policy": {"max_batch": 1}}], 'policy has no option "max_batch"'),
        ("web", [{"name": "web", "size": 1, "policy": "x"}], "policy of group web is 'x', which is not a dictionary"),
        ("web", [{"name": "web", "size": "two"}], "size is 'two', which is not a whole number"),
    ],
)
def test_groups_that_are_refused(group, declared, message):
    growth = batches_of(WEB, group, declared)
    assert growth["batches"] == []
    assert message in " ".join(growth["problems"])


def test_hypervisors_that_may_declare_the_group():
    message = "these hypervisors of the VMs are not in this inventory: hv01, hv02"
    assert batches_of(WEB, "web", [], ["hv01", "hv02"])["problems"][1:] == [message]
    assert batches_of(WEB, "web", [{"name": "web", "size": 1}], ["hv01"])["problems"] == []


def test_a_name_that_two_vms_have_is_refused():
    other = {"0dd5e7c4": {"alias": "web-0", "hypervisor": "hv02", "state": "stopped"}}
    growth = batches_of({**WEB, **other}, "web", [{"name": "web", "size": 1}])
    assert (growth["batches"], growth["problems"]) == ([], ["web-0 is web-0 of hv01 and 0dd5e7c4 of hv02"])


GROWTH = {"batches": [{"guests": ["a", "b"]}, {"guests": ["c"]}], "left_out": ["d: it is stopped"], "absent": ["e"]}


def test_all_guests_are_named():
    assert guest_batches.lines(GROWTH, ["b"], ["c"]) == [
        "batch 1: a, b",
        "batch 2: c",
        "left out: d: it is stopped",
        "cannot be reached: b",
        "failed above: c",
    ]
    assert guest_batches.lines({"batches": [], "left_out": []}, [], []) == ["no guest is touched"]


@pytest.mark.parametrize(
    ("healthy", "of_all", "budget", "lost"),
    [
        ("ac", False, 0, ["b"]), ("ac", False, 1, []), ("ac", False, -1, []), ("abc", False, 0, []),
        ("abc", True, 0, ["e"]), ("ac", True, 1, ["b", "e"]), ("ac", True, 2, []),
    ],
)  # fmt: skip
def test_no_batch_is_begun_once_too_many_are_lost(healthy, of_all, budget, lost):
    assert guest_batches.too_many_lost({**GROWTH, "budget": budget}, healthy, of_all) == lost


def test_the_options_are_as_documented():
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    assert plain(options, told=True) == plain(action.ARGUMENTS)
