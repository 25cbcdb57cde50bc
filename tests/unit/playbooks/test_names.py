# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of variables in playbooks and roles: plays that follow each other in one run must not disturb each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[3]
FILES = [*(ROOT / "playbooks").rglob("*.yml"), *(ROOT / "roles").glob("*/tasks/*.yml")]
FACTS = ("ansible.builtin.set_fact",)


def named(found: Any) -> Iterator[tuple[str, str]]:
    """What sets a variable, and its name."""
    if isinstance(found, list):
        for part in found:
            yield from named(part)
    if isinstance(found, dict):
        yield from (("fact", name) for task in FACTS for name in found.get(task) or ())
        yield from (("fact", name) for name in [found.get("register")] if isinstance(name, str))
        yield from (("vars", name) for name in found.get("vars") or ())
        for part in found.values():
            yield from named(part)


def test_no_fact_has_the_name_of_a_variable_of_tasks():
    """A fact stays until the end of the run, and wins over vars of tasks and plays."""
    every = [one for path in FILES for one in named(yaml.safe_load(path.read_text()))]
    facts, variables = ({name for what, name in every if what == kind} for kind in ("fact", "vars"))
    assert "_flexdisk_order" in facts
    assert "_flexdisk_planned" in variables
    assert sorted(facts & variables) == []
