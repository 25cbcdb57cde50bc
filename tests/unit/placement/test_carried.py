# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What playbooks that carry out moves do, and say, before, between and after the jobs."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.carried import (
    Approved,
    Planned,
    done,
    failed,
    hosts_of_moves,
    involved_groups,
    overall_result,
    queued,
    why_not,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.execution import Wanted

from .test_execution import GONE, LEAVES, seen

BEGUN, STONE = seen(((1,), (LEAVES,))), seen(((), (GONE,)), None)
OPERATION = {"do": "move", "vm": "u", "from": "hv01", "to": "hv02"}
PLAN = {"jobs": [{"job": 1, "name": "a", "operations": [OPERATION], "depends": [], "needs": []}], "digest": "1f"}
MOVE = {**OPERATION, "name": "a", "why": ""}


def made(stage, hosts=(), plan=None, why_not="", digest="", check=False):
    return queued(stage, hosts, Wanted(), Planned(PLAN if plan is None else plan, why_not), Approved(digest, check), 5)


def names(queue):
    return [one["name"] for one in queue["hosts"]]


def test_the_plan_is_queued():
    queue = made("planned", digest="1f")
    assert names(queue) == ["planned, batch 1 of 1", "a to hv02 (planned 1)"]
    assert (queue["sizes"], queue["says"], queue["refused"], queue["unplanned"]) == ([2], [], "", "")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"digest": "2e"}, "the plan is another one now: its digest is 1f, not 2e"),
        ({"why_not": "no host", "plan": {}}, "no host"),
        ({"digest": "2e", "plan": {"jobs": [], "digest": "1f"}}, ""),
    ],
)
def test_another_plan_is_not_carried_out(given, why):
    """What has begun is looked after all the same, and the run fails at its end."""
    queue = made("planned", **given)
    assert (queue["hosts"], queue["unplanned"], queue["refused"]) == ([], why, "")
    left = made("left", BEGUN, {}, queue["unplanned"], given.get("digest", ""))
    assert (len(left["hosts"]), left["unplanned"], left["refused"]) == (2, why, "")


def test_what_has_begun_goes_on_first():
    """A word from an earlier playbook of the same run does not count."""
    queue = made("begun", BEGUN, {}, "of old")
    assert names(queue)[1] == "vm1 to hv02 (begun 1)"
    assert (queue["unplanned"], queue["says"]) == ("", [])
    assert "vm1 has left hv01 for hv02" in made("begun", STONE)["says"][0]
    assert made("left", STONE)["says"] == []


def test_what_has_begun_is_not_approved():
    words = "moves have begun that no plan has: vm1. Run it without flexdisk_move_digest."
    assert made("begun", BEGUN, digest="1f")["refused"] == words
    assert [made(stage, BEGUN, digest=digest)["refused"] for stage, digest in (("begun", ""), ("left", "1f"))] == [
        "",
        "",
    ]
    assert made("begun", seen(), digest="1f")["refused"] == ""


def test_check_mode_says_what_is_left_once():
    assert [len(made(stage, BEGUN, check=True)["hosts"]) for stage in ("begun", "left")] == [2, 0]


@pytest.mark.parametrize(
    ("move", "needs", "why"),
    [
        ({}, [], ""),
        ({}, ["fine"], ""),
        ({}, ["fine", "bad", "runs", "none"], "it needs that of bad and runs and none"),
        ({"do": "put_back", "why": "hv02 cannot be read"}, [], ""),
        ({"do": "nothing", "why": "hv01 cannot be read"}, [], "hv01 cannot be read"),
    ],
)
def test_a_job_begins_when_those_that_it_needs_have_ended_well(move, needs, why):
    """One that has ended badly has not made the room that the next one takes."""
    ended = {"fine": {"fine": True}, "bad": {"fine": False}, "runs": None}
    assert why_not({"move": {**MOVE, **move}, "needs": needs}, ended) == why


@pytest.mark.parametrize(
    ("do", "check", "downtime", "outlook", "words"),
    [
        ("move", False, 1.5, None, "moved, down for 1.5 s"),
        ("move", False, 0, None, "moved, down for 0 s"),
        ("move", False, None, None, "moved"),
        ("move", True, None, {"downtime": "about 2 s"}, "can move, downtime about 2 s"),
        ("move", True, None, None, "can move"),
        ("put_back", False, None, None, "put back: why"),
        ("put_back", True, None, None, "would be put back: why"),
    ],
)
def test_what_became_of_a_job(do, check, downtime, outlook, words):
    assert done({**MOVE, "do": do, "why": "why"}, check, downtime, outlook) == {"fine": True, "words": words}


def test_a_lost_memory_stands_in_the_table():
    """Who moves many VMs sees which have booted."""
    words = done(MOVE, False, 12.3, None, "it lacks it")["words"]
    assert words == "moved, down for 12.3 s; memory lost, so it has booted: it lacks it"


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"msg": "it\n  fails"}, "it fails"),
        ({}, "failed"),
        ({"msg": "all", "results": [{"msg": "a", "failed": True}, {"msg": "b"}, {"failed": True}]}, "a failed"),
        ({"msg": "all", "results": [{"msg": "b"}]}, "all"),
    ],
)
def test_why_a_job_failed(result, words):
    assert failed(result) == {"fine": False, "words": words}


def test_what_became_of_all():
    head, job = ({"says": "a"}, None), {"move": MOVE}
    ended = overall_result([head, (job, {"fine": True, "words": "moved"})], "")
    assert ended == {"table": ["VM  FROM  TO    RESULT", "a   hv01  hv02  moved"], "failure": ""}
    cut = overall_result([(job, None), (job, {"fine": False, "words": "x"})], "")
    assert cut["failure"] == "not all has been done: a. Run the playbook again."
    assert cut["table"][1].endswith("a host could not be reached any more")
    assert overall_result([], "") == {"table": "no VM moves", "failure": ""}
    assert overall_result([(job, None)], "no host")["failure"] == "no host"


GROUPS = {"hv01": "a", "hv02": "a", "hv03": "b", "hv04": ""}


@pytest.mark.parametrize(
    ("request_", "wanted", "to_groups", "groups"),
    [
        ("evacuate", {"hosts": ["hv01"]}, [], ["a"]),
        ("evacuate", {"hosts": ["hv03"], "groups": ["c"]}, ["d"], ["b", "c", "d"]),
        ("evacuate", {}, [], ["a", "b", ""]),
        ("rebalance", {"groups": ["b"]}, [], ["b"]),
        ("change_group", {"groups": ["b"]}, [], ["a", "b", ""]),
        ("change_group", {"groups": ["b"]}, ["a"], ["b", "a"]),
        ("change_group", {"vms": ["web"]}, ["c"], ["a", "b", "", "c"]),
        ("evacuate", {"hosts": ["hv01", "hv09"]}, [], ["a", "b", ""]),  # the plan says that there is no hv09
    ],
)
def test_which_host_groups_are_read_for_a_plan(request_, wanted, to_groups, groups):
    assert involved_groups(request_, Wanted(**wanted), to_groups, GROUPS) == groups


def test_which_other_hosts_have_to_do_with_moves_that_have_begun():
    moves = [{"host": "hv03"}, {"host": "hv02"}, {"host": "hv03"}, {"host": "hv09"}]
    hosts = [{"name": "hv01", "info": {"moves": moves}}, {"name": "hv02", "info": None}]
    assert hosts_of_moves(hosts, {"hv03", "hv04"}) == ["hv03"]
