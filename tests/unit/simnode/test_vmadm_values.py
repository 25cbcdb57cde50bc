# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JavaScript's values and the slots' syntax."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simnode.vmadm import jsvalues as js
from simnode.vmadm import slots
from simnode.vmadm.errors import Abort, VmError


@pytest.mark.parametrize(
    ("value", "number"),
    [("", 0), (" 12 ", 12), ("1.5", 1.5), ("1e3", 1000), ("0x10", 16), (None, 0), (True, 1), ([], 0), (["7"], 7)],
)
def test_numbers(value: Any, number: float) -> None:
    assert js.to_number(value) == number
    assert isinstance(js.to_number(value), type(number))


@pytest.mark.parametrize("value", ["abc", "1 2", {}, [1, 2], js.UNDEFINED, "1_000", "inf"])
def test_not_a_number(value: Any) -> None:
    assert math.isnan(js.to_number(value))


def test_sameness() -> None:
    assert js.same(1, 1.0)
    assert not js.same(1, True)
    assert not js.same("1", 1)
    assert not js.same([], [])


def test_texts() -> None:
    values: list[Any] = [None, True, 1.0, 1.5, [1, None, "a"], {}, js.UNDEFINED, math.nan]
    assert [js.to_string(value) for value in values] == [
        "null", "true", "1", "1.5", "1,,a", "[object Object]", "undefined", "NaN"
    ]  # fmt: skip
    assert js.loads('{"a": 2.0, "b": 2.5}') == {"a": 2, "b": 2.5}
    assert isinstance(js.loads("2.0"), int)
    assert js.dumps({"a": js.integral(2.0)}) == '{\n  "a": 2\n}'


@given(st.integers(0, 255), st.integers(0, 31), st.integers(0, 7))
def test_slots_in_all_forms(bus: int, device: int, function: int) -> None:
    assert slots.parse(f"{bus}:{device}:{function}") == (bus, device, function)
    assert slots.parse(f"{device}:{function}") == (0, device, function)
    assert slots.parse(f"{device}") == (0, device, 0)


@pytest.mark.parametrize("text", ["", "a", "1:2:3:4", "256:0:0", "0:32:0", "0:0:8", "-1:0:0", "1:", "1.5"])
def test_bad_slots(text: str) -> None:
    with pytest.raises(VmError, match=f'pci_slot "{text}" is not valid'):
        slots.parse(text)
    assert not slots.valid(text)


def test_slot_that_is_no_string() -> None:
    with pytest.raises(Abort):
        slots.parse(5)


def test_legacy_positions() -> None:
    disks: list[dict[str, Any]] = [
        {"path": "a", "boot": True},
        {"path": "b"},
        {"path": "c", "media": "cdrom"},
        {"path": "d"},
    ]
    legacy = {disk["path"]: slot for disk, slot in slots.assign(disks, {}, legacy=True)}
    assert legacy == {"a": "0:4:0", "b": "0:5:0", "c": "0:3:0", "d": "0:5:1"}
    modern = {disk["path"]: slot for disk, slot in slots.assign(disks, {}, legacy=False)}
    assert modern == {"a": "0:4:0", "b": "0:4:1", "c": "0:3:0", "d": "0:4:2"}


@given(st.lists(st.integers(0, 7), unique=True, max_size=7))
def test_lowest_free_function(taken: list[int]) -> None:
    disks: list[dict[str, Any]] = [{"path": str(number), "pci_slot": f"4:{number}"} for number in taken]
    given_slots = slots.assign([*disks, {"path": "new"}], {}, legacy=False)
    assert [slot for _disk, slot in given_slots] == [f"0:4:{min(set(range(8)) - set(taken))}"]


def test_other_buses_do_not_collide() -> None:
    disks = [{"path": "a", "pci_slot": "1:6:0"}, {"path": "b", "pci_slot": "1:6:0"}]
    assert slots.assign(disks, {}, legacy=False) == []
