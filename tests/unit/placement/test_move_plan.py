# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of move_plan: which VM goes where, in which order, why another one cannot, and what is no request."""

from __future__ import annotations

import copy
import os
import random

import pytest

from .fleets import NOW, carry_out, host, info, plan, random_fleet, uuid, vm

SEED = int(os.environ.get("FLEXDISK_SEED", "1"))
COUNT = 2000 if os.environ.get("FLEXDISK_FULL") else 150


def four(*vms, **more):
    """Four hosts in two groups. The VMs are on the first one."""
    return [
        host("a1", info(1, *vms), group="a", **more),
        host("a2", info(2, vm(20)), group="a"),
        host("b1", info(3, memory=8192), group="b"),
        host("b2", info(4), group="b"),
    ]


def homes(found):
    return {entry["name"]: entry["to"] for entry in found["moved"]}


def test_an_evacuation_stays_in_the_group():
    found = plan("evacuate", four(vm(1), vm(2)), from_hosts=["a1"])
    assert homes(found) == {"vm1": "a2", "vm2": "a2"}
    assert found["failures"] == []
    assert found["jobs"][0] == {
        "job": 1,
        "name": "vm1",
        "operations": [{"do": "move", "vm": uuid(1), "from": "a1", "to": "a2", "disks": {"zones": 20480}}],
        "depends": [],
        "needs": [],
    }
    assert found["table"][:2] == [
        "JOB  VM   FROM  TO  HOST GROUP  MEMORY  DISKS   AFTER",
        "1    vm1  a1    a2  a           4 GiB   20 GiB  -",
    ]
    assert found["msg"].startswith("evacuate: 2 VMs move, score ")


def test_a_refusal_has_a_reason_for_each_host():
    hosts = [
        host("a1", info(1, vm(1, 16384, 200_000))),
        host("a2", info(2, vm(2, 20480))),
        host("a3", info(3, size=150_000)),
        host("a4", info(4, pool="tank")),
        host("a5", info(5), drained=True),
        host("a6", error="Connection timed out"),
    ]
    found = plan("evacuate", hosts, from_hosts=["a1"])
    assert found["error_code"] == "NoHost"
    assert found["moved"] == []
    assert found["failures"][0]["hosts"] == {
        "a1": "is to be left",
        "a2": "memory: 16 GiB needed, 10 GiB free",
        "a3": "pool zones: 200000 MiB needed, 150000 MiB free",
        "a4": "has no pool zones",
        "a5": "is drained",
        "a6": "could not be read: Connection timed out",
    }
    assert found["unread"] == {"a6": "Connection timed out"}
    assert "vm1: a1: is to be left; a2: memory: 16 GiB needed" in found["msg"]
    assert "error_code" not in plan("evacuate", hosts, from_hosts=["a1"], allow_partial=True)
    assert found["table"][0] == "vm1: no host"


def replica(number, home, pool="zones"):
    return {"vm": uuid(number), "pool": pool, "home": home}


def test_a_host_with_replicas_from_an_earlier_home_is_not_chosen():
    """A replica takes streams only from its own home, so the move would be refused there."""
    hosts = [
        host("a1", info(1, vm(1), vm(2))),
        host("a2", info(2, memory=65536, replicas=[replica(1, 9), replica(2, 1)])),
        host("a3", info(3, vm(3, 20480), replicas=[replica(1, 1), replica(1, 9, "tank")])),
    ]
    assert homes(plan("evacuate", hosts, from_hosts=["a1"])) == {"vm1": "a3", "vm2": "a2"}
    found = plan("evacuate", [*hosts[:2], host("a3", drained=True)], from_hosts=["a1"], vms=["vm1"])
    assert found["error_code"] == "NoHost"
    gives_up = "playbook replicate -e flexdisk_vm=VM -e flexdisk_replica_host=a2 -e flexdisk_replica_state=absent"
    assert found["failures"][0]["hosts"]["a2"] == (
        f"has replicas of it from an earlier home; {gives_up.replace('VM', uuid(1))} gives them up"
    )


def test_nothing_moves_to_or_from_proxmox_ve():
    hosts = [
        host("a1", info(1, vm(1))),
        host("a2", info(2, vm(2), memory=65536, driver="proxmox")),
        host("a3", info(3)),
    ]
    assert homes(plan("evacuate", hosts, from_hosts=["a1"])) == {"vm1": "a3"}
    found = plan("evacuate", hosts[:2], from_hosts=["a1"])
    assert found["failures"][0]["hosts"]["a2"] == (
        "could not be read: it runs Proxmox VE, from and to which this collection moves nothing"
    )


def test_a_vm_whose_memory_is_saved_is_planned_as_one_that_does_not_run():
    hosts = [host("a1", info(1, vm(1, state="saved"))), host("a2", info(2))]
    assert homes(plan("evacuate", hosts, from_hosts=["a1"])) == {"vm1": "a2"}


def test_what_fits_exactly_fits():
    hosts = [host("a1", info(1, vm(1, 8192, 1000))), host("a2", info(2, memory=8192 + 2048, size=1000))]
    assert homes(plan("evacuate", hosts, from_hosts=["a1"])) == {"vm1": "a2"}
    hosts[1]["info"]["memory"]["own"] += 1
    found = plan("evacuate", hosts, from_hosts=["a1"], allow_partial=True)
    assert found["failures"][0]["hosts"]["a2"] == "memory: 8192 MiB needed, 8191 MiB free"
    hosts[1] = host("a2", info(2, size=999))
    found = plan("evacuate", hosts, from_hosts=["a1"], allow_partial=True)
    assert found["failures"][0]["hosts"]["a2"] == "pool zones: 1000 MiB needed, 999 MiB free"


def test_a_tagged_set_leaves_its_group_by_the_policies():
    hosts = [*four(vm(1, tags={"role": "web"}), vm(2), vm(3, tags={"role": "web"})), host("c1", info(5), group="c")]
    asked = {"vm_tags": {"role": "web"}}
    assert homes(plan("change_group", hosts, **asked, to_groups=["b"])) == {"vm1": "b2", "vm3": "b1"}
    later = [{"name": "b", "alloc_policy": "last_resort"}]
    assert homes(plan("change_group", hosts, **asked, host_groups=later)) == {"vm1": "c1", "vm3": "c1"}
    never = [{"name": name, "alloc_policy": "unallocable"} for name in "bc"]
    found = plan("change_group", hosts, **asked, host_groups=never, allow_partial=True)
    assert [entry["reason"] for entry in found["failures"]] == ["no host group takes it"] * 2


def test_lines_of_moves():
    hosts = [host("a1", info(1, *map(vm, range(1, 7))), group="a"), host("b1", info(2), group="b")]
    hosts.append(host("b2", info(3), group="b"))
    found = plan("change_group", hosts, from_groups=["a"], moves_per_host=2)
    assert [job["depends"] for job in found["jobs"]] == [[], [], [1], [2], [3], [4]]
    assert not any(job["needs"] for job in found["jobs"]), "another VM's turn needs no success"
    found = plan("change_group", hosts, from_groups=["a"], moves_between_groups=1)
    assert [job["depends"] for job in found["jobs"]] == [[], [1], [2], [3], [4], [5]]


def test_a_vm_that_is_being_moved_is_left_alone():
    """It is on two hosts, and neither has a VM of it that a plan moves. A tombstone is nothing at all."""
    there, gone = {"alias": "vm1", "since": ""}, {"alias": "vm9", "since": "", "uuid": uuid(9)}
    hosts = four(vm(1), vm(2))
    hosts[0]["info"]["moves"] = [{**there, "uuid": uuid(1), "phase": "leaving", "host": "a2"}]
    hosts[1]["info"]["moves"] = [{**there, "uuid": uuid(1), "phase": "coming", "host": "a1"}]
    hosts[1]["info"]["vms"].append(vm(1, state="stopped"))
    hosts[2]["info"]["moves"] = [{**gone, "phase": "moved", "host": "a9"}]
    assert homes(plan("evacuate", hosts, from_hosts=["a1"])) == {"vm2": "a2"}
    found = plan("change_group", hosts, vms=["vm1", "vm9"])
    assert [(problem["code"], problem["message"][:28]) for problem in found["problems"]] == [
        ("InUse", "VM vm1 is being moved alread"),
        ("ResourceNotFound", "there is no VM vm9 on a1, a2"),
    ]


def test_exclusive_tags_and_tags_of_hosts():
    hosts = four(vm(1, tags={"role": "web"}), vm(2, tags={"role": "db"}), tags=["ssd"])
    hosts[1]["info"]["vms"][0]["tags"] = {"role": "web"}
    hosts[1]["tags"] = ["ssd"]
    found = plan("evacuate", hosts, from_hosts=["a1"], exclusive_tags=["role"], allow_partial=True)
    assert homes(found) == {"vm2": "a2"}
    assert found["failures"][0]["hosts"]["a2"] == "has a VM with the exclusive tag role=web"
    hosts[0]["drained"] = True
    assert homes(plan("evacuate", hosts, from_hosts=["a1"], exclusive_tags=["role"], allow_partial=True)) == {
        "vm2": "a2"
    }
    found = plan("change_group", hosts, vms=["vm1"], to_groups=["b"], allow_partial=True)
    assert found["failures"][0]["hosts"]["b1"] == "lacks tags that VMs of the present host need"
    hosts[3]["tags"] = ["disk"]
    moves = [{"from": "ssd", "to": "disk"}]
    assert homes(plan("change_group", hosts, vms=["vm1"], allowed_moves=moves)) == {"vm1": "b2"}


def test_redundancy_when_it_is_asked_for():
    hosts = [
        host("a1", info(1, vm(1, 16384)), group="a"),
        host("b1", info(2, vm(2, 8192)), group="b"),
        host("b2", info(3, vm(3, 16384)), group="b"),
    ]
    assert homes(plan("change_group", hosts, vms=["vm1"])) == {"vm1": "b1"}
    found = plan("change_group", hosts, vms=["vm1"], redundancy=True, allow_partial=True)
    unsafe = "host b1 could not be lost then: its VMs could not all go elsewhere"
    assert found["failures"][0]["hosts"]["b1"] == unsafe
    new = [{"name": "new", "memory": 16384, "vcpus": 1, "disks": {"zones": 10}}]
    found = plan("place", hosts, new_vms=new, to_groups=["b"], redundancy=True, allow_partial=True)
    assert found["failures"][0]["hosts"]["b1"] == unsafe


def test_a_rebalance_has_few_moves_that_gain():
    hosts = [host("a1", info(1, *map(vm, range(1, 7)))), host("a2", info(2)), host("a3", info(3), drained=True)]
    whole = plan("rebalance", hosts)
    assert set(homes(whole).values()) == {"a2"}
    assert whole["score"]["after"] < whole["score"]["before"] - 0.01 * len(whole["moved"])
    assert len(plan("rebalance", hosts, max_moves=1)["moved"]) == 1
    assert plan("rebalance", hosts, max_moves=0)["moved"] == []
    assert plan("rebalance", hosts, min_gain=10)["msg"] == "rebalance: 0 VMs move"
    assert set(homes(plan("rebalance", hosts, vms=["vm5"]))) <= {"vm5"}


def test_new_vms_get_hosts():
    new = {"vcpus": 2, "disks": {"zones": "20GiB"}}
    hosts = four(*map(vm, range(1, 4)))
    found = plan(
        "place", hosts, new_vms=[{"name": "small", "memory": 1024, **new}, {"name": "big", "memory": "24GiB", **new}]
    )
    assert homes(found) == {"small": "b1", "big": "b2"}
    assert found["jobs"][0]["operations"] == [
        {"do": "create", "vm": "small", "from": "", "to": "b1", "disks": {"zones": 20480}}
    ]
    own = {"a1": {"disks": {"zones": 10}}, "b2": {"refused": "no such image"}}
    found = plan("place", hosts, new_vms=[{"name": "small", "memory": 1024, **new, "hosts": own}])
    assert homes(found) == {"small": "a1"}
    assert found["jobs"][0]["operations"][0]["disks"] == {"zones": 10}
    huge = {"name": "huge", "memory": "30GiB", **new, "hosts": own}
    found = plan("place", hosts, new_vms=[huge], allow_partial=True)
    assert found["failures"][0]["hosts"] == {
        "a1": "memory: 30 GiB needed, 18 GiB free",
        "a2": "is not among its hosts",
        "b1": "is not among its hosts",
        "b2": "no such image",
    }


def test_members_with_an_exclusive_tag_are_spread():
    new = [
        {"name": f"web-{n}", "memory": 1024, "vcpus": 1, "disks": {"zones": 10}, "tags": {"group": "web"}}
        for n in range(5)
    ]
    found = plan("place", four(), new_vms=new, exclusive_tags=["group"], allow_partial=True)
    assert sorted(homes(found).values()) == ["a1", "a2", "b1", "b2"]
    assert len(found["failures"]) == 1


OLD = {"collected": NOW - 901}
AHEAD = {"collected": NOW + 901}
BAD = [
    ({"from_hosts": ["a9"]}, "from_hosts: there is no host a9, but a1, a2, b1, b2 [ResourceNotFound]"),
    ({"from_hosts": ["a1", "a1"]}, "from_hosts: host a1 is named more than once [InvalidArgument]"),
    ({"from_hosts": []}, "evacuate needs from_hosts [InvalidArgument]"),
    ({"vm_tags": {}}, "vm_tags is empty, which would mean all; leave it out for that [InvalidArgument]"),
    (
        {"to_groups": ["b"]},
        "to_groups means nothing to evacuate, which has vms, vm_tags, from_hosts [InvalidArgument]",
    ),
    ({"vms": ["vm9"]}, "there is no VM vm9 on a1, a2, b1, b2 [ResourceNotFound]"),
    ({"vms": ["vm20"]}, "VM vm20: is on a2, not on a1 [InvalidArgument]"),
    ({"vms": ["vm1", uuid(1)]}, f"VM {uuid(1)} is named more than once, also as vm1 [InvalidArgument]"),
    ({"vm_tags": {"role": "web"}}, "no VM has the tag role=web [ResourceNotFound]"),
    ({"max_age": -1}, "max_age is -1, but must not be negative [InvalidArgument]"),
    ({"moves_per_host": -1}, "moves_per_host is -1, but must not be negative [InvalidArgument]"),
    ({"moves_between_groups": -1}, "moves_between_groups is -1, but must not be negative [InvalidArgument]"),
    ({"host_groups": [{"name": "z"}]}, "host group z has no host; there are a, b [InvalidArgument]"),
    ({"host_groups": [{"name": "a"}, {"name": "a"}]}, "host group a is listed more than once [InvalidArgument]"),
    ({"request": "change_group", "vms": ["vm1"], "to_groups": ["z"]},
     "to_groups: there is no host group z, but a, b [ResourceNotFound]"),
    ({"request": "change_group", "vms": ["vm1", "vm2"], "to_groups": ["a", "b"]},
     "to_groups: vm1, vm2: in the host group a already [InvalidArgument]"),
    ({"request": "change_group"},
     "change_group needs vms or vm_tags or from_hosts or from_groups [InvalidArgument]"),
    ({"request": "change_group", "vms": ["vm1"], "to_groups": ["b"],
      "host_groups": [{"name": "b", "alloc_policy": "unallocable"}]},
     "to_groups: the host group b is unallocable, so it takes no VMs [InvalidArgument]"),
    ({"request": "rebalance", "max_moves": -1}, "max_moves is -1, but must not be negative [InvalidArgument]"),
    ({"request": "rebalance", "min_gain": float("nan")}, "min_gain is nan, but must be a number [InvalidArgument]"),
    ({"host_groups": [{"name": "a", "cpu_ratio": -1.0}]},
     "host group a: cpu_ratio is -1.0, but must be a number above 0 [InvalidArgument]"),
    ({"host_groups": [{"name": "a", "cpu_ratio": float("inf")}]},
     "host group a: cpu_ratio is inf, but must be a number above 0 [InvalidArgument]"),
    ({"request": "rebalance", "from_groups": ["a"], "vms": ["vm1"], "vm_tags": {"x": None}},
     "VM vm1: has not the tag x [InvalidArgument]"),
    ({"request": "place"}, "place needs new_vms [InvalidArgument]"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "said"), BAD)
def test_what_is_no_request(given, said):
    rest = {"from_hosts": ["a1"]} if "request" not in given else {}
    asked = {"request": "evacuate", "hosts": four(vm(1), vm(2)), **rest, **given}
    found = plan(asked.pop("request"), **asked)
    assert found["msg"] == said
    assert found["error_code"] == found["problems"][0]["code"]


def changed(change):
    """Four hosts of which one says something that cannot be."""
    hosts = four(vm(1), vm(2))
    change(hosts)
    return hosts


def figures(**given):
    return lambda hosts: hosts[0]["info"].update(given)


CONTRADICTIONS = [
    (figures(**OLD), "host a1: what it says is 901 s old, but max_age is 900 s"),
    (figures(**AHEAD), "host a1: what it says is of 901 s from now: the clocks differ, max_age is 900 s"),
    (figures(memory={"total": 100, "own": 0, "free": 101}),
     "host a1: 101 MiB of memory are free, but it has 100 MiB"),
    (figures(memory={"total": 100, "own": 101, "free": 1}), "host a1: 101 MiB of memory are own, but it has 100 MiB"),
    (figures(memory={"total": 100, "own": 0}), "host a1, memory has no free; it has own, total"),
    (figures(cpus=-1), "host a1: cpus is -1, but must not be negative"),
    (figures(pools=[{"name": "zones", "guid": 9, "size": 5, "available": 6}]),
     "host a1, pool zones: 6 MiB are available, but it has 5 MiB"),
    (figures(pools=[{"name": "zones", "guid": 9, "size": 10**6, "available": 10**6}] * 2),
     "host a1: pool zones is listed more than once"),
    (figures(vms=7), "host a1: vms is 7, which is not of the right type"),
    (lambda hosts: hosts[0]["info"]["vms"][0].update(memory=-4),
     "host a1, VM vm1: memory is -4, but must not be negative"),
    (lambda hosts: hosts[0]["info"]["vms"][0].update(state="exploded"),
     "host a1, VM vm1: state is exploded, which no hypervisor says of a VM"),
    (lambda hosts: hosts[0]["info"]["vms"][0].update(disks={"tank": 4}),
     "host a1, VM vm1: has disks in tank, a pool unknown here"),
    (lambda hosts: hosts[0]["info"]["vms"][0].update(disks={}),
     "host a1, VM vm1: has its disks in 0 pools, but must have them in one"),
    (lambda hosts: hosts[1].update(name="a1"), "host a1 is listed more than once"),
    (lambda hosts: hosts[1].pop("group"),
     "a2: in no host group, but other hosts are in a, b. Each host must be in one."),
]  # fmt: skip


@pytest.mark.parametrize(("change", "said"), CONTRADICTIONS)
def test_facts_that_cannot_be(change, said):
    found = plan("evacuate", changed(change), from_hosts=["a1"])
    assert f"{said} [InvalidArgument]" in found["msg"].splitlines()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda hosts: hosts[3]["info"]["pools"][0].update(guid=1),
         "a1 and b2 have the same pool (guid 1), so they are one host with several names"),
        (lambda hosts: hosts[3]["info"].update(vms=[vm(1)]), f"VM {uuid(1)} is on several hosts: a1, b2"),
        (lambda hosts: hosts[3]["info"].update(vms=[vm(7, alias="vm1")]),
         f"VM vm1 is {uuid(1)} on a1 and {uuid(7)} on b2. Name the one that you mean by its UUID."),
    ],
)  # fmt: skip
def test_what_fits_two_things_is_refused(change, said):
    found = plan("evacuate", changed(change), from_hosts=["a1"], vms=["vm1"])
    assert f"{said} [Ambiguous]" in found["msg"].splitlines()


def test_hosts_that_could_not_be_read():
    hosts = [*four(vm(1)), host("b3", group="b"), host("c1", group="c", error="no route")]
    found = plan("evacuate", hosts, from_hosts=["b3"])
    said = "host b3 could not be read, so its VMs are not known: no reason is given [ResourceNotFound]"
    assert found["msg"] == said
    found = plan("change_group", hosts, vms=["vm1"], to_groups=["c"])
    assert found["msg"] == "to_groups: no host of c could be read: c1: no route [ResourceNotFound]"
    found = plan("change_group", hosts, vms=["vm8"])
    assert found["msg"].endswith("; b3, c1 could not be read and may have it [ResourceNotFound]")


def test_all_problems_are_told_together():
    new = [
        {"name": "vm1", "memory": 1024, "vcpus": 1, "disks": {"zones": 1}},
        {"name": "x", "vcpus": 1, "disks": {"zones": 1}},
        {"name": "y", "memory": "much", "vcpus": 1, "disks": {"zones": 1}},
        {"name": "y", "memory": 1, "vcpus": 0, "disks": {"zones": 1}},
        {"name": "z", "memory": 1, "vcpus": 1, "disks": {}, "hosts": {"q1": {}, "a1": {"size": 4}}},
    ]
    lines = plan("place", four(vm(1)), new_vms=new)["msg"].splitlines()
    assert lines[:5] == [
        "new_vms: y is listed more than once [InvalidArgument]",
        f"new_vms: vm1 is on a1 already ({uuid(1)}) [AlreadyExists]",
        "new_vms: x: memory is missing [MissingParameter]",
        'new_vms: y: memory "much" is not valid: give whole MiB (20480) or a number with K, M, G, T, KiB, MiB, GiB or '
        "TiB (20GiB) [InvalidArgument]",
        "new_vms: y: vcpus is 0, but must be at least 1 [InvalidArgument]",
    ]
    assert lines[5:] == [
        "new_vms: z: there is no host q1, but a1, a2, b1, b2 [ResourceNotFound]",
        "new_vms: z: disks must have one pool, but has 0 [InvalidArgument]",
        "new_vms: z, host a1: size is unknown. There are refused, disks, memory, vcpus and beside. [InvalidArgument]",
    ]


def random_request(rng, hosts):
    read = [one["name"] for one in hosts if one["info"] is not None]
    kind = rng.choice(["evacuate", "change_group", "rebalance"])
    if kind == "evacuate":
        return kind, {"from_hosts": rng.sample(read, min(len(read), rng.randint(1, 2)))}
    return kind, {"from_groups": [next(one["group"] for one in hosts if one["name"] in read)]}


def test_random_plans_can_be_carried_out():
    """In every order that depends allows; all VMs that were asked for are moved or have a reason; nobody else moves."""
    rng = random.Random(SEED)
    moved = failed = bound = 0
    for number in range(COUNT):
        hosts = random_fleet(rng)
        if all(one["info"] is None for one in hosts):
            continue
        kind, asked = random_request(rng, hosts)
        found = plan(kind, hosts, allow_partial=True, moves_per_host=rng.choice([0, 1]), **asked)
        assert "error_code" not in found, found["msg"]
        check(kind, asked, hosts, found)
        shuffled = copy.deepcopy(hosts)
        for one in shuffled:
            rng.shuffle((one["info"] or {"vms": []})["vms"])
        free = plan(kind, shuffled, allow_partial=True, **asked)
        assert free["moved"] == found["moved"]
        assert [job["needs"] for job in free["jobs"]] == [job["depends"] for job in free["jobs"]]
        moved += len(found["moved"])
        failed += len(found["failures"])
        bound += any(job["depends"] for job in found["jobs"])
        for order in in_orders(found["jobs"], random.Random(number)):
            carry_out(hosts, order)
    print(f"{moved} VMs moved, {failed} had no host, {bound} plans with jobs that wait")
    assert min(moved, failed, bound) > COUNT / 10


def in_orders(jobs, rng):
    """Some orders that depends allows."""
    yield jobs
    for _order in range(5):
        left, done, order = list(jobs), set(), []
        while left:
            ready = [job for job in left if done.issuperset(job["depends"])]
            job = rng.choice(ready)
            left.remove(job)
            done.add(job["job"])
            order.append(job)
        yield order


def check(kind, asked, hosts, found):
    groups = {one["name"]: one["group"] for one in hosts}
    usable = {one["name"] for one in hosts if one["info"] is not None and not one["drained"]}
    here = {one["uuid"]: host["name"] for host in hosts if host["info"] for one in host["info"]["vms"]}
    gone = [entry["uuid"] for entry in found["moved"]]
    left = [entry["uuid"] for entry in found["failures"]]
    if kind == "evacuate":
        wanted = {name for name, place in here.items() if place in asked["from_hosts"]}
        assert not {entry["to"] for entry in found["moved"]} & set(asked["from_hosts"])
    else:
        wanted = {name for name, place in here.items() if groups[place] in asked["from_groups"]}
    assert len(gone + left) == len(set(gone + left))
    assert set(gone + left) == wanted if kind != "rebalance" else set(gone) <= wanted
    for entry in found["moved"]:
        assert here[entry["uuid"]] == entry["from"]
        assert entry["to"] in usable
        assert (groups[entry["to"]] == groups[entry["from"]]) == (kind != "change_group")
    for entry in found["failures"]:
        assert all("could take it" not in why for why in entry["hosts"].values())
    if kind == "rebalance":
        assert found["score"]["after"] <= found["score"]["before"]
