# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the demo, the walks and the how-to of groups, and write what they print into the excerpts of the pages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import excerpts
import walk
from tree import ROOT

TYPED = [ROOT / "docs" / f"{name}.md" for name in ("metrics", "proxmox", "replicas", "restore", "status", "uninstall")]
DEMO = [sys.executable, str(ROOT / "tests" / "tools" / "demo.py")]


def main() -> None:
    """Renew the pages; `git diff` shows what has changed."""
    readme = ROOT / "README.md"
    shown = excerpts.runs(subprocess.run(DEMO, check=True, stdout=subprocess.PIPE, text=True).stdout)
    readme.write_text(excerpts.renewed(readme.read_text(), shown.__getitem__))
    for path in (walk.PAGE, walk.MOVES, *TYPED):
        renew(path)


def renew(path: Path) -> None:
    """Take a walk, and write down what it prints."""
    page = path.read_text()
    with tempfile.TemporaryDirectory() as home:
        printed = [step.printed for step in walk.walk(Path(home), page) if step.shown]
    path.write_text(excerpts.renewed(page, lambda _command: printed.pop(0)))


if __name__ == "__main__":
    main()
    page = walk.GROUPS.read_text()
    with tempfile.TemporaryDirectory() as home:
        printed = [step.printed for step in walk.groups(Path(home)) if step.shown]
    walk.GROUPS.write_text(excerpts.renewed(page, lambda _command: printed.pop(0)))
