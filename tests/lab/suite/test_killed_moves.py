# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Moves between both machines, killed on the real ZFS: between two commands, in a stream, by a loss of power.

After each, both hosts are asked what they could start. Then the same command ends the move.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Lab
from world import LabWorld, PowerCut, hashes

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from tests.unit.replication import test_move, test_other_tasks
from tests.unit.replication.world import VM, Fuse, Killed

role: Any = test_move  # what the role does, and how that is watched
POINTS = 30 if os.environ.get("FLEXDISK_FULL") else 3
SEED = int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))
KINDS = ("after", "torn", "before", "home", "after", "before", "peer")
ALMOST = 200  # commands of a run: about three quarters of a move that nobody disturbs


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


def killed(world: LabWorld) -> bool:
    """Begin the move, or go on. Whether the run was killed, after which at most one host could start the VM."""
    try:
        role.move(world)
    except Killed:
        world.fuse = Fuse()
        role.never_both(world)
        return True
    world.fuse = Fuse()
    return False


def test_killed_anywhere(world: LabWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """There and back, each run killed at some command until it is not. Some moves are first ones."""
    dice = random.Random(SEED)
    before = role.config(world.home)
    count, seen = 0, Counter[str]()
    while count < POINTS:
        kind, at = KINDS[count % len(KINDS)], dice.randint(1, ALMOST)
        arm(world, kind, at)
        if killed(world):
            count += 1
            known = role.look(world)["move"]
            phase = known["phase"] if known else "begun"
            seen[phase] += 1
            with capsys.disabled():
                print(f"\nmoves: seed {SEED}, point {count}: {kind} {at}: {phase}", flush=True)
        else:
            arrived(world, before)
            role.swap(world)
            if count % 3 == 0:
                world.forget()
    arm(world, "", 0)
    assert not killed(world)
    arrived(world, before)
    assert not role.move(world)
    if POINTS > 10:
        assert seen.keys() >= {"begun", "leaving", "moved"}
