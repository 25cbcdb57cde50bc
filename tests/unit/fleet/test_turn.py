# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of instance_group does next: whatever is wrong with a group is said before anything is changed."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups import report, template, turn
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.memory import (
    ROUNDS,
    TURNS,
    Memory,
    Turn,
    TurnInput,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import OPTIONS
from tests.unit.engine.conftest import IMAGE

from .cluster import ROLE, SECOND, Cluster, Roll, boot_image, group_of

BUDGET = {"failure_budget": 1}


@pytest.fixture(scope="module")
def made():
    """Two members, web-0 on hv0 and web-1 on hv1."""
    cluster = Cluster()
    plan = Roll(cluster, group_of(2, policy={"max_batch_size": 2})).run()
    assert plan["done"], plan
    return cluster


@pytest.fixture
def cluster(made):
    return copy.deepcopy(made)


def said(cluster, group):
    """Why a group is refused, as the role says it before its first step. It has changed nothing."""
    before = {host: sim.fingerprint() for host, sim in cluster.hosts.items()}
    roll = Roll(cluster, group)
    reasons = list(roll.find().reasons)
    plan = {} if reasons else roll.look()
    assert {host: sim.fingerprint() for host, sim in cluster.hosts.items()} == before
    return plan["msg"].splitlines() if "problems" in plan else reasons


def test_a_group_that_is_well_declared(cluster):
    assert said(cluster, group_of(2)) == []


# -- what is wrong with the declaration, whatever the hosts have


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hosts": ["hv0", "hv9", "hv8"]}, ["hosts names hv8, hv9, which this play does not have"]),
        ({"hosts": {"web-0": "hv9"}}, ["hosts names hv9, which this play does not have"]),
        ({"hosts": {"db-0": "hv0", "web-x": "hv1"}}, [
            "hosts names db-0, which is not a member of web", "hosts names web-x, which is not a member of web",
        ]),
        ({"hosts": ["hv0", "hv0"]}, ["hosts names hv0 more than once"]),
        ({"hosts": "hv0"}, ["hosts is a list of hosts, or a map from members to hosts; got 'hv0'"]),
        ({"size": -1}, ["size is -1, but must not be negative"]),
        ({"size": 99999}, ["size is 99999, but a group has at most 10000 members"]),
        ({"replace": ["web-99", "web-0", "db-0"]}, [
            "replace names db-0, which is not a member of web",
            "replace names web-99, which is not a member: the group has size 2",
        ]),
        ({"template": {"state": "stopped", "generation": "a"}},
         ["template has state, generation, which the update of the group sets itself"]),
        ({"members": {"web-5": {}, "db-0": {}}}, ["db-0 is not a member of web, and has words of its own"]),
        ({"policy": {"pause": 5, "canary": -1}}, [
            f'policy has no option "pause"; it has {", ".join(OPTIONS)}',
            "canary: -1 is not a whole number of 0 or more",
        ]),
        ({"policy": {"min_in_service": 1, "max_surge": 1}}, ["policy takes min_in_service or max_surge, but not both"]),
    ],
)  # fmt: skip
def test_wrong_declarations(cluster, given, words):
    size = given.pop("size", 2)
    assert said(cluster, group_of(size, **given)) == words


def test_all_that_is_wrong_with_a_declaration_is_said_together(cluster):
    words = said(
        cluster,
        group_of(
            -1,
            template={"tags": {"a": "{instance.ip}"}},
            members={"db-1": 5},
            policy={"x": 1},
            hosts={"db": "hv7"},
        ),
    )
    assert len(words) == 7


# -- what is wrong with where the members are


def test_a_member_on_a_host_that_is_not_its_own(cluster):
    assert said(cluster, group_of(2, hosts={"web-0": "hv0", "web-1": "hv1"})) == []
    assert said(cluster, group_of(2, hosts={"web-0": "hv1", "web-1": "hv0"})) == [
        "web-0 lies on hv0, but hosts says hv1 [InvalidArgument]",
        "web-1 lies on hv1, but hosts says hv0 [InvalidArgument]",
    ]


def test_a_list_of_hosts_moves_no_member(cluster):
    assert said(cluster, group_of(2, hosts=["hv3"])) == []


def test_a_new_member_without_a_host(cluster):
    assert said(cluster, group_of(3, hosts={"web-0": "hv0", "web-1": "hv1"})) == [
        "web-2: no host is given [InvalidArgument]"
    ]


def entry(name):
    return {"package": "p", "image": IMAGE, "vm": name, "disks": group_of(1)["template"]["disks"]}


def test_two_vms_of_one_name_on_two_hosts(cluster):
    """Of all kinds of trouble that is said together, both members have some."""
    roll = Roll(cluster, group_of(2))
    assert not roll.vm("hv2", [entry("web-0")]).get("failed")
    roll.vm("hv3", [entry("web-1")])
    roll.vm("hv3", [{"vm": "web-1", "state": "absent"}])
    assert said(cluster, group_of(2)) == [
        "web-0 is in several places: hv0 has a VM of this name and hv2 has a VM of this name",
        "web-1 is in several places: hv1 has a VM of this name and hv3 has its detached disks",
    ]


def test_a_vm_that_cannot_be_managed_has_the_name_of_a_member(cluster):
    sim = cluster.hosts["hv2"]
    image, uuid = IMAGE.replace("1", "9"), IMAGE.replace("aaaa", "dddd")
    sim.admin("image-import", image, "0", "type=zone-dataset")
    payload = {"uuid": uuid, "brand": "joyent-minimal", "image_uuid": image, "alias": "web-2", "quota": 5}
    sim.run("vmadm", "create", stdin=json.dumps(payload))
    assert said(cluster, group_of(3)) == ["hv2 has a VM web-2, which this collection cannot manage"]


def test_the_members_of_another_group_are_none(cluster):
    roll = Roll(cluster, group_of(2))
    roll.vm("hv2", [entry("web-front-0"), entry("db-0")])
    assert roll.look()["done"]
    assert [member["name"] for member in roll.members] == ["web-0", "web-1"]


def test_more_members_than_a_host_may_have(cluster):
    policy = {"max_members_per_host": 2}
    assert said(cluster, group_of(4, hosts=["hv0", "hv1"], policy=policy)) == []
    assert said(cluster, group_of(5, hosts=["hv0", "hv1"], policy=policy)) == [
        "hv0 would have 3 members, but max_members_per_host is 2 [InvalidArgument]"
    ]


# -- what is wrong with the template, for those who make plans of it


def test_a_template_that_the_hosts_refuse_is_refused_for_all_members_together(cluster):
    words = said(cluster, group_of(3, template={"package": "none"}))
    assert [line.split(":")[0] for line in words] == ["web-0", "web-1", "web-2"]
    assert all("none" in line for line in words)


def test_a_disk_that_would_shrink_is_refused_for_those_that_have_it(cluster):
    words = said(cluster, group_of(2, template={"disks": [{"name": "root"}, {"name": "data", "size": 8}]}))
    assert [line.split(":")[:2] for line in words] == [["web-0", " data"], ["web-1", " data"]]


@pytest.mark.parametrize(("given", "ceiling", "needs"), [
    ({"image": SECOND}, "restart", "recreate"),
    ({"memory": 256}, "live", "restart"),
])  # fmt: skip
def test_a_change_that_needs_more_than_the_policy_allows(cluster, given, ceiling, needs):
    group = group_of(2, template=given, policy={"action_ceiling": ceiling})
    assert said(cluster, group) == [
        f"action_ceiling is {ceiling}, but {needs} is needed for web-0, web-1 [InvalidArgument]"
    ]
    assert said(cluster, group_of(2, template=given, policy={"action_ceiling": needs})) == []


def test_a_floor_that_only_members_without_data_could_hold(cluster):
    (words,) = said(cluster, group_of(2, SECOND, policy={"min_in_service": 2}))
    assert "2 of 2 members in service and 1 changed at a time take 3 members" in words
    assert "min_in_service=1 needs none" in words


# -- hosts that cannot be read


def test_a_host_that_cannot_be_read_is_no_refusal_within_the_budget(cluster):
    cluster.cut.add("hv1")
    assert said(cluster, group_of(2)) == ["failure_budget is 0, but web-1 cannot be read [InvalidArgument]"]
    assert said(cluster, group_of(2, policy=BUDGET)) == []
    roll = Roll(cluster, group_of(2, SECOND, policy=BUDGET))
    assert [step["actions"][0]["member"] for step in roll.look()["steps"]] == ["web-0"]


def test_a_host_that_cannot_be_read_counts_for_the_floor(cluster):
    cluster.cut.add("hv1")
    (words,) = said(cluster, group_of(2, SECOND, policy={**BUDGET, "min_in_service": 1}))
    assert "web-0 cannot be changed: 1 member is in service, at least 1 must be" in words
    assert "down: web-1 on hv1" in words


def test_no_member_gets_a_host_while_one_cannot_be_read(cluster):
    cluster.cut.add("hv3")
    group = group_of(3, policy={"failure_budget": 3})
    assert said(cluster, group) == []
    roll = Roll(cluster, group)
    plan = roll.look()
    assert (plan["next"], plan["left"]) == ({}, ["web-2"])
    assert [m["host"] for m in roll.members if not m["reachable"]] == ["hv3"]
    cluster.cut.clear()
    assert [action["do"] for action in Roll(cluster, group).look()["next"]["actions"]] == ["create"]


def test_a_map_tells_where_a_new_member_is_but_not_that_it_is_not_elsewhere(cluster):
    cluster.cut.add("hv3")
    homes = {"web-0": "hv0", "web-1": "hv1", "web-2": "hv2", "web-3": "hv3"}
    assert said(cluster, group_of(4, hosts=homes, policy=BUDGET)) == [
        "failure_budget is 1, but web-2, web-3 cannot be read [InvalidArgument]"
    ]


def test_a_member_is_not_made_a_second_time_where_it_was_given_another_host(cluster):
    """web-1 lies on hv1, which does not answer. The operator names hv2 for it: there it would have no data."""
    cluster.cut.add("hv1")
    group = group_of(2, hosts={"web-0": "hv0", "web-1": "hv2"}, policy={**BUDGET, "failure_budget": 2})
    roll = Roll(cluster, group)
    plan = roll.look()
    assert (plan["next"], plan["left"]) == ({}, ["web-1"])
    cluster.cut.clear()
    assert said(cluster, group) == ["web-1 lies on hv1, but hosts says hv2 [InvalidArgument]"]


# -- what is done with the members of a step


def test_members_above_the_size_are_removed_and_nothing_more_is_asked_of_them(cluster):
    roll = Roll(cluster, group_of(1, template={"destroy_disks": True}))
    look = roll.find()
    asked = [entry for vms in look.vms.values() for entry in vms]
    assert [(e["vm"], e["state"], "restart" in e) for e in asked] == [
        ("web-0", "running", True),
        ("web-1", "absent", False),
    ]
    roll.run_until("show")
    assert [action["do"] for action in roll.plan["next"]["actions"]] == ["remove"]


def test_a_step_has_its_members_with_what_is_done_to_them(cluster):
    roll = Roll(cluster, group_of(2, SECOND))
    roll.look()
    (member,) = roll.take().memory.batch
    assert (member["name"], member["host"], member["do"]) == ("web-1", "hv1", "recreate")
    root = next(disk for disk in member["disks"] if disk["boot"])
    (former,) = template.restore_entries([member])
    assert (former["memory"], former["vcpus"]) == (512, 1)
    assert former["disks"] == [{"uuid": root["uuid"], "name": "root", "boot": True, "recreate": True}]
    (former,) = template.restore_entries([{**member, "do": "restart"}])
    assert former["disks"] == []


def test_a_step_that_fails_is_gone_back_on(cluster):
    """Both members get the bad image, do not come back, and have their old boot disks, their load and no mark then."""
    roots = {name: boot_image(vm) for name, (_host, vm) in cluster.vms().items()}
    cluster.pooled |= set(roots)
    cluster.broken = {SECOND}
    policy = {"max_batch_size": 2, "on_failure": "revert"}
    roll = Roll(cluster, group_of(2, SECOND, policy=policy))
    roll.run()
    (stop, left) = roll.turn.reasons
    assert stop.endswith(
        "failure_budget is 0, but web-0, web-1 failed [InvalidArgument]; back to what they were: web-0, web-1"
    )
    assert left == "web-0, web-1: not as declared"
    assert [line.split()[-2:] for line in roll.turn.table[1:]] == [["FAILED,", "reverted"]] * 2
    assert {name: boot_image(vm) for name, (_host, vm) in cluster.vms().items()} == roots
    assert cluster.pooled == set(roots)
    assert [vm["drained"] for host in cluster.hosts for vm in roll.info(host)["vms"]] == [False, False]


def test_no_marks_without_hooks(cluster):
    """Nothing takes the members out of anything, so nothing has to be put back."""
    cluster.pooled |= {"web-0", "web-1"}
    done = []
    group = group_of(2, SECOND, before_member=[], after_member=[])
    roll = Roll(cluster, group, done.append)
    assert roll.run()["done"]
    assert done == [f"vm on hv{n}{end}" for n in (1, 0) for end in ("", " is done")]


@pytest.mark.parametrize(
    ("most", "steps", "reasons"),
    [(0, 2, ()), (1, 1, ()), (2, 2, ())],
)
def test_no_more_steps_than_wanted(cluster, most, steps, reasons):
    roll = Roll(cluster, group_of(2, SECOND, most_steps=most))
    roll.run()
    assert (roll.steps, tuple(roll.turn.reasons)) == (steps, reasons)


def test_a_deadline_ends_a_roll_between_steps_and_after_a_pause(cluster):
    """The double's clock goes on by one at each turn."""
    roll = Roll(cluster, group_of(2, SECOND, policy={"pause_time": 3, "deadline": 20}))
    roll.run()
    assert (roll.steps, roll.turn.reasons) == (2, [])
    roll = Roll(cluster, group_of(2, policy={"pause_time": 3, "deadline": 10}))
    roll.run()
    assert (roll.steps, roll.turn.reasons) == (1, ["the deadline of 10 s is over"])
    assert cluster.pooled >= {"web-1"}


def test_a_pause_has_parts_between_which_a_lease_is_renewed(cluster):
    roll = Roll(cluster, group_of(2, SECOND, policy={"pause_time": 50}, lease_ttl=80, gate={"retries": 1}))
    roll.group["stop_timeout"] = 5
    roll.run()
    assert roll.turn.reasons == []
    assert roll.paused == [20, 20, 10]


# -- the lease


GROUP = {**ROLE, **group_of(1), "all_hosts": ["hv0"]}
MINE = {"lease": {"token": "mine"}, "pool": "zones"}
FOREIGN = {"lease": {"token": "other"}, "msg": "web: somebody", "error_code": "InUse"}


def lease_turn(last, now=1.0, **heard):
    return turn.take(GROUP, json.loads(json.dumps(last.result())), TurnInput(now, ["hv0"], **heard))


def begun(**more):
    return turn.take({**GROUP, **more}, {}, TurnInput(1.0, ["hv0"]))


def held():
    """A run that has its lease and reads the VMs next."""
    look = {"leases": [], "places": [{"pool": "zones", "guid": 1}]}
    return lease_turn(lease_turn(begun(), answers={"hv0": look}), answers={"hv0": MINE})


def test_the_lease_is_looked_for_and_taken_before_anything_is_read():
    first = begun()
    assert (first.do, first.lease["state"], first.lease["hosts"]) == ("lease", "reported", ["hv0"])
    look = {"leases": [], "places": [{"pool": "zones", "guid": 1}]}
    taking = lease_turn(first, answers={"hv0": look})
    assert (taking.do, taking.memory.places) == ("lease", {"hv0": "zones"})
    assert taking.lease == {"state": "held", "hosts": ["hv0"], "renew": False, "take_over": False}
    assert lease_turn(first, answers={"hv0": look}, check_mode=True).do == "info"
    ready = lease_turn(taking, answers={"hv0": MINE}, now=5.0)
    assert (ready.do, ready.then, ready.memory.token, ready.memory.renewed) == ("info", "look", "mine", 5.0)


def test_a_run_without_the_lease_does_nothing_and_gives_back_only_what_it_has():
    look = {"leases": [], "places": [{"pool": "zones", "guid": 1}]}
    refused = lease_turn(lease_turn(begun(), answers={"hv0": look}), answers={"hv0": FOREIGN})
    assert (refused.do, refused.refused["msg"], refused.memory.places) == ("", "hv0: web: somebody", {})
    unread = lease_turn(lease_turn(begun(), answers={"hv0": look}), answers={"hv0": {"unreachable": True, "msg": "no"}})
    assert (unread.do, unread.memory.places) == ("", {"hv0": "zones"}), "it may have it"


def test_a_lease_that_grows_old_is_renewed_before_what_comes_next():
    old = Turn(held().memory, "vm", "changed", "Change the members", vms={"hv0": [{"vm": "web-0"}]})
    hooks = replace(old, do="hooks", then="serving", members={"hv0": [{"name": "web-0"}]}, hooks=["a"])
    for now, do in ((450.0, "info"), (452.0, "lease")):
        assert lease_turn(Turn(hooks.memory, "vm", "end"), now=now).do == do
    renewing = hooks.after_renewal()
    assert (renewing.lease["renew"], renewing.lease["take_over"]) == (True, False)
    again = lease_turn(renewing, answers={"hv0": MINE}, now=460.0)
    assert (again.do, again.then, again.members, again.hooks) == ("hooks", "serving", hooks.members, ["a"])
    assert lease_turn(renewing, answers={"hv0": FOREIGN}).refused["msg"] == "hv0: web: somebody"


def test_every_step_begins_with_a_lease_that_is_as_good_as_new():
    step = {"actions": [{"member": "web-0", "do": "restart", "host": "hv0", "destroys": 0}], "pause": 0}
    member = {"name": "web-0", "host": "hv0", "marked": False}
    memory = replace(held().memory, steps=[step], bound=1, members=[member])
    beginning = lease_turn(Turn(memory, "show", "go"), now=2.0)
    assert (beginning.do, beginning.lease["renew"], beginning.memory.number) == ("lease", True, 1)
    marking = lease_turn(beginning, answers={"hv0": MINE})
    assert (marking.do, marking.vms) == ("vm", {"hv0": [{"vm": "web-0", "drained": True}]})


def test_hosts_are_chosen_once_for_a_look():
    """Also if a member has got none: one that would be there for a while only may remain without."""
    group = {**GROUP, "hosts": "auto", "size": 2}
    look = {"vms": [], "parked": [], "skipped_vms": [], "intents": [], "pools": [], "moves": []}
    reading = replace(held(), vms={})
    placing = turn.take(group, json.loads(json.dumps(reading.result())), TurnInput(2.0, ["hv0"], answers={"hv0": look}))
    assert (placing.do, [vm["vm"] for vm in placing.place["vms"]["hv0"]]) == ("place", ["web-0", "web-1"])
    heard = TurnInput(3.0, ["hv0"], answers={"hv0": look}, placed={"web-0": "hv0"})
    asking = turn.take(group, json.loads(json.dumps(placing.result())), heard)
    assert (asking.do, asking.memory.chosen) == ("ask", {"web-0": "hv0"})


# -- what is said before and after a run


def test_what_a_run_could_not_do_is_refused_before_it_looks_at_any_host():
    missing = TurnInput(1.0, ["hv0"], missing=["/nowhere/a.yml", "/nowhere/b.yml", "/nowhere/a.yml"])
    refused = turn.take({**GROUP, "host_groups": ["rack1"]}, {}, missing)
    assert refused.refused["msg"] == (
        "web: host_groups (rack1) chooses hosts only with `hosts: auto`; leave it out, or write `hosts: auto`. "
        "no such task file: /nowhere/a.yml, /nowhere/b.yml"
    )
    assert turn.take({**GROUP, "host_groups": ["rack1"], "hosts": "auto"}, {}, TurnInput(1.0, ["hv0"])).do == "lease"


def test_the_end_stays_the_end_with_what_it_says():
    end = Turn(Memory(), table=["a"], reasons=["b"])
    again = lease_turn(end).result()
    assert json.dumps(again) == json.dumps(end.result())


def test_loops_are_as_long_as_what_is_ahead():
    """A run that has nothing to do needs one round. No run of any length needs many rounds of rounds."""
    assert [begun().result()[key] for key in ("rounds", "turns")] == [1, TURNS]
    assert Turn(Memory()).result()["turns"] == 0
    left, deep = 10_000, 0
    while left:
        memory = Memory(steps=[{}] * left, bound=left)
        left, deep = max(0, left - Turn(memory, "vm").result()["rounds"] // 2), deep + 1
    assert deep < 100
    assert Turn(Memory(steps=[{}] * 3, bound=2), "vm").result()["rounds"] == 4 < ROUNDS
    assert Turn(Memory(steps=[{}] * 3, bound=3, stop="no"), "vm").result()["rounds"] == 1


def test_the_table_of_what_was_done():
    log = [
        {"step": 1, "member": "web-1", "host": "hv1", "do": "restart", "seconds": 12.4},
        {"step": 2, "member": "web-0", "host": "hv0", "do": "create", "seconds": 3.0},
    ]
    assert report.done_table(log, ["web-0"], []) == [
        "STEP  MEMBER  HOST  DONE TO IT  OUT OF SERVICE  RESULT",
        "1     web-1   hv1   restart     12 s            ok",
        "2     web-0   hv0   create      -               FAILED",
    ]
    later = [{**log[0], "step": 1, "do": "return"}, {**log[0], "step": 2}, {**log[0], "member": "web-0", "step": 2}]
    rows = report.done_table(later, ["web-0"], ["web-0", "web-1"])[1:]
    assert [line.split(" s  ")[-1].strip() for line in rows] == ["ok", "reverted", "FAILED, reverted"]
    assert report.done_table([], [], []) == []
