# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a run is: what is told at each step, what readers make of the dead and of garbage, and that nothing fails."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock, progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.progress import Position
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import module_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import whole_files
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from ..conftest import VM, Simulated, running

MIB, GIB = 1 << 20, 1 << 30
TESTS = Path(__file__).resolve().parents[3]
TASK = "vm_disks of web01"
ROOT = {"name": "root"}
MANY = {
    "vm": "web01",
    "flexible_disk_size": 40960,
    "disks": [ROOT, {"name": "a", "size": 1024, "dangerous_allow_shrink": True}, {"name": "b", "size": 64}],
}
GROWN = {"vm": "web01", "disks": [ROOT, {"name": "a", "size": 4096}, {"name": "b", "size": 64}]}


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    made = tmp_path / "locks"
    monkeypatch.setattr(lock, "place", lambda: str(made))
    return made


class Clock:
    """Time passes only by pauses, and by what is added."""

    def __init__(self):
        self.now = 1000.0
        self.pauses = []

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def told(log, pool=None, task=TASK):
    """The lock and the progress of a run, as a module has them."""
    return module_run.locked(SubprocessRunner(), pool, {"lock_timeout": 0}, task, log)


def seen(pool=None):
    return [(one["state"], one["line"]) for one in lock.under_way(pool)]


# -- words


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (Position("web01", "data", "~ data 1 GiB -> 2 GiB", 7, 31), "at step 7 of 31, VM web01: ~ data 1 GiB -> 2 GiB"),
        (Position("web01", "data", "identity", 1, 2), "at step 1 of 2, VM web01, disk data: identity"),
        (
            Position("web01", "data", "~ data thick -> file", 7, 31, 2 * GIB, 5 * GIB, 100 * MIB),
            "at step 7 of 31, VM web01: ~ data thick -> file, 2 GiB of 5 GiB (40 %), 100 MiB/s, 30 s left",
        ),
        (Position("", "data", "+ data", 1, 1, 5 * GIB, 0, MIB), "at step 1 of 1: + data, 5 GiB, 1 MiB/s"),
        (Position("", "", "read again", 3, 3), "at step 3 of 3: read again"),
        (Position("web01", "", "stop"), "VM web01: stop"),
        (Position(), ""),
    ],
)
def test_in_words(where, line):
    assert where.line == line


# -- each step of a plan


def watched(sim, seen_at):
    """The node, which notes at each command where the run is."""
    run = sim.runner

    def runner(argv, stdin="", timeout=300):
        seen_at.extend(one["line"] for one in lock.under_way(None))
        return run(argv, stdin, timeout)

    sim.runner = runner


def test_four_steps_tell_each_step_and_leave_nothing(sim, directory):
    """Check mode and a run without a change tell nothing. The file and the log have each step before it begins."""
    sim.adopted(2048)
    at, log = [], []
    watched(sim, at)
    assert sim.converge(GROWN, check=True).changed
    assert not directory.exists()
    with told(log.append):
        done = sim.converge(GROWN)
    assert done.failure is None
    steps = [step["text"] for step in done.vms[0]["steps"]]
    assert len(steps) >= 2
    assert len(log) == len(set(log))
    assert list(dict.fromkeys(at))[:-1] == log
    for text in steps:
        assert [line for line in log if line.endswith(f", VM web01: {text}")], (text, log)
    total = log[0].split()[4].rstrip(",")
    assert [line.split(",")[0] for line in log] == [f"at step {n} of {total}" for n in range(1, len(log) + 1)]
    assert at[-1] == f"at step {total} of {total}: read again"
    assert seen() == []
    assert sorted(path.name for path in directory.iterdir()) == ["host.lock"]
    before = list(at)
    for check in (True, False):
        with told(log.append):
            assert not sim.converge(GROWN, check=check).changed
    assert at == before


def test_it_costs_no_process(sim):
    """The same commands as without anybody who is told."""
    other = Simulated()
    for one in (sim, other):
        one.adopted(2048)
        one.calls.clear()
    with told(lambda _line: None):
        sim.converge(GROWN)
    other.converge(GROWN)
    assert [call[:2] for call in sim.calls] == [call[:2] for call in other.calls]


def test_a_failure_takes_it_away(sim, directory):
    sim.adopted(2048)
    sim.fault = lambda argv: "cannot do that" if argv[:2] == ["zfs", "create"] else None
    with told(lambda _line: None):
        assert sim.converge(GROWN).failure is not None
        assert seen() == [("running", seen()[0][1])]
    assert [path.name for path in directory.iterdir()] == ["host.lock"]


def test_a_copy_is_told(tmp_path, monkeypatch, directory):
    """At most once a second."""
    clock, log, writes = Clock(), [], []
    written = progress._write
    monkeypatch.setattr(progress, "_write", lambda *arguments: (writes.append(clock.now), written(*arguments)))
    with lock.exclusive(SubprocessRunner(), None, 0, TASK) as held:
        made = progress.Progress(held, log.append, 0, clock, clock.pause)
        made.add_steps(2)
        made.step("web01", "data", "~ data thick -> file")
        made.begin(100 * MIB)
        for piece in range(101):
            clock.now += 0.1
            made.reach(piece * MIB)
        (one,) = lock.under_way(None)
        assert (one["done_bytes"], one["total_bytes"], one["rate_bytes"]) == (99 * MIB, 100 * MIB, 99 * MIB // 10)
        assert one["line"].endswith("99 MiB of 100 MiB (99 %), 9.8 MiB/s, 0 s left")
        assert len(writes) == 11
        assert len(log) == 2
        made.step("web01", "", "start")
        assert lock.under_way(None)[0]["done_bytes"] == 0


def test_so_many_files_a_second_and_no_more(directory):
    """A hundred steps of no time at all take two seconds. Each is told before it begins, for it may be a long one."""
    clock = Clock()
    with lock.exclusive(SubprocessRunner(), None, 0, TASK) as held:
        made = progress.Progress(held, None, 0, clock, clock.pause)
        made.add_steps(100)
        for number in range(1, 101):
            made.step("web01", "", f"step {number}")
            assert lock.under_way(None)[0]["text"] == f"step {number}"
    assert clock.now == pytest.approx(1000 + 99 * 0.02)


# -- who reads it


HOLDER = """
import os, sys
sys.path.insert(0, sys.argv[1])
import conftest
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock, progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
lock.place = lambda: sys.argv[2]
runner = SubprocessRunner()
with lock.exclusive(runner, sys.argv[3] or None, 60, "vm_disks of web01") as held:
    with progress.reporting(held, lambda line: None) as told:
        told.add_steps(2)
        told.step("web01", "data", "~ data thick -> file")
        told.begin(100 << 20)
        told.reach(40 << 20)
        told.now("web01", "data", "~ data thick -> file")
        print("held", flush=True)
        if sys.argv[4:]:
            runner(sys.argv[4:])
        sys.stdin.read()
"""


@pytest.fixture
def holder(directory):
    started = []

    def start(pool="", *argv):
        command = [sys.executable, "-c", HOLDER, str(TESTS), str(directory), pool, *argv]
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


def refused(pool=None):
    with pytest.raises(FlexdiskError) as caught, told(print, pool):
        pass
    return caught.value.message


AT = "at step 1 of 2, VM web01: ~ data thick -> file, 40 MiB of 100 MiB (40 %)"


@pytest.mark.parametrize(("theirs", "ours"), [("", None), ("", "zones"), ("zones", "zones"), ("zones", None)])
def test_the_second_task_is_told_where_the_first_is(holder, directory, theirs, ours):
    first = holder(theirs)
    message = refused(ours)
    assert f"vm_disks of web01 (pid {first.pid} on " in message
    assert f"Z), {AT}, " in message
    assert "no news" not in message
    assert message.endswith("; waited 0 s (lock_timeout)")
    assert lock.busy(ours)[0] in message
    (one,) = lock.under_way(ours)
    assert (one["state"], one["pid"], one["task"], one["silent"]) == ("running", first.pid, TASK, 0)
    (path,) = directory.glob("*.progress")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.utime(path, (time.time() - 63, time.time() - 63))
    assert f", no news for {lock.under_way(ours)[0]['silent']} s; waited" in refused(ours)
    assert 63 <= lock.under_way(ours)[0]["silent"] < 90
    os.utime(path, (time.time() + 1000, time.time() + 1000))  # the clock was set back
    assert lock.under_way(ours)[0]["silent"] == 0
    first.stdin.close()
    first.wait()
    assert seen() == []
    assert list(directory.glob("*.progress*")) == []


def test_another_pool_is_no_matter(holder):
    holder("zones")
    assert seen("tank") == []
    assert [state for state, _line in seen("zones")] == [state for state, _line in seen()] == ["running"]


def test_the_lock_of_another_pool_is_left_alone(holder, monkeypatch):
    """Who looks holds it for a moment, in which a task that does not wait could come."""
    holder("zones")
    looked, look = [], lock._if_held
    monkeypatch.setattr(lock, "_if_held", lambda directory, name: (looked.append(name), look(directory, name))[1])
    assert (seen("tank"), looked) == ([], [])
    assert (len(seen("zones")), looked) == (1, ["pool-zones.lock"])


def test_the_dead_are_known_until_the_next_takes_the_lock(holder, directory):
    first = holder()
    first.kill()
    first.wait()
    ((state, line),) = seen()
    assert (state, line.startswith(AT)) == ("dead", True)
    with told(print):
        assert seen() == []
        assert lock.busy(None) == [f"the host is being changed by {lock.busy(None)[0].partition(' by ')[2]}"]
        assert AT not in lock.busy(None)[0]


def test_what_cannot_be_taken_away_is_not_believed(holder, directory, monkeypatch):
    """Neither while the next holds the lock, nor for a task of one pool, which shares the lock of all."""
    first = holder()
    first.kill()
    first.wait()

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr(progress.os, "unlink", refuse)
    for pool in (None, "zones"):
        with told(print, pool):
            assert [state for state, _line in seen()] == ["dead"]
            assert AT not in "".join(lock.busy(None))


def test_a_program_that_outlives_its_module(holder, tmp_path):
    first = holder("", "sh", "-c", f'echo $$ > "{tmp_path}/pid"; exec sleep 60')
    deadline = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.kill()
    first.wait()
    assert [state for state, _line in seen()] == ["outlived"]
    assert "which is gone, but a program that it started still runs, at step 1 of 2" in refused()
    os.kill(int((tmp_path / "pid").read_text()), 9)
    deadline = time.monotonic() + 30
    while [state for state, _line in seen()] != ["dead"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Killed(BaseException):
    """The run was killed."""


def test_killed_at_every_step_it_is_told_apart_as_dead(directory, monkeypatch):
    """The same task goes on as ever, and takes what was left away."""
    for at in range(1, 99):
        sim = running()
        step = progress.Progress.step

        def killed(self, *arguments, at=at, step=step):
            step(self, *arguments)
            if self._current.at_step == at:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(progress.Progress, "step", killed)
            patch.setattr(progress.Progress, "end", lambda self: None)
            try:
                with told(print):
                    assert sim.converge(MANY, allow_restart=True).failure is None
                break
            except Killed:
                pass
        ((state, line),) = seen()
        assert (state, line.split(" of ")[0]) == ("dead", f"at step {at}")
        with told(print):
            assert sim.converge(MANY, allow_restart=True).failure is None
        assert not sim.converge(MANY).changed
        assert sim.get()["state"] == "running"
        assert seen() == []
    assert at == 6


def test_two_tasks_at_once(holder):
    holder("zones")
    holder("tank")
    assert [(one["lock"], one["state"]) for one in lock.under_way(None)] == [
        ("pool-tank", "running"),
        ("pool-zones", "running"),
    ]
    assert refused().count(AT) == 2


# -- nothing fails


def full(*_what, **_more):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["open", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
def test_what_cannot_be_written_fails_nothing(sim, directory, monkeypatch, call, code):
    """And nothing old is there for news, once the host does not take the new."""
    sim.adopted(2048)
    old = getattr(os, call)

    def fails(path, *arguments, **more):
        if ".progress" in str(path) and step:
            raise OSError(code, os.strerror(code))
        return old(path, *arguments, **more)

    step = []
    with told(lambda _line: None):
        progress.current().now("web01", "", "first")
        assert seen() == [("running", "VM web01: first")]
        step.append(True)
        monkeypatch.setattr(os, call, fails)
        assert sim.converge(GROWN).failure is None
        monkeypatch.setattr(os, call, old)
        assert seen() == []


def test_a_full_disk_fails_nothing(sim, directory, monkeypatch):
    sim.adopted(2048)
    monkeypatch.setattr(whole_files, "replace", full)
    with told(lambda _line: None):
        assert sim.converge(GROWN).failure is None
        assert seen() == []


def test_a_directory_that_vanishes_fails_nothing(sim, directory, tmp_path):
    sim.adopted(2048)
    with told(lambda _line: None):
        directory.rename(tmp_path / "elsewhere")
        assert sim.converge(GROWN).failure is None
        assert (seen(), lock.busy(None)) == ([], [])


def test_what_lies_in_its_place_fails_nothing(sim, directory):
    """A directory, a link and a pipe. What a link leads to is left alone."""
    sim.adopted(2048)
    target = directory.with_name("precious")
    target.write_text("data")
    for number, make in enumerate((Path.mkdir, lambda path: path.symlink_to(target), os.mkfifo)):
        for name in ("host.progress", "host.progress.new"):
            with told(lambda _line: None):
                make(directory / name)
                assert sim.converge({**GROWN, "flexible_disk_size": 20000 + number * 10 + len(name)}).failure is None
            for path in directory.glob("host.progress*"):
                path.rmdir() if path.is_dir() else path.unlink()
    assert target.read_text() == "data"


def test_a_log_that_fails_fails_nothing(sim):
    sim.adopted(2048)

    def log(line):
        raise RuntimeError(line)

    with told(log):
        assert sim.converge(GROWN).failure is None


def garbage():
    good = {**progress.Run(os.getpid(), "hv01", "now", TASK)._asdict(), **Position()._asdict()}
    yield from (b"", b"\0" * 9, b"{", b"[]", b"7", b"[" * 60000, b"\xff\xfe", b"9" * 5000, b"x" * 70000, b"null")
    for key in good:
        yield json.dumps({k: v for k, v in good.items() if k != key}).encode()
        for wrong in (None, True, -1, 1.5, 1 << 70, [], {"a": 1}):
            yield json.dumps({**good, key: wrong}).encode()
    yield json.dumps({**good, "rate_bytes": float("inf")}).encode()


def test_garbage_is_no_news(directory):
    with told(print):
        for data in garbage():
            (directory / "host.progress").write_bytes(data)
            assert seen() == [], data
            assert "being changed by vm_disks of web01 (pid" in lock.busy(None)[0]


def test_names_are_only_text(directory):
    """What a terminal or a log would take for a command comes in none of them, whoever has written it."""
    log, evil = [], "a\x1b[2J\n\0\ud800b"
    with told(log.append):
        progress.current().step(evil, evil, "~" * 9000)
        assert seen() == [("running", log[0])]
        file = directory / "host.progress"
        assert len(log[0]) < 1200
        file.write_text(json.dumps({**json.loads(file.read_text()), "text": evil}))
        line = seen()[0][1]
        assert "a?[2J???b" in line
    assert all(letter.isprintable() for letter in log[0] + line)


@pytest.mark.parametrize("text", ["[" * 4000, '{"pid": "x", "host": 1, "since": 1, "task": 1}', '{"pid": 1}'])
def test_a_lock_file_of_garbage(directory, text):
    with told(print):
        progress.current().now("web01", "", "stop")
        (directory / "host.lock").write_text(text)
        assert lock.busy(None) == ["the host is being changed by a task that has not identified itself yet"]
        assert seen() == []


def test_a_lock_that_cannot_be_named_is_held(sim, directory, monkeypatch):
    """The disk is full: the task goes on, and nobody is told that it is dead."""
    sim.adopted(2048)
    monkeypatch.setattr(os, "pwrite", full)
    with told(lambda _line: None):
        assert refused().startswith("the host is being changed by a task that has not identified itself yet; waited")
        progress.current().now("web01", "", "stop")
        assert seen() == []
        assert sim.converge(GROWN).failure is None


def test_those_who_look_do_not_disturb_a_transfer(directory, monkeypatch):
    """They hold its lock for a moment, in which a transfer may begin."""
    with lock.transfers(SubprocessRunner(), [VM], "a sync"):
        pass
    held = os.open(directory / f"transfer-{VM}.lock", os.O_RDONLY)
    assert lock._try_lock(held, lock.fcntl.LOCK_SH)
    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=lambda _s: os.close(held), time=time.time))
    with lock.transfers(SubprocessRunner(), [VM], "a sync") as one, progress.reporting(one, print) as made:
        made.now("db01", "data", "sending")
        assert [(o["lock"], o["state"]) for o in lock.under_way("tank")] == [(f"transfer-{VM}", "running")]
