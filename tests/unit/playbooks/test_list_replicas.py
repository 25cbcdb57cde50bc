# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook list_replicas on two simulated nodes."""

from __future__ import annotations

import re

import pytest

from .nodes import Nodes

pytestmark = pytest.mark.long
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


def listed(nodes, *words, status=0, **more):
    ended, printed = nodes.play("list_replicas", *words, **more)
    assert ended == status, printed
    return printed


def test_from_the_first_sync_to_a_host_that_is_off(tmp_path):
    """It changes nothing, also without check mode."""
    nodes = Nodes(tmp_path, {"hv01": "", "hv02": ""})
    nodes.connect("hv01", "hv02")
    uuid = nodes.create("hv01", "db01", 1024, 2, {}, flexible=6)
    assert "0 replicas of VMs on 2 hosts" in listed(nodes)
    nodes.variables["all"] = {"flexdisk_replicas": [{"vm": "db01", "host": "hv02", "every": "PT1H"}]}
    assert re.search(r"db01 +hv01 +hv02 +never +never +next run", listed(nodes))
    assert nodes.play("replicate")[0] == 0
    before = nodes.run("hv02", "zfs", "get", "-Hpr", "all", "zones")
    for words in ((), ("--check",)):
        printed = listed(nodes, *words)
        assert re.search(rf'db01 +hv01 +hv02 +{TIME} +\d+ s +in 5\d min"', printed), printed
        assert "changed=1" not in printed
    printed = listed(nodes, "-e", "flexdisk_list_vm=db01")
    assert re.search(rf"db01 +hv02 +flexdisk-sync-\S+ +{TIME} +\S", printed), printed
    assert "no replicas of nobody are on the hosts" in listed(nodes, "-e", "flexdisk_list_vm=nobody", status=2)
    assert nodes.run("hv02", "zfs", "get", "-Hpr", "all", "zones") == before
    printed = listed(nodes, status=4, unreachable="hv01")
    assert re.search(rf"{uuid} +not found +hv02 +{TIME} +\d+ s +no host that was read has the VM", printed), printed
    assert "hv01 could not be read, and may have more" in printed
    assert "VM db01 is on none of hv02, but hv01 could not be read" in printed
