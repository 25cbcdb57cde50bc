# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks start_vm, stop_vm and restart_vm on two simulated nodes."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import moves_container
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import MOVED, Move, encode

from .nodes import Nodes

DB = ("-e", "flexdisk_vm=db01")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    made = Nodes(tmp_path_factory.mktemp("nodes"), {"hv01": "", "hv02": ""})
    made.create("hv01", "db01", 1024, 2, {}, flexible=6)
    made.create("hv02", "web01", 1024, 2, {}, flexible=6)
    return made


def state(nodes, host, name):
    (vm,) = json.loads(nodes.run(host, "vmadm", "lookup", "-j", f"alias={name}"))
    return vm["state"]


def ran(nodes, playbook, *words):
    """The hosts that a playbook has changed, and what it prints."""
    status, printed = nodes.play(playbook, *words)
    assert status == 0, printed
    return re.findall(r"^(hv\d\d) .*changed=[1-9]", printed, re.MULTILINE), printed


def test_stop_and_start(nodes):
    """Check mode changes nothing, and what is so already is no change."""
    assert state(nodes, "hv01", "db01") == "running"
    for playbook, after in (("stop_vm", "stopped"), ("start_vm", "running")):
        before = state(nodes, "hv01", "db01")
        assert f"\n  {playbook.split('_', maxsplit=1)[0]}\n" in ran(nodes, playbook, *DB, "--check", "--diff")[1]
        assert state(nodes, "hv01", "db01") == before
        assert ran(nodes, playbook, *DB)[0] == ["hv01"]
        assert state(nodes, "hv01", "db01") == after
        assert ran(nodes, playbook, *DB)[0] == []


def test_several_are_restarted(nodes):
    hosts, printed = ran(nodes, "restart_vm", "-e", json.dumps({"flexdisk_power_vms": ["db01", "web01"]}))
    assert (hosts, printed.count('"  stop"'), printed.count('"  start"')) == (["hv01", "hv02"], 2, 2)
    assert (state(nodes, "hv01", "db01"), state(nodes, "hv02", "web01")) == ("running", "running")


def test_a_vm_with_a_tombstone_is_not_started(nodes):
    """It has left for another host, which may run it."""
    uuid = nodes.create("hv02", "gone01", 1024, 2, {}, flexible=6)
    nodes.run("hv02", "vmadm", "stop", uuid)
    place = moves_container("zones")
    stone = encode(Move(MOVED, uuid, "gone01", "hv03", 1, "running", True, "2026-11-29T10:00:00Z"))
    nodes.run("hv02", "zfs", "create", "-p", "-o", f"flexdisk:move={stone}", f"{place}/{uuid}")
    for playbook in ("start_vm", "restart_vm"):
        status, printed = nodes.play(playbook, "-e", "flexdisk_vm=gone01")
        assert status == 2, printed
        assert "it is being moved to hv03; the playbook move_vm goes on; it cannot be changed" in printed
        assert state(nodes, "hv02", "gone01") == "stopped"
