# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the collection and the simulated node importable from a plain checkout, for every test below this folder, and
says which seed random tests had.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COLLECTION = "ansible_collections.flexdisk.hypervisor"


def register_collection(root: Path = ROOT) -> None:
    """Let `import ansible_collections.flexdisk.hypervisor...` find `root`, unless it is already found somewhere.

    Under ansible-test the collection lies in a proper ansible_collections tree and nothing is done.
    """
    try:
        if importlib.util.find_spec(COLLECTION) is not None:
            return
    except ModuleNotFoundError:
        pass
    parts = COLLECTION.split(".")
    for depth, path in enumerate(([], [], [str(root)]), start=1):
        name = ".".join(parts[:depth])
        if name not in sys.modules:
            module = types.ModuleType(name)
            module.__path__ = path
            sys.modules[name] = module


register_collection()
sys.path.insert(0, str(ROOT / "extensions" / "simulated_node"))

# The same for every run, so that the same code gets the same verdict; soak and the full runs take new ones
os.environ.setdefault("FLEXDISK_SEED", "1")


def pytest_report_header() -> str:
    return f"FLEXDISK_SEED={os.environ['FLEXDISK_SEED']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the random tests counted, from all workers together, and the seed that repeats them."""
    counts: Counter[str] = Counter()
    for status in ("passed", "failed"):
        for report in terminalreporter.getreports(status):
            counts.update({name: count for name, count in report.user_properties if isinstance(count, int)})
    if counts:
        terminalreporter.section(f"random tests, FLEXDISK_SEED={os.environ['FLEXDISK_SEED']}")
        terminalreporter.line(", ".join(f"{count} {name}" for name, count in counts.items()))
