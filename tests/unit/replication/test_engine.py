# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sync between two simulated nodes, killed at every command."""

from __future__ import annotations

import copy
import itertools
import json
import os
import re

import pytest
from simnode import Node, PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_info import (
    Filters,
    disks_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_info import (
    replica_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    read_transfers,
    transfer_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.trust import MARK
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .world import REPLICAS, VM, Fuse, Host, Killed, SecretWorld, TwoSecretsWorld, World

MIB = 1 << 20
EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 3  # an odd number: before and after a command by turns
TWIN = {"uuid": "aaaaaaaa-0000-4000-8000-000000000203", "brand": "bhyve", "ram": 128, "vcpus": 1, "quota": 1}


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def first(_world):
    """Nothing is there yet."""


def increment(world):
    """Replicas are there. Since then there are data, a snapshot of a user, and a disk has grown."""
    assert world.sync() == (True, True)
    world.write(0, 5, 3)
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.write(1, 2)
    world.home.ok("vmadm", "stop", VM, "-F")
    payload = f'{{"update_disks": [{{"path": "/dev/zvol/rdsk/zones/{VM}/disk1", "size": 96}}]}}'
    assert world.home.node.run(["vmadm", "update", VM], payload)[0] == 0


def lost(world):
    """A user has deleted a snapshot, and rolled back to an older one."""
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.write(0, 2, 5)
    world.home.ok("vmadm", "create-snapshot", VM, "two")
    assert world.sync() == (True, True)
    world.home.ok("vmadm", "stop", VM, "-F")
    world.home.ok("vmadm", "rollback-snapshot", VM, "one")
    world.write(0, 2, 7)


def cut(world):
    """The second sync was cut in the middle of a stream."""
    assert world.sync() == (True, True)
    world.write(0, 9, 3)
    world.write(1, 9, 3)
    world.cut = 3 * MIB
    assert world.sync() == (True, False)
    world.cut = 0


def given_up(world):
    """The snapshot of the stream that was cut has gone."""
    cut(world)
    for where in world.disks().values():
        world.home.ok("zfs", "destroy", f"{where}@{world.home.points(where)[-1]}")


def without_base(world):
    """The snapshots of the last sync have gone, their bookmarks are left."""
    assert world.sync() == (True, True)
    for where in world.disks().values():
        world.home.ok("zfs", "destroy", f"{where}@{world.home.points(where)[-1]}")
    world.write(0, 2, 7)


def full(world):
    """No space is free, and all of it was written before and after the last sync."""
    world.home.node.run(["vmadm", "update", VM], '{"flexible_disk_size": 192}')
    world.write(0, 128)
    assert world.sync() == (True, True)
    world.write(0, 128)
    world.write(1, 64)


SCENARIOS = [first, increment, lost, cut, given_up, without_base, full]


def lawful(world):
    """The VM as it is, and its pool's geometry."""
    host = observe(Zfs(world.home), Vmadm(world.home))
    (vm,) = host.vms
    return vm, host.geometry["zones"]


def in_order(world, hashes):
    """One set on both sides, nothing else of the sync, and the same contents."""
    assert world.hashes_there() == world.hashes() == hashes
    for uuid, where in world.disks().items():
        here = world.home.points(where)
        assert world.peer.points(f"{REPLICAS}/{uuid}") == here
        synced = [name for name in here if name.startswith("flexdisk-sync-")]
        assert world.home.points(where, "bookmark") == synced
        assert len(synced) == 1
        for prop in ("volsize", "refreservation"):
            command = ("zfs", "get", "-Hp", "-o", "value", prop)
            assert world.peer.ok(*command, f"{REPLICAS}/{uuid}") == world.home.ok(*command, where)
    vm, geometry = lawful(world)
    assert space.sync_space(vm) == space.sync_needs(vm) > 0
    assert vm.root.quota == vm.root.reservation == space.expected_quota(vm, geometry)
    assert not world.authorized.exists() or world.authorized.read_text() == ""
    assert not list(world.folder.glob("transfer-*"))


@pytest.mark.parametrize(
    ("kind", "scenario"),
    [
        *((World, scenario) for scenario in SCENARIOS),
        *((SecretWorld, scenario) for scenario in (increment, cut, without_base)),
        *((TwoSecretsWorld, scenario) for scenario in (first, lost, given_up, full)),
    ],
)
def test_a_sync_killed_anywhere(tmp_path, monkeypatch, kind, scenario):
    """The same command goes on. No disk and no snapshot of a user is ever touched; the second run is idle."""
    world = kind(tmp_path, monkeypatch)
    scenario(world)
    hashes, saved = world.hashes(), world.saved()
    world.fuse = Fuse()
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    count = world.fuse.counted
    in_order(world, hashes)
    own = {where: _own(world, where) for where in world.disks().values()}
    points = list(itertools.product(range(1, count + 1), (False, True)))[::EVERY]
    killed = 0
    for at, after in points:
        world.restore(saved)
        world.fuse = Fuse(at, after)
        try:
            world.sync()
            world.sync()
        except Killed:
            killed += 1
        world.fuse = Fuse()
        assert world.hashes() == hashes
        assert {where: _own(world, where) for where in own} == own
        assert world.sync()[1]
        in_order(world, hashes)
        assert world.sync() == (False, True)
    assert killed == len(points)
    print(f"{scenario.__name__}: {killed} points")


def _own(world, where):
    return [name for name in world.home.points(where) if not name.startswith("flexdisk-sync-")]


@pytest.mark.usefixtures("world")
def test_two_syncs_at_once():
    """Whoever comes second is told who is at work."""
    with lock.transfers(SubprocessRunner(), [VM], "a transfer to hv02"):
        refusal = _second_refusal()
    assert refusal.code == "Locked"
    assert "the disks are being replicated by a transfer to hv02 (pid " in refusal.message


def _second_refusal():
    with pytest.raises(FlexdiskError) as caught:
        _second_transfer()
    return caught.value


def _second_transfer():
    with lock.transfers(SubprocessRunner(), [VM], "another"):
        pass


def test_a_replica_is_removed(world):
    """Killed anywhere, the same command goes on."""
    assert world.sync() == (True, True)
    saved = world.saved()
    world.fuse = Fuse()
    _removed(world)
    for at in range(1, world.fuse.counted + 1):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            _removed(world)
        world.fuse = Fuse()
        _removed(world)
        assert world.peer.ok("zfs", "list", "-H", "-o", "name").split() == ["zones", "zones/flexdisk", REPLICAS]
        for where in world.disks().values():
            assert (world.home.points(where), world.home.points(where, "bookmark")) == ([], [])
            assert world.home.ok("zfs", "get", "-H", "-o", "value", "flexdisk:replicas", where) == "-"
    assert world.sync() == (True, True)


def test_a_replica_of_another_home_stays_with_a_word(world):
    assert world.sync() == (True, True)
    (uuid, _where), (other, _there) = world.disks().items()
    world.peer.ok("zfs", "set", "flexdisk:replica.home=42", f"{REPLICAS}/{uuid}")
    homes = world.sender().remove(["db01"], "hv02", True).homes
    for check in (True, False):
        removed = world.receiver().remove(["zones"], [VM], homes, check)
        assert removed.gone == [f"{REPLICAS}/{other}"]
        (message,) = removed.stays
        assert f"{REPLICAS}/{uuid} stays: it is a replica of a disk of VM {VM} in another pool, of " in message
        assert " (guid 42). " in message
        assert f'"arguments": {{"vms": ["{VM}"], "homes": [42]}}' in message
    gone, stays = world.receiver().remove(["zones"], [VM], [42], False)
    assert (gone, stays) == ([f"{REPLICAS}/{uuid}"], [])


def _removed(world):
    done = world.sender().remove(["db01"], "hv02", False)
    assert not done.problems
    world.receiver().remove(["zones"], done.uuids, done.homes, False)


def _fill(host, left):
    """Leave so many MiB."""
    room = int(host.ok("zfs", "get", "-Hp", "-o", "value", "available", "zones")) - left * MIB
    host.ok("zfs", "create", "-o", f"refreservation={room}", "zones/full")


@pytest.mark.parametrize(
    ("before", "code", "text"),
    [
        (
            lambda world: _fill(world.peer, 100),
            "InsufficientSpace",
            r"the replicas need [\d.]+ MiB in pool zones of hv02, which has [\d.]+ MiB",
        ),
        (lambda world: world.sync(), "", ""),
        (
            lambda world: world.peer.node.run(["vmadm", "create"], json.dumps({**TWIN, "alias": "db01"})),
            "AlreadyExists",
            f"hv02 has a VM db01 \\({TWIN['uuid']}\\) already",
        ),
        (lambda world: _strange(world, "zones/flexdisk/replica/{}"), "InUse", "does not say that it is a replica"),
    ],
)  # fmt: skip
def test_refusals(world, before, code, text):
    before(world)
    planned = world.planned()
    assert [problem.code for problem in planned.problems][:1] == ([code] if code else [])
    assert re.search(text, " ".join(problem.message for problem in planned.problems))


def _strange(world, name):
    world.peer.ok("zfs", "create", "-p", "-V", "128M", name.format(next(iter(world.disks()))))


def test_two_peers(world, tmp_path, monkeypatch):
    """What a sync with one peer leaves is nothing new for the other."""
    assert world.sync() == (True, True)
    one = world.peer
    world.peer = Host(Node.create(None, [PoolSpec(name="zones")], 3), tmp_path, world)
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    two, world.peer = world.peer, one
    assert world.sync() == (False, True)
    world.write(0, 1, 5)
    assert world.sync() == (True, True)
    world.peer = two
    assert world.sync() == (True, True)
    assert world.hashes_there() == world.hashes()
    assert world.sync() == (False, True)
    world.peer = one
    assert world.sync() == (True, True), "a snapshot of the other sync has gone"
    assert world.sync() == (False, True)
    assert world.hashes_there() == world.hashes()


def _kinds(world, host, now=1767225600):
    reported = verify(Zfs(host), Vmadm(host), None, [], None, 30, True, now)  # the replicas are of 2026-01-01
    return sorted({finding.kind for finding in reported.findings if finding.kind.startswith("replica")})


def test_findings_about_replicas(world):
    assert world.sync() == (True, True)
    assert _kinds(world, world.home) == []
    assert _kinds(world, world.peer) == []
    assert _kinds(world, world.peer, 1767225600 + 8 * 86400) == ["replica_stale"]
    uuid = next(iter(world.disks()))
    world.peer.ok("zfs", "set", "readonly=off", f"{REPLICAS}/{uuid}")
    world.peer.ok("guest", "write", f"{REPLICAS}/{uuid}", "0", "1", "strange")
    assert _kinds(world, world.peer) == ["replica_changed"]
    world.peer.ok("zfs", "create", "-V", "16M", f"{REPLICAS}/mine")
    assert _kinds(world, world.peer) == ["replica_changed", "replica_without_role"]
    world.peer.ok("zfs", "create", "-V", "16M", "-o", f"flexdisk:uuid={uuid}", f"zones/flexdisk/{uuid}")
    assert _kinds(world, world.peer) == ["replica_changed", "replica_of_own_disk", "replica_without_role"]


def test_ages(world):
    assert world.sync() == (True, True)
    result = disks_info(Zfs(world.home), Vmadm(world.home), Filters(), None, False, False).disks
    assert [[(one["host"], 0 <= one["age"] < 60) for one in disk["replicas"]] for disk in result] == [
        [("hv02", True)]
    ] * 2
    (vm,) = info(Zfs(world.home), Vmadm(world.home), ["db01"], None, False).vms
    assert [[one["host"] for one in disk["replicas"]] for disk in vm["disks"]] == [["hv02"]] * 2
    there = replica_info(Copies(world.peer), Vmadm(world.peer))["replicas"]
    assert {one["synced"] for one in there} == {"2026-01-01T00:00:00Z"}
    assert all(one["vm"] == VM and one["age"] > 0 for one in there)


# -- what went wrong in between


def test_another_home_takes_no_replica(world):
    """An older copy of the VM on a third host does not roll the replicas back."""
    older = world.saved()[0]
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    assert world.sync() == (True, True)
    mine, hashes = world.home.node, world.hashes_there()
    world.home.node = copy.deepcopy(older)
    world.home.node.pools.pools["zones"].guid += 1
    world.home.node.pools.pools["zones"].datasets["zones"].guid += 1
    problems = world.planned().problems
    assert {problem.code for problem in problems} == {"InUse"}
    assert "is the replica of this disk on " in problems[0].message
    assert world.hashes_there() == hashes
    world.home.node = mine
    assert world.sync() == (False, True)


def test_a_replica_that_changes_after_the_plan(world):
    """What was not planned to be lost is not lost."""
    lost(world)
    planned = world.planned()
    transfers, failures = world.sender().prepare(planned, "hv02")
    assert not failures
    uuid = next(iter(world.disks()))
    world.peer.ok("zfs", "snapshot", f"{REPLICAS}/{uuid}@mine")
    with pytest.raises(FlexdiskError) as caught:
        world.receiver().open(transfers, [str(world.folder)])
    assert caught.value.code == "ReplicaChanged"
    assert "mine" in world.peer.points(f"{REPLICAS}/{uuid}")
    world.peer.ok("zfs", "destroy", f"{REPLICAS}/{uuid}@mine")
    assert world.sync() == (True, True)


def test_the_first_snapshot_goes_before_the_second_stream(world):
    """Its bookmark is the base."""
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.write(0, 3, 9)
    world.fuse = Fuse(_carried(world, 1), after=True)
    with pytest.raises(Killed):
        world.sync()
    world.fuse = Fuse()
    assert world.peer.points(f"{REPLICAS}/{next(iter(world.disks()))}") == ["vmsnap-one"]
    world.home.ok("vmadm", "delete-snapshot", VM, "one")
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def _carried(world, number):
    """The number of the command that carries the stream of this number."""
    saved, carried = world.saved(), []
    plain, world.fuse = world.home.carry, Fuse()

    def carry(*arguments):
        carried.append(world.fuse.counted + 1)
        return plain(*arguments)

    world.home.carry = carry
    world.sync()
    world.home.carry = plain
    world.restore(saved)
    return carried[number - 1]


def test_the_base_of_a_token_goes(world):
    """Its stream is given up, and another one follows the bookmark."""
    cut(world)
    for where in world.disks().values():
        base, _failed = world.home.points(where)
        world.home.ok("zfs", "destroy", f"{where}@{base}")
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_syncs_that_fail_leave_one_set(world):
    """What has never come makes room for the next."""
    assert world.sync() == (True, True)
    plain, world.home.carry = world.home.carry, lambda *_words: (Answer(0, "", ""), Answer(255, "", "refused"))
    for _run in range(3):
        world.write(0, 1, 3)
        assert world.sync() == (True, False)
        assert [len(world.home.points(where)) for where in world.disks().values()] == [2, 2]
    world.home.carry = plain
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_a_snapshot_that_arrived_goes_before_it_was_marked(world):
    assert world.sync() == (True, True)
    world.home.ok("vmadm", "create-snapshot", VM, "one")
    world.write(0, 3, 9)
    world.fuse = Fuse(_carried(world, 2), after=True)
    with pytest.raises(Killed):
        world.sync()
    world.fuse = Fuse()
    world.home.ok("vmadm", "delete-snapshot", VM, "one")
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_names_that_zfs_allows(world):
    for where in world.disks().values():
        world.home.ok("zfs", "snapshot", f"{where}@_before")
        world.home.ok("zfs", "snapshot", f"{where}@{'x' * 150}")
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_snapshots_and_holds_of_others_on_the_peer(world):
    """They stay, they do no harm, and the second run is idle."""
    for where in world.disks().values():
        world.home.ok("zfs", "snapshot", f"{where}@old")
    assert world.sync() == (True, True)
    uuid, where = next(iter(world.disks().items()))
    world.peer.ok("zfs", "hold", "keep", f"{REPLICAS}/{uuid}@old")
    world.peer.ok("zfs", "snapshot", f"{REPLICAS}/{uuid}@mine")
    world.home.ok("zfs", "destroy", f"{where}@old")
    assert world.sync() == (False, True)
    world.write(0, 1, 3)
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    assert {"old", "mine"} <= set(world.peer.points(f"{REPLICAS}/{uuid}"))
    assert world.hashes_there() == world.hashes()


def test_a_users_snapshot_was_destroyed_on_the_peer(world):
    for where in world.disks().values():
        world.home.ok("zfs", "snapshot", f"{where}@old")
    assert world.sync() == (True, True)
    for uuid in world.disks():
        world.peer.ok("zfs", "destroy", f"{REPLICAS}/{uuid}@old")
    assert world.sync() == (False, True)


def test_a_small_growth_is_reserved(world):
    assert world.sync() == (True, True)
    world.home.ok("vmadm", "stop", VM, "-F")
    payload = f'{{"update_disks": [{{"path": "/dev/zvol/rdsk/zones/{VM}/disk0", "size": 129}}]}}'
    assert world.home.node.run(["vmadm", "update", VM], payload)[0] == 0
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_a_pool_without_room_is_refused(world):
    _fill(world.home, 9)
    (problem,) = world.planned().problems
    assert problem.code == "InsufficientSpace"
    result = r"the snapshots of the sync take N MiB, and the VM needs N MiB more of pool zones, which has N MiB"
    assert re.fullmatch(result.replace("N", r"[\d.]+"), problem.message)
    assert [world.home.points(where) for where in world.disks().values()] == [[], []]


def test_what_the_other_host_says_is_data(world):
    """Not one word of it reaches a command unchecked."""
    transfers, _failures = world.sender().prepare(world.planned(), "hv02")
    good = json.loads(json.dumps(transfer_as_result(transfers[0])))
    assert read_transfers([good]) == transfers
    disk = good["disks"][0]
    for wrong in (
        {**good, "host": "hv\t01"},
        {**good, "set": "vmsnap-one"},
        {**good, "pool": "-o"},
        {**good, "uuid": "../etc"},
        {**good, "disks": [{**disk, "key": 'ssh-ed25519 AAAA" command="x'}]},
        {**good, "disks": [{**disk, "dataset": "-rf"}]},
        {
            **good,
            "disks": [{**disk, "streams": [{"kind": "resume", "token": "$(id)", "to": disk["streams"][0]["to"]}]}],
        },
        {**good, "disks": [{**disk, "streams": [{"kind": "shell"}]}]},
        {**good, "disks": [{**disk, "streams": [{"kind": "rollback", "to": 1, "lost": []}]}]},
    ):
        with pytest.raises(FlexdiskError) as caught:
            read_transfers([wrong])
        assert caught.value.code == "InvalidArgument"


def test_keys_of_others_stay(world):
    """Lines of other programs are left as they are; ours go at the end, and those that have expired."""
    theirs = "# mine\nssh-ed25519 AAAA somebody@example\n"
    expired = f'restrict,expiry-time="20200101000000",command="x" ssh-ed25519 AAAA {MARK}{VM}\n'
    world.authorized.write_text(theirs + expired)
    world.authorized.chmod(0o640)
    assert world.sync() == (True, True)
    assert world.authorized.read_text() == theirs
    assert world.authorized.stat().st_mode & 0o777 == 0o640


def test_a_set_that_has_not_come_makes_room_for_the_next(world):
    """A failed sync does not stand in the way of the next one, even if the VM has no room for both."""
    plain, world.home.carry = world.home.carry, lambda *_words: (Answer(0, "", ""), Answer(255, "", "refused"))
    assert world.sync() == (True, False)
    world.home.node.run(["vmadm", "update", VM], '{"flexible_disk_size": 212}')
    world.home.carry = plain
    world.write(0, 9, 20)
    assert world.sync() == (True, True)
    in_order(world, world.hashes())


def test_a_write_on_small_sectors_is_none_of_zfs(world):
    """The container tells their size."""
    assert world.sync()[1]
    run = world.peer.node.run

    def counted(argv, *stdin):
        rc, out, err = run(argv, *stdin)
        out = re.sub(rf"^({REPLICAS}/[0-9a-f-]+\twritten\t)0\b", r"\g<1>8192", out, flags=re.MULTILINE)
        return rc, re.sub(r"^(zones/flexdisk\tlogicalreferenced\t)\d+", r"\g<1>12288", out, flags=re.MULTILINE), err

    world.peer.node.run = counted
    world.write(0, 3, 3)
    assert {problem.code for problem in world.planned().problems} == {"ReplicaChanged"}
    reported = verify(world.peer.zfs(), world.peer.driver(), None, [], None, 30, True, 0)
    assert "replica_changed" in {finding.kind for finding in reported.findings}


@pytest.mark.parametrize(("written", "changed"), [(8192, False), (53248, True)])
def test_the_log_of_a_former_disk_is_reset(world, written, changed):
    """After a loss of power ZFS counts it as written, and receives the next stream nevertheless."""
    assert world.sync()[1]
    run = world.peer.node.run

    def counted(argv, *stdin):
        rc, out, err = run(argv, *stdin)
        return rc, re.sub(rf"^({REPLICAS}/[0-9a-f-]+\twritten\t)0\b", rf"\g<1>{written}", out, flags=re.MULTILINE), err

    world.peer.node.run = counted
    world.write(0, 3, 3)
    planned = world.planned()
    assert {problem.code for problem in planned.problems} == ({"ReplicaChanged"} if changed else set())
    reported = verify(world.peer.zfs(), world.peer.driver(), None, [], None, 30, True, 0)
    assert ("replica_changed" in {finding.kind for finding in reported.findings}) is changed
    if not changed:
        assert world.sync() == (True, True)
        assert world.hashes_there() == world.hashes()
