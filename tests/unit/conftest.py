# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ansible-playbook builds of a module is built once for all tests, and all workers. Long tests come first."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

from tree import built_once

PLAYS = ("awx", "docs", "playbooks", "rolls")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that run playbooks take longest. They come first, or one worker would do the last ones alone."""
    unit = Path(__file__).resolve().parent
    items.sort(key=lambda item: not item.path.is_relative_to(unit) or item.path.relative_to(unit).parts[0] not in PLAYS)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="flexdisk-built-")
        config.add_cleanup(folder.cleanup)
        os.environ.update(built_once(folder.name))
