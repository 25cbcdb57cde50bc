# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The old home of a VM that was taken over is there again: what only it has is kept, until the user gives it up."""

from __future__ import annotations

import contextlib
import itertools
import json
import re

import pytest
from simnode.vmadm.admin import COMMANDS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_return
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_departure import (
    leftovers_of,
    remove_leftovers,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.streams import Rollback
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.moves import read_sightings
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import sync_name
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, said_by, start, take
from .test_move import EVERY, VMADM, findings, gone, hosts, look, move, startable, swap
from .test_move import pair as on_both
from .test_start_door import boot
from .world import REPLICAS, VM, Fuse, Killed

world = on_both
APART = "zones/flexdisk/diverged"


@pytest.fixture
def old(world):
    """The first disk was written to after the last sync, the other host has the VM, and the old home is there again."""
    protect(world)
    world.write(0, 3, 9)
    world.home.power_off(VM)
    world.uuids, world.left = list(world.disks()), world.hashes()
    take(world)
    return world


def back(world):
    return FailoverReturn(world.home.zfs(), world.home.driver(), world.home)


def claims(world):
    return read_claims({"hv02": said_by(world.peer, "db01")})


def hashes_in(world, place):
    names = [f"{place}/{uuid}" for uuid in world.uuids]
    there = world.home.ok("zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", "zones/flexdisk").split()
    return [world.home.ok("guest", "hash", name) if name in there else "" for name in names]


def ended(world):
    """The VM has ended on the old home. The disk that was written to is kept as it was, the other is a replica."""
    assert not startable(world.home)
    diverged, replica = hashes_in(world, APART), hashes_in(world, REPLICAS)
    assert (diverged[0], replica[0]) == (world.left[0], "")
    if world.foreign and diverged[1]:  # somebody has taken a snapshot of it before it had become a replica
        assert (diverged[1], replica[1]) == (world.left[1], "")
        assert f"auto-{world.foreign.taken}" in world.home.points(f"{APART}/{world.uuids[1]}")
    else:
        assert (diverged[1], replica[1]) == ("", world.left[1])
    host = observe(world.home.zfs(), world.home.driver(), all_pools=True)
    assert (host.vms, host.detached, host.moves[VM].phase, host.moves[VM].host) == ((), (), "moved", "hv02")


def test_the_vm_ends_on_its_old_home(old):
    ending = back(old).look(EndRequest("db01", claims(old)))
    assert [problem.code for problem in ending.problems] == []
    root, data = ending.messages
    assert f"disk root is kept as {APART}/{old.uuids[0]}, with 3" in root
    assert "disk data becomes a replica of that on hv02" in data
    back(old).end(EndRequest("db01", claims(old)))
    ended(old)
    assert back(old).look(EndRequest("db01", claims(old))).move is None
    back(old).end(EndRequest("db01", claims(old)))
    ended(old)
    assert [kind for kind in findings(old) if kind != "replica_stale"] == []


def resynced(world):
    """A sync from the new home. Each kind of its first streams."""
    swap(world)
    (planned,) = world.planned().syncs
    streams = [
        [one for one in disk.streams if not (world.foreign and isinstance(one, Rollback))] for disk in planned.disks
    ]
    kinds = [type(some[0]).__name__ for some in streams if some]
    assert world.sync()[1]
    assert world.hashes() == world.hashes_there()
    return kinds


def test_what_is_kept_costs_a_whole_stream(old):
    """Then it can be given up at any time."""
    back(old).end(EndRequest("db01", claims(old)))
    assert resynced(old) == ["Full", "Increment"]
    swap(old)
    for check, text in ((True, 1), (False, 1), (True, 0), (False, 0)):
        vm, messages = back(old).give_up("db01", check)
        assert vm == (VM if text else "")
        assert len(messages) == text
        assert not text or re.fullmatch(
            f"{APART}/{old.uuids[0]} is destroyed with 3.* MiB that hv02 lacks", messages[0]
        )
    assert hashes_in(old, APART) == ["", ""]
    assert resynced(old) == []


def test_what_is_given_up_first_costs_an_increment(old):
    back(old).end(EndRequest("db01", claims(old)))
    for check, text in ((True, 1), (False, 1), (True, 0), (False, 0)):
        vm, messages = back(old).give_up("db01", check)
        assert vm == (VM if text else "")
        assert len(messages) == text
        assert not text or "and becomes a replica" in messages[0]
    assert resynced(old) == ["Increment", "Increment"]
    assert move(old)
    assert startable(old.peer)
    assert findings(old) == []


def given_up(world):
    back(world).end(EndRequest("db01", claims(world)))
    back(world).give_up("db01", False)


def test_killed_anywhere(old):
    """The same commands go on, and what was not given up is there."""
    saved, answers = old.saved(), claims(old)
    old.fuse = Fuse()
    back(old).end(EndRequest("db01", answers))
    ends = old.fuse.counted
    given_up(old)
    points = list(itertools.product(range(1, ends + 1), (False, True)))[::EVERY]
    for at, after in points:
        old.restore(saved)
        old.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            back(old).end(EndRequest("db01", answers))
        old.fuse = Fuse()
        back(old).end(EndRequest("db01", answers))
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
    answers, saved = claims(old), old.saved()
    old.fuse = Fuse()
    back(old).end(EndRequest("db01", answers))
    count, left = old.fuse.counted, 0
    for at in range(1, count):
        old.restore(saved)
        old.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            back(old).end(EndRequest("db01", answers))
        old.fuse = Fuse()
        host = observe(old.home.zfs(), old.home.driver(), all_pools=True)
        if host.intents and not host.vms:
            left += 1
            back(old).end(EndRequest("db01", answers))
            assert not observe(old.home.zfs(), old.home.driver(), all_pools=True).intents
            ended(old)
    assert left


@VMADM
@pytest.mark.parametrize("point", ["delete halt", "delete uninstall", "delete volumes", "delete zonecfg"])
@pytest.mark.parametrize("kind", ["kill", "fail"])
def test_what_a_vmadm_that_ends_early_leaves_of_the_vm_goes(old, point, kind):
    """The same command ends it, and the VM can come back."""
    assert COMMANDS["vm-fault"](old.home.node, [point, kind])[0] == 0
    answers = claims(old)
    with contextlib.suppress(FlexdiskError):
        back(old).end(EndRequest("db01", answers))
    if back(old).look(EndRequest("db01", answers)).move is not None:
        back(old).end(EndRequest("db01", answers))
    ended(old)
    assert old.home.ok("vmadm", "lookup") == ""
    assert old.home.node.run(["zfs", "list", f"zones/{VM}"])[0] == 1
    assert back(old).look(EndRequest("db01", answers)).move is None
    back(old).give_up("db01", False)
    swap(old)
    assert move(old)
    assert startable(old.peer)


@VMADM
@pytest.mark.parametrize("name", [f"zones/{VM}", f"zones/{VM}/disk0"])
def test_what_has_come_in_the_place_of_a_vm_since_the_host_was_read_is_not_deleted_with_it(old, name):
    """vmadm was killed after it had destroyed the VM's datasets. It would destroy whatever it finds in their place."""
    assert COMMANDS["vm-fault"](old.home.node, ["delete volumes", "kill"])[0] == 0
    with contextlib.suppress(FlexdiskError):
        back(old).end(EndRequest("db01", claims(old)))
    storage, hypervisor = old.home.zfs(), old.home.driver()
    host = observe(storage, hypervisor, all_pools=True)
    assert leftovers_of(host, VM)[0], "vmadm still knows the VM"
    old.home.ok("zfs", "create", "-p", f"{name}/precious")
    with pytest.raises(FlexdiskError, match="now exists; nothing was destroyed") as caught:
        remove_leftovers(storage, hypervisor, host, VM)
    assert caught.value.code == "Changed"
    assert old.home.node.run(["zfs", "list", f"{name}/precious"])[0] == 0


def refused(world, code, text):
    before = world.home.stored()
    with pytest.raises(FlexdiskError, match=text) as caught:
        back(world).end(EndRequest("db01", claims(world)))
    assert caught.value.code == code
    assert world.home.stored() == before


def test_refusals(old):
    old.home.power_on(VM)
    refused(old, "VmNotStopped", "it is running here, and hv02 has taken it over. Stop it")
    old.home.power_off(VM)
    old.peer.ok("zfs", "set", "flexdisk:failover=on:0", f"zones/{VM}")
    refused(old, "Ambiguous", "hv02 has it, too, and does not say that it has taken it over")
    old.peer.ok("zfs", "inherit", "flexdisk:failover", f"zones/{VM}")
    refused(old, "Ambiguous", "hv02 has it, too, and does not say that it has taken it over")


def test_a_new_home_that_has_given_its_failover_up(old):
    """It cannot say that it has taken the VM over. The user says so."""
    old.peer.ok("zfs", "set", "flexdisk:failover=none:1", f"zones/{VM}")
    refused(old, "Ambiguous", "for it has no failover there. If the VM of hv02 is the right one, flexdisk_old_host")
    back(old).end(EndRequest("db01", claims(old), is_old_home=True))
    ended(old)


def test_nobody_ends_a_vm_that_no_other_host_has(old):
    before = old.home.stored()
    with pytest.raises(FlexdiskError, match="no other host has it, or only an older copy of it") as caught:
        back(old).end(EndRequest("db01", read_claims({"hv02": []}), is_old_home=True))
    assert caught.value.code == "Ambiguous"
    assert back(old).look(EndRequest("db01", read_claims({"hv02": []}))).move is None
    assert old.home.stored() == before


def test_two_hosts_have_taken_the_vm_over_equally_often(world, monkeypatch):
    """Both from the same home, one after the other. The user says which of them is old; the rest is as ever."""
    world.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    all_ = {"hv01": world.home, "hv02": world.peer, "hv03": world.host(3)}
    names = {id(host): name for name, host in all_.items()}
    world.acting = lambda host: monkeypatch.setattr(records, "_FOLDER", str(world.folder / names[id(host)]))
    for name in ("hv03", "hv02"):
        world.peer, world.peer_name = all_[name], name
        world.acting(world.peer)
        protect(world)
    for name in ("hv02", "hv03"):
        boot(all_["hv02" if name == "hv03" else "hv01"])
        world.peer, world.peer_name = all_[name], name
        world.acting(world.peer)
        take(world)

    def said(name):
        return read_claims({one: said_by(host, "db01") for one, host in all_.items() if one != name})

    world.home = all_["hv01"]
    (problem,) = back(world).look(EndRequest("db01", said("hv01"))).problems
    assert (
        "hv02 and hv03 has it. Find out which one is old, and end it there first: flexdisk_old_host" in problem.message
    )
    world.home = all_["hv02"]
    (message,) = start(world, {"hv03": said_by(all_["hv03"])}).failures
    assert "end it on one of the hosts with flexdisk_old_host and flexdisk_failover_state=returned" in message
    (problem,) = back(world).look(EndRequest("db01", said("hv02"))).problems
    assert "for both were taken over equally often. If the VM of hv03 is the right one" in problem.message
    world.home = all_["hv03"]
    assert [one.code for one in back(world).look(EndRequest("db01", said("hv03"), is_old_home=True)).problems] == [
        "VmNotStopped"
    ]
    for name, old_ in (("hv02", True), ("hv01", False)):
        world.home = all_[name]
        assert [one.code for one in back(world).look(EndRequest("db01", said(name), is_old_home=old_)).problems] == []
        back(world).end(EndRequest("db01", said(name), is_old_home=old_))
        assert not startable(world.home)
    assert startable(all_["hv03"])


def test_the_new_home_is_left_alone(old):
    """The same command on all hosts changes only the old one."""
    swap(old)
    answers = read_claims({"hv01": said_by(old.peer, "db01")})
    assert back(old).look(EndRequest("db01", answers)).move is None
    back(old).end(EndRequest("db01", answers))
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


def hourly(world):
    """Somebody's snapshots of the disks on the old home: since they were taken, nothing was written."""
    world.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    world.home.ok("zfs", "snapshot", *(f"{name}@hourly" for name in world.disks().values()))


def names_in(world, place):
    points = world.home.ok("zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-r", place).split()
    return sorted(name.rpartition("@")[2] for name in points)


def test_snapshots_of_users_are_kept(old):
    """Both disks have one that the new home lacks; nothing was written to the second. Until its snapshot is given up by
    word, that disk is no replica.
    """
    hourly(old)
    root, data = back(old).look(EndRequest("db01", claims(old))).messages
    assert f"disk root is kept as {APART}/{old.uuids[0]}, with 3" in root
    assert "and its snapshot @hourly" in root
    assert data == f"disk data is kept as {APART}/{old.uuids[1]}, with its snapshot @hourly that hv02 lacks"
    back(old).end(EndRequest("db01", claims(old)))
    assert hashes_in(old, APART) == old.left
    assert names_in(old, APART).count("hourly") == 2
    assert back(old).look(EndRequest("db01", claims(old))).move is None
    for check, text in ((True, 2), (False, 2), (True, 0)):
        _vm, messages = back(old).give_up("db01", check)
        assert len(messages) == text
    assert resynced(old) == ["Increment", "Increment"]


def test_giving_up_names_the_snapshots(old):
    """Also of a disk that is destroyed because there is a replica already."""
    hourly(old)
    back(old).end(EndRequest("db01", claims(old)))
    root, data = sorted(back(old).give_up("db01", True)[1], key=lambda text: old.uuids[1] in text)
    assert re.search(r"/[-0-9a-f]+ loses 3.* MiB and its snapshot @hourly that hv02 lacks, and becomes a replica", root)
    assert data.endswith(f"{old.uuids[1]} loses its snapshot @hourly that hv02 lacks, and becomes a replica")
    assert resynced(old) == ["Full", "Full"]
    swap(old)
    old.home.ok("zfs", "destroy", f"zones/flexdisk/move/{VM}")  # the tombstone was given up
    assert back(old).give_up("db01", True) == ("", [])
    root, data = sorted(back(old).give_up(VM, True)[1], key=lambda message: old.uuids[1] in message)
    assert re.search(r"/[-0-9a-f]+ is destroyed with 3.* MiB and its snapshot @hourly that hv02 lacks", root)
    assert data.endswith("is destroyed with its snapshot @hourly that hv02 lacks")


def test_a_snapshot_that_comes_in_between_is_kept(old):
    """Somebody takes one of each disk at any moment of the end. No disk is rolled back over it, and the same command
    ends the rest.
    """
    old.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    answers, saved = claims(old), old.saved()
    old.fuse = Fuse()
    back(old).end(EndRequest("db01", answers))
    for at in range(1, old.fuse.counted + 1, EVERY // 3 or 1):
        old.restore(saved)
        old.fuse, taken_of = Fuse(), []

        def somebody(at=at, taken_of=taken_of):  # pylint: disable=dangerous-default-value
            if old.fuse.counted == at and not taken_of:
                volumes = old.home.ok("zfs", "list", "-Ho", "name", "-t", "volume").split()
                taken_of.extend(name for name in volumes if name.rpartition("/")[2] in old.uuids or VM in name)
                old.home.ok("zfs", "snapshot", *(f"{name}@hourly" for name in taken_of))

        old.watch = somebody
        with contextlib.suppress(FlexdiskError):
            back(old).end(EndRequest("db01", answers))
        old.watch = lambda: None
        back(old).end(EndRequest("db01", answers))
        host = observe(old.home.zfs(), old.home.driver(), all_pools=True)
        assert (host.vms, host.detached, host.moves[VM].phase) == ((), (), "moved")
        assert len(taken_of) == names_in(old, "zones").count("hourly") == 2, at


def snapshot_before_rollback(monkeypatch):
    """Somebody takes a snapshot of a disk right before it is rolled back for the first time. Its name, afterwards."""
    taken, roll_back = [], Copies.roll_back

    def overtaken(copies, snapshot):
        if not taken:
            taken.append(snapshot.partition("@")[0] + "@hourly")
            copies._run("zfs", "snapshot", taken[0])
        roll_back(copies, snapshot)

    monkeypatch.setattr(Copies, "roll_back", overtaken)
    return taken


def test_a_snapshot_right_before_a_rollback_fails_once(old, monkeypatch):
    """The failure says what to do. The second run keeps the disk as it is, with the snapshot."""
    old.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    answers = claims(old)
    # Of a sync that was killed before it has sent anything.
    old.home.ok("zfs", "snapshot", f"zones/{VM}/disk1@{sync_name(1, 99)}")
    taken = snapshot_before_rollback(monkeypatch)
    with pytest.raises(FlexdiskError, match=r"its data is all there; run the same command again") as failed:
        back(old).end(EndRequest("db01", answers))
    assert failed.value.code == "Changed"
    assert taken == [f"{APART}/{old.uuids[1]}@hourly"]
    back(old).end(EndRequest("db01", answers))
    assert hashes_in(old, APART) == old.left
    assert "hourly" in names_in(old, APART)
    assert back(old).look(EndRequest("db01", answers)).move is None


def test_a_snapshot_right_before_what_is_given_up_goes(old, monkeypatch):
    """It is given up by word: the second run destroys the snapshot, too."""
    back(old).end(EndRequest("db01", claims(old)))
    taken = snapshot_before_rollback(monkeypatch)
    contents = hashes_in(old, APART)
    with pytest.raises(FlexdiskError, match="run the same command again"):
        back(old).give_up("db01", False)
    assert taken == [f"{APART}/{old.uuids[0]}@hourly"]
    assert hashes_in(old, APART) == contents
    (messages,) = back(old).give_up("db01", False)[1]
    assert "its snapshot @hourly" in messages
    assert (hashes_in(old, APART), "hourly" in names_in(old, REPLICAS)) == (["", ""], False)
    assert resynced(old) == ["Increment", "Increment"]


def test_a_snapshot_right_behind_the_reading_keeps_its_disk(old, monkeypatch):
    back(old).end(EndRequest("db01", claims(old)))
    disk, read = f"{APART}/{old.uuids[0]}", failover_return.observe

    def then_taken(*arguments, **more):
        host = read(*arguments, **more)
        monkeypatch.setattr(failover_return, "observe", read)
        old.home.ok("zfs", "snapshot", f"{disk}@hourly")
        return host

    monkeypatch.setattr(failover_return, "observe", then_taken)
    with pytest.raises(FlexdiskError, match="has got a snapshot since it was read"):
        back(old).give_up("db01", False)
    assert f"{disk}@hourly" in old.home.ok("zfs", "list", "-Ho", "name", "-t", "snapshot")
    assert back(old).give_up("db01", False)[1]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("whole", [False, True])
def test_nothing_is_given_up_that_others_use(old, check, whole):
    """Holds and clones of others are found before anything goes, in check mode too."""
    back(old).end(EndRequest("db01", claims(old)))
    if whole:
        resynced(old)
        swap(old)
    disk = f"{APART}/{old.uuids[0]}"
    for name in ("before", "mine"):
        old.home.ok("zfs", "snapshot", f"{disk}@{name}")
    old.home.ok("zfs", "clone", f"{disk}@before", "zones/look")
    old.home.ok("zfs", "hold", "me", f"{disk}@mine")
    before = old.home.ok("zfs", "list", "-Ho", "name", "-t", "all")
    with pytest.raises(FlexdiskError) as refused:
        back(old).give_up("db01", check)
    assert f"{disk}@before has the clone zones/look" in refused.value.message
    assert f"{disk}@mine is held by others (zfs holds {disk}@mine)" in refused.value.message
    assert old.home.ok("zfs", "list", "-Ho", "name", "-t", "all") == before
    old.home.ok("zfs", "release", "me", f"{disk}@mine")
    old.home.ok("zfs", "destroy", "zones/look")
    assert back(old).give_up("db01", check)[1]


# -- after a move that died


def dead_move(world, monkeypatch, point):
    """A move to the other host dies when some of the disks are detached, with its host; and the other one takes over.
    The records of each host lie on their own.
    """
    first = world.home
    folders = {True: str(world.folder / "first"), False: str(world.folder / "second")}
    world.acting = lambda host: monkeypatch.setattr(records, "_FOLDER", folders[host is first])
    world.acting(world.peer)
    protect(world)
    world.uuids, seen = list(world.disks()), look(world)
    target = hosts(world)[1]
    target.expect(read_record(json.loads(json.dumps(record_as_result(seen["record"])))), "zones")
    assert world.sync()[1]
    world.acting(world.peer)
    stored = {kind: records.load(VM, kind) for kind in (records.MOVES, records.FAILOVER)}

    def watch():
        there = first.ok("zfs", "list", "-Ho", "name", "-t", "volume").split()
        detached = [uuid for uuid in world.uuids if f"zones/flexdisk/{uuid}" in there]
        if len(detached) == point[0] and bool(world.home.power(VM)) is point[1]:
            raise Killed

    world.watch = watch
    with pytest.raises(Killed):
        gone(world, seen)
    world.watch = lambda: None
    boot(world.home)
    world.acting(world.peer)
    for kind, record in stored.items():
        records.save(VM, record, kind)
    take(world)


@pytest.mark.parametrize("point", [(1, True), (2, True), (2, False), (1, False)])
def test_disks_that_a_dead_move_has_detached_become_replicas(world, monkeypatch, point):
    """Of a VM that is still there without some of them, or without any, or has gone; or one is a replica already."""
    dead_move(world, monkeypatch, point)
    assert not start(world, {"hv02": said_by(world.peer)}).started
    seen = {"hv02": {"vm": VM, "move": None}}
    if not point[1]:
        with pytest.raises(FlexdiskError, match="its disks here have not become replicas yet"):
            hosts(world)[0].forget("db01", read_sightings(seen))
        (problem,) = back(world).look(EndRequest("db01", read_claims({"hv02": []}))).problems
        assert problem.code == "InUse"
        assert "the playbook move_vm with flexdisk_target=hv02 goes on" in problem.message
    saved, answers = world.saved(), claims(world)
    arguments = [
        one
        for one in back(world).look(EndRequest("db01", answers)).messages
        if "becomes a replica of that on hv02" in one
    ]
    assert len(arguments) == (2 if point[0] == 2 or point[1] else 1)
    world.fuse = Fuse()
    back(world).end(EndRequest("db01", answers))
    count = world.fuse.counted
    for at in (0, *range(2, count + 1, 9)):
        world.restore(saved)
        world.fuse = Fuse(at, True) if at else Fuse()
        with contextlib.suppress(Killed):
            back(world).end(EndRequest("db01", answers))
        world.fuse = Fuse()
        back(world).end(EndRequest("db01", answers))
        host = observe(world.home.zfs(), world.home.driver(), all_pools=True)
        assert (host.vms, host.detached, host.moves[VM].phase, host.moves[VM].host) == ((), (), "moved", "hv02")
        assert back(world).look(EndRequest("db01", answers)).move is None
        assert "" not in hashes_in(world, REPLICAS)
    swap(world)
    assert world.sync()[1]
    assert world.hashes() == world.hashes_there()
    assert move(world)
    assert startable(world.peer)


def test_what_a_dead_move_has_detached_is_compared_with_the_new_home(world, monkeypatch):
    """It is kept if the new home lacks something of it."""
    dead_move(world, monkeypatch, (2, False))
    (first, *_rest) = world.uuids
    world.home.ok("zfs", "snapshot", f"zones/flexdisk/{first}@hourly")
    back(world).end(EndRequest("db01", claims(world)))
    assert [bool(one) for one in hashes_in(world, APART)] == [True, False]
    assert [bool(one) for one in hashes_in(world, REPLICAS)] == [False, True]
    assert len(back(world).give_up("db01", False)[1]) == 1
    assert "" not in hashes_in(world, REPLICAS)


def test_no_mark_is_left_on_a_replica(old):
    """Killed at every command, the same task ends: what has become a replica does not say that it lies apart."""
    back(old).end(EndRequest("db01", claims(old)))
    saved = old.saved()
    for at in itertools.count(1):
        old.restore(saved)
        old.fuse = Fuse(at, bool(at % 2))
        try:
            back(old).give_up("db01", False)
            break
        except Killed:
            old.fuse = Fuse()
        back(old).give_up("db01", False)
        back(old).end(EndRequest("db01", claims(old)))
        marks = old.home.ok("zfs", "get", "-rHo", "name", "-s", "local", "flexdisk:replica.diverged", "zones/flexdisk")
        assert marks == "", at
        assert old.home.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", APART) == "", at
        assert back(old).look(EndRequest("db01", claims(old))).messages == []
    old.fuse = Fuse()
    assert at > 5


def test_given_up_beside_the_disk_itself(old):
    """The VM is here again. What was kept of it becomes no replica of a disk that this host has, and goes."""
    back(old).end(EndRequest("db01", claims(old)))
    swap(old)
    assert old.sync()[1]
    assert move(old)
    swap(old)
    (message,) = back(old).give_up(VM, True)[1]
    assert "is destroyed" in message
    back(old).give_up(VM, False)
    assert old.home.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", APART) == ""
    assert move(old)


def test_what_an_earlier_failover_has_left_is_not_in_the_way(old):
    """The VM was here again, and was taken over once more. Nothing changes until somebody has looked at it."""
    back(old).end(EndRequest("db01", claims(old)))
    swap(old)
    assert old.sync()[1]
    assert move(old)
    swap(old)
    protect(old)
    old.write(0, 3, 30)
    second = old.hashes()
    old.home.power_off(VM)
    take(old)
    before = old.home.stored()
    (problem,) = back(old).look(EndRequest("db01", claims(old))).problems
    assert problem.code == "InUse"
    assert f"{APART}/{old.uuids[0]} is there already" in problem.message
    assert "flexdisk_failover_state=given_up" in problem.message
    with pytest.raises(FlexdiskError, match="is there already"):
        back(old).end(EndRequest("db01", claims(old)))
    assert old.home.stored() == before
    back(old).give_up(VM, False)
    back(old).end(EndRequest("db01", claims(old)))
    assert old.home.ok("guest", "hash", f"{APART}/{old.uuids[0]}") == second[0]
