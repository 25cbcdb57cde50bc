# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the random tests, of disks, of all modules, of groups and of moves, for a time.

Each round has a new seed. It ends with the first failure.

Usage: soak.py [MINUTES, default 30]    FLEXDISK_SEED is the first seed, FLEXDISK_SEQUENCES how many make a round (500).
Sequences of moves and failovers are long: FLEXDISK_JOURNEYS says how many of them make a round (20), FLEXDISK_ACTIONS
how many actions each has (300).
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

from tree import BIN, environment, require, run


def main() -> None:
    """Exit with the first failing round's exit code, 0 if there is none."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    deadline = time.monotonic() + minutes * 60
    seed = int(os.environ.get("FLEXDISK_SEED") or random.SystemRandom().randrange(1_000_000))
    tests = [require("tests/unit/stateful/test_stateful.py"), require("tests/unit/fleet/test_histories.py")]
    tests += [require("tests/unit/stateful/test_modules.py"), require("tests/unit/replication/test_random.py")]
    tests += [require("tests/unit/replication/test_random_three.py")]
    sequences = os.environ.get("FLEXDISK_SEQUENCES") or "500"
    journeys = {"FLEXDISK_JOURNEYS": os.environ.get("FLEXDISK_JOURNEYS") or "20"}
    journeys["FLEXDISK_ACTIONS"] = os.environ.get("FLEXDISK_ACTIONS") or "300"
    rounds = 0
    while time.monotonic() < deadline:
        command: list[str | Path] = [
            BIN / "python",
            "-m",
            "pytest",
            "--quiet",
            "--exitfirst",
            "--numprocesses",
            "auto",
            *tests,
        ]
        code = run(command, env=environment(FLEXDISK_SEED=str(seed + rounds), FLEXDISK_SEQUENCES=sequences, **journeys))
        if code:
            sys.exit(code)
        rounds += 1
    print(f"{rounds} rounds, first seed {seed}, nothing failed")


if __name__ == "__main__":
    main()
