# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the tombstone of a VM may go"""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import failover, moves

VM = "aaaaaaaa-0000-4000-8000-000000000202"


@pytest.mark.parametrize(
    ("written", "known", "next_"),
    [("", 0, 1000), ("x", 0, 1000), ("-3", 0, 1000), ("9" * 5000, 0, 1000), ("999", 999, 1000), ("5000", 5000, 5001)],
)
def test_when_a_move_was_given_up(written, known, next_):
    """It grows, whatever the clock says."""
    there = {moves.STAYED_PROPERTY: written} if written else {}
    assert (moves.stayed_at(there), moves.stays_at(there, 1000.9)) == (known, next_)


def test_a_number_counts_within_its_term():
    before = moves.given_up_at({moves.STAYED_PROPERTY: "5000", failover.FAILOVER_PROPERTY: "on:1"})
    after = moves.given_up_at({moves.STAYED_PROPERTY: "7", failover.FAILOVER_PROPERTY: "none:2"})
    assert (before, after) == ((1, 5000), (2, 7))
    assert moves.given_up_at({}) < before < after


@pytest.mark.parametrize(
    ("seen", "unseen", "message"),
    [
        ({"hv02": moves.Sighting(VM, "")}, False, ""),
        ({"hv02": moves.Sighting("", ""), "hv03": moves.Sighting(VM, "")}, False, ""),
        ({"hv02": moves.Sighting("", "")}, False, "hv02 does not have it. What this host has of it: zones/a. The"),
        ({"hv02": None}, False, "hv02 could not be asked. "),
        ({"hv02": moves.Sighting("", "moved", "hv03")}, False, "hv02 says that it has gone to hv03"),
        ({"hv02": moves.Sighting(VM, "leaving", "hv03")}, False, "hv02 says that it is leaving for hv03"),
        ({"hv01": moves.Sighting(VM, ""), "hv02": moves.Sighting(VM, "coming", "hv03")}, True, "on its way to hv02"),
        ({"hv01": moves.Sighting(VM, ""), "hv02": None}, False, "hv01 has it, and may be an old home: it has gone to"),
        ({"hv01": moves.Sighting(VM, "")}, False, "it has gone to hv02, which was not asked. If hv02 is gone for good"),
        ({"hv01": moves.Sighting(VM, ""), "hv02": None}, True, ""),
        (
            {"hv01": moves.Sighting(VM, ""), "hv02": moves.Sighting("", "moved", "hv03")},
            False,
            "it has gone to hv03, which was not asked",
        ),
        (
            {"hv01": moves.Sighting(VM, ""), "hv02": moves.Sighting(VM, "leaving", "hv03")},
            False,
            "may be an old home: hv02 says that it is leaving for hv03",
        ),
        ({"hv03": moves.Sighting(VM, ""), "hv02": moves.Sighting("", "moved", "hv03")}, False, ""),
        ({}, False, "none was asked; hv02, where it went, was not asked"),
        ({"hv02": None}, True, ""),
        ({"hv02": moves.Sighting(VM, "coming", "hv01")}, True, "it is on its way to hv02"),
        ({"hv02": moves.Sighting("bbbbbbbb-0000-4000-8000-000000000202", "")}, False, "hv02 does not have it"),
    ],
)
def test_who_must_have_a_vm_whose_tombstone_goes(seen, unseen, message):
    tombstone = moves.Move("moved", VM, "db01", "hv02", 1, "running", True, "2026-01-01T00:00:00Z")
    why = moves.why_needed(tombstone, seen, ["zones/a"], unseen)
    assert message in why
    assert bool(why) == bool(message)


WENT = {"host": "hv03", "vm": VM}


@pytest.mark.parametrize("asks", [[], ["hv02"]])
@pytest.mark.parametrize(
    ("message", "fresh", "later"),
    [
        ({"vm": "", "move": None}, "", ""),
        ({"vm": VM, "move": None}, "hv02 has it, too", "hv02 has it, too"),
        ({"vm": VM, "move": {**WENT, "phase": "leaving"}}, "hv02 has it, too", "hv02 has it, too"),
        ({"vm": VM, "move": {**WENT, "phase": "coming"}}, "on its way to hv02", "on its way to hv02"),
        ({"vm": "", "move": {**WENT, "phase": "moved", "term": 1}}, "", "hv02 says that it went on from there"),
        ({"vm": "", "move": {**WENT, "phase": "moved", "term": 0}}, "", ""),
        ({"vm": "", "move": {"phase": "moved"}}, "", ""),
        ({"vm": "bbbbbbbb-0000-4000-8000-000000000202", "move": None}, "", ""),
        ("", "", "hv02 could not be asked"),
    ],
)
def test_what_other_hosts_say_against_a_move(message, fresh, later, asks):
    """asks: the VM has left, and its host has booted since."""
    for seen in (moves.read_sightings({"hv02": message}), moves.read_sightings({"hv02": message, "hv04": ""})):
        text = moves.why_not_on(VM, "hv03", seen, asks, 0)
        expected = later if asks else fresh
        assert expected in text
        assert bool(text) is bool(expected)
        assert bool(moves.why_not_on(VM, "hv03", seen, asks, 0, True)) is (bool(expected) and message != "")


def test_the_target_says_nothing_against_a_move():
    seen = moves.read_sightings({"hv03": {"vm": VM, "move": {**WENT, "phase": "coming"}}})
    assert moves.why_not_on(VM, "hv03", seen, ["hv03"], 0) == ""
    assert "hv02 could not be asked" in moves.why_not_on(VM, "hv03", {}, ["hv02"], 0)
