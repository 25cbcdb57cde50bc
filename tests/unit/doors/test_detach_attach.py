# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every disk that leaves a VM keeps what the hypervisor knows of it, and every disk that comes gets it back."""

from __future__ import annotations

import ast
from pathlib import Path

ROOM = Path(__file__).resolve().parents[3] / "plugins" / "module_utils" / "_flexdisk"
TREES = {path.relative_to(ROOM).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in ROOM.rglob("*.py")}


def callers(name):
    """The files that call something of this name, as a function or as a method."""
    found = set()
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and name in (getattr(node.func, "attr", ""), getattr(node.func, "id", "")):
                found.add(path)
    return found


def test_configurations_change_in_one_place():
    """The other files give a VM only disks of the platform, forget only what is detached, or make a VM that comes."""
    assert callers("attach_disk") == {"engine/steps/apply_moves.py", "engine/moves/platform_disks.py"}
    assert callers("forget_disk") == {"engine/steps/apply_moves.py", "engine/steps/restart.py"}
    assert callers("dress") == {"engine/moves/vm_arrival.py"}


def test_steps_are_planned_in_one_place():
    assert callers("Attachment") == callers("AttachDisk") == callers("CreateDisk") == {"plan/arrivals.py"}
    made = {name for name in ("Detach", "DetachUnattached") for name in callers(name)}
    assert made == set(), "only _leaving makes them, by their class"
    assert callers("_leaving") == {"plan/departures.py"}


def test_every_departure_keeps_it():
    for node in ast.walk(TREES["plan/departures.py"]):
        if isinstance(node, ast.FunctionDef) and "_leaving(" in ast.unparse(node) and node.name != "_leaving":
            assert "disk_travel.facts_of_leaver" in ast.unparse(node), node.name


def test_every_arrival_gives_it_back():
    text = ast.unparse(TREES["plan/arrivals.py"])
    assert "disk_travel.coming(" in text
    assert "disk_travel.replacing(" in text
    assert callers("entry_of") == {"engine/steps/apply_moves.py", "engine/steps/apply_vm.py"}


def test_one_file_writes_the_property():
    asked = {path for path, tree in TREES.items() if "disk_element.encode(" in ast.unparse(tree)}
    assert asked == {"plan/disk_travel.py"}


def test_elements_are_made_in_one_place():
    texts = {
        path
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("<disk>")
    }
    assert texts == {"hypervisor/domain_edit.py"}
