# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arithmetic of batches, durations and policies: what Heat's own functions gave, and where ours is stricter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import batches
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import (
    Amount,
    Limits,
    RollPolicy,
    parse_policy,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.durations import (
    parse_duration,
    parse_seconds,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

CASES = json.loads((Path(__file__).parents[1] / "data" / "rolling.json").read_text(encoding="utf-8"))
SIZES = st.integers(0, 30)

# -- batches


def test_whether_there_is_work_left_as_heat_sees_it():
    for case in CASES["needs_update"]:
        assert batches.needs_update(case["target"], case["current"], case["up_to_date"]) == case["result"], case


def test_the_next_batch_is_heats():
    columns = CASES["next_batch"]["columns"]
    for row in CASES["next_batch"]["rows"]:
        case = dict(zip(columns, row, strict=True))
        wanted = batches.Batch(case.pop("new_size"), case.pop("batch"))
        assert batches.next_batch(**case) == wanted, case


@pytest.mark.parametrize("case", CASES["degenerate"], ids=str)
@pytest.mark.parametrize("flavour", [batches.INDEXED, batches.ANONYMOUS])
def test_nothing_rolls_for_ever(case, flavour):
    figures = (case["current"], case["target"], case["min_in_service"], case["max_batch_size"], flavour)
    if case["max_batch_size"] < 1 or case["min_in_service"] < 0:
        with pytest.raises(FlexdiskError, match="must"):
            batches.sequence(*figures)
    else:
        steps = [list(step) for step in batches.sequence(*figures).batches]
        assert steps == case["first"] or flavour == batches.INDEXED


@given(SIZES, SIZES, SIZES, st.integers(1, 30), st.sampled_from([batches.INDEXED, batches.ANONYMOUS]))
def test_a_sequence_ends_holds_the_floor_and_the_batch(current, requested, least, most, flavour):
    found = batches.sequence(current, requested, least, most, flavour)
    size = current
    rolls_to = requested if flavour == batches.INDEXED else min(requested or current, current)
    for step in found.batches:
        assert 0 <= step.batch <= most
        assert step.size - step.batch >= min(least, rolls_to, size)
        assert step.size <= max(size, requested) + most
        size = step.size
    assert found.final_size == requested
    assert size == rolls_to


# -- durations


@pytest.mark.parametrize("case", CASES["iso_duration"], ids=lambda case: repr(case["input"]))
def test_durations_are_heats_but_for_its_two_accidents(case):
    text = case["input"]
    if "seconds" in case and text.isascii() and text == text.strip():
        assert parse_duration(text) == case["seconds"]
        assert (not parse_policy({"pause_time": text})[1]) == case["accepted_by_group_validate"]
    else:
        with pytest.raises(FlexdiskError, match="is not a duration"):
            parse_duration(text)


@pytest.mark.parametrize(
    "value", [True, None, -1, 1.5, "1.5", "-1", "", "1e3", "٣", "P1D", "9" * 10, "PT" + "9" * 10 + "S"]
)
def test_what_is_no_duration(value):
    with pytest.raises(FlexdiskError, match="is not a duration"):
        parse_seconds(value)


@pytest.mark.parametrize(("value", "seconds"), [(0, 0), (90, 90), ("90", 90), ("PT90S", 90), ("PT1M30S", 90)])
def test_seconds_are_written_in_two_ways(value, seconds):
    assert parse_seconds(value) == seconds


# -- policies


def messages(raw):
    return [problem.message for problem in parse_policy(raw)[1]]


def test_nothing_written_is_heats_default():
    assert parse_policy({}) == (RollPolicy(min_in_service=0, max_batch_size=1), [])
    assert parse_policy({"min_in_service": None})[0] == RollPolicy()
    assert RollPolicy().limits(4) == Limits(0, 1)


def test_every_option():
    raw = {
        "min_in_service": "2", "max_batch_size": 3, "pause_time": "PT1M", "max_down_per_host": 2,
        "max_members_per_host": 5, "canary": ["web-1"], "canary_pause": 90, "failure_budget": "25%",
        "on_failure": "continue", "action_ceiling": "recreate", "deadline": "PT2H",
    }  # fmt: skip
    policy, problems = parse_policy(raw)
    assert problems == []
    assert policy == RollPolicy(
        2, 3, None, None, 60, 2, 5, ("web-1",), 90, Amount(25, True), "continue", "recreate", deadline=7200
    )  # fmt: skip


@pytest.mark.parametrize(
    ("written", "size", "limits"),
    [
        ({"max_unavailable": 2, "max_surge": 0}, 12, Limits(10, 2)),
        ({"max_unavailable": "25%"}, 10, Limits(8, 2)),  # down
        ({"max_surge": "25%"}, 10, Limits(10, 3)),  # up
        ({"max_unavailable": "25%", "max_surge": "25%"}, 10, Limits(8, 5)),
        ({"max_unavailable": "10%"}, 4, Limits(3, 1)),  # 0 by rounding makes 1
        ({"max_unavailable": 9}, 4, Limits(0, 4)),
        ({"max_unavailable": "100%"}, 4, Limits(0, 4)),
        ({"max_surge": 1}, 0, Limits(0, 1)),
        ({"max_unavailable": "50%"}, 0, Limits(0, 1)),
    ],
)
def test_shares_of_a_group(written, size, limits):
    policy, problems = parse_policy(written)
    assert problems == []
    assert policy.limits(size) == limits


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"Foo": 1}, 'policy has no option "Foo"; it has min_in_service'),
        ({"min_in_service": 1, "max_surge": 1}, "policy takes min_in_service or max_surge, but not both"),
        (
            {"max_unavailable": 0, "max_surge": 0},
            "max_unavailable and max_surge are both 0, so no member could be changed",
        ),
        ({"max_unavailable": "0%"}, "max_unavailable and max_surge are both 0, so no member could be changed"),
        ({"min_in_service": -1}, "min_in_service: -1 is not a whole number of 0 or more"),
        ({"canary": []}, "canary: an empty list chooses no members; leave it out, or write 0"),
        ({"max_batch_size": 0}, "max_batch_size: 0 is not a whole number of 1 or more"),
        ({"max_batch_size": "1.5"}, "max_batch_size: '1.5' is not a whole number of 1 or more"),
        ({"max_batch_size": "abc"}, "max_batch_size: 'abc' is not a whole number of 1 or more"),
        ({"max_batch_size": True}, "max_batch_size: True is not a whole number of 1 or more"),
        ({"max_unavailable": "101%"}, "max_unavailable: 101% is more than 100%"),
        ({"max_unavailable": "٣%"}, "max_unavailable: '٣%' is not a whole number of 0 or more"),
        ({"pause_time": "PT61M"}, "pause_time: 3660 s is longer than a pause may be, 3600 s"),
        ({"pause_time": "ABCD1234"}, "pause_time: 'ABCD1234' is not a duration: write seconds, or PT1H30M5S"),
        ({"canary": ["a", "a"]}, "canary: ['a', 'a'] is not a list of different names of members"),
        ({"action_ceiling": "nothing"}, "action_ceiling: 'nothing' is none of live, restart, recreate"),
        ({"deadline": -1}, "deadline: -1 is not a duration: write seconds, or PT1H30M5S"),
    ],
)
def test_bad_policies(raw, said):
    found = messages(raw)
    assert len(found) == 1
    assert found[0].startswith(said)


def test_all_problems_of_a_policy_are_told_at_once():
    assert len(messages({"Foo": 1, "max_batch_size": 0, "pause_time": "x", "action_ceiling": "x"})) == 4
