# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A guest goes to another host with its memory, killed at every command. Both hosts are asked after each of them."""

from __future__ import annotations

import itertools
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import saved_memory, verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.half_done import AtWork, half_done
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import memory_dataset

from .controller import Controller
from .linux import LinuxWorld
from .test_failover import kept, protect, said_by, start, take
from .test_move import POLICY, config, findings, linux, smartos, startable, swap, two_disks, with_keys
from .world import OTHER, PASSPHRASE, VM, Fuse, Killed

MEMORY = memory_dataset("zones", VM)
EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 25  # an odd number: before and after a command by turns
STARTS = "Give the VM its disks, and start it"
STAYS = "Give the VM back what it had"


class Move:
    """The role vm_move, and what must be true at any time."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.written = 0
        for _record in range(3):
            self.writes()
        world.guard = self.check
        self.controller: Controller = None  # type: ignore[assignment]

    def writes(self) -> None:
        """The guest writes its next record, wherever it runs."""
        for host in self.hosts:
            if VM in host.domains.lives:
                host.quietly(lambda host=host: host.domains.write(VM))
                self.written = max(self.written, host.domains.records.get(VM, 0))

    @property
    def hosts(self) -> tuple[Any, Any]:
        return self.world.home, self.world.peer

    @property
    def restored(self) -> list[int]:
        """The numbers of the files that were restored, on both hosts."""
        return [number for host in self.hosts for number in host.domains.restored]

    @property
    def boots(self) -> int:
        """How often a VM was started without memory, on both hosts."""
        return sum(name == "create" for host in self.hosts for name, _arguments in host.domains.calls)

    def check(self) -> None:
        """Never able to run on two hosts, never a memory that is restored twice."""
        assert sum(VM in host.domains.lives for host in self.hosts) < 2, "it is there twice"
        assert not all(map(startable, self.hosts)), "both can start it"
        assert len(self.restored) == len({*self.restored}), "its memory was restored twice"

    def does(self, check: bool = False, **more: Any) -> dict[str, Any]:
        """One run of the role."""
        world = self.world
        self.controller = Controller(world, {**world.named, world.home_name: world.home, world.peer_name: world.peer})
        stop = {"stop_timeout": POLICY.stop_timeout, "allow_force_stop": POLICY.allow_force_stop}
        sync = self.controller.sync(world.home_name, world.peer_name, [])
        return self.controller.does("move", {"vm": VM, "sync": sync, "how": "suspended", **stop, **more}, check)

    def moves(self, **more: Any) -> dict[str, Any]:
        return self.does(**more)

    def stays(self, **more: Any) -> dict[str, Any]:
        return self.does(state="stays", **more)

    def ends(self, host: Any) -> None:
        """The guest runs there with all that it had, writes on, and nothing is left of its memory."""
        self.world.fuse = Fuse()
        assert host.domains.status(VM).state == "running"
        assert host.domains.last_record(VM) == self.written, "a record is lost"
        self.writes()
        assert host.domains.records[VM] == self.written
        for one in self.hosts:
            assert not one.has(MEMORY)
            assert not [folder for folder in one.files.folders if folder.endswith(VM) and "memory" in folder]
        assert _read_only(host) == ["off"] * 2
        assert "inherited_property" not in findings(self.world)


@pytest.fixture
def make(tmp_path, monkeypatch) -> Callable[[], Move]:
    """Makes the same two hosts again each time."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    world = two_disks(tmp_path, monkeypatch)
    before = world.saved()

    def made() -> Move:
        world.guard = lambda: None
        world.restore(before)
        world.fuse = Fuse()
        return Move(world)

    return made


def test_a_guest_moves_with_its_memory(make):
    move = make()
    before = config(move.world.home)
    ended = move.moves()
    assert (ended["memory"], move.boots, len(move.world.peer.domains.goes_on)) == ("restored", 0, 1)
    assert f"{VM} is on hv02; its guest goes on; it was down for" in move.controller.messages[-1]
    move.ends(move.world.peer)
    assert config(move.world.peer) == before
    assert observe(move.world.peer.zfs(), move.world.peer.driver(), all_pools=True).moves == {}
    move.moves()
    assert not move.controller.answers[STARTS].changed


def _count(move: Move, do: Callable[[], Any]) -> int:
    move.world.fuse = Fuse()
    do()
    return int(move.world.fuse.counted)


def _killed(move: Move, number: int, after: bool, do: Callable[[], Any]) -> None:
    move.world.fuse = Fuse(number, after)
    with pytest.raises(Killed):
        do()
    move.world.fuse = Fuse()


def _killed_when_saved(move: Move, sent: bool = False) -> None:
    """The run dies when it is about to send the memory, or has sent it."""
    real = move.world.home.carry

    def dies(first: Any, second: Any, carried: Any) -> Any:
        if not any(word.startswith(MEMORY) for word in first):
            return real(first, second, carried)
        if sent:
            real(first, second, carried)
        raise Killed

    move.world.home.carry = dies
    with pytest.raises(Killed):
        move.moves()
    del move.world.home.carry
    assert move.world.home.has(MEMORY)


def _points(make: Callable[[], Move], do: Callable[[Move], Any]) -> list[tuple[int, bool]]:
    move = make()
    return [*itertools.product(range(1, _count(move, lambda: do(move)) + 1), (False, True))]


@pytest.mark.parametrize("then", ["the same command", "stays"])
def test_killed_at_every_command(make, then):
    """One whole running VM at the end. Only a kill between the first word of a restore and its end costs the memory."""
    points, boots, went_on = _points(make, Move.moves)[::EVERY], 0, 0
    for number, after in points:
        move = make()
        _killed(move, number, after, move.moves)
        host = move.world.peer
        if then == "stays":
            try:
                move.stays()
                host = move.world.home
            except Stopped:  # it has left
                move.moves()
        else:
            move.moves()
        assert move.boots <= 1, (number, after)
        assert not (move.boots and move.restored), "a guest that was restored is booted"
        boots += move.boots
        went_on += len(host.domains.goes_on)
        move.ends(host)
    print(f"{then}: {len(points)} kills, {went_on} went on, {boots} boots")
    assert boots <= 2 * 2


# -- faults


def _power_off(host: Any) -> None:
    """The host loses power, and is there again. Guests with autoboot are started by libvirt, if it can."""
    if VM in host.domains.lives:
        host.power_off(VM)
    host.reboot()


@pytest.mark.parametrize("which", ["home", "peer"])
@pytest.mark.parametrize("then", ["the same command", "stays"])
def test_a_host_that_boots_in_the_middle(make, which, then):
    """Saved memory outlives that, with its disks. What was restored by then is lost, and the VM is booted."""
    points = _points(make, Move.moves)[:: 3 * EVERY]
    lost = 0
    for number, after in points:
        move = make()
        _killed(move, number, after, move.moves)
        host = getattr(move.world, which)
        ran = VM in host.domains.lives
        _power_off(host)
        if ran and host is move.world.home and not host.has(MEMORY):
            host.domains.boot(VM)
        ended = move.world.peer
        if then == "stays" and not _refused(move.stays):
            ended = move.world.home
        elif _refused(move.moves):  # the daemon does not know any more whether the save had come to its end
            assert _refused(move.stays)
            move.stays(allow_memory_loss=True)
            ended = move.world.home
        lost += move.boots
        if ended.domains.status(VM).state == "stopped":
            ended.domains.boot(VM)  # it had run, and has lost its power
        move.ends(ended)
    print(f"{which}, {then}: {len(points)} points, {lost} boots")


def _refused(do: Callable[[], Any]) -> str:
    """Why it is refused, "" if it is not."""
    try:
        do()
    except Stopped as exc:
        return str(exc)
    return ""


def test_a_save_that_fails(make):
    """The guest goes on where it is, and nothing is left."""
    move = make()
    move.world.home.domains.cannot_save = "Input/output error"
    assert "Input/output error" in _refused(move.moves)
    move.world.home.domains.cannot_save = ""
    assert (move.boots, move.restored) == (0, [])
    move.ends(move.world.home)
    move.moves()
    move.ends(move.world.peer)


def test_a_transfer_that_fails(make):
    """The guest goes on where it was, with its memory."""
    move = make()
    real = move.world.home.carry

    def fails(first: Any, second: Any, carried: Any) -> Any:
        sender, receiver = real(first, second, carried)
        failed = any(word.startswith(MEMORY) for word in first)
        return sender, replace(receiver, rc=255, stderr="connection lost") if failed else receiver

    move.world.home.carry = fails
    assert "connection lost" in _refused(move.moves)
    assert (move.boots, len(move.world.home.domains.goes_on)) == (0, 1)
    del move.world.home.carry
    move.ends(move.world.home)
    move.moves()
    move.ends(move.world.peer)
    assert move.boots == 0


def test_a_restore_that_fails_boots_the_vm(make):
    """It is there, and its memory is lost. The message says so, and why."""
    move = make()
    move.world.peer.domains.cannot_restore = "CPU feature is missing"
    ended = move.moves()
    assert ended["memory"] == "lost"
    assert "memory lost, so it has booted" in move.controller.messages[-1]
    assert "CPU feature is missing" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.world.peer.domains.cannot_restore = ""
    move.ends(move.world.peer)


def test_disks_that_were_made_writable_need_a_word(make):
    """Nobody knows what was written to them, so the guest does not go on over them."""
    move = make()
    peer = move.world.peer

    def dies(_path: str) -> str:
        raise Killed

    peer.domains.memory_xml = dies  # it is read before the restore begins
    with pytest.raises(Killed):
        move.moves()
    del peer.domains.memory_xml
    assert '"saved"' in peer.ok("zfs", "get", "-Hpo", "value", "flexdisk:memory", MEMORY)
    for disk in peer.disks(VM):
        peer.ok("zfs", "inherit", "readonly", disk["dataset"])
    assert "flexdisk_allow_memory_loss=true" in _refused(move.moves)
    assert peer.domains.status(VM).state == "stopped"
    ended = move.moves(allow_memory_loss=True)
    assert (ended["memory"], move.boots, move.restored) == ("lost", 1, [])
    move.ends(peer)


def test_the_other_way_of_moving_goes_on_with_what_was_saved(make):
    """Whoever gives the command without the word does not lose the memory."""
    kept = 0
    for number, after in _points(make, Move.moves)[:: 3 * EVERY]:
        move = make()
        _killed(move, number, after, move.moves)
        saved = move.world.home.has(MEMORY)
        boots_before = move.boots
        move.moves(how="stopped")
        if saved:
            kept += 1
            assert move.boots == boots_before
        move.ends(move.world.peer)
    assert kept


def test_memory_of_an_older_move_is_not_restored(make):
    """It was sent, and the move given up. The guest has gone on since."""
    move = make()
    _killed_when_saved(move, sent=True)
    assert move.world.peer.has(MEMORY)
    move.stays()
    move.ends(move.world.home)
    move.moves(how="stopped")
    assert len(move.restored) == 1
    move.ends(move.world.peer)


def test_there_and_back(make):
    move = make()
    for _way in range(2):
        assert move.moves()["memory"] == "restored"
        move.ends(move.world.peer)
        swap(move.world)
    assert move.boots == 0
    move.ends(move.world.home)


# -- what is refused before the VM is touched


def _domain(move: Move) -> Any:
    return move.world.home.domains.lives[VM]


def _older(move: Move) -> None:
    move.world.peer.domains.qemu = 6002000


def _machine(move: Move) -> None:
    move.world.peer.domains.lacking.add("pc-q35-7.2")


def _cpu_of_the_host(move: Move) -> None:
    _domain(move).append(ET.fromstring("<cpu mode='host-passthrough'/>"))


def _block_job(move: Move) -> None:
    move.world.home.domains.backed_up[VM] = ["vda"]


def _full(which: str) -> Callable[[Move], None]:
    def fill(move: Move) -> None:
        host = getattr(move.world, which)
        free = int(host.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
        host.ok("zfs", "create", "-o", f"refreservation={free - (100 << 20)}", "zones/full")

    return fill


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (_older, r"lacks what its memory needs: QEMU 7.2.22 or later \(it has 6.2.0\)"),
        (_machine, "lacks what its memory needs: .*pc-q35-7.2"),
        (_cpu_of_the_host, r"its memory cannot go with it: a CPU of the host \(host-passthrough\)"),
        (_block_job, "its memory cannot go with it: a block job"),
        (_full("home"), "its memory takes up to 128 MiB in pool zones, which has 100 MiB free"),
        (_full("peer"), "pool zones of hv02"),
    ],
    ids=["qemu", "machine", "cpu", "block-job", "room-here", "room-there"],
)
@pytest.mark.parametrize("check", [True, False])
def test_what_is_refused(make, how, text, check):
    move = make()
    how(move)
    assert re.search(text, _refused(lambda: move.does(check)))
    for host in move.hosts:
        assert "save_memory" not in [name for name, _arguments in host.domains.calls]
    move.world.home.domains.backed_up.clear()
    move.ends(move.world.home)


def test_all_problems_are_reported_together(make):
    move = make()
    for how in (_cpu_of_the_host, _block_job, _full("home")):
        how(move)
    refused = _refused(lambda: move.does(True))
    assert all(text in refused for text in ("host-passthrough", "a block job", "128 MiB in pool zones"))


def test_a_disk_in_a_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    move = Move(linux(tmp_path, monkeypatch))
    assert "its disk is a file, and only volumes" in _refused(lambda: move.does(True))


def test_vmadm_cannot(tmp_path, monkeypatch):
    """The VM is not shut down instead: whoever asks for a move without a boot is told that there is none."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    world = smartos(tmp_path, monkeypatch)
    move = Move.__new__(Move)
    move.world = world
    assert "vmadm cannot save the memory of a guest" in _refused(lambda: move.does(True))
    assert "flexdisk_move_how=stopped" in _refused(move.moves)
    assert world.home.runs(VM)
    world.home.ok("vmadm", "stop", VM, "-F")
    move.moves()
    assert world.peer.power(VM) == "stopped"


def test_check_mode_tells_what_is_sent_and_how_long_it_takes(make):
    move = make()
    move.world.sync()
    ended = move.does(True)
    lines = ended["outlook"]["lines"]
    assert f"leave: the memory of {VM} (64 MiB) is saved on hv01; its guest stands still" in lines
    assert "last sync: what was written since is sent, and then the memory" in lines
    assert "arrive: the replicas become its disks on hv02, and its guest goes on" in lines
    assert any(line.startswith("pause: ") and "64 MiB" in line for line in lines), lines
    assert move.world.home.domains.status(VM).state == "running"


# -- a run that is killed once the memory is saved


def _read_only(host: Any) -> list[str]:
    return [host.ok("zfs", "get", "-Ho", "value", "readonly", disk["dataset"]) for disk in host.disks(VM)]


def test_with_failover_a_host_that_has_booted_needs_a_word(make):
    """start_host starts such a VM, and knows of no memory. Until the word is given, nothing is touched."""
    move = make()
    home = move.world.home
    kept(move.world)
    _killed_when_saved(move)
    _power_off(home)
    answers = {"hv02": said_by(move.world.peer)}
    text = "Its memory is saved, and cannot be restored after that; flexdisk_allow_memory_loss=true gives it up"
    assert "give its move up with flexdisk_move_state=stays first" in _refused(move.moves)
    for _again in range(2):
        assert text in _refused(move.stays)
        assert start(move.world, answers).started == []
        assert (home.domains.status(VM).state, home.has(MEMORY), _read_only(home)) == ("stopped", True, ["on"] * 2)
    move.stays(allow_memory_loss=True)
    assert (move.boots, move.restored, home.domains.status(VM).state) == (0, [], "stopped")
    assert (home.has(MEMORY), _read_only(home)) == (False, ["off"] * 2)
    assert start(move.world, answers).started == [f"db01 ({VM})"]
    move.ends(home)


def test_with_failover_the_same_command_goes_on(make):
    """The host has not booted: the memory goes with the VM."""
    move = make()
    kept(move.world)
    _killed_when_saved(move)
    assert move.moves()["memory"] == "restored"
    assert move.boots == 0
    move.ends(move.world.peer)


def test_an_old_home_keeps_no_memory(make):
    """It died with the memory of the guest, and another host has taken the VM over. The memory is never restored."""
    move = make()
    world = move.world
    protect(world)
    written = move.written
    _killed_when_saved(move)
    _power_off(world.home)
    world.guard = lambda: None  # both have it until the old home gives it up
    take(world)
    request = EndRequest("db01", read_claims({"hv02": said_by(world.peer, "db01")}))
    back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    assert back.look(request).problems == []
    assert world.home.has(MEMORY)
    back.end(request)
    assert move.restored == []
    assert world.peer.domains.last_record(VM) == written
    move.written = written
    move.ends(world.peer)


# -- encrypted pools


@pytest.mark.parametrize("passphrases", [(PASSPHRASE, OTHER), (PASSPHRASE, "")], ids=["both", "only-here"])
def test_the_memory_of_an_encrypted_guest_is_never_in_clear(tmp_path, monkeypatch, passphrases):
    """It goes to a pool with another key. Where it would lie in clear, it does not come, in check mode neither."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    monkeypatch.setattr(LinuxWorld, "passphrases", passphrases)
    move = Move(with_keys(two_disks(tmp_path, monkeypatch)))
    peer = move.world.peer
    if not passphrases[1]:
        text = "its memory comes from an encrypted pool, and would lie unencrypted in pool zones of hv02"
        assert text in _refused(lambda: move.does(True))
        assert text in _refused(move.moves)
        assert "save_memory" not in [name for name, _arguments in move.world.home.domains.calls]
        move.ends(move.world.home)
        return
    roots = set()
    real = peer.domains.restore_memory

    def restores(*arguments: Any) -> Any:
        roots.add(peer.ok("zfs", "get", "-Ho", "value", "encryptionroot", MEMORY))
        return real(*arguments)

    monkeypatch.setattr(peer.domains, "restore_memory", restores)
    assert move.moves()["memory"] == "restored"
    assert roots == {"zones"}
    move.ends(peer)


# -- what must not happen again: memory that is not this file's, or that is lost without a word


def _word(host: Any) -> str:
    """The journal of the memory on a host, "" without."""
    text = (
        host.quietly(lambda: host.ok("zfs", "get", "-Hpo", "value", "flexdisk:memory", MEMORY))
        if host.has(MEMORY)
        else ""
    )
    journal = saved_memory.decode(text)
    return journal.word if journal else ""


def _killed_when(move: Move, condition: Callable[[], bool], **more: Any) -> None:
    """The run dies at the first command after which this is true."""
    asked: list[bool] = []

    def guard() -> None:
        move.check()
        if not asked:
            asked.append(True)
            true = condition()
            asked.clear()
            if true:
                raise Killed

    move.world.guard = guard
    with pytest.raises(Killed):
        move.moves(**more)
    move.world.guard = move.check


def _killed_with(move: Move, which: str, word: str) -> None:
    host = getattr(move.world, which)
    _killed_when(move, lambda: _word(host) == word)


def _both(move: Move, **more: Any) -> str:
    """Why it is refused, in check mode and for real."""
    checked = _refused(lambda: move.does(True, **more))
    real = _refused(lambda: move.does(**more))
    assert bool(checked) == bool(real), (checked, real)
    assert "MemoryLost" not in real or "MemoryLost" in checked
    return real


def _saved_elsewhere(move: Move) -> None:
    home = move.world.home
    home.ok("zfs", "create", "-o", "mountpoint=/srv/own", "zones/own")
    home.quietly(lambda: home.domains.save_memory(VM, "/srv/own/file"))


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_vm_does_not_leave_without_its_file(make, then):
    """The run was killed before the save, and an operator has saved the guest himself."""
    move = make()
    _killed_with(move, "home", "saving")
    _saved_elsewhere(move)
    for state in ("moved", "stays"):
        assert "saved by hand, into another file; its memory is not restored. flexdisk_allow_memory_loss=true" in _both(
            move, state=state
        )
    assert _word(move.world.home) == "saving"
    ended = move.does(state=then, allow_memory_loss=True)
    host = move.world.peer if then == "moved" else move.world.home
    assert then == "stays" or (ended["memory"], "into another file" in move.controller.messages[-1]) == ("lost", True)
    assert (move.boots, move.restored) == (1, [])
    move.ends(host)


def test_a_file_that_cannot_be_restored_here(make):
    """Neither move nor stays is stuck: the word boots the VM."""
    for then in ("moved", "stays"):
        move = make()
        home = move.world.home

        def saved(home: Any = home) -> bool:
            return _word(home) == "saving" and VM not in home.domains.lives

        _killed_when(move, saved)
        _spoils(move.world.home)
        for state in ("moved", "stays"):
            assert "failed to parse; its memory is not restored" in _both(move, state=state)
        move.does(state=then, allow_memory_loss=True)
        assert "failed to parse" in move.controller.messages[-1]
        move.ends(move.world.peer if then == "moved" else move.world.home)
        assert (move.boots, move.restored) == (1, [])


def test_a_file_that_cannot_be_restored_there(make):
    move = make()
    _spoils(move.world.peer)
    assert "failed to parse; its memory is not restored" in _refused(move.moves)
    assert "failed to parse" in _both(move)
    assert move.moves(allow_memory_loss=True)["memory"] == "lost"
    assert "failed to parse" in move.controller.messages[-1]
    move.ends(move.world.peer)


def _spoils(host: Any) -> None:
    def fails(_path: str) -> str:
        raise FlexdiskError("LibvirtFailed", "failed to parse")

    host.domains.memory_xml = fails


def test_what_the_target_would_not_restore_is_refused_before(make):
    """It looks at the domain as it runs: a log of its console, and a bridge, which its configuration has not."""
    for change, text in (
        ("<serial type='file'><source path='/srv/log/db01.log'/><target port='1'/></serial>", "/srv/log/db01.log"),
        ("<interface type='bridge'><mac address='52:54:00:00:00:09'/><source bridge='br9'/></interface>", "br9"),
    ):
        move = make()
        _domain(move).find("devices").append(ET.fromstring(change))
        move.world.peer.domains.lacking.add("br9")
        assert text in _both(move)
        assert "pause" not in [name for name, _arguments in move.world.home.domains.calls]
        move.ends(move.world.home)


def test_the_memory_of_a_guest_is_what_it_runs_with(make):
    move = make()
    home, peer = move.hosts
    home.domains.configs[VM].find("memory").text = str(16 * 1024)
    peer.domains.memory = peer.domains.own + 32
    assert "memory: 64 MiB" in _both(move)
    peer.domains.memory = peer.domains.own + 4096
    assert f"leave: the memory of {VM} (64 MiB)" in str(move.does(True)["outlook"]["lines"])


def test_a_disk_that_only_the_running_domain_has_is_refused(make):
    move = make()
    devices = move.world.home.domains.configs[VM].find("devices")
    devices.remove(devices.findall("disk")[-1])
    assert "the disks of the saved domain are not those of its configuration" in _both(move)


@pytest.mark.parametrize("which", ["home", "peer"])
def test_a_foreign_hold_on_its_memory_stops_no_move(make, which):
    """The VM arrives. What others hold is named, and is in the way of the next suspended move only."""
    move, held = make(), []
    host = getattr(move.world, which)
    other = f"{MEMORY}@zrepl_1"

    def holds(_host: Any) -> None:
        if not held and host.has(MEMORY) and host.node.run(["zfs", "list", "-Ht", "snapshot", MEMORY])[1]:
            held.append(host.node.run(["zfs", "snapshot", other]))
            host.node.run(["zfs", "hold", "backup", other])

    move.world.acting = holds
    assert move.moves()["memory"] == "restored"
    assert held
    move.world.acting = lambda _host: None
    assert host.has(MEMORY)
    assert move.world.peer.domains.status(VM).state == "running"
    assert move.boots == 0
    host.ok("zfs", "get", "-Ho", "value", "flexdisk:memory", MEMORY)
    assert host.ok("zfs", "get", "-Ho", "value", "flexdisk:memory", MEMORY) == "ended"
    assert findings(move.world) == ["memory_left"]
    swap(move.world)
    assert f"others hold {other}; zfs release frees it" in _both(move)
    assert "pause" not in [name for name, _arguments in move.world.home.domains.calls]
    host.ok("zfs", "release", "backup", other)
    assert move.moves()["memory"] == "restored"
    move.ends(move.world.peer)


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_memory_that_was_destroyed_by_hand(make, then):
    """The VM boots, with disks that it can write, and is told as what it is."""
    move = make()
    _killed_with(move, "home", "saved")
    move.world.home.ok("zfs", "destroy", "-r", MEMORY)
    assert not _both(move, state=then)
    assert "memory lost, so it has booted: its saved memory is gone" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.ends(move.world.peer if then == "moved" else move.world.home)


def test_memory_that_was_destroyed_by_hand_there(make):
    move = make()
    _killed_with(move, "peer", "saved")
    move.world.peer.ok("zfs", "destroy", "-r", MEMORY)
    assert move.moves()["memory"] == "lost" or move.boots == 1
    move.ends(move.world.peer)
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "saved" and len(peer.disks(VM)) == 2)
    peer.ok("zfs", "destroy", "-r", MEMORY)
    assert move.moves()["memory"] == "lost"
    assert "its saved memory is gone" in move.controller.messages[-1]
    move.ends(peer)


@pytest.mark.parametrize("then", ["moved", "stays"])
def test_a_guest_that_ends_while_it_is_about_to_be_saved(make, then):
    """It is a VM that is stopped, and starts where it shall."""
    move = make()
    _killed_with(move, "home", "saving")
    move.world.home.quietly(lambda: move.world.home.domains.halt(VM))
    assert not _both(move, state=then)
    assert "nothing of its memory was saved" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.ends(move.world.peer if then == "moved" else move.world.home)


def test_a_guest_that_ends_right_before_it_is_saved(make):
    """The run gives the move up, and the VM starts again."""
    move = make()
    home = move.world.home
    real = home.domains.pause

    def ends(uuid: str) -> None:
        home.domains.halt(uuid)
        real(uuid)

    home.domains.pause = ends
    assert "domain is not running" in _refused(move.moves)
    home.domains.pause = real
    move.ends(home)


def test_what_became_of_the_memory_is_told_after_a_kill(make):
    for word, condition, memory in (
        ("restored", lambda peer: VM in peer.domains.lives and VM not in peer.domains.states, "restored"),
        ("restoring", lambda peer: VM not in peer.domains.lives, "lost"),
    ):
        move = make()
        peer = move.world.peer
        _killed_when(move, lambda word=word, peer=peer, condition=condition: _word(peer) == word and condition(peer))
        assert move.moves()["memory"] == memory, word
        move.ends(peer)


def test_check_mode_once_the_memory_is_saved(make):
    move = make()
    _killed_with(move, "home", "saved")
    lines = move.does(True)["outlook"]["lines"]
    assert f"leave: the memory of {VM} (64 MiB) is saved already on hv01; its guest stands still" in lines
    assert "arrive: the replicas become its disks on hv02, and its guest goes on" in lines
    move.world.home.ok("zfs", "inherit", "readonly", f"zones/{VM}/disk0")
    for state in ("moved", "stays"):
        assert "made writable or changed" in _both(move, state=state)
    move.does(True, allow_memory_loss=True)
    move.stays(allow_memory_loss=True)
    move.ends(move.world.home)


def test_the_word_goes_with_the_vm(make):
    """allow_memory_loss of a move: the VM leaves without its memory, boots there, and that is told."""
    move = make()
    _killed_with(move, "home", "saved")
    move.world.home.ok("zfs", "inherit", "readonly", f"zones/{VM}/disk0")
    assert move.moves(allow_memory_loss=True)["memory"] == "lost"
    assert "memory lost, so it has booted: its disks were made writable" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.ends(move.world.peer)


def test_disks_that_were_changed_and_closed_again(make):
    """Read-only disks alone prove nothing."""
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")
    disks = [disk["dataset"] for disk in home.disks(VM)]
    home.ok("zfs", "inherit", "readonly", *disks)
    home.quietly(lambda: home.domains.boot(VM))
    move.writes()
    home.domains.halt(VM)
    home.ok("zfs", "set", "readonly=on", *disks)
    for state in ("moved", "stays"):
        assert "changed since its memory was saved" in _both(move, state=state)
    move.moves(allow_memory_loss=True)
    assert move.restored == []
    move.ends(move.world.peer)


# -- what an operator is told again, or before


def test_memory_that_was_given_up_is_told_after_a_kill(make):
    """The run gives it up by the word, on the host that the VM leaves, and dies before anybody could read that."""
    reason = "its disks were made writable or changed"
    for then, condition in itertools.product(
        ("moved", "stays"),
        (
            lambda home: not home.has(MEMORY),
            lambda home: not home.has(MEMORY) and not home.has(f"zones/{VM}/disk0"),
        ),
    ):
        move = make()
        home = move.world.home
        _killed_with(move, "home", "saved")
        home.ok("zfs", "inherit", "readonly", f"zones/{VM}/disk0")
        _killed_when(move, lambda home=home, condition=condition: condition(home), allow_memory_loss=True)
        left = VM not in home.domains.configs or not home.has(f"zones/{VM}/disk0")
        if then == "stays" and left:
            continue
        ended = move.does(state=then)
        assert then == "stays" or ended["memory"] == "lost"
        assert f"memory lost, so it has booted: {reason}" in move.controller.messages[-1], then
        assert (move.boots, move.restored) == (1, [])
        move.ends(home if then == "stays" else move.world.peer)


def test_memory_that_came_is_told_after_a_kill_right_before_the_end(make):
    """The guest goes on, its memory is gone there, and only the entry of the move is left."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: VM in peer.domains.lives and not peer.has(MEMORY))
    assert move.moves()["memory"] == "restored"
    assert (move.boots, len(move.restored)) == (0, 1)
    move.ends(peer)


@pytest.mark.parametrize("what", ["memory", "disk"])
def test_memory_without_the_snapshots_of_its_disks_needs_a_word(make, what):
    """Somebody has destroyed the snapshot of the last set there. Nothing proves any more that they belong together."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: not move.world.home.has(f"zones/{VM}") and VM not in move.world.home.domains.configs)
    place = MEMORY if what == "memory" else "zones/flexdisk/replica"
    names = peer.ok("zfs", "list", "-Ho", "name", "-t", "snapshot", "-s", "createtxg", "-r", place).split()
    held = peer.node.run(["zfs", "holds", "-H", names[-1]])[1].split()
    for tag in held[1:2]:
        peer.ok("zfs", "release", tag, names[-1])
    peer.ok("zfs", "destroy", names[-1])
    refused = _both(move)
    assert "not of one set" in refused
    assert "flexdisk_allow_memory_loss=true" in refused
    assert peer.has(MEMORY)
    ended = move.moves(allow_memory_loss=True)
    assert ended["memory"] == "lost"
    assert "not of one set" in move.controller.messages[-1]
    assert (move.boots, move.restored) == (1, [])
    move.ends(peer)


def test_disks_that_were_changed_and_closed_again_there(make):
    """The target has no room for a seal. There, the bookmarks of the set that came tell, whatever the figures say."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "saved" and len(peer.disks(VM)) == 2)
    disks = [disk["dataset"] for disk in peer.disks(VM)]
    peer.ok("zfs", "inherit", "readonly", *disks)
    peer.quietly(lambda: peer.domains.boot(VM))
    move.writes()
    peer.domains.halt(VM)
    peer.ok("zfs", "set", "readonly=on", *disks)
    assert "changed since its memory was saved" in _both(move)
    assert move.moves(allow_memory_loss=True)["memory"] == "lost"
    assert move.restored == []
    move.ends(peer)


def test_a_seal_that_somebody_has_destroyed_is_named(make):
    """Without its snapshots, nothing proves what was written since. They are named as what is missing."""
    move = make()
    home = move.world.home
    _killed_with(move, "home", "saved")
    for name in home.ok("zfs", "list", "-Ho", "name", "-t", "snapshot", "-r", f"zones/{VM}").split():
        if saved_memory.is_seal(name.partition("@")[2]):
            home.ok("zfs", "destroy", name)
    for state in ("moved", "stays"):
        assert "the snapshots that prove that nothing was written since its memory was saved are gone" in _both(
            move, state=state
        )
    move.stays(allow_memory_loss=True)
    assert (move.boots, move.restored) == (1, [])
    move.ends(home)


@pytest.mark.parametrize("which", ["home", "peer"])
def test_a_busy_memory_is_foreseen(make, which):
    """A program works in the file system of the memory. The move ends; the next one is refused in check mode, too."""
    move = make()
    host = getattr(move.world, which)
    host.node.pools.faults[f"busy:{MEMORY}"] = 99
    assert move.moves()["memory"] == "restored"
    assert host.ok("zfs", "get", "-Ho", "value", "flexdisk:memory", MEMORY) == "ended"
    swap(move.world)
    host.files.programs_of[saved_memory.folder(VM)] = ["bash (4711)"]
    text = f"bash (4711) has {saved_memory.folder(VM)} open; end that program"
    assert text in _both(move)
    assert "pause" not in [name for name, _arguments in move.world.home.domains.calls]
    host.files.programs_of.clear()
    host.node.pools.faults.clear()
    assert move.moves()["memory"] == "restored"
    move.ends(move.world.peer)


@pytest.mark.parametrize("then", ["moved", "stays", "by hand", "with failover"])
def test_a_guest_is_never_left_paused_without_a_word(make, then):
    """The run dies between the pause and the save: whoever looks is told, and both commands end it."""
    move = make()
    home = move.world.home
    if then == "with failover":
        kept(move.world)
    _killed_when(move, lambda: home.domains.states.get(VM) == "paused" and not home.domains.is_saving(VM))
    host = home.quietly(lambda: observe(home.zfs(), home.driver(), all_pools=True))
    (found,) = [one for one in verify.findings(host, 0, 30, 7) if one.kind == "guest_paused"]
    assert (found.vm, found.severity) == (VM, "error")
    assert "flexdisk_target=hv02 goes on, and flexdisk_move_state=stays lets the guest go on here" in found.message
    assert "move_vm goes on; its guest stands still until then" in host.vms[0].config.frozen
    (half,) = [one for one in half_done(host, [], [], [], AtWork(False, ())) if one.kind == "leaves"]
    assert "its guest stands still" in half.text
    told = home.quietly(lambda: info(home.zfs(), home.driver(), None, None, False))
    assert any("stands still" in text for text in told.warnings)
    if then == "by hand":
        home.domains.resume(VM)
        assert not [one for one in findings(move.world) if one == "guest_paused"]
        move.writes()
    ended = move.does(state="stays" if then == "stays" else "moved")
    assert then == "stays" or ended["memory"] == "restored"
    assert move.boots == 0
    move.ends(home if then == "stays" else move.world.peer)


def test_a_guest_that_is_left_paused_there(make):
    """It is restored, and the run dies before it goes on."""
    move = make()
    peer = move.world.peer
    _killed_when(move, lambda: _word(peer) == "restored" and peer.domains.states.get(VM) == "paused")
    host = peer.quietly(lambda: observe(peer.zfs(), peer.driver(), all_pools=True))
    (found,) = [one for one in verify.findings(host, 0, 30, 7) if one.kind == "guest_paused"]
    assert "the playbook move_vm, from hv01 to this host, goes on" in found.message
    assert move.moves()["memory"] == "restored"
    assert move.boots == 0
    move.ends(peer)


def test_check_mode_predicts_each_refusal(make):
    """After a kill anywhere: what check mode does not refuse, is not refused."""
    for number, after in _points(make, Move.moves)[:: 3 * EVERY + 2]:
        move = make()
        _killed(move, number, after, move.moves)
        assert not _both(move), (number, after)
        move.ends(move.world.peer)
