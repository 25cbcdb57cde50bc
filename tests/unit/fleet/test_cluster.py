# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole rolls on four hosts in process: what they promise, interrupted anywhere."""

from __future__ import annotations

import copy
import itertools
import json
import os

import pytest

from tests.unit.engine.conftest import IMAGE

from .cluster import SECOND, Cluster, Killed, Roll, boot_image, group_of


def made(size, **more):
    cluster = Cluster()
    plan = Roll(cluster, group_of(size, **more)).run()
    assert plan["done"], plan
    for number, name in enumerate(sorted(cluster.vms())):
        sim, volume = cluster.volume(name)
        sim.write(volume, number + 1, 0, 16)
    return cluster


def test_a_new_image_for_all_members():
    cluster = made(12, policy={"max_batch_size": 12, "max_down_per_host": 3})
    before, digests = cluster.vms(), cluster.digests()
    assert len(set(digests.values())) == 12
    least = []
    cluster.on_change = lambda: least.append(len(cluster.serving()))
    roll = Roll(cluster, group_of(12, SECOND, policy={"min_in_service": 10, "max_batch_size": 2}))
    plan = roll.run()
    assert (plan["done"], roll.steps, min(least)) == (True, 6, 10)
    after = cluster.vms()
    assert {boot_image(vm) for _host, vm in after.values()} == {SECOND}
    for name, (host, vm) in after.items():
        assert (host, vm["uuid"]) == (before[name][0], before[name][1]["uuid"])
    assert cluster.digests() == digests
    assert cluster.pooled == set(after)
    again = Roll(cluster, roll.group)
    assert (again.run()["done"], again.steps) == (True, 0)


def test_members_that_a_step_may_make_above_the_size_take_no_space_from_the_others():
    cluster = Cluster(1)  # its pool has room for four members, not for eight
    group = group_of(4, hosts=["hv0"], template={"disks": [{"name": "root"}]}, policy={"max_batch_size": 4})
    plan = Roll(cluster, group).run()
    assert plan["done"], plan


# -- who is a member


def refused(cluster, group, **more):
    return Roll(cluster, {**group, **more}).find().reasons


def test_an_empty_list_of_hosts_is_not_all_of_them():
    said = "hosts is an empty list; leave it out to take all hosts of the play"
    assert refused(made(1), group_of(1, hosts=[]))[0] == said


def test_a_stranger_that_is_called_like_a_member_is_not_deleted_and_can_be_adopted():
    """Also on a host that the group does not name. The second group is that of version 0.2.0, without marks."""
    cluster = made(2, hosts=["hv0", "hv1"])
    roll = Roll(cluster, group_of(2, hosts=["hv0", "hv1"]))
    made_by_hand = {"package": "p", "image": IMAGE, "vm": "web-10", "disks": [{"name": "root"}], "state": "running"}
    assert not roll.vm("hv3", [made_by_hand]).get("failed")
    (said,) = refused(cluster, roll.group)
    assert "web-10 on hv3. " in said
    roll.vm("hv3", [{"vm": "web-10", "member": ""}])
    assert roll.run()["done"]
    assert set(cluster.vms()) == {"web-0", "web-1", "web-10"}
    for host, sim in cluster.hosts.items():
        for vm in roll.info(host)["vms"]:
            sim.run("zfs", "inherit", "flexdisk:member", f"zones/{vm['uuid']}")
    (said,) = refused(cluster, roll.group)
    assert """-e '{"flexdisk_adopt_members": ["web-0", "web-1", "web-10"]}' marks them""" in said
    adopting = Roll(cluster, {**roll.group, "adopt": ["web-0", "web-1"]})
    (said,) = adopting.find("adopt").reasons
    assert """-e '{"flexdisk_adopt_members": ["web-10"]}' marks them""" in said
    roll.vm("hv3", [{"vm": "web-10", "member": ""}])
    assert adopting.find("adopt").do == "vm"
    adopting.take()
    again = Roll(cluster, roll.group)
    assert (again.run()["done"], again.steps) == (True, 0)


@pytest.mark.parametrize("marked", [True, False])
def test_a_member_that_was_renamed_by_hand_keeps_its_disks_and_gets_no_replacement(marked):
    cluster = made(2)
    host, vm = cluster.vms()["web-1"]
    sim = cluster.hosts[host]
    sim.run("vmadm", "update", vm["uuid"], stdin=json.dumps({"alias": "web-7" if marked else "old"}))
    if not marked:
        sim.run("zfs", "inherit", "flexdisk:member", f"zones/{vm['uuid']}")
    before = {host: sim.fingerprint() for host, sim in cluster.hosts.items()}
    (said,) = refused(cluster, group_of(2, SECOND))
    assert f"{'marked' if marked else 'made'} as web-1; call it web-1 again" in said
    assert {host: sim.fingerprint() for host, sim in cluster.hosts.items()} == before
    sim.run("vmadm", "update", vm["uuid"], stdin=json.dumps({"alias": "web-1"}))
    assert Roll(cluster, group_of(2, adopt=["web-1"])).find("adopt").reasons == ()


def test_a_removal_is_a_destruction_with_a_limit_and_is_shown():
    cluster = made(4)
    group = group_of(2, policy={"max_removed": None})
    said = Roll(cluster, group).look()["msg"]
    assert said.startswith(
        "size is 2, so 2 would be deleted, but max_removed is 0: web-3 on hv3: root 32 MiB destroyed, "
    )
    assert "data 16 MiB stays; web-2 on hv2: root" in said
    assert "Write size: 4 to keep them, or max_removed: 2 in the policy to delete them" in said
    assert Roll(cluster, group_of(2, policy={"max_removed": 1})).look()["problems"]
    plan = Roll(cluster, group_of(2, policy={"max_removed": 2})).look()
    assert plan["table"][-2:] == [f"deleted: web-{n}: root 32 MiB destroyed, data 16 MiB stays" for n in (2, 3)]


# -- interrupted anywhere

FULL = bool(os.environ.get("FLEXDISK_FULL"))


@pytest.fixture(scope="module")
def twelve():
    return made(12, policy={"max_batch_size": 12, "max_down_per_host": 3})


@pytest.fixture(scope="module")
def four():
    return made(4, policy={"max_batch_size": 4})


def ticking(number):
    """A tick that kills the run at its call of that number."""
    count = itertools.count(1)

    def tick(what):
        if next(count) == number:
            raise Killed(what)

    return tick


def interrupted(start, group, floor, tick=lambda what: None, kill_at=0):
    """A run that is killed, and the same again: where it was killed, and "" if it came to its end before."""
    cluster = copy.deepcopy(start)
    before, digests, where = cluster.vms(), cluster.digests(), ""
    cluster.on_change = lambda: check_floor(cluster, floor)
    cluster.commands, cluster.kill_at = 0, kill_at
    try:
        plan = Roll(cluster, group, tick).run()
    except Killed as killed:
        where = str(killed) or f"command {kill_at}"
        cluster.kill_at = 0
        plan = Roll(cluster, group).run()
    assert plan["done"], (where, plan)
    after = cluster.vms()
    assert cluster.digests() == digests, where
    assert {name: (host, vm["uuid"]) for name, (host, vm) in after.items()} == {
        name: (host, vm["uuid"]) for name, (host, vm) in before.items()
    }, where
    assert {boot_image(vm) for _host, vm in after.values()} == {SECOND}, where
    assert cluster.pooled == set(after), where
    roll = Roll(cluster, group)
    assert (roll.run()["done"], roll.steps) == (True, 0), where
    assert not any(member["marked"] for member in roll.members), where
    for host in cluster.hosts:
        info = roll.info(host)
        assert [vm["intent"] for vm in info["vms"]] == [None] * len(info["vms"]), where
        mine = {vm["uuid"] for vm in info["vms"]}
        assert sorted(disk["vm"] for disk in info["parked"]) == sorted(mine), where  # each has its old boot disk
    return where


def check_floor(cluster, floor):
    """No member is asked that does not run, and enough are asked."""
    asked = {name: vm for name, (_host, vm) in cluster.vms().items() if name in cluster.pooled}
    assert all(vm["state"] == "running" for vm in asked.values())
    assert len(asked) >= floor


TWELVE = group_of(12, SECOND, policy={"min_in_service": 10, "max_batch_size": 2})
FOUR = group_of(4, SECOND, policy={"min_in_service": 2, "max_batch_size": 2})


def test_twelve_interrupted_after_every_step(twelve):
    """Each run does one step only, so every step of the roll is the first one of some run."""
    cluster = copy.deepcopy(twelve)
    digests, runs = cluster.digests(), 0
    cluster.on_change = lambda: check_floor(cluster, 10)
    plan = {}
    while not plan.get("done"):
        roll = Roll(cluster, TWELVE)
        plan, runs = roll.look(), runs + 1
        if plan["next"]:
            roll.step()
    assert (runs, cluster.digests(), len(cluster.pooled)) == (7, digests, 12)


def test_four_interrupted_between_any_two_things(four):
    places = []
    for number in itertools.count(1):
        where = interrupted(four, FOUR, 2, ticking(number))
        if not where:
            break
        places.append(where)
    assert len(places) > 30
    assert {"before web-0", "after web-3 is done", "vm on hv1", "vm on hv1 is done"} <= set(places)


@pytest.mark.parametrize("part", range(4))
def test_four_interrupted_at_any_command(four, part):
    numbers = itertools.count(part + 1, 4 if FULL else 12)
    places = list(itertools.takewhile(bool, (interrupted(four, FOUR, 2, kill_at=number) for number in numbers)))
    assert len(places) > 3


@pytest.mark.skipif(not FULL, reason="make verify has a smaller group at every place")
@pytest.mark.parametrize("part", range(4))
def test_twelve_interrupted_at_any_command(twelve, part):
    numbers = itertools.count(part + 1, 4)
    places = list(itertools.takewhile(bool, (interrupted(twelve, TWELVE, 10, kill_at=number) for number in numbers)))
    assert len(places) > 30


@pytest.mark.parametrize("number", range(1, 12))
def test_a_member_whose_creation_was_killed_gets_into_the_load_balancer(number):
    cluster = Cluster(1)
    group = group_of(1, hosts=["hv0"])
    cluster.kill_at = number
    with pytest.raises(Killed):
        Roll(cluster, group).run()
    cluster.kill_at = 0
    assert Roll(cluster, group).run()["done"]
    assert cluster.pooled == {"web-0"}
