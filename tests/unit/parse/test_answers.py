# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the variables of a playbook mean, as Ansible hands them over, and which have lost their meaning."""

from __future__ import annotations

import datetime
import math

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse.answers import meant
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers, read

NAMES = {"type": "list", "elements": "str"}
KEEP = {"type": "dict", "options": {"last": {"type": "int"}, "note": {"type": "str"}}}
ENTRIES = {"type": "list", "elements": "dict", "options": {"vm": {"type": "str"}, "index": {"type": "int"}}}
DAY = datetime.date(2026, 11, 23)


def one(wanted, value, **options):
    """The value that is meant, or what is wrong."""
    values, problems = meant({"x": wanted}, {"x": value}, read, **options)
    assert len(values) + len(problems) <= 1
    return values["x"] if values else problems.get("x")


@pytest.mark.parametrize(
    ("wanted", "value", "expected"),
    [
        ({}, "web01", "web01"),
        ({}, "007", "007"),
        ({}, '"4:1"', "4:1"),
        ({}, "'2026-11-23'", "2026-11-23"),
        ({}, '"', '"'),
        ({}, '"a" or "b"', '"a" or "b"'),
        ({}, "None", "None"),
        ({}, "null", "null"),
        ({"type": "path"}, '"/srv/1"', "/srv/1"),
        ({"type": "bool"}, "no", False),
        ({"type": "bool"}, "True", True),
        ({"type": "bool"}, "On", True),
        ({"type": "bool"}, True, True),
        ({"type": "bool"}, 0, False),
        ({"type": "bool"}, 1, True),
        ({"type": "bool"}, "maybe", "maybe"),
        ({"type": "bool"}, 2, 2),
        ({"type": "int"}, "12", 12),
        ({"type": "int"}, " -3 ", -3),
        ({"type": "int"}, 241, 241),
        ({"type": "int"}, "0", 0),
        ({"type": "int"}, "many", "many"),
        ({"type": "float"}, "0.25", 0.25),
        ({"type": "float"}, "3", 3),
        ({"type": "float"}, 1.5, 1.5),
        ({"type": "raw"}, 50, 50),
        ({"type": "raw"}, "50GiB", "50GiB"),
        (NAMES, "web01", ["web01"]),
        (NAMES, "web01, web02", ["web01", "web02"]),
        (NAMES, "web01\nweb02\n", ["web01", "web02"]),
        (NAMES, '["web01", "web02"]', ["web01", "web02"]),
        (NAMES, "[4:1, 0123, no, 2026-11-23, 2024_11_23]", ["4:1", "0123", "no", "2026-11-23", "2024_11_23"]),
        (NAMES, "- web01\n- 12", ["web01", "12"]),
        (NAMES, '"4:1", "no"', ["4:1", "no"]),
        (NAMES, ["web01", "007"], ["web01", "007"]),
        (NAMES, [], []),
        ({"type": "list", "elements": "int"}, "1, 2", [1, 2]),
        ({"type": "list", "elements": "int"}, 7, [7]),
        (ENTRIES, '[{"vm": "web01", "index": 1}]', [{"vm": "web01", "index": 1}]),
        (ENTRIES, "- vm: 12\n  index: 1", [{"vm": "12", "index": 1}]),
        (ENTRIES, "- vm: 4:1\n  index: '1'", [{"vm": "4:1", "index": 1}]),
        (ENTRIES, '{"vm": "web01"}', [{"vm": "web01"}]),
        (ENTRIES, [{"vm": "web01", "index": None}], [{"vm": "web01"}]),
        (KEEP, '{"last": 7}', {"last": 7}),
        (KEEP, "last: 7\nnote: 2026-11-23", {"last": 7, "note": "2026-11-23"}),
        (KEEP, {"last": "7", "note": None}, {"last": 7}),
        ({"type": "dict"}, {"role": None, "tier": True, "n": 4}, {"role": None, "tier": True, "n": 4}),
        ({"type": "dict"}, '{"role": null}', {"role": None}),
        ({"type": "dict"}, "role=db,tier=a:b", {"role": "db", "tier": "a:b"}),
        ({"type": "dict"}, "hv01=kb3d9a40c5517e28", {"hv01": "kb3d9a40c5517e28"}),
        ({"type": "dict"}, "role='a b'", "role='a b'"),
        (KEEP, "last=7,note=4:1", {"last": 7, "note": "4:1"}),
    ],
)  # fmt: skip
def test_what_can_be_understood(wanted, value, expected):
    value_read = one(wanted, value)
    assert value_read == expected
    assert isinstance(value_read, bool) == isinstance(expected, bool)


KINDS = ["str", "path", "bool", "int", "float", "list", "dict", "raw"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_not_given_is_none(kind):
    assert one({"type": kind}, None) is None


@pytest.mark.parametrize("value", ["", "  ", "\n"])
@pytest.mark.parametrize("kind", KINDS)
def test_empty_text_is_refused(kind, value):
    """It may be a variable of a shell that is not set, and must not mean all, or the default."""
    for wanted in ({"type": kind}, {"type": kind, "as_is": True}, {"type": kind, "filled": True}):
        assert one(wanted, value) == "x is empty. Leave it out instead"
    for options in (KEEP, ENTRIES):
        entry = {"note": value} if options is KEEP else [{"vm": value}]
        assert one(options, entry).endswith(" is empty. Leave it out instead")


@pytest.mark.parametrize(
    ("wanted", "value", "text"),
    [
        ({}, 241, ["number 241", "241, 4:1 or 0361", """'{"x": "241"}'"""]),
        ({}, 7, ["number 7", "7 or 07"]),
        ({}, -7, ["-7 or -07"]),
        ({}, 20241123, ["number 20241123", "yet another way", '"20241123"']),
        ({}, 1.5, ["number 1.5"]),
        ({}, math.inf, ["number inf"]),
        ({}, False, ["truth value false", "false, no or off"]),
        ({}, True, ["truth value true", "true, yes or on"]),
        ({}, DAY, ["date 2026-11-23", '"2026-11-23"']),
        ({}, datetime.datetime(2026, 11, 23, 10), ["date 2026-11-23T10:00:00"]),
        ({}, ["a"], ["must be text, but is a list"]),
        ({}, {"a": 1}, ["must be text, but is a dictionary"]),
        ({"type": "path"}, 12, ["number 12"]),
        ({"type": "int"}, True, ["must be a number", "truth value true"]),
        ({"type": "int"}, DAY, ["date"]),
        ({"type": "int"}, "0123", ["0123", "without zeros"]),
        ({"type": "int"}, "1e3", ["1e3", "digits only"]),
        ({"type": "int"}, "1_000", ["1_000", "digits only"]),
        ({"type": "int"}, "5.0", ["5.0", "digits only"]),
        ({"type": "int"}, "inf", ["inf", "digits only"]),
        ({"type": "float"}, "nan", ["nan", "digits only"]),
        ({"type": "float"}, "1e3", ["1e3", "digits only"]),
        ({"type": "float"}, math.nan, ["nan", "no number"]),
        ({"type": "float"}, False, ["must be a number"]),
        ({"type": "raw"}, DAY, ["date"]),
        ({"type": "raw"}, False, ["truth value false", "false, no or off"]),
        ({"type": "raw"}, [{"at": DAY}], ["x[0].at", "date"]),
        (NAMES, 11111111, ["x[0]", "11111111"]),
        (NAMES, ["a", False], ["x[1]", "truth value false"]),
        (NAMES, ["a", None], ["x[1] is empty"]),
        (NAMES, "a,,b", ["x[1] is empty"]),
        (NAMES, '["a", ', ["x must be a list", "neither JSON nor YAML"]),
        (NAMES, DAY, ["date"]),
        (ENTRIES, [{"vm": 241}], ["x[0].vm", "number 241"]),
        (KEEP, '{"last": ', ["x must be a dict", "neither JSON nor YAML"]),
        (KEEP, {"note": 12}, ["x.note", "number 12"]),
        (KEEP, 12, ["x must be a dictionary, but is 12"]),
        (KEEP, "daily", ["x must be a dictionary, but is 'daily'"]),
        (ENTRIES, [{"vm": "a"}, "web01"], ["x[1] must be a dictionary, but is 'web01'"]),
        ({"type": "dict"}, {"since": DAY}, ["x.since", "date"]),
        ({"type": "str", "no_log": True}, 12, ["must be text"]),
    ],
)  # fmt: skip
def test_what_has_lost_its_meaning(wanted, value, text):
    message = one(wanted, value)
    assert isinstance(message, str)
    assert [word for word in text if word not in message] == [], message


def test_names_have_no_hidden_characters():
    message = 'x "web[U+202E]01" has [U+202E]: a name has no control characters and no invisible ones'
    assert one({}, "web\u202e01") == message
    assert one(NAMES, ["a", "web\u202e01"]) == message.replace("x ", "x[1] ", 1)
    assert one(ENTRIES, [{"vm": "web\u202e01"}]) == message.replace("x ", "x[0].vm ", 1)
    assert one({"free": True}, "a\nb\u202e") == "a\nb\u202e"
    assert one({"no_log": True}, "a\nb") == "a\nb"


def test_a_slot_is_shown_as_one():
    message = meant({"pci_slot": {}}, {"pci_slot": 241}, read)[1]["pci_slot"]
    assert '"4:1"' in message
    assert """-e '{"pci_slot": "4:1"}'""" in message


def test_a_secret_is_not_shown():
    assert "4711" not in one({"no_log": True}, 4711)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("list", [], "x is an empty list. Leave it out instead"),
        ("dict", {}, "x is an empty dictionary. Leave it out instead"),
        ("raw", [], "x is an empty list. Leave it out instead"),
        ("raw", {}, "x is an empty dictionary. Leave it out instead"),
        ("raw", 0, "x is 0, which chooses nothing. Leave it out instead"),
    ],
)
def test_a_choice_is_not_empty(kind, value, message):
    """Hosts must not become all hosts with it."""
    assert one({"type": kind, "filled": True}, value) == message
    assert one({"type": kind, "filled": True}, None) is None
    assert one({"type": "dict", "options": {"y": {"type": kind, "filled": True}}}, {"y": value}) == "x.y" + message[1:]
    assert "truth value" in one({"type": "raw", "filled": True}, False)


def test_a_list_of_choices_that_nobody_has_answered_is_none():
    """AWX makes an empty list of it."""
    assert one({**NAMES, "choices": ["a"]}, []) is None
    assert one(NAMES, []) == []


@pytest.mark.parametrize(
    ("wanted", "value", "fine"),
    [
        (NAMES, "a,b", True),
        (NAMES, ["a"], True),
        (NAMES, '["a"]', False),
        (NAMES, "a\nb", False),
        (ENTRIES, '[{"vm": "web01"}]', False),
        (ENTRIES, [{"vm": "web01"}], True),
        (ENTRIES, "web01", False),
        ({"type": "bool"}, "false", True),
        ({"type": "int"}, "12", True),
        ({"type": "str"}, "web01", True),
        ({"type": "str"}, '"1"', False),
        ({"type": "str"}, 1, False),
        ({"type": "str"}, None, False),
        (KEEP, '{"last": 7}', False),
        ({"type": "dict"}, "a=b", True),
    ],
)
def test_what_roles_read_stays_as_it_is(wanted, value, fine):
    values, problems = meant({"x": {**wanted, "as_is": True}}, {"x": value}, read)
    assert (list(values), list(problems)) == ((["x"], []) if fine else ([], ["x"]))


def test_the_filter_says_all_that_is_wrong():
    specification = {
        "vm": {"type": "str", "required": True},
        "disk": {"type": "str", "required": True},
        "slot": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["there", "gone"]},
        "size": {"type": "int"},
    }
    checked = answers(
        {"vm": None, "disk": '"no"', "slot": 241, "state": "here", "size": "big", "other": 1}, specification
    )
    assert checked["variables"] == {"disk": "no", "state": "here", "size": "big"}
    problems = checked["problems"]
    assert len(problems) == 4, problems
    assert "slot must be text" in problems[0]
    assert "missing required arguments: vm" in problems[1:]
    assert [word for word in ("there, gone", "size", "big") if word not in " ".join(problems)] == []


DURATION = {"type": "int", "duration": True, "least": 1, "most": 86400}


@pytest.mark.parametrize(
    ("value", "seconds"), [(90, 90), ("90", 90), ("PT1M30S", 90), (" PT1M30S ", 90), ("PT24H", 86400)]
)
def test_a_duration_becomes_seconds(value, seconds):
    assert answers({"x": value}, {"x": DURATION}) == {"variables": {"x": seconds}, "problems": []}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("P1D", "x: 'P1D' is not a duration: write PT1H30M5S"),
        ("PT", "x is 0, but must be 1 to 86400"),
        ("PT25H", "x is 90000, but must be 1 to 86400"),
        (True, "x must be a number, but has arrived as the truth value true"),
        ("3m", "x: '3m' is not a duration: write seconds, or PT1H30M5S"),
    ],
)
def test_what_is_no_duration_is_refused(value, message):
    (problem,) = answers({"x": value}, {"x": DURATION})["problems"]
    assert message in problem
