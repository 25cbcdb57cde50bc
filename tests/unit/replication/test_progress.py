# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress of transfers: what is told when, the limit, and which transfers are watched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.action import host_step
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import progress
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import SubprocessRunner
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    DiskTransfer,
    VmTransfer,
    transfer_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _watched
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import Watched, is_long

VM = "aaaaaaaa-0000-4000-8000-000000000204"
MIB = 1 << 20


class Clock:
    """Time passes only by pauses, and by what is added."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def pause(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


def meter(tmp_path, clock, log, limit=0):
    held = progress.HeldLock(str(tmp_path / "transfer-1.progress"), progress.Run(1, "hv01", "now", "a transfer"))
    made = progress.Progress(held, log.append, limit, clock, clock.pause)
    made.begin(100 * MIB)
    made.now("db01", "data", "sending")
    return made


def lines(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    runs = [progress.read(path.name, folder) for path in tmp_path.glob("*.progress")]
    os.close(folder)
    return [where.line for _run, where, _silent in runs]


def test_what_is_told(tmp_path, clock):
    """The file says how far it has come. The log gets a line at most every ten seconds."""
    log = []
    made = meter(tmp_path, clock, log)
    for _second in range(25):
        clock.now += 1
        made.add(2 * MIB)
    assert made.carried == 50 * MIB
    assert lines(tmp_path) == ["VM db01, disk data: sending, 50 MiB of 100 MiB (50 %), 2 MiB/s, 25 s left"]
    assert log == [
        "VM db01, disk data: sending, 20 MiB of 100 MiB (20 %), 2 MiB/s, 40 s left",
        "VM db01, disk data: sending, 40 MiB of 100 MiB (40 %), 2 MiB/s, 30 s left",
    ]
    made.add(60 * MIB)
    clock.now += 1
    made.add(0)
    assert lines(tmp_path) == ["VM db01, disk data: sending, 110 MiB, 4.2 MiB/s"]  # the total was an estimate
    made.end()
    assert lines(tmp_path) == []


def test_the_limit_holds(tmp_path, clock):
    made = meter(tmp_path, clock, [], limit=4 * MIB)
    for _piece in range(20):
        made.add(MIB)
    assert clock.now == 5.0


def test_bytes_are_carried_and_counted():
    """Also if the reader goes early; what both have said comes back."""
    counted = []
    write = [sys.executable, "-c", f"import sys; sys.stdout.write('x' * {3 * MIB}); sys.exit('written')"]
    count = [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"]
    sender, receiver = SubprocessRunner().carry(write, count, counted.append)
    assert (sender.rc, sender.stderr.strip()) == (1, "written")
    assert (receiver.rc, receiver.stderr.strip(), sum(counted)) == (0, str(3 * MIB), 3 * MIB)
    sender, receiver = SubprocessRunner().carry(write, ["false"], counted.append)
    assert receiver.rc == 1
    assert sender.rc != 0


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels size their pipes themselves")
def test_pipes_hold_a_mebibyte():
    get_size = "import fcntl, sys, time; time.sleep(0.5); print(fcntl.fcntl({}, 1032), file=sys.stderr)"
    writer, reader = ([sys.executable, "-c", get_size.format(end)] for end in (1, 0))
    sizes = [int(answer.stderr) for answer in SubprocessRunner().carry(writer, reader, print)]
    assert sizes == [MIB, MIB]


def test_both_end_if_the_module_is_killed(tmp_path):
    """The receiver sees the end of the stream, so that it keeps what has come."""
    script = (
        "from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.runner import *\n"
        "def carried(count):\n    os.kill(os.getpid(), 9)\n"
        f"SubprocessRunner().carry(['yes'], ['sh', '-c', 'cat >/dev/null; echo end >{tmp_path}/end'], carried)\n"
    )
    link = tmp_path / "ansible_collections" / "flexdisk" / "hypervisor"
    link.parent.mkdir(parents=True)
    link.symlink_to(Path(__file__).resolve().parents[3])
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", script], env=env, check=False, timeout=60).returncode == -9
    for _try in range(100):
        if (tmp_path / "end").exists():
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert (tmp_path / "end").read_text() == "end\n"


def transfers(sends):
    disk = DiskTransfer(VM, "data", f"zones/{VM}/disk1", "volume", MIB, MIB, sends=sends)
    return [transfer_as_result(VmTransfer(VM, "db01", "flexdisk-sync-00000001-1", 2, 1, "zones", "hv01", (disk,)))]


@pytest.mark.parametrize(
    ("sends", "limit", "watched"),
    [(255 * MIB, None, False), (256 * MIB, None, True), (30 * MIB, "2MiB", True), (29 * MIB, "2MiB", False)],
)
def test_which_transfers_are_watched(sends, limit, watched):
    assert is_long({"transfers": transfers(sends), "bandwidth_limit": limit}) is watched


@pytest.mark.parametrize(
    "given", [{}, {"transfers": 1}, {"transfers": [{}]}, {"transfers": transfers(1 << 40), "bandwidth_limit": "x"}]
)
def test_what_is_wrong_is_left_to_the_module(given):
    assert not is_long(given)


def step_action(run, step, arguments):
    """The action of host_step, for a task that does a step."""
    made = object.__new__(host_step.ActionModule)
    given = {"run": run, "step": step, "arguments": arguments}
    made._task = SimpleNamespace(args=given, async_val=0, check_mode=False, no_log=False)
    return made


@pytest.mark.parametrize(
    ("run", "step", "given", "watched"),
    [
        ("send", "send", {"transfers": transfers(1 << 40)}, True),
        ("send", "finish", {"transfers": transfers(1 << 40)}, False),
        ("move", "leave", {"transfer": transfers(1 << 40)[0]}, True),
        ("move", "leave", {"transfer": transfers(1)[0]}, False),
        ("move", "leave", {}, False),
        ("move", "arrive", {}, False),
    ],
)
def test_which_steps_are_watched(monkeypatch, run, step, given, watched):
    monkeypatch.setattr(ActionBase, "run", lambda *_any: {})
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **_more: {"watched": False})
    monkeypatch.setattr(Watched, "_watched", lambda *_any: {"watched": True})
    made = step_action(run, step, given)
    assert made.run() == {"watched": watched}


@pytest.mark.parametrize(
    ("run", "step", "given", "pauses"),
    [
        ("send", "send", {"transfers": transfers(1 << 40)}, [8, 60, 60]),
        ("move", "leave", {"transfer": transfers(1 << 40)[0]}, [1, 15, 15]),  # the VM is down meanwhile
    ],
)
def test_a_slow_host_is_asked_less_often(monkeypatch, run, step, given, pauses):
    """Each module takes 15 seconds here, of which the line of progress does not count."""
    now, slept, ends = [0.0], [], iter((False, False, True))

    def module(_self, name, given, _task_vars):
        now[0] += 15
        asked = name == "ansible.legacy.async_status" and given.get("mode") != "cleanup"
        return {"finished": asked and next(ends), "progress": []}

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(_watched.time, "sleep", sleep)
    monkeypatch.setattr(_watched.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Watched, "_module", module)
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **_more: {"ansible_job_id": "j1"})
    made = step_action(run, step, given)
    assert made._watched({})["finished"]
    assert slept == pauses


def test_a_host_that_was_started_again_is_not_watched_forever(monkeypatch):
    """Its job is unfinished, and stays so. What ran longer than the task is older."""
    now, up = [0.0], iter([9000, "none", 16, 2])

    def module(_self, name, _given, _task_vars):
        asked = name == "flexdisk.hypervisor.progress_info"
        reported = next(up) if asked else "none"
        return {"progress": [], **({} if reported == "none" else {"up": reported})}

    monkeypatch.setattr(_watched.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(_watched.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Watched, "_module", module)
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **_more: {"ansible_job_id": "j1"})
    made = step_action("send", "send", {"transfers": transfers(1 << 40)})
    assert made._watched({}) == {"failed": True, "msg": "the host was started again while the task (job j1) ran"}
    assert (now[0], list(up)) == (24, [2])


def test_a_host_that_is_away_for_a_minute_is_not_lost(monkeypatch):
    """Also if it refuses at once, and the looks are close otherwise."""
    slept = []
    monkeypatch.setattr(_watched.time, "sleep", slept.append)
    monkeypatch.setattr(Watched, "_module", lambda *_any: {"failed": True, "msg": "Connection refused"})
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **_more: {"ansible_job_id": "j1"})
    made = step_action("move", "leave", {"transfer": transfers(1 << 40)[0]})
    lost = made._watched({})
    assert (lost["failed"], lost["msg"].partition("; ")[2]) == (True, "it may still run there")
    assert slept == [1] + [8] * 9
