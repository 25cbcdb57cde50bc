# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries of the journal as property values: what we write is read back, and nothing else is believed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal, property_text

PLAN = "0ab21b0c-66b5-4e04-a5c9-3ea52e5a4a4e"
MOVE = (2**64 - 1, "zones/u/disk1", "zones/flexdisk/x")
RECORD = Intent(PLAN, "node1", "2026-01-01T00:00:00Z", "running", True, True, ("stop", "~ a"), (MOVE,))


def told(**changes):
    return journal.decode(property_text.encode_text(json.dumps({**RECORD._asdict(), **changes})))


def test_what_is_written_is_read():
    text = journal.encode(RECORD._replace(steps=("stop", "~ \u00fc a\tb\nc\x7f\ud800")))
    assert journal.decode(text) == RECORD._replace(steps=("stop", "~ \u00fc a b c  "))
    assert text.isascii()
    assert text.isprintable()


def test_what_people_read_is_cut_to_what_zfs_holds():
    record = RECORD._replace(steps=("x\u00fc" * 4000,) * 90, moves=(MOVE,) * 500)
    text = journal.encode(record)
    assert len(text) <= property_text.LIMIT
    decoded = journal.decode(text)
    assert decoded is not None
    assert decoded._replace(steps=(), moves=()) == record._replace(steps=(), moves=())
    assert decoded.steps
    assert decoded.moves


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": ""}, {"plan": "x"}, {"plan": 1}, {"host": ""}, {"host": "a\nb"}, {"host": None}, {"host": "h" * 256},
        {"since": ""}, {"since": "yesterday"}, {"since": 5}, {"state": "-r"}, {"state": ""}, {"state": []},
        {"autoboot": "true"}, {"autoboot": 1}, {"stops": None}, {"stops": 0},
        {"steps": None}, {"steps": [1]},
        {"steps": ["\x00"]}, {"moves": [1]}, {"moves": [[1, "a"]]}, {"moves": [["1", "a", "b"]]},
        {"moves": [[1, "-r", "b"]]}, {"moves": [[1, "a", "b@c"]]}, {"moves": [[1, "a", "b\n"]]}, {"surplus": 1},
    ],
)  # fmt: skip
def test_one_wrong_part_spoils_it(changes):
    assert told() == RECORD
    assert told(**changes) is None


@pytest.mark.parametrize(
    "value", ["", "-", "x", "{}", "[]", "null", "1", "[" * 8000, '{"a":' * 1500, "%", "%ff", "1" * 5000]
)
def test_garbage(value):
    assert journal.decode(value) is None
    assert property_text.decode_tags(value) == {}


@given(st.text())
def test_any_text(text):
    journal.decode(text)
    journal.decode_index(text)


def test_the_index_names_vms_only():
    other = PLAN[:-1] + "f"
    assert journal.decode_index(journal.encode_index([other, PLAN])) == [PLAN, other]
    assert journal.decode_index(f"{PLAN},-r,../x,{PLAN.upper()},,{PLAN}") == [PLAN]
    assert journal.decode_index("") == []
