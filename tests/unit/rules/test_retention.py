# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which sets of snapshots a host retains: what the policy says, whatever its clock does."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.retention import (
    MOST_RETAINED,
    PERIODS,
    DatedSet,
    Keep,
    RetainCounts,
    decode_keep,
    encode_keep,
    read_counts,
    retained,
)

HOUR, DAY = 3600, 86400
START = 1767225600  # 2026-01-01 00:00 UTC, a Thursday
COUNTS = st.builds(RetainCounts, *(st.integers(0, 5) for _kind in RetainCounts._fields))
STEPS = st.lists(st.sampled_from([0, 60, 900, HOUR, 5 * HOUR, DAY, 9 * DAY]), max_size=60)
JUMPS = st.lists(st.sampled_from([-400 * DAY, -DAY, -HOUR, -60, 0, 900, HOUR, DAY, 400 * DAY]), max_size=60)


def sets(steps):
    """Sets after these steps of the clock."""
    moment, result = START, []
    for number, step in enumerate(steps):
        moment = max(1, moment + step)
        result.append(DatedSet(f"s{number}", moment))
    return result


def as_the_policy_says(ordered, counts):
    """Written down anew, for a clock that goes on: each of the last periods that have sets keeps its newest one."""
    wanted = {one.name for one in ordered[-max(1, counts.last) :]} if ordered else set()
    for period, form in PERIODS.items():
        newest = {datetime.fromtimestamp(one.time, UTC).strftime(form): one.name for one in ordered}
        last = list(newest.values())
        wanted |= set(last[max(0, len(last) - getattr(counts, period)) :])
    return wanted


@given(steps=STEPS, counts=COUNTS)
def test_what_is_kept_is_what_the_policy_says(steps, counts):
    ordered = sets(steps)
    assert retained(ordered, counts) == as_the_policy_says(ordered, counts)


@given(steps=STEPS, counts=COUNTS)
def test_at_each_instant_as_if_nothing_had_ever_gone(steps, counts):
    """Sets go one sync at a time. What is left is what the whole history would have left."""
    ordered, there = sets(steps), []
    for number, one in enumerate(ordered, 1):
        there = [*there, one]
        names = retained(there, counts)
        there = [each for each in there if each.name in names]
        assert names == as_the_policy_says(ordered[:number], counts)


@given(steps=JUMPS, counts=COUNTS)
def test_the_newest_always_stays(steps, counts):
    """Whatever the clock did: it is the base of the next increment."""
    ordered = sets(steps)
    names = retained(ordered, counts)
    assert not ordered or ordered[-1].name in names
    assert (
        len({*names} & {one.name for one in ordered[-counts.last :]}) == min(counts.last, len(ordered))
        or not counts.last
    )


@given(before=JUMPS, after=JUMPS, counts=COUNTS, back=st.integers(1, 900 * DAY))
def test_a_clock_that_was_set_back_destroys_nothing(before, after, counts, back):
    """What stays before, stays after any number of sets that claim to be older, apart from what order alone counts."""
    ordered = sets(before)
    counts = counts._replace(last=0)
    names = retained(ordered, counts) - {one.name for one in ordered[-1:]}
    there = [one for one in ordered if one.name in names or one is ordered[-1]]
    oldest = min((one.time for one in there), default=START)
    moment = oldest - back
    for number, step in enumerate(after):
        moment = min(oldest - 1, moment + step)
        there = [*there, DatedSet(f"later{number}", moment)]
        stay = retained(there, counts)
        assert names <= stay
        there = [each for each in there if each.name in stay]


@given(steps=JUMPS, jump=st.integers(1, 900 * DAY), counts=COUNTS)
def test_one_set_from_the_future_pushes_nothing_out(steps, jump, counts):
    """The clock was right again with the next set: without the odd one, the same sets stay."""
    ordered = sets([abs(step) for step in steps])
    if not ordered:
        return
    counts = counts._replace(last=0)
    last = ordered[-1]
    odd = [*ordered[:-1], DatedSet("future", last.time + jump), last]
    assert retained(ordered, counts) <= retained(odd, counts)


def test_a_day_of_quarters():
    """Hours keep their last set, whose minutes are 45."""
    ordered = [DatedSet(f"s{number}", START + number * 900) for number in range(4 * 48 + 1)]
    names = retained(ordered, RetainCounts(hourly=3, daily=2))
    assert names == {"s192", "s191", "s187"}  # 00:00 of the third day is an hour and a day of its own
    assert retained(ordered, RetainCounts(daily=3)) == {"s192", "s191", "s95"}
    assert retained(ordered, RetainCounts()) == {"s192"}
    assert retained(ordered, RetainCounts(last=2)) == {"s192", "s191"}
    assert retained([], RetainCounts(daily=3)) == set()


@given(keep=st.builds(Keep, COUNTS, COUNTS))
def test_text(keep):
    assert decode_keep(encode_keep(keep)) == keep


@pytest.mark.parametrize("text", ["", "x", "hourly=24", "a/b/c", "hourly=-1/", "hourly=99999/", "none/none"])
def test_other_text_keeps_the_newest_set_only(text):
    assert decode_keep(text) == Keep()
    assert encode_keep(Keep()) == ""
    assert decode_keep("hourly=9999/").replica.hourly == MOST_RETAINED


@pytest.mark.parametrize(
    ("given_counts", "text"),
    [
        ({"hour": 1, "day": 2}, "it has day, hour, but can have last, hourly, daily, weekly, monthly"),
        ({"daily": -1}, "daily is -1, but must be a number from 0 to 1000"),
        ({"daily": True}, "daily is True, but must be"),
        ({"daily": 1001}, "daily is 1001, but must be"),
        ({"daily": 0}, "it needs a number above 0"),
        ({}, "it needs a number above 0"),
    ],
)
def test_what_is_no_policy(given_counts, text):
    with pytest.raises(ValueError, match=text):
        read_counts(given_counts)
    assert read_counts({"daily": 2, "hourly": None}) == RetainCounts(daily=2)


@given(steps=STEPS, place=st.integers(0, 60), counts=COUNTS)
def test_a_set_without_a_time_stays_and_pushes_nothing_out(steps, place, counts):
    ordered = sets(steps)
    odd = [*ordered[:place], DatedSet("undated", 0), *ordered[place:]]
    assert retained(odd, counts) == retained(ordered, counts) | {"undated"}
