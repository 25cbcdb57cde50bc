# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The other host is in the wrong hands: what it describes, and what it sends."""

from __future__ import annotations

import fcntl
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.vm_arrival import MoveTarget
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import trust
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    read_transfers,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    transfer_as_result as transfer_told,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.trust import Address
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .test_move import BOTH, POLICY, look
from .test_move import world as world_of_moves
from .world import REPLICAS

world = world_of_moves


def hostile(world):
    """The record of the VM, with an order for the target, and the name that allows it."""
    record = read_record(json.loads(json.dumps(record_as_result(look(world)["record"]))))
    description = dict(record.description)
    if record.hypervisor == "vmadm":
        description["options"] = {**description["options"], "bhyve_extra_opts": "-s 9,passthru,1/2/3"}
        return replace(record, description=description), "bhyve_extra_opts"
    emulator = "<emulator>/tmp/evil</emulator></devices>"
    description["template"] = description["template"].replace("</devices>", emulator)
    return replace(record, description=description), "/tmp/evil"


@BOTH
def test_a_description_is_refused_before_anything_is_written(world):
    """The message names what is asked for, who asks, and the variable that allows it."""
    record, name = hostile(world)
    before = world.peer.ok("zfs", "get", "-Hpr", "all", "zones")
    target = MoveTarget(world.peer.zfs(), world.peer.driver(), world.peer, POLICY)
    (problem,) = target.refusals(record, "zones")
    assert problem.code == "NotPermitted"
    assert all(word in problem.message for word in (name, world.home_name, "flexdisk_incoming_allowed"))
    with pytest.raises(FlexdiskError, match=name):
        target.expect(record, "zones")
    assert world.peer.ok("zfs", "get", "-Hpr", "all", "zones") == before
    allowing = replace(POLICY, incoming_allowed=(name,))
    problems = MoveTarget(world.peer.zfs(), world.peer.driver(), world.peer, allowing).refusals(record, "zones")
    assert "NotPermitted" not in [one.code for one in problems]


# -- streams

SENT = {
    "mountpoint": "/etc",
    "canmount": "on",
    "sharenfs": "rw",
    "setuid": "on",
    "refreservation": "1099511627776",
    "flexdisk:indestructible": "true",
    "flexdisk:preserve": "false",
    "flexdisk:replica.back": "on",
}


def tampered(text, header):
    """The stream as a host in the wrong hands sends it."""
    lines = [json.loads(line) for line in text.splitlines()]
    return "".join(json.dumps({**one, **header} if isinstance(one, dict) else one) + "\n" for one in lines)


def package(text):
    """The stream, and behind it a file system below the replica. ZFS itself takes none below a volume."""
    first = json.loads(text.splitlines()[0])
    if first["kind"] != "filesystem":
        return text
    below = json.dumps({**first, "below": "/evil", "toguid": 4711, "props": SENT})
    return f"{text}{below}\n{json.dumps('end')}\n"


def hostile_stream(world, monkeypatch, change):
    world.cut = 1
    monkeypatch.setattr("tests.unit.replication.world.simulated_stream.cut", lambda text, _part: change(text))


@BOTH
def test_no_property_comes_with_a_stream(world, monkeypatch):
    """Not with the first one, and not with an increment."""
    hostile_stream(world, monkeypatch, lambda text: tampered(text, {"props": SENT}))
    for _number in range(2):
        assert world.sync()[1]
        for uuid in world.disks():
            told_of_it = world.peer.ok(
                "zfs", "get", "-H", "-s", "received", "-o", "property,value", "all", f"{REPLICAS}/{uuid}"
            )
            assert told_of_it == ""
        world.write(1, 3)


@pytest.mark.parametrize("world", ["libvirt"], indirect=True)
def test_a_package_is_refused(world, monkeypatch):
    """What came with it does not become a part of the VM, mounts nowhere, and is named."""
    hostile_stream(world, monkeypatch, package)
    made, _failures = world.sender().prepare(world.planned(), world.peer_name)
    transfers = read_transfers(json.loads(json.dumps([transfer_told(vm) for vm in made])))
    world.send(transfers, world.receiver().open(transfers, [str(world.folder)]))
    (failure,) = world.receiver().close(transfers, "2026-01-01T00:00:00Z").failures
    (evil,) = [name for name in world.peer.ok("zfs", "list", "-H", "-o", "name").split() if name.endswith("/evil")]
    assert evil in failure
    assert failure.endswith("[ReplicaChanged]")
    assert world.peer.ok("zfs", "get", "-H", "-o", "value", "mountpoint", evil) == "none"
    with pytest.raises(FlexdiskError, match="which no sync makes"):
        world.receiver().open(transfers, [str(world.folder)])


# -- the keys that come in


def test_nobody_loses_a_key(tmp_path):
    """Tasks that let keys in at the same time, and one that lets some go."""
    path = tmp_path / "ssh" / "authorized_keys"
    names = [f"disk{number}" for number in range(12)]

    def add(name):
        trust.add_authorized(str(path), {name: f"restrict,command=x key flexdisk-receive-{name}"})
        if name in names[:4]:
            trust.remove_authorized(str(path), [name])

    with ThreadPoolExecutor(6) as workers:
        list(workers.map(add, names))
    left = sorted(line.rpartition("-")[2] for line in path.read_text().splitlines())
    assert left == sorted(names[4:])
    assert [one.name for one in path.parent.iterdir()] == ["authorized_keys"]


@pytest.mark.parametrize(("host", "lost"), [("hv02.example", True), ("192.0.2.7", False), ("2001:db8::7", False)])
def test_an_ip_address_needs_no_name(host, lost):
    """The getent of Linux asks for the name of an IP address, and finds none for most."""

    def finds_nothing(argv):
        return Answer(2, "", "")

    assert bool(trust.unresolved(finds_nothing, Address(host))) == lost


def test_a_lock_that_is_held_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "_LOCK_TIMEOUT", 0.2)
    path = tmp_path / "authorized_keys"
    path.write_text("theirs\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        for change in (
            lambda: trust.add_authorized(str(path), {"a": "b"}),
            lambda: trust.remove_authorized(str(path), ["a"]),
        ):
            with pytest.raises(FlexdiskError, match="has held the lock") as told_of_it:
                change()
            assert told_of_it.value.code == "Locked"
    finally:
        os.close(fd)
    assert path.read_text() == "theirs\n"
