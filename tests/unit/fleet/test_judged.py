# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vm says in check mode, as the class of each member's change."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.judged import (
    judge_members,
    members_done,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import CLASSES


def member(name="web-0", **more):
    found = {"name": name, "index": int(name[-1]), "host": "hv01", "there": True, "reachable": True}
    return {**found, "running": True, "marked": False, "disks": [], **more}


def step(kind="live", **more):
    return {"class": kind, "disk": "", "destroys": False, **more}


def planned(*steps, vm="web-0", state="running"):
    return {"vm": vm, "state": state, "steps": list(steps)}


def problem(kind="refused", vm="web-0", disk="", message="no"):
    return {"code": "InvalidArgument", "class": kind, "vm": vm, "disk": disk, "message": message}


def judge(check, *, serving=("web-0",), size=2, recreate=False, **more):
    (found,) = judge_members([member(**more)], {} if check is None else {"hv01": check}, serving, size, recreate)
    return found


@pytest.mark.parametrize(
    ("steps", "change"),
    [
        ([], "nothing"),
        ([""], "nothing"),
        (["live", ""], "live"),
        (["restart", "live"], "restart"),
        (["live", "recreate", "restart"], "recreate"),
    ],
)
def test_the_heaviest_step_counts(steps, change):
    found = judge({"vms": [planned(*map(step, steps))]})
    assert (found["change"], found["why"]) == (change, [])


@pytest.mark.parametrize("recreate", [False, True])
@pytest.mark.parametrize("kind", CLASSES[2:])
def test_a_problem_counts_as_its_class_unless_everything_was_allowed(kind, recreate):
    found = judge({"problems": [problem(kind, disk="root")], "vms": [planned(step("live"))]}, recreate=recreate)
    assert found["change"] == ("refused" if recreate else kind)
    assert found["why"] == ["root: no"]


def test_problems_of_others_do_not_count_but_those_of_all_do():
    vms = [planned()]
    assert judge({"problems": [problem(vm="web-1")], "vms": vms})["change"] == "nothing"
    assert judge({"problems": [problem(vm="")], "vms": vms})["change"] == "refused"


@pytest.mark.parametrize(
    "check",
    [
        {"failed": True, "msg": "Unsupported parameters: memroy"},
        {"failed": False, "msg": "Unsupported parameters: memroy"},  # as a task with failed_when: false registers it
    ],
)
def test_a_module_that_fails_at_all_refuses_every_member_that_it_was_asked_for(check):
    found = judge(check)
    assert (found["change"], found["why"]) == ("refused", ["Unsupported parameters: memroy"])
    assert judge(check, name="web-1", there=False)["change"] == "refused"
    assert judge(check, name="web-2", there=False)["change"] == "nothing"  # made for a while only
    assert judge(check, reachable=False)["change"] == "nothing"


def test_nothing_was_asked():
    found = judge(None)
    assert (found["change"], found["reachable"], found["in_service"]) == ("nothing", True, True)


def test_a_host_that_was_lost_meanwhile():
    found = judge({"unreachable": True, "msg": "no route"})
    assert (found["change"], found["reachable"]) == ("nothing", False)


@pytest.mark.parametrize(
    ("more", "serving", "serves"),
    [
        ({}, ["web-0"], True),
        ({}, [], False),
        ({"running": False}, ["web-0"], False),
        ({"there": False}, ["web-0"], False),
    ],
)
def test_who_is_in_service(more, serving, serves):
    assert judge({"vms": [planned()]}, serving=serving, **more)["in_service"] is serves


def test_what_is_destroyed():
    disks = [
        {"name": "root", "size": 32, "preserve": False},
        {"name": "data", "size": 16, "preserve": True},
        {"name": "scratch", "size": 8, "preserve": False},
    ]
    gone = planned(step(disk="scratch", destroys=True), step(disk="data", destroys=False))
    assert judge({"vms": [gone]}, disks=disks)["destroys"] == 8
    above = judge({"vms": [planned(step(), state="absent")]}, disks=disks, size=0)
    assert (above["destroys"], above["loses"], above["keeps"]) == (
        40, ["root 32 MiB", "scratch 8 MiB"], ["data 16 MiB"],
    )  # fmt: skip
    assert judge(None, disks=disks, size=0) == {**above, "change": "nothing"}  # scale_group asks no module
    assert judge({"vms": [planned()]}, disks=disks)["destroys"] == 0
    assert judge(None, disks=disks)["destroys"] == 0


def test_who_was_brought_to_what_the_task_wants():
    done = planned({"status": "done"}, {"status": "done"})
    half = planned({"status": "done"}, {"status": "not_started"}, vm="web-1")
    assert members_done({"vms": [done, half]}) == ["web-0"]
    assert members_done({"vms": [done, half], "problems": [problem()]}) == []
    assert members_done({"vms": [done], "problems": [problem(vm="")]}) == []
    assert members_done({"vms": [planned()]}) == ["web-0"]
    assert members_done({"unreachable": True, "msg": "no route"}) == []
    assert members_done({"failed": True, "msg": "Unsupported parameters: memroy"}) == []
