# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter match_disks: the worked cases, input errors, its own warnings, its examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from hypothesis import given
from hypothesis import strategies as st
from jinja2.nativetypes import NativeEnvironment

from ansible_collections.flexdisk.hypervisor.plugins.filter import match_disks as plugin
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.instance_group_matching import (
    Birth,
    max_retention,
)

UNIT = Path(__file__).resolve().parent.parent
SPEC_KEYS = {
    "type_id": "type",
    "image_id": "image",
    "snapshot_id": "snapshot",
    "size": "size",
    "description": "description",
    "preserve_after_instance_delete": "preserve",
}
# Limits of that cloud: such input maps like any other here.
NO_ERROR_HERE = {"TOO_MANY_DISKS": ([[0, 0]], [1, 2, 3]), "SIZE_RANGE": ([], [0])}


def cases():
    text = (UNIT / "data" / "disk_mapping.json").read_text(encoding="utf-8")
    return json.loads(text)["cases"]


CASES = cases()
MAPPED = [case for case in CASES if "expected" in case]
by_id = {"ids": lambda case: case["id"]}


def match_disks(*args, **kwargs):
    return plugin.FilterModule().filters()["match_disks"](*args, **kwargs)


def translate(disk):
    """A disk of the cases in our field names."""
    ours = {key: value for key, value in disk.items() if key != "disk_spec"}
    ours.update({SPEC_KEYS[key]: value for key, value in disk["disk_spec"].items()})
    return ours


def lists(case):
    return [translate(d) for d in case["current"]], [translate(d) for d in case["desired"]]


def changes(entries):
    return [
        {
            "current": entry["current"],
            "desired": entry["desired"],
            "changes": {SPEC_KEYS.get(field, field): change for field, change in entry["fields"].items()},
        }
        for entry in entries
    ]


def codes(result):
    return [warning["code"] for warning in result["warnings"]]


def assert_as_expected(result, case):
    expected = case["expected"]
    assert result == {
        "mapping": expected["mapping"],
        "updates": changes(expected["updates"]),
        "attachment_changes": changes(expected["attachment_changes"]),
        "creates": expected["creates"],
        "deletes": [{"current": d["current"], "preserved": d["preserved"]} for d in expected["deletes"]],
        "recreated": expected["recreated_same_name"],
        "warnings": result["warnings"],
    }
    assert sorted(codes(result)) == sorted(set(case["planner_warnings"]) - {"VM_RECREATE"})


def test_all_cases_are_here():
    assert len(CASES) == 50
    assert len(MAPPED) == 47


@pytest.mark.parametrize("case", MAPPED, **by_id)
def test_case(case):
    matching = "name" if case["algorithm"] == "by_name" else "order"
    assert_as_expected(match_disks(*lists(case), matching=matching), case)


@pytest.mark.parametrize("case", MAPPED, **by_id)
def test_case_by_default(case):
    """No case by parameters has names on both sides, so that matching by name is first fit for all of them."""
    assert_as_expected(match_disks(*lists(case)), case)


@pytest.mark.parametrize("case", [case for case in MAPPED if "max_retention" in case], **by_id)
def test_case_of_keeping_most(case):
    current, desired = (
        [Birth(d["type"], d.get("image"), d.get("snapshot"), int(d["size"])) for d in disks] for disks in lists(case)
    )
    assert [list(pair) for pair in max_retention(current, desired)] == case["max_retention"]["mapping"]
    warnings = {w["code"]: w for w in match_disks(*lists(case), matching="order")["warnings"]}
    lost, least = case["bytes_lost"]["expected"], case["bytes_lost"]["max_retention"]
    assert warnings.get("DATA_LOSS", {"size": 0})["size"] == lost
    if lost > least:
        assert warnings["AVOIDABLE_LOSS"]["size"] == lost - least
        assert warnings["AVOIDABLE_LOSS"]["mapping"] == case["max_retention"]["mapping"]


@pytest.mark.parametrize("case", [case for case in CASES if "error" in case], **by_id)
def test_error_case(case):
    if case["error"] in NO_ERROR_HERE:
        mapping, creates = NO_ERROR_HERE[case["error"]]
        for matching in ("name", "order"):
            result = match_disks(*lists(case), matching=matching)
            assert (result["mapping"], result["creates"], result["warnings"]) == (mapping, creates, [])
    else:
        with pytest.raises(AnsibleFilterError, match=case["error"]):
            match_disks(*lists(case))


def disk(size=20, **fields):
    return dict(fields, size=size)


@pytest.mark.parametrize(
    ("current", "desired", "text"),
    [
        ([disk(name="a"), disk()], [], "NAMES_PARTIAL: current: .*without: 1"),
        ([], [disk(), disk(name="a"), disk(name="")], "NAMES_PARTIAL: desired: .*without: 0, 2"),
        ([disk(name="a"), disk(name="a")], [disk(name="a")], "NAME_CONFLICT: current: two disks are named a"),
        ([disk()], [disk(name="b"), disk(name="b")], "NAME_CONFLICT: desired: two disks are named b"),
    ],
)
def test_names_are_checked_by_name_and_not_looked_at_by_order(current, desired, text):
    with pytest.raises(AnsibleFilterError, match=text):
        match_disks(current, desired)
    assert match_disks(current, desired, "order")["recreated"] == []


@pytest.mark.parametrize(
    ("current", "desired", "text"),
    [
        (None, [], "current is not valid: it must be a list"),
        ({}, [], "current is not valid: it must be a list"),
        ([], "disks", "desired is not valid: it must be a list"),
        ([], [disk(), "data"], r"desired\[1\] is not valid: it must be a dictionary"),
        ([], [disk(sise=3, colour=1)], r"desired\[0\]: unknown key colour, sise; known are boot, .*uuid"),
        ([{}], [], r"current\[0\].size is not valid: it must be a positive integer"),
        ([disk(0)], [], "positive integer"),
        ([disk(-1)], [], "positive integer"),
        ([disk(True)], [], "positive integer"),
        ([disk(1.5)], [], "positive integer"),
        ([disk(float("nan"))], [], "positive integer"),
        ([disk("20GiB")], [], "positive integer"),
        ([disk("remaining")], [], "positive integer"),
        ([disk("\u0662")], [], "positive integer"),
        ([disk(None)], [], "positive integer"),
        ([disk(type={"pool": "zones"})], [], r"current\[0\].type is not valid: it must be a string"),
        ([disk(name=7)], [], r"current\[0\].name is not valid: it must be a string"),
        ([disk(preserve="yes")], [], r"current\[0\].preserve is not valid: it must be true or false"),
        ([disk(boot=1)], [], r"current\[0\].boot is not valid: it must be true or false"),
        ([disk(pci_slot="4:9")], [], 'pci_slot "4:9" is not valid'),
        ([disk(uuid="u1"), disk(uuid="u1")], [], "current: two disks have the uuid u1"),
    ],
)
@pytest.mark.parametrize("matching", ["name", "order"])
def test_malformed_input(current, desired, text, matching):
    with pytest.raises(AnsibleFilterError, match="match_disks: InvalidArgument: .*" + text):
        match_disks(current, desired, matching)


def test_unknown_matching():
    with pytest.raises(AnsibleFilterError, match='InvalidArgument: matching "uuid" is not valid'):
        match_disks([], [], "uuid")


def test_sizes_as_templates_make_them():
    result = match_disks([disk("20"), disk(30.0)], [disk(20), disk("30")])
    assert (result["mapping"], result["updates"]) == ([[0, 0], [1, 1]], [])


def test_order_maps_by_order_whatever_the_names_say():
    result = match_disks([disk(name="a"), disk(name="b")], [disk(name="b"), disk(name="a")], "order")
    assert result["mapping"] == [[0, 0], [1, 1]]
    assert [entry["changes"] for entry in result["attachment_changes"]] == [{"name": ["a", "b"]}, {"name": ["b", "a"]}]
    assert codes(result) == ["IDENTITY_SWAP"]
    assert result["warnings"][0]["mapping"] == [[0, 0], [1, 1]]


def test_attachment_fields_of_our_own():
    current = [disk(pci_slot="0:4:1", boot=True)]
    assert match_disks(current, [disk()])["attachment_changes"] == []
    assert match_disks(current, [disk(pci_slot="4:1", boot=True)])["attachment_changes"] == []
    assert match_disks(current, [disk(pci_slot="4:2", boot=False)])["attachment_changes"] == [
        {"current": 0, "desired": 0, "changes": {"pci_slot": ["0:4:1", "0:4:2"], "boot": [True, False]}}
    ]


def test_a_key_left_out_is_empty():
    current = [disk(description="x", preserve=True, mode="READ_ONLY", device_name="d")]
    result = match_disks(current, [disk()])
    assert result["updates"][0]["changes"] == {"description": ["x", None], "preserve": [True, False]}
    assert result["attachment_changes"][0]["changes"] == {
        "mode": ["READ_ONLY", "READ_WRITE"],
        "device_name": ["d", None],
    }
    blank = [disk(description="", preserve=None, mode="READ_WRITE", name=None, image="")]
    assert match_disks(blank, [disk()])["updates"] == match_disks(blank, [disk()])["attachment_changes"] == []


def test_a_preserved_disk_is_never_an_avoidable_loss():
    result = match_disks([disk(20), disk(50, preserve=True)], [disk(60)], "order")
    assert result["deletes"] == [{"current": 1, "preserved": True}]
    assert codes(result) == ["ORPHAN_LEFT", "IDENTITY_AMBIGUOUS"]
    result = match_disks([disk(20, preserve=True), disk(10), disk(30)], [disk(30), disk(5)], "order")
    assert codes(result) == ["DATA_LOSS", "AVOIDABLE_LOSS", "IDENTITY_AMBIGUOUS"]
    assert result["warnings"][0]["current"] == [1, 2]
    assert (result["warnings"][1]["size"], result["warnings"][1]["mapping"]) == (30, [[2, 0]])
    assert result["warnings"][2]["candidates"] == [[1, 0], [2, 0]]


def test_a_label_that_its_disk_keeps_is_no_swap():
    current = [disk(description="a"), disk(description="b")]
    assert codes(match_disks(current, [disk(description="b"), disk(description="b")])) == []
    assert codes(match_disks(current, [disk(description="b"), disk(description="c")])) == ["IDENTITY_SWAP"]
    assert codes(match_disks([disk(description="a")] * 2, [disk(description="a"), disk(description="b")])) == []
    assert codes(match_disks([disk(description="a"), disk()], [disk(), disk(description="c")])) == []
    swapped = match_disks([disk(uuid="u1"), disk(uuid="u2")], [disk(uuid="u2"), disk()])
    assert (codes(swapped), swapped["warnings"][0]["mapping"]) == (["IDENTITY_SWAP"], [[0, 0]])


def test_rename_suspect_needs_a_disk_that_could_be_the_same():
    def renamed(new, old):
        result = match_disks([dict(old, name="a"), disk(name="k")], [dict(new, name="b"), disk(name="k")])
        return [w["candidates"] for w in result["warnings"] if w["code"] == "RENAME_SUSPECT"]

    assert renamed(disk(20), disk(20)) == [[[0, 0]]]
    assert renamed(disk(30), disk(20)) == [[[0, 0]]]
    assert renamed(disk(20), disk(20, preserve=True)) == [[[0, 0]]]
    assert renamed(disk(10), disk(20)) == []
    assert renamed(disk(20, image="i"), disk(20)) == []
    recreated = match_disks([disk(20, name="a", type="x")], [disk(20, name="a"), disk(20, name="b", type="x")])
    assert (recreated["recreated"], codes(recreated)) == ([[0, 0]], ["DATA_LOSS"])
    recreated = match_disks([disk(name="a", type="x"), disk(name="b", type="y")], [disk(name="b", type="x")])
    assert (recreated["recreated"], codes(recreated)) == ([[1, 0]], ["DATA_LOSS"])


def test_input_is_left_alone():
    current, desired = [disk("20", pci_slot="4")], [disk(30, name="a")]
    before = json.dumps([current, desired])
    match_disks(current, desired)
    assert json.dumps([current, desired]) == before


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=5)


def named_disks(names):
    fields = {"size": st.integers(1, 4), "type": st.sampled_from(["x", "y"]), "preserve": st.booleans()}
    return st.tuples(*(st.fixed_dictionaries(dict(fields, name=st.just(name))) for name in names)).map(list)


@given(NAMES.flatmap(named_disks), NAMES.flatmap(named_disks), st.sampled_from(["name", "order"]))
def test_result_is_whole(current, desired, matching):
    result = match_disks(current, desired, matching)
    mapped, claimed = [i for i, _j in result["mapping"]], [j for _i, j in result["mapping"]]
    deleted = [entry["current"] for entry in result["deletes"]]
    assert sorted(mapped + deleted) == list(range(len(current)))
    assert sorted(claimed + result["creates"]) == list(range(len(desired)))
    for i, j in result["mapping"]:
        assert desired[j]["size"] >= current[i]["size"]
        assert desired[j]["type"] == current[i]["type"]
        assert matching == "order" or current[i]["name"] == desired[j]["name"]
    for i, j in result["recreated"]:
        assert i in deleted
        assert j in result["creates"]
    lost = [i for i in deleted if not current[i]["preserve"]]
    assert ("DATA_LOSS" in codes(result)) == bool(lost)
    assert ("ORPHAN_LEFT" in codes(result)) == (len(lost) < len(deleted))
    json.dumps(result)


def test_examples_hold():
    docs = yaml.safe_load(Path(plugin.__file__).with_suffix(".yml").read_text(encoding="utf-8"))
    assert list(docs) == ["DOCUMENTATION", "EXAMPLES", "RETURN"]
    environment = NativeEnvironment()
    environment.filters["flexdisk.hypervisor.match_disks"] = match_disks
    conditions = 0
    for task in yaml.safe_load(docs["EXAMPLES"]):
        given_vars = {key: value for key, value in task["vars"].items() if key != "plan"}
        if "plan" in task["vars"]:
            given_vars["plan"] = environment.from_string(task["vars"]["plan"]).render(given_vars)
        that = task["ansible.builtin.assert"]["that"]
        for condition in [that] if isinstance(that, str) else that:
            assert environment.compile_expression(condition)(**given_vars) is True, condition
            conditions += 1
    assert conditions == 8


def test_docs_tell_every_key_of_the_result():
    docs = yaml.safe_load(Path(plugin.__file__).with_suffix(".yml").read_text(encoding="utf-8"))
    result = match_disks([disk(20)], [disk(10)])
    assert set(docs["RETURN"]["_value"]["contains"]) == set(result)
    told = " ".join(docs["RETURN"]["_value"]["contains"]["warnings"]["description"])
    known = {code for case in MAPPED for code in case["planner_warnings"]} - {"VM_RECREATE"}
    assert all(f"V({code})" in told for code in known)
