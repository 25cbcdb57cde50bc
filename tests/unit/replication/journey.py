# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What happens at random to a VM with failover on two hosts, and what must be true after each action."""

from __future__ import annotations

import contextlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_stay import (
    GiveUpTakeover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm, vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import moves
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted

from .test_failover import mark, said_by, start, store, take
from .test_move import PAIR, POLICY, findings, hosts, look, move, swap
from .test_other_tasks import DATA, ROOT, task
from .world import VM, Foreign, Fuse, Host, Killed

# A replica may be older than its disk, and a disk that is kept apart may be found as such.
HARMLESS = {"replica_stale", "replica_missing"}
TRIES = 3
SNAPSHOTS = 3  # names of snapshots of the VM
MOST = 300  # commands of a long run
SEEN = {host: moves.Sighting(VM, "") for host in ("hv01", "hv02")}


class Refused(Exception):
    """A task was refused, or did not reach its end. Nothing is lost by it."""


class Journey:
    """A VM on its way. trace: what was done. counts: how often."""

    def __init__(self, seed: int, folder: Path, monkeypatch: Any, backend: str = "vmadm") -> None:
        self.random = random.Random(seed)
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        monkeypatch.setattr(records, "_FOLDER", str(folder))
        self.world = PAIR[backend](folder, monkeypatch)
        self.ways = ["stopped", "suspended"] if backend == "libvirt" else ["stopped"]
        self.monkeypatch, self.folder = monkeypatch, folder
        self.first = self.world.home
        self.world.acting = self.use
        self.sizes = {"flexible_disk_size": 2048}
        assert not task(self.world, ROOT, {**DATA, "size": 64}, **self.sizes).problems
        self.contents = self.world.hashes()
        self.synced: list[list[str]] = []
        self.protected, self.running = False, True
        self.taken = 0
        self.world.guard = self.never_two

    # -- what is true at any time

    def use(self, host: Host) -> None:
        """Each host has records of its own."""
        place = self.folder / ("first" if host is self.first else "second")
        self.monkeypatch.setattr(records, "_FOLDER", str(place))

    def never_two(self) -> None:
        """The VM runs on one host at most."""
        running = [host for host in (self.world.home, self.world.peer) if host.runs(VM)]
        assert len(running) < 2, "it runs twice"

    # -- disturbances

    @contextlib.contextmanager
    def disturbed(self, kill: float = 0.6, most: int = MOST) -> Iterator[None]:
        """The run is killed, or others take snapshots, or both. It may be refused."""
        dice, world = self.random, self.world
        at = dice.randint(1, most) if dice.random() < kill else 0
        moments = {dice.randint(1, most) for _n in range(dice.choice((0, 1, 3, 12)))}
        taken = world.foreign.taken if world.foreign is not None else 0
        world.foreign = Foreign(moments, killed=dice.random() < 0.5)
        world.foreign.taken = taken
        world.fuse = Fuse(at, dice.random() < 0.5)
        try:
            yield
            self.note("done")
        except Killed:
            self.note(f"killed at {at}")
            self.counts["killed"] += 1
        except (FlexdiskError, Refused) as exc:
            self.note(f"refused: {exc}")
            self.counts["refused"] += 1
        finally:
            self.counts["snapshots of others"] += world.foreign.taken - taken
            world.fuse, world.foreign.at, world.foreign.killed = Fuse(), (), False

    def note(self, text: str) -> None:
        self.trace.append(text)

    # -- actions

    def act(self) -> None:
        """One action, and whatever brings the VM to one host again."""
        names = ["write", "write", "replicate", "moves", "moves", "stays", "forgotten", "others", "retention"]
        names += ["converges", "snapshots", "power", "fails", "boots"]
        name = self.random.choice(names)
        self.note(name)
        self.counts[name] += 1
        self.counts["actions"] += 1
        getattr(self, name)()
        self.settled()

    def write(self) -> None:
        """The guest writes."""
        self.world.write(self.random.randint(0, 1), 1, self.random.randint(0, 40))
        self.contents = self.world.hashes()

    def others(self) -> None:
        """Others take a snapshot of everything."""
        (self.world.foreign or Foreign()).take(self.world)

    def retention(self) -> None:
        """Others destroy some of their snapshots."""
        for host in (self.world.home, self.world.peer):
            listed = host.ok("zfs", "list", "-H", "-o", "name", "-t", "snapshot", "-r", "zones").split()
            for name in listed:
                if "@auto-" in name and self.random.random() < 0.7:
                    host.node.run(["zfs", "destroy", name])

    def replicate(self) -> None:
        """The playbook replicate, with failover."""
        with self.disturbed(most=150):
            self.protect()
        self.calmly(self.protect)

    def protect(self) -> None:
        self.protected = False
        self.synced.append(self.contents)
        if not self.sync():
            raise Refused("the replicas are not complete")
        try:
            result = mark(self.world, True).records
        except AssertionError as exc:
            raise Refused(f"the VM cannot move {exc}") from exc
        self.use(self.world.peer)
        store(self.world, result)
        self.synced = [self.contents]
        self.protected = True

    def sync(self) -> bool:
        planned = self.world.planned()
        if planned.problems:
            raise Refused(str(planned.problems))
        try:
            _busy, complete = self.world.sync()
            return bool(complete)
        except AssertionError as exc:
            raise Refused(f"the sync has failures {exc}") from exc

    def moves(self) -> None:
        """The playbook move_vm, and again until the VM is there; or it stays."""
        with self.disturbed():
            self.move()
        self.end_of_move(self.random.random() < 0.4)

    def move(self) -> None:
        seen = look(self.world)
        if seen["refusals"] and not (seen["move"] or {}).get("phase") == "moved":
            raise Refused(str(seen["refusals"]))
        self.synced.append(self.contents)
        try:
            how = self.random.choice(self.ways)
            self.counts[how] += 1
            move(self.world, how)
        except Stopped as exc:
            raise Refused(str(exc)) from exc
        if not self.world.home.power(VM):
            swap(self.world)
            self.protected = False
            self.synced = [self.contents]

    def end_of_move(self, stays: bool) -> None:
        """The VM stays, or the same command ends the move."""
        if not self.world.home.power(VM) and not look(self.world)["move"]:
            swap(self.world)
        if stays:
            with contextlib.suppress(FlexdiskError):  # it has left: then only the same command goes on
                self.stay()
        if not stays or look(self.world)["move"]:
            self.calmly(self.move)

    def stay(self) -> None:
        source, target = hosts(self.world)
        source.stay(VM)
        target.cancel(VM)

    def stays(self) -> None:
        """A move is given up. It may not even have begun."""
        with self.disturbed():
            self.move()
        for _again in range(2):
            with self.disturbed(most=60):
                self.stay()
        self.end_of_move(True)

    def forgotten(self) -> None:
        """The tombstone on the other host goes."""
        swap(self.world)
        with self.disturbed(most=20):
            hosts(self.world)[0].forget(VM, SEEN)
        self.calmly(lambda: hosts(self.world)[0].forget(VM, SEEN))
        swap(self.world)

    def converges(self) -> None:
        """The task vm_disks changes something, and is killed."""
        tags = {"tag": str(self.random.randint(0, 99))}
        cold = self.random.choice(self.world.choices)
        with self.disturbed(most=60):
            self.converge({"tags": tags, **cold})
        if self.random.random() < 0.5:
            with self.disturbed():  # somebody moves it meanwhile
                self.move()
            self.end_of_move(True)
        self.calmly(lambda: self.converge({"tags": tags, **cold}))

    def converge(self, data: dict[str, Any]) -> None:
        ended = task(self.world, ROOT, {**DATA, **data}, **self.sizes)
        if ended.problems or ended.failure:
            raise Refused(f"{ended.problems} {ended.failure}")

    def snapshots(self) -> None:
        """The task vm_snapshot, killed."""
        self.taken += 1
        options = {"name": f"s{self.taken % SNAPSHOTS}", "state": self.random.choice(("present", "absent"))}
        with self.disturbed(most=40):
            self.snapshot(options)
        self.calmly(lambda: self.converge({}))
        self.calmly(lambda: self.snapshot(options))

    def snapshot(self, options: dict[str, str]) -> None:
        zfs, driver = self.world.home.zfs(), self.world.home.driver()
        ended = vm_snapshot.run(zfs, driver, ["db01"], wanted(**options), POLICY, None, False, NOW)
        if ended.problems or ended.failure:
            raise Refused(f"{ended.problems} {ended.failure}")

    def without(self, name: str) -> None:
        self.snapshot({"name": name, "state": "absent"})

    def follow(self, text: str) -> None:
        """Do what a refusal says of snapshots, whose parts a failover or a move may have left apart."""
        for part in re.findall(r"(zones\S+@\S+) has the name of snapshot \S+, but was not taken with it", text):
            self.world.home.ok("zfs", "rename", part, f"{part.partition('@')[0]}@apart-{len(self.trace)}")
        for name in re.findall(r"is all that is left of snapshot (\S+); vm_snapshot deletes it", text):
            self.calmly(lambda name=name: self.without(name))  # type: ignore[misc]

    def power(self) -> None:
        """The task vm stops the VM or starts it."""
        self.running = not self.running
        with self.disturbed(most=40):
            self.declare()
        self.calmly(self.declare)

    def declare(self) -> None:
        declared = {"vm": "db01", "state": "running" if self.running else "stopped"}
        zfs, driver = self.world.home.zfs(), self.world.home.driver()
        ended = vm.run(zfs, driver, [declared], [], POLICY, "zones", False)
        if ended.problems or ended.failure:
            raise Refused(f"{ended.problems} {ended.failure}")

    def boots(self) -> None:
        """The host of the VM loses power, and start_host runs after its boot."""
        if not self.protected:
            return
        self.crash()
        assert not start(self.world, {self.world.peer_name: said_by(self.world.peer)}).failures
        if self.world.home.power(VM) != "running" and self.running:
            self.calmly(self.declare)

    def crash(self) -> None:
        if self.world.home.runs(VM):
            self.world.home.power_off(VM)

    # -- failover

    def fails(self) -> None:
        """The host of the VM dies, the other one takes the VM over, and the old one comes back at some time."""
        if not self.protected:
            return
        if self.random.random() < 0.5:
            with self.disturbed(most=150):
                self.protect()
        left = self.contents
        self.crash()
        with self.disturbed(most=250):
            take(self.world)
        answers = said_by(self.world.peer, "db01")
        if not answers and self.random.random() < 0.5:
            self.note("it never began, and the old host is back")
            self.back_as_it_was()
            return
        taking = bool(answers) and bool(answers[0]["taking"])
        if taking and self.random.random() < 0.5 and self.gives_up():
            return
        if taking and self.random.random() < 0.5:
            self.note("it ends on the old host first")
            self.ends_first()
        self.calmly(lambda: take(self.world))
        swap(self.world)
        there = self.world.hashes()
        assert there in self.synced, "what the replicas had is lost"
        self.contents, self.running = there, True
        self.calmly(self.declare)
        for number in range(SNAPSHOTS):  # of one that the record did not have yet, the disks have the parts alone
            self.calmly(lambda name=f"s{number}": self.without(name))  # type: ignore[misc]
        if self.random.random() < 0.4:
            self.write()
        self.returns(left)

    def back_as_it_was(self) -> None:
        done = start(self.world, {self.world.peer_name: said_by(self.world.peer)})
        assert not done.failures, done
        self.calmly(self.declare)

    def gives_up(self) -> bool:
        """The old host is back, and the failover is given up, if that is still possible."""
        world = self.world
        done = start(world, {world.peer_name: said_by(world.peer)}, unasked=True)
        assert not done.started, "another host has begun to take it over"
        stay = GiveUpTakeover(world.peer.zfs(), world.peer.driver(), world.peer)
        try:
            stay.stay("db01", True)
        except FlexdiskError as exc:
            if exc.code != "InUse":
                raise
            return False
        self.use(world.peer)
        with self.disturbed(most=60):
            stay.stay("db01", False)
        self.calmly(lambda: stay.stay("db01", False))
        self.note("given up")
        self.back_as_it_was()
        return True

    def ends_first(self) -> None:
        """The VM ends on its old host before the failover goes on."""
        world = self.world
        claims = read_claims({world.peer_name: said_by(world.peer, "db01")})
        back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
        self.calmly(lambda: back.end(EndRequest("db01", claims, True)))

    def returns(self, left: list[str]) -> None:
        """The VM ends on the old host, which is the peer by now. What only that has stays until it is given up."""
        world = self.world

        def old() -> FailoverReturn:
            return FailoverReturn(world.peer.zfs(), world.peer.driver(), world.peer)

        swap(world)
        done = start(world, {world.peer_name: said_by(world.peer)})
        assert not done.started, "it was taken over"
        swap(world)
        claims = read_claims({world.home_name: said_by(world.home, "db01")})
        with self.disturbed(most=150):
            old().end(EndRequest("db01", claims))
        self.calmly(lambda: old().end(EndRequest("db01", claims)))
        hashes = {world.peer.ok("guest", "hash", name) for name in self.copies(world.peer)}
        assert {*left} <= hashes, "what only the old host had is lost"
        with self.disturbed(most=60):
            old().give_up("db01", False)
        self.calmly(lambda: old().give_up("db01", False))
        self.protected = False
        self.calmly(self.protect)

    @staticmethod
    def copies(host: Host) -> list[str]:
        listed = host.ok("zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", "zones/flexdisk").split()
        return [name for name in listed if "/replica/" in name or "/diverged/" in name]

    # -- what is true after each action

    def calmly(self, do: Callable[[], Any]) -> None:
        """A documented command ends, at the latest when it is given again after what its message says."""
        for attempt in range(TRIES):
            try:
                do()
                return
            except (FlexdiskError, Refused) as exc:
                if attempt + 1 == TRIES:
                    raise
                self.follow(str(exc))

    def settled(self) -> None:
        """The VM is on one host with all that it had, runs if it shall, and all tasks work."""
        world = self.world
        host = observe(world.home.zfs(), world.home.driver(), all_pools=True)
        assert [one.config.uuid for one in host.vms] == [VM]
        assert host.moves == {}
        assert world.hashes() == self.contents, "content is lost"
        self.calmly(self.declare)
        assert world.home.power(VM) == ("running" if self.running else "stopped")
        there = observe(world.peer.zfs(), world.peer.driver(), all_pools=True)
        assert (there.vms, there.detached) == ((), ())
        assert {move.phase for move in there.moves.values()} <= {"moved"}
        self.converge({})
        assert not task(world, ROOT, DATA, **self.sizes).changed
        assert {*findings(world)} <= HARMLESS, findings(world)
