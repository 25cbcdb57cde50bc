# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look at a VM that another run is moving, whose controller may be gone: Locked, and no error from its midst."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .test_move import smartos
from .world import VM

LOOK: dict[str, Any] = {
    "step": "look", "vm": "db01", "name": "hv01", "peer_name": "hv02", "target_pool": None, "record": None,
    "transfer": None, "stop_timeout": 9, "allow_force_stop": False, "incoming_allowed": [], "bandwidth_limit": None,
    "peers": None, "authorized_keys": "/nowhere", "lock_timeout": 0, "suspends": False,
    "allow_memory_loss": False,
}  # fmt: skip


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return smartos(tmp_path, monkeypatch)


def look(world):
    arguments, problems = vm_move.parse(LOOK)
    assert problems == []
    call = Call(world.home.zfs(), world.home.driver(), None, False, world.home)
    return vm_move.run(call, lambda _line: None, arguments).result


def breaks(world, monkeypatch, times=1):
    """The VM goes between the list of all VMs and the next question, so many times."""
    left = [times]
    true_run = world.home.node.run

    def run(argv, stdin=""):
        if argv[:2] == ["vmadm", "get"] and left[0]:
            left[0] -= 1
            return 1, "", f"zoneadm: {argv[2]}: No such zone configured"
        return true_run(argv, stdin)

    monkeypatch.setattr(world.home.node, "run", run)


def busy():
    return lock.exclusive(SubprocessRunner(), None, 0, "the move of VM db01 to hv02")


def test_an_error_in_the_midst_of_a_change_is_locked_with_who_holds_it(world, monkeypatch):
    breaks(world, monkeypatch, 99)
    with busy(), pytest.raises(FlexdiskError) as caught:
        look(world)
    assert caught.value.code == "Locked"
    assert "the host is being changed by the move of VM db01 to hv02 (pid" in caught.value.message
    with pytest.raises(FlexdiskError, match="zoneadm"):  # nobody changes anything, so it is an error of the host
        look(world)


def test_a_look_waits_for_the_end_of_the_change(world, monkeypatch):
    """The other run ends while it is waited for."""
    breaks(world, monkeypatch)
    held = busy()
    held.__enter__()
    original = lock.exclusive

    def ends(*arguments, **more):
        held.__exit__(None, None, None)
        return original(*arguments, **more)

    monkeypatch.setattr(lock, "exclusive", ends)
    assert look(world)["vm"] == VM


def test_what_was_in_between_when_it_was_read_is_read_again(world, monkeypatch):
    """The list of VMs was read before the VM came, or after it had gone, and what is written down at the other end."""
    left = [1]
    true_run = world.home.node.run

    def run(argv, stdin=""):
        if argv[:2] == ["vmadm", "lookup"] and left[0]:
            left[0] -= 1
            return 0, "[]", ""
        return true_run(argv, stdin)

    monkeypatch.setattr(world.home.node, "run", run)
    with busy():
        assert look(world)["vm"] == VM
    left[0] = 1
    assert look(world)["vm"] == "", "nobody is at work: it is not asked twice"


def test_a_vm_whose_disks_are_on_their_way_is_locked(world):
    assert look(world)["refusals"] == []
    with lock.transfers(SubprocessRunner(), [VM], "the move to hv02"):
        (message,) = look(world)["refusals"]
    assert "VM db01: its disks are being replicated by the move to hv02 (pid" in message
    assert "run the same command again when that has ended [Locked]" in message
    assert look(world)["refusals"] == []
