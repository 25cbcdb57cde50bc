# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators, programs, other hosts and late commands beside a move with memory: refused before, or nothing is lost."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import saved_memory, verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .controller import Controller
from .linux import LinuxWorld
from .test_failover import kept, protect, take
from .test_move import POLICY, swap, two_disks, with_keys
from .test_suspended import (  # noqa: F401  # pylint: disable=unused-import
    MEMORY,
    STARTS,
    STAYS,
    Move,
    _both,
    _killed_when,
    _killed_when_saved,
    _killed_with,
    _power_off,
    _read_only,
    _refused,
    _word,
    make,
)
from .test_suspended_faults import _kinds, _paused, _seen, _without_tidy
from .world import OTHER, PASSPHRASE, VM, Fuse, Killed

EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 5
LEAVE = (
    "Stop the VM before its UEFI variables are read",
    "Stop the VM, send what it has written last, and end it here",
)
TIDY = "Tidy up where the VM was"


def _before(monkeypatch: Any, names: tuple[str, ...], act: Callable[[], Any]) -> None:
    """Something happens right before the first of these calls."""
    done: list[bool] = []
    real = Controller._does

    def does(self: Controller, call: Any, check: bool) -> Any:
        if call.name in names and not done:
            done.append(True)
            act()
        return real(self, call, check)

    monkeypatch.setattr(Controller, "_does", does)


def _warnings(host: Any) -> list[str]:
    told = host.quietly(lambda: info(host.zfs(), host.driver(), None, None, False))
    return list(told.warnings)


# -- commands that come late


@pytest.mark.parametrize("at", ["it leaves again", "it comes back"])
def test_a_late_tidy_leaves_the_memory_of_the_next_move_alone(make, monkeypatch, at):  # noqa: F811
    """The last call of a move waits for a lock while the next move of the VM saves its memory there."""
    move, late, real = make(), [], Controller._does

    def does(self: Controller, call: Any, check: bool) -> Any:
        if call.name == TIDY and not late:
            late.append((self, call))
            return {"unreachable": True, "msg": "it waits"}
        return real(self, call, check)

    monkeypatch.setattr(Controller, "_does", does)
    move.moves()
    home, peer = move.hosts
    swap(move.world)
    move.writes()
    if at == "it comes back":
        _killed_when(move, lambda: home.has(MEMORY) and VM not in peer.domains.configs and not peer.has(f"zones/{VM}"))
    else:
        move.moves()
        swap(move.world)
        move.writes()
        _killed_with(move, "home", "saved")
    assert home.has(MEMORY)
    assert "failed" not in real(*late[0], False)
    assert home.has(MEMORY)
    assert move.moves()["memory"] == "restored"
    assert move.boots == 0


@pytest.mark.parametrize(
    "change",
    [
        "<interface type='bridge'><mac address='52:54:00:00:00:09'/><source bridge='br9'/></interface>",
        "<hostdev mode='subsystem' type='usb'/>",
    ],
)
def test_what_a_guest_got_while_its_disks_were_sent(make, monkeypatch, change):  # noqa: F811
    """The target was not asked about that: the guest is not touched, and check mode names it then."""
    move = make()
    home, peer = move.hosts

    def attach() -> None:
        home.domains.lives[VM].find("devices").append(ET.fromstring(change))
        peer.domains.lacking.add("br9")

    _before(monkeypatch, LEAVE, attach)
    assert "was changed while it was brought over" in _refused(move.moves)
    assert "pause" not in [name for name, _arguments in home.domains.calls]
    move.ends(home)
    assert ("br9" if "br9" in change else "hostdev") in _both(move)


# -- errors of libvirt


@pytest.mark.parametrize("then", ["moved", "stays", "at once"])
def test_an_error_of_the_daemon_is_none_of_the_file(make, then):  # noqa: F811
    """The word for a loss does nothing as long as the memory can be restored."""
    move = make()
    home, peer = move.hosts
    if then != "at once":
        _killed_with(move, "home", "saved")
    host = peer if then == "moved" else home
    real, asked = host.domains.memory_xml, []

    def once(path: str) -> str:
        asked.append(path)
        if len(asked) == 1:
            raise FlexdiskError("LibvirtFailed", "Cannot recv data: Connection reset by peer")
        return str(real(path))

    host.domains.memory_xml = once
    move.does(state="stays" if then == "stays" else "moved", allow_memory_loss=True)
    assert (len(asked) > 1, move.boots, len(move.restored)) == (True, 0, 1)
    move.ends(home if then == "stays" else peer)


def test_a_daemon_that_does_not_answer_costs_no_memory(make):  # noqa: F811
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")

    def fails(*_arguments: Any) -> Any:
        raise FlexdiskError("LibvirtFailed", "Cannot recv data: Connection reset by peer")

    answers = home.domains.memory_xml, home.domains.is_saving
    home.domains.memory_xml, saves = fails, home.domains.is_saving
    home.domains.is_saving = lambda uuid: saves(uuid) if not _asked_again(home) else fails()
    assert "Connection reset" in _refused(lambda: move.stays(allow_memory_loss=True))
    home.domains.memory_xml, home.domains.is_saving = answers
    move.stays()
    move.ends(home)
    assert (move.boots, len(move.restored)) == (0, 1)


def _asked_again(host: Any, count: list[int] | None = None) -> bool:
    """The file is mounted, so it has been asked for."""
    return bool(host.files.mounted(saved_memory.folder(VM), MEMORY))


# -- disks that are read-only, or that a program has open


@pytest.mark.parametrize("which", ["home", "peer"])
@pytest.mark.parametrize("how", ["stopped", "suspended"])
@pytest.mark.parametrize("of", ["zones", f"zones/{VM}"])
def test_a_read_only_dataset_above_the_disks(make, which, how, of):  # noqa: F811
    """It is named before anything is changed, in check mode, too."""
    move = make()
    host = getattr(move.world, which)
    if which == "peer":
        move.world.sync()
        of = "zones"
    host.ok("zfs", "set", "readonly=on", of)
    refused = _both(move, how=how)
    assert f"{of} is read-only, with all below it; zfs inherit readonly {of} ends that" in refused
    assert VM in move.world.home.domains.lives
    host.ok("zfs", "inherit", "readonly", of)
    move.moves(how=how)
    move.ends(move.world.peer) if how == "suspended" else None
    assert move.world.peer.domains.status(VM).state == "running"


@pytest.mark.parametrize("fault", ["program", "dataset"])
@pytest.mark.parametrize("then", ["moved", "stays", "transfer fails"])
def test_a_disk_that_cannot_be_opened_before_the_restore(make, fault, then):  # noqa: F811
    """The memory waits for it. Nobody boots."""
    move = make()
    home, peer = move.hosts
    host = peer if then == "moved" else home

    def hinders() -> None:
        if fault == "program":
            host.files.open_since[f"zones/{VM}/disk0"] = True
        else:
            host.quietly(lambda: host.ok("zfs", "set", "readonly=on", f"zones/{VM}"))

    if then == "transfer fails":
        real = home.carry

        def fails(first: Any, second: Any, carried: Any) -> Any:
            sender, receiver = real(first, second, carried)
            if not any(word.startswith(MEMORY) for word in first):
                return sender, receiver
            hinders()
            return sender, replace(receiver, rc=255, stderr="connection lost")

        home.carry = fails
        refused = _refused(move.moves)
        del home.carry
        assert "connection lost" in refused
    else:
        where = (
            _killed_with(move, "home", "saved")
            if then == "stays"
            else _killed_when(move, lambda: len(peer.disks(VM)) == 2)
        )
        assert where is None
        hinders()
        foreseen = _refused(lambda: move.does(True, state=then))
        assert ("zfs inherit readonly" in foreseen) == (fault == "dataset")
        refused = _refused(lambda: move.does(state=then))
    assert ("end that program" if fault == "program" else "zfs inherit readonly") in refused
    assert "Its memory stays saved" in refused
    assert (_word(host), _read_only(host), move.boots, move.restored) == ("saved", ["on"] * 2, 0, [])
    host.files.open_since.clear()
    host.ok("zfs", "inherit", "readonly", f"zones/{VM}")
    move.does(state="moved" if then == "moved" else "stays")
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(host)


@pytest.mark.parametrize("which", ["home", "peer"])
def test_killed_while_the_disks_are_opened(make, which):  # noqa: F811
    """Nobody has begun to restore the memory, and nothing was written: it is restored by the same command."""
    move = make()
    host = getattr(move.world, which)
    if which == "peer":
        _killed_with(move, which, "opening")
    else:
        _killed_with(move, "home", "saved")
        _killed_when(move, lambda: _word(host) == "opening" and _read_only(host) == ["off"] * 2, state="stays")
        assert "its memory is being restored here; flexdisk_move_state=stays goes on" in _both(move)
    move.does(state="moved" if which == "peer" else "stays")
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(host)


def test_written_while_the_disks_are_opened(make):  # noqa: F811
    """Somebody has started the VM in between, which has written: its memory is not restored."""
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")
    _killed_when(move, lambda: _word(home) == "opening" and _read_only(home) == ["off"] * 2, state="stays")
    home.domains.boot(VM)
    move.writes()
    home.domains.halt(VM)
    assert "changed since its memory was saved" in _both(move, state="stays")
    move.stays(allow_memory_loss=True)
    assert move.restored == []
    move.ends(home)


def _killed_in_the_wait(move: Move, which: str) -> Any:
    """A program keeps a volume closed, and the run dies while it waits for that. Returns the host."""
    host = getattr(move.world, which)
    if which == "home":
        _killed_with(move, "home", "saved")
    else:
        _killed_when(move, lambda: len(host.disks(VM)) == 2 and _word(host) == "saved")
    host.files.open_since[f"zones/{VM}/disk0"] = True
    real, asked = host.files.is_read_only, []

    def dies(path: str) -> bool:
        asked.append(path)
        if _word(host) == "opening" and len(asked) > 4:
            raise Killed
        return bool(real(path))

    host.files.is_read_only = dies
    with pytest.raises(Killed):
        move.does(state="moved" if which == "peer" else "stays")
    host.files.is_read_only = real
    assert (_word(host), _read_only(host)) == ("opening", ["off"] * 2)
    return host


@pytest.mark.parametrize("which", ["home", "peer"])
@pytest.mark.parametrize("then", ["waits", "freed"])
def test_killed_while_it_waits_for_disks(make, which, then):  # noqa: F811
    """The next run waits, too. Nobody begins to restore before all disks are open, and both ways on are left."""
    move = make()
    host = _killed_in_the_wait(move, which)
    state = "moved" if which == "peer" else "stays"
    if then == "waits":
        assert "end that program" in _refused(lambda: move.does(state=state))
        assert (_word(host), _read_only(host), move.boots, move.restored) == ("saved", ["on"] * 2, 0, [])
        host.files.open_since.clear()
        move.moves()
        assert (move.boots, len(move.restored)) == (0, 1)
        move.ends(move.world.peer)
        return
    host.files.open_since.clear()
    move.does(state=state)
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(host)


@pytest.mark.long
@pytest.mark.parametrize("which", ["home", "peer"])
def test_killed_at_every_command_while_a_program_keeps_a_disk_closed(make, which):  # noqa: F811
    """Memory is never lost by it, and the same command ends once the program has."""

    def prepared() -> tuple[Move, Any]:
        move = make()
        host = getattr(move.world, which)
        if which == "home":
            _killed_with(move, "home", "saved")
        else:
            _killed_when(move, lambda: len(host.disks(VM)) == 2 and _word(host) == "saved")
        host.files.open_since[f"zones/{VM}/disk0"] = True
        return move, host

    state = "moved" if which == "peer" else "stays"
    move, _host = prepared()
    move.world.fuse = Fuse()
    assert "end that program" in _refused(partial(move.does, state=state))
    commands = int(move.world.fuse.counted)
    assert commands > 10
    for number in range(1, commands + 1, EVERY):
        for after in (False, True):
            move, host = prepared()
            move.world.fuse = Fuse(number, after)
            with pytest.raises((Killed, Stopped)):
                move.does(state=state)
            move.world.fuse = Fuse()
            assert "end that program" in _refused(partial(move.does, state=state))
            assert (_word(host), _read_only(host)) == ("saved", ["on"] * 2)
            host.files.open_since.clear()
            move.does(state=state)
            assert (move.boots, len(move.restored)) == (0, 1)
            move.ends(host)


@pytest.mark.parametrize("how", ["stopped", "suspended"])
@pytest.mark.parametrize("of", ["disks", "root"])
def test_disks_that_are_writable_below_a_read_only_pool(make, how, of):  # noqa: F811
    """The disks themselves are asked. Only their own property would not outlive a save."""
    move = make()
    home = move.world.home
    for name in [f"zones/{VM}"] if of == "root" else [f"zones/{VM}/disk0", f"zones/{VM}/disk1"]:
        home.ok("zfs", "set", "readonly=off", name)
    home.ok("zfs", "set", "readonly=on", "zones")
    refused = _both(move, how=how)
    if (how, of) == ("suspended", "disks"):
        assert "its memory could not be restored here, should the move fail: zones is read-only" in refused
        assert VM in home.domains.lives
        return
    assert refused == ""
    assert move.world.peer.domains.status(VM).state == "running"


@pytest.mark.parametrize("which", ["home", "peer"])
@pytest.mark.parametrize("source", ["temporary", "received", "inherited from zones"])
def test_why_a_dataset_is_read_only(make, monkeypatch, which, source):  # noqa: F811
    """What comes from a mount alone is not below it. What has come with a stream is of the dataset itself."""
    move = make()
    disks = [f"zones/{VM}/disk0", f"zones/{VM}/disk1"]
    asked = ["zones"] if which == "peer" else [f"zones/{VM}"] if source == "temporary" else disks
    real = Copies.table

    def table(self: Copies, names: Any, columns: Any, *more: Any, **others: Any) -> Any:
        result = real(self, names, columns, *more, **others)
        here = "home" if any(VM in name for name in names) else "peer"
        if tuple(columns) == ("readonly",) and here == which:
            result = {n: {**row, "readonly": ("on", source)} if n in asked else row for n, row in result.items()}
        return result

    monkeypatch.setattr(Copies, "table", table)
    refused = _refused(lambda: move.does(True, how="stopped"))
    if source == "temporary":
        assert refused == ""
    elif source == "received":
        assert f"{asked[0]} is read-only, with all below it; zfs inherit readonly {asked[0]} ends that" in refused
    else:
        assert "zones is read-only, with all below it; zfs inherit readonly zones ends that" in refused


# -- what is told


@pytest.mark.parametrize("at", ["saved", "power", "there"])
def test_a_stopped_vm_with_closed_disks_is_found(make, at):  # noqa: F811
    move = make()
    home, peer = move.hosts
    if at == "saved":
        _killed_with(move, "home", "saved")
    elif at == "power":
        _killed_when(move, lambda: _paused(move))
        _power_off(home)
    else:
        _killed_when(move, lambda: _word(peer) == "saved" and len(peer.disks(VM)) == 2)
    host = peer if at == "there" else home
    assert "disks_closed" in _kinds(host)
    (told,) = _warnings(host)
    assert "it is stopped in its move, and its disks are read-only" in told
    assert ("from hv01 to this host" if at == "there" else "flexdisk_target=hv02 goes on") in told
    move.moves()
    assert (_kinds(peer), _warnings(peer)) == ([], [])


@pytest.mark.parametrize("word", ["restored", "running"])
@pytest.mark.parametrize("starts", [True, False])
def test_a_guest_that_has_gone_on_and_lost_its_power(make, word, starts):  # noqa: F811
    """It has booted since, by libvirt or by the same command. Nobody says that it goes on."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == word)
    _power_off(peer)
    if starts:
        peer.domains.boot(VM)
    assert move.moves()["memory"] == "lost"
    why = "its guest had gone on with it, and has ended since"
    if word == "restored":
        why = "its memory was restored when a run was interrupted, and is restored only once"
    assert f"memory lost, so it has booted: {why}" in move.controller.messages[-1]
    move.ends(peer)


def test_a_vm_that_waits_for_start_host_is_not_said_to_have_booted(make):  # noqa: F811
    move = make()
    home = move.world.home
    kept(move.world)
    _killed_with(move, "home", "saved")
    home.reboot()
    move.stays(allow_memory_loss=True)
    assert "memory lost, and it does not run: its host has booted since" in move.controller.messages[-1]


def test_a_start_that_fails_does_not_hide_why_the_memory_is_lost(make):  # noqa: F811
    """The next run starts the VM, and still says the reason."""
    move = make()
    peer = move.world.peer
    peer.domains.cannot_restore = "it lacks it"
    real = peer.domains.create

    def fails(_uuid: str) -> None:
        raise FlexdiskError("LibvirtFailed", "no room")

    peer.domains.create = fails
    assert "no room" in _refused(move.moves)
    peer.domains.create = real
    assert move.moves()["memory"] == "lost"
    assert "it lacks it" in move.controller.messages[-1]
    move.ends(peer)


def test_memory_that_is_lost_when_the_run_gives_up_is_told(make):  # noqa: F811
    """The transfer fails, and so does the restore: the error says both."""
    move = make()
    home, real = move.world.home, move.world.home.carry

    def fails(first: Any, second: Any, carried: Any) -> Any:
        sender, receiver = real(first, second, carried)
        failed = any(word.startswith(MEMORY) for word in first)
        return sender, replace(receiver, rc=255, stderr="connection lost") if failed else receiver

    home.carry = fails
    home.domains.cannot_restore = "Cannot allocate memory"
    refused = _refused(move.moves)
    assert "connection lost" in refused
    assert re.search("memory lost, so it has booted: .*: Cannot allocate memory", refused)
    del home.carry
    move.ends(home)


# -- encrypted pools


def test_a_locked_pool_is_foreseen(tmp_path, monkeypatch):
    """Check mode and the run say the same once the host has booted."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(LinuxWorld, "passphrases", (PASSPHRASE, OTHER))
    move = Move(with_keys(two_disks(tmp_path, monkeypatch)))
    home = move.world.home
    _killed_with(move, "home", "saved")
    home.reboot()
    assert home.node.run(["zfs", "unload-key", "zones"])[0] == 0
    refused = _both(move)
    assert "the key of zones is not loaded" in refused
    assert "its memory is saved, and is sent then" in refused
    assert home.node.run(["zfs", "load-key", "zones"], PASSPHRASE)[0] == 0
    assert move.moves()["memory"] == "restored"
    move.ends(move.world.peer)


# -- seals that somebody holds


def _seals(host: Any) -> list[str]:
    names = host.quietly(lambda: host.ok("zfs", "list", "-Ho", "name", "-t", "snapshot", "-r", "zones")).split()
    return [one for one in names if saved_memory.is_seal(one.partition("@")[2])]


@pytest.mark.parametrize("then", ["moved", "stays", "stays twice"])
def test_a_seal_that_somebody_holds(make, then):  # noqa: F811
    """It is told with its name and its host, blocks nothing, and the next run destroys it once nobody holds it."""
    move = make()
    home, peer = move.hosts
    _killed_with(move, "home", "saved")
    held = _seals(home)
    assert len(held) == 2
    for one in held:
        home.ok("zfs", "hold", "backup", one)
    move.does(state="moved" if then == "moved" else "stays")
    left = _seals(home)
    assert len(left) == 2
    (told,) = move.controller.warnings
    assert re.search(rf"{left[0]}, {left[1]} of \S+: of no use any more, and kept by others", told)
    assert _seals(peer) == []
    for one in left:
        home.ok("zfs", "release", "backup", one)
    if then == "stays twice":
        move.stays()
    elif then == "stays":
        move.writes()
        move.world.sync()
    else:
        swap(move.world)
        move.writes()
        move.world.sync()
        swap(move.world)
    assert (_seals(home), _seals(peer)) == ([], [])


@pytest.mark.parametrize("room", [True, False])
def test_a_seal_that_somebody_holds_there(make, monkeypatch, room):  # noqa: F811
    """It is told with its name, as what it takes up if the VM has no room for it. The same command goes on."""
    move = make()
    peer = move.world.peer
    if room:
        disks = {"disks": [{"name": "root"}, {"name": "data"}], "unlisted": "keep"}
        wanted = {"vm": "db01", "state": "running", "flexible_disk_size": 400, **disks}
        home = move.world.home
        assert not vm.run(home.zfs(), home.driver(), [wanted], [], POLICY, "zones", False).problems
    held: list[str] = []

    def hold() -> None:
        held.extend(_seals(peer))
        for one in held:
            peer.ok("zfs", "hold", "backup", one)

    _before(monkeypatch, (STARTS,), hold)
    refused = _refused(move.moves)
    assert len(held) == 2
    left = _seals(peer)
    assert len(left) == 2
    text = rf"{left[0]}, {left[1]} of \S+: of no use any more, and kept by others .*zfs release"
    if room:
        assert refused == ""
        assert re.search(text, str(move.controller.warnings))
    else:
        assert re.search(text, refused)
        assert _word(peer) == "saved"
    for one in left:
        peer.ok("zfs", "release", "backup", one)
    if not room:
        move.moves()
        assert _seals(peer) == []
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(peer)


# -- hosts that have the VM, too


@pytest.mark.parametrize("at", ["paused", "saved"])
@pytest.mark.parametrize("answers", [True, False])
def test_stays_asks_the_host_that_could_have_taken_it_over(make, at, answers):  # noqa: F811
    """Somebody has said that this host is fenced, and it was not."""
    move = make()
    world, home = move.world, move.world.home
    protect(world)
    if at == "paused":
        _killed_when(move, lambda: _paused(move))
    else:
        _killed_with(move, "home", "saved")
    world.guard = lambda: None
    take(world)
    state = home.domains.states.get(VM)
    lost = frozenset() if answers else frozenset(["hv02"])
    for check in (True, False):
        refused = _refused(lambda check=check: _stays(move, lost, check))
        assert ("hv02 has it, too" if answers else "hv02 could not be asked") in refused
        assert "it does not go on here (" in refused
    assert home.domains.states.get(VM) == state
    assert world.peer.domains.status(VM).state == "running"


def test_stays_goes_on_without_an_answer_by_word(make):  # noqa: F811
    """Or if nobody can have taken the VM over."""
    for failover in (True, False):
        move = make()
        if failover:
            protect(move.world)
        _killed_with(move, "home", "saved")
        _stays(move, frozenset(["hv02"]), False, unasked=failover)
        assert (move.boots, len(move.restored)) == (0, 1)


def _stays(move: Move, lost: frozenset[str], check: bool, **more: Any) -> None:
    world = move.world
    controller = Controller(world, {world.home_name: world.home, world.peer_name: world.peer}, lost)
    sync = controller.sync(world.home_name, world.peer_name, [])
    controller.does("move", {"vm": VM, "sync": sync, "how": "suspended", "state": "stays", **more}, check)


# -- memory that stays


def test_memory_that_is_left_after_two_moves(make):  # noqa: F811
    """The host that has the VM now is named as the target, whatever the tombstone says."""
    move = make()
    world = move.world
    home, peer, third = world.home, world.peer, world.host(3)
    _without_tidy(move)
    world.guard = lambda: None
    world.home, world.home_name, world.peer, world.peer_name = peer, "hv02", third, "hv03"
    move.writes()
    move.moves()
    assert home.has(MEMORY)
    controller = Controller(world, {"hv01": home, "hv02": peer, "hv03": third})
    wanted = {"vm": VM, "hosts": ["hv01", "hv02", "hv03"], "target": "hv03", "state": "moved"}
    assert controller.does("relocate", wanted)["moves"] == {}
    assert not home.has(MEMORY)


def test_memory_without_an_entry_is_not_said_to_be_of_no_use(make):  # noqa: F811
    """The VM is here, and stopped: it may be all that there is of its guest."""
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")
    home.ok("zfs", "set", "flexdisk:move=garbage", f"zones/flexdisk/move/{VM}")

    def told() -> list[str]:
        return [one.message for one in verify.findings(_seen(home), 0, 30, 7) if one.kind == "memory_left"]

    (text,) = told()
    assert "has the saved memory of a VM that does not run here, and the entry of its move is gone" in text
    assert "destroy" not in text
    for name in ("disk0", "disk1"):
        home.ok("zfs", "inherit", "readonly", f"zones/{VM}/{name}")
    home.domains.boot(VM)
    (text,) = told()
    assert f"zfs destroy -r {MEMORY} ends that" in text


def test_memory_that_has_ended_is_found(make):  # noqa: F811
    """The tombstone is given up while somebody holds a snapshot of it."""
    move = make()
    home = move.world.home
    _without_tidy(move)
    home.ok("zfs", "snapshot", f"{MEMORY}@backup")
    home.ok("zfs", "hold", "backup", f"{MEMORY}@backup")
    controller = Controller(move.world, {"hv01": home, "hv02": move.world.peer})
    sync = controller.sync("hv01", "hv02", [])
    controller.does("move", {"vm": VM, "sync": sync, "state": "forgotten"})
    assert home.has(MEMORY)
    assert _kinds(home) == ["memory_left"]
    home.ok("zfs", "release", "backup", f"{MEMORY}@backup")
    home.ok("zfs", "destroy", "-r", MEMORY)
    assert _kinds(home) == []


def _ended(move: Move, how: str) -> None:
    """The memory of a move stays on the host that the VM has left, because others hold it, or work in it."""
    home = move.world.home
    _without_tidy(move)
    if how == "hold":
        home.ok("zfs", "snapshot", f"{MEMORY}@backup")
        home.ok("zfs", "hold", "backup", f"{MEMORY}@backup")
    elif how == "below":
        home.ok("zfs", "create", f"{MEMORY}/own")
    else:
        home.node.pools.faults[f"busy:{MEMORY}"] = 99
        home.files.programs_of[saved_memory.folder(VM)] = ["bash (4711)"]


@pytest.mark.parametrize("how", ["hold", "busy", "below"])
@pytest.mark.parametrize("then", ["back", "failover"])
def test_memory_that_others_keep_is_in_nobodys_way(make, how, then):  # noqa: F811
    """Only the next move with memory is refused, beforehand."""
    move = make()
    home, peer = move.hosts
    _ended(move, how)
    move.moves()
    swap(move.world)
    move.writes()
    if then == "back":
        assert "the memory of an earlier move or run is still there" in _both(move)
        assert _both(move, how="stopped") == ""
    else:
        protect(move.world)
        move.world.guard = lambda: None
        peer.power_off(VM)
        take(move.world)
    assert (home.has(MEMORY), home.domains.status(VM).state) == (True, "running")
    assert "memory_left" in _kinds(home)


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_dataset_below_the_memory(make, then):  # noqa: F811
    """The move ends all the same, with a warning that names it."""
    move = make()
    host = move.world.home
    _killed_with(move, "home", "saved")
    if then == "moved":
        host = move.world.peer
        _killed_when(move, lambda: _word(host) == "saved" and len(host.disks(VM)) == 2)
    host.ok("zfs", "create", f"{MEMORY}/own")
    move.does(state=then)
    assert any(f"{MEMORY}/own" in one for one in move.controller.warnings)
    assert (host.domains.status(VM).state, move.boots) == ("running", 0)
    assert [one for one in _kinds(host) if one != "memory_left"] == []
    assert _refused(move.moves) == "" or then == "stays"


@pytest.mark.parametrize("which", ["home", "peer"])
def test_memory_that_somebody_mounts_elsewhere(make, which):  # noqa: F811
    move = make()
    host = getattr(move.world, which)
    _killed_with(move, "home", "saved")
    if which == "peer":
        _killed_when(move, lambda: _word(host) == "saved" and len(host.disks(VM)) == 2)
    host.ok("zfs", "set", "mountpoint=/mnt/look", MEMORY)
    state = "moved" if which == "peer" else "stays"
    assert f"zfs set mountpoint={saved_memory.folder(VM)} {MEMORY} ends that" in _both(move, state=state)
    host.ok("zfs", "set", f"mountpoint={saved_memory.folder(VM)}", MEMORY)
    move.does(state=state)
    move.ends(host)


@pytest.mark.parametrize("which", ["home", "peer"])
def test_memory_in_a_pool_that_is_shared(make, which):  # noqa: F811
    """It is not shared with the rest of the pool."""
    move = make()
    host = getattr(move.world, which)
    host.ok("zfs", "set", "sharenfs=rw=10.0.0.0/8,no_root_squash", "zones")
    _killed_with(move, which, "saved")
    for name in ("sharenfs", "sharesmb"):
        assert host.ok("zfs", "get", "-Ho", "value", name, MEMORY).strip() == "off"


# -- a guest that others have saved


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_guest_that_stands_still_and_is_saved_by_others(make, then):  # noqa: F811
    """libvirt-guests does that when the host shuts down. Whoever is refused learns how the guest goes on."""
    move = make()
    home = move.world.home
    _killed_when(move, lambda: _paused(move))
    disks = [one["dataset"] for one in home.disks(VM)]
    home.suspend(VM)
    way = f"zfs inherit readonly {' '.join(disks)}, then virsh start {VM} goes on with all that it had"
    assert way in _both(move, state="stays")
    assert _both(move)
    home.ok("zfs", "inherit", "readonly", disks[0])
    home.ok("zfs", "inherit", "readonly", disks[1])
    home.power_on(VM)
    move.does(state=then)
    host = home if then == "stays" else move.world.peer
    assert (host.domains.status(VM).state, move.boots) == ("running", 0)
    assert "disks_closed" not in _kinds(host)


# -- what cannot be saved


def test_who_stands_still_waits_longer_for_the_lock_of_a_host(make, monkeypatch):  # noqa: F811
    """Others save and restore their memory meanwhile, however long that takes."""
    move, waits, real = make(), {}, Controller._does

    def does(self: Controller, call: Any, check: bool) -> Any:
        waits[call.name] = call.options.get("lock_timeout")
        return real(self, call, check)

    monkeypatch.setattr(Controller, "_does", does)
    move.moves()
    assert waits[STARTS] == saved_memory.PATIENT_SECONDS
    swap(move.world)
    _killed_with(move, "home", "saved")
    move.stays()
    assert waits[STAYS] == saved_memory.PATIENT_SECONDS


def test_who_stands_still_waits_longer_also_with_uefi_variables(make, monkeypatch):  # noqa: F811
    """Its memory is saved before the variables are read, so both calls after that wait."""
    move, waits, real = make(), {}, Controller._does

    def does(self: Controller, call: Any, check: bool) -> Any:
        waits[call.name] = call.options.get("lock_timeout")
        return real(self, call, check)

    monkeypatch.setattr(Controller, "_does", does)
    move.moves()
    assert waits["Give them to the target"] == saved_memory.PATIENT_SECONDS
    assert waits[LEAVE[1]] == saved_memory.PATIENT_SECONDS
    assert waits[LEAVE[0]] != saved_memory.PATIENT_SECONDS


@pytest.mark.parametrize("how", ["stopped", "suspended"])
def test_memory_that_has_come_and_is_held_there(make, how):  # noqa: F811
    """It would have to come anew. That is foreseen, and the hold is named."""
    move = make()
    home, peer = move.hosts
    _killed_when_saved(move, sent=True)
    peer.ok("zfs", "snapshot", f"{MEMORY}@auto")
    peer.ok("zfs", "hold", "backup", f"{MEMORY}@auto")
    refused = _both(move, how=how)
    assert f"others hold {MEMORY}@auto; zfs release frees it" in refused
    assert (move.boots, move.restored, _word(home)) == (0, [], "saved")
    peer.ok("zfs", "release", "backup", f"{MEMORY}@auto")
    move.moves(how=how)
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(peer)


def test_a_disk_that_is_not_written_out(make):  # noqa: F811
    """QEMU leaves what it has written in the memory of the host, and the seal would be too early."""
    move = make()
    home = move.world.home
    for roots in (home.domains.configs, home.domains.lives):
        roots[VM].find("devices/disk/driver").set("cache", "unsafe")
    assert "cache='unsafe' of" in _both(move)
    assert "pause" not in [name for name, _arguments in home.domains.calls]
