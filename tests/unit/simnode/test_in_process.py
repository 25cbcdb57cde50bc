# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs of a node say the same in the process of their caller and in one of their own, and do the same."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from simnode import Node
from simnode.__main__ import PROGRAMS, install_programs
from simnode.node import PoolSpec
from simnode.vmadm.admin import COMMANDS

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from in_process import AS_PROCESSES, call, node_of

VM = "cccccccc-0000-4000-8000-000000000001"
DISK = f"zones/{VM}/disk0"
PAYLOAD = json.dumps(
    {"uuid": VM, "brand": "bhyve", "alias": "db01", "disks": [{"size": 64, "boot": True, "model": "virtio"}]}
)
WORDS = [
    ("zfs", "create", "zones/a"),
    ("zfs", "create", "zones/a"),  # fails
    ("zfs", "get", "-Hp", "all", "zones/a"),
    ("zpool", "list", "-Hp"),
    ("zdb", "-C", "zones"),
    ("vmadm", "create"),
    ("vmadm", "create"),  # fails
    ("vmadm", "lookup", "-j"),
    ("vmadm", "stop", VM),
    ("vmadm", "nosuch"),
    ("imgadm", "list", "-j"),
    ("sysinfo",),
    ("kstat", "-p"),
    ("guest", "write", DISK, "0", "9", "text"),
    ("guest", "hash", DISK),
]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The folder of a node."""
    made = tmp_path / "node"
    Node.create(made, [PoolSpec("zones", 64 << 30)]).save()
    install_programs(made)
    return made


def runner(node: Path, monkeypatch: pytest.MonkeyPatch) -> SubprocessRunner:
    monkeypatch.setenv("PATH", f"{node / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return SubprocessRunner()


def files(node: Path) -> list[tuple[str, str]]:
    return sorted((path.name, path.read_text()) for path in (*node.glob("*.json"), node / "clock"))


def test_both_say_and_do_the_same(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {words[0] for words in WORDS} == set(PROGRAMS) - set(AS_PROCESSES)
    run = runner(node, monkeypatch)
    kept, codes = node.with_name("kept"), []
    for words in WORDS:
        shutil.copytree(node, kept)
        stdin = PAYLOAD if words[:2] == ("vmadm", "create") else ""
        alone = run(words, stdin)
        left = files(node)
        for path in kept.glob("*.json"):
            shutil.copy2(path, node)
        shutil.copy2(kept / "clock", node)
        assert node_of(words[0], os.environ["PATH"]) == node
        assert call(run, words, stdin) == alone, words
        assert files(node) == left, words
        codes.append(alone.rc)
        shutil.rmtree(kept)
    assert run.calls == 2 * len(WORDS)
    assert codes.count(0) > len(codes) / 2
    assert len(codes) - codes.count(0) >= 3


@pytest.mark.parametrize("program", AS_PROCESSES)
def test_some_stay_processes(node: Path, program: str) -> None:
    assert node_of(program, str(node / "bin")) is None


def test_a_program_that_was_changed_is_a_process(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runner(node, monkeypatch)
    (node / "bin" / "zfs").write_text("#!/bin/sh\necho changed\n")
    assert call(run, ("zfs", "list")).stdout == "changed\n"


def test_a_guest_that_really_hangs_is_waited_for_in_a_process(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller kills it after its time."""
    run = runner(node, monkeypatch)
    assert call(run, ("vmadm", "create"), PAYLOAD).rc == 0
    assert node_of("vmadm", os.environ["PATH"]) == node
    with Node.open(node) as opened:
        COMMANDS["vm-stop-hangs"](opened, [VM, "really"])
    assert node_of("vmadm", os.environ["PATH"]) is None
