# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk is restored from its replica, on the host that has the replica: docs/restore.md."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps, refused

from . import test_move
from .linux import LinuxWorld
from .test_other_tasks import DATA, ROOT, done
from .world import REPLICAS, VM, Fuse, Killed, TwoSecretsWorld, World


class Site:
    """Two hosts; the second one has the replicas, from which disks are restored there."""

    def __init__(self, world: World) -> None:
        self.world, self.there = world, world.peer
        self.data = list(world.disks())[1]
        self.replica = f"{REPLICAS}/{self.data}"
        self.kind = "libvirt" if isinstance(world, LinuxWorld) else "vmadm"

    def pipe(self, first, second) -> tuple[Answer, Answer]:
        sent = self.there(first)
        return sent, self.there(second, sent.stdout)

    def zfs(self) -> Zfs:
        known = self.there.zfs()
        known._pipe = self.pipe
        return known

    def go(self, check=False, **entry):
        wanted = {"name": "restored", "replica": self.data, **entry}
        return run(self.zfs(), self.there.driver(), [wanted], Policy(), None, check)

    def fingerprint(self):
        return self.there.node.pools.to_json()["pools"]

    def restored(self, **entry):
        """The result of a restore in four steps."""

        def told(done):
            return dict(results.result(done), disks=done.disks)

        return four_steps(self, lambda check: self.go(check, **entry), told)

    def refused(self, code, **entry) -> str:
        problems = refused(self, lambda check: self.go(check, **entry))
        assert [one.code for one in problems] == [code], problems
        return str(problems[0].message)

    def detached(self):
        return observe(self.zfs(), self.there.driver(), all_pools=True).detached

    def hash(self, dataset: str) -> str:
        return str(self.there.ok("guest", "hash", dataset))


def made(kind, tmp_path, monkeypatch, smartos=World):
    """Two hosts with a VM and its replicas; on libvirt its third disk is a file. smartos: the two with vmadm."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    world = smartos(tmp_path, monkeypatch) if kind == "vmadm" else test_move.linux(tmp_path, monkeypatch)
    more = [test_move.FILE] if kind == "libvirt" else []
    names = [{**entry, "uuid": uuid} for entry, uuid in zip((ROOT, DATA), world.disks(), strict=False)]
    done(world, *names, *more, flexible_disk_size=1024)
    assert world.sync() == (True, True)
    return world


@pytest.fixture(params=["vmadm", "libvirt"])
def site(request, tmp_path, monkeypatch):
    return Site(made(request.param, tmp_path, monkeypatch))


def test_the_newest_set(site):
    """The disk is as the replica is, its reservation is complete, and it belongs to no VM."""
    done = site.restored()
    (disk,) = site.detached()
    assert site.hash(disk.volume.name) == site.hash(site.replica) == site.world.hashes()[1]
    assert (disk.name, disk.vm, disk.size_mib) == ("restored", "", 64 if site.kind == "vmadm" else 32)
    assert disk.uuid not in (site.data, "")
    assert disk.snapshots == ()
    assert disk.volume.refreservation >= disk.volume.volsize
    point = site.there.points(site.replica)[-1]
    assert disk.volume.user["restored"].startswith(f"{site.data}/")
    assert disk.volume.user["restored"].endswith(f"@{point}")
    assert f"as a copy of {site.replica}@{point} of 2026-01-01T00:00:00Z" in "\n".join(done.plan)


def test_the_syncs_go_on(site):
    """The replica stays what it was."""
    site.restored()
    site.world.write(1, 1, 3)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()


@pytest.mark.parametrize("loaded", [False, True])
def test_an_encrypted_replica(tmp_path, monkeypatch, loaded):
    """Whether its key is loaded or not, no disk is made of it: neither a readable one, nor one that nobody can open."""
    site = Site(made("vmadm", tmp_path, monkeypatch, TwoSecretsWorld))
    if loaded:
        site.there.load(site.replica)
    text = site.refused("EncryptionRoot")
    assert text.startswith(f"{site.replica} is encrypted, and a replica that is encrypted is not restored as a disk")


def test_an_older_snapshot(site):
    """Snapshots of users come with a sync, and are what one goes back to."""
    dataset = site.world.disks()[site.data]
    before = site.world.hashes()[1]
    site.world.home.ok("zfs", "snapshot", f"{dataset}@nightly")
    site.world.write(1, 1, 3)
    assert site.world.sync() == (True, True)
    assert site.world.hashes()[1] != before
    site.restored(source_snapshot="nightly")
    (disk,) = site.detached()
    assert site.hash(disk.volume.name) == before
    text = site.refused("NameConflict")
    assert "was restored from the snapshot nightly, and flexdisk-sync-" in text
    assert "give the restored disk another name, or name nightly if that is meant" in text
    text = site.refused("ResourceNotFound", name="other", source_snapshot="weekly")
    assert f"{site.replica} has no snapshot weekly that has come from its disk; it has: flexdisk-sync-" in text
    assert " of 2026-01-01T00:00:00Z, nightly of " in text


def test_what_was_restored_stays_so_without_the_replica(site):
    """The same task again changes nothing, even if nobody could do it once more."""
    point = site.there.points(site.replica)[-1]
    site.restored(source_snapshot=point)
    site.world.write(1, 1, 3)
    assert site.world.sync() == (True, True)
    assert point not in site.there.points(site.replica)
    again = site.go(source_snapshot=point)
    assert (again.problems, again.changed) == ([], False)
    assert "is the newest one now" in site.refused("NameConflict")


def test_a_snapshot_of_others_is_not_restored(site):
    """Nobody knows what it has."""
    site.there.ok("zfs", "snapshot", f"{site.replica}@mine")
    assert "mine" not in site.refused("ResourceNotFound", source_snapshot="mine").partition("it has: ")[2]
    site.restored()


def test_refusals(site):
    other = "99999999-0000-4000-8000-000000000001"
    text = site.refused("ResourceNotFound", replica=other)
    assert f"no replica of the disk {other} is in the pools that were read (zones)" in text
    assert f"{site.data} ({site.replica})" in text
    assert "not the UUID of a disk" in site.refused("InvalidArgument", replica="data")
    assert "a copy" in site.refused("InvalidArgument", source_method="clone", source_snapshot="x")
    assert "exclude each other" in site.refused("InvalidArgument", source="data")
    site.there.ok("zfs", "create", "-o", "mountpoint=none", "zones/other")
    run(site.zfs(), site.there.driver(), [{"name": "plain", "size": 16}], Policy(), None, False)
    assert "was not restored from a replica; give" in site.refused("NameConflict", name="plain")


def test_a_file_is_not_restored(site):
    if site.kind == "vmadm":
        return
    text = site.refused("NotSupported", replica=list(site.world.disks())[2])
    assert "a replica of a disk of type file is not restored" in text


def test_without_room(site):
    """The figures are those of the pool."""
    free = int(site.there.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    site.there.ok("zfs", "create", "-o", f"reservation={free - (1 << 20)}", "-o", "mountpoint=none", "zones/other")
    assert "zones" in site.refused("InsufficientSpace")


def points_of(site) -> int:
    """How many commands a restore has."""
    fuse = site.world.fuse = Fuse()
    saved = site.world.saved()
    assert site.go().failure is None
    site.world.restore(saved)
    site.world.fuse = Fuse()
    return fuse.counted


def test_killed_at_every_command_the_same_task_ends_it(site):
    """Nothing is left of what was begun, and the replica is untouched."""
    saved, points = site.world.saved(), points_of(site)
    assert points > 5
    for number in range(1, points + 1):
        for after in (False, True):
            site.world.fuse = Fuse(number, after)
            with pytest.raises(Killed):
                site.go()
            site.world.fuse = Fuse()
            done = site.go()
            assert (done.problems, done.failure) == ([], None), (number, after)
            (disk,) = site.detached()
            assert site.hash(disk.volume.name) == site.hash(site.replica), (number, after)
            assert not {"from"} & set(disk.volume.user), (number, after)
            assert disk.snapshots == (), (number, after)
            assert disk.volume.refreservation >= disk.volume.volsize, (number, after)
            again = site.go()
            assert (again.problems, again.changed) == ([], False), (number, after)
            site.world.restore(saved)
    assert VM not in site.there.ok("zfs", "list", "-H", "-o", "name")
