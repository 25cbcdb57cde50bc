# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes or refreshes .venv, only when its requirements have changed. Runs on any Python 3 with venv.

Usage: make_venv.py run|dev   (run: what the demo needs; dev: everything the checks need on top)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
VENV = ROOT / ".venv"
ZIPCACHE = ROOT / "tests" / "lab" / "zipcache.py"
LEVELS = ("run", "dev")  # each includes those before it


def fingerprint() -> str:
    """What the environment depends on: requirements, interpreter, and where it stands (scripts hold absolute paths)."""
    digest = hashlib.sha256(repr((sys.version, str(VENV))).encode())
    for path in [*sorted((ROOT / "requirements").glob("*.txt")), ZIPCACHE]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def add_zipcache() -> None:
    """Let every Python of .venv load it: the tests run modules as Ansible sends them, often."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}))
    shutil.copy(ZIPCACHE, packages / "flexdisk_zipcache.py")
    (packages / "flexdisk_zipcache.pth").write_text("import flexdisk_zipcache\n")


def main() -> None:
    """Bring .venv to the level named on the command line."""
    level = sys.argv[1]
    if VENV.is_symlink():
        sys.exit(f"{VENV} is a link: what it leads to would be emptied for this tree. Remove the link")
    want = fingerprint()
    stamps = [VENV / f"stamp-{name}" for name in LEVELS[LEVELS.index(level) :]]
    if any(stamp.is_file() and stamp.read_text() == want for stamp in stamps):
        return
    print(f"making {VENV.name} ({level})", flush=True)
    # An active environment makes sys.executable a link into it; the base interpreter outlives it.
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)
    requirements = str(ROOT / "requirements" / f"{level}.txt")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([*pip, "install", "--requirement", requirements], check=True, env=environment)
    if level == "dev":
        add_zipcache()
    stamps[0].write_text(want)


if __name__ == "__main__":
    main()
