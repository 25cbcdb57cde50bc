# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whom start_host asks, and what it tells each host of the others."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.starting import (
    claims_for,
    hosts_to_ask,
)


def said(*vms, moved=(), **peers):
    """What a host says: the VMs that it has, with the hosts that may take them over, and those that have left it."""
    return {
        "vms": [{"vm": vm, "peers": peers.get(vm, [])} for vm in vms],
        "moved": [{"vm": vm, "host": "hv07"} for vm in moved],
    }


ALL = ["hv01", "hv02", "hv03", "hv04"]


def test_without_replicas_nobody_is_asked():
    assert hosts_to_ask({"hv01": said("a"), "hv02": said("b")}, ALL, ALL) == []


def test_all_other_hosts_are_asked():
    """Those that --limit leaves out, and hosts with replicas in no group. Not those of the run, nor unknown ones."""
    looks = {"hv01": said("a", a=["hv09", "hv02", "hv66"]), "hv02": said("b")}
    assert hosts_to_ask(looks, ALL, [*ALL, "hv09"]) == ["hv09", "hv03", "hv04"]


def test_a_host_that_has_failed_is_none_that_says_something():
    assert hosts_to_ask({"hv01": {"failed": True}}, ALL, ALL) == []
    looks = {"hv01": {}, "hv02": said("a", a=["hv01", "hv03"])}
    answers = {"hv01": {}, "hv02": {"msg": "no"}, "hv03": {"unreachable": True}, "hv04": said("x")}
    assert claims_for(looks, answers) == {"hv01": {}, "hv02": {"hv01": "", "hv03": ""}}


def test_each_host_is_told_of_its_own_vms():
    """Whatever another host says of others would grow with the square of the hosts."""
    looks = {"hv01": said("a", "b", a=["hv04", "hv06"]), "hv02": said("c", c=["hv05"])}
    answers = {
        "hv01": said("a", "b"),
        "hv02": said("c", "a"),
        "hv03": said("x", moved=["b", "c"]),
        "hv04": {"unreachable": True},
        "hv05": said("x"),
        "hv07": said(),
    }
    a, b, c = ({"vm": vm, "peers": []} for vm in "abc")
    left = {"vm": "b", "host": "hv07"}, {"vm": "c", "host": "hv07"}
    assert claims_for(looks, answers) == {
        "hv01": {"hv01": [a, b], "hv02": [a], "hv03": [left[0]], "hv04": "", "hv07": []},
        "hv02": {"hv02": [c], "hv03": [left[1]], "hv05": [], "hv07": []},
    }


def test_the_answers_of_one_host_are_its_own():
    """Two hosts of the run have lists of their own."""
    looks = {"hv01": said("a"), "hv02": said("a")}
    reported = claims_for(looks, {"hv03": said("a")})
    reported["hv01"]["hv03"].append("x")
    assert len(reported["hv02"]["hv03"]) == 1
