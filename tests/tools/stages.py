# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the stages of `make test` or `make verify`, all of them even after a failure, and says what each took.

Usage: stages.py test [changed] | verify   (changed: with the parts of verify whose files differ from the main branch)
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from parts import LONG, changed_files, parts
from tree import ROOT

MINUTES = {  # what a stage may take on two idle cores, once the environment is made; more is shown, and no failure
    "lint": 2.5,
    "sanity": 3.5,
    "unit": 8,
    "conformance": 0.5,
    "molecule": 0.5,
    "long": 20,
    "integration": 10,
    "lab-share": 20,
}
TARGETS = {
    "test": ("lint", "sanity", "unit", "conformance", "molecule"),
    "verify": ("long", "integration", "lab-share"),
}


def run(stage: str, extra: Sequence[str] = ()) -> tuple[int, float]:
    """Make a stage, with variables of make. Its exit code, and how many minutes it took."""
    print(f"\n===== {stage} {' '.join(extra)}", flush=True)
    began = time.monotonic()
    code = subprocess.run(["make", stage, *extra], cwd=ROOT, check=False).returncode
    return code, (time.monotonic() - began) / 60


def row(stage: str, code: int, minutes: float) -> str:
    """What the end says of a stage."""
    late = ", over its target" if minutes > MINUTES[stage] else ""
    return f"{stage:12} {'FAILED' if code else 'ok':6} {minutes:5.1f} min of {MINUTES[stage]:g}{late}"


def added(found: Sequence[str] | None) -> list[tuple[str, list[str]]]:
    """The stages of verify, with variables of make, that these changed files ask for. None: they are not known."""
    if found is None:
        print("no main branch to compare with: no part of make verify is added")
        return []
    wanted = parts(found)
    folders = sorted(set(wanted) & set(LONG))
    stages: list[tuple[str, list[str]]] = [(name, []) for name in TARGETS["verify"] if name in wanted]
    return [*([("long", [f"TESTS={' '.join(folders)}"])] if folders else []), *stages]


def main() -> None:
    """Exit with 1 if a stage failed."""
    target, *words = sys.argv[1:]
    chosen: list[tuple[str, list[str]]] = [(stage, []) for stage in TARGETS[target]]
    if "changed" in words:
        chosen += added(changed_files())
    rows, failed = [], False
    for stage, extra in chosen:
        code, minutes = run(stage, extra)
        failed = failed or code != 0
        rows.append(row(stage, code, minutes))
    print(f"\nmake {target}:", *rows, sep="\n  ", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    os.environ["MAKEFLAGS"] = "--no-print-directory"  # -k and such concern the outer make alone
    main()
