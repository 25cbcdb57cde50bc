# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of the house, checked: imports go down only, pure rooms stay pure, targets need nothing installed."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOUSE = ROOT / "plugins" / "module_utils" / "_flexdisk"
GANETI = ROOT / "extensions" / "iallocator" / "ganeti"
COLLECTION = "ansible_collections.flexdisk.hypervisor."
PREFIX = f"{COLLECTION}plugins.module_utils._flexdisk."
MAY_IMPORT = {
    "model": {"model"},
    "rules": {"rules", "model"},
    "parse": {"parse", "rules", "model"},
    "plan": {"plan", "parse", "rules", "model"},
    "fleet": {"fleet", "rules", "model"},
    "guest": {"guest", "model"},
    "zfs": {"zfs", "rules", "model"},
    "hypervisor": {"hypervisor", "rules", "model"},
    "engine": {"engine", "fleet", "guest", "plan", "parse", "rules", "model", "zfs", "hypervisor"},
}
ENGINE_MAY_IMPORT = {
    "host": {"host"},
    "steps": {"steps", "host"},
    "run": {"run", "steps", "host"},
    "modules": {"modules", "run", "steps", "host"},
    "replication": {"replication", "modules", "run", "steps", "host"},
    "moves": {"moves", "replication", "modules", "run", "steps", "host"},
    "failover": {"failover", "moves", "replication", "modules", "run", "steps", "host"},
    "guest": {"guest", "run", "host"},
}
PURE = ("model", "rules", "parse", "plan", "fleet", "guest")
WORLDLY = {"os", "subprocess", "shutil", "socket", "pathlib", "tempfile", "fcntl", "time", "random", "ansible"}
OPTIONAL_ON_TARGETS = {"libvirt", "libzfs_core"}

FILES = sorted(HOUSE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Modules that a file imports, relative ones by their full names."""
    package = (COLLECTION + ".".join(path.relative_to(ROOT).parts[:-1])).split(".")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            above = package[: len(package) - node.level + 1]
            found.add(".".join([*above, node.module] if node.module else above))
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_the_rooms_are_those_of_the_design():
    assert {path.relative_to(HOUSE).parts[0] for path in FILES} == set(MAY_IMPORT)


def test_relative_imports_are_seen():
    assert imports(HOUSE / "rules" / "inventory.py") >= {
        PREFIX + "model.vm",
        PREFIX + "rules",
        PREFIX + "rules.reservation",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_imports_go_down(path):
    room = path.relative_to(HOUSE).parts[0]
    rooms = {name[len(PREFIX) :].split(".")[0] for name in imports(path) if name.startswith(PREFIX)}
    assert rooms <= MAY_IMPORT[room]


@pytest.mark.parametrize("path", sorted((HOUSE / "engine").rglob("*.py")), ids=lambda p: str(p.relative_to(HOUSE)))
def test_imports_go_down_inside_the_engine(path):
    assert len(path.relative_to(HOUSE).parts) == 3
    engine = PREFIX + "engine."
    rooms = {name[len(engine) :].split(".")[0] for name in imports(path) if name.startswith(engine)}
    assert rooms <= ENGINE_MAY_IMPORT[path.parent.name]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(HOUSE)))
def test_only_the_standard_library_and_pure_rooms_pure(path):
    outside = {name.split(".")[0] for name in imports(path) if not name.startswith(PREFIX)}
    assert outside - OPTIONAL_ON_TARGETS <= set(sys.stdlib_module_names)
    if path.relative_to(HOUSE).parts[0] in PURE:
        assert not outside & WORLDLY


@pytest.mark.parametrize("path", sorted(GANETI.glob("*.py")), ids=lambda p: p.name)
def test_the_extension_for_ganeti_is_built_on_placement_alone(path):
    rooms = {name[len(PREFIX) :] for name in imports(path) if name.startswith(PREFIX)}
    assert all(name.startswith(("fleet.placement.", "model.")) for name in rooms)


def test_no_room_knows_the_extensions():
    assert not [path for path in FILES if any(".extensions" in name for name in imports(path))]


def performs(node):
    """Whether this carries out a step. Then the class of the step is its documentation."""
    return isinstance(node, ast.FunctionDef) and [one.arg for one in node.args.args] == ["step", "tools", "change"]


def documented(path):
    """(what has no docstring, the methods that have one) of the public names of a file."""
    without, methods = [], set()
    for parent in ast.walk(ast.parse(path.read_text())):
        inside = isinstance(parent, ast.ClassDef)
        if not inside and not isinstance(parent, ast.Module):
            continue
        if inside and parent.name.startswith("_"):
            continue
        for node in parent.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            if ast.get_docstring(node) is None and not performs(node):
                without.append((path.relative_to(HOUSE).as_posix(), inside, node.name))
            elif inside:
                methods.add(node.name)
    return without, methods


def test_every_public_name_is_documented():
    """A method is documented where it is declared first: in the protocol or the class above."""
    read = [documented(path) for path in HOUSE.rglob("*.py")]
    declared = set().union(*(methods for _without, methods in read))
    bare = [found for without, _methods in read for found in without if not (found[1] and found[2] in declared)]
    assert bare == []
