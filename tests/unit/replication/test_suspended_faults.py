# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What others do in the middle of a move with memory, and runs that die again: nobody stays paused, nothing is lost."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import saved_memory, verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.half_done import AtWork, half_done

from .controller import Controller
from .linux import LinuxWorld
from .test_failover import kept, said_by, start
from .test_move import swap, two_disks, with_keys
from .test_suspended import (  # noqa: F401  # pylint: disable=unused-import
    MEMORY,
    Move,
    _both,
    _killed_when,
    _killed_with,
    _power_off,
    _read_only,
    _refused,
    _word,
    make,
)
from .world import PASSPHRASE, VM


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
    """It is there at every command of it. An older file is not, once the seal of the next one is."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    path = f"{saved_memory.folder(VM)}/memory"
    home.quietly(lambda: home.files.store(path, 4 << 20, "a save that did not come to its end"))
    first, files = _seal(home), []

    def watch() -> None:
        move.check()
        if home.domains.states.get(VM) == "paused":
            assert home.has(MEMORY), "a guest stands still without a journal"
        if home.has(MEMORY) and _seal(home) not in ("", first):
            files.append(home.files.stored(path))

    move.world.guard = watch
    assert move.moves()["memory"] == "restored"
    assert files
    assert "a save that did not come to its end" not in files
    move.world.guard = move.check
    move.ends(move.world.peer)


def _seal(host: Any) -> str:
    """The seal in the journal."""
    text = host.quietly(lambda: host.ok("zfs", "get", "-Hpo", "value", "flexdisk:memory", MEMORY))
    journal = saved_memory.decode(text)
    return journal.seal if journal else ""


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
        return str(described(uuid))

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


# -- what the target must know


@pytest.mark.parametrize("what", ["qemu", "bridge"])
def test_the_target_is_asked_after_a_boot_as_before(make, what):  # noqa: F811
    """The file of the memory is not mounted then. What the target lacks is refused, and nothing is lost."""
    move = make()
    home, peer = move.hosts
    if what == "bridge":
        nic = "<interface type='bridge'><mac address='52:54:00:00:00:09'/><source bridge='br9'/></interface>"
        home.domains.lives[VM].find("devices").append(ET.fromstring(nic))
    _killed_with(move, "home", "saved")
    home.reboot()
    assert not home.files.mounted(saved_memory.folder(VM), MEMORY)
    lines = move.does(True)["outlook"]["lines"]
    assert f"leave: the memory of {VM} (64 MiB) is saved already on hv01; its guest stands still" in lines
    if what == "qemu":
        peer.domains.qemu = 6002000
    else:
        peer.domains.lacking.add("br9")
    refused = _both(move)
    assert "hv02 lacks what its memory needs" in refused
    assert "Its guest stands still for its move; flexdisk_move_state=stays gives it back" in refused
    assert (move.boots, move.restored, _word(home)) == (0, [], "saved")
    move.stays()
    assert move.boots == 0
    move.ends(home)
    assert records.absent(saved_memory.key_name(VM))


def test_the_memory_of_encrypted_disks_in_a_pool_without_encryption(tmp_path, monkeypatch):
    """They have come from an encrypted pool. It would lie in clear here, and does not go there in clear."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(LinuxWorld, "passphrases", (PASSPHRASE, "", ""))
    move = Move(with_keys(two_disks(tmp_path, monkeypatch)))
    move.moves(how="stopped")
    move.world.guard = lambda: None
    swap(move.world)
    home = move.world.home
    assert "its disks are encrypted, and its memory would lie unencrypted in pool zones" in _both(move)
    assert "save_memory" not in [name for name, _arguments in home.domains.calls]
    assert not home.has(MEMORY)


# -- a sync in the middle of the move


def _keeps(move: Move, source: str, target: str, third: Any) -> str:
    """What a run of replicate says that sends the VM."""
    world = move.world
    before = (world.home, world.home_name, world.peer, world.peer_name, world.guard)
    hosts = {"hv01": before[0], "hv02": before[2], "hv03": third}
    world.home, world.home_name, world.peer, world.peer_name = hosts[source], source, hosts[target], target
    world.guard = lambda: None
    said = []
    for check in (True, False):
        controller = Controller(world, hosts)
        sync = controller.sync(source, target, [VM])
        said.append(_refused(partial(controller.does, "keep", sync, check)))
    world.home, world.home_name, world.peer, world.peer_name, world.guard = before
    assert said[0] == said[1]
    return said[1]


@pytest.mark.parametrize("how", ["stopped", "suspended"])
def test_a_sync_from_the_host_that_it_comes_to_waits(make, how):  # noqa: F811
    """It would destroy what proves that nothing was written, and the base of the way back."""
    move = make()
    peer, third = move.world.peer, move.world.host(3)
    _killed_when(move, lambda: len(peer.disks(VM)) == 2 and (how == "stopped" or _word(peer) == "saved"), how=how)
    before = peer.ok("zfs", "list", "-Ho", "name", "-t", "snapshot,bookmark", "-r", "zones")
    said = _keeps(move, "hv02", "hv03", third)
    assert "it is being moved from hv01" in said
    assert "it is not replicated before" in said
    assert peer.ok("zfs", "list", "-Ho", "name", "-t", "snapshot,bookmark", "-r", "zones") == before
    ended = move.moves(how=how)
    assert how == "stopped" or ended["memory"] == "restored"
    move.ends(peer)
    swap(move.world)
    assert move.world.sync() == (True, True)


def test_a_sync_to_another_host_waits_for_the_memory(make):  # noqa: F811
    move = make()
    third = move.world.host(3)
    _killed_with(move, "home", "saved")
    assert "it is being moved to hv02 with the saved memory of its guest" in _keeps(move, "hv01", "hv03", third)
    assert move.moves()["memory"] == "restored"
    move.ends(move.world.peer)


# -- memory that stays where the VM was


def _without_tidy(move: Move) -> None:
    """The run loses the host that the VM has left, right before its end."""
    real = Controller._does

    def does(self: Controller, call: Any, check: bool) -> Any:
        if call.name == "Tidy up where the VM was":
            return {"unreachable": True, "msg": "hv01 cannot be reached"}
        return real(self, call, check)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Controller, "_does", does)
        move.moves()
    assert "hv01 may still have the saved memory of" in move.controller.messages[-1]
    assert move.world.home.has(MEMORY)
    assert _kinds(move.world.home) == ["memory_left"]


@pytest.mark.parametrize("then", ["sync", "playbook"])
def test_memory_that_nobody_has_tidied_up(make, then):  # noqa: F811
    """It is told and found, and both a sync of the way back and the same command destroy it."""
    move = make()
    world, home = move.world, move.world.home
    _without_tidy(move)
    if then == "sync":
        swap(world)
        move.writes()
        assert world.sync() == (True, True)
        swap(world)
    else:
        controller = Controller(world, {"hv01": home, "hv02": world.peer})
        wanted = {"vm": VM, "hosts": ["hv01", "hv02"], "target": "hv02", "state": "moved"}
        controller.does("relocate", wanted, True)
        assert home.has(MEMORY)
        assert controller.does("relocate", wanted)["moves"] == {}
    assert not home.has(MEMORY)
    assert _kinds(home) == []
    move.ends(world.peer)


# -- disks that somebody has made read-only


@pytest.mark.parametrize("how", ["stopped", "suspended"])
@pytest.mark.parametrize("runs", [True, False])
def test_disks_that_an_operator_has_made_read_only(make, how, runs):  # noqa: F811
    """They are named, and stay so. Nobody says that memory is lost."""
    move = make()
    home = move.world.home
    if not runs:
        home.domains.halt(VM)
    home.ok("zfs", "set", "readonly=on", f"zones/{VM}/disk1")
    refused = _both(move, how=how)
    assert f"somebody has made its disk zones/{VM}/disk1 read-only" in refused
    assert "memory" not in refused
    assert sorted(_read_only(home)) == ["off", "on"]
    home.ok("zfs", "inherit", "readonly", f"zones/{VM}/disk1")
    assert not _both(move, how=how)


def test_disks_that_an_operator_makes_read_only_during_a_stopped_move(make):  # noqa: F811
    """Who gives the move up leaves them as they are, and no memory was there to lose."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: VM not in home.domains.lives, how="stopped")
    home.ok("zfs", "set", "readonly=on", f"zones/{VM}/disk1")
    _refused(move.stays)
    assert "memory lost" not in str(move.controller.messages)
    assert sorted(_read_only(home)) == ["off", "on"]


@pytest.mark.parametrize("memory", ["is there", "is gone"])
@pytest.mark.parametrize("then", ["moved", "moved stopped", "stays"])
def test_a_guest_that_somebody_lets_go_on(make, memory, then):  # noqa: F811
    """Its disks are read-only behind it: that is found, and both commands end it."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    if memory == "is gone":
        home.ok("zfs", "destroy", "-r", MEMORY)
    home.quietly(lambda: home.domains.resume(VM))
    move.writes()
    assert "disks_closed" in _kinds(home)
    state, _space, how = then.partition(" ")
    assert not _both(move, state=state, how=how or "suspended")
    assert "memory lost" not in str(move.controller.messages)
    move.ends(home if then == "stays" else move.world.peer)


# -- a pool that does not know what was written, and a journal that nobody can read


@pytest.mark.parametrize("old", ["pool", "zfs"])
def test_a_pool_that_does_not_know_what_was_written_is_refused(make, old):  # noqa: F811
    """There, disks that were written to and have their size would pass for those of the memory."""
    move = make()
    peer = move.world.peer
    real = peer.node.run

    def run(argv: list[str], stdin: Any = "") -> Any:
        if "feature@bookmark_written" in argv:
            return 2, "", "bad property list: invalid property 'feature@bookmark_written'\nusage:\n"
        return real(argv, stdin)

    if old == "zfs":
        peer.node.run = run
    peer.node.pools.faults["old_pool"] = True
    text = "pool zones of hv02 has no feature bookmark_written, so nobody would know whether its disks were written to"
    assert text in _both(move)
    assert "save_memory" not in [name for name, _arguments in move.world.home.domains.calls]
    move.moves(how="stopped")
    if old == "zfs":
        del peer.node.run
    move.ends(peer)


@pytest.mark.parametrize("value", ["junk", ""])
@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_journal_that_nobody_can_read_here(make, value, then):  # noqa: F811
    """The memory is not restored. The word boots the VM, and what was lost is told."""
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")
    _spoil_journal(home, value)
    refused = _both(move, state=then)
    assert "the journal of its saved memory is gone, or cannot be read; its memory is not restored" in refused
    move.does(state=then, allow_memory_loss=True)
    assert "memory lost, so it has booted: the journal of its saved memory" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.ends(home if then == "stays" else move.world.peer)


@pytest.mark.parametrize("value", ["junk", ""])
def test_a_journal_that_nobody_can_read_there(make, value):  # noqa: F811
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "saved" and len(peer.disks(VM)) == 2)
    _spoil_journal(peer, value)
    assert "MemoryLost" in _both(move)
    assert move.moves(allow_memory_loss=True)["memory"] == "lost"
    assert (move.boots, move.restored) == (1, [])
    move.ends(peer)


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_journal_that_nobody_can_read_of_a_guest_that_stands_still(make, then):  # noqa: F811
    """The guest has all in itself."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    _spoil_journal(home, "junk")
    assert not _both(move, state=then)
    assert move.boots == 0
    move.ends(home if then == "stays" else move.world.peer)


def _spoil_journal(host: Any, value: str) -> None:
    command = ["set", f"flexdisk:memory={value}"] if value else ["inherit", "flexdisk:memory"]
    host.ok("zfs", *command, MEMORY)


# -- what is said


def test_a_guest_that_lost_power_before_anything_was_saved_needs_no_word(make):  # noqa: F811
    """With failover, start_host starts it. Nobody says that memory was saved, or lost by that."""
    move = make()
    home = move.world.home
    kept(move.world)
    _killed_when(move, lambda: _paused(move))
    _power_off(home)
    assert not _both(move, state="stays")
    assert "memory" not in str(move.controller.messages)
    assert (home.has(MEMORY), _read_only(home), home.domains.status(VM).state) == (False, ["off"] * 2, "stopped")
    assert start(move.world, {"hv02": said_by(move.world.peer)}).started == [f"db01 ({VM})"]
    move.ends(home)


# -- the host that it comes to gives nothing up


def test_stays_is_refused_on_the_host_that_it_comes_to(make):  # noqa: F811
    """Somebody has named the wrong hosts."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "saved" and len(peer.disks(VM)) == 2)
    move.world.guard = lambda: None
    swap(move.world)
    assert _both(move, state="stays")
    swap(move.world)
    move.world.guard = move.check
    assert move.moves()["memory"] == "restored"
    move.ends(peer)
