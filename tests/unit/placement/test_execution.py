# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a playbook that carries out a plan does with moves that have begun, and which of them run together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.execution import (
    MOVE,
    PUT_BACK,
    STUCK,
    Wanted,
    moves_to_unread_hosts,
    queue,
    unfinished_moves,
)

from .fleets import host, info, uuid, vm

WITHOUT = "the playbook move_vm says whether the move to hv02 goes on without it"


def mark(number, phase, other):
    return {"uuid": uuid(number), "alias": f"vm{number}", "phase": phase, "host": other, "since": ""}


def seen(first=((), ()), second=((), ()), third=((), ())):
    """Three hosts, each with the numbers of its VMs and its marks; None if it cannot be read."""
    told = {"hv01": first, "hv02": second, "hv03": third}
    return [
        host(name, None if one is None else info(number, *map(vm, one[0]), moves=list(one[1])), group="ab"[number > 2])
        for number, (name, one) in enumerate(told.items(), 1)
    ]


def found(hosts, wanted=None):
    jobs = unfinished_moves(hosts, wanted or Wanted())
    return [(*(job["operations"][0][key] for key in ("do", "from", "to")), job["why"]) for job in jobs]


TWICE = (
    "{} has it, too, or expects it; if it was taken over, failover_vm with flexdisk_failover_state=returned ends it"
    " on hv01"
)
LEAVES, GONE, COMES = mark(1, "leaving", "hv02"), mark(1, "moved", "hv02"), mark(1, "coming", "hv01")


@pytest.mark.parametrize(
    ("hosts", "do"),
    [
        (seen(), None),
        (seen(((1,), ())), None),
        (seen(((), (GONE,)), ((1,), ())), None),  # a tombstone
        (seen(((1,), ()), ((1,), (COMES,))), (PUT_BACK, "hv01", "hv02", "it had not left hv01 yet")),
        (
            seen(((1,), (LEAVES,)))[:1],
            (STUCK, "hv01", "hv02", "hv02, where it goes, has not been asked; the playbook move_vm goes on"),
        ),
        (seen(((1,), (LEAVES,)), ((1,), (COMES,))), (MOVE, "hv01", "hv02", "")),
        (seen(((1,), (GONE,)), ((1,), (COMES,))), (MOVE, "hv01", "hv02", "")),
        (seen(((), (GONE,)), ((1,), (COMES,))), (MOVE, "hv01", "hv02", "")),
        (seen(((1,), (LEAVES,)), None), (PUT_BACK, "hv01", "hv02", "hv02 cannot be read")),
        (seen(((1,), (GONE,)), None), (STUCK, "hv01", "hv02", "hv02 cannot be read")),
        (seen(None, ((1,), (COMES,))), (STUCK, "hv01", "hv02", f"hv01 cannot be read; {WITHOUT}")),
        (seen(((1,), (LEAVES,)), ((1,), (COMES,)), ((1,), ())), (STUCK, "hv01", "hv02", TWICE.format("hv03"))),
        (seen(((), (GONE,)), ((1,), (COMES,)), ((1,), ())), (STUCK, "hv01", "hv02", TWICE.format("hv03"))),
        (seen(((1,), (GONE,)), ((1,), ())), (STUCK, "hv01", "hv02", TWICE.format("hv02"))),
        (  # it was put back while hv02 was away, and has gone elsewhere
            seen(((), (mark(1, "moved", "hv03"),)), ((1,), (COMES,)), ((1,), ())),
            (PUT_BACK, "hv03", "hv02", "hv02 still expects it from hv01"),
        ),
        (
            seen(((), ()), ((1,), (COMES,))),
            (STUCK, "hv01", "hv02", "hv02 expects it from hv01, which does not have it"),
        ),
    ],
)
def test_what_is_done(hosts, do):
    assert found(hosts) == ([do] if do else [])


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ({}, True),
        ({"vms": ["vm1"]}, True),
        ({"vms": [uuid(1)]}, True),
        ({"vms": ["vm2"]}, False),
        ({"hosts": ["hv01"]}, True),
        ({"hosts": ["hv02"]}, False),
        ({"groups": ["a"]}, True),
        ({"groups": ["b"]}, False),
        ({"tags": {"role": "db"}}, True),
        ({"tags": {"role": None}}, True),
        ({"tags": {"role": "web"}}, False),
    ],
)
def test_which_moves_are_meant(wanted, meant):
    hosts = seen(((1,), (LEAVES,)), ((1,), (COMES,)))
    for one in hosts[:2]:
        one["info"]["vms"][0]["tags"] = {"role": "db"}
    assert bool(found(hosts, Wanted(**wanted))) is meant


@pytest.mark.parametrize(
    ("hosts", "lines"),
    [
        (seen(((1,), (LEAVES,)), ((1,), (COMES,))), []),
        (seen(((), (GONE,)), ((1,), ())), []),
        (seen(((), (GONE,)), ((), (COMES,))), []),
        (seen(((), (GONE,)), ((), ()), ((1,), ())), []),
        (seen(((), (GONE,)))[:1], ["which this run does not read"]),
        (seen(((), (GONE,)), None), ["which cannot be read"]),
        (seen(((1,), (GONE,)), None), []),  # a job has it
    ],
)
def test_vms_that_have_gone_to_where_nobody_looked(hosts, lines):
    """Whether they have arrived is not known. So it is said, with the command that ends it."""
    said = [f"vm1 has left hv01 for hv02, {words}. If it has not come to its end: " for words in lines]
    found = moves_to_unread_hosts(hosts, Wanted())
    assert [line[: len(words)] for line, words in zip(found, said, strict=True)] == said
    goes_on = "ansible-playbook flexdisk.hypervisor.move_vm -e flexdisk_vm=vm1 -e flexdisk_target=hv02"
    assert all(line.endswith(goes_on) for line in found)
    assert moves_to_unread_hosts(hosts, Wanted(hosts=["hv03"])) == []


def test_a_move_goes_on_to_its_pool():
    hosts = seen(((), (GONE,)), ((), ({**COMES, "pool": "tank"},)))
    (job,) = unfinished_moves(hosts, Wanted())
    assert job["operations"][0]["pool"] == "tank"
    (job,) = unfinished_moves(seen(((), (GONE,)), ((), (COMES,))), Wanted())
    assert job["operations"][0]["pool"] == ""


def test_moves_that_have_begun_run_one_after_the_other():
    marks = [mark(number, "leaving", "hv02") for number in (1, 2, 3)]
    jobs = unfinished_moves(seen(((1, 2, 3), marks), None), Wanted())
    assert [job["depends"] for job in jobs] == [[], [1], [2]]
    assert queue(jobs, "begun", 5)["sizes"] == [2, 2, 2]


def test_nothing_to_do_is_said():
    assert queue([], "left", 5) == {"hosts": [], "sizes": []}


@given(st.lists(st.sets(st.integers(0, 11), max_size=3), max_size=12))
def test_batches(waits):
    """A job is in a later batch than those that it depends on, and as early as that allows."""
    jobs = [
        {
            "job": number,
            "name": f"vm{number}",
            "operations": [{"do": MOVE, "vm": uuid(number), "from": "hv01", "to": "hv02"}],
            "depends": sorted(other + 1 for other in before if other + 1 < number),
            "needs": [],
        }
        for number, before in enumerate(waits, 1)
    ]
    made = queue(jobs, "planned", 12)
    assert sum(made["sizes"]) == len(made["hosts"])
    batch, place = {}, iter(made["hosts"])
    for number, size in enumerate(made["sizes"]):
        head, *rest = (next(place) for _host in range(size))
        assert "move" not in head
        batch.update({one["name"]: number for one in rest})
    names = {job["job"]: f"vm{job['job']} to hv02 (planned {job['job']})" for job in jobs}
    for job in jobs:
        before = [batch[names[other]] for other in job["depends"]]
        assert batch[names[job["job"]]] == max(before, default=-1) + 1


def test_a_batch_has_no_more_jobs_than_run_at_the_same_time():
    operation = {"do": MOVE, "vm": uuid(1), "from": "hv01", "to": "hv02"}
    jobs = [{"job": n, "name": "a", "operations": [operation], "depends": [], "needs": []} for n in range(1, 6)]
    assert queue(jobs, "planned", 2)["sizes"] == [3, 3, 2]
