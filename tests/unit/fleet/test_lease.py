# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the lease of a group lies, whatever the inventory says, and the waits that it must outlast."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import group_lease
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.lease import (
    check_others,
    check_waits,
    lease_place,
    lease_problems,
    pause_parts,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.policy import RollPolicy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import LeaseDeclaration
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .cluster import Cluster

HOSTS = ["hv01", "hv02", "hv03"]
GUIDS = {"hv01": 11, "hv02": 22, "hv03": 33}


def look(host, *leases, pools=("zones",)):
    places = [{"pool": pool, "guid": GUIDS[host] + number} for number, pool in enumerate(pools)]
    return {"leases": list(leases), "places": places}


def lying(standing="held", pool="zones", died=False, holder="run 9"):
    return {"pool": pool, "standing": standing, "died": died, "msg": f"web: {holder}", "lease": {}}


def place(looks, hosts=HOSTS, **more):  # pylint: disable=dangerous-default-value
    return lease_place(looks, hosts, {"group": "web", "without": [], "take_over": False, "host": "", **more})


def refused(looks, **more):
    found = place(looks, **more)
    assert found["places"] == {}
    return found["problems"]


def test_the_place_follows_from_the_pools_and_the_group_alone():
    every = {host: look(host) for host in HOSTS}
    found = {str(place({host: every[host] for host in order}, order)) for order in itertools.permutations(HOSTS)}
    assert len(found) == 1
    renamed = {"a": every["hv03"], "b": every["hv01"], "c": every["hv02"]}
    (one,), (other,) = place(every)["places"], place(renamed, list(renamed))["places"]
    assert renamed[other] == every[one], "hosts may be called otherwise"
    groups = {str(place(every, group=f"web{number}")["places"]) for number in range(20)}
    assert len(groups) == 3, "the leases of many groups are spread"
    assert place(every, host="hv02")["places"] == {"hv02": "zones"}
    assert refused({"hv01": look("hv01")}, hosts=["hv01"], host="hv02") == [
        "hv02: this host of the lease is not in the play"
    ]
    assert "no host has a pool" in refused({"hv01": {"leases": [], "places": []}}, hosts=["hv01"])[0]


@pytest.mark.parametrize("where", HOSTS)
def test_a_lease_anywhere_counts_and_is_taken_where_it_lies(where):
    """Such as one that version 0.2.0 has taken, on the first host of an inventory."""

    def looks(**more):
        return {host: look(host, *([lying(**more)] if host == where else [])) for host in HOSTS}

    held = f"{where}: web: run 9. With flexdisk_take_over=true this run takes it all the same"
    assert refused(looks()) == [held]
    assert refused(looks(standing="unreadable")) == [held]
    for free in ({"standing": "mine"}, {"standing": "expired"}, {"died": True}):
        assert place(looks(**free)) == {"places": {where: "zones"}, "problems": []}
    assert place(looks(), take_over=True)["places"] == {where: "zones"}
    assert place(looks(pool="tank"), take_over=True)["places"] == {where: "tank"}


def test_several_leases_are_all_taken():
    expired = {host: look(host, lying("expired")) for host in HOSTS[:2]}
    assert place({**expired, "hv03": look("hv03")})["places"] == {"hv01": "zones", "hv02": "zones"}
    both = look("hv01", lying("expired"), lying("expired", "tank"))
    assert "the lease lies in the pools zones and tank; remove one" in refused({"hv01": both}, hosts=["hv01"])[0]


def test_a_host_that_cannot_be_read_could_have_the_lease():
    looks = {"hv01": look("hv01"), "hv02": {"unreachable": True, "msg": "no route to host\nat all"}}
    (said,) = refused(looks)
    assert "could have the lease of another run: hv02 (no route to host), hv03 (not in the play). " in said
    assert """go on with -e '{"flexdisk_lease_without": ["hv02", "hv03"]}'""" in said
    (said,) = refused(looks, without=["hv02"])
    assert "hv02" not in said
    assert place(looks, without=["hv02", "hv03"])["places"] == {"hv01": "zones"}


def test_whether_a_run_still_has_the_lease():
    places = {"hv01": "zones", "hv02": "zones"}
    assert lease_problems({"hv01": {"lease": {}}, "hv02": {"lease": {}}}, places) == []
    other = {"lease": {}, "error_code": "InUse", "msg": "web: run 9"}
    assert lease_problems({"hv01": {"lease": {}}, "hv02": other}, places) == ["hv02: web: run 9"]
    assert lease_problems({"hv01": {"unreachable": True, "msg": "no route"}}, places) == [
        "hv01: no route", "hv02: this host of the lease is not in the play",
    ]  # fmt: skip


def test_another_lease_that_came_meanwhile_stops_a_run():
    mine = {"group": "web", "pool": "zones", "readable": True, "token": "a", "holder": "run 1", "expired": False}
    theirs = {**mine, "token": "b", "holder": "run 2"}
    calm = [mine, {**theirs, "expired": True}, {**theirs, "group": "db"}]
    assert check_others({"hv01": {"leases": calm}, "hv02": {}}, "web", "a") == []
    both = {
        "hv01": {"leases": [mine]},
        "hv02": {"leases": [theirs]},
        "hv03": {"leases": [{**theirs, "readable": False}]},
    }
    assert check_others(both, "web", "a") == [
        "hv02: web: run 2 has a lease of this group, too, in pool zones; this run stops",
        "hv03: web: somebody has a lease of this group, too, in pool zones; this run stops",
    ]


def test_waits_that_the_lease_does_not_outlast_are_refused():
    batch = RollPolicy(max_batch_size=4, max_down_per_host=3)
    assert check_waits({}, batch, 4, 1800, 180) == []
    assert check_waits({"retries": 60, "delay": "PT15S"}, batch, 4, 1800, 180) == []
    assert check_waits({"retries": 60, "delay": "PT15S", "stable_for": 1}, batch, 4, 1800, 301) == [
        "the gate can wait for 901 s (60 retries, 15 s apart, and stable_for 1 s), but half of instance_group_lease_ttl"
        " is 900 s; raise it, or wait less",
        "3 guests of a host can take 903 s to stop (stop_timeout 301 s), but half of instance_group_lease_ttl is 900 s"
        "; raise it, or wait less",
    ]
    assert check_waits({"delay": "soon"}, batch, 4, 1800, 180)[0].startswith("gate: 'soon' is not a duration")


def test_a_pause_has_parts_between_which_the_lease_is_renewed():
    assert pause_parts(3600, 1800) == [450] * 8
    assert pause_parts(451, 1800) == [450, 1]
    assert pause_parts(0, 1800) == []
    assert sum(pause_parts(77, 10)) == 77


# -- with hosts


def run_of(cluster, order, token, without=()):
    """What the role does until it has the lease, in steps: each yield is a moment at which another run can be at work.
    Yields whether it has the lease.
    """
    wanted = LeaseDeclaration("web", token, f"run {token[-1]}")

    def tools(host):
        return Zfs(cluster.runner(host), lambda seconds: None), Vmadm(cluster.runner(host))

    def looked(host):
        looks = group_lease.look(*tools(host), wanted, None).result
        return {**looks, "leases": [{**found, "died": False} for found in looks["leases"]]}

    yield False
    looks = {}
    for host in (host for host in order if host not in without):
        looks[host] = looked(host)
        yield False
    found = place(looks, order, without=without)
    if found["problems"]:
        return
    for host, pool in found["places"].items():
        if group_lease.run(*tools(host), wanted, pool, False).problem is not None:
            return
        yield False
    while True:  # so it looks before each step, too
        others = [looked(host)["leases"] for host in order if host not in without]
        if any(entry["standing"] != "mine" for leases in others for entry in leases):
            yield False
            return
        yield True


A, B = (f"aaaaaaaa-0000-4000-8000-00000000000{number}" for number in (1, 2))


@pytest.mark.parametrize("without", [(), ("hv0",), ("hv1",)])
@pytest.mark.parametrize("delay", range(5))
def test_two_runs_never_both_get_the_lease(without, delay):
    """Their inventories have other orders, and one leaves out a host. Whoever comes later by some moments."""
    cluster = Cluster(2)
    first, second = run_of(cluster, ["hv0", "hv1"], A), run_of(cluster, ["hv1", "hv0"], B, without)
    got = {A: False, B: False}
    for _moment in range(delay):
        got[A] = next(first, False)
    for moment in range(20):
        got[B] = next(second, False)
        got[A] = next(first, False)
        assert not all(got.values()) or (without and moment < 10), "a host that was said to be off was not"
    assert without or any(got.values())


def gets(cluster, token):
    """Whether a run gets the lease."""
    return any(itertools.islice(run_of(cluster, ["hv0", "hv1"], token), 9))


def test_a_lease_that_the_last_release_took_on_its_first_host_counts():
    cluster = Cluster(2)
    for host in cluster.hosts:
        old = LeaseDeclaration("web", A, "run 1")
        zfs, hypervisor = Zfs(cluster.runner(host)), Vmadm(cluster.runner(host))
        group_lease.run(zfs, hypervisor, old, None, False)
        assert not gets(cluster, B)
        assert gets(cluster, A)
        group_lease.run(zfs, hypervisor, LeaseDeclaration("web", A, "run 1", hold=False), None, False)
        assert gets(cluster, B)
        for name in cluster.hosts:
            tools = Zfs(cluster.runner(name)), Vmadm(cluster.runner(name))
            group_lease.run(*tools, LeaseDeclaration("web", B, "run 2", hold=False), None, False)
