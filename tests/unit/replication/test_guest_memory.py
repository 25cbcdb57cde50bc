# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory of a guest is saved, sent and restored between two hosts with libvirt, killed at every command.

The disks and the file are sent by the test itself, between commands, as the last transfer of a move brings them.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves.guest_memory import MovedMemory
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import saved_memory as rules
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import memory_dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.power import ARRIVAL, GIVEN_UP
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .linux import LinuxHost
from .test_move import two_disks
from .world import VM, Fuse, Killed

STATE = memory_dataset("zones", VM)
EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 3  # an odd number: before and after a command by turns
SET = "flexdisk-sync-0a1b2c3d-%d"


class Pair:
    """Two hosts, and what a move does with the memory of the VM. left: whether the VM has gone to the other host."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.home: LinuxHost = world.home
        self.peer: LinuxHost = world.peer
        self.left = False
        self.records = 3  # that the guest has written at least
        for _record in range(3):
            self.home.domains.write(VM)
        for name in ("zones/flexdisk", "zones/flexdisk/move", f"zones/flexdisk/move/{VM}"):
            for host in (self.home, self.peer):
                if not host.has(name):
                    host.ok("zfs", "create", "-o", "mountpoint=none", name)
        self.home.ok("zfs", "set", "quota=none", f"zones/{VM}")  # as with the space that announce() gives
        world.guard = self.check

    @property
    def here(self) -> LinuxHost:
        return self.peer if self.left else self.home

    def memory(self, host: LinuxHost, asks: str = GIVEN_UP) -> MovedMemory:
        return MovedMemory(host.zfs(), Copies(host), host.driver(), VM, asks, patience=6)

    def boot(self) -> bool:
        """Somebody starts it by hand. Return whether that works."""
        return not _code(lambda: self.here.domains.boot(VM))

    def writable(self) -> None:
        """Somebody makes its disks writable by hand."""
        self.here.ok("zfs", "inherit", "readonly", *(f"zones/{VM}/disk{n}" for n in range(2)))

    def journal(self) -> str:
        return self.here.ok("zfs", "get", "-Hpo", "value", "flexdisk:memory", STATE)

    def check(self) -> None:
        """Never able to run on two hosts, and never restored a second time."""
        up = [host for host in (self.home, self.peer) if VM in host.domains.lives]
        assert len(up) < 2, "it is there twice"
        restored = self.home.domains.restored + self.peer.domains.restored
        assert len(restored) == len({*restored}), "its memory was restored twice"

    def leave(self) -> None:
        """The VM is saved, and goes to the other host."""
        saved = self.memory(self.home).save()
        self.home.quietly(lambda: self.send(saved))

    def send(self, saved: bool) -> None:
        """The disks change their names there: the last one comes first."""
        home, peer = self.home, self.peer
        name = SET % 99
        disks = [f"zones/{VM}/disk{n}" for n in range(2)]
        places = dict(zip(disks, reversed(disks), strict=True))
        home.ok("zfs", "snapshot", *(f"{one}@{name}" for one in (*disks, *([STATE] if saved else []))))
        peer.ok("zfs", "create", f"zones/{VM}")
        for dataset in (*disks, *([STATE] if saved else [])):
            rc, stream, err = home.node.run(["zfs", "send", f"{dataset}@{name}"])
            assert rc == 0, err
            assert peer.node.run(["zfs", "receive", places.get(dataset, dataset)], stream)[0] == 0
            for fact in ("uuid", "name", "model"):
                value = home.ok("zfs", "get", "-Hpo", "value", f"flexdisk:{fact}", dataset)
                if value != "-":
                    peer.ok("zfs", "set", f"flexdisk:{fact}={value}", places.get(dataset, dataset))
        if saved:
            peer.ok("zfs", "set", f"mountpoint={rules.folder(VM)}", STATE)
            peer.ok("zfs", "set", "readonly=on", *places.values())
        size = home.ok("zfs", "get", "-Hpo", "value", "flexdisk:flexible_disk_size", f"zones/{VM}")
        peer.ok("zfs", "set", f"flexdisk:flexible_disk_size={size}", f"zones/{VM}")
        root = ET.fromstring(home.domains.xml(VM, False))
        for source in root.findall("devices/disk/source"):
            source.set("dev", f"/dev/zvol/{places[source.get('dev', '')[len('/dev/zvol/') :]]}")
        peer.domains.add(ET.tostring(root, encoding="unicode"))
        home.domains.undefine(VM)
        self.left = True

    def run(self, give_up: bool = False) -> MovedMemory:
        """The VM arrives, or stays."""
        there = self.memory(self.here, ARRIVAL if self.left else GIVEN_UP)
        if self.left and self.here.has(STATE) and self.journal() == "-":
            self.here.quietly(lambda: self.arrived(there))
        there.run(give_up)
        return there

    def arrived(self, there: MovedMemory) -> None:
        """Replicas become disks: snapshots of the set become bookmarks."""
        guids, name = {}, SET % 99
        for disk in (f"zones/{VM}/disk{n}" for n in range(2)):
            guids[disk] = int(self.here.ok("zfs", "get", "-Hpo", "value", "guid", f"{disk}@{name}"))
            self.here.ok("zfs", "bookmark", f"{disk}@{name}", f"{disk}#{name}")
        there.arrived("zones", guids, name)

    def ends(self) -> None:
        """The guest runs where it shall, has all its records, writes more, and nothing of its memory is left."""
        domains = self.here.domains
        self.world.fuse = Fuse()
        assert domains.status(VM).state == "running"
        before = domains.last_record(VM)
        assert before >= self.records, "a record is lost"
        domains.write(VM)
        assert domains.records[VM] == before + 1
        assert not self.here.has(STATE)
        assert _readonly(self) == ["off"] * 2
        assert rules.folder(VM) not in self.here.files.folders
        calls = len(domains.calls)
        self.run()
        assert len(domains.calls) == calls, "there was something left to do"


@pytest.fixture
def make(tmp_path, monkeypatch) -> Callable[[], Pair]:
    """Makes the same two hosts again each time."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    world = two_disks(tmp_path, monkeypatch)
    before = world.saved()

    def made() -> Pair:
        world.restore(before)
        world.fuse = Fuse()
        return Pair(world)

    return made


def cold_boots(pair: Pair) -> int:
    """How often the guest was started without its memory."""
    return sum(name == "create" for name, _arguments in pair.home.domains.calls + pair.peer.domains.calls)


def test_the_guest_goes_on_there(make):
    pair = make()
    pair.leave()
    pair.run()
    assert (cold_boots(pair), len(pair.peer.domains.goes_on)) == (0, 1)
    pair.ends()


def test_the_guest_goes_on_here(make):
    pair = make()
    pair.memory(pair.home).save()
    pair.run()
    assert (cold_boots(pair), len(pair.home.domains.goes_on)) == (0, 1)
    pair.ends()


def _count(pair: Pair, do: Callable[[], Any]) -> int:
    pair.world.fuse = Fuse()
    do()
    return int(pair.world.fuse.counted)


def _killed(pair: Pair, number: int, after: bool, do: Callable[[], Any]) -> None:
    pair.world.fuse = Fuse(number, after)
    with pytest.raises(Killed):
        do()
    pair.world.fuse = Fuse()


def _points(make, prepare: Callable[[Pair], Any], do: Callable[[Pair], Any]) -> list[tuple[int, bool]]:
    pair = make()
    prepare(pair)
    most = _count(pair, lambda: do(pair))
    return [*itertools.product(range(1, most + 1), (False, True))]


WAYS: dict[str, tuple[Callable[[Pair], Any], Callable[[Pair], Any], Callable[[Pair], Any]]] = {
    "saved, then goes on": (lambda _pair: None, Pair.leave, Pair.leave),
    "saved, then stays": (lambda _pair: None, Pair.leave, Pair.run),
    "stays": (lambda pair: pair.memory(pair.home).save(), Pair.run, Pair.run),
    "arrives": (Pair.leave, Pair.run, Pair.run),
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_at_every_command(make, way, record_property):
    """The same command goes on, or the other one. The guest is booted only if its restore had begun."""
    prepare, first, then = WAYS[way]
    points = _points(make, prepare, first)
    boots = 0
    for number, after in points:
        pair = make()
        prepare(pair)
        _killed(pair, number, after, lambda pair=pair: first(pair))
        begun = len(pair.home.domains.restored) + len(pair.peer.domains.restored)
        then(pair)
        if then is Pair.leave:
            pair.run()
        booted = cold_boots(pair)
        assert booted <= (way in ("stays", "arrives")), (number, after)
        assert not (booted and begun), "a guest that was restored is booted"
        boots += booted
        pair.ends()
    print(f"{way}: {len(points)} kills, {boots} boots")
    assert len(points) > 20
    assert boots <= 4, "too many guests are booted: only a kill right before the restore does that"


@pytest.mark.parametrize("way", ["stays", "arrives"])
@pytest.mark.parametrize("fault", ["reboot", "daemon", "halt"])
def test_a_host_that_boots_after_any_command(make, way, fault):
    """Whatever is restored by then is lost with it, and the guest is booted. The file is not used twice."""
    prepare, first, then = WAYS[way]
    for number, after in _points(make, prepare, first)[::EVERY]:
        pair = make()
        prepare(pair)
        _killed(pair, number, after, lambda pair=pair: first(pair))
        host = pair.here
        if fault == "daemon":
            host.domains.restart_daemon()
        else:
            host.power_off(VM)
        if fault == "reboot":
            host.reboot()
        then(pair)
        pair.ends()


@pytest.mark.parametrize("hand", ["starts", "starts and ends", "boots"])
@pytest.mark.parametrize("forces", [False, True])
def test_somebody_starts_it_by_hand_while_it_is_saved(make, hand, forces):
    """Its memory is never restored over what it has written since. Read-only disks keep it from being started."""
    refused = 0
    for number, after in _points(make, lambda _pair: None, Pair.leave)[::EVERY]:
        pair = make()
        _killed(pair, number, after, pair.leave)
        domains = pair.here.domains
        domains.status(VM)  # a save that was under way has come to its end
        if domains.status(VM).state == "stopped":
            if forces:
                pair.writable()
            refused += not pair.boot()
            domains.write(VM)
        if hand != "starts" and VM in domains.lives:
            pair.here.power_off(VM)
        if hand == "boots":
            pair.here.reboot()
        if not pair.left:
            assert _code(pair.leave) in ("", "MemoryLost")
        if _code(pair.run):
            assert pair.run(give_up=True).lost
        pair.ends()
    assert bool(refused) is not forces


def _code(do: Callable[[], Any]) -> str:
    """With which code it is refused."""
    try:
        do()
    except FlexdiskError as exc:
        return exc.code
    return ""


@pytest.mark.parametrize("then", ["stops", "is saved elsewhere", "runs on"])
def test_somebody_lets_it_go_on_right_before_it_is_saved(make, then, monkeypatch):
    """The run is killed there. What the guest writes since is never lost: no older memory is restored over it."""
    pair = make()
    domains = pair.home.domains

    def killed(*_arguments: Any) -> None:
        raise Killed

    monkeypatch.setattr(domains, "save_memory", killed)
    with pytest.raises(Killed):
        pair.leave()
    monkeypatch.undo()
    assert (domains.status(VM).state, _readonly(pair)) == ("paused", ["on"] * 2)
    pair.home.quietly(lambda: domains.resume(VM))
    domains.write(VM)  # it has its disks open since they could be written
    pair.records = domains.last_record(VM)
    if then == "is saved elsewhere":
        pair.home.ok("zfs", "create", "-o", "mountpoint=/srv/own", "zones/own")
        pair.home.quietly(lambda: domains.save_memory(VM, "/srv/own/file"))
        assert _code(lambda: pair.memory(pair.home).save()) == "MemoryLost"
        with pytest.raises(FlexdiskError, match="saved by hand, into another file"):
            pair.run()
        assert "another file" in pair.run(give_up=True).lost
    elif then == "stops":
        domains.halt(VM)
        assert not pair.memory(pair.home).save()
        pair.run()
    else:
        assert pair.memory(pair.home).save()
        assert pair.run().restored
    assert cold_boots(pair) == (then != "runs on")
    pair.ends()


def test_an_older_file_is_never_restored(make):
    """It was whole when the run was killed. Somebody has made the disks writable, and saved the guest by hand since."""
    pair = make()
    domains = pair.home.domains
    _killed_when(pair, lambda: domains.status(VM).state == "stopped")
    assert rules.decode(pair.journal()).word == rules.SAVING
    assert not pair.boot()
    pair.writable()
    assert pair.boot()
    domains.write(VM)
    pair.records = domains.last_record(VM)
    pair.home.ok("zfs", "create", "-o", "mountpoint=/srv/own", "zones/own")
    pair.home.quietly(lambda: domains.save_memory(VM, "/srv/own/file"))
    pair.home.ok("zfs", "set", "readonly=on", *(f"zones/{VM}/disk{n}" for n in range(2)))
    assert _code(lambda: pair.memory(pair.home).save()) == "MemoryLost"
    assert _code(pair.run) == "MemoryLost"
    assert domains.restored == []
    pair.run(give_up=True)
    pair.ends()


@pytest.mark.parametrize("fault", ["daemon", "boot"])
def test_memory_outlives_a_fault_right_after_the_save(make, fault):
    """Nothing has written to its disks, so it is theirs, although libvirt does not know how the run has ended."""
    pair = make()
    domains = pair.home.domains
    _killed_when(pair, lambda: domains.status(VM).state == "stopped")
    domains.restart_daemon() if fault == "daemon" else pair.home.reboot()
    pair.leave()
    assert pair.run().restored
    assert cold_boots(pair) == 0
    pair.ends()


def _killed_when(pair: Pair, condition: Callable[[], bool]) -> None:
    """The run dies at the first command after which this is true."""

    def guard() -> None:
        pair.check()
        if pair.home.quietly(condition):
            raise Killed

    pair.world.guard = guard
    with pytest.raises(Killed):
        pair.leave()
    pair.world.guard = pair.check


def _readonly(pair: Pair) -> list[str]:
    return [pair.here.ok("zfs", "get", "-Ho", "value", "readonly", f"zones/{VM}/disk{n}") for n in range(2)]


class Open(dict[str, bool]):
    """Volumes that another program has open, until somebody has asked so many times whether they are read-only."""

    def __init__(self, names: list[str], read_only: bool, asked: int) -> None:
        super().__init__(dict.fromkeys(names, read_only))
        self.asked = asked

    def get(self, name: str, default: Any = None) -> Any:
        self.asked -= 1
        if self.asked < 0:
            self.clear()
        return super().get(name, default)


def test_a_volume_that_another_program_has_open(make):
    """ZFS goes by what it was when it was opened, so read-only disks keep nobody from starting the VM. It stays."""
    pair = make()
    pair.home.files.open_since = Open([f"zones/{VM}/disk1"], False, 1 << 30)
    with pytest.raises(FlexdiskError, match=f"another program has zones/{VM}/disk1 open") as caught:
        pair.leave()
    assert caught.value.code == "InUse"
    assert rules.decode(pair.journal()).word == rules.SAVING
    pair.run()
    assert (cold_boots(pair), len(pair.home.domains.goes_on)) == (0, 1)
    pair.home.files.open_since = {}
    pair.ends()


def test_a_program_that_looks_into_a_volume_for_a_moment(make):
    """Such as udev. The save waits for it, and so does the restore: a guest whose disks cannot be written is lost."""
    pair = make()
    pair.home.files.open_since = Open([f"zones/{VM}/disk1"], False, 5)
    pair.leave()
    pair.peer.files.open_since = Open([f"zones/{VM}/disk0"], True, 5)
    pair.run()
    assert (cold_boots(pair), len(pair.peer.domains.goes_on)) == (0, 1)
    pair.ends()


def test_who_starts_it_by_hand_gives_its_memory_up(make):
    pair = make()
    pair.memory(pair.home).save()
    assert not pair.boot()
    pair.writable()
    assert pair.boot()
    assert _code(lambda: pair.memory(pair.home).save()) == "MemoryLost"
    assert "started by hand" in pair.run().lost
    assert pair.home.domains.restored == []
    pair.ends()


SEQUENCES = int(os.environ.get("FLEXDISK_JOURNEYS") or (300 if os.environ.get("FLEXDISK_FULL") else 30))


@pytest.mark.parametrize("part", range(3))
def test_random_sequences(make, part):
    """Saves and restores that are killed, among all that may happen to a host. Its memory is restored once, at most."""
    counts: Counter[str] = Counter()
    for number in range(part, SEQUENCES, 3):
        seed = int(os.environ["FLEXDISK_SEED"]) * 1000 + number
        dice, pair, trace = random.Random(seed), make(), []
        try:
            for _action in range(10):
                trace.append(dice.choice([*ACTIONS]))
                ACTIONS[trace[-1]](pair, dice)
                pair.check()
            pair.world.fuse = Fuse()
            if VM in pair.here.domains.lives and pair.here.domains.status(VM).state == "paused":
                pair.here.domains.status(VM)  # a save comes to its end
            if _code(pair.run) == "MemoryLost":
                counts["lost"] += 1
                pair.run(give_up=True)
            pair.ends()
        except BaseException:
            print(f"seed {seed}: {'; '.join(trace)}")
            raise
        counts.update(trace)
        counts["went on"] += len(pair.home.domains.goes_on) + len(pair.peer.domains.goes_on)
    print(dict(counts))
    assert counts["went on"]


def _disturbed(do: Callable[[Pair], Any]) -> Callable[[Pair, random.Random], None]:
    def act(pair: Pair, dice: random.Random) -> None:
        pair.world.fuse = Fuse(dice.randint(1, 40) if dice.random() < 0.7 else 0, dice.random() < 0.5)
        try:
            assert _code(lambda: do(pair)) in ("", "MemoryLost", "VmInTransition", "InUse")
        except Killed:
            pass
        finally:
            pair.world.fuse = Fuse()

    return act


def _leaves(pair: Pair) -> None:
    if not pair.left:
        pair.leave()


def _writes(pair: Pair, _dice: random.Random) -> None:
    domains = pair.here.domains
    domains.write(VM)
    if VM in domains.lives and domains.status(VM).state == "running":
        pair.records = domains.last_record(VM)


def _starts(pair: Pair, _dice: random.Random) -> None:
    if pair.here.domains.status(VM).state == "stopped":
        pair.boot()


def _ends(pair: Pair, _dice: random.Random) -> None:
    if VM in pair.here.domains.lives:
        pair.here.power_off(VM)


def _boots(pair: Pair, dice: random.Random) -> None:
    _ends(pair, dice)
    pair.here.reboot()


def _snapshots(pair: Pair, dice: random.Random) -> None:
    pair.here.ok("zfs", "snapshot", "-r", f"zones@auto-{dice.getrandbits(40)}")


ACTIONS: dict[str, Callable[[Pair, random.Random], None]] = {
    "leaves": _disturbed(_leaves),
    "leaves again": _disturbed(_leaves),
    "goes on": _disturbed(Pair.run),
    "is started without its memory": _disturbed(lambda pair: pair.run(give_up=True)),
    "writes": _writes,
    "writes more": _writes,
    "starts by hand": _starts,
    "makes its disks writable": lambda pair, _dice: pair.writable(),
    "ends by hand": _ends,
    "its host boots": _boots,
    "the daemon is started again": lambda pair, _dice: pair.here.domains.restart_daemon(),
    "others take snapshots": _snapshots,
}


def test_disks_that_somebody_has_made_writable(make):
    """Nobody knows what was written to them."""
    pair = make()
    pair.memory(pair.home).save()
    pair.home.ok("zfs", "inherit", "readonly", f"zones/{VM}/disk1")
    for refused in (lambda: pair.memory(pair.home).save(), pair.run):
        with pytest.raises(FlexdiskError, match=r"were made writable .* flexdisk_allow_memory_loss=true") as caught:
            refused()
        assert caught.value.code == "MemoryLost"
    assert pair.home.domains.status(VM).state == "stopped"
    ended = pair.run(give_up=True)
    assert "made writable" in ended.lost
    assert pair.home.domains.status(VM).state == "running"
    pair.ends()


def test_snapshots_of_others_change_nothing(make):
    pair = make()
    pair.memory(pair.home).save()
    pair.home.ok("zfs", "snapshot", "-r", "zones@hourly")
    pair.run()
    assert cold_boots(pair) == 0
    pair.ends()


def test_a_save_that_fails(make):
    """The guest goes on as soon as its move is given up, and what was made for its memory goes."""
    pair = make()
    pair.home.domains.cannot_save = "Input/output error"
    with pytest.raises(FlexdiskError, match="Input/output error"):
        pair.leave()
    assert pair.home.domains.status(VM).state == "paused"
    assert pair.run().lost == ""
    assert cold_boots(pair) == 0
    pair.ends()


def test_without_room_for_its_memory_it_is_not_stopped(make):
    """The room is reserved before the save."""
    pair = make()
    free = int(pair.home.ok("zfs", "get", "-Hpo", "value", "available", "zones"))
    pair.home.ok("zfs", "create", "-o", f"refreservation={free - (64 << 20)}", "zones/full")
    with pytest.raises(FlexdiskError, match="space"):
        pair.leave()
    assert "save_memory" not in [name for name, _arguments in pair.home.domains.calls]
    assert not pair.home.has(STATE)
    pair.ends()


def test_a_restore_that_fails_boots_the_guest(make):
    """It has begun, so nobody tries it again. The message says why."""
    pair = make()
    pair.leave()
    pair.peer.domains.cannot_restore = "CPU feature is missing"
    ended = pair.run()
    assert cold_boots(pair) == 1
    assert "CPU feature is missing" in ended.lost
    pair.peer.domains.cannot_restore = ""
    pair.ends()


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("<emulator>/usr/bin/qemu-system-x86_64", "<emulator>/tmp/own", "asks for emulator /tmp/own"),
        (VM, "aaaaaaaa-0000-4000-8000-000000000303", "has the memory of another domain"),
    ],
)
def test_what_is_in_the_file_is_what_another_host_says(make, old, new, text):
    """It is refused before anything has begun. The word boots the VM without it."""
    pair = make()
    pair.leave()
    domains = pair.peer.domains
    real = domains.memory_xml
    domains.memory_xml = lambda path: re.sub(re.escape(old), new, real(path))
    with pytest.raises(FlexdiskError, match=f"{text}.* flexdisk_allow_memory_loss=true"):
        pair.run()
    assert (domains.status(VM).state, domains.restored) == ("stopped", [])
    assert text in pair.run(give_up=True).lost
    assert (cold_boots(pair), domains.restored) == (1, [])
    pair.ends()
