# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Puts one deliberate bug after the other into a copy of the project, and shows that the tests find it.

Usage: run.py [words of a mutation's name ...]    (without: all)

A bug that the stateful test does not find in its share of sequences is given to the tests of the engine. Exit 1 if a
bug survives, or if an invariant of the stateful test has found none. FLEXDISK_SEED (1) and FLEXDISK_SEQUENCES (200)
decide about the random tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tools")]

from tree import BIN, BUILD, project_files  # noqa: E402

from tests.mutations.mutations import MUTATIONS, STATEFUL, Mutation  # noqa: E402

WHERE = BUILD / "mutations"
LIMIT = 7200
ENGINE = "tests/unit/engine"
HOUSE = "plugins/module_utils/_flexdisk/"


def mutate(mutation: Mutation, root: Path) -> None:
    """Put the bug into the tree below root. Raises ValueError unless its text is there exactly once."""
    path = root / HOUSE / mutation.file
    text = path.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: its text is {text.count(mutation.old)} times in {mutation.file}")
    path.write_text(text.replace(mutation.old, mutation.new))


def copy(number: int) -> Path:
    """A fresh copy of the project."""
    root = WHERE / str(number)
    shutil.rmtree(root, ignore_errors=True)
    for name in project_files():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    return root


def killer(mutation: Mutation, root: Path) -> str:
    """What found the bug: an invariant or a test; "" if nothing did."""
    found = ""
    for tests in dict.fromkeys([mutation.tests, ENGINE]):
        found = found or failure(mutation, root, tests)
    return found


def failure(mutation: Mutation, root: Path, tests: str) -> str:
    """The first failure of these tests, "" if there is none."""
    argv = [BIN / "python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", root / tests]
    env = dict(os.environ, FLEXDISK_NO_SHRINK="1", PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        list(map(str, argv)), cwd=root, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    if done.returncode == 0:
        return ""
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise ValueError(f"{mutation.name}: the tests did not run\n{done.stdout}{done.stderr}")
    broken = re.search(r"Broken: ([A-Z]+):", done.stdout)
    return f"{broken[1]} ({failed[1]})" if broken else failed[1]


def judge(job: tuple[int, Mutation]) -> str:
    """The bug's killer, printed."""
    number, mutation = job
    start, root = time.monotonic(), copy(number)
    mutate(mutation, root)
    found = killer(mutation, root)
    shutil.rmtree(root)
    print(f"{mutation.name}: {found or 'SURVIVED'} ({time.monotonic() - start:.0f} s)", flush=True)
    return found


def sound() -> str:
    """What fails in a copy without a bug: it would be taken for what found every bug."""
    root = copy(len(MUTATIONS))
    failed = next(filter(None, (failure(MUTATIONS[0], root, tests) for tests in (STATEFUL, ENGINE))), "")
    shutil.rmtree(root)
    return failed


def table(mutations: list[Mutation], killers: list[str]) -> None:
    """Which bug was found by what."""
    width = max(len(mutation.name) for mutation in mutations)
    for mutation, found in zip(mutations, killers, strict=True):
        print(f"{mutation.name:{width}}  {found or 'SURVIVED'}")


def main() -> None:
    os.environ.setdefault("FLEXDISK_SEED", "1")
    os.environ.setdefault("FLEXDISK_SEQUENCES", "200")
    words = sys.argv[1:]
    if not words and (failed := sound()):
        sys.exit(f"{failed} fails without any bug")
    jobs = [(n, m) for n, m in enumerate(MUTATIONS) if not words or any(word in m.name for word in words)]
    start = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        killers = list(pool.map(judge, jobs))
    table([mutation for _number, mutation in jobs], killers)
    alive = [mutation.name for (_number, mutation), found in zip(jobs, killers, strict=True) if not found]
    print(f"{len(jobs)} mutations, {len(alive)} survived, {time.monotonic() - start:.0f} s")
    problems = [f"survived: {', '.join(alive)}"] if alive else []
    if not words:
        idle = set(
            re.findall(r'^    "([A-Z]+)": "', (ROOT / Path(STATEFUL).parent / "invariants.py").read_text(), re.M)
        )
        idle -= {found.partition(" ")[0] for found in killers}
        problems += [f"invariants that found nothing: {', '.join(sorted(idle))}"] if idle else []
    sys.exit("; ".join(problems) or 0)


if __name__ == "__main__":
    main()
