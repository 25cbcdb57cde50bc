# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make bench` starts where nothing but its environment has been made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("plugins", "extensions", "tests/bench", "tests/tools")


def test_it_measures_in_a_tree_without_the_link_to_the_collection(tmp_path: Path) -> None:
    for folder in NEEDED:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, str(tmp_path / "tests/bench/bench.py"), "--sizes", "2", "--compare", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"^ +2 +8 +[1-4] ", done.stdout, re.MULTILINE), done.stdout + done.stderr
