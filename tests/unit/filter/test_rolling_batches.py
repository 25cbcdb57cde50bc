# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters rolling_batches and duration, as a template calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.filter import rolling_batches
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

FILTERS = rolling_batches.FilterModule().filters()
CASES = json.loads((Path(__file__).parents[1] / "data" / "rolling.json").read_text(encoding="utf-8"))
FIGURES = {"current": 4, "requested": 4, "min_in_service": 3, "max_batch_size": 2}


def test_every_key_of_a_result_is_heats():
    for case in CASES["batch_sequences"]:
        figures = {key: case[key] for key in FIGURES}
        for flavour, name in (("indexed", "resource_group"), ("anonymous", "instance_group")):
            found, heats = FILTERS["rolling_batches"](figures, flavour=flavour), case[name]
            assert found == {
                "batches": heats["batches"],
                "peak": heats["peak"],
                "untouched_min": heats["untouched_min"],
                "final_resize_to": heats.get("final_resize_to", case["requested"]),
                "pauses": heats["n_pauses"],
            }, (case["id"], flavour)


def test_the_flavour_is_indexed_unless_another_is_named():
    assert FILTERS["rolling_batches"](FIGURES)["batches"] == [[5, 2], [5, 2], [4, 1]]
    assert FILTERS["rolling_batches"](FIGURES, "anonymous")["batches"] == [[5, 2], [5, 2], [4, 0]]


@pytest.mark.parametrize("flavour", ["indexed", "anonymous"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_batch_size": 0}, "max_batch_size is 0, but must be at least 1"),
        ({"max_batch_size": -1}, "max_batch_size is -1, but must be at least 1"),
        ({"min_in_service": -3}, "min_in_service is -3, but must not be negative"),
        ({"requested": -1}, "requested is -1, but a size must not be negative"),
        ({"current": "4"}, "current is '4', which is not a whole number"),
        ({"current": True}, "current is True, which is not a whole number"),
        ({"max_batch_size": 1.0}, "max_batch_size is 1.0, which is not a whole number"),
        ({"more": 1}, "needs a dictionary of current, requested, min_in_service, max_batch_size"),
    ],
)
def test_what_heat_would_roll_for_ever_is_refused(flavour, change, said):
    with pytest.raises(AnsibleFilterError, match=said):
        FILTERS["rolling_batches"]({**FIGURES, **change}, flavour=flavour)


@pytest.mark.parametrize("figures", [None, [], {}, {"current": 1}, "x"])
def test_figures_are_a_whole_dictionary(figures):
    with pytest.raises(AnsibleFilterError, match="needs a dictionary"):
        FILTERS["rolling_batches"](figures)


def test_an_unknown_flavour_is_refused():
    with pytest.raises(AnsibleFilterError, match='flavour is indexed or anonymous, not "other"'):
        FILTERS["rolling_batches"](FIGURES, "other")


def test_durations():
    assert [FILTERS["duration"](value) for value in ("PT1M30S", "90", 90)] == [90] * 3
    with pytest.raises(
        AnsibleFilterError, match="duration: InvalidArgument: '1m' is not a duration: write seconds, or PT1H30M5S"
    ):
        FILTERS["duration"]("1m")


def test_a_huge_number_is_refused():
    figures = {"current": 0, "requested": 10**30, "min_in_service": 0, "max_batch_size": 1}
    with pytest.raises(AnsibleFilterError, match="requested is above 10000, the most members that a group has"):
        FILTERS["rolling_batches"](figures)


def test_what_no_computer_counts_with_is_told_in_words():
    def count(number):
        return len(range(number))

    with pytest.raises(AnsibleFilterError, match=r"^count: a number is too large"):
        _core.filters({"count": count})["count"](10**30)
