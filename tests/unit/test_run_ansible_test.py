# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two copies on which `make integration` runs its targets keep out of each other's way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUN = "import run_ansible_test, sys; sys.exit(run_ansible_test.integration())"
TARGETS = ("one", "two", "three", "four")

# What ansible-test does in its user's home: it makes a key there if there is none, slowly, and trips over one that
# another process has made meanwhile.
STAND_IN = """#!/bin/sh
[ -e "$HOME/key" ] && exit 0
sleep 0.5
set -C
echo "$PWD" > "$HOME/key"
"""


def test_first_runs_on_both_copies_do_not_meet_in_one_home(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/tools", tmp_path / "tests/tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in TARGETS:
        (tmp_path / "tests/integration/targets" / name).mkdir(parents=True)
    stand_in = tmp_path / ".venv/bin/ansible-test"
    stand_in.parent.mkdir(parents=True)
    stand_in.write_text(STAND_IN)
    stand_in.chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "home").mkdir()
    places = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path / "tests/tools")}
    done = subprocess.run(
        [sys.executable, "-c", RUN], env={**os.environ, **places}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"ok: integration {name}" in done.stdout for name in TARGETS] == [True] * len(TARGETS)
