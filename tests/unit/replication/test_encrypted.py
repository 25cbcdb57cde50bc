# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Encrypted disks: their replicas are raw, and nobody needs a key before a VM starts from them."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_start
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, said_by, start, take, taken, taker
from .test_move import config, gone, hosts, look, move, moved, smartos, swap
from .world import OTHER, PASSPHRASE, REPLICAS, VM, SecretWorld, TwoSecretsWorld, World


class PlainHomeWorld(World):
    """Only the peer has an encrypted pool."""

    passphrases = ("", OTHER)


@pytest.fixture
def world(request, tmp_path, monkeypatch):
    """A VM in an encrypted pool. Where nothing else is said, the peer has one, too."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return smartos(tmp_path, monkeypatch, getattr(request, "param", TwoSecretsWorld))


EACH = pytest.mark.parametrize("world", [SecretWorld, TwoSecretsWorld], indirect=True)


@pytest.fixture
def plain(tmp_path, monkeypatch):
    return PlainHomeWorld(tmp_path, monkeypatch)


def replicas(world):
    return [f"{REPLICAS}/{uuid}" for uuid in world.disks()]


def prop(host, name, dataset):
    return host.ok("zfs", "get", "-H", "-o", "value", name, dataset)


def load_all(world):
    for name in replicas(world):
        world.peer.load(name)


def problems(world):
    """Of a sync, each once."""
    return sorted({(one.code, one.message) for one in world.planned().problems})


@EACH
def test_no_key_is_needed(world):
    """Neither on the home, whose VM is stopped and whose pool is locked, nor there."""
    hashes = world.hashes()
    assert world.sync() == (True, True)
    for name in replicas(world):
        assert prop(world.peer, "encryptionroot", name) == name
        assert world.peer.is_locked(name)
    world.write(1, 3, 5)
    hashes = world.hashes()
    world.home.ok("vmadm", "stop", VM, "-F")
    world.home.ok("zfs", "unload-key", "zones")
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    assert world.hashes_there() == hashes


def test_a_passphrase_that_is_changed_comes_with_the_next_sync(world):
    assert world.sync() == (True, True)
    assert world.home.node.run(["zfs", "change-key", "zones"], "a new passphrase") == (0, "", "")
    assert world.hashes_there() == world.hashes()
    world.write(0, 1, 5)
    world.write(1, 1, 5)
    assert world.sync() == (True, True)
    for name in replicas(world):
        rc, _out, err = world.peer.node.run(["zfs", "load-key", name], PASSPHRASE)
        assert (rc, err) == (1, f"Key load error: Incorrect key provided for '{name}'.\n")
        world.peer.load(name, "a new passphrase")


def test_a_replica_that_is_not_encrypted(world):
    """Somebody has copied the disks by other means. Nothing is sent, neither raw nor readable."""
    assert world.sync() == (True, True)
    for name in replicas(world):
        dataset = world.peer.node.pools.dataset(name)
        dataset.cryptroot, dataset.crypt = 0, {}
    world.write(0, 1, 5)
    result = problems(world)
    assert {code for code, _text in result} == {"EncryptionRoot"}
    assert all(" is not encrypted, and zones/" in text for _code, text in result)
    assert all("flexdisk_replica_state=absent gives it up" in text for _code, text in result)


def test_a_replica_whose_key_comes_from_above(world):
    """ZFS would take the stream, and nobody could open the replica any more."""
    assert world.sync() == (True, True)
    load_all(world)
    name = replicas(world)[0]
    world.peer.ok("zfs", "change-key", "-i", name)
    world.write(0, 1, 5)
    ((code, text),) = problems(world)
    assert (code, text.partition(". ")[0]) == (
        "EncryptionRoot",
        f"{name} has its key from zones, which does not open what zones/{VM}/disk0 sends",
    )


def test_snapshots_that_others_take_of_a_replica(world):
    """A raw stream follows only the newest snapshot, so they go. What has arrived of a stream is given up if one was
    taken meanwhile.
    """
    assert world.sync() == (True, True)
    world.peer.ok("zfs", "snapshot", *[f"{name}@auto-1" for name in replicas(world)])
    world.write(0, 9, 5)
    world.write(1, 9, 5)
    world.cut = 3 << 20
    assert world.sync() == (True, False)
    world.cut = 0
    world.peer.ok("zfs", "snapshot", *[f"{name}@auto-2" for name in replicas(world)])
    assert world.sync() == (True, True)
    assert world.sync() == (False, True)
    assert world.hashes_there() == world.hashes()
    assert not [point for name in replicas(world) for point in world.peer.points(name) if point.startswith("auto")]


def test_the_peer_looks_for_itself(world):
    """A transfer that says otherwise than its replicas is refused before anything can come."""
    assert world.sync() == (True, True)
    world.write(0, 1, 5)
    made, _failures = world.sender().prepare(world.planned(), "hv02")
    wrong = [replace(vm, disks=tuple(replace(disk, raw=False) for disk in vm.disks)) for vm in made]
    with pytest.raises(FlexdiskError, match=r"is encrypted with a key of its own, and .* is not encrypted") as refused:
        world.receiver().open(wrong, [str(world.folder)])
    assert refused.value.code == "EncryptionRoot"
    assert not world.authorized.exists() or not world.authorized.read_text()


def test_a_plain_disk_and_an_encrypted_peer(plain):
    """Its replicas have the key of the pool there, and need it."""
    assert plain.sync() == (True, True)
    for name in replicas(plain):
        assert prop(plain.peer, "encryptionroot", name) == "zones"
    plain.write(0, 1, 5)
    plain.peer.ok("zfs", "unload-key", "zones")
    result = problems(plain)
    assert {code for code, _text in result} == {"KeyNotLoaded"}
    assert all(text.endswith("the key of zones is not loaded; zfs load-key zones loads it") for _code, text in result)
    plain.peer.load("zones", OTHER)
    assert plain.sync() == (True, True)
    assert plain.hashes_there() == plain.hashes()


@pytest.mark.parametrize("world", [SecretWorld], indirect=True)
def test_a_pool_that_cannot_encrypt(world):
    """Its replicas would be raw, and ZFS refuses raw streams there. It is known before anything is done."""
    world.peer.node.pools.pools["zones"].encrypts = False
    prepared = world.home.points(f"zones/{VM}/disk0"), world.peer.stored()
    found = world.planned().problems
    text = "it is encrypted, and pool zones of hv02 has the feature encryption disabled; "
    text += "zpool set feature@encryption=enabled zones on hv02 enables it, for good"
    assert [(one.code, one.message, one.vm, one.disk) for one in found] == [
        ("NotSupported", text, f"db01 ({VM})", name) for name in world.names
    ]
    with pytest.raises(Stopped, match="has the feature encryption disabled"):
        move(world)
    assert (world.home.points(f"zones/{VM}/disk0"), world.peer.stored()) == prepared
    assert world.home.runs(VM)


def test_a_plain_disk_in_a_pool_that_cannot_encrypt(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    world.peer.node.pools.pools["zones"].encrypts = False
    assert world.sync() == (True, True)


def test_what_raw_streams_meet_in_a_pool_that_cannot_encrypt(tmp_path, monkeypatch):
    """Measured on OpenZFS 2.1: tests/lab/suite/test_streams.py."""
    world = SecretWorld(tmp_path, monkeypatch)
    world.peer.node.pools.pools["zones"].encrypts = False
    world.home.ok("zfs", "snapshot", f"zones/{VM}/disk0@raw")
    sent = world.home.ok("zfs", "send", "-w", f"zones/{VM}/disk0@raw")
    rc, _out, err = world.peer.node.run(["zfs", "receive", "-u", "zones/raw"], sent)
    assert (rc, err) == (1, "cannot receive new filesystem stream: pool must be upgraded to receive this stream.\n")


POOL_IS_LOCKED = "the key of zones is not loaded; zfs load-key zones loads it"


def test_a_first_sync_to_a_locked_pool(world):
    """ZFS makes nothing in it, and the places of replicas are not there yet. Known before anything is done."""
    world.peer.ok("zfs", "unload-key", "zones")
    before = world.home.points(f"zones/{VM}/disk0"), world.peer.stored()
    ((code, text),) = problems(world)
    assert (code, text) == ("KeyNotLoaded", f"pool zones of hv02 gets no replicas: {POOL_IS_LOCKED}")
    assert (world.home.points(f"zones/{VM}/disk0"), world.peer.stored()) == before
    world.peer.load("zones", OTHER)
    assert world.sync() == (True, True)
    world.peer.ok("zfs", "unload-key", "zones")
    world.write(0, 1, 5)
    assert world.sync() == (True, True), "the places are there, and raw streams need no key"


def test_new_disks_in_a_locked_pool(plain):
    """A disk that is not encrypted needs the key of the pool, a new one as well as one that has a replica."""
    assert plain.sync() == (True, True)
    first = replicas(plain)[0]
    done = plain.sender().remove(["db01"], "hv02", False)
    plain.receiver().remove(["zones"], done.uuids, done.homes, False)
    plain.peer.ok("zfs", "unload-key", "zones")
    assert problems(plain) == [("KeyNotLoaded", f"pool zones of hv02 gets no replicas: {POOL_IS_LOCKED}")]
    assert not plain.peer.has(first)


def test_findings(world):
    def kinds():
        reported = verify(world.peer.zfs(), world.peer.driver(), None, [], None, 30, True, time.time()).findings
        return [(one.kind, one.severity) for one in reported if one.kind == "replica_locked"]

    assert world.sync() == (True, True)
    assert kinds() == [("replica_locked", "info")] * 2
    load_all(world)
    assert kinds() == []


# -- moves


@EACH
def test_a_move_asks_for_the_key_before_the_vm_is_stopped(world):
    """The first move makes replicas, and the VM stays. When the keys are loaded, the same command goes on."""
    before, hashes = config(world.home), world.hashes()
    with pytest.raises(Stopped) as stopped:
        move(world)
    for name in replicas(world):
        assert f"the key of {name} is not loaded; zfs load-key {name} loads it" in str(stopped.value)
    assert config(world.home) == before
    assert world.home.runs(VM)
    assert not look(world)["move"]
    with pytest.raises(Stopped, match="is not loaded"):
        move(world)
    load_all(world)
    assert move(world)
    moved(world, before, hashes)


def test_a_move_to_a_pool_that_is_locked(world):
    """The keys of the replicas are loaded, and that of the pool is not: the VM's dataset could not be made."""
    before, hashes = config(world.home), world.hashes()
    assert world.sync() == (True, True)
    load_all(world)
    world.peer.ok("zfs", "unload-key", "zones")
    there = world.peer.stored()
    with pytest.raises(Stopped, match=f"hv02: {POOL_IS_LOCKED}"):
        move(world)
    assert (config(world.home), world.home.runs(VM), look(world)["move"]) == (before, True, None)
    assert world.peer.stored() == there
    world.peer.load("zones", OTHER)
    assert move(world)
    moved(world, before, hashes)


def test_a_forgotten_key(world):
    """A replica that nobody can open takes no VM. It is given up like any other."""
    assert world.sync() == (True, True)
    rc, _out, err = world.peer.node.run(["zfs", "load-key", replicas(world)[0]], "what was it")
    assert (rc, "Incorrect key" in err) == (1, True)
    with pytest.raises(Stopped, match="is not loaded"):
        move(world)
    assert world.home.runs(VM)
    done = world.sender().remove(["db01"], "hv02", False)
    assert len(world.receiver().remove(["zones"], done.uuids, done.homes, False).gone) == 2


def test_a_key_that_lies_in_a_file_that_is_not_there(world):
    assert world.sync() == (True, True)
    name = replicas(world)[0]
    world.peer.ok("zfs", "set", "keylocation=file:///nowhere/key", name)
    with pytest.raises(Stopped) as stopped:
        move(world)
    text = f"the key of {name} is not loaded, which ZFS looks for at file:///nowhere/key; zfs load-key {name} loads it"
    assert f"{text}; there is no /nowhere/key on this host" in str(stopped.value)


def test_a_key_that_is_unloaded_after_the_vm_has_left(world):
    """It arrives as soon as the key is loaded again."""
    before, hashes = config(world.home), world.hashes()
    assert world.sync() == (True, True)
    load_all(world)
    names = replicas(world)
    seen = look(world)
    hosts(world)[1].expect(seen["record"], "zones")
    gone(world, seen)
    world.peer.ok("zfs", "unload-key", names[1])
    with pytest.raises(FlexdiskError, match="zfs load-key") as refused:
        hosts(world)[1].arrive(VM, "hv01")
    assert refused.value.code == "KeyNotLoaded"
    world.peer.load(names[1])
    assert hosts(world)[1].arrive(VM, "hv01")
    hosts(world)[0].tidy(VM)
    moved(world, before, hashes)


@EACH
def test_the_way_back(world):
    """What has stayed has its key from above, and takes no raw stream: it is made again. From then on, increments go
    both ways.
    """
    assert world.sync() == (True, True)
    load_all(world)
    assert move(world)
    swap(world)
    world.write(1, 3, 5)
    hashes = world.hashes()
    with pytest.raises(Stopped, match="has its key from zones, which does not open what"):
        move(world)
    assert world.home.runs(VM)
    done = world.sender().remove(["db01"], "hv01", False)
    world.receiver().remove(["zones"], done.uuids, done.homes, False)
    with pytest.raises(Stopped, match="is not loaded"):
        move(world)
    load_all(world)
    assert move(world)
    swap(world)
    assert world.hashes() == hashes
    world.write(0, 3, 7)
    (planned,) = world.planned().syncs
    assert all(stream.base for disk in planned.disks for stream in disk.streams)
    hashes = world.hashes()
    assert move(world)
    swap(world)
    assert world.hashes() == hashes


def test_a_disk_that_could_not_become_a_replica(tmp_path, monkeypatch):
    """Its key comes from its VM's dataset, and replicas lie elsewhere: known before anything is sent."""
    world = World(tmp_path, monkeypatch)
    datasets = world.home.node.pools.pools["zones"].datasets
    root = datasets[f"zones/{VM}"]
    for dataset in root.walk():
        dataset.cryptroot = root.guid
        dataset.crypt = {"master": dataset.guid, "key": PASSPHRASE, "loaded": True}
    with pytest.raises(Stopped, match=rf"it has its key from zones/{VM}, and could not become a replica below zones"):
        move(world)
    assert world.sync() == (True, True), "a replica of it is possible all the same"


# -- failover


@EACH
def test_a_failover_asks_for_the_key_first(world):
    """While its home is there, a locked replica is as good as any. Nothing is touched before the key is loaded."""
    protect(world)
    before, hashes = config(world.home), world.hashes()
    plan = taker(world).look("db01")
    assert [(one.code, one.disk) for one in plan.problems] == [("KeyNotLoaded", "root"), ("KeyNotLoaded", "data")]
    there = json.dumps(world.peer.node.pools.to_json()["pools"])
    with pytest.raises(FlexdiskError, match="zfs load-key"):
        take(world)
    assert json.dumps(world.peer.node.pools.to_json()["pools"]) == there
    load_all(world)
    assert take(world)
    taken(world, before, hashes)


def test_locked_replicas_are_compared_with_others(world):
    """A failover to a third host asks which replicas are newer. That needs no key."""
    protect(world)
    (locked,) = failover_start.look(world.peer.zfs(), world.peer.driver(), Copies(world.peer), "db01")["records"]
    load_all(world)
    (loaded,) = failover_start.look(world.peer.zfs(), world.peer.driver(), Copies(world.peer), "db01")["records"]
    assert locked == loaded
    assert (loaded["why_not"], sorted(loaded["points"])) == ("", sorted(world.disks()))


def test_a_failover_to_a_pool_that_is_locked(world):
    """The keys of the replicas are loaded, and that of the pool is not. As long as the home is there, that is fine."""
    protect(world)
    before, hashes = config(world.home), world.hashes()
    world.peer.ok("zfs", "unload-key", "zones")
    protect(world)
    plan = taker(world).look("db01")
    assert [(one.code, one.disk) for one in plan.problems] == [
        ("KeyNotLoaded", "root"), ("KeyNotLoaded", "data"), ("KeyNotLoaded", "")
    ]  # fmt: skip
    load_all(world)
    (problem,) = taker(world).look("db01").problems
    assert problem.message == POOL_IS_LOCKED
    there = world.peer.stored()
    with pytest.raises(FlexdiskError, match=POOL_IS_LOCKED):
        take(world)
    assert world.peer.stored() == there
    world.peer.load("zones", OTHER)
    assert take(world)
    taken(world, before, hashes)


def test_a_home_that_is_locked_after_its_boot(world):
    """Nothing starts the VM before its key is loaded, and each that would says so."""
    protect(world)
    world.home.power_off(VM)
    world.home.reboot()
    world.home.ok("zfs", "unload-key", "zones")
    said = {"hv02": said_by(world.peer)}
    for check in (True, False):
        (failure,) = start(world, said, check=check).failures
        assert failure == f"db01 ({VM}): {POOL_IS_LOCKED} [KeyNotLoaded]"
    assert world.home.power(VM) == "stopped"
    world.home.load("zones")
    assert start(world, said).started == [f"db01 ({VM})"]
    assert world.home.runs(VM)


def test_an_old_home_that_is_locked(world):
    """It has booted, and nobody has loaded its key. Its tombstone could not be written: nothing is begun."""
    protect(world)
    world.write(0, 3, 9)
    world.home.power_off(VM)
    load_all(world)
    assert take(world)
    uuids, left = list(world.disks()), world.hashes()
    world.home.ok("zfs", "unload-key", "zones")
    back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    request = EndRequest("db01", read_claims({"hv02": said_by(world.peer, "db01")}))
    (problem,) = back.look(request).problems
    assert (problem.code, problem.message) == ("KeyNotLoaded", POOL_IS_LOCKED)
    here = world.home.stored()
    with pytest.raises(FlexdiskError, match=POOL_IS_LOCKED):
        back.end(request)
    assert world.home.stored() == here
    world.home.load("zones")
    back.end(request)
    assert world.home.ok("guest", "hash", f"zones/flexdisk/diverged/{uuids[0]}") == left[0]
    assert world.home.ok("guest", "hash", f"{REPLICAS}/{uuids[1]}") == left[1]
