# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of cases is complete, and every test it names exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

TESTS = Path(__file__).resolve().parent.parent
GROUPS = {"R": 20, "P": 32, "U": 12, "Q": 23, "M": 22, "V": 28, "S": 21, "I": 5, "N": 11, "W": 32, "C": 23, "T": 7}
SUFFIXED = ("R14a", "R14b", "R14c")
OBSERVATIONS = {"0": 5, "a": 9, "b": 13, "c": 5, "d": 13, "e": 6, "f": 3, "g": 2, "h": 5, "i": 4, "j": 16}
REFERENCE = re.compile(r"(?:conformance|unit)/[\w/]+\.py::\w+(?:\[[^\[\]]+\])?")
PUT_TO_MODULES = "RPUQMV"


def table() -> dict[str, dict[str, str]]:
    cases: dict[str, dict[str, str]] = yaml.safe_load((TESTS / "conformance" / "cases.yml").read_text())["cases"]
    return cases


def test_every_case_is_in_the_table() -> None:
    wanted = {f"{group}{number:02d}" for group, count in GROUPS.items() for number in range(1, count + 1)}
    wanted |= set(SUFFIXED)
    wanted |= {f"Z-{group}{number}" for group, count in OBSERVATIONS.items() for number in range(1, count + 1)}
    assert set(table()) == wanted


def test_every_case_has_a_test_or_a_reason() -> None:
    for case, entry in table().items():
        choices = [("test", "left_out"), ("module", "no_counterpart")][: 2 if case[0] in PUT_TO_MODULES else 1]
        assert len(entry) == len(choices), case
        for choice in choices:
            [text] = [entry[key] for key in choice if key in entry]
            assert len(text) > 20, case


def test_every_named_test_exists() -> None:
    named = {entry[key] for entry in table().values() for key in ("test", "module") if key in entry}
    assert {name for name in named if not REFERENCE.fullmatch(name)} == set()
    assert named - collected({name.partition("::")[0] for name in named}) == set()


def collected(files: set[str]) -> set[str]:
    """The tests in these files as pytest names them, each also without its parameter."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", *sorted(files)]
    done = subprocess.run(argv, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line}
    return names | {name.partition("[")[0] for name in names}
