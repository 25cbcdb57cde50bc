# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plays whose modules run in forks of Ansible's workers print what those print whose modules are processes."""

from __future__ import annotations

import json

from .nodes import Nodes

GOOD = {"vm": "db01", "flexible_disk_size": "20GiB", "disks": [{"name": "data", "size": "2GiB"}]}
BAD = {**GOOD, "disks": [{"name": "data", "size": "2TiB"}]}


def printed(folder, processes):
    """What plays print on a new node, and what the node has then."""
    nodes = Nodes(folder, {"hv01": ""})
    nodes.processes = processes
    nodes.create("hv01", "db01", 1024, 8, {}, flexible=20)
    said = [nodes.play("report")]
    for declared, words in ((BAD, ()), (GOOD, ("--check", "--diff")), (GOOD, ("--diff",)), (GOOD, ("--diff",))):
        more = {
            "flexible_disks_vms": [declared],
            "flexible_disks_unlisted": "keep",
            "flexible_disks_allow_restart": True,
        }
        said.append(nodes.play("converge", "-e", json.dumps(more), *words))
    assert (folder / "forked").exists() != processes
    volumes = nodes.run("hv01", "zfs", "list", "-H", "-o", "name,used").splitlines()
    return [(status, text.replace(str(folder), "FOLDER")) for status, text in said], volumes


def test_they_print_the_same(tmp_path):
    forks, processes = (printed(tmp_path / name, name == "processes") for name in ("forks", "processes"))
    for one, other in zip(forks[0], processes[0], strict=True):
        assert one == other
    assert [status for status, _text in forks[0]] == [0, 2, 0, 0, 0]
    assert forks[1] == processes[1]
