# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scenarios of streams on two simulated nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simnode import Node, PoolSpec
from simnode.zfs import stream

from tests.streams.pair import POOL, Done, Host, Pair
from tests.streams.scenarios import SCENARIOS, run

ROOT = Path(__file__).resolve().parents[3]


class Simulated(Host):
    def __init__(self, seed: int) -> None:
        self.node = Node.create(None, [PoolSpec(name=POOL, version="2.1")], seed)

    def run(self, *argv: str) -> Done:
        return Done(*self.node.run(list(argv)))

    def run_with(self, stdin: str, *argv: str) -> Done:
        return Done(*self.node.run(list(argv), stdin))

    def write(self, volume: str, start: int, length: int, seed: str) -> None:
        assert self.run("guest", "write", volume, str(start), str(length), seed).rc == 0

    def digest(self, volume: str) -> str:
        return self.run("guest", "hash", volume).stdout


class SimulatedPair(Pair):
    def __init__(self) -> None:
        self.source: Simulated = Simulated(1)
        self.target: Simulated = Simulated(2)

    def pipe(self, send: list[str], receive: list[str], cut: int) -> Done:
        return _piped(self.source, self.target, send, receive, cut)

    def pipe_back(self, send: list[str], receive: list[str], cut: int) -> Done:
        return _piped(self.target, self.source, send, receive, cut)


def _piped(source: Simulated, target: Simulated, send: list[str], receive: list[str], cut: int) -> Done:
    sent = source.run("zfs", *send)
    if sent.rc:
        return sent
    text = stream.cut(sent.stdout, cut) if cut else sent.stdout
    return target.run_with(text, "zfs", *receive)


@pytest.mark.parametrize("name", SCENARIOS)
def test_streams(name):
    run(SimulatedPair(), name)


def test_the_page_has_every_scenario_and_test():
    page = (ROOT / "tests" / "streams" / "README.md").read_text(encoding="utf-8")
    said = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    suite = (ROOT / "tests" / "lab" / "suite" / "test_streams.py").read_text(encoding="utf-8")
    assert said == {*SCENARIOS, *re.findall(r"^def (test_\w+)", suite, re.MULTILINE)} - {"test_streams"}
