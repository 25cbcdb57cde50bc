# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A move in which a vmadm ends between two of its commands: the same command ends it, and leaves nothing behind."""

from __future__ import annotations

import json
import os

import pytest
from simnode.vmadm.admin import COMMANDS
from simnode.vmadm.boundaries import POINTS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped

from .test_move import move, swap
from .test_move_platform import arrived, hashes, known, world  # noqa: F401  # pylint: disable=unused-import
from .world import VM, Killed

KINDS = ("kill", "fail", "timeout", "late:100000") if os.environ.get("FLEXDISK_FULL") else ("kill", "timeout")
WATCHED = ("zonecfg", "install", "metadata", "provisioned", "uninstall")
CASES = [
    (host, point, kind)
    for host, command in (("home", "delete"), ("peer", "create"))
    for point in POINTS
    if point.startswith(command)
    for kind in KINDS
    if kind != "timeout" or point.split()[1] in WATCHED
]


@pytest.mark.parametrize(("host", "point", "kind"), CASES)
def test_the_same_command_ends_it(world, host, point, kind):  # noqa: F811
    before = known(world.home), hashes(world.home)
    node = getattr(world, host).node
    assert COMMANDS["vm-fault"](node, [point, kind])[0] == 0

    def watch():
        if kind == "kill" and point in reached:
            reached.clear()
            raise Killed

    reached: list[str] = []
    node.at_boundary = reached.append
    world.watch = watch
    try:
        move(world)
    except (Stopped, Killed):
        node.at_boundary = None
        assert move(world) in (True, False)
    node.at_boundary = None
    world.watch = lambda: None
    assert not node.state.get("vmadm_faults"), "vmadm did not come there"
    arrived(world, before)
    assert not move(world)
    assert json.loads(world.home.ok("vmadm", "lookup", "-j")) == []
    assert world.home.node.run(["zfs", "list", f"zones/{VM}"])[0] == 1
    swap(world)
    assert move(world), "the way back is free"
    arrived(world, before)
