# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of replication, carried out between two simulated nodes while streams are cut and disks change."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from simnode import Node, PoolSpec
from simnode.zfs import stream as simulated_stream

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import (
    copies,
    retention,
    sync,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.streams import (
    Full,
    GiveUp,
    Increment,
    Resume,
    Rollback,
    check_rollbacks,
    next_stream,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import replicas
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.retention import Keep, RetainCounts

MIB = 1 << 20
DISKS = ("d0", "d1", "d2")
ROLE = "flexdisk:replica-of"


class Side:
    """A node with a pool."""

    def __init__(self, seed: int) -> None:
        self.node = Node.create(None, [PoolSpec(name="zones", version="2.1")], seed)
        self.guid = self.node.pools.pools["zones"].guid

    def zfs(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        return self.node.run(["zfs", *arguments], stdin)

    def ok(self, *arguments: str) -> str:
        rc, out, err = self.zfs(*arguments)
        assert rc == 0, (arguments, err)
        return out.rstrip("\n")

    def points(self, name: str) -> tuple[copies.Point, ...]:
        arguments = ["list", "-Hp", "-o", "name,guid,createtxg", "-t", "snapshot,bookmark", "-d", "1"]
        lines = self.ok(*arguments, name).splitlines()
        matches = []
        for line in lines:
            full, guid, txg = line.split("\t")
            mark = "#" in full
            matches.append(copies.Point(full.partition("#" if mark else "@")[2], int(guid), int(txg), mark))
        return tuple(matches)

    def original(self, name: str) -> copies.Original:
        size = self.ok("get", "-Hp", "-o", "value", "volsize", f"zones/{name}")
        return copies.Original(name, f"zones/{name}", int(size), self.points(f"zones/{name}"))

    def replica(self, name: str, source: Side) -> copies.Replica | None:
        """A token that the source cannot resume, because its base is gone, brings nothing."""
        where = f"zones/{name}"
        if self.zfs("list", where)[0]:
            return None
        props = "volsize,written,receive_resume_token"
        size, written, token = self.ok("get", "-Hp", "-o", "value", props, where).split()
        token = "" if token == "-" else token
        resumed = token and source.zfs("send", "-nvPt", token)[0] == 0
        guid = simulated_stream.read_token(token)["toguid"] if resumed else 0
        role = self.ok("get", "-Hp", "-s", "local", "-o", "value", ROLE, where)
        return copies.Replica(
            role, where, int(size), self.points(where), 0 if token else int(written), token=token, token_guid=guid
        )

    def digest(self, name: str) -> str:
        return self.node.run(["guest", "hash", name])[1]


def step(source: Side, target: Side, name: str, to: copies.Point, cut: int = 0) -> bool:
    """Do what comes next for a disk. Whether it has the snapshot, or was only interrupted."""
    planned = next_stream(source.original(name), target.replica(name, source), to)
    where = f"zones/{name}"
    if planned is None:
        return False
    if isinstance(planned, GiveUp):
        target.ok("receive", "-A", where)
        return True
    if isinstance(planned, Rollback):
        target.ok("rollback", "-r", f"{where}@{planned.to.name}")
        return True
    if isinstance(planned, Resume):
        arguments = ["-t", planned.token]
    else:
        flag = "-i" if isinstance(planned, Full) or planned.base.bookmark else "-I"
        base = [flag, planned.base.suffix] if isinstance(planned, Increment) else []
        arguments = [*base, f"{where}@{planned.to.name}"]
    text = source.ok("send", *arguments) + "\n"
    if cut:
        text = simulated_stream.cut(text, cut)
    options = ["-s", "-u", "-o", "readonly=on", "-o", f"{ROLE}={name}"]
    rc, _out, err = target.zfs("receive", *options, where, stdin=text)
    assert cut or rc == 0, err
    return rc == 0 or "is saved" in err


class Sync(RuleBasedStateMachine):
    """A VM with three disks is replicated while it runs. Streams are cut; users take and destroy snapshots."""

    @initialize()
    def begin(self) -> None:
        self.source, self.target = Side(1), Side(2)
        self.pools = (self.source.guid, self.target.guid)
        self.contents: dict[str, dict[str, str]] = {}
        self.serial = 0
        for name in DISKS:
            self.source.ok("create", "-V", "32M", f"zones/{name}")

    def pairs(self) -> list[retention.Pair]:
        return [(self.source.original(name), self.target.replica(name, self.source)) for name in DISKS]

    @rule(disk=st.sampled_from(DISKS), start=st.integers(0, 20), length=st.integers(1, 8))
    def write(self, disk: str, start: int, length: int) -> None:
        self.serial += 1
        arguments = ["guest", "write", f"zones/{disk}", str(start), str(length), f"w{self.serial}"]
        assert self.source.node.run(arguments)[0] == 0

    @rule(disk=st.sampled_from(DISKS))
    def grow(self, disk: str) -> None:
        size = int(self.source.ok("get", "-Hp", "-o", "value", "volsize", f"zones/{disk}"))
        if size < 256 * MIB:
            self.source.ok("set", f"volsize={size * 2}", "refreservation=auto", f"zones/{disk}")

    @rule(disk=st.sampled_from(DISKS))
    def users_snapshot(self, disk: str) -> None:
        self.serial += 1
        self.source.ok("snapshot", f"zones/{disk}@user{self.serial}")

    @rule()
    def new_set(self) -> None:
        everything = [copy for pair in self.pairs() for copy in pair if copy]
        name = replicas.sync_name(self.target.guid, copies.next_number(everything, self.target.guid))
        self.source.ok("snapshot", *(f"zones/{disk}@{name}" for disk in DISKS))
        self.contents[name] = {disk: self.source.digest(f"zones/{disk}") for disk in DISKS}

    @rule(disk=st.sampled_from(DISKS), cut=st.sampled_from([0, 0, 0, 2 * MIB, 4 * MIB]))
    def send(self, disk: str, cut: int) -> None:
        newest = self.newest()
        if newest:
            point = next(point for point in self.source.original(disk).snapshots if point.name == newest)
            step(self.source, self.target, disk, point, cut)

    @rule()
    def release(self) -> None:
        """Other sets go. One that a stream still brings goes, too: its token is then given up."""
        pairs = self.pairs()
        base = retention.complete(pairs, self.pools)
        if not base:
            return
        for disk, replica in pairs:
            assert replica
            for point in retention.obsolete_there(disk, replica, base, self.pools):
                self.target.ok("destroy", f"{replica.dataset}@{point.name}")
            for point in retention.obsolete_here(disk, base, *self.pools):
                self.source.ok("destroy", f"{disk.dataset}@{point.name}")

    @rule()
    def prune(self) -> None:
        """Another program destroys the newest set on the source, once there is a base: that one is held."""
        newest, base = self.newest(), retention.complete(self.pairs(), self.pools)
        if base and newest != base:
            for disk in DISKS:
                self.source.ok("destroy", f"zones/{disk}@{newest}")

    def newest(self) -> str:
        names = [point.name for point in self.source.original(DISKS[0]).snapshots]
        return next((name for name in reversed(names) if name in self.contents), "")

    @invariant()
    def there_is_always_a_way_on(self) -> None:
        """No replica is ever refused, and once all had a set, all have one from then on."""
        pairs = self.pairs()
        newest = self.newest()
        for disk, replica in pairs:
            if newest:
                next_stream(disk, replica, next(one for one in disk.snapshots if one.name == newest))
        base = retention.complete(pairs, self.pools)
        assert base or not getattr(self, "had", "")
        self.had = base

    def teardown(self) -> None:
        """An undisturbed run brings everything; what arrived is what was there when the set was taken."""
        if not hasattr(self, "source"):
            return
        self.new_set()
        newest = self.newest()
        for disk in DISKS:
            to = next(point for point in self.source.original(disk).snapshots if point.name == newest)
            for _attempt in range(9):
                if not step(self.source, self.target, disk, to):
                    break
            assert self.target.digest(f"zones/{disk}") == self.contents[newest][disk]
        assert retention.complete(self.pairs(), self.pools) == newest
        self.release()
        for side in (self.source, self.target):
            for disk in DISKS:
                synced = [one.name for one in side.points(f"zones/{disk}") if one.name.startswith(replicas.SYNC)]
                assert synced == [newest]


Sync.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_sync = Sync.TestCase


POINTS = tuple(copies.Point(name, number, number, written=4096) for number, name in enumerate(("a", "b", "c"), 1))


def original(points: str = "abc", volsize: int = 64) -> copies.Original:
    return copies.Original("uuid", "zones/vm/disk1", volsize, tuple(one for one in POINTS if one.name in points))


def replica(
    points: str = "ab", uuid: str = "uuid", written: int = 0, token: str = "", token_guid: int = 0
) -> copies.Replica:
    """Its snapshots have other names."""
    result = (one._replace(name=f"{one.name}-there", createtxg=900 + one.guid) for one in POINTS if one.name in points)
    where = "zones/flexdisk/replica/uuid"
    return copies.Replica(uuid, where, 64, tuple(result), written, token=token, token_guid=token_guid)


def test_a_base_is_found_by_its_guid():
    assert next_stream(original(), replica("a"), POINTS[2]) == Increment(POINTS[0], POINTS[2])
    assert next_stream(original(), replica("ab"), POINTS[2]) == Increment(POINTS[1], POINTS[2])
    assert next_stream(original(), replica("abc"), POINTS[2]) is None
    assert next_stream(original(), None, POINTS[2]) == Full(POINTS[0])


def test_a_snapshot_comes_before_a_bookmark_of_the_same_time():
    marks = tuple(one._replace(bookmark=True) for one in POINTS)
    both = copies.Original("uuid", "zones/vm/disk1", 64, (*marks, *POINTS[1:]))
    assert next_stream(both, replica("b"), POINTS[2]) == Increment(POINTS[1], POINTS[2])
    assert next_stream(both, replica("a"), POINTS[2]) == Increment(marks[0], POINTS[1])


@pytest.mark.parametrize(
    ("there", "fits"),
    [
        (replica("abc"), True),
        (replica("ab"), True),
        (replica("a"), True),
        (replica("abc", written=4096), False),
        (replica("a", written=512), False),
        (replica("bc"), False),
    ],
)
def test_a_replica_goes_back_only_as_it_was_planned(there, fits):
    """What was written to it since its last snapshot would go with the way back, and so would other snapshots."""
    back = Rollback(POINTS[0], ("b-there", "c-there"))
    if fits:
        check_rollbacks(there, [Increment(POINTS[0], POINTS[1]), back])
        return
    with pytest.raises(FlexdiskError, match="has changed since the sync was planned") as refused:
        check_rollbacks(there, [Increment(POINTS[0], POINTS[1]), back])
    assert refused.value.code == "ReplicaChanged"


def test_tokens():
    assert next_stream(original(), replica("a", token="1-t", token_guid=2), POINTS[2]) == Resume("1-t", POINTS[1])
    assert next_stream(original("ac"), replica("a", token="1-t", token_guid=2), POINTS[2]) == GiveUp("1-t")


@pytest.mark.parametrize(
    ("disk", "there", "code", "text"),
    [
        (original(), replica(uuid=""), "InUse", "does not say that it is a replica; nothing is received there"),
        (original(), replica(uuid="other"), "InUse", "says that it is a replica of other"),
        (original(), replica(uuid="other", token="1-t", token_guid=2), "InUse", "replica of other"),
        (original(), replica(written=4096), "ReplicaChanged", "4096 bytes"),
        (original(volsize=32), replica(), "InvalidArgument", "32 bytes, its replica zones/flexdisk/replica/uuid has"),
        (original("ac"), replica("ab"), "ReplicaChanged", "has snapshots that zones/vm/disk1 has not, b-there"),
        (original("bc"), replica("a"), "NoCommonSnapshot", "It has @a-there; the disk has @b, @c"),
    ],
)  # fmt: skip
def test_refusals(disk, there, code, text):
    with pytest.raises(FlexdiskError) as caught:
        next_stream(disk, there, POINTS[2])
    assert caught.value.code == code
    assert text in caught.value.message


def source_and_target() -> tuple[Side, Side]:
    """A disk with a replica that has its first set."""
    source, target = Side(1), Side(2)
    source.ok("create", "-V", "32M", "zones/d0")
    assert step(source, target, "d0", taken(source, target, 1))
    return source, target


def taken(source: Side, target: Side, number: int) -> copies.Point:
    """The next snapshot of a disk that was written to."""
    assert source.node.run(["guest", "write", "zones/d0", "2", "9", f"w{number}"])[0] == 0
    name = replicas.sync_name(target.guid, number)
    source.ok("snapshot", f"zones/d0@{name}")
    return source.original("d0").snapshots[-1]


def planned(source: Side, target: Side, to: copies.Point) -> object:
    return next_stream(source.original("d0"), target.replica("d0", source), to)


def test_the_rest_of_a_stream_comes_before_a_newer_set():
    source, target = source_and_target()
    second = taken(source, target, 2)
    step(source, target, "d0", second, 4 * MIB)
    third = taken(source, target, 3)
    plan = planned(source, target, third)
    assert isinstance(plan, Resume)
    assert plan.to == second
    assert step(source, target, "d0", third)
    assert planned(source, target, third) == Increment(second, third)


def test_what_arrived_of_a_snapshot_that_has_gone_is_given_up():
    source, target = source_and_target()
    second = taken(source, target, 2)
    step(source, target, "d0", second, 4 * MIB)
    source.ok("destroy", f"zones/d0@{second.name}")
    third = taken(source, target, 3)
    assert isinstance(planned(source, target, third), GiveUp)
    assert step(source, target, "d0", third)
    assert isinstance(planned(source, target, third), Increment)


def test_a_stream_whose_base_has_gone_is_given_up():
    """What it brings is still there: somebody's snapshot in the middle of what was sent."""
    source, target = source_and_target()
    base = next(point for point in source.original("d0").snapshots)
    source.node.run(["guest", "write", "zones/d0", "0", "2", "w"])
    source.ok("snapshot", "zones/d0@mine")
    second = taken(source, target, 2)
    step(source, target, "d0", second, 2 * MIB)
    source.ok("destroy", f"zones/d0@{base.name}")
    assert isinstance(planned(source, target, second), GiveUp)


def test_a_replica_goes_back_if_its_disk_has_lost_the_snapshot():
    source, target = source_and_target()
    second = taken(source, target, 2)
    step(source, target, "d0", second)
    source.ok("destroy", f"zones/d0@{second.name}")
    third = taken(source, target, 3)
    plan = planned(source, target, third)
    assert isinstance(plan, Rollback)
    assert plan.lost == (second.name,)
    assert step(source, target, "d0", third)
    assert step(source, target, "d0", third)
    assert target.digest("zones/d0") == source.digest("zones/d0")


def test_names():
    peer = 0x1234567890ABCDEF
    assert replicas.sync_name(peer, 7) == "flexdisk-sync-90abcdef-7"
    assert replicas.sync_number("flexdisk-sync-90abcdef-7", peer) == 7
    assert replicas.sync_number("flexdisk-sync-90abcdee-7", peer) is None
    assert replicas.sync_number("flexdisk-sync-90abcdef-7x", peer) is None
    assert copies.next_number([], peer) == 1


def test_the_first_sync_of_a_file():
    """It is a file system, and so is what its first stream makes."""
    points = tuple(copies.Point(name, number, number, written=MIB) for number, name in enumerate(("one", "two"), 1))
    disk = copies.Original("d0", "zones/d0", 64 * MIB, points, kind="filesystem")
    planned, problems = sync.plan([(disk, None)], 1, 2)
    assert not problems
    assert [type(stream) for stream in planned.disks[0].streams] == [Full, Increment]


@pytest.mark.parametrize(("clocks", "gone"), [((7200, 3700), ["1"]), ((3700, 7200), [])])
def test_what_goes_on_the_peer_is_planned_by_its_clock(clocks, gone):
    """The new set is in the hour of the older one there, or in the next one, whatever the home's clock says."""
    name = replicas.sync_name(2, 1)
    here = copies.Point(name, 7, 1, written=MIB, time=clocks[0] - 60)
    disk = copies.Original("d0", "zones/d0", 64 * MIB, (here,), written=MIB)
    there = copies.Replica("d0", "zones/r0", 64 * MIB, (here._replace(sent=True, time=3600),), home=1)
    keep = Keep(RetainCounts(hourly=2))
    planned, problems = sync.plan([(disk, there)], 1, 2, keep=keep, now=sync.Clocks(*clocks))
    assert (problems, planned.new) == ([], True)
    assert [point.name.rpartition("-")[2] for point in planned.disks[0].obsolete_there] == gone
