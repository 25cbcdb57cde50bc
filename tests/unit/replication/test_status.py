# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook status shows of moves and of transfers, wherever they were killed."""

from __future__ import annotations

import os
from itertools import product

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_move import move, smartos
from .world import Fuse, Killed

EVERY = 15 if os.environ.get("FLEXDISK_FULL") else 67  # an odd number: before and after a command by turns


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return smartos(tmp_path, monkeypatch)


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
        found = shown(world)
        goes_on = [line for line in found.lines if line.startswith("    go on: ")]
        stays = any("flexdisk_move_state=stays" in line for line in found.lines)
        assert found.counts["at_work"] == 0
        if any("move_vm" in line for line in goes_on):
            assert found.counts["half_done"] == 1, found.lines
            seen.add(("move", stays))
        elif goes_on:
            assert all("replicate" in line for line in goes_on), found.lines
            seen.add(("transfer", stays))
        else:
            seen.add(("kept" if found.counts["kept"] else "nothing", stays))
        move(world)
        assert shown(world).counts == {"half_done": 0, "at_work": 0, "kept": 1}
    assert seen >= {("move", True), ("move", False), ("nothing", False)}


def test_a_transfer_that_was_cut_off(world):
    """The next sync goes on with it."""
    world.cut = 4096
    world.sync()
    found = shown(world)
    assert found.counts["half_done"] > 0
    (go, *_others) = [line for line in found.lines if line.startswith("    go on: ")]
    assert "flexdisk.hypervisor.replicate -e flexdisk_vm=" in go
    assert go.endswith(f"-e flexdisk_replica_host={world.peer_name}")
    world.cut = 0
    assert world.sync()[1]
    assert shown(world).counts["half_done"] == 0
