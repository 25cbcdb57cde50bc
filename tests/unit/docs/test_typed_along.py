# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pages with a part to type along, on two simulated hosts: each command, and what it prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HINT = "tests/tools/renew_excerpts.py writes it into the page"
PAGES = ("metrics", "status")


def typed(monkeypatch, page, home):
    """Type a page along in this home folder, and check what it shows."""
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import excerpts
    import renew_excerpts
    import walk
    from tree import in_forks

    path = ROOT / "docs" / f"{page}.md"
    assert path in renew_excerpts.TYPED
    for step in walk.walk(home, path.read_text(), more=in_forks()):
        assert step.status == 0, step
        if step.shown:
            assert excerpts.same(step.shown, step.printed), (HINT, step)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_goes_as_it_is_written(monkeypatch, page, tmp_path):
    typed(monkeypatch, page, tmp_path)
    promtool = shutil.which("promtool")
    for path in tmp_path.glob("metrics/hv0?/flexdisk.prom"):
        assert "flexdisk_host_info" in path.read_text()
        if promtool is not None:
            told = subprocess.run(
                [promtool, "check", "metrics"], input=path.read_text(), capture_output=True, text=True, check=False
            )
            assert (told.returncode, told.stdout + told.stderr) == (0, "")
