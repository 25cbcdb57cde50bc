# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every rename goes through engine/steps/renames.py: nothing else renames a dataset or a snapshot."""

from __future__ import annotations

import ast
from pathlib import Path

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
DOOR = {"module_utils/_flexdisk/engine/steps/renames.py", "module_utils/_flexdisk/zfs/commands.py"}


def calls(path):
    """The renames in a file: methods called so, and zfs rename as words of a command."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if node.func.attr in ("rename", "move_out") and owner not in ("os", "renames"):
                yield f"{path.name}:{node.lineno} {owner}.{node.func.attr}"
            if "rename" in words and "zfs" in words:
                yield f"{path.name}:{node.lineno} zfs rename"
        if isinstance(node, ast.Tuple):
            words = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            if words[:2] == ["zfs", "rename"]:
                yield f"{path.name}:{node.lineno} zfs rename"


def test_nothing_renames_around_the_door():
    files = [path for path in sorted(PLUGINS.rglob("*.py")) if path.relative_to(PLUGINS).as_posix() not in DOOR]
    assert files
    assert [found for path in files for found in calls(path)] == []


def test_the_door_is_seen():
    assert [found for name in sorted(DOOR) for found in calls(PLUGINS / name)]
