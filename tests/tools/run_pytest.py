# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs pytest on folders of tests, on all cores.

Usage: run_pytest.py [-m MARKS] FOLDER ...
"""

from __future__ import annotations

import argparse
import sys

from tree import BIN, require, run


def main() -> None:
    """Exit with pytest's exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="marks", default="")
    parser.add_argument("folders", nargs="+")
    given = parser.parse_args()
    shared = ["--numprocesses", "auto", "--dist", "worksteal", "--durations=20", "--durations-min=5"]
    folders = [require(folder) for folder in given.folders]
    sys.exit(run([BIN / "python", "-m", "pytest", *shared, "-m", given.marks, *folders]))


if __name__ == "__main__":
    main()
