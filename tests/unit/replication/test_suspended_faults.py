# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others do in the middle of a move with memory, and runs that die again: nobody stays paused, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.half_done import AtWork, half_done

from .test_suspended import (  # noqa: F401
    MEMORY,
    Move,
    _both,
    _killed_when,
    _killed_with,
    _read_only,
    _refused,
    _word,
    make,
)
from .world import VM


def _paused(move: Move) -> bool:
    """The guest stands still here, its disks are closed, and libvirt does not save it."""
    home = move.world.home
    return home.domains.states.get(VM) == "paused" and _read_only(home) == ["on"] * 2 and not home.domains.is_saving(VM)


def _seen(host: Any) -> Any:
    return host.quietly(lambda: observe(host.zfs(), host.driver(), all_pools=True))


def _kinds(host: Any) -> list[str]:
    return [one.kind for one in verify.findings(_seen(host), 0, 30, 7)]


def _is_told(host: Any) -> bool:
    """Whoever looks learns that the guest stands still."""
    (half,) = [one for one in half_done(_seen(host), [], [], [], AtWork(False, ())) if one.vm == VM]
    told = host.quietly(lambda: info(host.zfs(), host.driver(), None, None, False))
    frozen = next(one.config.frozen for one in _seen(host).vms if one.config.uuid == VM)
    said = [half.text, *told.warnings, frozen]
    return "guest_paused" in _kinds(host) and sum("stands still" in text for text in said) == 3


# -- a guest that stands still


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_guest_stands_still_and_the_file_system_of_its_memory_is_gone(make, then):  # noqa: F811
    """Somebody has destroyed it, or a run was killed that made it anew. The guest itself has all."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    home.ok("zfs", "destroy", "-r", MEMORY)
    assert _is_told(home)
    assert not _both(move, state=then)
    assert "booted" not in str(move.controller.messages)
    assert move.boots == 0
    move.ends(move.world.peer if then == "moved" else home)


def test_a_second_run_keeps_the_journal_of_a_guest_that_stands_still(make):  # noqa: F811
    """It is there at every command of it, and an older file is not."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    path = f"/var/lib/flexdisk/memory/{VM}/memory"
    home.quietly(lambda: home.files.store(path, 4 << 20, "a save that libvirt did not end"))
    files = []

    def gone() -> bool:
        if home.domains.states.get(VM) == "paused" and _word(home) == "saving" and home.domains.is_saving(VM):
            files.append(home.files.stored(path))
        return not home.has(MEMORY) and VM in home.domains.states

    move.world.guard = lambda: _never(gone())
    assert move.moves()["memory"] == "restored"
    assert "a save that libvirt did not end" not in files[:1]
    move.world.guard = move.check
    move.ends(move.world.peer)


def _never(what: bool) -> None:
    assert not what


@pytest.mark.parametrize("fault", ["no room", "libvirt"])
def test_a_second_run_that_fails_lets_the_guest_go_on(make, fault):  # noqa: F811
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    real, described = home.node.run, home.domains.running_xml

    def run(argv: list[str], stdin: Any = "") -> Any:
        if argv[:2] == ["zfs", "set"] and argv[-1] == MEMORY and argv[2].startswith("refreservation=1"):
            return 1, "", f"cannot set property for '{MEMORY}': size is greater than available space"
        return real(argv, stdin)

    def running_xml(uuid: str) -> str:
        if fault == "libvirt" and len(move.controller.answers) > 3:
            raise FlexdiskError("LibvirtFailed", "cannot acquire state change lock")
        return described(uuid)

    if fault == "no room":
        home.node.run = run
    home.domains.running_xml = running_xml
    assert f"{VM} stays on hv01" in _refused(move.moves)
    home.domains.running_xml = described
    if fault == "no room":
        del home.node.run
    assert move.boots == 0
    move.ends(home)


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_guest_stands_still_there_without_its_memory(make, then):  # noqa: F811
    """It was restored, and somebody has destroyed the file system of its memory right then."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "restored" and peer.domains.states.get(VM) == "paused")
    peer.ok("zfs", "destroy", "-r", MEMORY)
    assert _is_told(peer)
    if then == "stays":
        assert _both(move, state="stays")
    move.moves()
    assert "booted" not in str(move.controller.messages)
    assert move.boots == 0
    move.ends(peer)
