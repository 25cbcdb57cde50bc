# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the argument specs of roles that only pass their variables to a module, from the module's documentation.

What a role says itself stays: its own options, the head of its spec, versions, defaults of its variables, and the
descriptions in OWN_WORDS. All else of a variable that is an option of the module is the module's.

Usage: role_specs.py
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tree import ROOT

Option = dict[str, Any]
WIDTH = 118
HEAD = "    options:\n"  # what stands above it in a spec is written by hand
KEYS = ("description", "type", "elements", "default", "choices", "required", "version_added", "no_log", "options")
REFERENCE = re.compile(r"O\(([a-z_]+)(?=[\[=)])")


class Source(NamedTuple):
    """The module whose options a role takes, the variables that are others, and what the role explains in own words."""

    module: str
    others: Mapping[str, tuple[str, str]]  # a variable: the module and its option
    own_words: frozenset[str]


COMMON = frozenset(("on_refusal", "expect_plan", "expect_lines", "hypervisor", "pool"))
ROLES: Mapping[str, Source] = {
    "disk_registry": Source(
        "disk",
        {"adopt_vms": ("disk_adopt", "vms")},
        COMMON | {"adopt_vms", "adopt_vms.package", "adopt_vms.disks", "disks"},
    ),
    "flexible_disks": Source("vm_disks", {}, COMMON | {"vms", "vms.unlisted", "vms.disks.state", "matching"}),
    "virtual_machine": Source("vm", {}, COMMON),
}


def documentation(module: str) -> dict[str, Option]:
    """The options of a module, those of its fragments included."""
    path = ROOT / "plugins" / "modules" / f"{module}.yml"
    text = path.read_text() if path.exists() else _constant(path.with_suffix(".py"), "DOCUMENTATION")
    read = yaml.safe_load(text)
    read = read.get("DOCUMENTATION", read)
    options: dict[str, Option] = {}
    for name in read["extends_documentation_fragment"]:
        part = name.rpartition("_flexdisk")[2].strip(".") or "documentation"
        fragment = _constant(ROOT / "plugins" / "doc_fragments" / "_flexdisk.py", part.upper())
        options.update(yaml.safe_load(fragment)["options"])
    return {**options, **{name: {**options.get(name, {}), **own} for name, own in read["options"].items()}}


def _constant(path: Path, name: str) -> str:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return str(ast.literal_eval(node.value))
    raise KeyError(f"{path.name} has no {name}")


class Role:
    """The options of a role, read from its spec and renewed from the modules."""

    def __init__(self, name: str) -> None:
        self.path = ROOT / "roles" / name / "meta" / "argument_specs.yml"
        self.name, self.source, self.text = name, ROLES[name], self.path.read_text()
        self.options: dict[str, Option] = yaml.safe_load(self.text)["argument_specs"]["main"]["options"]

    def render(self) -> str:
        """The spec as it should be."""
        head = self.text.partition(HEAD)[0]
        renewed = {name: self._variable(name, option) for name, option in self.options.items()}
        return head + HEAD + "\n".join(_lines(renewed, " " * 6)) + "\n"

    def _variable(self, name: str, option: Option) -> Option:
        short = name.removeprefix(f"{self.name}_")
        module, original = self.source.others.get(short, (self.source.module, short))
        told = documentation(module)
        if original not in told:
            return option
        # options of a module that takes one entry or a list of them: the role has them in the list
        inside = {one: f"{name}[].{one}" for one in told[original].get("suboptions", ()) if one in told}
        words = partial(self._in_role, {original: name, **inside})
        renewed = self._renewed(short, option, told[original], words)
        return {**renewed, **_kept(option, ("default", "version_added", "no_log"))}

    def _renewed(self, where: str, option: Option, told: Option, words: Callable[[str], str]) -> Option:
        own = option.get("description") if where in self.source.own_words else None
        found = {"description": own or [words(text) for text in _texts(told)], "type": told["type"]}
        found.update(_kept(told, ("elements", "default")))
        if "choices" in told:
            found["choices"] = list(told["choices"])
        if told.get("required") and "default" not in option:
            found["required"] = True
        found.update(_kept(option or told, ("version_added",)), **_kept(option, ("no_log",)))
        if "suboptions" in told and ("options" in option or not option):
            old, new = option.get("options", {}), told["suboptions"]
            inner = {name: self._renewed(f"{where}.{name}", old.get(name, {}), new[name], words) for name in new}
            aliases = {name: old[name] for name in old if any(name in one.get("aliases", ()) for one in new.values())}
            order = [name for name in old if name in inner or name in aliases]
            every = {**inner, **aliases}
            found["options"] = {name: every[name] for name in (*order, *(n for n in every if n not in order))}
        return found

    def _in_role(self, names: Mapping[str, str], text: str) -> str:
        """A description with the role's names of options. names: those that are no variable of the same name."""

        def renamed(match: re.Match[str]) -> str:
            variable = names.get(match[1], f"{self.name}_{match[1]}")
            if variable.partition("[")[0] not in self.options:
                raise ValueError(f"{self.name} has no {variable}, which the module's documentation names: {text}")
            return f"O({variable}"

        return REFERENCE.sub(renamed, text.replace("The task is refused", "The role is refused"))


def _texts(told: Option) -> list[str]:
    text = told["description"]
    return [" ".join(part.split()) for part in ([text] if isinstance(text, str) else text)]


def _kept(option: Mapping[str, Any], keys: tuple[str, ...]) -> Option:
    return {key: option[key] for key in keys if key in option}


def _lines(options: Mapping[str, Option], pad: str) -> Iterator[str]:
    for name, option in options.items():
        yield f"{pad}{name}:"
        for key in sorted(option, key=KEYS.index):
            yield from _entry(key, option[key], pad + "  ")


def _entry(key: str, value: Any, pad: str) -> Iterator[str]:
    if key == "options":
        yield f"{pad}options:"
        yield from _lines(value, pad + "  ")
    elif key == "description":
        yield f"{pad}description:"
        for text in _texts({key: value}):
            yield from _folded(text, pad + "  ")
    elif isinstance(value, list) and value:
        yield f"{pad}{key}:"
        yield from (f"{pad}  - {_scalar(one)}" for one in value)
    else:
        yield f"{pad}{key}: {_scalar(value)}"


def _folded(text: str, pad: str) -> Iterator[str]:
    plain = not re.search(r": | #|^[\"'\[{>|*&!%@`-]", text)
    lines = textwrap.wrap(text, WIDTH - 2 - len(pad), break_long_words=False, break_on_hyphens=False)
    if not plain:
        yield f"{pad}- >-"
        yield from (f"{pad}  {line}" for line in lines)
        return
    yield f"{pad}- {lines[0]}"
    yield from (f"{pad}  {line}" for line in lines[1:])


def _scalar(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0].replace("''", '""')


def main() -> None:
    """Renew the specs."""
    for name in ROLES:
        role = Role(name)
        role.path.write_text(role.render())


if __name__ == "__main__":
    main()
