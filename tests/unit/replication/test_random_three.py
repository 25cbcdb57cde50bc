# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random sequences of moves, failovers and their ends between three simulated nodes: plays that are killed anywhere,
hosts that die and come back at any time, and commands that are given when nothing has ended yet.

The VM never runs twice. What it has written is somewhere until somebody gives it up, and it never has disks of two
moments. Once all hosts are there, the documented commands bring it to one host where everything works.
FLEXDISK_SEED chooses the sequences, FLEXDISK_JOURNEYS says how many there are, FLEXDISK_ACTIONS how long.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections import Counter

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .plays import NAMES, Plays, Refused
from .test_move import PAIR
from .test_other_tasks import DATA, ROOT, task
from .world import REPLICAS, VM, Foreign, Fuse, Killed

FULL = bool(os.environ.get("FLEXDISK_FULL"))
SEQUENCES = int(os.environ.get("FLEXDISK_JOURNEYS") or (20 if FULL else 4))
ACTIONS = int(os.environ.get("FLEXDISK_ACTIONS") or (300 if FULL else 16))
MOST = 260  # commands of a long play
ROUNDS = 12  # of commands, until the VM has to be on one host
SIZES = {"flexible_disk_size": 2048}
ACTS = [
    *["write"] * 3,
    *["dies", "comes_back", "returned", "start", "others"] * 2,
    *["replicate", "moves", "fails"] * 4,
]
ACTS += ["stays", "forgotten", "failover_stays", "absent", "no_failover", "reinstalled", "converges"]

REMADE = ("is the replica of this disk on", "have no snapshot in common", "was written to since its newest snapshot")


class Broken(BaseException):
    """Something that must never be."""


class Voyage:
    """A VM. ways: each state that it was ever in, and those before it. newest: the last one on each way that
    it has left.
    """

    def __init__(self, seed, folder, monkeypatch, backend="vmadm"):
        self.random = random.Random(seed)
        self.trace, self.counts = [], Counter()
        self.world = PAIR[backend](folder, monkeypatch)
        assert not task(self.world, ROOT, {**DATA, "size": 64}, **SIZES).problems
        self.plays = Plays(self.world, monkeypatch)
        self.hv = self.plays.hv
        self.now = self.contents("hv01")
        self.ways = {self.now: (self.now,)}
        self.newest, self.taken, self.hosts = [], 0, 3
        self.half_started = set()
        """Hosts on which a run was killed right behind a start, with autoboot on. See docs/safety.md."""
        self.world.guard = self.never_two
        self.hv["hv01"].set_autoboot(VM, True)
        self.plays.replicate("hv02")

    # -- what is true at any time

    def never_two(self):
        running = [name for name, host in self.hv.items() if host.runs(VM)]
        if len(running) > 1:
            raise Broken(f"it runs on {running}")

    def contents(self, name):
        host = self.hv[name]
        return tuple(host.ok("guest", "hash", disk["dataset"]) for disk in host.disks(VM))

    def running(self):
        return next((name for name, host in self.hv.items() if host.runs(VM)), "")

    def looked(self):
        """The VM runs somewhere: what it has is one of the states that it was in."""
        name = self.running()
        if not name:
            return ""
        result = self.contents(name)
        if result not in self.ways:
            raise Broken(f"{name} has disks of two moments, or of none")
        if result != self.now:
            self.newest.append(self.now)
            self.now = result
        return name

    def nothing_is_lost(self):
        """All that was ever the newest is on some host, unless the VM has had it and has written over it since."""
        there = set()
        for host in self.hv.values():
            listed = host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", "zones").split()
            there |= {host.ok("guest", "hash", name) for name in listed}
        had = {content for state in self.ways[self.now] for content in state}
        for one in self.newest:
            if not set(one) <= there | had:
                raise Broken(f"what it had written last is lost: {one}")

    # -- actions

    def act(self):
        """One of them, that may be killed, with hosts that die meanwhile."""
        name = self.random.choice(ACTS)
        self.trace.append(name)
        self.counts[name] += 1
        getattr(self, name)()
        self.looked()

    @contextlib.contextmanager
    def disturbed(self, kill=0.5, most=MOST):
        dice, world = self.random, self.world
        at = dice.randint(1, dice.choice((most, most // 2, most // 6)))
        world.fuse = Fuse(at if dice.random() < kill else 0, dice.random() < 0.5)
        try:
            yield
            self.note("done")
        except Killed:
            self.note(f"killed at {world.fuse.at}")
            if ["vmadm", "start"] in world.last_commands:
                self.half_started.update(name for name, host in self.hv.items() if host.runs(VM))
            world.fuse = Fuse()
            if dice.random() < 0.4:
                self.dies()
        except (FlexdiskError, Refused) as exc:
            self.note(f"refused: {exc!s:.200}")
        finally:
            world.fuse = Fuse()

    def note(self, text):
        self.trace.append(text)
        self.counts[text.split()[0].rstrip(":")] += 1

    def any_host(self):
        return self.random.choice(NAMES)

    def write(self):
        name = self.looked()
        if not name:
            return
        host = self.hv[name]
        self.world.serial += 1
        disk = self.random.choice(host.disks(VM))["dataset"]
        host.ok("guest", "write", disk, str(self.random.randint(0, 40)), "1", f"w{self.world.serial}")
        before, self.now = self.ways[self.now], self.contents(name)
        self.ways[self.now] = (*before, self.now)

    def dies(self, name=""):
        """A host loses power, or is shut down. What runs there ends."""
        name = name or self.any_host()
        self.trace.append(f"{name} dies")
        self.looked()
        host = self.hv[name]
        if host.runs(VM):
            autoboot = host.autoboots(VM)
            (host.suspend if self.random.random() < 0.3 else host.power_off)(VM)  # vmadm turns autoboot off, too
            host.set_autoboot(VM, autoboot)
        self.plays.dead.add(name)

    def comes_back(self):
        """A host boots, and starts what it may start by itself."""
        for name in self.random.sample(sorted(self.plays.dead), min(1, len(self.plays.dead))):
            self.boots(name)

    def boots(self, name):
        self.trace.append(f"{name} is back")
        self.half_started &= {one for one in self.half_started if self.hv[one].autoboots(VM)}
        self.plays.dead.discard(name)
        host = self.hv[name]
        host.reboot()
        if host.autoboots(VM) and host.power(VM) in ("stopped", "saved") and name not in self.half_started:
            self.note("autoboot")
            host.power_on(VM)
        self.never_two()

    def replicate(self):
        with self.disturbed(most=150):
            self.plays.replicate(self.any_host())

    def moves(self):
        target = self.any_host()
        self.trace.append(target)
        with self.disturbed():
            self.plays.move_vm(target)

    def stays(self):
        with self.disturbed(0.3, 60):
            self.plays.move_vm(self.any_host(), "stays")

    def forgotten(self):
        with self.disturbed(0.3, 60):
            self.plays.move_vm("", "forgotten")

    def fails(self):
        """The host of the VM dies. Nobody gives this command while the VM runs: that is what flexdisk_fenced says."""
        target, home = self.any_host(), self.running()
        if home and self.random.random() < 0.4:
            return
        if home:
            self.dies(home)
        self.trace.append(target)
        without = self.random.choice([(), (), sorted(self.plays.dead)[:1]])
        self.trace.append(f"without {without}")
        with self.disturbed():
            self.plays.failover_vm(target, self.random.choice([None, 10**9]), without)

    def failover_stays(self):
        with self.disturbed(0.3, 60):
            self.plays.failover_stays()

    def start(self):
        name = self.any_host()
        if name in self.plays.alive:
            with self.disturbed(0.3, 40):
                self.plays.start_host(name)

    def returned(self):
        with self.disturbed(0.5, 150):
            self.plays.ends("returned")

    def absent(self):
        """Replicas are given up. What only they had is given up with them."""
        if len([one for one in self.plays.seen().values() if one["vm"]]) == 1:
            with self.disturbed(0.5, 60):
                self.plays.absent(self.random.choice(self.plays.alive))

    def no_failover(self):
        with self.disturbed():
            self.plays.no_failover(self.any_host())

    def reinstalled(self):
        """All that a dead host had is gone, and the home is told so at once, or never."""
        home = self.looked()
        for name in self.random.sample(sorted(self.plays.dead - {home}), min(1, len(self.plays.dead - {home}))):
            if home:
                self.trace.append(f"{name} is made anew")
                shutil.rmtree(self.world.folder / name, ignore_errors=True)
                self.hosts += 1
                self.hv[name] = self.world.host(self.hosts)
                self.newest = []
                with self.disturbed(0.3, 60):
                    self.plays.absent(name)

    def others(self):
        """Somebody takes a snapshot of a whole pool."""
        for name in self.random.sample(self.plays.alive, min(1, len(self.plays.alive))):
            self.taken += 1
            Foreign.of_pool(self.hv[name], f"auto-{self.taken}")

    def converges(self):
        """The task vm_disks, which stops the VM and starts it."""
        name = self.running()
        if name:
            with self.disturbed(0.7, 60):
                self.converge(name, **self.random.choice(self.world.choices))

    # -- the end

    def settled(self):
        """All hosts are there, and the documented commands are given until all is well."""
        for name in sorted(self.plays.dead):
            self.boots(name)
        lines = []
        for _round in range(ROUNDS):
            if self.is_well():
                break
            lines = [*lines[-12:], *self.commands()]
        else:
            raise Broken(f"stuck: {json.dumps(self.plays.seen())[:2000]}; {lines}")
        name = self.looked()
        self.nothing_is_lost()
        self.works(name)

    def is_well(self):
        """The VM runs on one host, and the others have replicas and tombstones."""
        home = self.running()
        if not home:
            return False
        for name, host in self.hv.items():
            self.world.acting(host)
            observed = observe(host.zfs(), host.driver(), all_pools=True)
            phases = {move.phase for move in observed.moves.values()}
            if name == home and (len(observed.vms) != 1 or phases):
                return False
            if name != home and (observed.configs or observed.detached or phases - {"moved"}):
                return False
        return True

    def commands(self):
        """What somebody does who reads the messages: first what has begun goes on, then old homes end."""
        lines = []
        for name in NAMES:
            self.starts(name, lines)
        have = [name for name, one in self.plays.seen().items() if one["vm"] and not one["move"]]
        if len(have) == 1 and not self.running():  # without failover, the task that was interrupted goes on
            self.tried(lines, f"vm_disks on {have[0]}", lambda: self.converge(have[0]))
            if "virsh start" in lines[-1]:
                self.hv[have[0]].power_on(VM)
        for name, one in self.plays.seen().items():
            self.goes_on(name, one["move"] or {}, lines)
        if not self.tried(lines, "returned", lambda: self.plays.ends("returned")):
            for name in (one for one in NAMES if one != self.running()):
                if not self.tried(lines, f"returned of {name}", lambda name=name: self.plays.ends("returned", name)):
                    self.looks_at_older_data(name, lines[-1])
                    self.ended_first(name, lines[-1])
        self.looked()
        return lines

    @staticmethod
    def tried(output, text, run):
        """Whether a command ended well."""
        try:
            run()
        except (FlexdiskError, Refused) as exc:
            output.append(f"{text}: {exc!s:.300}")
            return False
        output.append(f"{text}: done")
        return True

    def starts(self, name, output):
        complaints = []
        self.tried(output, f"start_host {name}", lambda: complaints.extend(self.plays.start_host(name)))
        output.extend(complaints)
        if any("a run was interrupted" in one for one in complaints):
            self.tried(output, f"vm_disks on {name}", lambda: self.converge(name))
        if any("no replicas of it are known" in one for one in complaints):
            self.tried(output, f"start_host {name} unasked", lambda: self.plays.start_host(name, True))
        self.looked()

    def goes_on(self, name, move, output):
        """A move, or a failover, that has begun."""
        if move.get("phase") == "coming" and not self.tried(
            output, f"move_vm {name}", lambda: self.plays.move_vm(name)
        ):
            self.tried(output, f"failover_vm {name}", lambda: self.plays.failover_vm(name))
        elif move.get("phase") == "leaving":
            target = move["host"]
            if not self.tried(output, f"move_vm {target}", lambda: self.plays.move_vm(target)):
                self.tried(output, f"move_vm {target} stays", lambda: self.plays.move_vm(target, "stays"))
        self.looked()

    def ended_first(self, name, message):
        """Before an old home can end, what was interrupted there ends, and saved memory goes."""
        if "managedsave-remove" in message:
            self.hv[name].forget_memory(VM)
        if "a task was interrupted" in message:
            self.converge(name)

    def converge(self, name, **data):
        """The task vm_disks on a host."""
        self.plays.between(name, next(one for one in NAMES if one != name))
        self.world.acting(self.hv[name])
        ended = task(self.world, ROOT, {**DATA, **data}, **SIZES)
        if ended.problems or ended.failure:
            raise Refused(f"{ended.problems} {ended.failure}")

    def looks_at_older_data(self, name, message):
        """What an earlier failover has left there is given up, if that is what the message asks for."""
        if "is there already" in message:
            self.nothing_is_lost()
            self.counts["given up"] += 1
            self.calmly(lambda: self.plays.ends("given_up", name))
            self.newest = []

    def works(self, name):
        """Replicas on both other hosts, and an idle task."""
        self.calmly(lambda: self.converge(name))
        for other in NAMES:
            if other != name:
                self.replicates(other)
        self.looked()
        self.nothing_is_lost()
        self.plays.between(name, next(one for one in NAMES if one != name))
        assert not task(self.world, ROOT, DATA, **SIZES).changed
        if self.random.random() < 0.3:
            for one in NAMES:
                if one != name:
                    self.calmly(lambda one=one: self.plays.ends("given_up", one))
            self.newest = []

    def replicates(self, peer):
        """Replicas of where the VM was before go first, as the message says."""
        try:
            self.calmly(lambda: self.plays.replicate(peer))
        except Broken as exc:
            if not any(text in str(exc) for text in REMADE):
                raise
            self.counts["whole streams"] += 1
            self.calmly(lambda: self.plays.absent(peer))
            for replica in self.replicas(peer):  # of a VM that was taken over since: by hand
                self.by_hand(peer, replica)
                self.newest = []
            self.calmly(lambda: self.plays.replicate(peer))

    def replicas(self, name):
        host = self.hv[name]
        if not host.has(REPLICAS):
            return []
        return host.ok("zfs", "list", "-Ho", "name", "-t", "volume", "-r", REPLICAS).split()

    def by_hand(self, name, replica):
        host = self.hv[name]
        for snapshot in host.ok("zfs", "list", "-Ho", "name", "-t", "snapshot", "-r", replica).split():
            for line in host.ok("zfs", "holds", "-H", snapshot).splitlines():
                host.ok("zfs", "release", line.split("\t")[1], snapshot)
        host.ok("zfs", "destroy", "-r", replica)

    def calmly(self, run):
        for attempt in range(3):
            try:
                run()
                return
            except (FlexdiskError, Refused) as exc:
                if attempt == 2:
                    raise Broken(f"a task does not work: {exc}") from exc


@pytest.mark.parametrize("number", range(SEQUENCES))
@pytest.mark.parametrize("backend", ["vmadm", "libvirt"])
def test_random_sequences(backend, number, tmp_path, monkeypatch, record_property):
    seed = int(os.environ["FLEXDISK_SEED"]) * 1000 + number
    voyage = Voyage(seed, tmp_path, monkeypatch, backend)
    try:
        for action in range(1, ACTIONS + 1):
            voyage.act()
            if action % 8 == 0:
                voyage.trace.append("--")
                voyage.settled()
    except BaseException:
        print(f"seed {seed}: {'; '.join(voyage.trace[-60:])}")
        raise
    for label, count in voyage.counts.items():
        record_property(label, count)
    print(dict(voyage.counts))
