# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""docs/placement.md says what the score is, and the page of the allocator what the program is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.protocol import _ANSWERS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.declared import Request
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.score import NEAR, WEIGHTS

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "placement.md").read_text()
ALLOCATOR = (ROOT / "extensions" / "iallocator" / "README.md").read_text()
PROGRAM = ROOT / "extensions" / "iallocator" / "flexdisk-iallocator"
CASES = json.loads((ROOT / "tests" / "unit" / "data" / "hail.json").read_text())


def run(*arguments, stdin=""):
    return subprocess.run([PROGRAM, *arguments], input=stdin, capture_output=True, text=True, check=True).stdout


def test_the_options_are_those_of_the_program():
    told = set(re.findall(r"^  (--[a-z-]+)", run("--help"), re.MULTILINE))
    assert set(re.findall(r"^\| `(--[a-z-]+)` \|", ALLOCATOR, re.MULTILINE)) == told


def test_the_requests_are_those_that_it_answers():
    (sentence,) = re.findall(r"^It answers (.*)\.$", ALLOCATOR, re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", sentence)) == sorted(_ANSWERS)


def test_the_limits_of_a_rebalance_are_those_that_hold_without_others():
    shown = dict(re.findall(r"`flexdisk_move_(min_gain|max_moves)` \(([0-9.]+)\)", PAGE))
    usual = Request("rebalance")
    limits = {"min_gain": usual.min_gain, "max_moves": usual.max_moves}
    assert {name: float(value) for name, value in shown.items()} == limits


def test_the_weights_are_those_of_the_score():
    rows = re.findall(r"^\| [a-zA-Z ]+ \| ([0-9.]+) \|$", PAGE, re.MULTILINE)
    assert tuple(map(float, rows)) == WEIGHTS
    assert f"less than {NEAR:.0e}".replace("e-09", "e-9") in PAGE


def test_the_refusal_is_real():
    ((_name, why),) = json.loads(run("-", stdin=json.dumps(CASES["ne-n1-no-room"]["request"])))["result"][1]
    assert f"    {why}\n" in PAGE
