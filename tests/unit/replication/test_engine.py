# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sync between two simulated nodes, killed at every command."""

from __future__ import annotations

import json
import re

import pytest
from simnode import Node, PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .world import REPLICAS, VM, Fuse, Host, Killed, World

MIB = 1 << 20
TWIN = {"uuid": "aaaaaaaa-0000-4000-8000-000000000203", "brand": "bhyve", "ram": 128, "vcpus": 1, "quota": 1}


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def first(_world):
    """Nothing is there yet."""


def increment(world):
    """Replicas are there. Since then there are data, a snapshot of a user, and a disk has grown."""
    assert world.sync() == (True, True)
    world.write(0, 5, 3)
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.write(1, 2)
    world.home.ok("vmadm", "stop", VM, "-F")
    payload = f'{{"update_disks": [{{"path": "/dev/zvol/rdsk/zones/{VM}/disk1", "size": 96}}]}}'
    assert world.home.node.run(["vmadm", "update", VM], payload)[0] == 0


def lost(world):
    """A user has deleted a snapshot, and rolled back to an older one."""
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.home.ok("vmadm", "create-snapshot", VM, "two")
    assert world.sync() == (True, True)
    world.home.ok("vmadm", "stop", VM, "-F")
    world.home.ok("vmadm", "rollback-snapshot", VM, "one")
    world.write(0, 2, 7)


def cut(world):
    """The second sync was cut in the middle of a stream."""
    assert world.sync() == (True, True)
    world.write(0, 9, 3)
    world.write(1, 9, 3)
    world.cut = 3 * MIB
    assert world.sync() == (True, False)
    world.cut = 0


def given_up(world):
    """The snapshot of the stream that was cut has gone."""
    cut(world)
    for where in world.disks().values():
        world.home.ok("zfs", "destroy", f"{where}@{world.home.points(where)[-1]}")


def without_base(world):
    """The snapshots of the last sync have gone, their bookmarks are left."""
    assert world.sync() == (True, True)
    for where in world.disks().values():
        world.home.ok("zfs", "destroy", f"{where}@{world.home.points(where)[-1]}")
    world.write(0, 2, 7)


SCENARIOS = [first, increment, lost, cut, given_up, without_base]


def in_order(world, hashes):
    """One set on both sides, nothing else of the sync, and the same contents."""
    assert world.hashes_there() == world.hashes() == hashes
    for uuid, where in world.disks().items():
        here = world.home.points(where)
        assert world.peer.points(f"{REPLICAS}/{uuid}") == here
        synced = [name for name in here if name.startswith("flexdisk-sync-")]
        assert world.home.points(where, "bookmark") == synced
        assert len(synced) == 1
        for prop in ("volsize", "refreservation"):
            words = ("zfs", "get", "-Hp", "-o", "value", prop)
            assert world.peer.ok(*words, f"{REPLICAS}/{uuid}") == world.home.ok(*words, where)
    assert not world.authorized.exists() or world.authorized.read_text() == ""
    assert not list(world.folder.glob("transfer-*"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_sync_killed_anywhere(world, scenario):
    """The same command goes on. No disk and no snapshot of a user is ever touched; the second run is idle."""
    scenario(world)
    hashes, saved = world.hashes(), world.saved()
    world.fuse = Fuse()
    assert world.sync() == (True, True)
    in_order(world, hashes)
    assert world.sync() == (False, True)
    count = world.fuse.counted
    own = {where: _own(world, where) for where in world.disks().values()}
    points = 0
    for at in range(1, count + 1):
        for after in (False, True):
            world.restore(saved)
            world.fuse = Fuse(at, after)
            try:
                world.sync()
                world.sync()
            except Killed:
                points += 1
            world.fuse = Fuse()
            assert world.hashes() == hashes
            assert {where: _own(world, where) for where in own} == own
            assert world.sync()[1]
            in_order(world, hashes)
            assert world.sync() == (False, True)
    assert points == 2 * count
    print(f"{scenario.__name__}: {points} points")


def _own(world, where):
    return [name for name in world.home.points(where) if not name.startswith("flexdisk-sync-")]


def test_two_syncs_at_once(world):
    """Whoever comes second is told who is at work."""
    planned = world.planned()
    with lock.transfers(SubprocessRunner(), [VM], 0, "a transfer to hv02"):
        with pytest.raises(FlexdiskError) as caught, lock.transfers(SubprocessRunner(), [VM], 0, "another"):
            pass
    assert caught.value.code == "Locked"
    assert "disks are replicated by a transfer to hv02 (pid " in caught.value.message
    assert not planned.problems


def test_a_replica_is_removed(world):
    """Killed anywhere, the same command goes on."""
    assert world.sync() == (True, True)
    saved = world.saved()
    world.fuse = Fuse()
    _removed(world)
    for at in range(1, world.fuse.counted + 1):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            _removed(world)
        world.fuse = Fuse()
        _removed(world)
        assert world.peer.ok("zfs", "list", "-H", "-o", "name").split() == ["zones", "zones/flexdisk", REPLICAS]
        for where in world.disks().values():
            assert (world.home.points(where), world.home.points(where, "bookmark")) == ([], [])
            assert world.home.ok("zfs", "get", "-H", "-o", "value", "flexdisk:replicas", where) == "-"
    assert world.sync() == (True, True)


def _removed(world):
    done = world.sender().remove(["db01"], "hv02", False)
    assert not done.problems
    world.receiver().remove(["zones"], done.uuids, False)


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        (
            lambda world: _fill(world),
            "InsufficientSpace",
            r"the replicas need [\d.]+ MiB in pool zones of hv02, which has [\d.]+ MiB",
        ),
        (lambda world: world.sync(), "", ""),
        (
            lambda world: world.peer.node.run(["vmadm", "create"], json.dumps({**TWIN, "alias": "db01"})),
            "AlreadyExists",
            f"hv02 has a VM db01 \\({TWIN['uuid']}\\) already",
        ),
        (lambda world: _strange(world, "zones/flexdisk/replica/{}"), "InUse", "does not say that it is a replica"),
    ],
)  # fmt: skip
def test_refusals(world, before, code, said):
    before(world)
    planned = world.planned()
    assert [problem.code for problem in planned.problems][:1] == ([code] if code else [])
    assert re.search(said, " ".join(problem.message for problem in planned.problems))


def _fill(world):
    """Leave 100 MiB."""
    room = int(world.peer.ok("zfs", "get", "-Hp", "-o", "value", "available", "zones")) - 100 * MIB
    world.peer.ok("zfs", "create", "-o", f"refreservation={room}", "zones/full")


def _strange(world, name):
    world.peer.ok("zfs", "create", "-p", "-V", "128M", name.format(next(iter(world.disks()))))


def test_two_peers(world, tmp_path, monkeypatch):
    """What a sync with one peer leaves is nothing new for the other."""
    assert world.sync() == (True, True)
    one = world.peer
    world.peer = Host(Node.create(None, [PoolSpec(name="zones")], 3), tmp_path, world)
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    two, world.peer = world.peer, one
    assert world.sync() == (False, True)
    world.write(0, 1, 5)
    assert world.sync() == (True, True)
    world.peer = two
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()
    assert world.sync() == (False, True)
    world.peer = one
    assert world.sync() == (True, True), "a snapshot of the other sync has gone"
    assert world.sync() == (False, True)
    assert world.hashes_there() == world.hashes()
