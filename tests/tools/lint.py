# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs every static check, two at a time, all of them even after a failure, and says which failed and what each cost.

Usage: lint.py [names of checks]
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import versions
from tree import BIN, BUILD, ROOT, copy_tree, dev_tree, environment, python_folders, run

PLUGINS = dev_tree() / "ansible_collections" / "flexdisk" / "hypervisor" / "plugins"
SIMULATED_NODE = ROOT / "extensions" / "simulated_node"
IALLOCATOR = ROOT / "extensions" / "iallocator"
GANETI = PLUGINS.parent / "extensions" / "iallocator"  # under the name that it is imported by
GUESTS = ROOT / "extensions" / "guests"
ARTIFACT = BUILD / "artifact"
AT_ONCE = 2


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


def agreement() -> int:
    """Show where two files say different versions."""
    found = versions.problems(ROOT)
    print("\n".join(found) or "all versions agree")
    return 1 if found else 0


def complaints(log: str) -> list[str]:
    """What the importer of the Galaxy server has found. It says this in its log, and then that all was successful."""
    return re.findall(r"^(?:WARNING|ERROR|Traceback).*", log, re.MULTILINE)


def artifact() -> int:
    """Build what would be published, and let the importer judge it."""
    shutil.rmtree(ARTIFACT, ignore_errors=True)
    code = run([BIN / "ansible-galaxy", "collection", "build", "--output-path", ARTIFACT], cwd=copy_tree())
    if code:
        return code
    (built,) = ARTIFACT.iterdir()
    print(f"{built.name} has {built.stat().st_size / 1024:.0f} KiB")
    env = environment(GALAXY_IMPORTER_CONFIG=str(ROOT / "tests" / "tools" / "galaxy_importer.cfg"))
    done = subprocess.run(
        [BIN / "python", "-m", "galaxy_importer.main", built],
        cwd=ARTIFACT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    print(done.stdout, end="")
    return done.returncode or len(complaints(done.stdout))


CHECKS: dict[str, Callable[[], int]] = {  # the longest first
    "ansible-lint": partial(run, [BIN / "ansible-lint", "--offline", "--profile", "production"]),
    "artifact": artifact,
    "site": partial(run, [BIN / "python", ROOT / "tests" / "tools" / "make_docs.py"]),
    "format": partial(run, [BIN / "ruff", "format", "--check", "."]),
    "ruff": partial(run, [BIN / "ruff", "check", "."]),
    "mypy": partial(run, [BIN / "mypy", PLUGINS, SIMULATED_NODE, GANETI, GUESTS, "tests"]),
    "old-pythons": old_pythons,
    "yamllint": partial(run, [BIN / "yamllint", "--strict", "."]),
    "workflow": partial(
        run, [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/ci.yml"]
    ),
    "docs": partial(
        run, [BIN / "antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs=self", "."]
    ),
    "versions": agreement,
    "changelog": partial(run, [BIN / "antsibull-changelog", "lint"]),
    "reuse": partial(run, [BIN / "reuse", "lint", "--lines"]),
}


def check(name: str) -> int:
    """Run one check here, and say what it cost."""
    start = time.monotonic()
    code = CHECKS[name]()
    print(f"{'FAILED' if code else 'ok'}: {name} ({time.monotonic() - start:.1f} s)\n", flush=True)
    return code


def apart(name: str) -> int:
    """Run one check in a process of its own, and show its output as a whole."""
    done = subprocess.run(
        [sys.executable, __file__, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, end="", flush=True)
    return done.returncode


def main() -> None:
    """Exit 1 if any check failed."""
    names = sys.argv[1:] or [*CHECKS]
    if len(names) == 1:
        sys.exit(min(check(names[0]), 1))
    with ThreadPoolExecutor(AT_ONCE) as workers:
        codes = list(workers.map(apart, names))
    failed = [name for name, code in zip(names, codes, strict=True) if code]
    sys.exit(f"lint failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
