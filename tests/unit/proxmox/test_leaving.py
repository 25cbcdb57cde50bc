# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks leave their VM on Proxmox VE: qm gives them up, then their volumes go where it sees nothing."""

from __future__ import annotations

import contextlib
import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .world import DATA, FILE, ROOT_DISK, STORAGE, VM, Killed, World, faults

ROOT = {"name": "root"}
LEAVES = {"vm": {"unlisted": "detach"}}
GONE = {"name": "data", "state": "absent"}
PLACE = f"tank/flexdisk/{DATA}"


def there(world, volume):
    return world.node.run(["zfs", "list", "-Ho", "name", volume])[0] == 0


def facts(world, volume):
    rows = world.run("zfs", "get", "-Hpo", "property,value", "-s", "local", "all", volume).splitlines()
    return {key[9:]: value for key, value in (row.split("\t") for row in rows) if key.startswith("flexdisk:")}


def detached(world):
    return {disk.name: disk.volume.name for disk in world.vm().detached}


def record(world):
    path = world.files / f"etc/pve/flexdisk/{VM}.json"
    return json.loads(path.read_text())["disks"] if path.exists() else {}


def unused(world):
    return [line for line in world.file.splitlines() if line.startswith("unused") or line == "[PENDING]"]


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_leaves_and_comes_back(running):
    """Out of sight of Proxmox VE, with its name and its UUID; and back at its key, with its options."""
    world = World(running)
    world.done(ROOT, {"name": "data", "preserve": True})
    world.four_steps(ROOT, **LEAVES)
    assert (detached(world), world.disks().keys()) == ({"data": PLACE}, {"root"})
    assert (world.setting("scsi1"), unused(world), DATA in str(record(world))) == ("", [], False)
    known = facts(world, PLACE)
    assert (known["name"], known["uuid"], known["preserve"], known["vm"]) == ("data", DATA, "true", VM)
    if running:
        assert "scsi1" not in world.plugged()
    world.four_steps(ROOT, {"name": "data"})
    assert (world.file, detached(world)) == (FILE, {})
    assert "element" not in facts(world, "tank/vms/vm-100-disk-0")
    assert (world.disks()["data"].preserve, serial_of(DATA) in record(world)) == (True, True)
    if running:
        assert world.plugged()["scsi1"] == 2048


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_is_destroyed_by_name(running):
    world = World(running)
    world.done(ROOT, {"name": "data"})
    done = world.four_steps(ROOT, GONE)
    assert "- data 2 GiB DESTROYED" in done.diff
    assert not there(world, "tank/vms/vm-100-disk-0")
    assert not there(world, PLACE)
    assert (world.setting("scsi1"), unused(world), [*record(world)]) == ("", [], [serial_of(ROOT_DISK)])
    assert not any(argv[0] == "qm" and "--force" in argv for argv in world.calls)


def test_a_preserved_disk_is_detached_instead():
    world = World()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.four_steps(ROOT, vm={"unlisted": "destroy"})
    assert detached(world) == {"data": PLACE}


def test_an_unnamed_disk_is_not_destroyed_for_being_left_out():
    world = World()
    world.run("zfs", "inherit", "flexdisk:name", "tank/vms/vm-100-disk-0")
    world.run("zfs", "inherit", "flexdisk:uuid", "tank/vms/vm-100-disk-0")
    assert "has no identity from an earlier run" in world.refusal(ROOT, vm={"unlisted": "destroy"})


def test_snapshots_of_the_volume_are_destroyed_only_if_that_is_said():
    world = World()
    world.run("zfs", "snapshot", "tank/vms/vm-100-disk-0@mine")
    assert "[HasSnapshots]" in world.refusal(ROOT, GONE)
    world.four_steps(ROOT, {**GONE, "destroy_snapshots": True})
    assert not there(world, PLACE)


REFUSED = {
    "snapshot": (lambda world: world.run("qm", "snapshot", "100", "before"), "in its snapshot before"),
    "protection": (lambda world: world.run("qm", "set", "100", "--protection", "1"), "qm set 100 --protection 0"),
    "lock": (lambda world: world.run("qm", "set", "100", "--lock", "backup"), "locked by Proxmox VE (backup)"),
    "job": (
        lambda world: world.write("replication.cfg", "local: 100-0\n\ttarget pve2\n"),
        "has the replication job 100-0",
    ),
    "pending": (lambda world: world.run("qm", "set", "100", "--sata1", "local-zfs:1"), "wait for its stop (sata1)"),
    "boot": (lambda world: world.run("qm", "set", "100", "--memory", "512"), "it is in the boot order"),
    "other": (
        lambda world: world.write("nodes/pve1/qemu-server/101.conf", "name: b\nscsi0: thick:vm-100-disk-0,size=2G\n"),
        "is also attached to b",
    ),
}


@pytest.mark.parametrize("wanted", [((ROOT,), LEAVES), ((ROOT, GONE), {})], ids=["detach", "destroy"])
@pytest.mark.parametrize("why", sorted(REFUSED))
def test_what_keeps_a_disk(why, wanted):
    """With all other reasons, before anything is done."""
    world = World()
    if why == "boot":
        world.file = FILE.replace("order=virtio0", "order=virtio0;scsi1")
    if why in ("boot", "pending"):
        world.run("qm", "start", "100")
    act, text = REFUSED[why]
    act(world)
    assert text in world.refusal(*wanted[0], **wanted[1])


def test_the_boot_order_of_a_stopped_vm():
    """Proxmox VE takes the disk out of it."""
    world = World()
    world.file = FILE.replace("order=virtio0", "order=virtio0;scsi1")
    world.four_steps(ROOT, **LEAVES)
    assert world.setting("boot") == "order=virtio0;net0"


def test_the_boot_disk_and_the_last_disk_stay():
    world = World()
    assert "the boot disk cannot be removed" in world.refusal({"name": "data"}, {"name": "root", "state": "absent"})
    world.file = "\n".join(line for line in FILE.splitlines() if not line.startswith(("boot", "virtio0"))) + "\n"
    assert "is the last disk of the VM" in world.refusal(**LEAVES)


def test_sata_goes_only_from_a_stopped_vm():
    world = World()
    world.file = FILE.replace("scsi1:", "sata1:")
    world.run("qm", "start", "100")
    assert "sata1 is no slot for hot-plug" in world.refusal(ROOT, **LEAVES)
    world.run("qm", "stop", "100")
    world.four_steps(ROOT, **LEAVES)
    assert detached(world) == {"data": PLACE}


@pytest.mark.parametrize(("key", "lost"), [("virtio1", False), ("scsi1", True)])
def test_a_guest_that_keeps_its_disk(key, lost):
    """What qm has left waiting is taken back, so that no stop removes the disk, and the message says what QEMU has."""
    world = World()
    world.file = FILE.replace("scsi1:", f"{key}:")
    world.run("qm", "start", "100")
    world.admin("pve-guest", "100", "deaf")
    before = sorted(world.file.splitlines())
    failure = world.converge(ROOT, **LEAVES).failure
    assert failure["error_code"] == "GuestHoldsDisk"
    assert "still busy in guest?" in failure["message"]
    assert ("the guest has lost the disk" in failure["message"]) == lost
    assert (sorted(world.file.splitlines()), detached(world)) == (before, {})
    assert there(world, "tank/vms/vm-100-disk-0")
    world.admin("pve-guest", "100", "answers")
    world.done(ROOT, **LEAVES)
    assert (detached(world), unused(world)) == ({"data": PLACE}, [])


def test_an_unused_volume_is_never_destroyed_with_its_line():
    """The volume is there again when the line goes, by whatever hand."""
    world = World()

    def spoil(number, argv, real):
        if argv[:2] == ["zfs", "list"] and argv[-1] == "tank/vms/vm-100-disk-0":
            world.run("zfs", "create", "-V", "1G", argv[-1])
        return real(argv)

    world.spoil = spoil
    failure = world.converge(ROOT, **LEAVES).failure
    assert "tank/vms/vm-100-disk-0 is there again" in failure["message"]
    world.spoil = None
    assert there(world, "tank/vms/vm-100-disk-0")
    assert detached(world)["data"] == PLACE


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("VM is locked (backup)", "InUse"),
        ("checksum mismatch (file change by other user?)", "Changed"),
        ("can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout", "Busy"),
        ("", "NotApplied"),
    ],
)
@pytest.mark.parametrize("status", [0, 255])
def test_qm_does_not_do_it(text, code, status):
    world = World(running=True)
    world.spoil = lambda number, argv, real: Answer(status, "", text + "\n") if argv[0] == "qm" else real(argv)
    failure = world.converge(ROOT, **LEAVES).failure
    assert failure["error_code"] == (code if text or not status else "QmFailed")
    assert "scsi1 of VM 100 is still there" in failure["message"]
    world.spoil = None
    world.done(ROOT, **LEAVES)
    assert detached(world) == {"data": PLACE}


def test_somebody_elses_change_at_the_same_moment_stays():
    world = World(running=True)

    def spoil(number, argv, real):
        if argv[:2] == ["qm", "set"]:
            world.file += "\n[PENDING]\nsata1: local-zfs:vm-100-disk-8,size=1G\n"
            return Answer(255, "", "it has failed\n")
        return real(argv)

    world.spoil = spoil
    failure = world.converge(ROOT, **LEAVES).failure
    assert "somebody else's change of sata1 waits for a stop of the VM, and stays there" in failure["message"]
    assert "[PENDING]\nsata1:" in world.file


def picture(world):
    vm = world.vm()
    disks = {d.name: (d.volume.name, d.key, d.uuid, d.preserve) for d in (*vm.disks, *vm.detached)}
    left = {name: there(world, name) for name in ("tank/vms/vm-100-disk-0", PLACE)}
    return disks, left, world.file, sorted(record(world)), world.plugged() if world.running else {}, vm.interrupted


TASKS = {
    "detach": ((ROOT,), LEAVES, lambda world: None),
    "destroy": ((ROOT, GONE), {}, lambda world: None),
    "attach": ((ROOT, {"name": "data"}), {}, lambda world: world.done(ROOT, **LEAVES)),
    "replace": (
        (ROOT, {"name": "data", "size": "1GiB", "block_size": 8192, "recreate": True}),
        {},
        lambda world: None,
    ),
}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("task", sorted(TASKS))
def test_interrupted_at_every_command(task, running):
    """The disk is in the VM or detached, always under its name, and the same task goes on."""
    wanted, more, before = TASKS[task]

    def make():
        world = World(running)
        world.done(ROOT, {"name": "data", "preserve": task != "replace"})
        before(world)
        return world

    straight = make()
    straight.done(*wanted, **more)
    found = [*faults(make, *wanted, **more)]
    assert len(found) > 25
    for fault in found:
        world = make()
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*wanted, **more).problems == []
        world.spoil = None
        if task in ("detach", "attach"):
            known = {
                d.name: (d.uuid, d.preserve) for d in (*world.vm().disks, *world.vm().orphans, *world.vm().detached)
            }
            assert known["data"] == (DATA, True), fault
        world.done(*wanted, **more)
        if task != "replace":
            assert picture(world) == picture(straight), fault
        assert unused(world) == [], fault
        assert not world.converge(*wanted, **more).changed, fault


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_removal_that_somebody_else_has_begun_stays(interrupted):
    """Also after an interrupted run of ours, if that was about another disk."""
    world = World(running=True)

    def dies(number, argv, real):
        if argv[0] == "qm":
            raise Killed
        return real(argv)

    if interrupted:
        world.spoil = dies
        with contextlib.suppress(Killed):
            world.converge({"name": "root", "size": "5GiB"})
        world.spoil = None
    world.admin("pve-guest", "100", "deaf")
    world.node.run(["qm", "set", "100", "--delete", "scsi1"])
    assert "[PENDING]\ndelete: scsi1" in world.file
    for wanted, more in ((({"name": "root", "size": "5GiB"},), {}), ((ROOT,), LEAVES)):
        assert "has changes that wait for its stop (scsi1)" in world.refusal(*wanted, **more)
    assert (world.vm().interrupted is not None) == interrupted


def test_a_disk_of_an_encrypted_storage_stays_and_the_way_out_is_named():
    world = World()
    world.run("zfs", "destroy", "tank/vms/vm-100-disk-0")
    world.run("zfs", "destroy", "tank/vms")
    key = ("-o", "encryption=on", "-o", "keyformat=raw", "-o", "keylocation=file:///k")
    world.run("zfs", "create", *key, "tank/vms")
    world.volume("tank/vms/vm-100-disk-0", "2G", DATA, "data")
    unlink = "qm disk unlink 100 --idlist scsi1"
    assert f"; {unlink} takes it out of the VM, and leaves it where it is as unused" in world.refusal(ROOT, **LEAVES)
    assert f"; {unlink} --force 1 destroys it" in world.refusal(ROOT, GONE)


@pytest.mark.parametrize("place", ["tank/vms", "tank/ct"])
def test_a_disk_comes_back_to_a_storage_that_takes_disks(place):
    """Another one for containers alone has the same dataset, or one that comes first by name."""
    world = World()
    world.done(ROOT, {"name": "data"})
    world.done(ROOT, **LEAVES)
    if place == "tank/ct":
        world.run("zfs", "create", place)
    world.write("storage.cfg", f"zfspool: ct\n\tpool {place}\n\tcontent rootdir\n\n{STORAGE}")
    world.four_steps(ROOT, {"name": "data"})
    assert world.setting("scsi1").startswith("thick:vm-100-disk-0,")
