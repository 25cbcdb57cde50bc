# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locks, with real processes: who waits for whom, what a time-out says, who is in nobody's way."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from simnode.__main__ import install_programs

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock, runner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

TESTS = Path(__file__).resolve().parents[3]
VM = "aaaaaaaa-0000-4000-8000-000000000001"
HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
import conftest
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
runner = SubprocessRunner()
with lock.exclusive(runner, sys.argv[2] or None, 60, "vm_disks of web01"):
    print("held", flush=True)
    if sys.argv[3:]:
        runner(sys.argv[3:])
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """That of a simulated node's programs."""
    made = tmp_path / "bin" / lock.NODE_FOLDER
    made.parent.mkdir()
    made.mkdir(0o700)
    program(made.with_name("zfs"), "exit 0")
    monkeypatch.setenv("PATH", f"{made.parent}:{os.environ['PATH']}")
    return made


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def holder():
    """Starts processes that hold a lock until their input ends."""
    started = []

    def start(pool="", *argv):
        command = [sys.executable, "-c", HOLDER, str(TESTS), pool, *argv]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            stream.close()


def take(pool=None, timeout=0.0):
    with lock.exclusive(SubprocessRunner(), pool, timeout, "zfs_quota of all VMs"):
        pass


def refused(pool=None, timeout=0.0):
    with pytest.raises(FlexdiskError) as caught:
        take(pool, timeout)
    assert caught.value.code == "Locked"
    return caught.value.message


@pytest.mark.parametrize(("theirs", "ours"), [("", None), ("", "zones"), ("zones", "zones"), ("zones", None)])
def test_the_second_waits_and_is_told_for_whom(holder, theirs, ours):
    first = holder(theirs)
    began = time.monotonic()
    message = refused(ours, 0.5)
    assert 0.5 <= time.monotonic() - began < 10
    host = os.uname().nodename
    assert "vm_disks of web01 (pid %d on %s since 2" % (first.pid, host) in message
    assert "lock_timeout" in message
    assert lock.busy(ours) == ["the host is being changed by " + message.split(" by ")[1].split(";")[0]]
    first.stdin.close()
    first.wait()
    take(ours)
    assert lock.busy(ours) == []


def test_pools_are_no_matter_of_each_other(holder):
    holder("zones")
    take("tank")
    assert lock.busy("tank") == []


def test_it_gets_its_turn_as_soon_as_the_first_ends(holder):
    first = holder()
    timer = threading.Timer(0.5, first.stdin.close)
    timer.start()
    take(timeout=30)
    timer.join()


def test_the_dead_hold_nothing(holder):
    first = holder()
    first.kill()
    first.wait()
    take()


@pytest.mark.parametrize("argv", [["sleep", "60"], ["zfs", "set"]])
def test_a_program_that_outlives_its_module_holds_the_lock(holder, tmp_path, directory, argv):
    program(directory.with_name("zfs"), f'echo $$ > "{tmp_path / "pid"}"\nexec sleep 60')
    directory.with_name("sleep").symlink_to("/bin/sleep")
    if argv[0] == "sleep":
        argv = ["sh", "-c", f'echo $$ > "{tmp_path / "pid"}"; exec sleep 60']
    first = holder("", *argv)
    child = wait_for(tmp_path / "pid")
    first.kill()
    first.wait()
    message = refused()
    assert f"pid {first.pid} " in message
    assert "a program that it started still runs" in message
    os.kill(child, 9)
    take(timeout=10)


def test_a_read_that_outlives_its_module_holds_nothing(holder, tmp_path, directory):
    program(directory.with_name("zfs"), f'echo $$ > "{tmp_path / "pid"}"\nexec sleep 60')
    first = holder("", "zfs", "get", "all")
    child = wait_for(tmp_path / "pid")
    first.kill()
    first.wait()
    take()
    os.kill(child, 9)


def wait_for(path):
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return int(path.read_text())


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("zfs get -Hp all", False), ("zpool status zones", False), ("zdb -C zones", False),
        ("vmadm lookup -j", False), ("vmadm get U", False), ("imgadm get I", False), ("zfs create -nP -V 1 x", False),
        ("sysinfo", False), ("kstat -p a:0:b:c", False),
        ("zfs set a=b x", True), ("zfs create -V 1 x", True), ("zfs inherit a x", True), ("vmadm update U", True),
        ("vmadm start U", True), ("zpool scrub zones", True), ("something else", True),
    ],
)  # fmt: skip
def test_what_changes_something(argv, expected):
    assert changes(argv.split()) is expected


# -- the place


def test_it_is_made_for_its_owner_alone(monkeypatch, tmp_path):
    directory = tmp_path / "fresh"
    monkeypatch.setattr(lock, "place", lambda: str(directory))
    take("zones")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert sorted(p.name for p in directory.iterdir()) == ["host.lock", "pool-zones.lock"]
    assert {p.stat().st_mode & 0o777 for p in directory.iterdir()} == {0o600}


def fails():
    with pytest.raises(FlexdiskError) as caught:
        take()
    assert caught.value.code == "NotPermitted"
    assert lock.busy(None) == []


def test_a_directory_that_others_can_write_is_refused(directory):
    directory.chmod(0o770)
    fails()


def test_a_link_is_refused(directory):
    directory.rename(directory.with_name("real"))
    directory.symlink_to("real")
    fails()


def test_a_file_is_refused(directory):
    directory.rmdir()
    directory.write_text("")
    fails()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(directory):
    os.chown(directory, 12345, -1)
    fails()


def test_a_lock_file_that_is_a_link_is_refused(directory):
    target = directory.with_name("precious")
    target.write_text("data")
    (directory / "host.lock").symlink_to(target)
    fails()
    assert target.read_text() == "data"


def test_a_task_within_a_transfer(directory):
    """What changes something during the transfer still holds its lock, and waits for no other task."""
    del directory
    runner = SubprocessRunner()
    with lock.transfers(runner, [VM], "the move to hv02"):
        (of_transfer,) = runner.inherited
        with lock.exclusive(runner, None, 0, "vm_move"):
            assert runner.inherited[0] == of_transfer
            assert len(runner.inherited) == 2
            refused()
        take()
        assert runner.inherited == (of_transfer,)
        again = lock.transfers(SubprocessRunner(), [VM], "a sync")
        with pytest.raises(FlexdiskError, match="being replicated by the move to hv02"), again:
            pass
    assert runner.inherited == ()


def test_simulated_nodes_are_no_matter_of_each_other(monkeypatch, tmp_path, holder, directory):
    """Nor of the host, without a variable that anybody must know."""
    holder()
    refused()
    for name in ("one", "two"):
        install_programs(tmp_path / name)
        monkeypatch.setenv("PATH", f"{tmp_path / name / 'bin'}:{os.environ['PATH']}")
        assert lock.place() == str(tmp_path / name / "bin" / lock.NODE_FOLDER)
        take()
    assert lock.place() != str(directory)


def test_a_relative_path_of_zfs_is_made_absolute(monkeypatch, tmp_path, directory):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    assert lock.place() == str(directory)


@pytest.mark.parametrize("pool", ["../x", "a/b", "-r", "", "x\0y", "a\nb"])
def test_a_pool_is_no_path(pool, directory):
    with pytest.raises(FlexdiskError) as caught:
        take(pool)
    assert caught.value.code == "InvalidArgument"
    assert not list(directory.iterdir())


def test_a_folder_beside_the_zfs_of_the_system_does_not_count(monkeypatch, directory):
    """Another way to the same zfs would not see it, and two tasks could change one pool."""
    monkeypatch.setattr(runner, "SYSTEM_PATH", f"/sbin:{directory.parent}")
    assert lock.place() != str(directory)


@pytest.mark.parametrize("zfs", [True, False])
def test_where_it_is_on_a_host(monkeypatch, tmp_path, directory, zfs):
    directory.rmdir()
    if not zfs:
        directory.with_name("zfs").unlink()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert lock.place() == "/var/run/flexdisk"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=f"/home/{uid}"))
    places = set()
    for variables in ({}, {"XDG_RUNTIME_DIR": str(tmp_path)}, {"TMPDIR": "/var/tmp"}, {"HOME": "/root"}):
        for name in ("XDG_RUNTIME_DIR", "TMPDIR", "HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        places.add(lock.place())
    assert places == {f"/home/1000/.flexdisk-locks-{os.uname().nodename}"}, "ssh and cron of one user differ in these"


def test_a_user_without_a_home_has_no_place(monkeypatch, tmp_path, directory):
    directory.rmdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    fails()
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(tmp_path / "nowhere")))
    fails()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', "\0" * 9000, json.dumps({"pid": 10**30})])
def test_what_a_lock_file_says_is_only_data(text, holder, directory):
    holder()
    (directory / "host.lock").write_text(text)
    assert "being changed by" in refused()
