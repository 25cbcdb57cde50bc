# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between both machines, killed on the real ZFS: between two commands, in a stream, by a loss of power.

After each, both hosts are asked what they could start. Then the same command ends the move.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Lab
from world import LabWorld, PowerCut, hashes

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from tests.unit.replication import test_move, test_other_tasks
from tests.unit.replication.world import VM, Fuse, Killed

role: Any = test_move  # what the role does, and how that is watched
POINTS = 30 if os.environ.get("FLEXDISK_FULL") else 3
KINDS = ("after", "before", "torn", "after", "home", "before", "after", "peer", "torn", "before")


@pytest.fixture
def world(lab: Lab, peer: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabWorld]:
    """A running VM, whose disks have names."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = LabWorld((lab, peer), tmp_path, monkeypatch)
    root, data = made.disks()
    tasks: Any = test_other_tasks
    tasks.done(made, {**tasks.ROOT, "uuid": root}, {**tasks.DATA, "uuid": data, "preserve": True})
    made.home.ok("vmadm", "start", VM)
    yield made
    made.end()


def arm(world: LabWorld, kind: str, at: int) -> None:
    """The next move is killed in this way, at this command."""
    world.fuse = Fuse(at, kind == "after")
    world.streams = world.torn = 0
    if kind == "torn":
        world.fuse, world.torn = Fuse(), 1 + at % 4
    elif kind in ("home", "peer"):
        world.fuse = PowerCut(at, world.home if kind == "home" else world.peer)


def arrived(world: LabWorld, before: object) -> None:
    """The VM is on the other host as it was, and lawful."""
    assert (role.startable(world.home), role.startable(world.peer)) == (False, True)
    assert role.config(world.peer) == before
    assert hashes(world.peer) == world.contents
    host = observe(world.peer.zfs(), world.peer.driver())
    (found,) = host.vms
    assert found.root.quota == found.root.reservation == space.expected_quota(found, host.geometry["zones"])
    assert (found.interrupted, host.moves) == (None, {})
    assert [(disk.name, disk.preserve) for disk in found.disks] == [("root", False), ("data", True)]
    assert not list(world.folder.glob("moves/*"))


def test_killed_anywhere(world: LabWorld) -> None:
    """At points spread over the move, there and back. Every third one is a first move again."""
    before = role.config(world.home)
    try:
        role.move(world)
    except AssertionError:
        print(world.said)
        raise
    count = world.fuse.counted
    arrived(world, before)
    seen: Counter[str] = Counter()
    for number in range(POINTS):
        role.swap(world)
        if number % 3 == 2:
            world.forget()
        kind, at = KINDS[number % len(KINDS)], 1 + count * (2 * number + 1) // (2 * POINTS) * 95 // 100
        arm(world, kind, at)
        with pytest.raises(Killed):
            role.move(world)
        arm(world, "", 0)
        role.never_both(world)
        known = role.look(world)["move"]
        seen[f"{kind} {known['phase'] if known else 'begun'}"] += 1
        print(f"\nmove {number}: {kind} {at} of {count}: {known['phase'] if known else 'begun'}", flush=True)
        role.move(world)
        arrived(world, before)
        assert not role.move(world)
    print(f"{POINTS} points of {count} commands: {dict(seen)}")
