# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Others take snapshots of whole pools at any moment. They stop no move, failover or return for good."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.own_copies import (
    drop_own_copy,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.copies import (
    Original,
    Point,
    Replica,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.streams import (
    GiveUp,
    Increment,
    Rollback,
    next_stream,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import moves
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, take, taker
from .test_move import MAKE, begun, config, findings, gone, hosts, look, move, renew, swap
from .test_other_tasks import DATA, ROOT, done
from .world import REPLICAS, VM, Foreign, Fuse, Killed

PLACE = f"zones/flexdisk/move/{VM}"
SEEN = {"hv02": moves.Sighting(VM, "")}


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A running VM without free space."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return MAKE["vmadm"](tmp_path, monkeypatch)


@pytest.fixture
def world(full):
    """A running VM with room for snapshots."""
    done(full, ROOT, DATA, flexible_disk_size=1024)
    return full


def others(*hosts_, name="auto"):
    for host in hosts_:
        Foreign.of_pool(host, name)


def contents(host):
    return [host.ok("guest", "hash", disk["dataset"]) for disk in host.disks(VM)]


def listed(host, name):
    return host.node.run(["zfs", "list", "-H", "-o", "name", "-t", "all", "-r", name])[1].split()


def test_where_there_is_a_tombstone(world):
    """The VM comes back, and the tombstone's snapshots go with it."""
    assert move(world)
    others(world.home)
    swap(world)
    hashes = world.hashes()
    assert move(world)
    assert contents(world.peer) == hashes
    assert listed(world.peer, PLACE) == []
    assert findings(world) == []


def test_a_tombstone_that_is_given_up(world):
    assert move(world)
    others(world.home)
    source, _target = hosts(world)
    assert source.forget("db01", SEEN)
    assert not source.forget("db01", SEEN)
    assert listed(world.home, PLACE) == []


def test_a_tombstone_that_others_hold(world):
    """Its place stays until they let it go. Nothing is written down there any more, so nothing is stopped by it."""
    assert move(world)
    others(world.home)
    world.home.ok("zfs", "hold", "theirs", f"{PLACE}@auto")
    source, _target = hosts(world)
    assert source.forget("db01", SEEN)
    assert not source.forget("db01", SEEN)
    assert listed(world.home, PLACE) == [PLACE, f"{PLACE}@auto"]
    swap(world)
    assert move(world)
    assert listed(world.peer, PLACE) == [PLACE, f"{PLACE}@auto"]
    assert findings(world) == []
    swap(world)
    assert move(world)
    assert world.home.points(PLACE) == ["auto"]


def test_after_it_is_expected_on_the_target(world):
    """What was made there goes with the snapshots, if the VM stays, and the same command goes on."""
    world.sync()
    hosts(world)[1].expect(look(world)["record"], "zones")
    others(world.peer)
    hosts(world)[1].cancel(VM)
    assert listed(world.peer, f"zones/{VM}") == []
    hosts(world)[1].expect(look(world)["record"], "zones")
    others(world.peer, name="again")
    world.home.node.run(["vmadm", "update", VM], json.dumps({"max_swap": 2048}))
    assert move(world)
    assert world.peer.power(VM) == "running"


def test_on_the_home_after_the_stop(world):
    """The VM can stay, or go."""
    before = config(world.home)
    begun(world)
    others(world.home, world.peer)
    source, target = hosts(world)
    source.stay(VM)
    target.cancel(VM)
    assert config(world.home) == before
    assert listed(world.home, PLACE) == listed(world.peer, PLACE) == []
    assert move(world)


def test_after_the_last_transfer(world):
    """Nothing was written since. So the VM leaves, and the snapshot counts as none that has come to the target."""
    hashes, uuids = world.hashes(), list(world.disks())
    announced, answer = begun(world)
    taken = world.last(announced)
    others(world.home, world.peer)
    source, target = hosts(world)
    source.go(VM, "hv02", taken, answer, renew(world))
    assert target.arrive(VM, "hv01")
    assert contents(world.peer) == hashes
    for place in (f"{REPLICAS}/{uuid}" for uuid in uuids):
        *_older, last, theirs = world.home.points(place)
        sent = world.home.ok("zfs", "get", "-H", "-o", "value", "flexdisk:replica.sent", f"{place}@{last}")
        assert (sent, theirs) == ("on", "auto")
        assert world.home.ok("zfs", "get", "-H", "-o", "value", "flexdisk:replica.sent", f"{place}@auto") == "-"
        assert world.home.node.run(["zfs", "destroy", f"{place}@{theirs}"])[0] == 0, "it is not held"
    swap(world)
    world.write(0, 1, 3)
    assert world.sync()[1]
    assert world.hashes_there() == world.hashes()


def test_a_guest_that_wrote_before_the_snapshot(world):
    """What is in the snapshot was not sent, so the VM stays."""
    announced, answer = begun(world)
    taken = world.last(announced)
    world.write(0, 1, 3)
    others(world.home)
    with pytest.raises(FlexdiskError, match="disk root was written to after it had been sent"):
        hosts(world)[0].go(VM, "hv02", taken, answer)


def test_snapshots_of_the_vms_own_dataset_go_with_it_and_are_named(world):
    others(world.home)
    seen = look(world)
    assert (seen["refusals"], seen["lost"]) == ([], [f"zones/{VM}@auto"])
    assert move(world)


def test_one_name_on_both_hosts(world):
    """They are named by the time. The one on the replica gives way to that of the disk, for nothing is new in it."""
    assert world.sync()[1]
    others(world.home, world.peer)
    world.write(0, 1, 3)
    assert world.sync()[1]
    assert world.hashes_there() == world.hashes()
    for uuid, dataset in world.disks().items():
        names = [f"{dataset}@auto", f"{REPLICAS}/{uuid}@auto"]
        here, there = (host.ok("zfs", "get", "-Hpo", "value", "guid", one) for host, one in zip(
            (world.home, world.peer), names, strict=True))  # fmt: skip
        assert here == there
    assert not world.sync()[0]


def test_a_vm_without_room_for_them(full):
    """They are in the space that the sync has made. The move is refused before the VM is stopped, and names them."""
    assert full.sync()[1]
    full.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    others(full.home)
    (problem,) = look(full)["refusals"]
    assert problem.code == "InsufficientSpace"
    first, second = (f"{name}@auto" for name in full.disks().values())
    assert f"Snapshots that others have taken of its disks take room, too: {first}, {second}; zfs destroy frees" in (
        problem.message
    )
    for name in (first, second):
        full.home.ok("zfs", "destroy", name)
    assert move(full)


def test_a_vm_that_has_no_room_where_it_arrives(full):
    """Those that were taken of its replicas hold nothing new. Only without room for them, they go."""
    hashes = full.hashes()
    assert full.sync()[1]
    others(full.peer)
    hosts(full)[1].expect(look(full)["record"], "zones")
    assert full.sync()[1]
    gone(full, look(full))
    others(full.peer, name="late")
    assert hosts(full)[1].arrive(VM, "hv01")
    assert contents(full.peer) == hashes
    assert [name for disk in full.peer.disks(VM) for name in full.peer.points(disk["dataset"])] == []


def test_they_stay_where_there_is_room(world):
    assert world.sync()[1]
    others(world.peer)
    assert move(world)
    assert [world.peer.points(disk["dataset"]) for disk in world.peer.disks(VM)] == [["auto"]] * 2


def test_a_creation_that_was_killed(world):
    """What it has left on the target is as empty as its snapshot."""
    world.sync()
    target, record = hosts(world)[1], look(world)["record"]
    saved, world.fuse = world.saved(), Fuse()
    target.expect(record, "zones")
    left = 0
    for at in range(1, world.fuse.counted, 2):
        world.restore(saved)
        records.remove(VM)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            target.expect(record, "zones")
        world.fuse = Fuse()
        host = observe(world.peer.zfs(), world.peer.driver(), all_pools=True)
        left += f"zones/{VM}" in host.datasets
        others(world.peer)
        assert target.refusals(record, "zones") == []
        target.expect(record, "zones")
        target.cancel(VM)
        assert listed(world.peer, f"zones/{VM}") == []
    assert left > 2


def test_a_failover(world):
    """The replicas are what they were, and the snapshots stay."""
    protect(world)
    hashes = world.hashes()
    others(world.peer)
    assert taker(world).look("db01").problems == []
    assert take(world)
    assert contents(world.peer) == hashes
    assert [world.peer.points(disk["dataset"]) for disk in world.peer.disks(VM)] == [["auto"]] * 2


def test_replicas_that_are_given_up(world):
    world.sync()
    others(world.peer)
    removed = world.receiver().remove(["zones"], [VM], [], False).gone
    assert len(removed) == 2
    assert all(listed(world.peer, name) == [] for name in removed)


def test_only_what_was_read_is_destroyed(world):
    """Another dataset of that name, or one with others below, stays."""
    world.peer.ok("zfs", "create", "-p", "zones/mine/below")
    for name, guid, code in (("zones/mine", 1, "InUse"), ("zones/mine/below", 1, "Changed")):
        with pytest.raises(FlexdiskError) as caught:
            drop_own_copy(world.peer.zfs(), Copies(world.peer), name, guid)
        assert caught.value.code == code
    assert listed(world.peer, "zones/mine") == ["zones/mine", "zones/mine/below"]


S1, S2 = (Point(f"flexdisk-sync-0000002a-{n}", n, n, sent=True) for n in (1, 2))


@pytest.mark.parametrize(
    ("here", "there", "token", "stream"),
    [
        ([S1, S2], [S1, Point("auto", 9, 3)], 0, Increment),
        ([S1, Point("auto", 8, 2), S2], [S1, Point("auto", 9, 3)], 0, Rollback(S1, ("auto",))),
        ([S1, Point("auto", 8, 2), S2], [Point("auto", 9, 0, sent=True), S1], 0, Rollback(S1, ("auto",))),
        ([S1, Point("auto", 8, 2), S2], [S1, Point("auto", 9, 3, written=7)], 0, None),
        ([S1, Point("auto", 8, 2), S2], [S1, Point("auto", 9, 3, pinned=True)], 0, None),
        ([S1, Point("auto", 8, 2), S2], [S1, Point("auto", 9, 3)], 8, GiveUp),
        ([S1], [S1, S2, Point("auto", 9, 3)], 0, Rollback(S1, (S2.name, "auto"))),
    ],
    ids=["another-name", "same-name", "older", "written", "held", "interrupted", "rolled-back"],
)
def test_streams(here, there, token, stream):
    """A snapshot of others on the replica stands in the way by its name, or behind what its disk has lost."""
    here = [point._replace(createtxg=number) for number, point in enumerate(here, 1)]
    to = here[-1] if len(here) > 1 else Point("flexdisk-sync-0000002a-3", 3, 9)
    disk = Original("u", "zones/v/disk0", 1, tuple([*here, to] if to not in here else here))
    replica = Replica("u", "zones/flexdisk/replica/u", 1, tuple(there), token="1-2" if token else "", token_guid=token)
    if stream is None:
        with pytest.raises(FlexdiskError, match="has snapshots that zones/v/disk0 has not, auto: destroy them"):
            next_stream(disk, replica, to)
        return
    result = next_stream(disk, replica, to)
    assert isinstance(result, stream) if isinstance(stream, type) else result == stream


def test_a_replica_whose_only_snapshot_has_the_name_of_a_later_one():
    """The VM has been elsewhere and back, and its sets are numbered from 1 again: the replica has to be made again."""
    base, to = Point("flexdisk-sync-00000003-1", 1, 1, bookmark=True), Point(S1.name, 5, 2)
    disk = Original("u", "zones/v/disk0", 1, (base, to))
    replica = Replica("u", "zones/flexdisk/replica/u", 1, (S1,))
    with pytest.raises(FlexdiskError, match="names later ones of the disk have, so the replica has to be made again"):
        next_stream(disk, replica, to)
