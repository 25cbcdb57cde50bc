# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks that docs/disks.md shows, run as they are written there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from simnode import Node

from .conftest import IMAGE, VM

pytestmark = pytest.mark.processes
PAGE = Path(__file__).resolve().parents[3] / "docs" / "disks.md"
OURS = "flexdisk.hypervisor."


def tasks(section):
    """Module and arguments of every task of the section, block by block."""
    text = PAGE.read_text().split("\n## " + section + "\n")[1].split("\n## ")[0]
    found = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    return [
        [(key[len(OURS) :], task[key] or {}) for task in block for key in task if key.startswith(OURS)]
        for block in found
    ]


def create(host, uuid, alias, *sizes, running=False):
    disks = [{"image_uuid": IMAGE, "boot": True, "model": "virtio"}, *({"size": s, "model": "virtio"} for s in sizes)]
    payload = {"uuid": uuid, "alias": alias, "brand": "bhyve", "disks": disks, "flexible_disk_size": 4096}
    with Node.open(host.directory) as node:
        status, _out, err = node.run(["vmadm", "create"], json.dumps({**payload, "autoboot": running}))
    assert status == 0, err


def names(host, alias):
    return [disk["name"] for disk in host("vm_info", vms=[alias])["vms"][0]["disks"]]


def idle(host, block):
    return not any(host(module, **arguments)["changed"] for module, arguments in block[-1:])


def test_adopt_and_release(host):
    create(host, VM[:-1] + "2", "db01", 64)
    adopt, release, forget = tasks("Adopt and release")
    done = [host(module, **arguments) for module, arguments in adopt]
    assert done[0]["changed"]
    assert (names(host, "web01"), names(host, "db01")) == (["root", "data"], ["disk0", "disk1"])
    papers = host(release[0][0], **release[0][1])["released"]
    assert names(host, "web01") == ["root", "data"]  # by the saved identity
    assert host(forget[0][0], **forget[0][1])["released"] == papers
    assert names(host, "web01") == ["", ""]
    assert "flexdisk:released\t" not in host.node("zfs", "get", "-Hp", "-s", "local", "all")
    host("disk_adopt", vms=papers)
    assert names(host, "web01") == ["root", "data"]


def test_moving_a_disk(host):
    old, new = (VM[:-1] + number for number in "23")
    create(host, old, "old", 64, running=True)
    create(host, new, "new")
    host.node("guest", "write", f"zones/{old}/disk1", "0", "8", "7")
    data = host.node("guest", "hash", f"zones/{old}/disk1")
    name, move, steps = tasks("Move a data disk from the old VM to the new one")
    for block in (name, move):
        assert all(host(module, **arguments)["changed"] for module, arguments in block)
        assert idle(host, block)
    assert (names(host, "old"), names(host, "new")) == (["disk0"], ["", "data"])
    assert host.node("guest", "hash", f"zones/{new}/disk1") == data
    state = host("vm_info", vms=["old", "new"])["vms"]
    assert [vm["state"] for vm in state] == ["running", "stopped"]
    back = {"name": "data", "from_vm": "new", "vm": "old", "state": "attached", "take": True, "allow_restart": True}
    assert host("disk", **back)["changed"]
    assert all(host(module, **arguments)["changed"] for module, arguments in steps)
    assert idle(host, steps)
    assert (names(host, "old"), names(host, "new")) == (["disk0"], ["", "data"])
    assert host.node("guest", "hash", f"zones/{new}/disk1") == data
