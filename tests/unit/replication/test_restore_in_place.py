# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk gets back what it had, from its replica on another host, and what it had meanwhile stays: docs/restore.md."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    host_status,
    vm_snapshot,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk import run as run_disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted

from .controller import Controller
from .restoring import Restoring
from .test_move import swap
from .test_other_tasks import task
from .test_restore import made
from .test_restore_over import EVERY, PLACE
from .world import VM, Fuse, Killed

KEPT = "data-wrong"
NAMES = ("root", "data")
WHY = "was interrupted while volumes changed places"


class Site(Restoring):
    """The host of the replicas sends, and the one of the VM restores. So they have changed their names as in a sync."""

    number = 1

    def __init__(self, world) -> None:
        self.uuids = list(world.disks())
        self.places = list(world.disks().values())[:2]
        self.place = self.places[self.number]
        self.before = world.hashes()
        for number in (0, 1):
            world.write(number, 9)  # what nobody wanted
        self.wrong = world.hashes()[self.number]
        assert self.wrong != self.before[self.number]
        super().__init__(world, self.uuids[self.number])
        self.config = self.configured()

    def configured(self):
        """What the hypervisor has of the VM, without what follows from its snapshots."""
        config = self.target.config(VM)
        return {key: value for key, value in config.items() if key != "free_space"} if self.bhyve else config

    @property
    def bhyve(self):
        return self.target.stop == "vmadm stop"

    def go(self, check=False, **more):
        controller = Controller(self.world, {"hv01": self.target, "hv02": self.source})
        sync = controller.sync("hv02", "hv01", [])
        disks = [{"disk": self.uuid, "new_name": more.pop("name", KEPT)}]
        given = {"disks": disks, "sync": sync, "in_place": True, "allow_restart": True}
        return controller.does("restore", {**given, "stop_timeout": 9, **more}, check)["plan"]

    def all(self, check=False, **more):
        """All disks of the VM that are volumes."""
        disks = [{"disk": uuid, "new_name": f"{name}-wrong"} for uuid, name in zip(self.uuids, NAMES, strict=False)]
        return self.go(check, disks=disks, **more)

    def vm(self):
        return next(vm for vm in self.there().vms if vm.config.uuid == VM)

    def only_the_same_task_goes_on(self) -> bool:
        """Whether volumes are about to change places. Then all contents are there, and other tasks are refused."""
        host = self.there()
        if "exchange" not in {key for one in host.datasets.values() for key in one.user}:
            return False
        volumes = [name for name, one in host.datasets.items() if one.kind == "volume"]
        contents = {self.target.ok("guest", "hash", name) for name in volumes}
        assert {self.before[self.number], self.wrong} <= contents
        before = self.state()
        swap(self.world)
        assert WHY in str(task(self.world, {"name": "root"}, {"name": "data"}).problems)
        for disk in host.detached:
            text = str(self.destroyed(disk.name).problems)
            assert WHY in text or f"name {disk.name}: 2 disks have it" in text
        assert not self.world.home.runs(VM)
        assert WHY in str(self.snapshot("later").problems)
        assert WHY in str(self.world.planned().problems)
        (half,) = [one for one in half_done(self.world.home) if one["vm"] == VM]
        assert WHY in half["text"]
        swap(self.world)
        assert self.state() == before
        return True

    def snapshot(self, name, state="present"):
        home = self.world.home
        spec = wanted(state=state, name=name)
        return vm_snapshot.run(home.zfs(), home.driver(), ["db01"], spec, Policy(), None, False, NOW)

    def destroyed(self, name):
        target = self.world.home if self.world.home.has(self.place.rpartition("/")[0]) else self.target
        given = {"name": name, "state": "absent", "destroy_snapshots": True}
        return run_disk(target.zfs(), target.driver(), [given], Policy(), None, False)

    def whole(self):
        """The disk has what it had at the sync, and all that it was beside; what it had meanwhile is detached."""
        host, vm = self.there(), self.vm()
        disk = next(one for one in vm.disks if one.uuid == self.uuid)
        former = next(one for one in host.detached if one.name == KEPT)
        assert disk.volume.name == self.place
        assert self.target.ok("guest", "hash", self.place) == self.before[self.number]
        assert self.target.ok("guest", "hash", former.volume.name) == self.wrong
        assert disk.name == NAMES[self.number]
        assert (former.vm, former.boot) == (VM, False)
        assert former.uuid not in ("", self.uuid)
        assert former.volume.name == f"zones/flexdisk/{former.uuid}"
        assert "exchange" not in {key for one in host.datasets.values() for key in one.user}
        assert "replicas" in disk.volume.user
        assert "replicas" not in former.volume.user
        assert (vm.interrupted, vm.missing, vm.orphans, host.duplicates) == (None, (), (), {})
        assert self.configured() == self.config
        assert [name for name in host.datasets if name.startswith(PLACE + "/")] == []
        assert "flexdisk-receive-" not in self.world.authorized.read_text()
        return disk, former


def half_done(host):
    """What status finds on the host."""
    return host_status.run(host.zfs(), Copies(host), host.driver(), None)[0]["half_done"]


@pytest.fixture(params=["vmadm", "libvirt"])
def site(request, tmp_path, monkeypatch):
    return Site(made(request.param, tmp_path, monkeypatch))


def test_four_steps(site):
    before = site.state()
    plan = site.go(check=True)
    assert plan[0].startswith(f"+ {KEPT} ")
    text = "\n".join(plan)
    assert "MiB gets back what it had at flexdisk-sync-" in text
    assert f"; what it has now stays detached as {KEPT}" in text
    assert site.state() == before
    assert site.go() == plan
    site.whole()
    settled = site.state()
    assert site.go(check=True) == site.go() == []
    assert site.state() == settled


def test_the_syncs_go_on(site):
    """From the snapshot that was restored, although the replica had newer ones."""
    site.go()
    swap(site.world)
    site.world.write(site.number, 1, 3)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()
    streams = [one for vm in site.world.transfers for disk in vm.disks for one in disk.streams]
    assert "Full" not in {type(one).__name__ for one in streams}
    assert site.world.sync() == (False, True)
    swap(site.world)
    text = site.refused()
    assert "is what the disk had before: it was restored from the snapshot flexdisk-sync-" in text
    assert "is the newest one now; give the restored disk another name" in text


def test_once_more_to_an_older_sync(site):
    """Under another name for what the disk has now. The replica goes back, too."""
    point = site.source.points(site.replica)[-1]
    swap(site.world)
    site.world.home.ok("zfs", "snapshot", f"{site.place}@nightly")
    assert site.world.sync() == (True, True)
    site.world.write(site.number, 1, 3)
    assert site.world.sync() == (True, True)
    newer = site.world.hashes()[site.number]
    swap(site.world)
    assert point not in site.source.points(site.replica)
    site.before[site.number] = site.wrong
    site.wrong = newer
    site.go(snapshot="nightly")
    _disk, former = site.whole()
    assert [one.name.partition("@")[2] for one in former.snapshots][:1] == ["nightly"]
    swap(site.world)
    site.world.write(site.number, 1, 4)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()


def findings(site):
    """What disk_verify finds on the host of the VM."""
    target = site.target
    found = verify(target.zfs(), target.driver(), None, (), None, 90, False, int(target.node.now())).findings
    return {(one.kind, one.disk) for one in found}


def test_snapshots_of_the_vm(site):
    """Those of the disk go with what it had, and the VM has the rest of them."""
    swap(site.world)
    assert (site.snapshot("nightly").problems, site.snapshot("nightly").failure) == ([], None)
    swap(site.world)
    before = findings(site)
    site.config = site.configured()
    assert f"stays detached as {KEPT}, with 1 snapshot" in "\n".join(site.go())
    _disk, former = site.whole()
    (name,) = [one.name for one in former.snapshots if "sync" not in one.name]
    assert name.rpartition("@")[2].startswith("flexdisk-parked-aaaaaaaa-")
    assert findings(site) - before == set()
    swap(site.world)
    gone = site.snapshot("nightly", "absent")
    assert (gone.problems, gone.failure, gone.changed) == ([], None, True)
    assert (site.snapshot("later").problems, site.snapshot("later").failure) == ([], None)


def test_what_it_had_can_be_given_up(site):
    """By its name, as any detached disk."""
    site.go()
    _disk, former = site.whole()
    target = site.target
    given = {"uuid": former.uuid, "state": "absent", "destroy_snapshots": True}
    done = run_disk(target.zfs(), target.driver(), [given], Policy(), None, False)
    assert (done.problems, done.failure) == ([], None)
    assert site.there().detached == ()


def test_what_is_refused(site):
    """All before anything is sent."""
    site.target.power_on(VM) if not site.target.runs(VM) else None
    text = site.refused(allow_restart=False)
    assert "the VM is running and must be stopped while its disks get other contents: " in text
    assert f"{site.target.stop} {VM}" in text
    assert "allow_restart: true allows a shutdown and a start" in text
    assert "exists already, and was not restored from a replica; give the restored" in site.refused(name="root")
    assert "has no snapshot weekly that has come from its disk" in site.refused(snapshot="weekly")
    other = "99999999-0000-4000-8000-000000000001"
    assert f"no replica of the disk {other}" in site.refused(disks=[{"disk": other, "new_name": KEPT}])
    both = [{"disk": uuid, "new_name": f"{n}-wrong"} for n, uuid in enumerate((site.uuid, other))]
    assert f"no replica of the disk {other}" in site.refused(disks=both)
    free = int(site.target.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    site.target.ok("zfs", "create", "-o", f"reservation={free - (1 << 20)}", "-o", "mountpoint=none", "zones/other")
    assert "pool zones has 1 MiB left, but data-wrong needs " in site.refused()
    assert "pool zones has 1 MiB left, but root-wrong needs " in refused_all(site)


def refused_all(site):
    before = site.state()
    with pytest.raises(Stopped) as caught:
        site.all()
    assert site.state() == before
    return str(caught.value)


def test_room_for_all_disks_or_for_none(site):
    """The first one alone would fit."""
    sizes = [int(site.target.ok("zfs", "get", "-Hpo", "value", "refreservation", place)) for place in site.places]
    free = int(site.target.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    kept = free - max(sizes) - (4 << 20)
    site.target.ok("zfs", "create", "-o", f"reservation={kept}", "-o", "mountpoint=none", "zones/other")
    assert ", with the disks that are restored before it, needs " in refused_all(site)


def test_a_disk_that_is_smaller_now(site):
    """It is not made larger behind its back."""
    site.target.ok("zfs", "set", "refreservation=none", site.place)
    site.target.ok("zfs", "set", "volsize=16M", site.place)
    assert "what is restored does not fit. Restore it as a new disk" in site.refused()


def test_a_disk_that_has_grown_since(site):
    """It keeps its size, and what comes later is replicated."""
    swap(site.world)
    grown = task(site.world, {"name": "root"}, {"name": "data", "size": 80}, unlisted="keep")
    assert (grown.problems, grown.failure) == ([], None)
    swap(site.world)
    site.wrong, site.config = site.target.ok("guest", "hash", site.place), site.configured()
    site.go()
    vm = site.vm()
    disk = next(one for one in vm.disks if one.uuid == site.uuid)
    assert disk.size_mib == 80
    swap(site.world)
    site.world.write(site.number, 1, 3)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()


def test_a_detached_disk(site):
    swap(site.world)
    gone = task(site.world, {"name": "root"}, unlisted="detach")
    assert (gone.problems, gone.failure) == ([], None)
    swap(site.world)
    assert f"disk {site.uuid} is detached: nothing is restored in its place" in site.refused()


def test_another_run_was_interrupted(site):
    """Its own task ends it first."""
    swap(site.world)
    site.world.fuse = Fuse(14, True)
    with contextlib.suppress(Killed):
        task(site.world, {"name": "root"}, unlisted="detach")
    site.world.fuse = Fuse()
    swap(site.world)
    vm = site.vm()
    if vm.interrupted is not None and (vm.ghosts or vm.orphans):
        assert "a run was interrupted at" in site.refused()


def killed(site, number, after, **more):
    site.world.fuse = Fuse(number, after)
    with contextlib.suppress(Killed, Stopped, FlexdiskError):
        site.go(**more)
    reached = site.world.fuse.counted >= number
    site.world.fuse = Fuse()
    return reached


def test_killed_at_every_command_the_same_task_ends_it(site):
    """There is no moment in which one of the contents is not whole, and nothing else changes the VM meanwhile."""
    saved, begun = site.world.saved(), 0
    for number in range(1, 1000, EVERY):
        for after in (False, True):
            reached = killed(site, number, after)
            if not reached:
                assert (number > 60, begun > 3) == (True, True)
                return
            begun += site.only_the_same_task_goes_on()
            site.go()
            site.whole()
            assert site.target.runs(VM)
            assert site.go() == [], (number, after)
            site.world.restore(saved)


def all_whole(site):
    site.whole()
    assert sorted(one.name for one in site.there().detached) == ["data-wrong", "root-wrong"]
    assert [site.target.hash(name) for name in site.places] == site.before[:2]


def test_all_disks_in_four_steps(site):
    """The boot disk, too."""
    before = site.state()
    plan = site.all(check=True)
    text = "\n".join(plan)
    assert [line.partition(" MiB")[0].rpartition(" ")[0] for line in plan[:2]] == ["+ root-wrong", "+ data-wrong"]
    assert " get back what they had at flexdisk-sync-" in text
    assert "; what they have now stays detached as root-wrong, data-wrong" in text
    assert site.state() == before
    assert site.all() == plan
    all_whole(site)
    settled = site.state()
    assert site.all(check=True) == site.all() == []
    assert site.state() == settled
    swap(site.world)
    site.world.write(0, 1, 3)
    assert site.world.sync() == (True, True)
    assert site.world.hashes_there() == site.world.hashes()


def test_all_disks_beside(site):
    """All of one moment, although one replica has a newer sync that the other lacks."""
    plan = site.all(in_place=False)
    assert len(plan) == 2
    host = site.there()
    assert [site.target.hash(one.volume.name) for one in sorted(host.detached, key=lambda one: -one.size_mib)] == [
        site.before[0],
        site.before[1],
    ]
    assert site.all(in_place=False) == []


def test_all_disks_killed_at_every_command_the_same_task_ends_it(site):
    """The VM does not run with disks of different times."""
    saved = site.world.saved()
    for number in range(1, 1000, EVERY + 3):
        for after in (False, True):
            site.world.fuse = Fuse(number, after)
            with contextlib.suppress(Killed, Stopped, FlexdiskError):
                site.all()
            reached = site.world.fuse.counted >= number
            site.world.fuse = Fuse()
            if not reached:
                assert number > 100
                return
            if site.target.runs(VM):
                same = {site.target.hash(name) == then for name, then in zip(site.places, site.before[:2], strict=True)}
                assert len(same) == 1
            site.all()
            all_whole(site)
            assert site.target.runs(VM)
            assert site.all() == [], (number, after)
            site.world.restore(saved)


def test_a_rename_that_fails_leaves_the_vm_down(site):
    """It could start with data of different times. The same task goes on, and starts it."""
    assert site.target.runs(VM)
    failures = ["cannot rename: dataset is busy"]

    def watch():
        disk_leaves = site.world.last_commands[-1][:2] == ["zfs", "rename"] and not site.target.has(site.place)
        if failures and disk_leaves:
            raise FlexdiskError("ZfsFailed", failures.pop())

    site.world.watch = watch
    with pytest.raises(Stopped) as caught:
        site.go()
    assert "dataset is busy" in str(caught.value)
    assert not site.target.runs(VM)
    assert site.only_the_same_task_goes_on()
    site.go()
    site.whole()
    assert site.target.runs(VM)
