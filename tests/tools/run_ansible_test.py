# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs ansible-test on a copy of the collection; all of it on two copies at once, integration targets each on a node.

Usage: run_ansible_test.py sanity|integration [arguments of ansible-test]
"""

from __future__ import annotations

import queue
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pip_bootstrap import bootstrap
from tree import BIN, BUILD, ROOT, copy_tree, environment, require, run

TARGETS = "tests/integration/targets"
COPIES = (BUILD, BUILD / "second")
PARTS_OF_SANITY = (("--test", "import"), ("--skip-test", "import"))  # of about the same length


def ansible_test(*arguments: str) -> list[str | Path]:
    command, *rest = arguments
    return [BIN / "ansible-test", command, "--local", "--color", "no", *rest]


def targets() -> list[str]:
    """All that are run for themselves, those with most text first."""
    found = []
    for folder in sorted((ROOT / TARGETS).iterdir()):
        aliases = folder / "aliases"
        if not folder.name.startswith("setup_") and "hidden" not in (aliases.read_text() if aliases.exists() else ""):
            size = sum(path.stat().st_size for path in folder.rglob("*.yml"))
            found.append((-size, folder.name))
    return [name for _size, name in sorted(found)]


def own_environment(copy: Path) -> dict[str, str]:
    """With a home of the copy's own: two ansible-tests that begin together both make a key there, and one trips."""
    home = copy.parents[2] / "home"
    home.mkdir(exist_ok=True)
    return environment(HOME=str(home))


def apart(copy: Path, env: dict[str, str], *arguments: str) -> int:
    """Run ansible-test and show its output as a whole; its exit code."""
    began = time.monotonic()
    done = subprocess.run(
        ansible_test(*arguments), cwd=copy, env=env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    verdict = "FAILED" if done.returncode else "ok"
    print(f"{done.stdout}\n{verdict}: {' '.join(arguments)} ({time.monotonic() - began:.0f} s)", flush=True)
    return done.returncode


def work(copy: Path, env: dict[str, str], waiting: queue.SimpleQueue[str]) -> list[str]:
    """Run target after target until none is left; the names of those that failed."""
    failed: list[str] = []
    while True:
        try:
            name = waiting.get_nowait()
        except queue.Empty:
            return failed
        if apart(copy, env, "integration", name):
            failed.append(name)


def integration() -> int:
    """All targets; 1 if any failed."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in targets():
        waiting.put(name)
    copies = [copy_tree(where) for where in COPIES]
    environments = [own_environment(copy) for copy in copies]
    with ThreadPoolExecutor(len(copies)) as workers:
        lists = list(workers.map(work, copies, environments, [waiting] * len(copies)))
    failed = [name for names in lists for name in names]
    print(f"integration: {'failed: ' + ', '.join(failed) if failed else 'all targets passed'}")
    return 1 if failed else 0


def sanity() -> int:
    """All tests; 1 if any failed."""
    copies = [copy_tree(where) for where in COPIES]
    with ThreadPoolExecutor(len(copies)) as workers:
        runs = [
            workers.submit(apart, copy, environment(), "sanity", *part)
            for copy, part in zip(copies, PARTS_OF_SANITY, strict=True)
        ]
    return 1 if any(run.result() for run in runs) else 0


def main() -> None:
    """Exit with ansible-test's exit code."""
    command, *arguments = sys.argv[1:]
    if command == "integration":
        require(TARGETS)
    bootstrap()
    if command == "integration" and not arguments:
        sys.exit(integration())
    if command == "sanity" and not arguments:
        sys.exit(sanity())
    sys.exit(run(ansible_test(command, *arguments), cwd=copy_tree()))


if __name__ == "__main__":
    main()
