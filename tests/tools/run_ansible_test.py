# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs ansible-test on a copy of the collection.

Usage: run_ansible_test.py sanity|integration [arguments of ansible-test]
"""

from __future__ import annotations

import sys

from pip_bootstrap import bootstrap
from tree import BIN, copy_tree, require, run


def main() -> None:
    """Exit with ansible-test's exit code."""
    command, *arguments = sys.argv[1:]
    if command == "integration":
        require("tests/integration/targets")
    bootstrap()
    sys.exit(run([BIN / "ansible-test", command, "--local", "--color", "no", *arguments], cwd=copy_tree()))


if __name__ == "__main__":
    main()
