# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on two copies at once: targets of integration keep out of each other's way, and no failure is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUN = "import run_ansible_test, sys; sys.exit(run_ansible_test.{command}())"
TARGETS = ("one", "two", "three", "four")

# What ansible-test does in its user's home: it makes a key there if there is none, slowly, and trips over one that
# another process has made meanwhile.
STAND_IN = """#!/bin/sh
[ -e "$HOME/key" ] && exit 0
sleep 0.5
set -C
echo "$PWD" > "$HOME/key"
"""


def run(tmp_path: Path, command: str, stand_in: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a small tree, with something that stands in for ansible-test."""
    shutil.copytree(ROOT / "tests/tools", tmp_path / "tests/tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in TARGETS:
        (tmp_path / "tests/integration/targets" / name).mkdir(parents=True)
    program = tmp_path / ".venv/bin/ansible-test"
    program.parent.mkdir(parents=True)
    program.write_text(stand_in)
    program.chmod(0o755)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "home").mkdir()
    places = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path / "tests/tools")}
    words = [sys.executable, "-c", RUN.format(command=command)]
    return subprocess.run(words, env={**os.environ, **places}, capture_output=True, text=True, check=False)


def test_each_target_says_what_it_alone_proves() -> None:
    page = (ROOT / "tests/integration/README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (lab)? ?\|$", page, re.MULTILINE)
    folder = ROOT / "tests/integration/targets"
    assert [name for name, _what, _lab in rows] == sorted(path.name for path in folder.iterdir())
    lab = (ROOT / "tests/integration/lab.yml").read_text()
    there = {name for name, _what, _lab in rows if re.search(rf"targets/{name}\b", lab)}
    assert {name for name, _what, in_lab in rows if in_lab} == there - {"setup_node", "four_steps"}


def test_first_runs_on_both_copies_do_not_meet_in_one_home(tmp_path: Path) -> None:
    done = run(tmp_path, "integration", STAND_IN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"ok: integration {name}" in done.stdout for name in TARGETS] == [True] * len(TARGETS)


@pytest.mark.parametrize("fails", ["--test", "--skip-test", "neither"])
def test_a_half_of_sanity_that_fails_is_a_failure(tmp_path: Path, fails: str) -> None:
    done = run(tmp_path, "sanity", f'#!/bin/sh\ncase "$*" in *" {fails} import"*) exit 1 ;; esac\n')
    assert done.returncode == (fails != "neither"), done.stdout + done.stderr
    verdicts = {part: "FAILED" if part == fails else "ok" for part in ("--test", "--skip-test")}
    assert [f"{said}: sanity {part} import (" in done.stdout for part, said in verdicts.items()] == [True, True]
