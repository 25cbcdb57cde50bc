# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node itself: its directory, programs, clock and events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simnode import Clock, Node, PoolSpec
from simnode.__main__ import main, pool_spec

from tests.unit.simnode.zfs_support import Zfs

LIBRARY = Path(__file__).resolve().parents[3] / "extensions" / "simulated_node"


def program(directory: Path, line: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a generated program by its name alone, with nothing else in the environment."""
    environment = {"PATH": f"{directory / 'bin'}:/usr/bin:/bin"}
    return subprocess.run(line.split(), env=environment, input=stdin, capture_output=True, text=True, check=False)


def test_programs_of_a_directory(tmp_path):
    assert main(["--dir", str(tmp_path), "init", "--pool", "zones:8G", "--pool", "tank:1T:raidz1x5:2.3"]) == 0
    assert program(tmp_path, "zfs create -V 64M zones/v").returncode == 0
    assert program(tmp_path, "guest write zones/v 0 10 1").returncode == 0
    listed = program(tmp_path, "zfs list -H -o name,volsize -r zones")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "zones\t-\nzones/v\t64M\n", "")
    refused = program(tmp_path, "zfs create zones/v")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "cannot create 'zones/v': dataset already exists\n"
    assert program(tmp_path, "zpool list -H -o name").stdout == "zones\ntank\n"
    assert "                ashift: 12\n" in program(tmp_path, "zdb -C tank").stdout
    with Node.open(tmp_path) as node:
        assert node.run(["guest", "hash", "zones/v"]) == (0, program_hash(), "")
        node.vmadm_state["seen"] = {"x": 1}
    with Node.open(tmp_path) as node:
        assert node.state == {"seen": {"x": 1}}


def program_hash() -> str:
    zfs = Zfs()
    zfs.ok("create -s -V 64M zones/v")
    zfs.guest("write zones/v 0 10 1")
    return zfs.hash("zones/v") + "\n"


def test_streams_between_programs(tmp_path):
    assert main(["--dir", str(tmp_path), "init"]) == 0
    program(tmp_path, "zfs create -V 64M zones/v")
    program(tmp_path, "zfs snapshot zones/v@s")
    stream = program(tmp_path, "zfs send zones/v@s").stdout
    assert program(tmp_path, "zfs recv zones/w", stream).returncode == 0
    assert program(tmp_path, "zfs recv zones/x", "rubbish").stderr == (
        "cannot receive: invalid stream (bad magic number)\n"
    )


def test_administration_as_a_module(tmp_path):
    command = [sys.executable, "-m", "simnode", "--dir", str(tmp_path / "node")]
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY)}
    for rest in (["init", "--seed", "7"], ["advance", "3600"], ["fault", "readonly", "true"]):
        subprocess.run(command + rest, env=environment, check=True)
    with Node.open(tmp_path / "node") as node:
        assert node.now() == Clock().now() + 3600
        assert node.run(["zfs", "create", "zones/a"])[2] == "cannot create 'zones/a': pool is read-only\n"
    subprocess.run([*command, "fault", "readonly", "false"], env=environment, check=True)
    with Node.open(tmp_path / "node") as node:
        assert node.run(["zfs", "create", "zones/a"])[0] == 0


def test_pools_are_described_in_one_word():
    spec = pool_spec("tank:1T:raidz2x6:2.1")
    assert (spec.name, spec.size, spec.version) == ("tank", 1 << 40, "2.1")
    assert spec.vdevs == [{"type": "raidz2", "disks": 6}]
    assert pool_spec("zones") == PoolSpec()


def test_an_exception_saves_nothing(tmp_path):
    Node.create(tmp_path, [PoolSpec()])
    node = Node.open(tmp_path)
    node.run(["zfs", "create", "zones/a"])
    with pytest.raises(KeyError), node:
        node.pools.pools.pop("nopool")
    with Node.open(tmp_path) as node:
        assert node.run(["zfs", "list", "-H", "-o", "name"])[1] == "zones\n"


def test_commands_one_after_another_lose_nothing(tmp_path):
    assert main(["--dir", str(tmp_path), "init"]) == 0
    children = [subprocess.Popen([str(tmp_path / "bin" / "zfs"), "create", f"zones/c{index}"]) for index in range(8)]
    assert [child.wait() for child in children] == [0] * 8
    with Node.open(tmp_path) as node:
        assert node.run(["zfs", "list", "-H", "-o", "name"])[1].count("\n") == 9


def test_reading_leaves_the_state_untouched(tmp_path):
    Node.create(tmp_path, [PoolSpec()])
    before = (tmp_path / "state.json").stat().st_mtime_ns
    with Node.open(tmp_path) as node:
        assert node.run(["zfs", "get", "-Hpr", "all", "zones"])[0] == 0
    assert (tmp_path / "state.json").stat().st_mtime_ns == before


def test_clock():
    node = Node.create(None, [PoolSpec()])
    start = node.now()
    node.run(["zfs", "create", "zones/a"])
    assert 0 < node.now() - start < 1
    node.sleep(60)
    assert node.now() - start > 60
    node.run(["zfs", "create", "zones/b"])
    created = [int(node.run(["zfs", "get", "-Hpo", "value", "creation", name])[1]) for name in ("zones/a", "zones/b")]
    assert created[1] - created[0] == 60
    with pytest.raises(ValueError, match="backwards"):
        node.clock.advance(-1)


def test_unknown_program():
    assert Node.create(None, [PoolSpec()]).run(["reboot"]) == (127, "", "reboot: not found\n")


def test_events_name_what_changed():
    zfs = Zfs()
    for line in (
        "create zones/a", "create -V 64M -o x:y=1 zones/a/v", "snapshot -r zones/a@s", "hold k zones/a@s",
        "clone zones/a/v@s zones/c", "set x:y=2 zones/c", "inherit x:y zones/c", "rename zones/c zones/d",
        "rename zones/a/v@s zones/a/v@t", "release k zones/a@s", "destroy zones/d", "rollback zones/a/v@t",
        "destroy -r zones/a",
    ):  # fmt: skip
        zfs.ok(line)
    zfs.bad("create zones")
    assert zfs.kinds() == [
        ("create", "zones/a"), ("create", "zones/a/v"), ("snapshot", "zones/a@s"), ("snapshot", "zones/a/v@s"),
        ("hold", "zones/a@s"), ("clone", "zones/c"), ("set", "zones/c"), ("inherit", "zones/c"),
        ("rename", "zones/c"), ("rename", "zones/a/v@s"), ("release", "zones/a@s"), ("destroy", "zones/d"),
        ("rollback", "zones/a/v"), ("destroy", "zones/a/v@t"), ("destroy", "zones/a/v"), ("destroy", "zones/a@s"),
        ("destroy", "zones/a"),
    ]  # fmt: skip


def test_events_after_a_cursor_and_their_bound():
    zfs = Zfs()
    zfs.ok("create zones/a")
    cursor = zfs.node.events(0)[-1][0]
    assert zfs.node.events(cursor) == []
    zfs.guest("write zones/a 0 1 1")
    assert zfs.node.events(cursor) == []
    for index in range(2100):
        zfs.node.pools.emit("set", f"zones/{index}")
    newest = zfs.node.events(cursor)
    assert (len(newest), newest[0][0], newest[-1]) == (2000, cursor + 101, (cursor + 2100, "set", "zones/2099"))
    assert zfs.node.events(newest[-3][0]) == newest[-2:]


def test_state_is_plain_json(tmp_path):
    node = Node.create(tmp_path, [PoolSpec()])
    node.run(["zfs", "create", "-V", "64M", "zones/v"])
    node.save()
    state = json.loads((tmp_path / "state.json").read_text())
    assert [row[0] for row in state["pools"][0]["datasets"]] == ["zones", "zones/v"]


def test_thousands_of_datasets_stay_fast(tmp_path):
    node = Node.create(tmp_path, [PoolSpec(size=1 << 50)])
    for index in range(1000):
        assert node.zfs(["create", f"zones/vm{index}"])[0] == 0
        for disk in range(4):
            assert node.zfs(["create", "-V", "10G", f"zones/vm{index}/disk{disk}"])[0] == 0
    node.save()
    started = os.times()
    with Node.open(tmp_path) as again:
        out = again.run(["zfs", "get", "-Hpr", "-o", "name,property,value,source", "all", "zones"])[1]
    ended = os.times()
    assert out.count("\n") > 200_000
    assert ended.user - started.user < 5
