# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts failed, and why: one table, where hosts with the same reason share a line."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.failures import without_prefix
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_failures,
)

from .plays import registered

CHECKED = {"changed": False}


def table(variables, *names):
    results = names or ["_flexdisk", "flexible_disks_result"]
    return show_failures(registered(variables, *results, hosts=[])).lines


def test_hosts_with_the_same_reason_share_a_line():
    lost = {"unreachable": True, "msg": "Task failed: Failed to connect: no route"}
    small = {"failed": True, "msg": "pool zones has 1 GiB left [InsufficientSpace]\nmore"}
    variables = {
        "hv01": {"_flexdisk": CHECKED, "flexible_disks_result": lost},
        "hv02": {"_flexdisk": CHECKED, "flexible_disks_result": small},
        "hv03": {"_flexdisk": CHECKED, "flexible_disks_result": lost},
    }
    assert table(variables) == [
        "3 hosts failed:",
        "hv01, hv03: unreachable: Failed to connect: no route",
        "hv02: pool zones has 1 GiB left [InsufficientSpace] (and more, above)",
    ]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("ssh: connect to host {} port 22: refused", "ssh: connect to host HOST port 22: refused"),
        ("Could not resolve hostname {}: unknown", "Could not resolve hostname HOST: unknown"),
        ("root@{}: Permission denied", "root@HOST: Permission denied"),
        ("VM web is not on {}", "VM web is not on HOST"),
    ],
)
def test_a_reason_with_the_name_of_its_host_is_the_same_on_others(reason, shown):
    variables = {host: {"_flexdisk": {"failed": True, "msg": reason.format(host)}} for host in ("hv01", "hv02")}
    assert table(variables) == ["2 hosts failed:", f"hv01, hv02: {shown}"]


def test_a_vm_with_the_name_of_its_host_is_shown():
    """No message says of one of them what is true of another."""
    variables = {
        host: {"_flexdisk": {"failed": True, "msg": f"VM {vm}: disk {vm}: no space"}}
        for host, vm in (("web", "web"), ("db", "db"), ("hv01", "web"))
    }
    assert table(variables) == [
        "3 hosts failed:",
        "web, hv01: VM web: disk web: no space",
        "db: VM db: disk db: no space",
    ]


def test_the_reason_of_one_host_is_shown_as_it_was_reported():
    variables = {"hv01": {"_flexdisk": {"failed": True, "msg": "nothing listens on hv01"}}}
    assert table(variables) == ["1 host failed:", "hv01: nothing listens on hv01"]


def item(**result):
    return {"ansible_loop_var": "item", "item": "x", **result}


def test_a_failed_loop_has_the_reasons_of_its_items():
    same = item(failed=True, msg="Task failed: no space")
    loop = {"failed": True, "msg": "One or more items failed", "results": [item(msg="fine"), same, same]}
    lost = item(unreachable=True, msg="no route")
    more = {"unreachable": True, "msg": "All items completed", "results": [lost, item(failed=True, msg="other")]}
    hidden = {"failed": True, "msg": "One or more items failed", "results": [item(failed=True, censored="no_log")]}
    of_module = {"failed": True, "msg": "no VM", "results": [{"failed": True, "msg": "no loop"}]}
    results = {"hv01": loop, "hv02": more, "hv03": hidden, "hv04": of_module}
    assert table({host: {"_flexdisk": result} for host, result in results.items()}) == [
        "4 hosts failed:",
        "hv01: no space",
        "hv02: unreachable: no route (and more, above)",
        "hv03: see the output above",
        "hv04: no VM",
    ]


@pytest.mark.parametrize("result", [{}, {"_flexdisk": CHECKED}, {"_flexdisk": {"failed": True}}])
def test_a_host_whose_reason_is_not_known_is_named(result):
    assert table({"hv01": result}) == ["1 host failed:", "hv01: see the output above"]


def test_a_long_reason_is_cut():
    assert len(table({"hv01": {"_flexdisk": {"failed": True, "msg": "x" * 999}}})[1]) < 250


def test_nothing_is_shown_if_no_host_failed():
    assert show_failures(registered({"hv01": {"_flexdisk": {"failed": True}}}, "_flexdisk")) == ([], "")


def test_what_ansible_says_before_a_message_is_left_out():
    assert without_prefix("Task failed: Action failed: no such pool") == "no such pool"
    assert without_prefix("the Task failed: x") == "the Task failed: x"


def test_a_failure_of_an_earlier_play_is_no_reason():
    """The run went on with the host, as after a rescue or clear_host_errors. What failed now is not registered."""
    earlier = {"failed": True, "unreachable": True, "msg": "no route"}
    variables = {"_flexdisk": {"stands": {"failed_before": ["read"]}}, "read": earlier}
    assert show_failures(registered({"hv01": variables}, "_flexdisk", "read", hosts=[])).lines == [
        "1 host failed:",
        "hv01: see the output above",
    ]
    now = {**variables, "list": {"failed": True, "msg": "no pool"}}
    assert show_failures(registered({"hv01": now}, "_flexdisk", "list", "read", hosts=[])).lines[1] == "hv01: no pool"
    assert registered({"hv01": variables}, "read", hosts=[]).reasons("read") == {
        "hv01": "see the output of the playbook"
    }


def test_a_result_that_is_none_of_a_failure_is_no_reason():
    """It can be what another playbook of the run has left."""
    variables = {"result": {"changed": True, "msg": "3 changes"}}
    assert registered({"hv01": variables}, "result", hosts=[]).reasons("result") == {
        "hv01": "see the output of the playbook"
    }
