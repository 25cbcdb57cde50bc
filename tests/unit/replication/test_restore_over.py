# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk is restored over the network, from its replica on another host: docs/restore.md."""

from __future__ import annotations

import contextlib
import os

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .controller import Controller
from .restoring import Restoring
from .test_move import swap
from .test_restore import made
from .world import OTHER, VM, Fuse, Killed, TwoSecretsWorld

EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 3
PLACE = "zones/flexdisk/restoring"


class Site(Restoring):
    """The second disk is restored."""

    def __init__(self, world) -> None:
        self.before = world.hashes()
        world.write(1, 9)  # what nobody wanted
        super().__init__(world, list(world.disks())[1])

    def go(self, check=False, **more):
        controller = Controller(self.world, {"hv01": self.target, "hv02": self.source})
        sync = controller.sync("hv02", more.pop("target", "hv01"), [], peer_pool=more.pop("pool", None))
        named = {"disk": self.uuid, "new_name": more.pop("new_name", "restored")}
        given = {"disks": [named], "sync": sync}
        return controller.does("restore", {**given, **more}, check)["plan"]

    def whole(self):
        """The restored disk, which is as the disk was, and nothing else is left."""
        host = self.there()
        (disk,) = host.detached
        assert self.target.ok("guest", "hash", disk.volume.name) == self.before[1]
        assert (disk.name, disk.vm, disk.snapshots, disk.guarded) == ("restored", VM, (), False)
        assert disk.volume.refreservation >= disk.volume.volsize
        assert "from" not in disk.volume.user
        assert "receive_resume_token" not in disk.volume.user
        rows = self.target.zfs().properties(disk.volume.name)[disk.volume.name]
        assert rows["readonly"][0] == "off"
        assert [name for name in host.datasets if name.startswith(PLACE + "/")] == []
        assert not [one for one in self.world.folder.glob("transfer-*") if one.is_dir()]
        assert "flexdisk-receive-" not in self.world.authorized.read_text()
        return disk


@pytest.fixture(params=["vmadm", "libvirt"])
def site(request, tmp_path, monkeypatch):
    return Site(made(request.param, tmp_path, monkeypatch))


def test_four_steps(site):
    before = site.state()
    (line,) = site.go(check=True)
    assert line.startswith("+ restored ")
    assert f"detached as a copy of {site.replica}@flexdisk-sync-" in line
    assert line.endswith(" of hv02, as it was at 2026-01-01T00:00:00Z")
    assert site.state() == before
    assert site.go() == [line]
    site.whole()
    settled = site.state()
    assert site.go(check=True) == site.go() == []
    assert site.state() == settled


def test_the_vm_and_its_syncs_go_on(site):
    site.go()
    swap(site.world)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()
    swap(site.world)
    text = site.refused()
    assert "was restored from the snapshot flexdisk-sync-" in text
    assert "is the newest one now" in text


def test_what_is_refused(site):
    text = site.refused(snapshot="weekly")
    assert f"{site.replica} has no snapshot weekly that has come from its disk; it has: flexdisk-sync-" in text
    assert "exists already, and was not restored" in site.refused(new_name="root")
    assert "YAML reads it as a truth value" in site.refused(new_name="yes")
    assert "hv09 is not in the inventory" in site.refused(target="hv09")
    assert "no such pool here: tank" in site.refused(pool="tank")
    free = int(site.target.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    site.target.ok("zfs", "create", "-o", f"reservation={free - (1 << 20)}", "-o", "mountpoint=none", "zones/other")
    assert "pool zones has 1 MiB left, but restored needs" in site.refused()


@pytest.mark.parametrize("loaded", [False, True])
def test_an_encrypted_replica(tmp_path, monkeypatch, loaded):
    """Its key may be loaded or not: nothing is sent, readable or raw."""
    site = Site(made("vmadm", tmp_path, monkeypatch, TwoSecretsWorld))
    if loaded:
        site.source.load(site.replica)
    for check in (True, False):
        text = site.refused(check=check)
        assert f"{site.replica} is encrypted, and a replica that is encrypted is not restored as a disk" in text


def test_a_locked_pool(site):
    """The disk of a replica that is not encrypted gets the key of its pool, which must be loaded."""
    site.target.node.pools.add_pool("tank", 8 << 30, 12, [{"type": "disk"}], "illumos", OTHER)
    site.target.ok("zfs", "unload-key", "tank")
    for check in (True, False):
        assert "the key of tank is not loaded; zfs load-key tank loads it" in site.refused(check=check, pool="tank")
    site.target.load("tank", OTHER)
    (line,) = site.go(pool="tank")
    assert line.startswith("+ restored ")
    (disk,) = site.there().detached
    assert site.target.ok("guest", "hash", disk.volume.name) == site.before[1]


def half_done(site):
    """What status finds on the host that gets the disk."""
    host = site.target
    return host_status.run(host.zfs(), Copies(host), host.driver(), None)[0]["half_done"]


def killed(site, number, after, **more):
    site.world.fuse = Fuse(number, after)
    with contextlib.suppress(Killed, Stopped, FlexdiskError):
        site.go(**more)
    reached = site.world.fuse.counted >= number
    site.world.fuse = Fuse()
    return reached


def test_killed_at_every_command_the_same_task_ends_it(site):
    saved = site.world.saved()
    for number in range(1, 1000, EVERY):
        for after in (False, True):
            reached = killed(site, number, after)
            if not reached:
                assert number > 30
                return
            site.go()
            site.whole()
            assert site.go() == [], (number, after)
            site.world.restore(saved)


def test_killed_in_the_middle_of_a_stream(site):
    """Each time a little more comes, and the run dies at another command."""
    saved = site.world.saved()
    for number in range(3, 1000, 5):
        site.world.cut = 4096
        with contextlib.suppress(Stopped):
            site.go()
        site.world.cut = 0
        if not killed(site, number, number % 2 == 0):
            assert number > 30
            return
        site.go()
        site.whole()
        site.world.restore(saved)


def test_a_stream_that_is_cut_goes_on(site):
    """What has come is kept, and status shows it."""
    site.world.cut = 4096
    with pytest.raises(Stopped) as caught:
        site.go()
    assert "has not come to hv01 completely. Run this again: it goes on" in str(caught.value)
    assert site.there().detached == ()
    (half,) = [one for one in half_done(site) if one["kind"] == "restore"]
    assert (half["vm"], half["alias"], half["works"]) == (VM, "db01", False)
    assert "and not whole yet; it comes from @flexdisk-sync-" in half["text"]
    (name,) = [one for one in site.there().datasets if one.startswith(PLACE + "/")]
    token = site.target.ok("zfs", "get", "-Ho", "value", "receive_resume_token", name)
    assert token != "-"
    site.world.cut = 0
    site.go()
    site.whole()


def test_what_has_come_of_another_snapshot_is_given_up(site):
    site.world.cut = 4096
    with pytest.raises(Stopped):
        site.go()
    site.world.cut = 0
    swap(site.world)
    assert site.world.sync() == (True, True)
    site.before = site.world.hashes()
    swap(site.world)
    site.go()
    site.whole()
