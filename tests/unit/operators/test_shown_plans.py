# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of all hosts, before and after they are applied."""

from __future__ import annotations

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_applied,
    show_plan,
)

from .plays import registered

GIB = 1 << 30


def result(*lines, quotas=()):
    vms = [{"quota_bytes": {"before": before * GIB, "after": after * GIB}} for before, after in quotas]
    return {"plan": list(lines), "plan_digest": "abcdefghijklmnop", "vms": vms}


def shown(results, vm=None, show=show_plan, lost=(), **first):
    """The lines of a play. results: of each host, None where nothing is declared. lost: the hosts that failed."""
    calls = {host: {} for host, one in results.items() if one is not None}
    meant = {**({} if vm is None else {"flexdisk_vm": vm}), **first}
    variables = {
        host: {"_flexdisk": meant, "_flexdisk_order": {"calls": calls}, **({} if one is None else {"plan": one})}
        for host, one in results.items()
    }
    found = show(registered(variables, "plan", hosts=[host for host in results if host not in lost]))
    assert not found.problem
    return found.lines


def test_each_host_has_a_line_before_the_plans():
    changes = result("1 VM: 1 change, no restarts, +5 GiB, 0 B destroyed", "web (u):", "  + data 5 GiB at 0:4:1",
                     quotas=[(10, 15), (20, 20)])  # fmt: skip
    pools = [{"name": "zones", "available": 90 * 1024}, {"name": "tank", "available": 512}]
    idle = result("2 VMs: nothing to change", quotas=[(1, 1)])
    heads = [
        "hv01: 1 VM: 1 change, no restarts, +5 GiB, 0 B destroyed, digest abcdefghijklmnop",
        "hv02: 2 VMs: nothing to change, digest abcdefghijklmnop",
    ]
    block = ["hv01:", "  web (u):", "    + data 5 GiB at 0:4:1"]
    space = "  space: quotas of these VMs 30 GiB -> 35 GiB"
    assert shown({"hv01": {**changes, "pools": pools}, "hv02": idle, "hv03": None}) == [
        *heads,
        "hv03: nothing is declared",
        *block,
        space + ", pool zones has 90 GiB left now, pool tank has 512 MiB left now",
    ]
    assert shown({"hv01": changes, "hv02": idle}) == [*heads, *block, space]


def test_why_a_host_has_no_plan():
    lost = {"unreachable": True, "msg": "no route\nat all"}
    hosts = {"hv01": None, "hv02": lost, "hv03": None}
    assert shown(hosts, vm="web", lost=["hv02", "hv03"]) == [
        "hv01: does not have web",
        "hv02: NO PLAN: no route",
        "hv03: NO PLAN: see the output of the playbook",
    ]


def test_approved_hosts_that_are_not_in_the_play_are_named():
    digests = {**dict.fromkeys(("hv01", "hv02", "hv09"), "abcdefghijklmnop"), "hv10": ""}
    hosts = {"hv01": result("1 VM: nothing to change"), "hv02": {"failed": True, "msg": "it is full"}}
    stands = {"elsewhere": {"other slices": "2 hosts have a digest"}}
    assert shown(hosts, show=show_applied, lost=["hv02"], flexdisk_plan_digests=digests, stands=stands) == [
        "hv01: 1 VM: nothing to change, digest abcdefghijklmnop",
        "hv02: FAILED: it is full",
        "hv09: approved, but not among the hosts of this run, so nothing was done there",
        "other slices: 2 hosts have a digest",
    ]


def test_hidden_characters_are_shown():
    lost = {"failed": True, "msg": "lost\u2066"}
    text = shown({"h\u202ev": result("1 VM", "we\nb:", quotas=[(1, 1)]), "hv\x07": lost}, lost=["hv\x07"])
    assert text[0] == "h[U+202E]v: 1 VM, digest abcdefghijklmnop"
    assert "hv[U+0007]: NO PLAN: lost[U+2066]" in text
    assert "  we[U+000A]b:" in text
