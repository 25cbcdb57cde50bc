# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make bench` starts where nothing but its environment has been made, and misses what grows too fast."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("plugins", "extensions", "tests/bench", "tests/tools")


def test_it_measures_in_a_tree_without_the_link_to_the_collection(tmp_path: Path) -> None:
    for folder in NEEDED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, str(tmp_path / "tests/bench/bench.py"), "--sizes", "2", "--compare", "0", "--hosts", "0"]
    command += ["--placement", "0", "--controller", "0", "--replicas", "0", "--proxmox", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"^ +2 +8 +[1-4] ", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert re.search(r"^Proxmox VE, 2 VMs with 4 disks: [1-3] processes", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize(
    ("measured", "missed"),
    [
        ([(10, 0.5, 40.0)], []),
        ([(10, 0.5, 40.0), (100, 2.0, 60.0), (1000, 20.0, 260.0)], []),
        ([(10, 0.5, 40.0), (100, 5.0, 60.0), (1000, 60.0, 260.0)], []),  # slower by a fifth: noise
        ([(10, 0.5, 40.0), (100, 2.0, 60.0), (1000, 200.0, 260.0)], ["growth of time from 100 to 1000 VMs"]),
        ([(10, 0.5, 40.0), (100, 2.0, 60.0), (1000, 20.0, 6000.0)], ["growth of memory from 100 to 1000 VMs"]),
        (
            [(1000, 20.0, 260.0), (10, 0.1, 1.0)],
            ["growth of time from 10 to 1000 VMs", "growth of memory from 10 to 1000 VMs"],
        ),
    ],
)
def test_what_grows_faster_than_the_vms_is_missed(
    measured: list[tuple[int, float, float]], missed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))  # undone with what the script adds by itself
    assert import_module("tests.bench.bench").growth(measured) == missed


def test_a_step_of_a_group_takes_one_call_for_each_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    group = import_module("tests.bench.group")
    monkeypatch.setattr(group, "WORK", tmp_path / "work")
    assert group.calls(1) == []
