# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes that wait in the file of a VM. Only what an interrupted run has begun is taken back, and it is shown."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .world import Fault, Killed, World

LARGER = {"name": "data", "size": "3GiB"}
NEW = {"name": "new", "size": "1GiB"}
THEIRS = "sata1: local-zfs:vm-100-disk-8,serial=theirs,size=1G\n"


def is_set(argv):
    return argv[:2] == ["qm", "set"] and "--revert" not in argv


def detached_by_hand(options=""):
    """A running VM whose operator has detached a disk of ours, and gives it back at a key that waits for a stop."""
    world = World(running=True)
    world.done(NEW)
    serial = serial_of(world.disks()["new"].uuid)
    world.run("qm", "set", "100", "--delete", "virtio1")
    world.run("qm", "set", "100", "--sata1", f"local-zfs:vm-100-disk-1,serial={serial}{options}")
    return world


@pytest.mark.parametrize("options", ["", ",cache=none"])
def test_a_waiting_change_with_our_serial_is_not_ours(options):
    """Without an interrupted run nothing is; with other options than ours, neither."""
    world = detached_by_hand(options)
    assert "has changes that wait for its stop (sata1)" in world.refusal(LARGER)


def test_other_options_are_not_ours_after_an_interrupted_run():
    world = detached_by_hand(",cache=none")
    waits = world.file.split("[PENDING]")[1]
    world.file = world.file.split("\n[PENDING]")[0]
    world.spoil = _killed_at_resize
    with contextlib.suppress(Killed):
        world.converge(LARGER)
    world.spoil = None
    assert world.vm().interrupted is not None
    world.file += f"\n[PENDING]{waits}"
    assert "has changes that wait for its stop (sata1)" in world.refusal(LARGER)


def _killed_at_resize(number, argv, real):
    if argv[:3] == ["qm", "disk", "resize"]:
        raise Killed
    return real(argv)


def test_a_change_between_two_of_our_steps_stays():
    world = World(running=True)

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:4] == ["qm", "disk", "resize", "100"] and "sata1" not in world.file:
            world.run("qm", "set", "100", "--sata1", "local-zfs:5,serial=theirs")
        return answer

    world.spoil = spoil
    failure = world.converge({"name": "root", "size": "5GiB"}, LARGER).failure
    assert failure["error_code"] == "Changed"
    assert "changes that wait for its stop (sata1)" in failure["message"]
    assert "[PENDING]\nsata1: local-zfs:vm-100-disk-1,serial=theirs" in world.file
    assert not any("--revert" in argv for argv in world.calls)


@pytest.mark.parametrize("text", ["", "VM is locked (backup)", "it has failed"])
def test_a_change_during_our_command_stays(text):
    """At the same key. "" stands for the digest, by which qm refuses ours."""
    world = World(running=True)

    def spoil(number, argv, real):
        if is_set(argv):
            world.file += "\n[PENDING]\n" + THEIRS.replace("sata1", "virtio1")
            return Answer(255, "", text + "\n") if text else real(argv)
        return real(argv)

    world.spoil = spoil
    failure = world.converge(NEW).failure
    assert "somebody else's change of virtio1 waits for a stop of the VM, and stays there" in failure["message"]
    assert "[PENDING]\nvirtio1: local-zfs:vm-100-disk-8,serial=theirs" in world.file


def test_what_is_taken_back_is_shown():
    """qm is killed with the module, after it has written what is to be done."""
    for torn in range(1, 5):
        world = World(running=True)
        world.done({"name": "data"})
        number = _number_of_set()
        Fault(number, torn=torn)(world)
        with contextlib.suppress(Killed):
            world.converge(NEW)
        world.spoil = None
        if "[PENDING]" in world.file:
            break
    shown = world.four_steps(NEW)
    assert "the waiting change of virtio1 is taken back" in shown.diff
    assert "[PENDING]" not in world.file
    assert world.plugged()["virtio1"] == 1024


def _number_of_set():
    world = World(running=True)
    world.done({"name": "data"})
    world.done(NEW)
    return next(number for number, argv in enumerate(world.calls, 1) if is_set(argv))
