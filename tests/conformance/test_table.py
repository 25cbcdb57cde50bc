# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of cases is complete, and every test it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import yaml

TESTS = Path(__file__).resolve().parent.parent
GROUPS = {"R": 20, "P": 32, "U": 12, "Q": 23, "M": 22, "V": 28, "S": 21, "I": 5, "N": 11, "W": 32, "C": 23, "T": 7}
SUFFIXED = ("R14a", "R14b", "R14c")
OBSERVATIONS = {"0": 5, "a": 9, "b": 13, "c": 5, "d": 13, "e": 6, "f": 3, "g": 2, "h": 5, "i": 4, "j": 16}
REFERENCE = re.compile(r"((?:conformance|unit)/[\w/]+\.py)::(\w+)(?:\[(\w+)\])?")


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
        assert len(entry) == 1, case
        assert len(entry.get("left_out", entry.get("test", ""))) > 20, case


def test_every_named_test_exists() -> None:
    modules: dict[str, ast.Module] = {}
    for case, entry in table().items():
        if "test" not in entry:
            continue
        found = REFERENCE.fullmatch(entry["test"])
        assert found is not None, case
        path, name, parameter = found.groups()
        if path not in modules:
            modules[path] = ast.parse((TESTS / path).read_text())
        functions = [node for node in modules[path].body if isinstance(node, ast.FunctionDef) and node.name == name]
        assert len(functions) == 1, entry["test"]
        if parameter is not None:
            assert parameter in _parameter_ids(modules[path], functions[0]), entry["test"]


def _parameter_ids(module: ast.Module, function: ast.FunctionDef) -> set[str]:
    """The ids that parametrize gives, worked out from the decorator's source and the constants above it."""
    known = {"range": range}
    for node in module.body:
        if isinstance(node, ast.Assign):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                value = _first_items(node.value)
            known[ast.unparse(node.targets[0])] = value
    for decorator in function.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else []:
            if keyword.arg == "ids":
                return set(eval(ast.unparse(keyword.value), {"__builtins__": {}}, known))
    words = [word for one in function.decorator_list for word in ast.walk(one) if isinstance(word, ast.keyword)]
    return {str(word.value.value) for word in words if word.arg == "id" and isinstance(word.value, ast.Constant)}


def _first_items(value: ast.expr) -> list[tuple[str]]:
    """Of a list of tuples, the first item of each, where that is a string."""
    if not isinstance(value, ast.List):
        return []
    tuples = [item for item in value.elts if isinstance(item, ast.Tuple)]
    return [(str(item.elts[0].value),) for item in tuples if isinstance(item.elts[0], ast.Constant)]
