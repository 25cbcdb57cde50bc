# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The space of a VM for the snapshots of syncs: beside its flexible_disk_size, whatever happens to it."""

from __future__ import annotations

import random

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .test_other_tasks import DATA, ROOT, done, snapshot
from .world import VM, Fuse, Killed, World

MIB = 1 << 20


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A stopped VM whose disks have names, and no free space."""
    made = World(tmp_path, monkeypatch)
    root, data = made.disks()
    done(made, {**ROOT, "uuid": root}, {**DATA, "uuid": data, "size": "remaining"}, flexible_disk_size=192)
    return made


def vm(world):
    (result,) = observe(Zfs(world.home), Vmadm(world.home)).vms
    return result


def law(world):
    """Check the law, and that ZFS gives what is promised."""
    host = observe(Zfs(world.home), Vmadm(world.home))
    (result,) = host.vms
    assert result.root.quota == result.root.reservation == space.expected_quota(result, host.geometry["zones"])
    assert result.root.quota - result.root.used >= space.allocatable(result)
    return result


def test_disks_have_their_space_whatever_a_sync_holds(world):
    assert space.allocatable(vm(world)) == space.free_space_mib(vm(world)) == 0
    for _round in range(3):
        world.write(0, 128)
        world.write(1, 64)
        assert world.sync() == (True, True)
        result = law(world)
        assert space.allocatable(result) == space.free_space_mib(result) == 0
        assert space.sync_space(result) == sum(s.referenced for disk in result.disks for s in disk.snapshots)
    done(world, ROOT, {**DATA, "size": "remaining"}, flexible_disk_size=192)
    assert law(world).disks[1].size_mib == 64


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens(world, seed):
    """Users write, and take and delete snapshots, between syncs. The figures promise nothing that ZFS does not give."""
    dice = random.Random(seed)
    done(world, ROOT, DATA, flexible_disk_size=1024)
    taken: list[str] = []
    for number in range(12):
        world.write(dice.randrange(2), dice.randrange(1, 60))
        happens = dice.choice(["sync", "take", "delete", "nothing"])
        if happens == "sync":
            assert world.sync() == (True, True)
            result = law(world)
            assert space.committed(result) <= space.committed(space.without_syncs(result))
            assert world.sync() == (False, True)
        elif happens == "take":
            taken.append(f"s{number}")
            snapshot(world, name=taken[-1])
        elif happens == "delete" and taken:
            snapshot(world, name=taken.pop(dice.randrange(len(taken))), state="absent")
        law(world)


def test_a_change_of_flexible_disk_size(world):
    """vmadm knows no space for syncs: their snapshots go first. The next sync goes on from the bookmarks."""
    assert world.sync() == (True, True)
    done(world, ROOT, DATA, flexible_disk_size=256)
    result = law(world)
    assert (space.sync_space(result), [disk.snapshots for disk in result.disks]) == (0, [(), ()])
    world.write(0, 1, 3)
    (planned,) = world.planned().syncs
    assert all(stream.base.bookmark for disk in planned.disks for stream in disk.streams)
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()
    law(world)


def test_growth_with_a_change_of_flexible_disk_size(world):
    """The disk grows into all that the change gives."""
    world.write(0, 128)
    assert world.sync() == (True, True)
    world.write(0, 128)
    done(world, ROOT, {**DATA, "size": 128}, flexible_disk_size=256)
    assert space.allocatable(law(world)) == 0
    assert world.sync() == (True, True)
    done(world, ROOT, {**DATA, "size": "remaining"}, flexible_disk_size=320)
    assert [disk.size_mib for disk in law(world).disks] == [128, 192]


def test_a_disk_goes_and_comes_back(world):
    """Its space for the sync stays while it is away, so it finds room again."""
    world.write(1, 64)
    assert world.sync() == (True, True)
    done(world, ROOT, unlisted="detach")
    world.write(0, 128)
    assert world.sync() == (True, True)
    law(world)
    done(world, ROOT, DATA)
    law(world)
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()


def test_growth_beside_what_a_sync_holds(world):
    done(world, ROOT, DATA, flexible_disk_size=256)
    world.write(0, 128)
    assert world.sync() == (True, True)
    done(world, ROOT, {**DATA, "size": 128}, flexible_disk_size=256)
    result = law(world)
    assert space.allocatable(result) == 0
    assert space.sync_space(result) >= 128 * MIB


def test_a_change_killed_anywhere(world):
    """The same command goes on, and so does the sync."""
    assert world.sync() == (True, True)
    saved = world.saved()
    world.fuse = Fuse()
    done(world, ROOT, DATA, flexible_disk_size=256)
    for at in range(1, world.fuse.counted + 1):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            done(world, ROOT, DATA, flexible_disk_size=256)
        world.fuse = Fuse()
        done(world, ROOT, DATA, flexible_disk_size=256)
        assert space.sync_space(law(world)) == 0
        assert world.sync() == (True, True)
        law(world)
        assert world.hashes_there() == world.hashes()


def test_a_rollback_that_raises_it(world):
    done(world, ROOT, DATA, flexible_disk_size=400)
    snapshot(world, name="one")
    world.write(0, 64)
    assert world.sync() == (True, True)
    assert snapshot(world, name="one", state="rolled_back", newer=[], flexible_disk_size=500)
    assert space.sync_space(law(world)) == 0
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()


def test_a_vm_without_flexible_disk_size(world):
    """Its quota has no room for a snapshot but what a sync gives it."""
    world.home.ok("vmadm", "delete", VM)
    world.home.node.run(["vmadm", "create"], INFLEXIBLE)
    before = vm(world).root.quota
    world.write(0, 128)
    assert world.sync() == (True, True)
    result = vm(world)
    assert result.root.quota == result.root.reservation == before + space.sync_space(result)
    world.write(0, 128)
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()
    removed = world.sender().remove(["db01"], "hv02", False)
    assert removed.gone
    assert vm(world).root.quota == before


INFLEXIBLE = (
    f'{{"uuid": "{VM}", "alias": "db01", "brand": "bhyve", "ram": 256, "vcpus": 1, "quota": 1,'
    ' "disks": [{"boot": true, "model": "virtio", "size": 128}]}'
)
