# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The snapshots of a VM move with it, killed at every command."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

import pytest
from simnode import Node, PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm, vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.report import snapshots_result
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.streams import (
    Increment,
    Rollback,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import (
    FlexdiskError,
    Problem,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.snapshots import snapshots_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted
from tests.unit.four_steps import four_steps

from .test_move import (
    EVERY,
    POLICY,
    config,
    findings,
    hosts,
    killed_moves,
    leave,
    look,
    move,
    never_both,
    swap,
)
from .test_move import linux as domains
from .test_other_tasks import DATA, ROOT, done, snapshot
from .world import REPLICAS, VM, Fuse, Killed, World

PLACE = f"zones/{VM}"
SOME = EVERY if EVERY == 1 else 3 * EVERY  # an odd number, too


@pytest.fixture
def world(request, tmp_path, monkeypatch):
    """A running VM with two snapshots, and the hashes of its disks then: made.then. A disk that is a file has grown."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = MAKE[getattr(request, "param", "vmadm")](tmp_path, monkeypatch)
    made.then = {}
    for name in ("one", "two"):
        take(made, name)
    made.write(0, 4, 7)
    if "logs" in made.names:
        done(made, ROOT, DATA, {"name": "logs", "size": 24})
    return made


def smartos(tmp_path, monkeypatch):
    made = World(tmp_path, monkeypatch)
    root, data = made.disks()
    done(made, {**ROOT, "uuid": root}, {**DATA, "uuid": data}, flexible_disk_size=512)
    made.home.ok("vmadm", "start", VM)
    return made


def linux(tmp_path, monkeypatch):
    """A domain, which has a disk that is a file."""
    made = domains(tmp_path, monkeypatch)
    done(made, ROOT, DATA, {"name": "logs"}, flexible_disk_size=512)
    return made


MAKE = {"vmadm": smartos, "libvirt": linux}
BOTH = pytest.mark.parametrize("world", [*MAKE], indirect=True)


def take(world, name):
    """A snapshot, and something that was written before it."""
    for disk in range(1, len(world.names)):
        world.write(disk, 5, len(world.then))
    world.then[name] = contents(world)
    assert snapshot(world, name=name)


def vm_of(host):
    (vm,) = observe(host.zfs(), host.driver()).vms
    return vm


def contents(world):
    """The hashes and sizes of the disks."""
    return world.hashes(), [disk.size for disk in vm_of(world.home).disks]


def shown(host):
    return snapshots_result(vm_of(host), True)


def back(world, name):
    """All disks go back to a snapshot, and what is newer is given up."""
    assert snapshot(world, name=name, state="rolled_back", destroy_newer=True)
    assert contents(world) == world.then[name]
    names = list(world.then)
    for newer in names[names.index(name) + 1 :]:
        del world.then[newer]
    assert [entry["name"] for entry in shown(world.home)] == list(world.then)


def known(host):
    """The configuration without what follows events of ZFS only, and without the time of the root's own snapshots."""
    config_now = config(host)
    config_now.pop("free_space", None)
    return {**config_now, "snapshots": sorted(one["name"] for one in config_now.get("snapshots", ()))}


def state(world):
    """What must be the same on the other host."""
    sizes = [[part.volsize for part in disk.snapshots if "vmsnap-" in part.name] for disk in vm_of(world.home).disks]
    return known(world.home), shown(world.home), world.hashes(), sizes


def arrived(world, before):
    """The VM is on the other host as it was, with its snapshots; here are its replicas, with their parts."""
    assert not world.home.power(VM)
    uuids = [disk["uuid"] for disk in world.peer.disks(VM)]
    assert [world.home.ok("guest", "hash", f"{REPLICAS}/{uuid}") for uuid in uuids] == before[2]
    for uuid in uuids:
        points = world.home.points(f"{REPLICAS}/{uuid}")
        assert [name for name in points if name.startswith("vmsnap-")] == [f"vmsnap-{n}" for n in world.then]
    swap(world)
    for one, other in zip(state(world), before, strict=True):
        assert one == other
    swap(world)
    host = observe(world.peer.zfs(), world.peer.driver())
    (result,) = host.vms
    assert result.root.quota == result.root.reservation == space.expected_quota(result, host.geometry["zones"])
    assert (result.interrupted, host.moves) == (None, {})
    assert not any(one.strange for one in snapshots_of(result))
    assert findings(world) == []


@BOTH
def test_they_arrive(world):
    before = state(world)
    world.guard = lambda: never_both(world)
    assert move(world)
    arrived(world, before)
    assert not move(world)
    arrived(world, before)
    assert [entry["disks"] for entry in shown(world.peer)] == [list(world.names)] * 2


@pytest.mark.parametrize("world", ["libvirt"], indirect=True)
def test_a_file_that_grows_between_two_syncs(world):
    """The snapshot of the first sync has the old size, and goes with the second: the VM has not changed."""
    assert world.sync()[1]
    done(world, ROOT, DATA, {"name": "logs", "size": 32})
    sizes = state(world)[3]
    assert move(world)
    swap(world)
    assert state(world)[3] == sizes


@BOTH
@pytest.mark.parametrize("name", ["one", "two"])
def test_the_disks_go_back_where_they_arrived(world, name):
    move(world)
    swap(world)
    world.write(0, 3, 20)
    back(world, name)
    world.write(0, 3, 30)
    back(world, name)


class Home:
    """The host with the VM, for four_steps."""

    def __init__(self, world):
        self.world = world

    def fingerprint(self):
        node = self.world.home.node
        return node.pools.to_json()["pools"], config(self.world.home)


@BOTH
@pytest.mark.parametrize(
    "options",
    [
        {"name": "three"},
        {"name": "one", "state": "absent"},
        {"name": "two", "state": "absent"},
        {"name": "three", "keep": {"last": 1, "daily": None, "weekly": None, "names": ["*"]}},
    ],
    ids=["take", "delete", "delete-newest", "keep"],
)
def test_tasks_where_they_arrived(world, options):
    """In four steps, each as if the VM had always been there."""
    move(world)
    swap(world)
    world.write(0, 3, 20)

    def go(check):
        zfs, hypervisor = world.home.zfs(), world.home.driver()
        return vm_snapshot.run(zfs, hypervisor, ["db01"], wanted(**options), POLICY, None, check, NOW)

    room = space.allocatable(vm_of(world.home))
    frees = {entry["name"]: entry["frees_bytes"] for entry in shown(world.home)}
    four_steps(Home(world), go, lambda ended: {"names": names(ended)})
    if options.get("state") == "absent":
        assert space.allocatable(vm_of(world.home)) - room == frees[options["name"]]


def names(ended):
    return [[one["name"] for one in vm["snapshots"]] for vm in ended.vms]


RAIDZ = PoolSpec("zones", 64 << 30, 12, [{"type": "raidz1", "disks": 5}])


def expected(world, record, checks):
    """The problems that the target finds, after a check or before the VM is stopped."""
    target = hosts(world)[1]
    if checks:
        return target.predict_problems(record, "zones")
    try:
        target.expect(record, "zones")
    except FlexdiskError as exc:
        return [Problem(exc.code, exc.message)]
    return []


CHECKS = pytest.mark.parametrize("checks", [False, True], ids=["real", "check"])


@CHECKS
def test_snapshots_take_more_space_on_a_pool_of_another_layout(world, checks):
    """What they pin there is counted before the VM is stopped, also in check mode if the replicas are there."""
    world.peer.node = Node.create(None, [RAIDZ], 7)
    done(world, ROOT, DATA, flexible_disk_size=space.smallest_flexible_mib(vm_of(world.home)))
    assert expected(world, look(world)["record"], True) == []
    assert world.sync()[1]
    (problem,) = expected(world, look(world)["record"], checks)
    assert problem.code == "InsufficientSpace"
    assert re.search(r"flexible_disk_size.* too small: disks and snapshots need", problem.message)


@CHECKS
def test_what_they_pin_there_is_what_was_counted(world, checks, monkeypatch):
    """The rehearsal promises no byte too few, and asks for none too many."""
    world.peer.node = Node.create(None, [RAIDZ], 7)
    done(world, ROOT, DATA, flexible_disk_size=1024)
    assert world.sync()[1]
    counted = {}

    def noted(*arguments, **more):
        for disk in arguments[8] if len(arguments) > 8 else ():
            counted[disk.uuid] = disk.volume.pinned
        return run(*arguments, **more)

    run = vm.run
    with monkeypatch.context() as patch:
        patch.setattr(vm, "run", noted)
        assert expected(world, look(world)["record"], checks) == []
    assert move(world)
    assert counted == {disk.uuid: disk.volume.pinned for disk in vm_of(world.peer).disks}
    assert counted
    assert all(counted.values())


def test_snapshots_that_the_sync_will_destroy_are_not_counted(world):
    """The disks have lost them, and the replicas not yet."""
    assert world.sync()[1]
    for name in ("one", "two"):
        arguments = (Zfs(world.home), Vmadm(world.home, lambda _s: None), ["db01"], wanted(state="absent", name=name))
        assert vm_snapshot.run(*arguments, POLICY, None, False, NOW).problems == []
    done(world, ROOT, DATA, flexible_disk_size=space.smallest_flexible_mib(vm_of(world.home)))
    assert expected(world, look(world)["record"], True) == []
    assert move(world)


def test_check_mode_rehearses_the_arrival(world):
    """What would refuse the disks does so, although the VM is not made."""
    assert world.sync()[1]
    record = look(world)["record"]
    assert expected(world, record, True) == []
    disks = tuple(replace(disk, pci_slot="0:0:0") for disk in record.disks)
    (problem,) = expected(world, replace(record, disks=disks), True)
    assert re.search(r"0:0:0.* is asked for by root and data", problem.message)
    assert observe(Zfs(world.peer), Vmadm(world.peer), extra_pool="zones").configs == ()


@BOTH
def test_there_and_back_and_there(world):
    """By increments. Snapshots that were taken and deleted on the way are those that there are."""
    move(world)
    swap(world)
    take(world, "three")
    (planned,) = world.planned().syncs
    assert all(disk.streams[0].base.bookmark for disk in planned.disks)
    assert move_on(world)
    assert snapshot(world, name="one", state="absent")
    del world.then["one"]
    take(world, "four")
    assert move_on(world)
    world.write(0, 2, 1)
    back(world, "four")
    back(world, "three")
    assert move_on(world)
    back(world, "two")
    assert snapshot(world, name="two", state="absent")
    assert shown(world.home) == []


def move_on(world):
    """To the other host, which is home then."""
    before = state(world)
    (planned,) = world.planned().syncs
    assert all(isinstance(one, (Increment, Rollback)) for disk in planned.disks for one in disk.streams)
    changed = move(world)
    arrived(world, before)
    swap(world)
    return changed


def here(_world):
    """The VM has never moved."""


def there(world):
    """The VM has moved here before, and has taken another snapshot."""
    move(world)
    swap(world)
    take(world, "three")


def gone_back(world):
    """The VM has moved here before, and all disks have gone back to a snapshot from before."""
    move(world)
    swap(world)
    back(world, "one")


@BOTH
@pytest.mark.parametrize("scenario", [here, there, gone_back])
def test_killed_anywhere(world, scenario):
    """The same command goes on, and every snapshot is there."""
    scenario(world)
    before = state(world)
    points = killed_moves(world, SOME, lambda: arrived(world, before))
    swap(world)
    world.write(0, 3, 40)
    back(world, "one")
    print(f"{scenario.__name__}: {points} points")


@BOTH
def test_a_rollback_killed_anywhere(world):
    """The same task goes on where they arrived."""
    move(world)
    swap(world)
    world.write(0, 3, 20)
    then, saved = dict(world.then), world.saved()
    world.fuse = Fuse()
    back(world, "one")
    count = world.fuse.counted
    for at, after in list(itertools.product(range(1, count + 1), (False, True)))[::SOME]:
        world.restore(saved)
        world.then = dict(then)
        world.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            back(world, "one")
        world.fuse = Fuse()
        snapshot(world, name="one", state="rolled_back", destroy_newer=True)
        assert contents(world) == then["one"]
        assert [entry["name"] for entry in shown(world.home)] == ["one"]
        assert vm_of(world.home).config.state == "running"


def test_a_part_that_is_strange_stays_strange(world):
    """What was not taken with the others here is not taken with them there."""
    disk = world.disks()[next(iter(world.disks()))]
    world.home.ok("zfs", "destroy", f"{disk}@vmsnap-one")
    world.write(0, 1, 1)
    world.home.ok("zfs", "snapshot", f"{disk}@vmsnap-one")
    for _host in range(2):
        (problem,) = problems(world, name="one", state="rolled_back", destroy_newer=True)
        assert problem.code == "Ambiguous"
        assert "disk0@vmsnap-one has the name of snapshot one, but was not taken with it" in problem.message
        move(world)
        swap(world)


def problems(world, **options):
    zfs, hypervisor = world.home.zfs(), world.home.driver()
    return vm_snapshot.run(zfs, hypervisor, ["db01"], wanted(**options), POLICY, None, False, NOW).problems


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        (("zfs", "destroy", f"{PLACE}@vmsnap-one"), "NotSupported", "is all that is left of snapshot one; vm_snapshot"),
        (("zfs", "hold", "mine", f"{PLACE}@vmsnap-one"), "InUse", "@vmsnap-one has clones or holds"),
        (("zfs", "clone", f"{PLACE}@vmsnap-one", "zones/copy"), "InUse", "@vmsnap-one has clones or holds"),
    ],
    ids=["remainder", "hold", "clone"],
)
def test_refused(world, how, code, text):
    world.home.ok(*how)
    (problem,) = look(world)["refusals"]
    assert problem.code == code
    assert re.search(text, problem.message)


def test_a_snapshot_that_is_taken_while_it_is_brought_over(world):
    seen = look(world)
    assert world.sync()[1]
    take(world, "three")
    with pytest.raises(FlexdiskError, match="was changed while it was brought over"):
        hosts(world)[0].leave(VM, "hv01", "hv02", 1, seen["digest"])
    assert look(world)["move"] is None


def test_a_replica_without_a_part(world):
    """The VM is not stopped, for the part cannot come any more."""
    assert world.sync()[1]
    replica = f"{REPLICAS}/{next(iter(world.disks()))}"
    world.peer.ok("zfs", "destroy", f"{replica}@vmsnap-one")
    with pytest.raises(FlexdiskError, match=r"lack a part of its snapshot one, .*give them up") as caught:
        hosts(world)[1].expect(look(world)["record"], "zones")
    assert caught.value.code == "ReplicaChanged"
    assert not list(world.folder.glob("moves/*"))


def test_check_mode_finds_a_replica_without_a_part(world):
    """But only if the part cannot come any more."""
    assert world.sync()[1]
    replica = f"{REPLICAS}/{next(iter(world.disks()))}"
    take(world, "three")
    assert expected(world, look(world)["record"], True) == []
    world.peer.ok("zfs", "destroy", f"{replica}@vmsnap-one")
    (problem,) = expected(world, look(world)["record"], True)
    assert problem.code == "ReplicaChanged"
    assert "lack a part of its snapshot one, and get no older" in problem.message
    world.peer.ok("zfs", "release", "flexdisk-replica", f"{replica}@{world.peer.points(replica)[-1]}")
    world.peer.ok("zfs", "destroy", "-r", replica)
    assert expected(world, look(world)["record"], True) == []


def test_no_room_for_the_part_of_the_root(world):
    """More than the reserve of the VM's own dataset would be missing when all disks are full."""
    target, record = hosts(world)[1], look(world)["record"]
    assert world.sync()[1]
    target.expect(record, "zones")
    world.peer.ok("guest", "write", PLACE, "0", "2", "logs")
    with pytest.raises(FlexdiskError, match=r"needs 2\.\d+ MiB, and 1 MiB is left beside") as caught:
        target.expect(record, "zones")
    assert caught.value.code == "InsufficientSpace"
    target.cancel(VM)
    assert observe(Zfs(world.peer), Vmadm(world.peer), extra_pool="zones").configs == ()


def test_what_another_host_says_of_snapshots_is_data(world):
    record = json.loads(json.dumps(record_as_result(look(world)["record"])))
    assert read_record(record) == look(world)["record"]
    good = record["snapshots"][0]
    for wrong in ({"name": "a@b"}, {"name": "-r"}, {"creation": -1}, {"guids": ["1"]}, {"guids": [1 << 64]}):
        with pytest.raises(FlexdiskError, match="this is no record of a VM"):
            read_record({**record, "snapshots": [{**good, **wrong}]})
    for sizes in ([[1]], [["1", 2]], [[1, -2]], 3):
        with pytest.raises(FlexdiskError, match="this is no record of a VM"):
            read_record({**record, "disks": [{**record["disks"][0], "sizes": sizes}]})


def test_a_move_that_is_given_up(world):
    """The snapshots are as they were, and nothing of them is left there."""
    before = known(world.home), world.hashes()
    source, target = hosts(world)
    seen = look(world)
    assert world.sync()[1]
    target.expect(seen["record"], "zones")
    leave(world, seen)
    assert world.sync()[1]
    source.stay(VM)
    target.cancel(VM)
    assert (known(world.home), world.hashes()) == before
    assert observe(Zfs(world.peer), Vmadm(world.peer), extra_pool="zones").configs == ()
    back(world, "one")
