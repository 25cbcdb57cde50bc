# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Properties of the pool model under random commands, against a naive model."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from simnode.clock import Clock
from simnode.zfs.storage import Storage

from tests.unit.simnode.zfs_support import Zfs, mib

VOLUMES = ("zones/a/v", "zones/a/w", "zones/b/v")
SHORT = st.sampled_from(["s", "t", "u"])
VOLUME = st.sampled_from(VOLUMES)
Content = dict[int, tuple[str, int]]
"""MiB to (seed, number of the write that made this block)."""

BLOCK = 128 * (8192 + 90)
"""What a MiB in blocks of 8K counts for, indirect blocks included."""


class Machine(RuleBasedStateMachine):
    """Volumes of at most 64 MiB; the naive model knows each MiB's content of volumes and snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.zfs = Zfs(size=mib(1024))
        self.zfs.ok("create -o quota=400M zones/a")
        self.zfs.ok("create -o reservation=100M zones/b")
        self.volumes: dict[str, tuple[int, Content]] = {}
        self.snapshots: dict[str, list[tuple[str, int, Content]]] = {}
        self.origins: dict[str, Content] = {}
        self.writes = 0

    def try_(self, line: str) -> bool:
        code, _out, err = self.zfs.run(line)
        assert (code == 0) == (err == ""), (line, err)
        return code == 0

    @rule(name=VOLUME, size=st.integers(1, 64), sparse=st.booleans())
    def create(self, name: str, size: int, sparse: bool) -> None:
        done = self.try_(f"zfs create {'-s' if sparse else ''} -V {size}M {name}")
        assert not (done and name in self.volumes)
        if done:
            self.volumes[name] = (size, {})
            self.snapshots[name] = []

    @rule(name=VOLUME, start=st.integers(0, 63), length=st.integers(1, 64), seed=st.sampled_from("abc"))
    def write(self, name: str, start: int, length: int, seed: str) -> None:
        if name in self.volumes and start + length <= self.volumes[name][0]:
            code, _out, err = self.zfs.run(f"guest write {name} {start} {length} {seed}")
            end = start + length if code == 0 else int(err.split()[-2])
            self.writes += 1
            self.volumes[name][1].update(dict.fromkeys(range(start, end), (seed, self.writes)))

    @rule(name=VOLUME, start=st.integers(0, 63), length=st.integers(1, 64))
    def trim(self, name: str, start: int, length: int) -> None:
        if name in self.volumes and self.try_(f"guest trim {name} {start} {length}"):
            for index in range(start, start + length):
                self.volumes[name][1].pop(index, None)

    @rule(name=VOLUME, size=st.integers(1, 64), auto=st.booleans())
    def resize(self, name: str, size: int, auto: bool) -> None:
        if self.try_(f"zfs set volsize={size}M {'refreservation=auto' if auto else ''} {name}"):
            content = {index: block for index, block in self.volumes[name][1].items() if index < size}
            self.volumes[name] = (size, content)

    @rule(name=VOLUME, short=SHORT)
    def snapshot(self, name: str, short: str) -> None:
        if self.try_(f"zfs snapshot {name}@{short}"):
            size, content = self.volumes[name]
            self.snapshots[name].append((short, size, dict(content)))

    @rule(name=VOLUME, short=SHORT)
    def rollback(self, name: str, short: str) -> None:
        if self.try_(f"zfs rollback -r {name}@{short}"):
            chain = self.snapshots[name]
            while chain[-1][0] != short:
                chain.pop()
            self.volumes[name] = (chain[-1][1], dict(chain[-1][2]))

    @rule(name=VOLUME, short=SHORT)
    def destroy_snapshot(self, name: str, short: str) -> None:
        if self.try_(f"zfs destroy {name}@{short}"):
            self.snapshots[name] = [entry for entry in self.snapshots[name] if entry[0] != short]

    @rule(source=VOLUME, short=SHORT, onto=VOLUME)
    def clone(self, source: str, short: str, onto: str) -> None:
        if self.try_(f"zfs clone {source}@{short} {onto}"):
            _short, size, content = next(entry for entry in self.snapshots[source] if entry[0] == short)
            self.volumes[onto] = (size, dict(content))
            self.snapshots[onto] = []
            self.origins[onto] = dict(content)

    @rule(source=VOLUME, onto=VOLUME)
    def rename(self, source: str, onto: str) -> None:
        if source != onto and self.try_(f"zfs rename {source} {onto}"):
            self.volumes[onto] = self.volumes.pop(source)
            self.snapshots[onto] = self.snapshots.pop(source)
            self.origins.pop(onto, None)
            if source in self.origins:
                self.origins[onto] = self.origins.pop(source)

    @rule(name=VOLUME)
    def destroy(self, name: str) -> None:
        if self.try_(f"zfs destroy -r {name}"):
            del self.volumes[name], self.snapshots[name]
            self.origins.pop(name, None)

    @rule(value=st.integers(0, 500), reserved=st.integers(0, 500))
    def limits(self, value: int, reserved: int) -> None:
        quota = f"{value}M" if value else "none"
        self.try_(f"zfs set quota={quota} reservation={reserved}M zones/a")

    @invariant()
    def contents_agree(self) -> None:
        other = Zfs(size=mib(1024))
        for index, (name, (size, content)) in enumerate(self.volumes.items()):
            assert self.zfs.num(name, "volsize") == mib(size)
            other.ok(f"create -s -V {size}M zones/n{index}")
            for at, (seed, _write) in content.items():
                other.guest(f"write zones/n{index} {at} 1 {seed}")
            assert other.hash(f"zones/n{index}") == self.zfs.hash(name)
        expected = {f"{name}@{entry[0]}" for name, chain in self.snapshots.items() for entry in chain}
        assert set(self.zfs.names("snapshot")) == expected

    @invariant()
    def space_agrees(self) -> None:
        """Each dataset's own figures, within the few KiB of its metadata."""
        for name, (_size, content) in self.volumes.items():
            head, origin = set(content.items()), set(self.origins.get(name, {}).items())
            chain = [set(entry[2].items()) for entry in self.snapshots[name]]
            node = self.zfs.node.pools.dataset(name)
            near(node.referenced, head)
            near(node.head, head - origin)
            near(node.unique, head - (chain[-1] if chain else origin))
            near(node.snapused, set().union(*chain) - head - origin, len(chain))
            around = [origin, *chain, head]
            for index, snap in enumerate(node.snapshots):
                near(snap.referenced, chain[index])
                near(snap.used, chain[index] - around[index] - around[index + 2])

    @invariant()
    def running_sums_are_the_sums(self) -> None:
        pool = self.zfs.node.pools.pools["zones"]
        running = {name: (node.used, node.charge, figures(node)) for name, node in pool.datasets.items()}
        for node in pool.datasets.values():
            pool.recount(node)
        pool.rebuild()
        assert {name: (node.used, node.charge, figures(node)) for name, node in pool.datasets.items()} == running
        for node in pool.datasets.values():
            assert node.used == node.head + node.snapused + node.refreserved + node.charge
            assert node.unique <= node.referenced
            assert sum(snap.used for snap in node.snapshots) <= node.snapused
        assert pool.root.used <= pool.size - pool.slop + mib(1)

    @invariant()
    def saving_loses_nothing(self) -> None:
        storage = self.zfs.node.pools
        text = json.dumps(storage.to_json())
        again = Storage.from_json(Clock(storage.clock.now()), json.loads(text))
        assert json.dumps(again.to_json()) == text
        assert again.pools["zones"].root.used == storage.pools["zones"].root.used


def near(found: int, blocks: Any, copies: int = 1) -> None:
    """Each of the copies has metadata of its own."""
    assert abs(found - len(blocks) * BLOCK) < 100_000 * max(1, copies), (found / BLOCK, blocks)


def figures(node: Any) -> tuple[int, ...]:
    return (node.referenced, node.unique, node.head, node.snapused, *(snap.used for snap in node.snapshots))


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMachine = Machine.TestCase


def test_each_snapshot_holds_the_metadata_that_a_resize_replaced() -> None:
    machine = Machine()
    machine.create(name="zones/a/w", size=1, sparse=False)
    for short in ("s", "t"):
        machine.snapshot(name="zones/a/w", short=short)
        machine.resize(auto=False, name="zones/a/w", size=1)
    machine.space_agrees()
    machine.teardown()
