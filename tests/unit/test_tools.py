# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks that have nothing to check fail, and so does one whose tool only writes down what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from lint import complaints

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def test_a_folder_of_tests_that_is_missing_is_a_failure() -> None:
    command = [sys.executable, str(TOOLS / "run_pytest.py"), "tests/nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "tests/nothing: not there, so nothing was tested\n"


def test_what_the_importer_only_writes_into_its_log() -> None:
    log = (
        "Linting collection via ansible-lint 26.10.1...\n"
        "WARNING: roles/a/tasks/main.yml:3: name[casing]: All names should start with an uppercase letter.\n"
        "ERROR: Traceback (most recent call last):\n"
        "FileNotFoundError: [Errno 2] No such file or directory: '.gitignore'\n\n"
        "...ansible-lint run complete\n"
        "Importer processing completed successfully\n"
    )
    found = complaints(log)
    assert [line.split(":")[0] for line in found] == ["WARNING", "ERROR"]
    assert complaints("Linting collection...\n...ansible-lint run complete\nImporter processing completed\n") == []
