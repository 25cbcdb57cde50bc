# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook converge: what each host is asked for, and that a run without more has two tasks for each host."""

from __future__ import annotations

import json
import re

import pytest

from .nodes import Nodes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    found = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": "", "hv02": "", "hv03": ""})
    for host, name in (("hv01", "web"), ("hv02", "db")):
        found.create(host, name, 1024, 5, {}, flexible=20)
        entry = {"vm": name, "disks": [{"name": "root", "boot": True}]}
        found.variables[host] = {"flexible_disks_vms": [entry]}
    return found


def tasks_of(printed: str) -> dict[str, dict[str, str]]:
    """The status of each task, by its name and host."""
    found: dict[str, dict[str, str]] = {}
    for part in printed.partition("\nPLAY RECAP")[0].split("\nTASK [")[1:]:
        states = re.findall(r"^(\w+): \[(\w+)\]", part, re.MULTILINE)
        found[part.partition("]")[0]] = {host: state for state, host in states}
    return found


def test_what_is_asked_for_is_done(nodes):
    status, printed = nodes.play("converge")
    found = tasks_of(printed)
    assert status == 0, printed
    assert "flexible_disks_vms is empty on this host, so no disk is touched" in printed
    assert found["Change the disks of the declared VMs"] == {"hv01": "changed", "hv02": "changed", "hv03": "skipping"}
    assert sum(map(len, found.values())) == 2 * 3 + 4, "two tasks for each host, and four for the play"


def test_wrong_values_of_the_role_are_refused_before_anything_is_done(nodes):
    status, printed = nodes.play("converge", "-e", "flexible_disks_matching=size")
    assert status == 2
    assert "value of flexible_disks_matching must be one of: name, order, got: size" in printed
    status, printed = nodes.play(
        "converge", "-e", '{"flexible_disks_plan_only": true, "flexible_disks_recalculate_quota": true}'
    )
    assert status == 2
    assert "flexible_disks_plan_only plans the disks of the declared VMs only" in printed


def test_a_plan_that_one_host_does_not_have_stops_all(nodes, tmp_path):
    """Also if only the second host has an approved one, and where truth is text, as in an INI inventory."""
    nodes.variables["all"] = {"flexible_disks_allow_restart": "yes"}
    size = {"name": "root", "boot": True, "size": "6GiB"}
    for host, name in (("hv01", "web"), ("hv02", "db")):
        nodes.variables[host]["flexible_disks_vms"] = [{"vm": name, "disks": [size]}]
    nodes.variables["hv02"]["flexible_disks_expect_plan"] = "1" * 32
    nodes.variables["hv02"]["flexible_disks_recalculate_quota"] = "false"
    status, printed = nodes.play("converge")
    found = tasks_of(printed)
    assert status == 2
    assert found["Compare the plans of all hosts with the approved ones"] == {
        "hv01": "skipping",
        "hv02": "fatal",
        "hv03": "skipping",
    }
    assert "Change the disks of the declared VMs" not in found
    del nodes.variables["hv02"]["flexible_disks_expect_plan"]
    nodes.variables["hv02"]["flexible_disks_plan_only"] = "true"
    book = tmp_path / "book.yml"
    play = {
        "hosts": "hypervisors",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.debug": {"msg": "{{ flexible_disks_plan.plan[0] }}"},
                "when": "flexible_disks_plan is defined",
            }
        ],
    }
    book.write_text(json.dumps([{"ansible.builtin.import_playbook": "flexdisk.hypervisor.converge"}, play]))
    status, printed = nodes.play(str(book))
    assert status == 0, printed
    assert tasks_of(printed)["Change the disks of the declared VMs"]["hv02"] == "ok"
    assert printed.count("1 VM:") == 1, printed
    assert json.loads(nodes.run("hv02", "vmadm", "lookup", "-j"))[0]["disks"][0]["size"] == 5 * 1024


def test_the_quota_of_others_follows(nodes):
    nodes.variables["hv02"] = {"flexible_disks_recalculate_quota": "true"}
    status, printed = nodes.play("converge", "--limit", "hv02")
    assert status == 0, printed
    assert "Set quota and reservation of the other VMs" in printed
