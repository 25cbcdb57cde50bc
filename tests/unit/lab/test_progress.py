# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab waits by work done, not by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import boot
import progress
import pytest
from progress import Patience, Usage

LAB = Path(__file__).resolve().parents[2] / "lab"
MINUTE = 60.0


class World:
    """A clock, and what those waited for use of the machine."""

    def __init__(self) -> None:
        self.now = self.used = self.delayed = 0.0

    def patience(self, seconds: float, work: float | None = None) -> Patience:
        return Patience(seconds, lambda: Usage(self.used, self.delayed), work, lambda: self.now)

    def pass_by(self, patience: Patience, seconds: float, share: float, delay: float = 0.0) -> str:
        """Time goes by, second by second, until the patience ends."""
        for _second in range(int(seconds)):
            self.now += 1
            self.used += share
            self.delayed += delay
            if why := patience.over():
                return why
        return ""


@pytest.fixture
def world() -> World:
    return World()


def test_who_does_nothing_is_waited_for_so_long(world: World) -> None:
    patience = world.patience(15 * MINUTE, 3600)
    assert world.pass_by(patience, 15 * MINUTE - 1, 0.01) == ""
    assert world.pass_by(patience, 1, 0.01) == "idle for 900 s"


def test_a_guest_that_waits_does_not_keep_it_going(world: World) -> None:
    assert "idle" in world.pass_by(world.patience(15 * MINUTE), 16 * MINUTE, 0.2)


def test_a_busy_machine_does_not_end_it(world: World) -> None:
    """Six hours at a twentieth of a processor, and the lab in want of two the whole time."""
    assert world.pass_by(world.patience(15 * MINUTE, 3600), 360 * MINUTE, 0.05, 1.9) == ""


def test_work_without_end_ends(world: World) -> None:
    patience = world.patience(15 * MINUTE, 3600)
    assert world.pass_by(patience, 3599, 1.0) == ""
    assert world.pass_by(patience, 1, 1.0) == "3600 s of processor time in 3600 s"


def test_the_same_work_may_take_longer_on_a_busy_machine(world: World) -> None:
    patience = world.patience(100)
    assert world.pass_by(patience, 1999, 0.1, 1.0) == ""
    assert "200 s of processor time" in world.pass_by(patience, 2, 0.1, 1.0)


def test_what_hangs_after_work_ends(world: World) -> None:
    patience = world.patience(100, 1000)
    assert world.pass_by(patience, 90, 2.0) == ""
    assert "idle" in world.pass_by(patience, 200, 0.0)


def test_a_sign_of_life_begins_it_anew(world: World) -> None:
    patience = world.patience(100, 150)
    for _line in range(20):
        assert world.pass_by(patience, 99, 0.0) == ""
        patience.restart()
    for _line in range(20):
        assert world.pass_by(patience, 149, 1.0) == ""
        patience.restart()
    assert "idle" in world.pass_by(patience, 100, 0.0)


def test_a_process_that_has_ended_takes_nothing_back(world: World) -> None:
    patience = world.patience(100)
    world.pass_by(patience, 50, 1.0)
    world.used = 0.0
    assert world.pass_by(patience, 49, 0.0) == ""
    assert world.pass_by(patience, 1, 0.0) == ""  # of these 100 s it has worked for 50
    assert "idle" in world.pass_by(patience, 100, 0.0)


def test_usage_counts_what_is_below() -> None:
    before = progress.usage_of((os.getpid(), None))
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after = progress.usage_of((os.getpid(), None))
    assert after.used - before.used >= 0.25
    assert after.delayed >= 0


def test_run_is_subprocess_run() -> None:
    done = progress.run(["sh", "-c", "sleep 1.5; cat; echo no >&2; exit 3"], 60, b"yes")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"yes", b"no\n")


def test_run_ends_what_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "IDLE", 10.0)
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        progress.run(["sleep", "600"], 0.1)
    assert time.monotonic() - began < 300


SUITE = """
import sys, time
import pytest
sys.path.insert(0, {lab!r})
from failures import Failures

@pytest.fixture
def broken():
    yield
    raise OSError("torn down badly")

def test_errs(broken):
    print("said before")

def test_hangs():
    time.sleep(600)
"""


def test_a_suite_that_hangs_is_ended_and_says_where(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is printed when it happens, what was running is named, and where in it."""
    monkeypatch.setattr("boot.pids", lambda: ())  # a lab that somebody works with is not idle
    (tmp_path / "test_it.py").write_text(SUITE.format(lab=str(LAB)), encoding="utf-8")
    configure = "def pytest_configure(config):\n    config.pluginmanager.register(Failures(config))\n"
    words = f"import sys\nsys.path.insert(0, {str(LAB)!r})\nfrom failures import Failures\n{configure}"
    (tmp_path / "conftest.py").write_text(words, encoding="utf-8")
    argv = [sys.executable, "-u", "-m", "pytest", "-v", "-p", "no:cacheprovider", str(tmp_path)]
    code, why = progress.watched(argv, tmp_path, dict(os.environ), 8, 600)
    said = capfd.readouterr().out
    assert code != 0
    assert why.startswith("idle for")
    assert "test_it.py::test_errs (teardown) failed:" in said
    assert "OSError: torn down badly" in said
    assert said.index("torn down badly") < said.index("test_hangs")
    assert f"lab: no progress: {why}; running:" in said
    assert "-m pytest -v" in said.partition("running:")[2]
    assert "in test_hangs" in said.partition("running:")[2]


def test_a_suite_that_ends_keeps_its_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert progress.watched(["sh", "-c", "echo done; exit 5"], tmp_path, dict(os.environ), 60, 60) == (5, "")
    assert capfd.readouterr().out == "done\n"


def test_who_waits_for_the_guest_does_not_count_the_work_of_the_labs(monkeypatch):
    running = {"lab01": 1, "lab02": 2, "guest": 3}
    monkeypatch.setattr(boot, "pid", lambda: running[boot.current()])
    assert boot.pids() == [1, 2, 3]
    with boot.machine(boot.GUEST):
        assert boot.pids() == [3]
