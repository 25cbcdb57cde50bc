# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The old home of a VM that was taken over is there again: what only it has is kept, until the user gives it up."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover_return import FailoverReturn
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .test_failover import protect, said_by, take
from .test_move import EVERY, findings, move, startable, swap
from .test_move import world as world_of_moves
from .world import REPLICAS, VM, Fuse, Killed

world = world_of_moves
APART = "zones/flexdisk/diverged"


@pytest.fixture
def old(world):
    """The first disk was written to after the last sync, the other host has the VM, and the old home is there again."""
    protect(world)
    world.write(0, 3, 9)
    world.home.ok("vmadm", "stop", VM, "-F")
    world.uuids, world.left = list(world.disks()), world.hashes()
    take(world)
    return world


def back(world):
    return FailoverReturn(Zfs(world.home), Vmadm(world.home, lambda _seconds: None), world.home)


def claims(world):
    return read_claims({"hv02": said_by(world.peer, "db01")})


def hashes_in(world, place):
    names = [f"{place}/{uuid}" for uuid in world.uuids]
    there = world.home.ok("zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", "zones/flexdisk").split()
    return [world.home.ok("guest", "hash", name) if name in there else "" for name in names]


def ended(world):
    """The VM has ended on the old home. The disk that was written to is kept as it was, the other is a replica."""
    assert not startable(world.home)
    assert hashes_in(world, APART) == [world.left[0], ""]
    assert hashes_in(world, REPLICAS) == ["", world.left[1]]
    host = observe(Zfs(world.home), Vmadm(world.home), every=True)
    assert (host.vms, host.detached, host.moves[VM].phase, host.moves[VM].host) == ((), (), "moved", "hv02")


def test_the_vm_ends_on_its_old_home(old):
    ending = back(old).look("db01", claims(old))
    assert [problem.code for problem in ending.problems] == []
    root, data = ending.words
    assert f"disk root is kept as {APART}/{old.uuids[0]}, with 3" in root
    assert "disk data becomes a replica of that on hv02" in data
    back(old).end("db01", claims(old))
    ended(old)
    assert back(old).look("db01", claims(old)).move is None
    back(old).end("db01", claims(old))
    ended(old)
    assert [kind for kind in findings(old) if kind != "replica_stale"] == []


def resynced(world):
    """A sync from the new home. Each kind of its first streams."""
    swap(world)
    (planned,) = world.planned().syncs
    kinds = [type(disk.streams[0]).__name__ for disk in planned.disks if disk.streams]
    assert world.sync()[1]
    assert world.hashes() == world.hashes_there()
    return kinds


def test_what_is_kept_costs_a_whole_stream(old):
    """Then it can be given up at any time."""
    back(old).end("db01", claims(old))
    assert resynced(old) == ["Full", "Increment"]
    swap(old)
    for check, words in ((True, 1), (False, 1), (True, 0), (False, 0)):
        vm, told = back(old).give_up("db01", check)
        assert vm == (VM if words else "")
        assert len(told) == words
        assert not words or told[0] == f"{APART}/{old.uuids[0]} is destroyed"
    assert hashes_in(old, APART) == ["", ""]
    assert resynced(old) == []


def test_what_is_given_up_first_costs_an_increment(old):
    back(old).end("db01", claims(old))
    for check, words in ((True, 1), (False, 1), (True, 0), (False, 0)):
        vm, told = back(old).give_up("db01", check)
        assert vm == (VM if words else "")
        assert len(told) == words
        assert not words or "and becomes a replica" in told[0]
    assert resynced(old) == ["Increment", "Increment"]
    assert move(old)
    assert startable(old.peer)
    assert findings(old) == []


def given_up(world):
    back(world).end("db01", claims(world))
    back(world).give_up("db01", False)


def test_killed_anywhere(old):
    """The same commands go on, and what was not given up is there."""
    saved, said = old.saved(), claims(old)
    old.fuse = Fuse()
    back(old).end("db01", said)
    ends = old.fuse.counted
    given_up(old)
    points = list(itertools.product(range(1, ends + 1), (False, True)))[::EVERY]
    for at, after in points:
        old.restore(saved)
        old.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            back(old).end("db01", said)
        old.fuse = Fuse()
        back(old).end("db01", said)
        ended(old)
    saved = old.saved()
    old.fuse = Fuse()
    back(old).give_up("db01", False)
    for at, after in itertools.product(range(1, old.fuse.counted + 1), (False, True)):
        old.restore(saved)
        old.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            back(old).give_up("db01", False)
        old.fuse = Fuse()
        back(old).give_up("db01", False)
        assert hashes_in(old, APART) == ["", ""]
        assert all(hashes_in(old, REPLICAS))
    assert resynced(old) == ["Increment", "Increment"]
    print(f"{len(points)} points of the end")


def test_no_journal_stays_behind(old):
    """The run dies when the VM has ended, before its entry is cleared. The next run forgets it."""
    said, saved = claims(old), old.saved()
    old.fuse = Fuse()
    back(old).end("db01", said)
    count, left = old.fuse.counted, 0
    for at in range(1, count):
        old.restore(saved)
        old.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            back(old).end("db01", said)
        old.fuse = Fuse()
        host = observe(Zfs(old.home), Vmadm(old.home), every=True)
        if host.intents and not host.vms:
            left += 1
            back(old).end("db01", said)
            assert not observe(Zfs(old.home), Vmadm(old.home), every=True).intents
            ended(old)
    assert left


def refused(world, code, said):
    before = world.saved()[0].pools.to_json()
    with pytest.raises(FlexdiskError, match=said) as caught:
        back(world).end("db01", claims(world))
    assert caught.value.code == code
    assert world.saved()[0].pools.to_json() == before


def test_refusals(old):
    old.home.ok("vmadm", "start", VM)
    refused(old, "VmNotStopped", "it is running here, and another host has taken it over")
    old.home.ok("vmadm", "stop", VM, "-F")
    old.peer.ok("zfs", "set", "flexdisk:failover=on:0", f"zones/{VM}")
    refused(old, "Ambiguous", "hv02 has it, too, and does not say that it has taken it over")
    old.peer.ok("zfs", "inherit", "flexdisk:failover", f"zones/{VM}")
    refused(old, "Ambiguous", "hv02 has it, too, and does not say that it has taken it over")


def test_the_new_home_is_left_alone(old):
    """The same command on all hosts changes only the old one."""
    swap(old)
    said = read_claims({"hv01": said_by(old.peer, "db01")})
    assert back(old).look("db01", said).move is None
    back(old).end("db01", said)
    assert startable(old.home)


def test_newer_bookmarks_of_other_syncs_do_no_harm(old):
    """The old home has a bookmark of a sync with a third host that is newer than the common snapshot."""
    old.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    for name in old.disks().values():
        old.home.ok("zfs", "snapshot", f"{name}@flexdisk-sync-0000002a-7")
        old.home.ok("zfs", "bookmark", f"{name}@flexdisk-sync-0000002a-7", f"{name}#flexdisk-sync-0000002a-7")
        old.home.ok("zfs", "destroy", f"{name}@flexdisk-sync-0000002a-7")
    given_up(old)
    assert resynced(old) == ["Increment", "Increment"]
