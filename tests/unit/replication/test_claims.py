# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which host with replicas of a VM loses less: told by guids of snapshots, never by clocks"""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import (
    Rival,
    better_elsewhere,
)

MINE = Rival("hv02", "hv01", 1, 0, "2026-01-01T05:00:00Z", {"root": (1, 2, 5), "data": (11, 12, 15)})


def other(**changes):
    """What hv03 has: an older set, which MINE knows."""
    return MINE._replace(host="hv03", **{"points": {"root": (1, 2), "data": (11, 12)}, **changes})


@pytest.mark.parametrize("synced", ["", "2026-01-01T04:00:00Z", "2026-01-01T06:00:00Z"])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ""),
        ({"points": MINE.points}, ""),
        ({"points": {"root": (1, 2, 5, 6), "data": (11, 12, 15, 16)}}, "TooOld"),
        ({"points": {"root": (1, 2, 6), "data": (11, 12, 16)}}, "Ambiguous"),
        ({"points": {"root": (1, 2), "data": (11, 12, 15, 16)}}, "Ambiguous"),  # one disk says this, one that
        ({"points": {"logs": (21,)}}, "Ambiguous"),
        ({"points": {}}, ""),
        ({"points": {}, "why_not": "disk root: it was written to"}, "Ambiguous"),
        ({"points": {"root": (9,), "data": (19,)}, "term": -1}, ""),
        ({"term": 1}, "TooOld"),
        ({"pool": 2}, "Ambiguous"),
    ],
)
def test_who_loses_less(changes, code, synced):
    refusals = list(better_elsewhere(MINE, [other(synced=synced, **changes)], None))
    assert [one for one, _words in refusals] == ([code] if code else [])
    assert all("hv03" in message for _code, message in refusals)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"points": {"root": (6,), "data": (16,)}}, ""), ({"term": 1}, "TooOld"), ({"pool": 2}, "Ambiguous")],
)
def test_the_word_about_what_may_be_lost(changes, code):
    """It decides between sets of one home, and not between homes."""
    assert [one for one, _words in better_elsewhere(MINE, [other(**changes)], 900)] == ([code] if code else [])


@pytest.mark.parametrize(
    ("changes", "code", "accepted"),
    [
        ({}, "", ""),  # MINE knows what has come there
        ({"points": {"root": (1, 2, 6), "data": (11, 12, 16)}}, "TooOld", ""),
        ({"points": {"root": (1, 2), "data": (11, 12, 16)}}, "TooOld", ""),
        ({"points": {}}, "TooOld", ""),
        ({"points": {}, "why_not": "there is no record"}, "TooOld", ""),
        ({"points": {}, "begun": True}, "InUse", "InUse"),
        ({"points": {}, "term": -1}, "TooOld", ""),
        ({"points": {}, "term": 1}, "TooOld", "TooOld"),
        ({"pool": 2}, "", ""),
    ],
)
def test_a_host_that_the_vm_moves_to(changes, code, accepted):
    """accepted: what is said although more may be lost."""
    one = other(comes=True, **changes)
    for most, expected in ((None, code), (900, accepted)):
        refusals = list(better_elsewhere(MINE, [one], most))
        assert [one for one, _words in refusals] == ([expected] if expected else [])
        for _code, message in refusals:
            assert "its move from hv01 to hv03 has not ended" in message
            assert "flexdisk_target=hv03" in message
    later = MINE._replace(term=2)
    assert list(better_elsewhere(later, [one], None)) == [] or one.term < 0


def test_a_host_that_the_vm_moves_to_and_that_has_a_record():
    """Both tell of the same replicas."""
    record = other(points={"root": (1, 2, 5, 6), "data": (11, 12, 15, 16)})
    refusals = list(better_elsewhere(MINE, [record, record._replace(comes=True)], None))
    assert ["flexdisk_target=hv03 loses less" in message for _code, message in refusals] == [True]
    assert len(list(better_elsewhere(MINE, [record, record._replace(comes=True, begun=True)], None))) == 2
