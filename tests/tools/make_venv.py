# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes or refreshes .venv, only when its requirements have changed. Runs on any Python 3 with venv.

Usage: make_venv.py run|dev CORE   (run: what the demo needs; dev: all that the checks need on top; CORE: as 2.19)
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
CORES = {  # each ansible-core, and the Pythons on which it runs
    "2.19": ("3.11", "3.12", "3.13"),
    "2.20": ("3.12", "3.13", "3.14"),
    "2.21": ("3.12", "3.13", "3.14"),
}


def fingerprint(core: str) -> str:
    """What the environment depends on: requirements, interpreter, and where it stands (scripts hold absolute paths)."""
    digest = hashlib.sha256(repr((sys.version, str(VENV), core)).encode())
    for path in [*sorted((ROOT / "requirements").glob("*.txt")), ZIPCACHE]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def add_zipcache() -> None:
    """Let every Python of .venv load it: the tests run modules as Ansible sends them, often."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(VENV), "platbase": str(VENV)}))
    shutil.copy(ZIPCACHE, packages / "flexdisk_zipcache.py")
    (packages / "flexdisk_zipcache.pth").write_text("import flexdisk_zipcache\n")


def refusal(core: str, python: str) -> str:
    """Why there is no environment with this ansible-core on this Python, "" if there is."""
    if core not in CORES:
        return f"CORE is {core}, and has to be one of {', '.join(CORES)}"
    if python not in CORES[core]:
        pythons = ", ".join(CORES[core])
        return f"ansible-core {core} runs on Python {pythons}; this is {python}. Choose with PYTHON= and CORE="
    return ""


def main() -> None:
    """Bring .venv to the level and ansible-core named on the command line."""
    level, core = sys.argv[1:]
    why_not = refusal(core, "%d.%d" % sys.version_info[:2])
    if why_not:
        sys.exit(why_not)
    if VENV.is_symlink():
        sys.exit(f"{VENV} is a link: what it leads to would be emptied for this tree. Remove the link")
    want = fingerprint(core)
    stamps = [VENV / f"stamp-{name}" for name in LEVELS[LEVELS.index(level) :]]
    if any(stamp.is_file() and stamp.read_text() == want for stamp in stamps):
        return
    print(f"making {VENV.name} ({level}, ansible-core {core})", flush=True)
    # An active environment makes sys.executable a link into it; the base interpreter outlives it.
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True)
    wanted = [word for name in (level, f"core-{core}") for word in ("-r", str(ROOT / "requirements" / f"{name}.txt"))]
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    environment = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([*pip, "install", *wanted], check=True, env=environment)
    if level == "dev":
        add_zipcache()
    stamps[0].write_text(want)


if __name__ == "__main__":
    main()
