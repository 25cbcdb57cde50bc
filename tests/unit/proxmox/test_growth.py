# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of Proxmox VE that grow. qm disk resize says nothing by its status, so everything is read again."""

from __future__ import annotations

import contextlib

import pytest
from simnode.pve import on_node

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .world import DATA as DATA_UUID
from .world import FILE, ROOT_DISK, VM, Killed, World, faults

ROOT, DATA = "rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"
LARGER = {"name": "data", "size": "3GiB"}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize(("name", "volume", "key"), [("root", ROOT, "virtio0"), ("data", DATA, "scsi1")])
def test_a_disk_grows(running, name, volume, key):
    """Sparse and thick; the rest of the file stays as it was."""
    world = World(running)
    before = world.file
    world.four_steps({"name": name, "size": "5GiB"})
    assert world.volsize(volume) == 5120
    old, new = ("size=4G", "size=5G") if name == "root" else ("size=2G", "size=5G")
    assert world.file.replace("iothread=1", "iothread=on") == before.replace(old, new)
    if running:
        assert world.plugged()[key] == 5120


def test_growing_scsi1_keeps_scsi1():
    world = World()
    world.done(LARGER)
    assert (world.disks()["data"].key, world.setting("scsi1")[:21]) == ("scsi1", "thick:vm-100-disk-0,d")


@pytest.mark.parametrize("running", [False, True])
def test_all_that_is_said_wrong_about_a_disk_is_said_at_once(running):
    world = World(running)
    said = world.refusal(
        {"name": "data", "size": "1GiB"},
        {"name": "root", "size": "5GiB", "pci_slot": "virtio7"},
    )
    assert "data: 2 GiB -> 1 GiB would cut off data" in said
    assert "root" in said


def test_the_pool_of_the_disk_must_have_the_room():
    """A thick disk takes it at once; a sparse one does not."""
    world = World(pool_gib=8)
    said = world.refusal({"name": "data", "size": "12GiB"})
    assert "pool tank has" in said
    assert "[InsufficientSpace]" in said
    world.four_steps({"name": "root", "size": "12GiB"})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lock: backup\n", "VM 100 is locked by Proxmox VE (backup)"),
        ("virtio16: local-zfs:vm-100-disk-9\n", "cannot read a part of the file of VM 100 (virtio16: "),
        ("[PENDING]\nmemory: 1024\n", "has changes that wait for its stop (memory)"),
    ],
)
def test_what_others_do_is_named(line, why):
    world = World()
    world.done({"name": "data"})
    world.file = FILE + line
    assert why in world.refusal(LARGER)
    world.done({"name": "data"})


def test_a_replication_job_is_named():
    world = World()
    world.write("replication.cfg", "local: 100-0\n\ttarget pve2\n")
    assert "VM 100 has the replication job 100-0 of Proxmox VE" in world.refusal(LARGER)


def test_no_quota_and_no_other_change():
    world = World()
    assert "no dataset of its own" in world.refusal(LARGER, vm={"quota": "1GiB"})
    for entry in ({"type": "sparse"}, {"pci_slot": "scsi3"}):
        assert "changes nothing else [NotSupported]" in world.refusal({"name": "data", **entry})


def test_a_name_is_given_and_changed():
    world = World(running=True)
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-100-disk-1")
    world.run("qm", "set", "100", "--virtio1", "local-zfs:vm-100-disk-1")
    world.four_steps({"pci_slot": "0:11:0", "name": "logs"}, {"name": "data", "description": "of the shop"})
    assert world.disks()["data"].user_properties["description"] == "of the shop"


def test_the_file_has_been_changed_since():
    world = World()

    def meanwhile(number, argv, real):
        if argv[:3] == ["qm", "disk", "resize"]:
            world.file += "onboot: 1\n"
        return real(argv)

    world.spoil = meanwhile
    failure = world.converge(LARGER).failure
    assert failure["error_code"] == "Changed"
    assert "checksum mismatch" in failure["message"]
    assert (world.volsize(DATA), world.setting("onboot")) == (2048, "1")


ERRORS = {
    "VM is locked (backup)": "InUse",
    "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout": "Busy",
    "zfs error: cannot set property for 'tank/vms/vm-100-disk-0': out of space": "InsufficientSpace",
    "disk 'scsi1' does not exist": "ResourceNotFound",
    "no such thing was ever heard of": "QmFailed",
    "": "NotApplied",
}


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("text", ERRORS)
def test_status_0_and_nothing_done(text, running):
    world = World(running)
    world.spoil = lambda number, argv, real: Answer(0, "", text + "\n") if argv[0] == "qm" else real(argv)
    failure = world.converge(LARGER).failure
    assert failure["error_code"] == ERRORS[text]
    assert text in failure["message"]
    assert "tank/vms/vm-100-disk-0 has 2 GiB, not 3 GiB" in failure["message"]
    world.spoil = None
    world.done(LARGER)
    assert world.vm().interrupted is None


def test_another_status_and_all_done():
    """The status is no proof of a failure, either."""
    world = World()

    world.spoil = lambda number, argv, real: _as_failed(real(argv)) if argv[0] == "qm" else real(argv)
    world.done(LARGER)


def _as_failed(answer):
    return Answer(255, answer.stdout, answer.stderr)


def test_a_monitor_that_does_not_answer_is_asked_before():
    world = World(running=True)
    world._blocks = _silent
    assert "QEMU does not answer" in world.refusal(LARGER)
    outcome = world.done({"name": "data", "description": "of the shop"})
    assert ["QEMU does not answer" in one for one in outcome.warnings] == [True]
    assert world.disks()["data"].user_properties["description"] == "of the shop"


def _silent(path):
    raise FlexdiskError("HypervisorUnreachable", f"QEMU does not answer at {path}")


# -- a running QEMU that has another size than the volume


STALE = (
    "web: disk data: the running VM still has 2 GiB, and its volume has 3 GiB; a stop and a start of the VM gives it"
)


@pytest.fixture
def stale_world():
    """The volume has grown by hand, so no qm disk resize to its size tells QEMU."""
    world = World(running=True)
    world.done({"name": "root"}, {"name": "data"})
    world.run("zfs", "set", "volsize=3G", DATA)
    assert stale(world)
    return world


def test_a_stale_size_is_a_warning_of_every_task(stale_world):
    """In check mode, too. What does not concern it goes on."""
    for check in (True, False):
        outcome = stale_world.done(LARGER, check=check)
        assert (outcome.changed, [one for one in outcome.warnings if one.startswith(STALE)]) == (
            False,
            outcome.warnings,
        )
    stale_world.spoil = None
    outcome = stale_world.four_steps({"name": "root", "size": "5GiB"}, {"name": "logs", "size": "1GiB"})
    assert any(one.startswith(STALE) for one in outcome.warnings)
    stale_world.run("qm", "stop", "100")
    stale_world.run("qm", "start", "100")
    assert stale_world.done(LARGER).warnings == []


def test_more_growth_tells_qemu_the_size(stale_world):
    outcome = stale_world.four_steps({"name": "data", "size": "4GiB"})
    assert outcome.warnings == []
    assert stale_world.plugged()["scsi1"] == 4096


def test_a_disk_that_qemu_has_lost_cannot_grow():
    """A guest may let a disk go long after qm has given up waiting for that."""
    world = World(running=True)
    world.done({"name": "data"})
    state = on_node.NodeHost(world.node).state
    del state["running"]["100"]["plugged"]["scsi1"]
    assert "[VmNotStopped]" in world.refusal(LARGER)
    (warning,) = world.done({"name": "root", "size": "5GiB"}).warnings
    assert warning == "web: the running VM does not have data; a stop and a start of the VM gives it the disk"


# -- interrupted


def picture(world):
    """What is to be the same however often it was interrupted."""
    vm = world.vm()
    disks = {d.name: (d.volume.name, d.size, d.key, d.volume.refreservation) for d in vm.disks}
    return disks, world.file, world.plugged() if world.running else {}, vm.interrupted


def stale(world):
    """Whether QEMU lacks a size that its volume has: qm was killed between the two."""
    return world.running and world.plugged()["scsi1"] != world.volsize(DATA)


@pytest.mark.parametrize("running", [False, True])
def test_interrupted_at_every_command(running):
    """The second run ends as the first one would have. What qm cannot tell QEMU any more is a warning."""
    told = interrupted(lambda: World(running), LARGER)
    assert bool(told) == running


def unknown():
    """A VM of which this collection knows nothing, with a serial of somebody's own."""
    world = World()
    for volume in (ROOT, DATA):
        for name in ("uuid", "name", "vm"):
            world.run("zfs", "inherit", f"flexdisk:{name}", volume)
    text = world.file.replace(f"serial={serial_of(DATA_UUID)}", "serial=a%2Cb")
    world.file = text.replace(f"serial={serial_of(ROOT_DISK)},", "")
    return world


ADOPTED = ({"boot": True, "name": "root", "size": "5GiB"}, {"pci_slot": "0:11:0", "name": "logs"})


def with_virtio1():
    world = unknown()
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-100-disk-1")
    world.run("qm", "set", "100", "--virtio1", "local-zfs:vm-100-disk-1,discard=on")
    return world


def test_a_stopped_vm_gets_serials():
    """Those of the UUIDs, beside the options that the disks have; a guest that runs would not see them."""
    world = with_virtio1()
    world.four_steps(*ADOPTED)
    for disk in world.vm().disks:
        assert f"serial={serial_of(disk.uuid)}" in world.setting(disk.key)
    assert world.setting("virtio0").split(",")[:3] == ["local-zfs:vm-100-disk-0", "cache=writeback", "iothread=1"]
    assert world.vm().config.uuid == VM


def test_serials_interrupted_at_every_command():
    assert not interrupted(with_virtio1, *ADOPTED)


@pytest.mark.parametrize("text", ["400 Parameter verification failed.", "it has failed"])
def test_what_waits_is_taken_back(text):
    """A failed qm leaves its change in the pending ones, from where any later change would apply it."""
    world = with_virtio1()

    def spoil(number, argv, real):
        if argv[:2] == ["qm", "set"] and "--revert" not in argv:
            world.file += f"[PENDING]\n{argv[3][2:]}: {argv[4]}\n"
            return Answer(255, "", text + "\n")
        return real(argv)

    world.spoil = spoil
    assert world.converge(*ADOPTED).failure["error_code"] == "QmFailed"
    assert "[PENDING]" not in world.file
    world.spoil = None
    world.done(*ADOPTED)


def test_lines_that_proxmox_drops_are_said():
    """It drops settings that it does not know, whatever else is changed."""
    world = World()
    world.file = FILE + "newknob: 1\n"
    assert "has dropped newknob: 1 from the file" in world.converge(LARGER).failure["message"]


def test_a_base_volume_is_left_alone():
    world = World()
    world.run("zfs", "rename", "tank/vms/vm-100-disk-0", "tank/vms/base-100-disk-0")
    world.file = FILE.replace("thick:vm-100", "thick:base-100")
    assert "base volume" in world.vm().config.proxmox["left_alone"][0]


def interrupted(make, *disks):
    """How often QEMU had to be started again, of all places where a task is interrupted."""
    straight = make()
    straight.done(*disks)
    found = [*faults(make, *disks)]
    assert len(found) > 25
    told = 0
    for fault in found:
        world = make()
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*disks).problems == []
        world.spoil = None
        if stale(world):
            told += 1
            predicted, done = (world.done(*disks, check=check).warnings for check in (True, False))
            assert predicted == done
            assert [one.startswith(STALE) for one in done] == [True]
            world.run("qm", "stop", "100")
            world.run("qm", "start", "100")
        world.done(*disks)
        assert picture(world) == picture(straight), fault
        assert not world.converge(*disks).changed
    return told
