# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM has gone since a record of it was stored, by the tombstones on its way."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import Claim
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.whereabouts import (
    Recorded,
    has_it,
    moved_on,
    not_heard,
)

VM = "aaaaaaaa-0000-4000-8000-000000000202"
RECORD = Recorded(VM, "hv01", 1, "hv02")


def said(*ways, term=1):
    """What hosts say that a VM has left, as "from to"."""
    pairs = (way.split() for way in ways)
    return {host: [Claim(VM, term, phase="moved", other=other, since="2026-01-01T05:00:00Z")] for host, other in pairs}


@pytest.mark.parametrize(
    ("claims", "host"),
    [
        ({}, ""),
        ({"hv03": None, "hv04": []}, ""),
        (said("hv01 hv03"), "hv01"),
        (said("hv01 hv03", term=0), ""),  # from before the failover that the record tells of
        (said("hv01 hv03", term=None), "hv01"),
        (said("hv01 hv03", term=2), "hv01"),
        (said("hv03 hv01"), ""),  # it has come to the home of the record
        (said("hv01 hv02"), ""),  # it has come to the target
        (said("hv03 hv04", "hv04 hv01"), ""),
        (said("hv03 hv02", "hv04 hv03"), ""),
        (said("hv01 hv03", "hv03 hv04"), "hv03"),
        (said("hv03 hv01", "hv01 hv04"), "hv01"),
        (said("hv03 hv04"), "hv03"),
    ],
)
def test_where_it_has_gone(claims, host):
    for most in (None, 900):
        claims = {**dict.fromkeys(["hv03", "hv04"]), **claims}
        notes = list(moved_on(RECORD, claims, "600 s old", most))
        refused = [one for one in notes if one.refuses]
        assert [one.text.partition(" ")[0] for one in notes] == ([host] if host else [])
        assert bool(refused) is (bool(host) and (most is None or claims[host][0].term == 2))
        assert all("600 s old" in one.text or claims[host][0].term == 2 for one in notes)


@pytest.mark.parametrize(
    ("alias", "text"), [("db01", ""), ("db01-new", ", called db01-new"), ("", ", without an alias")]
)
def test_who_has_it_whatever_it_is_called_there(alias, text):
    claims = {
        "hv01": [Claim(VM, 1, running=True, alias=alias)],  # its home, of which home_answers speaks
        "hv03": [Claim(VM, 1, running=True, alias=alias)],
        "hv04": [Claim(VM, 1, phase="moved", other="hv03", alias=alias)],
        "hv05": [Claim(VM.replace("2", "3"), 1, running=True, alias=alias)],
        "hv06": None,
    }
    assert list(has_it(VM, "db01", claims, "hv01")) == [f"hv03 has it{text}, and it is not stopped there"]


def test_tombstones_in_a_circle():
    """Each tells of the other host, and none has it."""
    assert len(list(moved_on(RECORD, said("hv01 hv03", "hv03 hv01"), "600 s old", None))) == 2


def test_the_host_where_it_went_does_not_have_it():
    (notes,) = moved_on(RECORD, {**said("hv01 hv03"), "hv03": []}, "600 s old", None)
    assert "hv03 does not have it any more" in notes.text


def test_the_host_where_it_went_must_be_asked():
    """The word that the host of the VM is down is not about another one that nobody has tried to reach."""
    (notes,) = moved_on(RECORD, said("hv01 hv03"), "600 s old", 900)
    assert notes.refuses
    assert "hv03 is not among the hosts of this run" in notes.text
    assert "flexdisk_forget_unseen=true of the playbook move_vm, with --limit hv01" in notes.text


def test_who_may_be_silent():
    """The home, and the host where the VM went from there, but none that an old tombstone names."""
    silent = dict.fromkeys(["hv01", "hv03", "hv04"])
    assert not_heard(RECORD, silent) == ["hv03", "hv04"]
    assert not_heard(RECORD, {**silent, **said("hv01 hv03")}) == ["hv04"]
    assert not_heard(RECORD, {**silent, **said("hv01 hv03", term=0)}) == ["hv03", "hv04"]
