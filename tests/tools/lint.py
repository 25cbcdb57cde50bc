# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs every static check, all of them even after a failure, and says which failed and what each cost.

Usage: lint.py [names of checks]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from tree import BIN, BUILD, ROOT, copy_tree, dev_tree, environment, python_folders, run

PLUGINS = dev_tree() / "ansible_collections" / "flexdisk" / "hypervisor" / "plugins"
SIMULATED_NODE = ROOT / "extensions" / "simulated_node"
IALLOCATOR = ROOT / "extensions" / "iallocator"
GUESTS = ROOT / "extensions" / "guests"


def old_pythons() -> int:
    """The simulated node promises Python 3.9 and the programs beside it 3.8, which no tool here checks (ansible-test
    checks plugins): import the one and start the others.
    """
    code = 0
    for version, folder in python_folders().items():
        for program in (IALLOCATOR / "flexdisk_iallocator.py", GUESTS / "flexdisk_user_data.py"):
            code |= run([folder / f"python{version}", "-B", program, "--help"])
        if version != "3.8":
            env = environment(PYTHONPATH=str(SIMULATED_NODE), PYTHONDONTWRITEBYTECODE="1")
            code |= run([folder / f"python{version}", ROOT / "tests" / "tools" / "import_all.py", "simnode"], env=env)
    return code


def artifact() -> int:
    """Build what would be published, and let the importer of the Galaxy server judge it."""
    code = run([BIN / "ansible-galaxy", "collection", "build", "--force", "--output-path", BUILD], cwd=copy_tree())
    built = sorted(BUILD.glob("flexdisk-hypervisor-*.tar.gz"))
    env = environment(GALAXY_IMPORTER_CONFIG=str(ROOT / "tests" / "tools" / "galaxy_importer.cfg"))
    return code or run(
        [BIN / "python", "-m", "galaxy_importer.main", built[-1]], cwd=BUILD, env=env
    )  # it writes into cwd


CHECKS: dict[str, Callable[[], int]] = {
    "format": partial(run, [BIN / "ruff", "format", "--check", "."]),
    "ruff": partial(run, [BIN / "ruff", "check", "."]),
    "mypy": partial(run, [BIN / "mypy", PLUGINS, SIMULATED_NODE, IALLOCATOR, GUESTS, "tests"]),
    "old-pythons": old_pythons,
    "yamllint": partial(run, [BIN / "yamllint", "--strict", "."]),
    "ansible-lint": partial(run, [BIN / "ansible-lint", "--offline", "--profile", "production"]),
    "docs": partial(
        run, [BIN / "antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=self", "."]
    ),
    "site": partial(run, [BIN / "python", ROOT / "tests" / "tools" / "make_docs.py"]),
    "changelog": partial(run, [BIN / "antsibull-changelog", "lint"]),
    "reuse": partial(run, [BIN / "reuse", "lint", "--lines"]),
    "artifact": artifact,
}


def main() -> None:
    """Exit 1 if any check failed."""
    failed = []
    for name in sys.argv[1:] or CHECKS:
        start = time.monotonic()
        code = CHECKS[name]()
        print(f"{'FAILED' if code else 'ok'}: {name} ({time.monotonic() - start:.1f} s)\n", flush=True)
        if code:
            failed.append(name)
    sys.exit(f"lint failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
