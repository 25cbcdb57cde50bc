# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Older sets stay on both sides as the policy says: whole ones, through killed runs and clocks that were set back."""

from __future__ import annotations

import json
import time

import pytest
from simnode.zfs import extents

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import (
    PREFIX,
    render_time,
    seconds_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import (
    KEEP,
    SYNCED,
    as_result,
    is_synced,
)

from .controller import Controller
from .world import REPLICAS, VM, Fuse, Killed, World

HOUR, DAY = 3600, 86400
START = 1767225600
KEPT = {"hourly": 3, "daily": 3}


class Timed(World):
    """Two nodes, and one clock. sets: the contents of the disks, by the name of the set that was taken then."""

    def __init__(self, folder, monkeypatch):
        self.now = START
        monkeypatch.setattr(time, "time", lambda: self.now)
        super().__init__(folder, monkeypatch)
        self.controller = Controller(self, self.named)
        self.contents = {}

    def at(self, moment):
        """It is so late, on both hosts. Their clocks go on by the commands that are run, too."""
        self.now = moment
        for host in (self.home, self.peer):
            host.node.clock._now = float(moment)

    def replicate(self, keep=None, keep_home=None, **more):
        given = self.controller.sync("hv01", "hv02", [VM], keep=keep, keep_home=keep_home, **more)
        ended = self.controller.does("replicate", {**given, "goes_on": True})
        (row,) = ended["rows"]
        if row["complete"]:
            self.contents[self.there()[-1]] = self.hashes()
        return row

    def there(self, disk=0):
        return [name for name in self.peer.points(f"{REPLICAS}/{[*self.disks()][disk]}") if is_synced(name)]

    def here(self, disk=0):
        return [name for name in self.home.points([*self.disks().values()][disk]) if is_synced(name)]

    def holds(self, name):
        """Whether the replicas have in this set what the disks had."""
        return [digest(self.peer, f"{REPLICAS}/{uuid}", name) for uuid in self.disks()] == self.contents[name]

    def hours(self, count, **policy):
        """A sync every half hour, so many hours long."""
        for _number in range(2 * count):
            self.at(self.now + HOUR // 2)
            self.write(0, 1, self.serial % 30)
            row = self.replicate(**policy)
            assert row["failure"] == ""


def digest(host, dataset, name):
    """What the command guest would say of a snapshot, if it took one."""
    (snapshot,) = [one for one in host.node.pools.dataset(dataset).snapshots if one.name == name]
    return extents.digest(snapshot.extents, 0, snapshot.volsize)


@pytest.fixture
def world(tmp_path, monkeypatch):
    return Timed(tmp_path, monkeypatch)


def times(world):
    """When the sets on the peer were taken, in half hours."""
    (uuid, *_others) = world.disks()
    names = [f"{REPLICAS}/{uuid}@{name}" for name in world.there()]
    noted = world.peer.ok("zfs", "get", "-Ho", "value", PREFIX + SYNCED, *names).split()
    return [(seconds_of(text) - START) / HOUR for text in noted]


def test_both_sides_keep_what_the_policy_says(world):
    world.at(START + 22 * HOUR)
    world.hours(5, keep=KEPT, keep_home={"hourly": 2})
    assert times(world) == [23.5, 25.5, 26.5, 27.0]
    for disk in (0, 1):
        assert len(world.there(disk)) == 4
        assert world.here(disk) == world.there(disk)[-2:]
        (dataset, uuid) = ([*world.disks().values()][disk], [*world.disks()][disk])
        assert world.home.points(dataset, "bookmark") == world.there()[-1:]
        held = world.peer.ok("zfs", "get", "-Ho", "value", "userrefs", f"{REPLICAS}/{uuid}@{world.there()[0]}")
        assert held == "1"
    assert all(map(world.holds, world.there()))
    row = world.replicate(keep=KEPT, keep_home={"hourly": 2})
    assert (row["failure"], row["sent_bytes"]) == ("", 0)


def test_a_sync_without_a_policy_leaves_what_is_kept(world):
    """As a move begins with one, or somebody replicates a VM that the inventory does not have."""
    world.hours(5, keep=KEPT)
    before = world.there()
    world.write(0, 1)
    assert world.replicate()["failure"] == ""
    assert {*before[:-1]} <= {*world.there()}
    assert len(world.there()) == 3
    world.write(0, 1)
    world.replicate(keep={"last": 1})
    assert len(world.there()) == 1
    (uuid, *_others) = world.disks()
    assert world.peer.ok("zfs", "get", "-Ho", "value", PREFIX + KEEP, f"{REPLICAS}/{uuid}") == "last=1/"


def test_foreign_snapshots_and_those_of_users_are_not_counted(world):
    for number in range(6):
        world.at(START + number * HOUR)
        world.home.ok("vmadm", "create-snapshot", VM, f"mine{number}")
        world.write(0, 1)
        assert world.replicate(keep={"hourly": 2})["failure"] == ""
        for uuid in world.disks():
            world.peer.ok("zfs", "snapshot", f"{REPLICAS}/{uuid}@auto-{number}")
    (uuid, *_others) = world.disks()
    points = world.peer.points(f"{REPLICAS}/{uuid}")
    assert [name for name in points if name.startswith("auto")] == [f"auto-{number}" for number in range(6)]
    assert len([name for name in points if "mine" in name]) == 6
    assert len(world.there()) == 2


def test_a_clock_that_was_set_back_destroys_nothing(world):
    """It is wrong for a while, on both hosts, and then right again."""
    policy = {"keep": KEPT, "keep_home": {"hourly": 2}}
    world.at(START + 22 * HOUR)
    world.hours(5, **policy)
    there, here, right = world.there()[:-1], world.here()[:-1], world.now
    world.at(START - 4000 * DAY)
    world.hours(5, **policy)
    assert {*there} <= {*world.there()}
    assert {*here} <= {*world.here()}
    assert all(map(world.holds, world.there()))
    world.at(right + 20 * HOUR)
    for _day in range(3):
        world.at(world.now + 20 * HOUR)
        world.hours(4, **policy)
    assert len(world.there()) == 5
    assert not {*there} & {*world.there()}
    assert all(map(world.holds, world.there()))


def test_a_note_from_the_future_has_no_age(world):
    """So the replica is due, and metrics do not call it fresh."""
    world.replicate()
    (disk,) = [one for one in world.planned().vms[0].disks if one.volume.name == next(iter(world.disks().values()))]
    assert as_result(disk, world.now + 5)[0]["age"] == 5
    assert as_result(disk, world.now - 30)[0]["age"] == 0
    assert as_result(disk, world.now - 90)[0]["age"] is None


def test_the_age_counts_from_the_snapshots(world):
    """What is written while a long transfer runs is not on the peer."""
    world.at(START + HOUR)
    carry = world.home.carry

    def slow(*arguments):
        world.now += 1200
        return carry(*arguments)

    world.home.carry = slow
    world.replicate()
    (note, *_others) = {
        world.home.ok("zfs", "get", "-Ho", "value", "flexdisk:replicas", name) for name in world.disks().values()
    }
    assert f"@{render_time(START + HOUR)[:15]}" in note


def test_a_set_that_somebody_has_cloned_stays_until_the_clone_is_gone(world):
    world.hours(3, keep={"hourly": 2})
    (uuid, *_others) = world.disks()
    oldest = world.there()[0]
    world.peer.ok("zfs", "clone", f"{REPLICAS}/{uuid}@{oldest}", "zones/mine")
    world.hours(4, keep={"hourly": 2})
    assert len(world.there()) == 3
    assert len(world.there(1)) == 2
    world.peer.ok("zfs", "destroy", "zones/mine")
    world.hours(1, keep={"hourly": 2})
    assert len(world.there()) == 2


def test_a_disk_that_came_later_lacks_the_older_sets(world):
    world.hours(4, keep=KEPT)
    before = world.there()
    world.home.ok("vmadm", "stop", VM, "-F")
    assert (
        world.home.node.run(["vmadm", "update", VM], json.dumps({"add_disks": [{"model": "virtio", "size": 32}]}))[0]
        == 0
    )
    world.hours(1, keep=KEPT)
    assert {*before[1:-1]} <= {*world.there()}
    assert len(world.there(2)) == 2


def test_the_home_loses_its_sets_and_the_peer_keeps_them(world):
    """vmadm destroys them when it changes the quota."""
    world.hours(4, keep=KEPT, keep_home=KEPT)
    before = world.there()
    for number, dataset in enumerate(world.disks().values()):
        for name in world.here(number):
            world.home.ok("zfs", "destroy", f"{dataset}@{name}")
    world.hours(1, keep=KEPT, keep_home=KEPT)
    assert {*before[1:-1]} <= {*world.there()}
    assert all(map(world.holds, world.there()))


def test_killed_anywhere(world):
    """After each command of a sync that retains sets: the next one ends with what the policy says."""
    policy = {"keep": {"hourly": 2, "daily": 2}, "keep_home": {"last": 2}}
    world.at(START + 22 * HOUR)
    world.hours(3, **policy)
    world.at(world.now + HOUR)
    world.write(0, 1)
    saved = world.saved()
    world.fuse = Fuse()
    world.replicate(**policy)
    expected, commands = (len(world.there()), len(world.here())), world.fuse.counted
    before = dict(world.contents)
    for number in range(1, commands + 1):
        for after in (False, True):
            world.restore(saved)
            world.contents, world.fuse = dict(before), Fuse(number, after)
            with pytest.raises(Killed):
                world.replicate(**policy)
            world.fuse = Fuse()
            there = set(world.there())
            world.at(world.now + 1)
            assert world.replicate(**policy)["failure"] == ""
            assert (len(world.there()), len(world.here())) == expected, (number, after)
            assert all(map(world.holds, {*world.there()} & {*world.contents}))
            assert len({*world.there()} & there) >= 2


def lost_before_stock(world):
    """A controller whose peer cannot be reached any more once the streams have come."""
    whole = world.controller._answers

    def answers(call, check):
        if call.name.startswith("Take stock"):
            world.controller.lost = frozenset(["hv02"])
        return whole(call, check)

    world.controller._answers = answers
    yield
    world.controller._answers, world.controller.lost = whole, frozenset()


def test_a_set_without_a_time_pushes_nothing_out(world):
    """Its sync was cut off after it had come. No sync after that loses an older set by it."""
    policy = {"keep": {"hourly": 2, "daily": 5}}

    def sync():
        world.at(world.now + HOUR)
        world.write(0, 1, world.serial % 30)
        return world.replicate(**policy)["failure"]

    for day in range(5):
        world.at(START + day * DAY + 12 * HOUR)
        assert sync() == ""
    before, cut = world.there(), lost_before_stock(world)
    next(cut)
    assert "lost" in sync()
    next(cut, None)
    for _number in range(4):
        assert sync() == ""
        assert {*before[:-1]} <= {*world.there()}
    assert len(world.there()) == 6


@pytest.mark.parametrize("keep", [None, {"hourly": 2}])
def test_the_home_keeps_more_than_the_peer(world, keep):
    for number in range(5):
        world.at(world.now + HOUR)
        world.write(0, 1, number)
        assert world.replicate(keep=keep, keep_home={"hourly": 24})["failure"] == ""
    assert len(world.here()) == len(world.here(1)) == 5
    assert len(world.there()) == (2 if keep else 1)


def test_the_home_keeps_its_sets_though_a_replica_is_lost(world):
    policy = {"keep": {"hourly": 24}, "keep_home": {"hourly": 24}}
    for number in range(3):
        world.at(world.now + HOUR)
        world.write(0, 1, number)
        world.replicate(**policy)
    (_first, uuid) = world.disks()
    for name in world.there(1):
        world.peer.ok("zfs", "release", "flexdisk-replica", f"{REPLICAS}/{uuid}@{name}")
    world.peer.ok("zfs", "destroy", "-r", f"{REPLICAS}/{uuid}")
    world.at(world.now + HOUR)
    world.write(0, 1, 9)
    assert world.replicate(**policy)["failure"] == ""
    assert len(world.here()) == len(world.here(1)) == len(world.there()) == len(world.there(1)) == 4


def test_a_set_of_the_home_that_somebody_has_cloned_stops_nothing(world):
    world.replicate()
    (disk, *_others) = world.disks().values()
    (first,) = world.here()
    world.home.ok("zfs", "clone", f"{disk}@{first}", "zones/mine")
    for _number in range(3):
        world.at(world.now + HOUR)
        world.write(0, 1)
        assert world.replicate()["failure"] == ""
    assert (len(world.here()), world.here()[0], len(world.here(1))) == (2, first, 1)
    note = world.home.ok("zfs", "get", "-Ho", "value", "flexdisk:replicas", disk)
    assert f"@{render_time(world.now)[:15]}" in note


def test_the_age_of_an_idle_vm_counts_from_the_plan(world):
    """What its guest writes while others are sent is not on the peer."""
    world.replicate()
    began = world.now + HOUR
    world.at(began)
    whole = world.controller._answers

    def answers(call, check):
        if call.name == "Tidy up":
            world.at(began + 2 * HOUR)
        return whole(call, check)

    world.controller._answers = answers
    assert world.replicate()["failure"] == ""
    (note, *_others) = {
        world.home.ok("zfs", "get", "-Ho", "value", "flexdisk:replicas", name) for name in world.disks().values()
    }
    assert f"@{render_time(began)[:15]}" in note


def test_what_the_home_could_not_end_is_in_the_row(world):
    whole = world.controller._answers

    def answers(call, check):
        answer = whole(call, check)
        if call.name == "Tidy up":
            answer.result["failures"] = [f"db01 ({VM}): it is on hold [InUse]", "web01: other"]
        return answer

    world.controller._answers = answers
    world.write(0, 1)
    row = world.replicate()
    assert (row["complete"], row["failure"]) == (True, "it is on hold [InUse]")


def test_if_nothing_can_be_planned_the_reason_stands_alone(world):
    whole, calls = world.controller._answers, []

    def answers(call, check):
        calls.append(call.name)
        answer = whole(call, check)
        if call.name.startswith("Plan the sync"):
            answer.result.update(transfers=[], idle=False, failures=[f"db01 ({VM}): it is on hold [InUse]"])
        return answer

    world.controller._answers = answers
    assert world.replicate()["failure"] == "it is on hold [InUse]"
    assert not {"Let the streams in", "Send", "Take stock on the peer"} & {*calls}
