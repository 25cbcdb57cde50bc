# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One codec for JSON in properties, one format of times, one set of words for the steps of a run that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan.steps import PlanOutcome, status_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal, lease
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.property_text import (
    LIMIT,
    decode_object,
    encode_object,
)

HOUSE = Path(__file__).resolve().parents[3] / "plugins" / "module_utils" / "_flexdisk"
PLAN = TOKEN = "8f2b0c1e-5a7d-4e3f-9b6a-1c2d3e4f5a6b"
# As they were written before keys were sorted
OLD_LEASE = (
    f'{{"token":"{TOKEN}","holder":"ops@controller","since":"2026-11-27T10:00:00Z",'
    '"renewed":"2026-11-27T10:05:00Z","ttl":1800}'
)
OLD_ENTRY = (
    f'{{"plan":"{PLAN}","host":"hv01","since":"2026-11-27T10:00:00Z","state":"running","autoboot":true,"stops":false,'
    '"steps":["grow data to 20GiB"],"moves":[]}'
)


@pytest.mark.parametrize(
    ("text", "room"),
    [("%Y-%m-%dT%H:%M:%SZ", "rules/identity.py"), ("json.loads(decode_text", "rules/property_text.py"),
     ('"not done"', "plan/steps.py")],
)  # fmt: skip
def test_it_stands_in_one_file(text, room):
    places = [path.relative_to(HOUSE).as_posix() for path in HOUSE.rglob("*.py") if text in path.read_text()]
    assert [place for place in places if place != "engine/modules/disk_verify.py" or text != '"not done"'] == [room]


def test_a_lease_that_was_written_before_is_read():
    read = lease.decode(OLD_LEASE)
    assert read is not None
    assert (read.token, read.ttl, read.expires - read.renewed) == (TOKEN, 1800, 1800)
    assert lease.decode(lease.encode(read)) == read


def test_an_entry_of_the_journal_that_was_written_before_is_read():
    read = journal.decode(OLD_ENTRY)
    assert read == Intent(
        plan=PLAN, host="hv01", since="2026-11-27T10:00:00Z", state="running", autoboot=True, stops=False,
        steps=("grow data to 20GiB",), moves=(),
    )  # fmt: skip
    assert journal.decode(journal.encode(read)) == read


@pytest.mark.parametrize("value", ["", "x", "[]", "1", "null", "[" * 100_000, '{"a":', "%"])
def test_what_is_no_object_is_refused(value):
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        decode_object(value)


def test_an_object_comes_back():
    data = {"b": "\u00fc %", "a": [1, {"c": None}]}
    value = encode_object("it", data)
    assert value.isascii()
    assert list(decode_object(value)) == ["a", "b"]
    assert decode_object(value) == data
    with pytest.raises(FlexdiskError, match=f"it takes [0-9]+ bytes as a ZFS user property; the limit is {LIMIT}"):
        encode_object("it", {"a": "x" * LIMIT})


def test_words_for_steps():
    assert [status_of(number, 1) for number in range(3)] == ["done", "failed", "not done"]
    assert [PlanOutcome(-1, False).status(number) for number in range(2)] == ["not done", "not done"]
