# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which restored disks may take the place of the disk that they were, and what the plan says of the syncs after it."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims

from .test_failover import protect, said_by, take
from .test_move import swap
from .test_other_tasks import task
from .test_restore import made
from .test_restore_in_place import KEPT, Site, killed
from .world import VM

BESIDE = "was restored beside the disk, or attached since, and may have other data now; give another name"


@pytest.fixture(params=["vmadm", "libvirt"])
def site(request, tmp_path, monkeypatch):
    return Site(made(request.param, tmp_path, monkeypatch))


def attached_and_detached(site, name):
    """The VM gets a disk, writes to it, and loses it again."""
    disk = next(one for one in site.there().detached if one.name == name)
    swap(site.world)
    entries = [{"name": "root"}, {"name": "data"}]
    came = task(site.world, *entries, {"name": name, "uuid": disk.uuid}, unlisted="keep")
    assert (came.problems, came.failure) == ([], None)
    swap(site.world)
    volume = next(one for one in site.vm().disks if one.name == name).volume.name
    swap(site.world)
    site.world.home.ok("guest", "write", volume, "0", "5", "scribble")
    left = task(site.world, *entries, unlisted="detach")
    assert (left.problems, left.failure) == ([], None)
    swap(site.world)
    site.config = site.configured()


def test_what_was_restored_beside_is_not_taken(site):
    """It has no bookmark from which the syncs could go on, and anybody may have written to it."""
    site.go(in_place=False, name="X")
    assert BESIDE in site.refused(name="X")
    assert BESIDE in site.refused(name="X", check=True)
    site.go()
    site.whole()


def killed_between(site):
    """The disk has come by a restore in place, and nothing else has been done."""
    saved = site.world.saved()
    for number in range(40, 1000):
        assert killed(site, number, True)
        host = site.there()
        came = [one for one in host.detached if one.name == KEPT and "from" not in one.volume.user]
        if came and site.target.runs(site.vm().config.uuid):
            return
        site.world.restore(saved)


def test_what_was_attached_since_is_not_taken(site):
    killed_between(site)
    attached_and_detached(site, KEPT)
    assert BESIDE in site.refused()
    site.go(name="again")
    assert site.target.hash(site.place) == site.before[site.number]


def test_what_was_not_attached_since_is_taken(site):
    killed_between(site)
    site.go()
    disk, former = site.whole()
    assert not {"exchange.ready"} & {*disk.volume.user, *former.volume.user}


def test_names_that_are_taken(site):
    """Before the VM is stopped: it would stay down with all its data, and nothing could go on."""
    killed_between(site)
    (restored,) = [one for one in site.there().detached if one.name == KEPT]
    vacant = f"zones/flexdisk/{site.uuid}"
    site.target.ok("zfs", "create", "-o", "mountpoint=none", vacant)
    for check in (True, False):
        assert f"cannot change its place: {vacant} already exists" in site.refused(check=check)
    assert site.target.runs(site.vm().config.uuid)
    site.target.ok("zfs", "destroy", vacant)
    site.go()
    _disk, former = site.whole()
    assert former.uuid == restored.uuid


def test_a_name_that_is_taken_while_volumes_change_places(site):
    """Nothing is renamed then either."""
    for number in range(60, 1000):
        saved = site.world.saved()
        killed(site, number, True)
        vacant = f"zones/flexdisk/{site.uuid}"
        host = site.there()
        marked = "exchange" in {key for one in host.datasets.values() for key in one.user}
        if marked and site.place in host.datasets and vacant not in host.datasets:
            break
        site.world.restore(saved)
    site.target.ok("zfs", "create", "-o", "mountpoint=none", vacant)
    assert f"cannot change its place: {vacant} already exists" in site.refused()
    site.target.ok("zfs", "destroy", vacant)
    site.go()
    site.whole()


def test_what_a_disk_had_is_no_copy_of_an_earlier_snapshot(site):
    """Although it was restored from it once. Nor is the disk itself one, which the guest writes to."""
    swap(site.world)
    site.world.home.ok("zfs", "snapshot", f"{site.place}@nightly")
    assert site.world.sync() == (True, True)
    swap(site.world)
    site.go(name="first", snapshot="nightly")
    beside = {"in_place": False, "snapshot": "nightly"}
    assert "exists already, and was not restored from a replica" in site.refused(name="data", **beside)
    swap(site.world)
    site.world.write(site.number, 9, 7)
    assert site.world.sync() == (True, True)
    swap(site.world)
    site.go(name="second")
    for name in ("first", "second"):
        assert "has no snapshot nightly" in site.refused(name=name, **beside)
    assert site.go(name="second") == []


def test_the_syncs_with_another_host_go_on_too(tmp_path, monkeypatch):
    """Its replica has the snapshot as well, although that is one of the sync with the first host."""
    world = made("vmadm", tmp_path, monkeypatch)
    first, third = world.peer, world.host(3)
    world.peer, world.peer_name = third, "hv03"
    assert world.sync() == (True, True)
    world.peer, world.peer_name = first, "hv02"
    site = Site(world)
    site.go()
    swap(world)
    for peer, name in ((first, "hv02"), (third, "hv03")):
        world.peer, world.peer_name = peer, name
        world.write(site.number, 1, 3)
        assert world.sync() == (True, True)
        assert world.hashes_there() == world.hashes()
        assert world.sync() == (False, True)
    assert [one for one in world.home.points(site.place, "bookmark") if one.endswith("-0")] == []


def test_what_the_replica_loses_is_said_before(site):
    """What is newer, and the snapshots that only the replica has then."""
    world = site.world
    swap(world)
    for name in ("monday", "tuesday", "wednesday"):
        world.write(site.number, 1, 3)
        world.home.ok("zfs", "snapshot", f"{site.place}@{name}")
        assert world.sync() == (True, True)
    swap(world)
    plan = site.go(check=True, snapshot="tuesday")
    newest = site.source.points(site.replica)[-1]
    gone = f"what is newer (wednesday, {newest}) and what the disk no longer has itself (monday, tuesday)"
    assert plan[-1] == f"hv02: the next sync destroys of {site.replica} {gone}"
    assert site.go(snapshot="tuesday") == plan
    assert site.go(snapshot="tuesday") == []
    swap(world)
    world.write(site.number, 1, 4)
    assert world.sync() == (True, True)
    assert not {"monday", "tuesday", "wednesday", newest} & {*world.peer.points(site.replica)}


def test_a_replica_that_has_lost_the_snapshot_meanwhile(site):
    """What has come is taken, and the plan says what follows for the syncs."""
    point = site.source.points(site.replica)[-1]
    killed_between(site)
    swap(site.world)
    for number in (1, 2):
        site.world.write(site.number, 2, 4 + number)
        assert site.world.sync() == (True, True)
    swap(site.world)
    assert point not in site.source.points(site.replica)
    plan = site.go(check=True, snapshot=point)
    assert plan[-1].startswith(f"hv02: the replica does not have {point} any more, so the next sync is refused (NoCo")
    assert site.go(snapshot=point) == plan
    swap(site.world)
    site.world.write(site.number, 1, 3)
    assert "NoCommonSnapshot" in str(site.world.planned().problems)


@pytest.mark.parametrize("later", [False, True], ids=["has the snapshot", "lacks it"])
def test_another_host_that_may_lack_the_snapshot(later, tmp_path, monkeypatch):
    """Its last sync was before the snapshot was taken. The host is named before anything is done."""
    world = made("vmadm", tmp_path, monkeypatch)
    first, third = world.peer, world.host(3)
    world.peer, world.peer_name = third, "hv03"
    assert world.sync() == (True, True)
    world.peer, world.peer_name = first, "hv02"
    if later:
        world.write(1, 1, 3)
        assert world.sync() == (True, True)
    site = Site(world)
    warned = "; hv03 may lack that snapshot: then the next sync there is refused (NoCommonSnapshot)"
    assert (warned in "\n".join(site.go(check=True))) == later
    site.go()
    swap(world)
    world.peer, world.peer_name = third, "hv03"
    assert ("NoCommonSnapshot" in str(world.planned().problems)) == later


@pytest.mark.parametrize("number", [78, 84, 90, 95])
def test_the_vm_was_taken_over_while_volumes_changed_places(number, tmp_path, monkeypatch):
    """The end on its old home names the restore, which ends there without a start. Then the VM can end there."""
    world = made("vmadm", tmp_path, monkeypatch)
    protect(world)
    assert world.sync()[1]
    site = Site(world)
    assert killed(site, number, True)
    home, target = site.target, site.source
    home.reboot()
    swap(world)
    assert take(world)

    def look():
        claims = read_claims({"hv02": said_by(target, "db01")})
        return FailoverReturn(home.zfs(), home.driver(), home).look(EndRequest("db01", claims)).problems

    (why,) = look()
    assert (
        "The playbook that restores them (restore_disk or restore_vm) ends it, with the same variables" in why.message
    )
    assert why.message.endswith(". If another host has the VM as well, give --limit with this host, too")
    world.watch = lambda: _stopped(home)
    swap(world)
    site.go()
    swap(world)
    assert look() == []
    assert site.before[1] == home.hash(site.place)
    assert (home.power(VM), target.power(VM)) == ("stopped", "running")


def _stopped(host):
    assert host.power(VM) == "stopped"


def test_room_that_the_snapshots_of_the_disk_take(site):
    """They stay with what the disk had, so the VM needs as much again. The refusal says what takes the space."""
    swap(site.world)
    for number in range(3):
        site.world.home.ok("zfs", "snapshot", f"{site.place}@own-{number}")
        site.world.write(site.number, 20, 0)
    swap(site.world)
    target = site.target
    size = int(target.ok("zfs", "get", "-Hpo", "value", "refreservation", site.place))
    free = int(target.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    target.ok("zfs", "create", "-o", f"reservation={free - size - (6 << 20)}", "-o", "mountpoint=none", "zones/other")
    text = site.refused(check=True)
    assert "pool zones has " in text
    assert f"; detached, {KEPT} keeps " in text
    assert " MiB with 4 snapshots [InsufficientSpace]" in text
