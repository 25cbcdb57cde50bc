# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of Proxmox VE that become smaller, which qm refuses: the volume first, then the file is told."""

from __future__ import annotations

import contextlib
import fcntl
from unittest.mock import patch

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer

from .world import FILE, Killed, World, faults

ROOT, DATA = "rpool/data/vm-100-disk-0", "tank/vms/vm-100-disk-0"
SMALLER = {"name": "data", "size": "1GiB", "dangerous_allow_shrink": True}
LOCK = "/var/lock/qemu-server/lock-100.conf"


@pytest.mark.parametrize(("name", "volume"), [("root", ROOT), ("data", DATA)])
def test_a_shrink_happens_or_is_refused(name, volume):
    """Sparse and thick. Options, key and serial stay."""
    world = World()
    before = world.file
    assert "would cut off data; dangerous_allow_shrink: true allows it" in world.refusal({"name": name, "size": "1GiB"})
    world.four_steps({**SMALLER, "name": name})
    assert world.volsize(volume) == 1024
    old = "size=4G" if name == "root" else "size=2G"
    assert world.file.replace("iothread=1", "iothread=on") == before.replace(old, "size=1G")
    reserved = int(world.run("zfs", "get", "-Hpo", "value", "refreservation", volume)) >> 20
    assert (reserved > 1024, reserved < 1100) == (name == "data", True)


def test_a_running_vm_keeps_its_size():
    """Unless the task may restart it. All other problems are told with it."""
    world = World(running=True)
    said = world.refusal(SMALLER, {"name": "root", "size": "1GiB"})
    assert "would cut off data" in said
    said = world.refusal(SMALLER)
    assert "data 2 GiB -> 1 GiB" in said
    assert "allow_restart: true allows a shutdown and a start" in said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("lock: backup\n", "VM 100 is locked by Proxmox VE (backup)"),
        ("[PENDING]\nmemory: 1024\n", "has changes that wait for its stop (memory)"),
    ],
)
def test_what_others_do_is_named(line, why):
    world = World()
    world.done({"name": "data"})
    world.file = FILE + line
    assert why in world.refusal(SMALLER)


def refused_after(world, act):
    """Do something right before the lock is taken. Return the failure: the volume has not been changed."""
    held = pve_lock.held

    def late(*words):
        act()
        return held(*words)

    def spoil(number, argv, real):
        assert not any(word.startswith("volsize=") for word in argv)
        return real(argv)

    world.spoil = spoil
    with patch.object(pve_lock, "held", late):
        failure = world.converge(SMALLER).failure
    world.spoil = None
    return failure


def test_a_vm_that_has_been_started_meanwhile():
    world = World()
    world.done({"name": "data"})
    failure = refused_after(world, lambda: world.run("qm", "start", "100"))
    assert failure["error_code"] == "Changed"
    assert "VM 100 runs by now, and scsi1 of VM 100 cannot become smaller" in failure["message"]
    assert world.volsize(DATA) == 2048


def test_a_file_that_has_been_changed_meanwhile():
    world = World()
    world.done({"name": "data"})

    def change():
        world.file += "onboot: 1\n"

    failure = refused_after(world, change)
    assert (failure["error_code"], world.volsize(DATA)) == ("Changed", 2048)


def replaced(world):
    world.run("zfs", "rename", DATA, "tank/vms/old")
    world.run("zfs", "create", "-V", "2G", DATA)


@pytest.mark.parametrize(
    ("act", "text", "size"),
    [
        (lambda world: world.run("zfs", "set", "volsize=8G", DATA), "has 8 GiB by now, not 2 GiB", 8192),
        (lambda world: world.run("zfs", "set", "volsize=512M", DATA), "has 512 MiB by now, not 2 GiB", 512),
        (replaced, "is another volume by now", 2048),
        (lambda world: world.run("zfs", "destroy", DATA), "cannot be read: ", None),
    ],
)
def test_a_volume_that_has_been_changed_meanwhile(act, text, size):
    """No more is cut off than the plan has said, and nothing of another volume."""
    world = World()
    world.done({"name": "data"})
    failure = refused_after(world, lambda: act(world))
    assert text in failure["message"]
    assert size is None or world.volsize(DATA) == size
    assert "size=2G" in world.setting("scsi1")


def test_nothing_can_start_the_vm_while_the_volume_changes():
    """The lock of Proxmox VE is held, and then given up for qm."""
    world = World()
    said = []

    def spoil(number, argv, real):
        if any(word.startswith("volsize=") for word in argv):
            said.append(world.node.run(["qm", "start", "100"])[2])
        return real(argv)

    world.spoil = spoil
    world.done(SMALLER)
    assert "can't lock file" in said[0]
    assert not world.running


def test_proxmox_works_on_the_vm():
    """As long as another process has the lock of the VM, nothing is changed."""
    world = World()
    world.done({"name": "data"})
    (world.files / LOCK[1:]).parent.mkdir(parents=True, exist_ok=True)
    with (world.files / LOCK[1:]).open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        failure = world.converge(SMALLER).failure
    assert failure["error_code"] == "Busy"
    assert f"{LOCK} is locked by another process" in failure["message"]
    assert world.volsize(DATA) == 2048
    world.done(SMALLER)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("cannot set property for 'x': dataset is busy\n", "Busy"),
        ("cannot set property for 'x': pool I/O is currently suspended\n", "Suspended"),
        ("", "QmFailed"),
    ],
)
def test_zfs_fails(text, code):
    world = World()
    world.done({"name": "data"})
    refused = Answer(1, "", text)
    world.spoil = lambda n, argv, real: refused if any(w.startswith("volsize=") for w in argv) else real(argv)
    failure = world.converge(SMALLER).failure
    assert failure["error_code"] == code
    assert f"{text.strip() or 'zfs has failed without a message'}; {DATA} has 2 GiB, not 1 GiB" in failure["message"]
    world.spoil = None
    world.done(SMALLER)


@pytest.mark.parametrize("vm", [{}, {"flexible_disk_size": "20GiB"}])
def test_qm_fails_after_the_volume_was_changed(vm):
    """The next run writes the size to the file."""
    world = World()
    world.done({"name": "data"}, vm=vm)
    failed = Answer(255, "", "it has failed\n")
    world.spoil = lambda n, argv, real: failed if argv[:2] == ["qm", "set"] else real(argv)
    assert "it has failed; scsi1 of VM 100 has another size=" in world.converge(SMALLER, vm=vm).failure["message"]
    world.spoil = None
    world.done({"name": "data"}, vm=vm)
    assert "size=1G" in world.setting("scsi1")
    assert world.vm().interrupted is None


def picture(world):
    vm = world.vm()
    disks = {d.name: (d.volume.name, d.size, d.key, d.volume.refreservation) for d in vm.disks}
    return disks, world.file, vm.interrupted


@pytest.mark.parametrize("name", ["root", "data"])
def test_interrupted_at_every_command(name):
    """The second run ends as the first one would have."""
    entry = {**SMALLER, "name": name}
    straight = World()
    straight.done(entry)
    found = [*faults(World, entry)]
    assert len(found) > 20
    for fault in found:
        world = World()
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(entry).problems == []
        world.spoil = None
        world.done(entry)
        assert picture(world) == picture(straight), fault
        assert not world.converge(entry).changed
