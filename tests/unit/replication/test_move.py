# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM moves between two simulated nodes, killed at every command."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from dataclasses import replace

import pytest
from simnode.vmadm.admin import COMMANDS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock, progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.host_info import host_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_arrival import MoveTarget
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_departure import MoveSource
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import (
    records,
    replica_send_run,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_info import (
    replica_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication.replica_send_run import (
    SendArguments,
    StepCall,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.peers import read_peer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
    variables_of,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.resources import Resources
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import moves, space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.replicas import (
    decode_notes,
    short_peer,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies
from tests.unit.domains.conftest import domain

from .controller import Controller
from .linux import NVRAM, LinuxWorld, SecretLinuxWorld
from .test_engine import TWIN, _fill
from .test_other_tasks import DATA, ROOT, done, task
from .world import REPLICAS, VM, Fuse, Killed, TwoSecretsWorld, World

FILE = {"name": "logs", "type": "file", "size": 16}
PARKED = "zones/flexdisk/x"
EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 15  # an odd number: before and after a command by turns
POLICY = Policy(allow_restart=True, stop_timeout=9, allow_force_stop=True)


@pytest.fixture
def world(request, tmp_path, monkeypatch):
    """A running VM without free space, whose disks have names."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return MAKE[getattr(request, "param", "vmadm")](tmp_path, monkeypatch)


def smartos(tmp_path, monkeypatch, kind=World):
    made = kind(tmp_path, monkeypatch)
    root, data = made.disks()
    done(made, {**ROOT, "uuid": root}, {**DATA, "uuid": data, "size": "remaining"}, flexible_disk_size=192)
    made.home.node.run(["vmadm", "update", VM], json.dumps({"set_customer_metadata": {"root_pw": "secret"}}))
    (path,) = (disk["path"] for disk in made.home.config(VM)["disks"] if disk["uuid"] == data)
    given = {"path": path, "guest_block_size": "512/4096", "notrim": True}
    made.home.node.run(["vmadm", "update", VM], json.dumps({"update_disks": [given]}))
    made.home.ok("vmadm", "start", VM)
    return made


def secret(tmp_path, monkeypatch):
    """Both pools are encrypted. There are replicas, whose keys somebody has loaded for a move."""
    return with_keys(smartos(tmp_path, monkeypatch, TwoSecretsWorld))


def secret_linux(tmp_path, monkeypatch):
    return with_keys(linux(tmp_path, monkeypatch, SecretLinuxWorld))


def with_keys(made):
    assert made.sync() == (True, True)
    for uuid in made.disks():
        made.peer.load(f"{REPLICAS}/{uuid}")
    return made


def two_disks(tmp_path, monkeypatch):
    """A domain without a disk in a file."""
    made = LinuxWorld(tmp_path, monkeypatch)
    made.names = ("root", "data")
    driver = made.home.driver()
    driver.vm(VM)
    driver.add_ports(VM, [7])  # it would get one with its disks where it comes
    done(made, {**ROOT, "pci_slot": "2:0:0"}, {**DATA, "pci_slot": "3:0:0"}, flexible_disk_size=97)
    made.home.domains.boot(VM)
    made.home.domains.set_autostart(VM, True)
    return made


def linux(tmp_path, monkeypatch, kind=LinuxWorld):
    made = kind(tmp_path, monkeypatch)
    disks = [{**ROOT, "pci_slot": "2:0:0"}, {**DATA, "pci_slot": "3:0:0", "preserve": True}, FILE]
    done(made, *disks, flexible_disk_size=113)
    made.home.ok("guest", "write", made.home.disks(VM)[2]["dataset"], "0", "9", "file")
    made.home.domains.boot(VM)
    made.home.domains.set_autostart(VM, True)
    return made


MAKE = {"vmadm": smartos, "libvirt": linux, "encrypted": secret, "encrypted-libvirt": secret_linux}
BOTH = pytest.mark.parametrize("world", ["vmadm", "libvirt"], indirect=True)
EACH = pytest.mark.parametrize("world", [*MAKE], indirect=True)
PAIR = {"vmadm": smartos, "libvirt": two_disks}
VMADM = pytest.mark.parametrize("world", ["vmadm"], indirect=True)


@pytest.fixture(params=["vmadm", "libvirt"])
def both(request, tmp_path, monkeypatch):
    """Like world(), for each hypervisor. All tasks list the disk in a file, too."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = MAKE[request.param](tmp_path, monkeypatch)
    made.listed = (FILE,) if len(made.names) > 2 else ()
    return made


@pytest.fixture(params=[*PAIR])
def pair(request, tmp_path, monkeypatch):
    """A running VM with two disks, for each hypervisor."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return PAIR[request.param](tmp_path, monkeypatch)


def hosts(world):
    source = MoveSource(world.home.zfs(), world.home.driver(), world.home, POLICY)
    return source, MoveTarget(world.peer.zfs(), world.peer.driver(), world.peer, POLICY, str(world.authorized))


def swap(world):
    """The way back."""
    world.home, world.peer = world.peer, world.home
    world.home_name, world.peer_name = world.peer_name, world.home_name


def guid(host):
    return int(host.ok("zfs", "get", "-Hp", "-o", "value", "guid", "zones"))


def move(world, how="stopped"):
    """The role vm_move. Whether the VM has come now."""
    controller = Controller(world, {**world.named, world.home_name: world.home, world.peer_name: world.peer})
    stop = {"stop_timeout": POLICY.stop_timeout, "allow_force_stop": POLICY.allow_force_stop}
    sync = controller.sync(world.home_name, world.peer_name, [])
    controller.does("move", {"vm": VM, "sync": sync, "how": how, **stop})
    return controller.answers["Give the VM its disks, and start it"].changed


def gone(world, seen):
    """The VM is stopped, and leaves."""
    source, _target = hosts(world)
    announced = world.announced()
    answer = leave(world, seen)
    variables = renew(world)
    source.go(VM, world.peer_name, world.last(announced), answer, variables)


def look(world):
    return hosts(world)[0].look(VM, world.home_name, world.peer_name)


def leave(world, seen):
    """The VM is stopped."""
    return hosts(world)[0].leave(VM, world.home_name, world.peer_name, guid(world.peer), seen["digest"])


def renew(world):
    """What the role does with the UEFI variables of the stopped VM."""
    record = look(world)["record"]
    world.acting(world.peer)
    return hosts(world)[1].renew(record) if variables_of(record) else ""


def startable(host):
    """Whether a host has the VM with its boot disk."""
    return any(host.has(name) for name in host.boots(VM))


def never_both(world):
    assert not (startable(world.home) and startable(world.peer))


def config(host):
    return host.config(VM)


def moved(world, before, hashes):
    """The VM is on the other host as it was, and lawful; here are its replicas and a tombstone."""
    assert not world.home.power(VM)
    after = config(world.peer)
    assert after == before
    there = world.peer.disks(VM)
    assert [world.peer.ok("guest", "hash", disk["dataset"]) for disk in there] == hashes
    uuids = [disk["uuid"] for disk in there]
    assert [world.home.ok("guest", "hash", f"{REPLICAS}/{uuid}") for uuid in uuids] == hashes
    host = observe(world.peer.zfs(), world.peer.driver())
    (result,) = host.vms
    assert result.root.quota == result.root.reservation == space.expected_quota(result, host.geometry["zones"])
    assert (space.allocatable(result), result.interrupted, host.moves) == (world.allocatable, None, {})
    assert [disk.name for disk in result.disks] == list(world.names)
    assert not list(world.folder.glob("moves/*"))


def test_it_tells_where_it_is(world, monkeypatch):
    """Between steps of plans, which tell themselves."""
    told_of, tell = [], progress.Progress._write_position
    monkeypatch.setattr(
        progress.Progress, "_write_position", lambda self: (tell(self), told_of.extend(lock.under_way(None)))
    )
    move(world)
    texts = list(dict.fromkeys(one["text"] for one in told_of if one["vm"] == "db01"))
    phases = ["stop", "its disks become replicas", "its replicas become disks", "start"]
    assert [text for text in texts if text in phases] == phases
    assert len(texts) > len(phases)
    assert lock.under_way(None) == []


@EACH
def test_a_vm_moves(world):
    before, hashes = config(world.home), world.hashes()
    world.guard = lambda: never_both(world)
    assert move(world)
    moved(world, before, hashes)
    assert not move(world)
    moved(world, before, hashes)
    assert findings(world) == []


@BOTH
def test_the_mark_of_a_group_goes_with_the_vm(world):
    """Else its group would refuse it after the move, as one that is only called like a member."""
    world.home.ok("zfs", "set", "flexdisk:member=web-1", f"zones/{VM}")
    move(world)
    assert world.peer.ok("zfs", "get", "-Ho", "value", "flexdisk:member", f"zones/{VM}").strip() == "web-1"


@pytest.mark.parametrize("world", ["libvirt"], indirect=True)
def test_the_file_system_of_a_disk_is_not_mounted_when_it_leaves(world):
    """ZFS writes to it whenever it mounts it, and a replica that was written to takes no increment."""
    seen = set()

    def look_at_files():
        every = world.home.node.pools.pools["zones"].datasets.values()
        gone = [one for one in every if one.name.startswith("zones/flexdisk/") and "flexdisk:type" in one.props]
        seen.update(one.props.get("canmount") for one in gone if one.kind == "filesystem")

    world.watch = look_at_files
    assert move(world)
    assert seen == {"off"}


def killed_moves(world, every, arrived):
    """The move is killed at each of these commands, and the same command ends it: arrived checks that. How many."""
    saved = world.saved()
    world.guard = lambda: never_both(world)
    world.fuse = Fuse()
    move(world)
    points = list(itertools.product(range(1, world.fuse.counted + 1), (False, True)))[::every]
    for at, after in points:
        world.restore(saved)
        world.fuse = Fuse(at, after)
        with pytest.raises(Killed):
            move(world)
        world.fuse = Fuse()
        move(world)
        arrived()
        assert not move(world)
    return len(points)


def findings(world):
    """What disk_verify finds on both hosts."""
    reported = [
        verify(one.zfs(), one.driver(), None, [], None, 30, True, time.time()) for one in (world.home, world.peer)
    ]
    return [finding.kind for one in reported for finding in one.findings]


def test_a_vm_moves_back(world):
    """By increments, and with what was written there. Nothing is left of what the disks have been here before."""
    before = config(world.home)
    done(world, ROOT, {**DATA, "preserve": True, "tags": {"tier": "fast"}})
    assert move(world)
    swap(world)
    done(world, ROOT, {**DATA, "preserve": False, "tags": {}})
    world.write(1, 9, 3)
    hashes = world.hashes()
    (planned,) = world.planned().syncs
    assert all(stream.base.bookmark for disk in planned.disks for stream in disk.streams)
    assert move(world)
    moved(world, before, hashes)
    assert findings(world) == []
    (result,) = observe(world.peer.zfs(), world.peer.driver()).vms
    assert [(disk.preserve, disk.user_properties["tags"]) for disk in result.disks] == [(False, {})] * 2
    swap(world)
    assert not startable(world.peer)
    assert observe(world.peer.zfs(), world.peer.driver()).moves.keys() == {VM}


def here(_world):
    """The VM has never moved."""


def there(world):
    """The VM has moved here before, and there are replicas and a tombstone where it goes."""
    move(world)
    swap(world)
    world.write(1, 9, 3)


@pytest.mark.parametrize(
    ("world", "scenario"),
    [
        ("vmadm", here),
        ("vmadm", there),
        ("libvirt", here),
        ("libvirt", there),
        ("encrypted", here),
        ("encrypted-libvirt", here),
    ],
    indirect=["world"],
)
def test_killed_anywhere(world, scenario):
    """The same command goes on. At no instant both hosts could start the VM."""
    before = config(world.home)
    scenario(world)
    hashes = world.hashes()
    points = killed_moves(world, EVERY, lambda: moved(world, before, hashes))
    print(f"{scenario.__name__}: {points} points")


@pytest.mark.parametrize("world", ["vmadm", "libvirt", "encrypted"], indirect=True)
def test_given_up_anywhere(world):
    """As long as the VM has its disks it can stay: as it was, with nothing left there but replicas."""
    before, hashes, saved = config(world.home), world.hashes(), world.saved()
    world.fuse = Fuse()
    move(world)
    for at in [*range(1, world.fuse.counted, EVERY), world.fuse.counted]:
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            move(world)
        world.fuse = Fuse()
        source, target = hosts(world)
        if not stays(source):
            break
        target.cancel(VM, given_up=source.given_up)
        assert config(world.home) == before
        assert world.hashes() == hashes
        assert not look(world)["move"]
        there = observe(world.peer.zfs(), world.peer.driver(), extra_pool="zones")
        assert (there.configs, there.moves) == ((), {})
        assert not [name for name in there.datasets if name.startswith(f"zones/{VM}")]
        assert "inherited_property" not in findings(world)
    assert observe(world.home.zfs(), world.home.driver(), all_pools=True).moves[VM].phase == "moved"


def log_reset(host, places):
    """A context in which the volumes there have what ZFS writes when it resets their logs."""
    patch, run = pytest.MonkeyPatch(), host.node.run

    def counted(argv, *stdin):
        rc, out, err = run(argv, *stdin)
        return rc, re.sub(rf"^({places}[^@\t]+\twritten\t)0\b", r"\g<1>8192", out, flags=re.MULTILINE), err

    patch.setattr(host.node, "run", counted)
    return patch


def tombstones(world):
    """The move is killed again and again while there is a tombstone, and the VM still here."""
    saved, world.fuse = world.saved(), Fuse()
    move(world)
    reached = 0
    for at in range(world.fuse.counted // 2, world.fuse.counted, EVERY // 3 or 1):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with contextlib.suppress(Killed):  # a run may need fewer commands than the first one
            move(world)
        world.fuse = Fuse()
        seen = look(world)
        if seen["vm"] and seen["move"] and seen["move"]["phase"] == "moved":
            reached += 1
            yield
    assert reached > 2


def test_a_loss_of_power_after_the_tombstone(world):
    """What ZFS resets at the import of the pool was not written by the VM. So the same command goes on."""
    before, hashes = config(world.home), world.hashes()
    for _point in tombstones(world):
        patch = log_reset(world.home, rf"zones/(?:flexdisk/detached|{VM})/")
        assert move(world)
        patch.undo()
        moved(world, before, hashes)


def test_a_vm_that_was_started_without_its_disks(world):
    """Somebody starts what was made on the target. The VM does not count as moved before it has its disks."""
    _source, target = hosts(world)
    seen = look(world)
    world.sync()
    target.expect(seen["record"], "zones")
    gone(world, seen)
    world.peer.ok("vmadm", "start", VM)
    with pytest.raises(FlexdiskError, match="was started before it had its disks"):
        target.arrive(VM, world.home_name)
    assert observe(Zfs(world.peer), Vmadm(world.peer), all_pools=True).moves[VM].phase == "coming"
    world.peer.ok("vmadm", "stop", VM, "-F")
    assert target.arrive(VM, world.home_name)
    assert startable(world.peer)


def test_a_vm_that_stays_knows_its_replicas(world, monkeypatch):
    """The VM could not be deleted. It stays, and its disks still say who has replicas of them."""
    source, target = hosts(world)
    seen = look(world)
    world.sync()
    target.expect(seen["record"], "zones")

    def hangs(_departure, _vm, _known):
        raise FlexdiskError("VmNotStopped", "it hangs")

    monkeypatch.setattr(MoveSource, "_end_vm", hangs)
    with pytest.raises(FlexdiskError, match="it hangs"):
        gone(world, seen)
    source.stay(VM)
    for disk in the_vm(world.home).disks:
        assert [note.host for note in decode_notes(disk.volume.user["replicas"])] == [world.peer_name]


def test_syncs_with_third_hosts_do_not_change_a_vm(world):
    """Its digest is the same."""
    seen = []
    for when in ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"):
        world.home.ok("zfs", "set", f"flexdisk:replicas=0000002a=hv03@{when}", *world.disks().values())
        seen.append(look(world)["digest"])
    assert seen[0] == seen[1]


def stays(source):
    """Whether the VM can stay."""
    try:
        source.stay(VM)
    except FlexdiskError as exc:
        return exc.code not in ("MovedAway", "ResourceNotFound")
    return True


@BOTH
def test_a_tombstone(world):
    """Where the VM was, no task finds it or makes another one of its name or UUID, until the name is given up."""
    move(world)
    source, _target = hosts(world)
    for name in ("db01", VM, VM[:8]):
        assert "MovedAway" in {problem.code for problem in task(world, ROOT, vm=name).problems}
    made = {"vm": "db01", "state": "stopped", "memory": 128, "flexible_disk_size": 64, "disks": [{"size": 16}]}
    (problem,) = created(world, made).problems
    assert problem.code == "MovedAway"
    assert re.search(r"VM db01 \(.*\): it has moved to hv02 \(\d{4}-.*flexdisk_move_state=forgotten", problem.message)
    (problem,) = created(world, {**made, "vm": "other", "uuid": VM}).problems
    assert problem.code == "MovedAway"
    seen = {"hv02": moves.Sighting(VM, "")}
    assert source.forget("db01", seen, check_mode=True)
    assert source.forget("db01", seen)
    assert not source.forget("db01", seen)
    assert not created(world, made).problems


def created(world, declared):
    zfs, hypervisor = world.home.zfs(), world.home.driver()
    return vm.run(zfs, hypervisor, [declared], [], POLICY, "zones", False)


def test_while_it_moves_nobody_changes_it(world):
    _source, target = hosts(world)
    seen = look(world)
    target.expect(seen["record"], "zones")
    leave(world, seen)
    for declared in (
        {"vm": "db01", "state": "running"},
        {"vm": VM, "uuid": VM, "state": "absent", "destroy_disks": True},
    ):
        problems = created(world, declared).problems
        assert "it is being moved to hv02; the playbook move_vm goes on; it cannot be changed" in problems[0].message
    swap(world)
    (problem, *_more) = created(world, {"vm": "db01", "state": "running", "memory": 512}).problems
    assert "it is being moved from hv01" in problem.message


def sightings(world):
    """What the other host says of the VM."""
    seen = hosts(world)[1], MoveSource(world.peer.zfs(), world.peer.driver(), world.peer, POLICY)
    told_ = json.loads(json.dumps({**seen[1].look(VM, "hv02"), "record": None, "refusals": []}))
    return moves.read_sightings({"hv02": told_})


def test_a_tombstone_that_is_needed_is_not_forgotten(world):
    """The move dies before the VM is on its new host: the tombstone is what the same command goes on with. Whoever was
    not asked does not have the VM.
    """
    saved, world.fuse, uuids = world.saved(), Fuse(), list(world.disks())
    move(world)
    retained, gone_ = 0, 0
    for at in range(world.fuse.counted * 2 // 3, world.fuse.counted, EVERY // 3 or 1):
        world.restore(saved)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            move(world)
        world.fuse = Fuse()
        if look(world)["vm"] or not look(world)["move"]:
            continue
        seen = sightings(world)
        if seen["hv02"].vm and not seen["hv02"].phase:
            gone_ += 1
            assert hosts(world)[0].forget("db01", seen)
            continue
        retained += 1
        for unseen in (False, True):
            with pytest.raises(FlexdiskError, match="it is on its way to hv02, and its tombstone is needed until"):
                hosts(world)[0].forget("db01", seen, unseen)
        with pytest.raises(FlexdiskError, match="hv02, where it went, was not asked") as caught:
            hosts(world)[0].forget("db01", {})
        assert all(re.search(f"zones/flexdisk(/replica)?/{uuid}", caught.value.message) for uuid in uuids)
        assert move(world)
    assert retained > 1
    assert gone_


def test_nothing_to_end(world):
    """Staying where a move was never begun changes nothing, and says so; else it tells that it did something."""
    source, target = hosts(world)
    assert (source.stay(VM), target.cancel(VM)) == (False, False)
    target.expect(look(world)["record"], "zones")
    assert (source.stay(VM), target.cancel(VM), target.cancel(VM)) == (False, True, False)
    leave(world, look(world))
    assert (source.stay(VM), source.stay(VM)) == (True, False)


@BOTH
def test_a_move_that_is_given_up_before_the_vm_is_stopped(world):
    """It ends there: the other host may stop expecting the VM at any later moment."""
    seen, (source, target) = look(world), hosts(world)
    target.expect(seen["record"], "zones")
    assert world.sync()[1]
    source.stay(VM)
    states: list[str] = []
    world.watch = lambda: states.append(world.home.power(VM))
    with pytest.raises(FlexdiskError, match="or its move was given up; run the move again") as caught:
        leave(world, seen)
    world.watch = lambda: None
    assert (caught.value.code, set(states), look(world)["move"]) == ("Changed", {"running"}, None)
    assert target.cancel(VM, given_up=source.given_up)
    assert move(world)


@BOTH
@pytest.mark.parametrize("stop", ["expected", "gone"])
def test_a_late_word_does_not_cancel_a_move_that_began_after_it(world, stop):
    """Of two users, one gives a move up, and the other begins one before the target has heard of that."""
    before, hashes, (source, target) = config(world.home), world.hashes(), hosts(world)
    source.stay(VM)
    assert world.sync()[1]
    seen = look(world)
    target.expect(seen["record"], "zones")
    if stop == "gone":
        gone(world, seen)
    with pytest.raises(FlexdiskError, match="another move of it has begun since it was given up") as caught:
        target.cancel(VM, given_up=source.given_up)
    assert caught.value.code == "Changed"
    if stop == "expected":
        gone(world, seen)
    assert target.arrive(VM, world.home_name)
    moved(world, before, hashes)


def test_a_move_does_not_end_what_a_later_one_has_stopped(world):
    """It was given up while its last stream was under way, and the VM is leaving for the same host again."""
    seen, (source, target) = look(world), hosts(world)
    assert world.sync()[1]
    target.expect(seen["record"], "zones")
    announced = world.announced()
    answer = source.leave(VM, world.home_name, world.peer_name, guid(world.peer), seen["digest"])
    last = world.last(announced)
    hosts(world)[0].stay(VM)
    seen = look(world)
    target.expect(seen["record"], "zones")
    leave(world, seen)
    with pytest.raises(FlexdiskError, match="this move was given up, and another one has begun") as caught:
        source.go(VM, world.peer_name, last, answer)
    assert (caught.value.code, startable(world.home)) == ("Changed", True)
    assert move(world)


def test_the_last_word_counts(world):
    """Each of them cancels what was expected before, also in the same second, and what 0.2.0 has written down."""
    source, target = hosts(world)
    lines = []
    for _time in range(3):
        target.expect(look(world)["record"], "zones")
        source.stay(VM)
        lines.append(source.given_up)
        assert target.cancel(VM, given_up=lines[-1])
    assert lines == sorted(set(lines))
    target.expect(look(world)["record"], "zones")
    for earlier in lines:
        with pytest.raises(FlexdiskError, match="another move of it has begun"):
            target.cancel(VM, given_up=earlier)
    source.stay(VM)
    assert target.cancel(VM, given_up=source.given_up)


def test_replicas_on_third_hosts_are_not_forgotten(world):
    """The VM still knows them on its next host and the one after that, so that they can be given up there."""
    note = "0000002a=hv03@2026-01-01T00:00:00Z"
    world.home.ok("zfs", "set", f"flexdisk:replicas={note}", *world.disks().values())
    first = guid(world.home)
    for _way in ("there", "back"):
        assert move(world)
        for disk in the_vm(world.peer).disks:
            known = {one.host: (one.peer, one.home) for one in decode_notes(disk.volume.user["replicas"])}
            assert known == {"hv03": ("0000002a", first), world.home_name: (short_peer(guid(world.home)), 0)}
        swap(world)
    assert look(world)["refusals"] == []
    removed = world.sender().remove(["db01"], "hv03", False)
    assert removed.homes == [first]
    assert {len(decode_notes(disk.volume.user["replicas"])) for disk in the_vm(world.home).disks} == {1}


def told_moves(host):
    """What host_info says of moves."""
    moves_here = host_info(Zfs(host), Vmadm(host, lambda _s: None), None)["moves"]
    assert all(move["pool"] == "zones" for move in moves_here)
    return [(move["uuid"], move["alias"], move["phase"], move["host"]) for move in moves_here]


def test_a_host_tells_of_its_moves(world):
    _source, target = hosts(world)
    seen = look(world)
    assert told_moves(world.home) == told_moves(world.peer) == []
    world.sync()
    target.expect(seen["record"], "zones")
    assert told_moves(world.peer) == [(VM, "db01", "coming", "hv01")]
    leave(world, seen)
    assert told_moves(world.home) == [(VM, "db01", "leaving", "hv02")]
    assert move(world)
    assert (told_moves(world.home), told_moves(world.peer)) == ([(VM, "db01", "moved", "hv02")], [])


def the_vm(host):
    (result,) = observe(Zfs(host), Vmadm(host)).vms
    return result


def cdrom(world):
    """The VM has a CD-ROM."""
    added = {"path": "/isos/a.iso", "media": "cdrom", "model": "ahci", "boot": False}
    world.home.ok("vmadm", "stop", VM, "-F")
    assert world.home.node.run(["vmadm", "update", VM], json.dumps({"add_disks": [added]}))[0] == 0


def test_pci_devices_of_a_host():
    row = {"uuid": VM, "brand": "bhyve", "zone_state": "installed", "pci_devices": [{"path": "/devices/a"}]}
    made = Vmadm(lambda *_argv, **_more: Answer(0, json.dumps(row), ""))
    assert made.description(VM).host_bound == ("PCI devices of this host",)


def twin(world, uuid):
    """Another VM of the target has a disk with the uuid of one that comes."""
    payload = {**TWIN, "alias": "twin", "disks": [{"boot": True, "model": "virtio", "size": 16, "uuid": uuid}]}
    assert world.peer.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0


def pinned(world):
    """Somebody holds a snapshot of the VM's own dataset."""
    world.home.ok("zfs", "snapshot", f"zones/{VM}@mine")
    world.home.ok("zfs", "hold", "mine", f"zones/{VM}@mine")


def same_mac(world):
    """The VM has a NIC, and another VM of the target one with the same address."""
    nic = {"nic_tag": "admin", "mac": "90:b8:d0:aa:bb:01", "interface": "net0", "ip": "dhcp"}
    assert world.home.node.run(["vmadm", "update", VM], json.dumps({"add_nics": [nic]}))[0] == 0
    payload = {**TWIN, "alias": "twin", "nics": [nic], "disks": []}
    assert world.peer.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0


def larger(world, *arguments):
    """A command that needs room."""
    done(world, ROOT, DATA, flexible_disk_size=512)
    world.home.ok(*arguments)


def spoiled(world, how):
    how(world)
    _source, target = hosts(world)
    seen = look(world)
    return [*seen["refusals"], *target.refusals(seen["record"], "zones")]


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        (
            lambda w: w.home.ok("zfs", "create", "-p", "-V", "16M", f"{REPLICAS}/{next(iter(w.disks()))}"),
            "AlreadyExists",
            "exists, where its own replica would be",
        ),
        (cdrom, "NotSupported", r"^it has a CD-ROM \(/isos/a.iso\); it does not travel$"),
        (lambda w: twin(w, next(iter(w.disks()))), "AlreadyExists", "has a disk with this uuid already, zones/"),
        (pinned, "InUse", f"zones/{VM}@mine has clones or holds, and would go with the VM's own dataset"),
        (lambda w: larger(w, "zfs", "create", "-V", "16M", f"zones/{VM}/disk7"), "InUse", "it is not whole: zones/"),
        (lambda w: w.home.ok("zfs", "create", f"zones/{VM}/data"), "NotSupported", "it has other datasets"),
        (
            lambda w: w.peer.node.run(["vmadm", "create"], json.dumps({**TWIN, "alias": "db01"})),
            "InvalidArgument",
            "the uuid of VM db01 .* is not",
        ),
        (
            lambda w: w.peer.ok(*f"zfs create -p -V 16M -o flexdisk:name=root -o flexdisk:vm={VM} {PARKED}".split()),
            "AlreadyExists",
            "has a detached disk of it already, zones/flexdisk/x",
        ),
        (lambda w: _fill(w.peer, 900), "InsufficientSpace", r"[\d.]+ [MG]iB"),
        (
            lambda w: COMMANDS["machine"](w.peer.node, ["memory=1000", "own=745"]),
            "InsufficientMemory",
            "memory: 256 MiB needed, 255 MiB free on",
        ),
        (same_mac, "NotSupported", "lacks what it needs: the MAC address 90:b8:d0:aa:bb:01, which twin has"),
    ],
    ids=[
        "place", "cdrom", "uuid", "held-snapshot",
        "orphan", "datasets", "name", "detached", "room", "memory", "mac",
    ],
)  # fmt: skip
def test_refusals(world, how, code, text):
    """Each before anything has changed."""
    problems = spoiled(world, how)
    assert code in {problem.code for problem in problems}
    assert any(re.search(text, problem.message) for problem in problems), problems


def edited(world, old, new):
    """Somebody has changed the domain by hand."""
    domains = world.home.domains
    domains.define(domains.xml(VM, False).replace(old, new, 1))


def shared(world):
    """Another domain has a volume of the VM."""
    world.home.domains.add(domain([f"zones/{VM}/disk1"], uuid=TWIN["uuid"], name="other"))


def file_beside(world):
    """The VM has a disk that no task manages."""
    disk = "<disk type='file' device='disk'><source file='/x.qcow2'/><target dev='vdz' bus='virtio'/></disk>"
    edited(world, "</devices>", f"{disk}</devices>")


@pytest.mark.parametrize("world", ["libvirt"], indirect=True)
def test_a_sync_names_the_disks_that_are_left_out(world):
    file_beside(world)
    there = json.loads(json.dumps(replica_info(Copies(world.peer), world.peer.driver())))
    call = Call(world.home.zfs(), world.home.driver(), None, True, world.home)
    given = StepCall({"step": "prepare", "vms": ["db01"], "address": None, "goes_on": False}, print)
    answer = replica_send_run.run(call, given, SendArguments([], read_peer("hv02", "", there), 0))
    [warning] = answer.warnings
    assert warning.startswith(f"db01 ({VM}): disk vdz (/x.qcow2) is left alone: it is a file, and no volume of ZFS")
    assert warning.endswith("; it is not replicated")


def transient(world):
    """The domain has no configuration any more."""
    del world.home.domains.configs[VM]


@pytest.mark.parametrize("world", ["libvirt"], indirect=True)
@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        (lambda w: edited(w, "</devices>", "<hostdev/></devices>"), "NotSupported", "does not travel .*: <hostdev>"),
        (lambda w: w.home.domains.kept.append("snapshots of libvirt (a)"), "NotSupported", "snapshots of libvirt"),
        (
            lambda w: edited(w, 'bus="virtio"', 'bus="sata"'),
            "NotSupported",
            "it is on the bus sata; only disks on virtio",
        ),
        (shared, "InUse", f"zones/{VM}/disk1 is used by other .* as well"),
        (transient, "NotSupported", "the domain is transient"),
        (lambda w: w.peer.domains.lacking.add("default"), "NotSupported", "lacks what it needs: default"),
        (
            lambda w: w.peer.domains.lacking.add("/usr/share/OVMF/OVMF_VARS_4M.fd"),
            "NotSupported",
            "lacks what it needs: /usr/share/OVMF/OVMF_VARS_4M.fd",
        ),
        (lambda w: edited(w, NVRAM, "/vms/db01.fd"), "NotSupported", "in /vms/db01.fd, which is not in"),
        (
            lambda w: w.peer.domains.add(domain([], uuid=TWIN["uuid"], name="twin")),
            "NotSupported",
            "lacks what it needs: the MAC address 52:54:00:aa:bb:cc, which twin has",
        ),
        (
            lambda w: vars(w.peer.domains).update(memory=4096, own=4096),
            "InsufficientMemory",
            "MiB needed, 0 MiB free on",
        ),
        (lambda w: edited(w, "db01", "db 01"), "InvalidArgument", "db 01"),
        (file_beside, "NotSupported", r"^disk vdz \(/x.qcow2\) is left alone: it is a file.*; it does not travel$"),
        (
            lambda w: w.peer.domains.add(domain([], uuid=TWIN["uuid"], name="db01").replace("aa:bb", "aa:00")),
            "InvalidArgument",
            "is not",
        ),
    ],
    ids=[
        "device",
        "kept",
        "bus",
        "shared",
        "transient",
        "network",
        "firmware",
        "nvram",
        "mac",
        "memory",
        "alias",
        "left-out",
        "name",
    ],
)
def test_refusals_of_libvirt(world, how, code, text):
    """Each before anything has changed."""
    test_refusals(world, how, code, text)


def test_a_vm_of_another_hypervisor(world, tmp_path, monkeypatch):
    """A record of vmadm is refused by libvirt, and the other way round."""
    (tmp_path / "other").mkdir()
    other = linux(tmp_path / "other", monkeypatch)
    for here, there, text in (
        (world, other, "runs libvirt, and the VM vmadm"),
        (other, world, "runs vmadm, and the VM"),
    ):
        record = read_record(json.loads(json.dumps(record_as_result(look(here)["record"]))))
        (problem,) = hosts(there)[1].refusals(record, "zones")
        assert (problem.code, text in problem.message) == ("NotSupported", True), problem


@BOTH
@pytest.mark.parametrize(
    ("flexible", "slot", "text"),
    [(192, "0:0:0", r"0:0:0.* is asked for by root and data"), (None, "", "adding a disk needs flexible_disk_size")],
)
def test_what_would_refuse_the_disks_does_so_before_the_vm_is_stopped(world, flexible, slot, text):
    """Records that no host of this collection would have told."""
    assert world.sync()[1]
    record = look(world)["record"]
    disks = tuple(replace(disk, pci_slot=slot or disk.pci_slot) for disk in record.disks)
    with pytest.raises(FlexdiskError, match=text):
        hosts(world)[1].expect(replace(record, disks=disks, flexible=flexible), "zones")


@BOTH
def test_a_vm_that_does_not_run_needs_no_memory(world, monkeypatch):
    monkeypatch.setattr(type(world.peer.driver()), "resources", lambda _driver: Resources(1024, 0, 1))
    record = look(world)["record"]
    _source, target = hosts(world)
    assert [problem.code for problem in target.refusals(record, "zones")] == ["InsufficientMemory"]
    assert target.refusals(replace(record, state="stopped"), "zones") == []


@BOTH
def test_a_vm_without_flexible_disk_size(world):
    """No disk can be attached to it. So it is refused before anything has changed."""
    if isinstance(world, LinuxWorld):
        world.home.ok("zfs", "inherit", "flexdisk:flexible_disk_size", f"zones/{VM}")
    else:
        payload = {**TWIN, "alias": "flat", "disks": [{"boot": True, "model": "virtio", "size": 16}]}
        assert world.home.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0
    name = VM if isinstance(world, LinuxWorld) else TWIN["uuid"]
    seen = hosts(world)[0].look(name, world.home_name, world.peer_name)
    assert "VmWithoutFlexibleDiskSize" in {problem.code for problem in seen["refusals"]}


def test_a_vm_that_was_started_meanwhile(world):
    """Nothing that it wrote is lost: the move is refused, and the VM can stay."""
    source, target = hosts(world)
    announced, answer = begun(world)
    taken = world.last(announced)
    world.home.ok("vmadm", "start", VM)
    with pytest.raises(FlexdiskError) as caught:
        source.go(VM, "hv02", taken, answer)
    assert "is running: it was started while it was moved" in caught.value.message
    world.home.ok("vmadm", "stop", VM, "-F")
    world.write(0, 1, 3)
    with pytest.raises(FlexdiskError) as caught:
        source.go(VM, "hv02", taken, answer)
    assert "disk root was written to after it had been sent" in caught.value.message
    source.stay(VM)
    assert startable(world.home)
    target.cancel(VM)
    with pytest.raises(FlexdiskError, match="does not expect VM"):
        target.arrive(VM, world.home_name)


def begun(world):
    """A move that has come to the stop of the VM. Its last transfer, and what the driver says."""
    assert world.sync()[1]
    seen = look(world)
    hosts(world)[1].expect(seen["record"], "zones")
    announced = world.announced()
    return announced, leave(world, seen)


@BOTH
def test_check_mode_tells_whether_a_move_is_given_up(world):
    source, target = hosts(world)
    assert (source.would_stay(VM), target.would_cancel(VM)) == (False, False)
    begun(world)
    for there in (True, False):
        assert (source.would_stay(VM), target.would_cancel(VM)) == (there, there)
        assert source.stay(VM) is there
        assert target.cancel(VM, given_up=source.given_up) is there


def test_a_vm_that_was_changed_while_it_was_brought_over(world):
    """It would arrive as it was before. So it is not even stopped."""
    seen = look(world)
    assert world.sync()[1]
    payload = json.dumps({"set_customer_metadata": {"root_pw": "another"}})
    assert world.home.node.run(["vmadm", "update", VM], payload)[0] == 0
    with pytest.raises(FlexdiskError, match="was changed while it was brought over"):
        leave(world, seen)
    assert (world.home.power(VM), look(world)["move"]) == ("running", None)


def test_a_vm_that_was_changed_between_two_runs(world):
    """What the first has made on the other host is made again."""
    hosts(world)[1].expect(look(world)["record"], "zones")
    payload = json.dumps({"set_customer_metadata": {"root_pw": "another"}, "max_swap": 2048})
    assert world.home.node.run(["vmadm", "update", VM], payload)[0] == 0
    before, hashes = config(world.home), world.hashes()
    assert before["customer_metadata"] == {"root_pw": "another"}
    assert move(world)
    moved(world, before, hashes)


def test_a_snapshot_that_was_taken_while_it_was_brought_over(world):
    seen = look(world)
    assert world.sync()[1]
    pinned(world)
    with pytest.raises(FlexdiskError, match="@mine has clones or holds"):
        leave(world, seen)
    world.home.ok("zfs", "release", "mine", f"zones/{VM}@mine")
    assert look(world)["lost"] == [f"zones/{VM}@mine"]
    leave(world, seen)


@BOTH
def test_only_the_host_that_it_leaves_lets_it_arrive(world):
    begun(world)
    with pytest.raises(FlexdiskError, match=r"expects VM .* from hv01, not from hv03"):
        hosts(world)[1].arrive(VM, "hv03")
    assert not startable(world.peer)


@BOTH
@pytest.mark.parametrize("times", [1, 2])
def test_a_move_back_that_is_given_up(world, times):
    """The tombstone is there again, also if the move had begun more than once."""
    move(world)
    swap(world)
    for _time in range(times - 1):
        assert world.sync()[1]
        hosts(world)[1].expect(look(world)["record"], "zones")
    begun(world)
    source, target = hosts(world)
    source.stay(VM)
    target.cancel(VM)
    observed = observe(world.peer.zfs(), world.peer.driver(), all_pools=True).moves[VM]
    assert (observed.phase, observed.host) == ("moved", "hv02")
    assert world.home.power(VM) == "running"


@BOTH
def test_what_is_given_up_is_killed_anywhere(world):
    """The same command ends it: no entry of a journal tells of a VM that is not there any more."""
    begun(world)
    saved = world.saved()
    world.fuse = Fuse()
    hosts(world)[1].cancel(VM)
    for at in range(1, world.fuse.counted + 1):
        for after in (False, True):
            world.restore(saved)
            world.fuse = Fuse(at, after)
            with pytest.raises(Killed):
                hosts(world)[1].cancel(VM)
            world.fuse = Fuse()
            hosts(world)[1].cancel(VM)
            observed = observe(world.peer.zfs(), world.peer.driver(), all_pools=True)
            assert (observed.moves, observed.intents, observed.configs) == ({}, {}, ()), at


@BOTH
def test_it_writes_on_where_it_arrived(world):
    """A run that goes on does not stop a VM that has started."""
    announced, answer = begun(world)
    source, target = hosts(world)
    source.go(VM, "hv02", world.last(announced), answer, renew(world))
    record = records.load(VM)
    saved, world.fuse = world.saved(), Fuse()
    assert target.arrive(VM, "hv01")
    count = world.fuse.counted
    started = 0
    for at in range(1, count + 1):
        world.restore(saved)
        records.save(VM, record)
        world.fuse = Fuse(at, after=True)
        with pytest.raises(Killed):
            target.arrive(VM, "hv01")
        world.fuse = Fuse()
        if startable(world.peer) and world.peer.power(VM) == "running":
            started += 1
            stops: list[str] = []
            world.watch = lambda stops=stops: stops.append(world.peer.power(VM))
            target.arrive(VM, "hv01")
            world.watch = lambda: None
            assert set(stops) == {"running"}
    assert started


DOMAINS = pytest.mark.parametrize("world", ["libvirt"], indirect=True)


@DOMAINS
def test_uefi_variables_that_the_guest_changes_when_it_is_stopped(world):
    """They are those of the stopped guest, wherever the move is killed."""
    world.home.domains.last_words = b"\0the last"

    def arrived():
        assert world.peer.domains.files == {NVRAM: b"\0the last"}
        assert world.home.domains.files == {}

    killed_moves(world, 3 * EVERY, arrived)


def dying(host, when):
    """The run is killed at this call to libvirt. What ends that."""
    domains, before = host.domains, host.domains.hook

    def hook(name, _arguments, moment):
        if (name, moment) == when:
            raise Killed

    domains.hook = hook
    return lambda: setattr(domains, "hook", before)


@DOMAINS
def test_a_domain_of_which_only_the_configuration_is_left(world):
    """Its dataset has gone, and the run was killed before the configuration went."""
    before, hashes = config(world.home), world.hashes()
    live = dying(world.home, ("undefine", "before"))
    with pytest.raises(Killed):
        move(world)
    live()
    assert world.home.domains.paths(VM) == []
    assert move(world)
    moved(world, before, hashes)


@DOMAINS
def test_uefi_variables_that_have_not_come(world):
    """The VM does not leave, and can stay."""
    announced, answer = begun(world)
    source, target = hosts(world)
    then, taken = renew(world), world.last(announced)
    world.home.domains.files[NVRAM] = b"by hand"
    for variables in (then, ""):
        with pytest.raises(FlexdiskError, match="hv02 does not have the UEFI variables that it has now") as caught:
            source.go(VM, "hv02", taken, answer, variables)
        assert caught.value.code == "Changed"
    record = look(world)["record"]
    with pytest.raises(FlexdiskError, match=r"is not the one that .* expects"):
        target.renew(replace(record, memory=1))
    source.stay(VM)
    target.cancel(VM)
    with pytest.raises(FlexdiskError, match="there is no record of VM"):
        target.renew(record)
    assert (world.home.domains.files, world.peer.domains.files) == ({NVRAM: b"by hand"}, {})


@DOMAINS
def test_uefi_variables_that_the_guest_has_changed_where_it_arrived(world):
    """A run that goes on does not bring back those from before its start."""
    announced, answer = begun(world)
    source, target = hosts(world)
    source.go(VM, "hv02", world.last(announced), answer, renew(world))
    live = dying(world.peer, ("create", "after"))
    with pytest.raises(Killed):
        target.arrive(VM, "hv01")
    live()
    world.peer.domains.files[NVRAM] = b"since then"
    world.peer.domains.halt(VM)
    assert target.arrive(VM, "hv01")
    assert (world.peer.domains.files, world.peer.power(VM)) == ({NVRAM: b"since then"}, "running")


def test_a_record_that_cannot_be_written(world, monkeypatch):
    """The VM has not been stopped yet."""
    (world.folder / "file").touch()
    monkeypatch.setattr(records, "_FOLDER", str(world.folder / "file"))
    with pytest.raises(FlexdiskError, match=r"the record of VM .* cannot be written"):
        hosts(world)[1].expect(look(world)["record"], "zones")


def test_what_another_host_says_is_data(world):
    """Properties that are those of a host do not come with a record."""
    record = record_as_result(look(world)["record"])
    for variables in (1, "?", "QQ"):
        with pytest.raises(FlexdiskError, match="this is no record of a VM"):
            read_record({**record, "description": {**record["description"], "variables": variables}})
    for name, value in (("replica", VM), ("move", "{}"), ("replicas.space", "9"), ("from", "x"), ("name", "a\tb")):
        disk = {**record["disks"][0], "facts": {**record["disks"][0]["facts"], name: value}}
        with pytest.raises(FlexdiskError, match="this is no record of a VM"):
            read_record({**record, "disks": [disk]})
