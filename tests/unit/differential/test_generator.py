# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sequences: the same for the same seed, mostly of commands that succeed, with errors of every kind; close calls."""

from __future__ import annotations

import ast
import fcntl
import inspect
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from differential import executor, model
from differential.compare import replayable
from differential.generator import LENGTH, foretell, generate, kind_of, replay
from differential.model import MIB, POOL
from differential.profile import GENERAL
from differential.streams import PROFILE

USABLE = 1792 * MIB


@pytest.fixture(scope="module")
def scripts() -> list[model.Script]:
    return [generate(seed, USABLE) for seed in range(20, 27)]


def test_same_seed_same_sequence(scripts):
    again = generate(scripts[0].seed, USABLE)
    assert replayable(again.steps) == replayable(scripts[0].steps)
    assert again.contents == scripts[0].contents
    assert replayable(scripts[1].steps) != replayable(scripts[0].steps)


def test_sequences_are_long_and_mostly_succeed(scripts):
    steps = [step for script in scripts for step in script.steps]
    assert all(len(script.steps) >= LENGTH or script.steps[-1].last for script in scripts)
    assert sum(step.foretold.rc == 0 for step in steps) >= 0.6 * len(steps)
    assert sum(step.close for step in steps) <= 0.05 * len(steps)


def test_every_kind_of_command_and_error_is_there(scripts):
    steps = [step for script in scripts for step in script.steps]
    assert GENERAL.makers.keys() - {step.command.kind for step in steps} == set()
    said = " ".join(step.foretold.stderr for step in steps)
    assert [text for text in GENERAL.phrases if text not in said] == []


def test_streams_of_all_kinds_are_made():
    steps = [step for seed in range(60) for step in generate(seed, USABLE, profile=PROFILE).steps]
    assert PROFILE.makers.keys() - {step.command.kind for step in steps} == set()
    said = " ".join(step.foretold.stderr for step in steps)
    assert [text for text in PROFILE.phrases if text not in said] == []
    received = [step for step in steps if step.command.kind in ("increment stream", "rest stream")]
    assert sum(not step.foretold.rc for step in received) > len(steps) // 30


def test_what_is_foretold_is_what_the_simulator_does(scripts):
    node = model.new_node(USABLE)
    for step in scripts[0].steps:
        assert model.run(node, step.command.argv) == step.foretold
    assert model.contents_of(node) == scripts[0].contents


def test_replay_foretells_the_same(scripts):
    lines = [shlex.split(line) for line in replayable(scripts[2].steps).splitlines()]
    assert replay(lines, USABLE).steps == scripts[2].steps


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("zfs create -o quota=1G p/a", "create filesystem"),
        ("zfs create -b 8192 -V 64M p/a", "create volume"),
        ("zfs create -s -V 64M p/a", "create sparse volume"),
        ("zfs set volsize=64M p/a", "set volsize"),
        ("zfs set volsize=64M refreservation=auto p/a", "set several"),
        ("zfs set a:b=c p/a", "set user property"),
        ("zfs rename p/a p/b", "rename dataset"),
        ("zfs rename -r p/a@b p/a@c", "rename snapshot"),
        ("zfs destroy p/a", "destroy"),
        ("zfs destroy p/a@b", "destroy snapshot"),
        ("zfs destroy -r p/a@b", "destroy -r"),
        ("zfs snapshot -r p/a@b", "snapshot -r"),
        ("zfs snapshot p/a@b", "snapshot"),
        ("zfs rollback -r p/a@b", "rollback"),
        ("guest write p/a 0 1 s", "guest write"),
        ("guest trim p/a 0 1", "guest discard"),
    ],
)
def test_kinds(line, kind):
    assert kind_of(line.split()) == kind


# -- close calls -------------------------------------------------------------------------------------------------------


@pytest.fixture
def node():
    """A file system of 200 MiB with a thick volume of 100 MiB (106954752 bytes reserved)."""
    node = model.new_node(USABLE)
    for line in (f"zfs create -o quota=200M {POOL}/a", f"zfs create -V 100M {POOL}/a/disk0"):
        assert node.run(line.split())[0] == 0
    return node


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"zfs create -o refreservation=60M -s -V 60M {POOL}/a/disk1", False),
        (f"zfs create -o refreservation=95M -s -V 95M {POOL}/a/disk1", True),
        (f"zfs create -o refreservation=96M -s -V 96M {POOL}/a/disk1", True),
        (f"zfs create -o refreservation=140M -s -V 140M {POOL}/a/disk1", False),
        (f"zfs set quota={106 * MIB} {POOL}/a", True),
        (f"zfs set quota={104 * MIB} {POOL}/a", True),
        (f"zfs set quota={96 * MIB} {POOL}/a", False),
        (f"zfs set quota={120 * MIB} {POOL}/a", False),
        (f"zfs set reservation={200 * MIB} {POOL}/a", False),
        (f"zfs set refreservation=40M quota={(142 + 1) * MIB} {POOL}/a", True),
        (f"zfs set refreservation=40M quota=160M {POOL}/a", False),
        (f"zfs set test:a=b {POOL}/a", False),
    ],
)
def test_close_calls(node, line, expected):
    assert foretell(node, line.split()).close is expected


@pytest.mark.parametrize(("reservation", "expected"), [("900M", True), ("20M", False)])
def test_whether_a_clone_whose_properties_failed_stays_is_open(node, reservation, expected):
    node.run(["zfs", "snapshot", f"{POOL}/a/disk0@s"])
    step = foretell(node, ["zfs", "clone", "-o", f"refreservation={reservation}", f"{POOL}/a/disk0@s", f"{POOL}/a/c"])
    assert (step.foretold.rc != 0, step.close) == (expected, expected)


def test_a_write_without_room_ends_a_sequence(node):
    for line in (f"zfs set quota=120M {POOL}/a", f"zfs create -s -V 64M {POOL}/a/thin"):
        assert node.run(line.split())[0] == 0
    step = foretell(node, ["guest", "write", f"{POOL}/a/thin", "0", "64", "x"])
    assert (step.foretold.rc, step.last, step.close) == (1, True, False)


# -- contents and executor ---------------------------------------------------------------------------------------------


def test_contents_are_digests_of_every_mib_with_data(node):
    assert model.contents_of(node) == {f"{POOL}/a/disk0": {}}
    node.run(["guest", "write", f"{POOL}/a/disk0", "3", "2", "seed"])
    node.run(["guest", "trim", f"{POOL}/a/disk0", "3", "1"])
    block = model.pattern("seed", 4) * (MIB // model.PATTERN_BYTES)
    digest = executor.hashlib.sha256(block).hexdigest()[:16]
    assert model.contents_of(node) == {f"{POOL}/a/disk0": {4: digest}}


def test_executor_writes_the_same_pattern(tmp_path):
    path = tmp_path / "device"
    path.write_bytes(b"")
    executor.write(os.open(path, os.O_WRONLY), 2, 1, "seed")
    assert path.read_bytes() == bytes(2 * MIB) + model.pattern("seed", 2) * (MIB // model.PATTERN_BYTES)


def test_executor_needs_nothing_but_the_standard_library():
    tree = ast.parse(inspect.getsource(executor))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names <= sys.stdlib_module_names


def test_executor_runs_commands_in_a_fresh_pool(tmp_path, monkeypatch):
    """With programs that only note how they are called."""
    log = tmp_path / "log"
    for program in ("zfs", "zpool", "udevadm"):
        path = tmp_path / program
        path.write_text(f'#!/bin/sh\necho {program} "$@" >> {log}\n[ "$1" != list ] || exit 1\necho 7\n')
        path.chmod(0o755)
    monkeypatch.setitem(executor.ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(executor, "FOLDER", str(tmp_path))
    assert executor.fresh_pool("p", 64, str(tmp_path / "key")) == 7
    assert (tmp_path / "p.img").stat().st_size == 64 * MIB
    run = executor.Executor("p", ["zfs", "get", "all"])
    assert run.run(["zfs", "create", "p/a"]) == [0, "", "7\n"]
    assert run.run(["zfs", "destroy", "p/a"]) == [0, "", "7\n"]
    assert log.read_text().splitlines()[-6:] == [
        "zfs get all", "udevadm settle", "zfs destroy p/a", "zpool sync p", "zpool wait -t free p", "zfs get all",
    ]  # fmt: skip
    absent = [1, "guest: cannot write 'p/a': No such file or directory\n", "7\n"]
    assert run.run(["guest", "write", "p/a", "0", "1", "seed"]) == absent


def test_executor_looks_into_devices_and_runs_commands_alone(tmp_path, monkeypatch):
    held = []

    def note(*argv):
        with open(tmp_path / "devices.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held.append(False)
            except BlockingIOError:
                held.append(True)
        return subprocess.CompletedProcess(argv, 0, "", "")

    monkeypatch.setattr(executor, "FOLDER", str(tmp_path))
    monkeypatch.setattr(executor, "call", note)
    monkeypatch.setattr(executor, "find", lambda dataset: note(dataset) and os.devnull)
    executor.Executor("p", ["zfs", "get", "all"]).run(["zfs", "set", "test:a=b", "p/a"])
    os.close(executor.device("p/a", os.O_RDONLY))
    assert held == [True, False, True]


def test_command_line_says_what_it_can_do():
    path = Path(executor.__file__).with_name("run.py")
    done = subprocess.run([sys.executable, str(path), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "--replay" in done.stdout
