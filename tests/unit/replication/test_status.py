# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook status shows of moves and of transfers, wherever they were killed."""

from __future__ import annotations

import os
import re
from itertools import product

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    host_metrics,
    host_status,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, said_by, start
from .test_failover_return import back, claims, old
from .test_move import move
from .test_move import pair as on_both
from .test_start_door import boot
from .world import VM, Fuse, Killed

world = on_both
old_home = old  # a fixture

EVERY = 15 if os.environ.get("FLEXDISK_FULL") else 67  # an odd number: before and after a command by turns


def shown(world):
    """What the playbook shows of both hosts."""
    hosts = {world.home_name: world.home, world.peer_name: world.peer}
    read = {name: host_status.run(one.zfs(), Copies(one), one.driver(), None)[0] for name, one in hosts.items()}
    return status(read, [])


def test_a_move_that_was_killed_anywhere(world):
    """One command goes on with it, the one that does; afterwards there is a tombstone, which may stay."""
    assert shown(world).counts == {"half_done": 0, "at_work": 0, "kept": 0}
    saved = world.saved()
    world.fuse = Fuse()
    move(world)
    seen = set()
    for at, after in [*product(range(1, world.fuse.counted + 1), (False, True))][::EVERY]:
        world.restore(saved)
        world.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            move(world)
        world.fuse = Fuse()
        reported = shown(world)
        goes_on = [line for line in reported.lines if line.startswith("    go on: ")]
        stays = any("flexdisk_move_state=stays" in line for line in reported.lines)
        assert reported.counts["at_work"] == 0
        if any("move_vm" in line for line in goes_on):
            assert reported.counts["half_done"] == 1, reported.lines
            seen.add(("move", stays))
        elif goes_on:
            assert all("replicate" in line for line in goes_on), reported.lines
            seen.add(("transfer", stays))
        else:
            seen.add(("kept" if reported.counts["kept"] else "nothing", stays))
        move(world)
        assert shown(world).counts == {"half_done": 0, "at_work": 0, "kept": 1}
    assert seen >= {("move", True), ("move", False), ("nothing", False)}


def test_a_transfer_that_was_cut_off(world):
    """The next sync goes on with it."""
    world.cut = 4096
    world.sync()
    reported = shown(world)
    assert reported.counts["half_done"] > 0
    (go, *_others) = [line for line in reported.lines if line.startswith("    go on: ")]
    assert "flexdisk.hypervisor.replicate -e flexdisk_vm=" in go
    assert go.endswith(f"-e flexdisk_replica_host={world.peer_name}")
    world.cut = 0
    assert world.sync()[1]
    assert shown(world).counts["half_done"] == 0


def phases(world):
    """The phases of moves that a monitoring is told of by the old home."""
    arguments = host_metrics.MetricsArguments("", ())
    text = host_metrics.run(world.home.zfs(), world.home.driver(), None, arguments, False)[0]["text"]
    return set(re.findall(r'flexdisk_move_since_timestamp_seconds{.*phase="([a-z]+)"', text))


def test_the_end_of_a_vm_that_was_taken_over(old_home):
    """Until its end is complete, the same command goes on; then its record is a tombstone as any other."""
    reported = shown(old_home)
    assert reported.counts == {"half_done": 1, "at_work": 0, "kept": 0}, "two hosts have it, and no record says so"
    assert f"failover_vm -e flexdisk_vm={VM} -e flexdisk_failover_state=returned" in reported.lines[2]
    request = EndRequest("db01", claims(old_home))
    saved = old_home.saved()
    old_home.fuse = Fuse()
    back(old_home).end(request)
    seen = set()
    for at, after in product(range(1, old_home.fuse.counted + 1), (False, True)):
        if (2 * at + after) % (1 if os.environ.get("FLEXDISK_FULL") else 5):
            continue
        old_home.restore(saved)
        old_home.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            back(old_home).end(request)
        old_home.fuse = Fuse()
        left, reported = back(old_home).look(EndRequest(VM, claims(old_home))).move is not None, shown(old_home)
        assert bool(reported.counts["half_done"]) == left, reported.lines
        if left:  # before its record, two hosts have the VM
            assert phases(old_home) <= {"ending"}
        seen.add(left)
        back(old_home).end(request)
        reported = shown(old_home)
        assert (reported.counts["half_done"], back(old_home).look(request).move) == (0, None), reported.lines
        assert any("flexdisk_move_state=forgotten" in line for line in reported.lines)
        assert phases(old_home) == {"moved"}
    assert True in seen


def test_a_record_of_a_move_that_cannot_be_read(world):
    place = f"zones/flexdisk/move/{VM}"
    world.home.ok("zfs", "create", "-p", "-o", "mountpoint=none", place)
    world.home.ok("zfs", "set", 'flexdisk:move={"phase":"leaving"}', place)
    reported = shown(world)
    assert reported.counts["half_done"] == 1
    assert f"zfs get flexdisk:move {place}" in reported.lines[1]


@pytest.mark.parametrize("ends", ["power_off", "suspend"])
def test_a_vm_that_waits_for_start_host(world, ends):
    """Its host has booted. With libvirt, its memory may be saved."""
    protect(world)
    assert shown(world).counts["half_done"] == 0
    getattr(world.home, ends)(VM)
    boot(world.home)
    reported = shown(world)
    assert reported.counts["half_done"] == 1
    assert f"    go on:   ansible-playbook flexdisk.hypervisor.start_host --limit {world.home_name}" in reported.lines
    assert start(world, {"hv02": said_by(world.peer)}).started
    assert shown(world).counts["half_done"] == 0
