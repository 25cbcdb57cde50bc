# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs pytest on one folder of tests, on all cores.

Usage: run_pytest.py FOLDER [arguments of pytest]
"""

from __future__ import annotations

import sys

from tree import BIN, require, run


def main() -> None:
    """Exit with pytest's exit code."""
    folder, *arguments = sys.argv[1:]
    shared = ["--numprocesses", "auto", "--dist", "worksteal", "--durations=20", "--durations-min=5"]
    sys.exit(run([BIN / "python", "-m", "pytest", *shared, *arguments, require(folder)]))


if __name__ == "__main__":
    main()
