# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs with failover on two simulated nodes: what the home keeps, and how the other host takes a VM over."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import time

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    failover_records,
    failover_start,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_home import (
    FailoverHome,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.vm_takeover import (
    KnownVm,
    TakeOver,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_arrival import MoveTarget
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import (
    better_elsewhere,
    read_claims,
    read_rivals,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import render_time
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import short_peer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import (
    is_complete,
    snapshots_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted

from .controller import Controller
from .test_engine import TWIN, _fill
from .test_move import EVERY, POLICY, VMADM, config, created, findings, guid, hosts, look, move, swap, tombstones
from .test_move import both as on_both
from .test_other_tasks import DATA, ROOT, done
from .world import REPLICAS, VM, Fuse, Killed

world = on_both
FACT = "flexdisk:failover"


def wish(host):
    """What the VM's dataset says, and what the hypervisor would do."""
    (vm,) = observe(host.zfs(), host.driver()).vms
    assert vm.config.failover
    fact = host.ok("zfs", "get", "-H", "-o", "value", FACT, f"zones/{VM}")
    assert vm.config.autoboot is fact.startswith("on:")
    return fact, host.autoboots(VM)


def kept(world, autoboot="on"):
    """The VM has failover, and is at home."""
    home = f"flexdisk:at_home={world.home.driver().boot_id()}"
    world.home.ok("zfs", "set", f"{FACT}={autoboot}:0", home, f"zones/{VM}")
    world.home.set_autoboot(VM, False)


def snapshot(world, state):
    """A snapshot of the whole VM is taken, used or deleted."""
    arguments = (world.home.zfs(), world.home.driver(), ["db01"], wanted(name="one", state=state))
    ended = vm_snapshot.run(*arguments, POLICY, None, False, NOW)
    assert (ended.problems, ended.failure) == ([], None)


@pytest.mark.parametrize("autoboot", ["on", "off"])
def test_no_task_turns_autoboot_on(world, autoboot):
    """A restart, a rollback and a move leave the wish as it was, and the hypervisor's autoboot off."""
    kept(world, autoboot)
    before = (f"{autoboot}:0", False)
    done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
    assert (wish(world.home), world.home.power(VM)) == (before, "running")
    for state in ("stopped", "running"):
        assert not created(world, {"vm": "db01", "state": state}).problems
        assert (wish(world.home), world.home.power(VM)) == (before, state)
    done(world, ROOT, DATA, flexible_disk_size=512)
    for state in ("present", "rolled_back", "absent"):
        snapshot(world, state)
        assert wish(world.home) == before
    assert move(world)
    assert (wish(world.peer), world.peer.power(VM)) == (before, "running")
    swap(world)
    assert findings(world) == []


def test_the_hypervisor_starts_no_vm_that_has_left(world):
    """Somebody has started it by hand, which has turned autoboot on, and the guest has shut itself down. autoboot goes
    off before the tombstone is written.
    """
    kept(world, "off")
    world.home.power_off(VM)
    world.home.set_autoboot(VM, True)
    for _point in tombstones(world):
        assert world.home.autoboots(VM) is False


def test_the_wish_changes(world):
    """autoboot of the module vm is the wish."""
    kept(world)
    for autoboot in (False, True):
        for changed in (True, False):
            ended = created(world, {"vm": "db01", "state": "running", "autoboot": autoboot})
            assert (ended.problems, ended.failure, ended.changed) == ([], None, changed)
        assert wish(world.home) == (f"{'on' if autoboot else 'off'}:0", False)


# -- the record


def mark(world, wanted=None, check=False):
    home = FailoverHome(world.home.zfs(), world.home.driver(), world.home)
    marked = home.set_failover(["db01"], wanted, world.home_name, check, world.peer_name)
    assert (marked.problems, marked.failures) == ([], [])
    return marked


def store(world, found, check=False):
    given = [read_record(json.loads(json.dumps(record_as_result(record)))) for record in found]
    news, problems = stored(world, given, check)
    assert not problems
    return news


def stored(world, given, check=False):
    return failover_records.store(world.peer.zfs(), world.peer.driver(), world.peer, given, {VM: "zones"}, check)


def protect(world):
    """The role vm_replica with failover."""
    controller = Controller(world, {**world.named, world.home_name: world.home, world.peer_name: world.peer})
    controller.does("keep", controller.sync(world.home_name, world.peer_name, [VM], failover="present"))


def test_the_peer_gets_the_record(world):
    """In four steps. Only root can read it, and with every sync it is renewed."""
    assert world.sync()[1]
    for check, changed in ((True, True), (False, True), (True, False), (False, False)):
        marked = mark(world, True, check)
        assert marked.changed is changed
        assert store(world, marked.records, check) == (["db01"] if changed else [])
    assert wish(world.home) == ("on:0", False)
    path = world.folder / "failover" / f"{VM}.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert "secret" in path.read_text()
    assert store(world, mark(world).records) == []
    world.home.annotate(VM, "another")
    assert store(world, mark(world).records) == ["db01"]
    assert "another" in path.read_text()


@pytest.mark.parametrize("autoboot", [True, False])
def test_failover_is_given_up(world, autoboot):
    """autoboot is as it was."""
    world.home.set_autoboot(VM, autoboot)
    before = config(world.home)
    protect(world)
    assert world.home.autoboots(VM) is False
    for check, changed in ((True, True), (False, True), (True, False), (False, False)):
        gone = failover_records.drop([VM], [guid(world.home)], check)
        assert (bool(gone), mark(world, False, check).changed) == (changed, changed)
    assert config(world.home) == before
    assert records.known(records.FAILOVER) == []


def test_terms_go_up_for_ever(world):
    """A VM that was taken over keeps its term without failover, also after a move. autoboot is as it was."""
    protect(world)
    world.home.ok("zfs", "set", f"{FACT}=on:3", f"zones/{VM}")
    assert mark(world, False).changed
    assert not mark(world, False).changed
    assert world.home.ok("zfs", "get", "-H", "-o", "value", FACT, f"zones/{VM}") == "none:3"
    assert move(world)
    swap(world)
    assert (world.home.autoboots(VM), findings(world)) == (True, [])
    (vm,) = observe(world.home.zfs(), world.home.driver()).vms
    assert (vm.config.failover, vm.config.autoboot) == (False, True)
    assert mark(world, True).changed
    assert wish(world.home) == ("on:3", False)


def test_without_replicas_there_is_no_failover(world):
    """Otherwise nobody would start the VM."""
    protect(world)
    world.sender().remove(["db01"], world.peer_name, False)
    assert mark(world).changed
    assert world.home.autoboots(VM) is True
    assert not mark(world).changed


def test_a_vm_that_cannot_move_gets_no_failover(world):
    world.home.ok("zfs", "create", f"zones/{VM}/data")
    marked = FailoverHome(world.home.zfs(), world.home.driver(), world.home).set_failover(["db01"], True, "hv01", False)
    assert [problem.code for problem in marked.problems] == ["NotSupported"]
    assert world.home.autoboots(VM) is True


def test_a_vm_that_has_changed_since_its_sync(world):
    """The record would name a disk that has no replica. The old one stays."""
    protect(world)
    done(world, ROOT, DATA, {"name": "more", "size": 24}, flexible_disk_size=512)
    given = mark(world).records
    _news, problems = stored(world, given)
    assert [(problem.code, problem.disk) for problem in problems] == [("Changed", "more")]
    assert len(records.load(VM, records.FAILOVER)["record"]["disks"]) == len(world.names)


def same_uuid(world):
    """A VM of the other host has a disk with the UUID of one of these."""
    disk = {"boot": True, "model": "virtio", "size": 32, "uuid": next(iter(world.disks()))}
    twin = {**TWIN, "alias": "twin", "flexible_disk_size": 64, "disks": [disk]}
    world.peer.create(twin)


def same_name(world):
    world.peer.create({**TWIN, "alias": "db01"})


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        (same_uuid, "AlreadyExists", "has a disk with this uuid already, zones/"),
        (same_name, "InvalidArgument", "the uuid of VM db01 .* is not"),
        (lambda w: _fill(w.peer, w.scarce), "InsufficientSpace", r"[\d.]+ [MG]iB"),
        (lambda w: w.peer.ok("zfs", "create", "-V", "8M", f"zones/{VM}"), "AlreadyExists", "belongs to no VM, and may"),
        (lambda w: destroyed(w), "NoCompleteSet", "data has none"),  # pylint: disable=unnecessary-lambda
        (lambda w: written(w), "ReplicaChanged", "was written to since"),  # pylint: disable=unnecessary-lambda
    ],
    ids=["uuid", "name", "room", "place", "set", "written"],
)
def test_what_would_refuse_a_failover_is_asked_at_each_sync(world, how, code, text):
    """Of a VM that was protected long ago, too. Its record is kept: the reason may have gone by the day."""
    protect(world)
    how(world)
    given = mark(world).records
    for check in (True, False):
        news, problems = stored(world, given, check)
        assert news == []
        if check and code in ("NoCompleteSet", "ReplicaChanged"):
            continue  # the sync that comes first may mend that
        assert [problem.code for problem in problems][:1] == [code]
        assert re.search(text, problems[0].message)
    assert records.known(records.FAILOVER) == [VM]
    assert taker(world).look("db01").problems
    with pytest.raises(FlexdiskError, match=text):
        take(world)


def test_many_are_asked_with_one_read(world):
    """The host is read once for all that could refuse their failovers."""
    protect(world)
    (record,) = mark(world).records
    ran = []
    world.watch = lambda: ran.append(1)
    counts = []
    for given in ([record], [record] * 5):
        ran.clear()
        assert stored(world, given) == ([], [])
        counts.append(len(ran))
    print(counts)
    assert counts[1] - counts[0] <= 4


# -- failover


def take(world, most=None):
    """What the module does on the target. Whether there was anything to do."""
    return taker(world).take("db01", most)


def taker(world):
    return TakeOver(world.peer.zfs(), world.peer.driver(), world.peer, str(world.authorized))


def burnt(world):
    """The home is of no use: no command reaches it."""
    world.home.node.run = lambda *_words: pytest.fail("the home was asked")


def taken(world, before, hashes, term=1):
    """The VM is on the other host as it was at the sync, and lawful. The hypervisor does not start it by itself."""
    after = config(world.peer)
    assert after == {**before, "autoboot": False}
    assert world.peer.hashes(VM) == hashes
    host = observe(world.peer.zfs(), world.peer.driver())
    (vm,) = host.vms
    assert vm.root.quota == vm.root.reservation == space.expected_quota(vm, host.geometry["zones"])
    assert (space.allocatable(vm), vm.interrupted, host.moves) == (world.allocatable, None, {})
    assert wish(world.peer)[0] == f"on:{term}"
    assert not list(world.folder.glob("moves/*"))
    assert not list(world.folder.glob("failover/*"))


def lost(world):
    return taker(world).look("db01").takeover.losses


def everything(world):
    """The replicas have all."""
    protect(world)
    return world.hashes()


def written_since(world):
    """The VM has written after the sync."""
    hashes = everything(world)
    world.write(0, 3, 9)
    return hashes


def cut(world):
    """The next sync was cut: the first disk has a newer set, and the second a part of it."""
    hashes = everything(world)
    world.write(0, 3, 9)
    world.write(1, 9, 9)
    with pytest.raises(Killed):
        half_sync(world)
    return hashes


@pytest.mark.parametrize(("prepare", "reads"), [(everything, 2), (cut, 3)])
def test_the_host_is_read_before_and_after_the_streams_end(world, monkeypatch, prepare, reads):
    """Once more only if parts of streams were given up: reads are downtime."""
    prepare(world)
    whole, looks = TakeOver.look, []
    monkeypatch.setattr(TakeOver, "look", lambda *given, **more: looks.append(given) or whole(*given, **more))
    there = taker(world)
    assert there.take("db01", None, plan=there.look("db01"))
    assert len(looks) == reads


def half_sync(world):
    """The first stream arrives, the second is cut."""
    carry, world.streams = world.home.carry, 0

    def one(first, then, carried):
        world.streams += 1
        world.cut = 90000 if world.streams == 2 else 0
        answers = carry(first, then, carried)
        if world.streams == 2:
            raise Killed
        return answers

    world.home.carry = one
    try:
        world.sync()
    finally:
        world.cut = 0
        del world.home.carry


def killed_before_the_stock(world):
    """The newer set has arrived on all disks, and nobody has noted it."""
    protect(world)
    world.write(1, 9, 9)
    hashes = world.hashes()
    planned = world.planned()
    made, _failures = world.sender().prepare(planned, world.peer_name)
    keys = world.receiver().open(made, [str(world.folder)])
    world.send(made, keys)
    return hashes


SCENARIOS = [everything, written_since, cut, killed_before_the_stock]


def test_snapshots_come_back_as_far_as_they_have_come(world):
    """One is older than the last sync. The other is newer, and its parts are nowhere else."""
    done(world, ROOT, DATA, flexible_disk_size=512)
    snapshot(world, "present")
    protect(world)
    arguments = (world.home.zfs(), world.home.driver(), ["db01"], wanted(name="two", state="present"))
    assert vm_snapshot.run(*arguments, POLICY, None, False, NOW).problems == []
    store(world, mark(world).records)
    assert [one["name"] for one in records.load(VM, records.FAILOVER)["record"]["snapshots"]] == ["one", "two"]
    assert take(world)
    (vm,) = observe(world.peer.zfs(), world.peer.driver()).vms
    assert [(one.name, is_complete(vm, one)) for one in snapshots_of(vm)] == [("one", True)]
    assert not take(world)


KINDS = pytest.mark.parametrize(
    ("world", "scenario"),
    [*(("vmadm", one) for one in SCENARIOS), ("encrypted", written_since), ("encrypted", cut)],
    indirect=["world"],
)


@KINDS
def test_a_vm_comes_back(world, scenario):
    before = config(world.home)
    hashes = scenario(world)
    assert len(lost(world)) == (2 if scenario is cut else 0)
    home = world.home.node.run
    burnt(world)
    assert take(world)
    taken(world, before, hashes)
    assert not take(world)
    taken(world, before, hashes)
    world.home.node.run = home
    assert [kind for kind in findings(world) if kind != "replica_stale"] == []


@KINDS
def test_killed_anywhere(world, scenario):
    """The same command goes on."""
    before = config(world.home)
    hashes, saved = scenario(world), world.saved()
    known = records.load(VM, records.FAILOVER)
    world.fuse = Fuse()
    take(world)
    points = list(itertools.product(range(1, world.fuse.counted + 1), (False, True)))
    points = [*points[:-1:EVERY], points[-1]]
    for at, after in points:
        world.restore(saved)
        records.save(VM, known, records.FAILOVER)
        world.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            take(world)
        world.fuse = Fuse()
        take(world)
        taken(world, before, hashes)
        assert not take(world)
    print(f"{scenario.__name__}: {len(points)} points")


def refused(world, code, text, most=None):
    """Nothing is changed, in check mode or for real."""
    before = world.peer.stored()
    with pytest.raises(FlexdiskError, match=text) as caught:
        take(world, most)
    assert caught.value.code == code
    assert world.peer.stored() == before


def replica(world, number):
    return f"{REPLICAS}/{list(world.disks())[number]}"


def destroyed(world):
    """A disk has lost its set."""
    where = replica(world, 1)
    (name,) = world.peer.points(where)
    world.peer.ok("zfs", "release", "flexdisk-replica", f"{where}@{name}")
    world.peer.ok("zfs", "destroy", f"{where}@{name}")


def gone(world):
    destroyed(world)
    world.peer.ok("zfs", "destroy", replica(world, 1))


def written(world):
    world.peer.ok("zfs", "set", "readonly=off", replica(world, 0))
    world.peer.ok("guest", "write", replica(world, 0), "0", "1", "strange")


def strange(world):
    """Somebody has written to a replica and taken a snapshot of it, and the newest set lies before it."""
    where = replica(world, 1)
    world.peer.ok("zfs", "set", "readonly=off", where)
    world.peer.ok("guest", "write", where, "0", "1", "strange")
    world.peer.ok("zfs", "snapshot", f"{where}@mine")


def of_another(world):
    world.peer.ok("zfs", "set", f"flexdisk:replica={VM}", replica(world, 0))


def of_another_home(world):
    world.peer.ok("zfs", "set", "flexdisk:replica.home=42", replica(world, 0))


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        (lambda _world: records.remove(VM, records.FAILOVER), "ResourceNotFound", "flexdisk_failover=true makes one"),
        (destroyed, "NoCompleteSet", "root has @flexdisk-sync-.*; data has none"),
        (gone, "NoCompleteSet", "it has no replica here"),
        (written, "ReplicaChanged", "was written to since its newest snapshot, 1.0 MiB"),
        (strange, "ReplicaChanged", "@mine is newer than the set, and does not come from the disk"),
        (of_another, "InUse", "says that it is a replica of"),
        (of_another_home, "InUse", "is the replica of this disk on .* .pool guid 42., not of the one here"),
        (lambda w: _fill(w.peer, w.scarce), "InsufficientSpace", r"[\d.]+ [MG]iB"),
        (
            lambda w: same_name(w),  # pylint: disable=unnecessary-lambda
            "InvalidArgument",
            "the uuid of VM db01 .* is not",
        ),
    ],
    ids=["record", "set", "replica", "written", "snapshot", "role", "home", "room", "name"],
)
def test_refusals(world, how, code, text):
    protect(world)
    how(world)
    refused(world, code, text)


def test_snapshots_that_others_have_taken_of_replicas(world):
    """They hold nothing that the set lacks, so nothing is lost. They go only if the VM has no room for them."""
    before, hashes = config(world.home), everything(world)
    world.peer.ok("zfs", "snapshot", "-r", "zones/flexdisk/replica@hourly")
    assert lost(world) == []
    assert take(world)
    taken(world, before, hashes)


def test_snapshots_of_others_go_with_what_a_disk_loses(world):
    """A disk goes back to an older set, and loses the newer one. The plan names what goes. A hold is a refusal."""
    before, hashes = config(world.home), cut(world)
    world.peer.ok("zfs", "snapshot", f"{replica(world, 0)}@hourly")
    world.peer.ok("zfs", "hold", "mine", f"{replica(world, 0)}@hourly")
    refused(world, "InUse", "@hourly is newer than the set, and is held by somebody else; zfs holds shows by whom")
    world.peer.ok("zfs", "release", "mine", f"{replica(world, 0)}@hourly")
    assert "disk root loses @hourly, which others have taken of its replica" in lost(world)
    assert take(world)
    taken(world, before, hashes)


def test_a_snapshot_that_others_take_during_a_failover(world):
    """At any moment; the VM has room for it. The same command ends the failover."""
    done(world, ROOT, DATA, flexible_disk_size=512)
    before, hashes = config(world.home), cut(world)
    saved, known = world.saved(), records.load(VM, records.FAILOVER)
    world.fuse = Fuse()
    take(world)
    for at in range(1, world.fuse.counted + 1, EVERY):
        world.restore(saved)
        records.save(VM, known, records.FAILOVER)
        records.remove(VM)
        world.fuse, taken_of = Fuse(), []

        def somebody(at=at, taken_of=taken_of):  # pylint: disable=dangerous-default-value
            if world.fuse.counted == at and not taken_of:
                volumes = world.peer.ok("zfs", "list", "-Ho", "name", "-t", "volume").split()
                taken_of.extend(name for name in volumes if name.rpartition("/")[2] in world.disks() or VM in name)
                world.peer.node.run(["zfs", "snapshot", *(f"{name}@hourly" for name in taken_of)])

        world.watch = somebody
        with contextlib.suppress(FlexdiskError):
            take(world)
        world.watch = lambda: None
        take(world)
        after = config(world.peer)
        assert after == {**before, "autoboot": False}, at
        assert world.peer.hashes(VM) == hashes, at


def noted(world, seconds, *numbers):
    """The sets of these replicas were complete at this time."""
    places = [replica(world, number) for number in numbers]
    names = places + [f"{place}@{point}" for place in places for point in world.peer.points(place)]
    world.peer.ok("zfs", "set", f"flexdisk:replica.synced={render_time(seconds)}", *names)


def test_how_much_may_be_lost(world):
    """The age is that of the set, by the clock of the host with the replicas: an older one is refused."""
    protect(world)
    every = range(len(world.names))
    noted(world, time.time() - 1000, *every)
    refused(world, "TooOld", r"what the replicas have is \d+ s old; flexdisk_max_data_loss allows 900 s", 900)
    old = time.time() - 100
    noted(world, old, *every)
    ready = taker(world).look("db01")
    assert 100 <= ready.takeover.age(time.time()) < 200
    refused(world, "TooOld", r"is 1\d\d s old; flexdisk_max_data_loss allows 90 s", 90)
    noted(world, 32472144000, *every)
    refused(world, "TooOld", "is of a time that is not known", 9000)
    noted(world, old, 0)
    assert take(world, 9000)


def test_an_older_set_is_as_old_as_it_is(world):
    """A disk has lost the newest set, and goes back to the one before. The time of the last sync does not count."""
    protect(world)
    for number in range(2):
        where = replica(world, number)
        world.peer.ok("zfs", "hold", "mine", f"{where}@{world.peer.points(where)[0]}")
    world.write(0, 3, 9)
    with pytest.raises(AssertionError):  # both sets stay as long as somebody holds the older one
        world.sync()
    where = replica(world, 1)
    name = world.peer.points(where)[-1]
    noted(world, time.time() - 100, 0, 1)
    world.peer.ok(
        "zfs", "set", "flexdisk:replica.synced=2026-01-01T00:00:00Z", f"{where}@{world.peer.points(where)[0]}"
    )
    world.peer.ok("zfs", "release", "flexdisk-replica", f"{where}@{name}")
    world.peer.ok("zfs", "destroy", f"{where}@{name}")
    refused(world, "TooOld", r"is \d{7,} s old; flexdisk_max_data_loss allows 900 s", 900)


def test_a_newer_set_is_younger_than_the_last_that_was_noted(world):
    """It is complete, and nobody has noted when. Its host's clock says, and does not count here: it can be wrong."""
    protect(world)
    noted(world, time.time() - 100, 0, 1)
    world.home.node.clock.advance(time.time() - world.home.node.clock.now() - 9)
    world.write(1, 9, 9)
    hashes = world.hashes()
    made, _failures = world.sender().prepare(world.planned(), world.peer_name)
    world.send(made, world.receiver().open(made, [str(world.folder)]))
    assert 100 <= taker(world).look("db01").takeover.age(time.time()) < 200
    refused(world, "TooOld", r"is 1\d\d s old; flexdisk_max_data_loss allows 90 s", 90)
    assert take(world, 900)
    assert world.peer.hashes(VM) == hashes


# -- several hosts with replicas


@pytest.fixture
def three(world):
    """hv03 has replicas, too. Syncs go to hv02 and hv03 by turns, the last to hv02."""
    world.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    world.others = {"hv02": world.peer, "hv03": world.host(3)}
    for name in ("hv02", "hv03", "hv02", "hv03", "hv02"):
        synced_with(world, name)
    return world


def synced_with(world, name):
    """A sync with one of the hosts, and something new before."""
    world.peer, world.peer_name = world.others[name], name
    world.write(0, 1, world.serial % 60)
    assert world.sync()[1]


def rivals(world):
    """What the hosts could bring back, as they tell each other."""
    (record,) = mark(world, True).records
    by_host = {}
    for name, host in world.others.items():
        told_ = failover_start._result_of_record(host.zfs(), Copies(host), KnownVm(record, "zones"), True)
        by_host.update({one.host: one for one in read_rivals({name: [json.loads(json.dumps(told_))]}, VM)})
    return by_host["hv02"], by_host["hv03"]


def better(mine, other, most=None):
    return list(better_elsewhere(mine, [other], most))


def test_who_loses_less_is_told_by_the_snapshots(three):
    """Whatever the clocks of the hosts say. The word about what may be lost decides without a comparison."""
    for last in ("hv02", "hv03", "hv02"):
        synced_with(three, last)
        two, other = rivals(three)
        newer, older = (two, other) if last == "hv02" else (other, two)
        for fast, slow in ((newer, older), (older, newer)):  # the clock of one host is fast
            there = {fast.host: "2026-01-01T09:00:00Z", slow.host: "2026-01-01T01:00:00Z"}
            new, old = (one._replace(synced=there[one.host]) for one in (newer, older))
            assert better(new, old) == []
            ((code, message),) = better(old, new)
            assert (code, f"flexdisk_target={last} loses less" in message) == ("TooOld", True)
            assert better(old, new, 900) == []


def test_it_is_not_told_if_the_snapshots_do_not_say(three):
    """The replicas of a host were given up while it was away, and their sets went: both hosts are named."""
    for disk in three.disks().values():
        for name in three.home.points(disk):
            if name.startswith(f"flexdisk-sync-{short_peer(guid(three.others['hv02']))}"):
                three.home.ok("zfs", "destroy", f"{disk}@{name}")
    synced_with(three, "hv03")
    two, other = rivals(three)
    for mine, rival in ((two, other), (other, two)):
        ((code, message),) = better(mine, rival)
        assert code == "Ambiguous"
        assert f"neither the replicas on {rival.host} nor those on {mine.host} have the other's set" in message
        assert better(mine, rival, 900) == []
    ((code, message),) = better(two, other._replace(pool=1))
    assert (code, "(pool guid 1)" in message) == ("Ambiguous", True)


def test_a_host_whose_replicas_were_written_to_is_named(three):
    """It may have more. It says what is wrong."""
    three.peer = three.others["hv03"]
    written(three)
    two, other = rivals(three)
    ((code, message),) = better(two, other)
    assert code == "Ambiguous"
    assert "hv03 has replicas of it, too, and does not know how new they are: disk root: " in message
    assert "was written to since its newest snapshot" in message


# -- disks that have come or gone since the record was stored


def more(world):
    """The VM has got a third disk, and its replica has come; the record could not be stored."""
    protect(world)
    done(world, ROOT, DATA, {"name": "more", "size": 24}, flexible_disk_size=512)
    assert world.sync()[1]
    return list(world.disks())[-1]


def test_a_disk_that_the_record_does_not_have(world):
    """It is named before anything is done, and its replica stays."""
    uuid = more(world)
    (message,) = taker(world).look("db01").takeover.losses
    assert f"{REPLICAS}/{uuid} is of a disk that the record of db01 lacks" in message
    assert take(world)
    assert uuid not in [disk["uuid"] for disk in world.peer.disks(VM)]
    assert world.peer.ok("guest", "hash", f"{REPLICAS}/{uuid}") == world.hashes()[-1]


def test_a_disk_whose_replica_is_still_coming(world):
    """Not one snapshot of it is whole."""
    protect(world)
    done(world, ROOT, DATA, {"name": "more", "size": 24}, flexible_disk_size=512)
    world.home.ok("guest", "write", list(world.disks().values())[-1], "0", "9", "more")
    world.cut = 90000
    assert not world.sync()[1]
    world.cut = 0
    assert "is of a disk that the record of db01 lacks" in " ".join(lost(world))


def less(world):
    """The second disk has left the VM, and the first has a newer set; the record could not be stored."""
    protect(world)
    uuid = list(world.disks())[1]
    done(world, ROOT, unlisted="detach", allow_restart=True)
    world.write(0, 3, 9)
    assert world.sync()[1]
    return uuid


def test_a_disk_that_has_left_the_vm(world):
    """It is left out by word. A run that was killed goes on without it, whatever it is told."""
    uuid = less(world)
    hashes = world.hashes()
    refused(world, "NoCompleteSet", r"If a disk had left the VM, flexdisk_leave_out names it: data")
    with pytest.raises(FlexdiskError, match="the record of VM db01 has no disk strange"):
        taker(world).take("db01", None, ["strange"])
    with pytest.raises(FlexdiskError, match="VM db01 boots from disk root"):
        taker(world).take("db01", None, ["root"])
    saved, known = world.saved(), records.load(VM, records.FAILOVER)
    world.fuse = Fuse()
    assert taker(world).take("db01", None, ["data"])
    count = world.fuse.counted
    for at in range(3, count, 9):
        world.restore(saved)
        records.save(VM, known, records.FAILOVER)
        records.remove(VM)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            taker(world).take("db01", None, ["data"])
        world.fuse = Fuse()
        begun = taker(world).look("db01").begun
        taker(world).take("db01", None, [] if begun else [uuid])
        assert world.peer.hashes(VM) == hashes
        assert world.peer.ok("zfs", "list", "-H", "-o", "name", f"{REPLICAS}/{uuid}")


OTHER = "bbbbbbbb-0000-4000-8000-000000000001"


def test_a_disk_that_has_become_one_of_another_vm(world):
    """Both are replicated, and the record of the first could not be stored since. It may be left out by word."""
    protect(world)
    uuid = list(world.disks())[1]
    world.peer.ok("zfs", "set", f"flexdisk:replica.vm={OTHER}", f"{REPLICAS}/{uuid}")
    known = KnownVm(read_record(records.load(VM, records.FAILOVER)["record"]), "zones")
    (problem,) = taker(world).predict_problems(known, True)
    assert (problem.disk, problem.code) == ("data", "NoCompleteSet")
    text = f"it is a disk of VM {OTHER} by now, says its replica {REPLICAS}/{uuid}, so it has left this VM"
    refused(world, "NoCompleteSet", f"{text}; flexdisk_leave_out names it")
    assert taker(world).take("db01", None, ["data"])
    assert len(world.peer.disks(VM)) == len(world.names) - 1
    assert world.peer.ok("zfs", "list", "-H", "-o", "name", f"{REPLICAS}/{uuid}")


def test_the_boot_disk_of_another_vm_cannot_be_left_out(world):
    protect(world)
    world.peer.ok("zfs", "set", f"flexdisk:replica.vm={OTHER}", replica(world, 0))
    refused(world, "NoCompleteSet", "so it has left this VM$")


def test_a_disk_that_left_the_vm_long_ago(world):
    """Its replica is older than the set, and no loss."""
    less(world)
    store(world, mark(world).records)
    assert taker(world).look("db01").takeover.losses == []


def test_a_replica_that_was_going_back(world):
    """The home died while a sync took a rollback over. The replica looks as if it was written to."""
    protect(world)
    hashes = world.hashes_there()
    where = replica(world, 0)
    world.peer.ok("zfs", "set", "flexdisk:replica.back=on", where)
    world.peer.ok("zfs", "set", "readonly=off", where)
    world.peer.ok("guest", "write", where, "0", "1", "strange")
    assert take(world)
    assert world.peer.hashes(VM) == hashes
    for disk in world.peer.disks(VM):
        assert world.peer.ok("zfs", "get", "-H", "-o", "value", "flexdisk:replica.back", disk["dataset"]) == "-"


def test_a_failover_that_was_begun_only_goes_on(world):
    """A move does not take it up, nor give it up, and the old home sends nothing more."""
    protect(world)
    saved, world.fuse = world.saved(), Fuse()
    take(world)
    count = world.fuse.counted
    world.restore(saved)
    store(world, mark(world, True).records)
    for at in range(1, count):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            take(world)
        world.fuse = Fuse()
        if observe(world.peer.zfs(), world.peer.driver(), all_pools=True).moves:
            break
    target = hosts(world)[1]
    assert "InUse" in {problem.code for problem in target.refusals(look(world)["record"], "zones")}
    with pytest.raises(FlexdiskError, match="it is being taken over from hv01; the playbook failover_vm goes on"):
        target.cancel(VM)
    assert "AlreadyExists" in {problem.code for problem in world.planned().problems}
    assert take(world)


# -- a host has booted


def booted(world):
    """The home has lost power while the VM ran."""
    protect(world)
    world.home.power_off(VM)


def said_by(host, name=""):
    return json.loads(json.dumps(failover_start.look(host.zfs(), host.driver(), Copies(host), name)))["vms"]


def start(world, answers, unasked=False, check=False):
    return failover_start.start(
        world.home.zfs(), world.home.driver(), read_claims(answers), unasked, check, world.home_name
    )


def test_a_host_that_has_booted_starts_its_vms(world):
    booted(world)
    answers = {"hv02": said_by(world.peer)}
    for check, started in ((True, True), (False, True), (True, False), (False, False)):
        done = start(world, answers, check=check)
        assert (done.started, done.left, done.failures) == ([f"db01 ({VM})"] if started else [], [], [])
    assert (wish(world.home), world.home.power(VM)) == (("on:0", False), "running")


def test_a_vm_that_shall_not_run_is_not_started(world):
    world.home.set_autoboot(VM, False)
    booted(world)
    assert start(world, {"hv02": []}) == ([], [], [], [])


@pytest.mark.parametrize("answers", [{}, {"hv02": ""}])
def test_a_peer_that_cannot_be_asked(world, answers):
    booted(world)
    done = start(world, answers)
    assert (done.started, done.left) == ([], [])
    assert "hv02 could not be asked whether they have taken it over" in done.failures[0]
    assert world.home.power(VM) == "stopped"
    assert start(world, answers, unasked=True).started


def test_a_vm_that_was_taken_over_is_not_started(world):
    """Neither once it is there, nor in the middle. The new home starts it after its own boot."""
    booted(world)
    saved, known = world.saved(), records.load(VM, records.FAILOVER)
    world.fuse = Fuse()
    take(world)
    count = world.fuse.counted
    done = start(world, {"hv02": said_by(world.peer)}, unasked=True)
    assert (done.started, done.failures) == ([], [])
    assert done.left == [f"db01 ({VM}): hv02 has taken it over"]
    old = said_by(world.home)
    begun = 0
    for at in range(1, count, 4):
        world.restore(saved)
        records.save(VM, known, records.FAILOVER)
        records.remove(VM)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            take(world)
        world.fuse = Fuse()
        if observe(world.peer.zfs(), world.peer.driver(), all_pools=True).moves:
            begun += 1
            assert start(world, {"hv02": said_by(world.peer)}, unasked=True).left
    assert begun
    take(world)
    world.peer.power_off(VM)
    swap(world)
    assert start(world, {"hv01": old}).started


def test_nobody_starts_what_another_host_runs(world):
    """The VM was started by hand on its old home, or the order of both hosts is not clear."""
    booted(world)
    (claim,) = said_by(world.home)
    for answers, message in (
        ({**claim, "term": -1, "running": True}, "hv02 has it, too"),
        (claim, "hv02 has it, too"),
    ):
        done = start(world, {"hv02": [answers]}, unasked=True)
        assert (done.started, done.left) == ([], [])
        assert message in done.failures[0]
    assert start(world, {"hv02": [{**claim, "term": -1}]}).started


def test_a_vm_whose_replicas_are_not_known_is_not_started(world):
    booted(world)
    world.sender().remove(["db01"], world.peer_name, False)
    (message,) = start(world, {"hv02": []}).failures
    assert "no replicas of it are known" in message
    assert "flexdisk_start_unasked=true starts it" in message
    assert "flexdisk_replica_state=absent and flexdisk_failover=false" in message
    assert start(world, {"hv02": []}, unasked=True).started


def test_what_a_move_has_made_there_has_taken_nothing_over(world):
    """The move was killed before the VM was stopped, and then its host has booted."""
    booted(world)
    hosts(world)[1].expect(look(world)["record"], "zones")
    answers = said_by(world.peer)
    assert answers == []
    assert start(world, {"hv02": answers}).started


@VMADM
def test_autoboot_is_off_if_the_start_fails(world, monkeypatch):
    booted(world)

    def fails(self, uuid, saved=False):
        del saved
        self._runner(("vmadm", "update", uuid), stdin='{"autoboot": true}')
        raise FlexdiskError("VmNotStarted", "it is stopped")

    monkeypatch.setattr(Vmadm, "start", fails)
    assert "VmNotStarted" in start(world, {"hv02": []}).failures[0]
    assert world.home.autoboots(VM) is False


def test_a_failover_that_is_refused_late_leaves_nothing(world, monkeypatch):
    """Its disks would not fit after the VM was made without them."""
    everything(world)

    def refuses(*_words):
        raise FlexdiskError("InsufficientSpace", "too small")

    monkeypatch.setattr(MoveTarget, "_rehearse", refuses)
    with pytest.raises(FlexdiskError, match="too small"):
        take(world)
    host = observe(world.peer.zfs(), world.peer.driver(), all_pools=True)
    assert (host.configs, host.moves) == ((), {})
    assert not taker(world).look("db01").begun
    monkeypatch.undo()


def test_the_record_names_replicas_on_third_hosts(world):
    """Not when they were brought up to date: a sync with one of them is no news for the others."""
    world.home.ok("zfs", "set", "flexdisk:replicas=0000002a=hv03@2026-01-01T00:00:00Z", *world.disks().values())
    assert world.sync()[1]
    home = FailoverHome(world.home.zfs(), world.home.driver(), world.home)
    (record,) = home.set_failover(["db01"], True, "hv01", False, "hv02").records
    assert {disk.replicas for disk in record.disks} == {f"0000002a=hv03@/{record.home}"}
