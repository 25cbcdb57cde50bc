# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which snapshots a retention rule keeps, what is one of ours, what one holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import pins, snapshots
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import VmSnapshot

MIB = 1 << 20


def taken(*moments: str) -> list[VmSnapshot]:
    result = []
    for number, moment in enumerate(moments):
        seconds = int(datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp())
        part = Dataset(f"zones/vm@vmsnap-{moment}", "snapshot", createtxg=number + 1, creation=seconds)
        result.append(VmSnapshot(moment, (part,)))
    return result


NIGHTS = taken(
    "2026-01-26 01:00",  # a Monday
    "2026-02-01 01:00",
    "2026-02-02 01:00",
    "2026-02-07 01:00",
    "2026-02-08 01:00",
    "2026-02-08 12:00",
    "2026-02-10 23:59",
    "2026-02-11 00:00",
)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ((2, 0, 0), {"2026-02-10 23:59", "2026-02-11 00:00"}),
        ((0, 3, 0), {"2026-02-11 00:00", "2026-02-10 23:59", "2026-02-08 12:00"}),
        ((0, 0, 2), {"2026-02-11 00:00", "2026-02-08 12:00"}),
        ((0, 0, 9), {"2026-02-11 00:00", "2026-02-08 12:00", "2026-02-01 01:00"}),
        ((1, 1, 1), {"2026-02-11 00:00"}),
        ((0, 0, 0), {"2026-02-11 00:00"}),
    ],
)
def test_what_a_rule_keeps(rule, expected):
    assert snapshots.retained(NIGHTS, *rule) == expected
    assert snapshots.retained(NIGHTS[::-1], *rule) == expected


def test_a_week_belongs_to_one_year_alone():
    """The last days of 2024 are in the first week of 2025, and the first days of 2027 in the last week of 2026."""
    turns = taken("2024-01-02", "2024-12-30", "2025-01-05", "2026-12-31", "2027-01-03", "2027-12-31")
    assert snapshots.retained(turns, 0, 0, 9) == {"2024-01-02", "2025-01-05", "2027-01-03", "2027-12-31"}
    assert snapshots.retained(turns[:2], 0, 0, 9) == {"2024-01-02", "2024-12-30"}


NUMBERS = st.integers(0, 12)


@given(st.lists(st.integers(1_700_000_000, 1_710_000_000), max_size=30), NUMBERS, NUMBERS, NUMBERS)
def test_a_rule_keeps_the_newest_and_never_more_than_it_says(moments, last, daily, weekly):
    """Whatever the clocks said: a VM that has moved has snapshots by those of two hosts."""
    every = [
        VmSnapshot(f"s{n}", (Dataset(f"zones/vm@vmsnap-s{n}", "snapshot", createtxg=n + 1, creation=moment),))
        for n, moment in enumerate(moments)
    ]
    retained = snapshots.retained(every, last, daily, weekly)
    assert len(retained) <= max(1, last) + daily + weekly
    assert {s.name for s in every[-max(1, last) :]} <= retained
    again = [s for s in every if s.name in retained]
    assert snapshots.retained(again, last, daily, weekly) == retained


def test_what_one_takes_and_gives_back():
    thick = Dataset("p/v", "volume", volsize=64 * MIB, refreservation=66 * MIB, written=40 * MIB)
    assert pins.charge(thick) == 40 * MIB
    assert pins.charge(Dataset("p/v", "volume", volsize=64 * MIB, written=40 * MIB)) == 0
    first = Dataset("p/v@a", "snapshot", createtxg=1, used=3 * MIB, written=30 * MIB)
    last = Dataset("p/v@b", "snapshot", createtxg=2, used=1 * MIB, written=8 * MIB)
    assert pins.frees(thick, (first, last), first) == 3 * MIB
    assert pins.frees(thick, (first, last), last) == 8 * MIB
    assert pins.content_bytes((first, last)) == 38 * MIB


def moved(fact: str, *parts: tuple[int, int]) -> VmSnapshot:
    """A snapshot of a VM with this property; guid and createtxg of each part."""
    names = ("p/vm", *(f"p/vm/disk{number}" for number in range(len(parts) - 1)))
    result = [
        Dataset(f"{name}@vmsnap-one", "snapshot", guid=guid, createtxg=createtxg, creation=9)
        for name, (guid, createtxg) in zip(names, parts, strict=True)
    ]
    return VmSnapshot("one", (replace(result[0], user={snapshots.PARTS_PROPERTY: fact}), *result[1:]))


def test_what_belongs_together_after_a_move():
    """The guids say it, for the transaction groups are those of the receives."""
    fact = snapshots.encode(snapshots.Origin(5, (21, 22)))
    result = moved(fact, (1, 40), (21, 30), (22, 31), (23, 32))
    assert [part.name for part in result.strange] == ["p/vm/disk2@vmsnap-one"]
    assert result.creation == 5
    assert snapshots.origin_of(result) == snapshots.Origin(5, (21, 22))


@pytest.mark.parametrize(
    "fact", ["", "5", "x=15,", "5=15", "5=,", "5=15,;", "5=15,\n", "99999999999=", "5=" + "1" * 17 + ","]
)
def test_what_others_wrote_says_nothing(fact):
    result = moved(fact, (1, 40), (0x15, 30))
    assert (result.origin, result.creation, len(result.strange)) == (None, 9, 1)


@given(st.integers(0, 9_999_999_999), st.lists(st.integers(0, (1 << 64) - 1)).map(tuple))
def test_an_origin_is_read_as_it_was_written(creation, guids):
    origin = snapshots.Origin(creation, guids)
    assert snapshots.decode(snapshots.encode(origin)) == origin


@pytest.mark.parametrize("name", ["a", "1", "x" * 64, "a.b-c_d:e%f"])
def test_names(name):
    assert snapshots.check_name(name) == name
    assert snapshots.is_name(name)
