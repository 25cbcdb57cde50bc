# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of a roll: Heat's where it is right, its defects not here, and every promise in random histories."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import roll
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.homes import (
    Homes,
    parse_homes,
    placed,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import (
    LIVE,
    NOTHING,
    RECREATE,
    REFUSED,
    RESTART,
    Member,
    index_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.plan import plan_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import (
    Amount,
    RollPolicy,
    parse_policy,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

CASES = json.loads((Path(__file__).parents[1] / "data" / "rolling.json").read_text(encoding="utf-8"))
ANYWHERE = {"max_down_per_host": 99}
HOSTS = ("hv0", "hv1", "hv2", "hv3")
HOMES = Homes(HOSTS)


def member(index, **fields):
    return Member(**{"name": f"web-{index}", "index": index, "host": HOSTS[index % len(HOSTS)], **fields})


def group(size, members, **fields):
    return roll.Group("web", size, tuple(members), **fields)


def stale(count, change=RESTART, **fields):
    return [member(index, change=change, **fields) for index in range(count)]


def steps(found, policy):
    """The steps of the whole roll, each as {what is done: the indexes}; and whether the group is done then."""
    done, end = roll.all_steps(found, policy)
    words = []
    for step in done:
        said = {}
        for action in step.actions:
            said.setdefault(action.do, []).append(action.index)
        words.append(said)
    return words, roll.is_done(end)


# -- names and classes


@pytest.mark.parametrize(
    ("name", "index"),
    [("web-0", 0), ("web-12", 12), ("web-01", -1), ("web", -1), ("web-", -1), ("other-1", -1), ("web-٣", -1)],
)
def test_members_are_known_by_their_names(name, index):
    assert index_of(name, "web") == index


def test_a_group_whose_name_ends_in_a_number():
    assert index_of("web-1-2", "web-1") == 2
    assert index_of("web-1-2", "web") == -1


# -- the order of members


@pytest.mark.parametrize("case", CASES["resource_group_member_steps"], ids=lambda c: f"{c['current']}-{c['requested']}")
def test_members_are_those_that_heats_resource_group_takes(case):
    policy = RollPolicy(case["min_in_service"], case["max_batch_size"], **ANYWHERE)
    found, done = steps(group(case["requested"], stale(case["current"]), keeps_disks=False), policy)
    heats = [
        {
            do: sorted(map(int, step[word]))
            for do, word in (("create", "created"), (RESTART, "updated"), ("remove", "deleted"))
            if step[word]
        }
        for step in case["steps"]
    ]
    assert [{do: sorted(which) for do, which in step.items()} for step in found] == heats
    assert done


def test_as_many_members_are_changed_as_heat_changes_and_the_stale_ones_leave_first():
    """Heat's InstanceGroup drops the oldest, even if they are the ones that it has just changed."""
    tried = 0
    for case in CASES["member_definitions"]:
        before, total, new = case["members_oldest_first"], case["total"], case["num_new"]
        if not new:
            continue  # a resize without a roll
        members = [member(n, change=NOTHING if was == "new" else RESTART) for n, (_name, was) in enumerate(before)]
        then = group(total, members)
        step = roll.next_step(then, RollPolicy(0, new, **ANYWHERE))
        then = roll.group_after(then, step) if step else then
        heats = Counter(what for _name, what in case["result"])
        assert len(then.there) <= max(total, len(before))
        assert sum(m.current for m in then.there if m.index < total) >= min(heats["new"], new)
        tried += 1
    assert tried > 20


def test_what_is_down_is_healed_before_a_healthy_one_is_touched():
    members = [*stale(4), member(4), member(5, in_service=False), member(6, in_service=False, change=RECREATE)]
    found, done = steps(group(7, members), RollPolicy(4, 2, **ANYWHERE))
    assert found == [{RECREATE: [6], "heal": [5]}, {RESTART: [3, 2]}, {RESTART: [1, 0]}]
    assert done


def test_members_that_are_all_down_may_roll_whatever_the_floor():
    found, done = steps(group(4, stale(4, in_service=False)), RollPolicy(4, 1))
    assert [*map(list, found)] == [[RESTART]] * 4
    assert done


def test_a_marked_member_is_finished_first_and_does_not_serve():
    members = [member(0, marked=True, in_service=False), *(member(index, change=RESTART) for index in (1, 2, 3))]
    found, done = steps(group(4, members), RollPolicy(3, 1))
    assert found[0] == {"finish": [0]}
    assert [step[RESTART] for step in found[1:]] == [[3], [2], [1]]
    assert done


def test_a_marked_member_that_could_serve_returns_before_anything_is_changed():
    """Whatever the template means for it: it is changed in its turn, when others can do without it."""
    down = member(1, marked=True, in_service=False)
    members = [member(0, marked=True, change=RECREATE), down, member(2, change=RESTART)]
    found, done = steps(group(3, members), RollPolicy(2, 1))
    assert found == [{"return": [0]}, {"finish": [1]}, {RESTART: [2]}, {RECREATE: [0]}]
    assert done


def test_a_marked_member_above_the_size_may_still_serve():
    """A run that was killed has marked it for its removal, and not taken it out. The others cannot serve now."""
    last = member(1, marked=True)
    lost = member(0, in_service=False, reachable=False)
    found, done = steps(group(1, [lost, last]), RollPolicy(3, 1))
    assert (found, done) == ([{"return": [1]}], False)
    back = member(0)
    assert steps(group(1, [back, last]), RollPolicy(3, 1)) == ([{"remove": [1]}], True)
    assert steps(group(1, [lost, last]), RollPolicy(0, 1)) == ([{"remove": [1]}], False)


def test_what_can_be_done_live_is_done_to_all_at_once():
    found, done = steps(group(4, stale(4, LIVE)), RollPolicy(4, 1))
    assert found == [{LIVE: [3, 2, 1, 0]}]
    assert done


def test_a_host_has_one_member_down_at_a_time():
    members = [member(index, change=RESTART, host=host) for index, host in enumerate(["a", "a", "a", "b"])]
    found, done = steps(group(4, members), RollPolicy(0, 4))
    assert [step[RESTART] for step in found] == [[3, 2], [1], [0]]
    assert steps(group(4, members), RollPolicy(0, 4, max_down_per_host=3))[0] == [{RESTART: [3, 2, 1, 0]}]
    assert done
    down = [replace(members[0], reachable=False, in_service=False), *members[1:]]
    assert steps(group(4, down), RollPolicy(0, 4))[0] == [{RESTART: [3]}]


@pytest.mark.parametrize(("canary", "first"), [(2, [3, 2]), (("web-1",), [1])])
def test_canaries_go_first_with_a_pause_of_their_own(canary, first):
    policy = RollPolicy(0, 3, pause=5, canary=canary, canary_pause=60, **ANYWHERE)
    found, _end = roll.all_steps(group(4, stale(4)), policy)
    assert [action.index for action in found[0].actions] == first
    assert [step.pause for step in found] == [60, 5]


def test_a_group_shrinks_from_the_top_and_its_floor_holds():
    found, done = steps(group(2, [member(index) for index in range(5)]), RollPolicy(4, 1, **ANYWHERE))
    assert found == [{"remove": [4, 3, 2]}]
    assert done
    assert steps(group(0, [member(0)]), RollPolicy(1, 1))[0] == [{"remove": [0]}]


def test_a_group_grows_before_it_changes_what_is_there():
    found, done = steps(group(6, stale(4)), RollPolicy(0, 2, **ANYWHERE))
    assert found == [{"create": [4, 5]}, {RESTART: [3, 2]}, {RESTART: [1, 0]}]
    assert done


def test_a_member_that_was_cut_off_in_its_re_creation_is_made_again_where_it_lies():
    members = [member(0, there=False, in_service=False), *stale(4)[1:]]
    step = roll.next_step(group(4, members), RollPolicy(0, 1))
    assert step.actions == (roll.Action("web-0", 0, "hv0", "create"),)


def test_members_that_have_failed_in_this_run_are_left_alone():
    found = group(3, stale(3), failed=frozenset({"web-2"}))
    assert [step.get(RESTART) for step in steps(found, RollPolicy(0, 3, **ANYWHERE))[0]] == [[1, 0]]


@pytest.mark.parametrize("trace", CASES["member_traces_asg"], ids=lambda c: f"{c['current']}-{c['mode']}")
def test_nobody_is_left_stale_where_heat_leaves_some(trace):
    change = RECREATE if trace["mode"] == "replace" else RESTART
    policy = RollPolicy(trace["min_in_service"], trace["max_batch_size"], **ANYWHERE)
    found, end = roll.all_steps(group(trace["requested"], stale(trace["current"], change), keeps_disks=False), policy)
    assert roll.is_done(end)
    floor = min(trace["min_in_service"], trace["requested"])
    assert all(step.in_service >= min(floor, trace["current"]) for step in found)


def test_what_is_done_already_makes_no_step_and_no_surge():
    """Heat makes a spare member and removes one that is up to date when a failed roll is started again."""
    half = [member(0), member(1), *stale(4)[2:]]
    found, done = steps(group(4, half, keeps_disks=False), RollPolicy(4, 1, **ANYWHERE))
    assert found == [{"create": [4]}, {RESTART: [3]}, {RESTART: [2]}, {"remove": [4]}]
    assert done
    assert steps(group(4, [member(index) for index in range(4)], keeps_disks=False), RollPolicy(4, 1))[0] == []


# -- the plan


def messages(found, policy, homes=HOMES):
    return [problem.message for problem in plan_group(found, policy, homes).problems]


def test_a_plan_has_its_figures():
    plan = plan_group(group(12, stale(12, RECREATE)), RollPolicy(10, 2, pause=30, action_ceiling=RECREATE), HOMES)
    assert (plan.problems, plan.warnings, plan.done) == ((), (), False)
    assert (len(plan.steps), plan.peak, plan.in_service, plan.pauses) == (6, 12, 10, 150)
    again = plan_group(group(12, [member(index) for index in range(12)]), RollPolicy(10, 2), HOMES)
    assert (again.done, again.steps, again.in_service) == (True, (), 12)


def test_a_floor_that_needs_a_surge_of_members_with_disks_is_refused_with_the_figures():
    assert messages(group(12, stale(12)), RollPolicy(10, 3)) == [
        "10 of 12 members in service and 3 changed at a time take 13 members, but the members keep disks, which a "
        "further member does not have; max_batch_size=2 needs none"
    ]
    assert messages(group(12, stale(12)), RollPolicy(10, 2)) == []
    assert messages(group(12, stale(12), keeps_disks=False), RollPolicy(10, 3)) == []
    assert messages(group(4, stale(4)), RollPolicy(4, 1))[0].endswith("min_in_service=3 needs none")
    assert messages(group(4, stale(4, LIVE)), RollPolicy(4, 1)) == []


def test_all_refusals_are_told_at_once():
    members = [
        member(0, change=REFUSED, why=("image: there is none",)),
        member(1, change=RECREATE),
        member(2, change=RECREATE),
        member(3, reachable=False, in_service=False),
    ]
    policy = RollPolicy(0, 2, canary=("db-9",), max_members_per_host=1, pause=10, deadline=5)
    found = plan_group(group(5, members), policy, HOMES).problems
    assert [(problem.vm, problem.message) for problem in found] == [
        ("web-0", "image: there is none"),
        ("", "action_ceiling is restart, but recreate is needed for web-1, web-2"),
        ("", "canary db-9 is not a member of web"),
        ("", "web-4: no host is chosen while hv3 cannot be read"),
        ("", "failure_budget is 0, but web-3 cannot be read"),
        ("", "the pauses between 2 steps take 10 s, but deadline is 5 s"),
    ]


def test_pauses_as_long_as_the_deadline_are_refused():
    assert messages(group(3, stale(3)), RollPolicy(pause=100, deadline=200)) == [
        "the pauses between 3 steps take 200 s, but deadline is 200 s"
    ]
    assert messages(group(3, stale(3)), RollPolicy(pause=100, deadline=201)) == []


def test_new_members_are_spread_over_the_hosts_with_the_fewest():
    found = placed(group(7, [member(0, host="hv1"), member(1, host="hv1")]), Homes(("hv0", "hv1", "hv2")), RollPolicy())
    assert [m.host for m in found.members] == ["hv1", "hv1", "hv0", "hv2", "hv0", "hv2", "hv0"]
    assert [m.there for m in found.members] == [True, True, *[False] * 5]


def test_a_map_of_hosts_is_followed_and_never_moves_a_member():
    homes = Homes(fixed={"web-0": "hv1", "web-1": "hv2"})
    assert [m.host for m in placed(group(2, [member(0, host="hv1")]), homes, RollPolicy()).members] == ["hv1", "hv2"]
    assert messages(group(2, [member(0, host="hv3")]), RollPolicy(), homes) == ["web-0 lies on hv3, but hosts says hv1"]
    assert messages(group(3, []), RollPolicy(), homes) == ["web-2: no host is given"]


def test_no_host_for_new_members():
    assert messages(group(2, [member(0)]), RollPolicy(), Homes()) == ["web-1: no host is given"]


def test_more_members_than_a_host_may_have():
    assert messages(group(5, []), RollPolicy(max_members_per_host=1)) == [
        "hv0 would have 2 members, but max_members_per_host is 1"
    ]
    assert messages(group(4, []), RollPolicy(max_members_per_host=1)) == []


def test_hosts_are_kept_in_their_order():
    assert parse_homes(["hv1", "hv0"]) == Homes(("hv1", "hv0"))
    assert parse_homes({"web-0": "hv1"}) == Homes(fixed={"web-0": "hv1"})
    assert parse_homes([]) == Homes()


@pytest.mark.parametrize("raw", [None, "", "hv0", [1], [""], {"web-0": None}, {"": "hv0"}, ["hv0", "hv0"]])
def test_hosts_are_a_list_or_a_map(raw):
    with pytest.raises(FlexdiskError, match="hosts "):
        parse_homes(raw)


def test_a_floor_that_is_broken_already_stops_the_roll_with_who_is_down():
    members = [*stale(3), member(3, in_service=False, reachable=False)]
    policy = RollPolicy(3, 1, failure_budget=Amount(1), **ANYWHERE)
    assert messages(group(4, members), policy) == [
        "web-2, web-1, web-0 cannot be changed: 3 members are in service, at least 3 must be, and at most 99 of a host "
        "may be down; down: web-3 on hv3"
    ]
    plan = plan_group(group(4, members), replace(policy, min_in_service=2), HOMES)
    assert (plan.problems, plan.done, len(plan.steps)) == ((), False, 3)
    assert plan.warnings == ("web-3 cannot be read and will not be changed, and count as down",)


def test_failures_and_hosts_that_cannot_be_read_have_one_budget():
    members = [*stale(3), member(3, in_service=False, reachable=False)]
    found = group(4, members, failed=frozenset({"web-2"}))
    policy = RollPolicy(0, 1, failure_budget=Amount(25, True), **ANYWHERE)
    assert messages(found, policy) == ["failure_budget is 1, but web-2 failed and web-3 cannot be read"]
    assert messages(found, replace(policy, failure_budget=Amount(2))) == []


def test_members_that_may_not_be_touched_want_no_surge_for_ever():
    """They neither wait for a place nor make room for another one."""
    members = [member(0, change=RESTART), member(3, in_service=False)]
    found = group(1, members, keeps_disks=False, failed=frozenset({"web-0", "web-3"}))
    policy = RollPolicy(1, 1, failure_budget=Amount(2), **ANYWHERE)
    plan = plan_group(found, policy, HOMES)
    assert (plan.steps, plan.problems, plan.done, plan.left) == ((), (), False, ("web-0", "web-3"))


def test_a_member_that_cannot_be_read_does_not_serve():
    members = [member(0), replace(member(1), reachable=False), member(2, change=RESTART)]
    policy = RollPolicy(2, 1, failure_budget=Amount(1), **ANYWHERE)
    assert messages(group(3, members), policy) == [
        "web-2 cannot be changed: 2 members are in service, at least 2 must be, and at most 99 of a host may be down; "
        "down: web-1 on hv1"
    ]
    plan = plan_group(group(3, [*members[:2], member(2)]), policy, HOMES)
    assert (plan.steps, plan.done, plan.left, plan.problems) == ((), False, ("web-1",), ())


def test_surge_members_get_hosts_too():
    policy = RollPolicy(2, 1, **ANYWHERE)
    plan = plan_group(group(2, stale(2), keeps_disks=False), policy, HOMES)
    created = [(a.member, a.host) for step in plan.steps for a in step.actions if a.do == "create"]
    assert created == [("web-2", "hv2")]
    fixed = Homes(fixed={"web-0": "hv0", "web-1": "hv1"})
    assert messages(group(2, stale(2), keeps_disks=False), policy, fixed) == ["web-2: no host is given"]
    most = replace(policy, max_members_per_host=1)
    assert messages(group(2, stale(2), keeps_disks=False), most, Homes(("hv0", "hv1"))) == [
        "hv0 would have 2 members, but max_members_per_host is 1"
    ]


@pytest.mark.parametrize("there", [True, False])
def test_a_canary_that_is_down_or_new_goes_without_healthy_members(there):
    members = [member(0, change=RESTART), member(2, change=RESTART), member(3, change=RESTART)]
    if there:
        members.append(member(1, in_service=False, change=RESTART))
    policy = RollPolicy(0, 3, canary=("web-1",), canary_pause=60, pause=5, **ANYWHERE)
    found, _end = roll.all_steps(group(4, members), policy)
    assert [[action.index for action in step.actions] for step in found] == [[1], [3, 2, 0]]
    assert found[0].pause == 60


def test_canaries_are_made_first_and_alone():
    policy = RollPolicy(0, 3, canary=1, canary_pause=60, pause=5, **ANYWHERE)
    found, _end = roll.all_steps(group(4, []), policy)
    assert [[action.index for action in step.actions] for step in found] == [[3], [0, 1, 2]]
    assert [step.pause for step in found] == [60, 5]


def test_no_member_is_made_beside_a_canary_that_is_there():
    """One that did not come up, and one that is to take the new template, whose other members are still to be made."""
    policy = RollPolicy(0, 3, canary=("web-0",), **ANYWHERE)
    for canary in (member(0, in_service=False), member(0, change=RESTART)):
        found, done = steps(group(3, [canary]), policy)
        assert [[*step.values()] for step in found] == [[[0]], [[1, 2]]]
        assert done


def test_a_canary_that_the_floor_holds_waits_for_new_members():
    policy = RollPolicy(2, 1, canary=("web-0",), **ANYWHERE)
    assert steps(group(2, stale(2), keeps_disks=False), policy)[0] == [
        {"create": [2]}, {RESTART: [0]}, {RESTART: [1]}, {"remove": [2]},
    ]  # fmt: skip


def made(plan):
    return [(action.member, action.host) for step in plan.steps for action in step.actions if action.do == "create"]


@seed(int(os.environ["FLEXDISK_SEED"]))
@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(st.integers(0, 8), max_size=4, unique=True),
    st.integers(1, 3),
    st.booleans(),
    st.sets(st.integers(0, 9), max_size=3),
    st.integers(0, 9),
)
def test_members_are_made_on_the_hosts_that_the_first_plan_shows(size, there, batch, keeps_disks, canaries, floor):
    """Each step is planned anew from what is there then, and new members are spread by that."""
    policy = RollPolicy(floor, batch, canary=tuple(f"web-{index}" for index in sorted(canaries)), **ANYWHERE)
    found = group(size, [member(index, change=RESTART, host="hv1") for index in there], keeps_disks=keeps_disks)
    first, used = plan_group(found, policy, HOMES), []
    while plan := plan_group(found, policy, HOMES).steps:
        used += [(action.member, action.host) for action in plan[0].actions if action.do == "create"]
        found = roll.group_after(found, plan[0])
    assert used == made(first)


def test_a_deadline_without_pauses_refuses_nothing():
    assert messages(group(1, [member(0)]), RollPolicy(deadline=0)) == []
    assert messages(group(1, stale(1)), RollPolicy(deadline=0, pause=9)) == []


def test_a_host_without_a_name_that_cannot_be_read():
    members = [member(0, host="", reachable=False)]
    assert messages(group(2, members), RollPolicy(failure_budget=Amount(1))) == [
        "web-0, web-1: no host is chosen while the host of web-0 cannot be read"
    ]


def test_warnings():
    plan = plan_group(group(2, [member(0), member(1, in_service=False)]), RollPolicy(3, 1), HOMES)
    assert plan.warnings == (
        "min_in_service is 3, but the group has 2 members; 2 is meant",
        "1 of 2 members are in service, fewer than 3; no healthy one is touched",
    )
    exact = plan_group(group(2, [member(0), member(1, in_service=False)]), RollPolicy(2, 1), HOMES)
    assert exact.warnings == ("1 of 2 members are in service, fewer than 2; no healthy one is touched",)
    assert plan_group(group(2, [member(0), member(1)]), RollPolicy(2, 1), HOMES).warnings == ()


# -- random histories

_FAULTS = st.sampled_from(["none"] * 3 + ["fails", "killed", "down", "template", "size", "unreachable", "back"])


class World:
    """VMs as they are, changed by the steps of a roll and by everybody else."""

    def __init__(self, size, keeps_disks):
        self.version, self.size, self.keeps_disks = 1, size, keeps_disks
        self.vms = {index: {"version": 0, "up": True, "marked": False} for index in range(size)}
        self.unreachable = set()

    def observed(self, failed=frozenset()):
        members = [
            member(
                index,
                in_service=vm["up"] and not self._dark(index),
                change=NOTHING if vm["version"] == self.version else (RESTART, RECREATE)[index % 2],
                marked=vm["marked"],
                reachable=not self._dark(index),
            )
            for index, vm in self.vms.items()
        ]
        return group(self.size, members, keeps_disks=self.keeps_disks, failed=frozenset(failed))

    def _dark(self, index):
        return HOSTS[index % len(HOSTS)] in self.unreachable

    def do(self, step, fault, dice):
        """Carry a step out. Returns the members that have failed in it."""
        actions = list(step.actions)
        if fault == "killed":
            cut = dice.randrange(len(actions) + 1)
            for action in actions[cut:]:
                if action.index in self.vms and action.do not in (LIVE, "remove", "return"):
                    self.vms[action.index].update(up=False, marked=True)
            actions = actions[:cut]
        failed = set()
        for action in actions:
            if action.do == "return":
                self.vms[action.index]["marked"] = False
                continue
            if action.do == "remove":
                del self.vms[action.index]
                continue
            broken = fault == "fails" and action is actions[-1]
            self.vms[action.index] = {"version": self.version, "up": not broken, "marked": False}
            failed |= {action.member} if broken else set()
        return failed


@seed(int(os.environ["FLEXDISK_SEED"]))
@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([1, 2, 99]),
    st.lists(_FAULTS, max_size=25),
    st.randoms(use_true_random=False),
)
def test_every_promise_holds_in_random_histories(size, floor, batch, keeps_disks, per_host, faults, dice):
    """The floor, the size, and the end: whatever happened, the roll ends as declared when nothing more happens."""
    world = World(size, keeps_disks)
    policy = RollPolicy(floor, batch, max_down_per_host=per_host)
    failed = set()
    for fault in [*faults, *["none"] * 200]:
        if fault == "down" and world.vms:
            world.vms[dice.choice(sorted(world.vms))]["up"] = False
        elif fault == "template":
            world.version += 1
        elif fault == "size":
            world.size = dice.randrange(9)
        elif fault == "unreachable":
            world.unreachable.add(dice.choice(HOSTS))
        elif fault == "back":
            world.unreachable.clear()
        if fault == "none" and len(failed) and dice.random() < 0.5:
            failed = set()  # another run
        found = world.observed(failed)
        step = roll.next_step(found, policy)
        if step is None:
            if fault == "none":
                world.unreachable, failed = set(), set()
                if roll.is_done(world.observed()):
                    break
            continue
        serving = found.serving
        leave = sum(a.do in (RESTART, RECREATE, "remove") and _serves(found, a) for a in step.actions)
        assert not leave or serving - leave >= min(floor, world.size)
        assert step.in_service == serving - leave
        assert sum(a.do not in (LIVE, "remove", "finish", "return") for a in step.actions) <= batch
        stuck = sum(m.index >= world.size and (not m.reachable or m.name in failed) for m in found.there)
        assert step.peak <= max(world.size + stuck, len(found.there)) + (0 if keeps_disks else batch)
        assert all(count <= per_host for count in _down_by(found, step).values())
        assert not {a.member for a in step.actions} & failed
        failed |= world.do(step, fault, dice)
    world.unreachable.clear()
    end = world.observed()
    if not roll.is_done(end):
        assert keeps_disks, "only a floor that needs a surge of members with disks stops a roll"
        assert end.serving <= min(floor, world.size) or min(floor, world.size) == world.size
        assert plan_group(end, policy, HOMES).problems
    else:
        assert roll.next_step(end, policy) is None


STATES = st.builds(
    member,
    index=st.integers(0, 7),
    there=st.booleans(),
    in_service=st.booleans(),
    change=st.sampled_from([NOTHING, LIVE, RESTART, RECREATE]),
    marked=st.sampled_from([False, False, True]),
    reachable=st.sampled_from([True, True, True, False]),
)


@seed(int(os.environ["FLEXDISK_SEED"]))
@settings(max_examples=500, deadline=None)
@given(
    st.integers(0, 6),
    st.lists(STATES, max_size=7, unique_by=lambda m: m.index),
    st.sets(st.integers(0, 7), max_size=3),
    st.integers(0, 7),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([1, 2, 99]),
)
def test_every_roll_ends_and_keeps_the_floor_from_any_state(size, members, failed, floor, batch, keeps_disks, per_host):
    found = group(size, members, keeps_disks=keeps_disks, failed=frozenset(f"web-{index}" for index in failed))
    policy = RollPolicy(floor, batch, max_down_per_host=per_host)
    done, end = roll.all_steps(found, policy)
    assert roll.next_step(end, policy) is None, "the steps were cut off by their limit"
    for step in done:
        touched = {action.member for action in step.actions}
        leave = sum(a.do in (RESTART, RECREATE, "remove") and _serves(found, a) for a in step.actions)
        assert len(touched) == len(step.actions)
        assert not leave or found.serving - leave >= min(floor, size)
        assert step.in_service == found.serving - leave
        assert not touched & (found.failed | {m.name for m in found.members if not m.reachable})
        assert all(count <= per_host for count in _down_by(found, step).values())
        found = roll.group_after(found, step)
    plan = plan_group(found, policy, HOMES)
    assert plan.done or plan.left or plan.problems


def _serves(found, action):
    return any(m.name == action.member and m.serves for m in found.there)


def _down_by(found, step):
    """Of each host from which a member in service is taken: how many are down with it."""
    taken = Counter(a.host for a in step.actions if a.do in (RESTART, RECREATE, "remove") and _serves(found, a))
    down = Counter(m.host for m in found.members if not m.serves and m.index < found.size)
    return {host: count + down[host] for host, count in taken.items()}


def test_the_policy_of_words_and_the_roll_agree():
    policy, problems = parse_policy({"max_unavailable": "25%", "max_surge": 1})
    assert problems == []
    plan = plan_group(group(8, stale(8), keeps_disks=False), replace(policy, max_down_per_host=9), HOMES)
    assert (plan.problems, plan.in_service, plan.peak) == ((), 6, 9)


# -- large groups


def calls_of_a_plan(size):
    """How many functions of the collection are called for the plan of a group of so many members."""
    count = 0

    def profile(frame, event, _argument):
        nonlocal count
        count += event == "call" and "fleet/groups" in frame.f_code.co_filename

    policy = RollPolicy(max_batch_size=2)
    found = group(size, stale(size))
    sys.setprofile(profile)
    try:
        planned = plan_group(found, policy, HOMES)
    finally:
        sys.setprofile(None)
    assert not planned.problems
    return count


def test_the_plan_of_a_large_group_costs_members_times_steps():
    """Each step looks at each member once: four times the members have four times the steps, and nothing more."""
    small, large = calls_of_a_plan(50), calls_of_a_plan(200)
    assert large < 16 * 1.1 * small
