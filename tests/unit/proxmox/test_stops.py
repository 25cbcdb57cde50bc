# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What needs a stop of a VM of Proxmox VE is done if the task allows a restart, but not if HA manages the VM."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer

from .test_leaving import PLACE, detached
from .world import FILE, Killed, World, faults

SMALLER = {"name": "data", "size": "1GiB", "dangerous_allow_shrink": True}
DATA = "tank/vms/vm-100-disk-0"


def running(bus="scsi1"):
    world = World()
    world.file = FILE.replace("scsi1:", f"{bus}:")
    world.run("qm", "start", "100")
    return world


CHANGES = {
    "shrink": ("scsi1", ({"name": "root"}, SMALLER), {}),
    "detach sata": ("sata1", ({"name": "root"},), {"vm": {"unlisted": "detach"}}),
    "attach ide": (
        "scsi1",
        ({"name": "root"}, {"name": "data"}, {"name": "n", "size": "64MiB", "pci_slot": "ide1"}),
        {},
    ),
    "several": ("scsi1", ({"name": "root", "size": "5GiB"}, SMALLER, {"name": "n", "size": "64MiB"}), {}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_needs_a_stop(name):
    """Without allow_restart it is refused, and the message says what needs it. With it, the VM runs afterwards."""
    bus, entries, more = CHANGES[name]
    world = running(bus)
    assert "; allow_restart: true allows a shutdown and a start [VmNotStopped]" in world.refusal(*entries, **more)
    assert world.running
    outcome = world.four_steps(*entries, **more, allow_restart=True)
    assert outcome.diff.splitlines()[0].startswith("1 VM: 1 change, 1 restart")
    assert world.running
    assert [argv[1] for argv in world.calls if argv[0] == "qm"] == []
    assert world.plugged() == {disk.key: disk.size_mib for disk in world.vm().disks}


def test_what_needs_no_stop_does_not_stop():
    world = running()
    world.done({"name": "data", "size": "3GiB"}, allow_restart=True)
    assert not [argv for argv in world.calls if argv[:2] in (["qm", "shutdown"], ["qm", "start"])]


def test_the_boot_disk_gets_smaller_with_a_stop():
    world = running()
    world.four_steps({"name": "root", "size": "2GiB", "dangerous_allow_shrink": True}, allow_restart=True)
    assert world.plugged()["virtio0"] == 2048


def test_a_vm_that_ha_manages_is_not_stopped():
    """HA would start it again. What needs no stop is done."""
    world = running()
    world.write("ha/resources.cfg", "vm: 100\n\tstate started\n")
    said = world.refusal({"name": "root"}, SMALLER, allow_restart=True)
    assert "data 2 GiB -> 1 GiB; HA manages VM 100" in said
    assert "let HA stop it first [VmNotStopped]" in said
    world.four_steps({"name": "data", "size": "3GiB"}, allow_restart=True)


def test_a_vm_that_ha_manages_and_that_is_stopped():
    world = World()
    world.write("ha/resources.cfg", "vm: 100\n\tstate stopped\n")
    world.four_steps({"name": "root"}, SMALLER)
    assert not world.running


def test_a_guest_that_does_not_shut_down():
    """The VM runs on with all that it had; allow_force_stop halts it."""
    world = running()
    world.admin("pve-guest", "100", "deaf")
    before = world.file
    failure = world.converge({"name": "root"}, SMALLER, allow_restart=True, stop_timeout=3).failure
    assert failure["error_code"] == "VmNotStopped"
    assert (
        "did not shut down within stop_timeout=3 s and is still running; allow_force_stop: true" in failure["message"]
    )
    assert (world.running, world.volsize(DATA)) == (True, 2048)
    assert sorted(world.file.splitlines()) == sorted(before.splitlines())
    world.done({"name": "root"}, SMALLER, allow_restart=True, stop_timeout=3, allow_force_stop=True)
    assert (world.running, world.volsize(DATA)) == (True, 1024)


def test_a_guest_that_shuts_down_after_the_task_has_ended():
    """The next run starts the VM, because it is down for that reason alone."""
    world = running()
    world.admin("pve-guest", "100", "deaf")
    assert world.converge({"name": "root"}, SMALLER, allow_restart=True, stop_timeout=3).failure
    world.admin("pve-power-off", "100")
    assert not world.running
    world.done({"name": "root"}, SMALLER, allow_restart=True)
    assert (world.running, world.volsize(DATA)) == (True, 1024)


def test_a_vm_that_does_not_start_again():
    """The failure says what QEMU has said, and the next run starts it."""
    world = running()
    failed = Answer(255, "start failed: QEMU exited with code 1\n", "")
    world.spoil = lambda n, argv, real: failed if argv[:2] == ["qm", "start"] else real(argv)
    failure = world.converge({"name": "root"}, SMALLER, allow_restart=True).failure
    assert "QEMU exited with code 1" in failure["restart"]
    world.spoil = None
    assert not world.running
    world.done({"name": "root"}, SMALLER, allow_restart=True)
    assert world.running


def test_somebody_else_changes_the_vm_while_it_stops():
    world = running()

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:2] == ["qm", "shutdown"]:
            world.file += "onboot: 1\n"
        return answer

    world.spoil = spoil
    failure = world.converge({"name": "root"}, SMALLER, allow_restart=True).failure
    assert "the file of VM 100 was changed by something else while it stopped" in failure["message"]
    world.spoil = None
    assert (world.running, world.volsize(DATA), world.setting("onboot")) == (True, 2048, "1")
    world.done({"name": "root"}, SMALLER, allow_restart=True)
    assert world.running


@pytest.mark.parametrize("name", ["shrink", "detach sata"])
def test_interrupted_at_every_command(name):
    """The VM runs after the second run, as it did before the first one."""
    bus, entries, more = CHANGES[name]
    more = {**more, "allow_restart": True}
    found = [*faults(lambda: running(bus), *entries, **more)]
    assert len(found) > 30
    for fault in found:
        world = running(bus)
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*entries, **more).problems == []
        world.spoil = None
        world.done(*entries, **more)
        assert world.running, fault
        assert (world.volsize(DATA) == 1024) if name == "shrink" else (detached(world) == {"data": PLACE}), fault
        assert not world.converge(*entries, **more).changed, fault
        assert world.plugged() == {disk.key: disk.size_mib for disk in world.vm().disks}, fault
