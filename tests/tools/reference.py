# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes what docs/variables.md, docs/playbook-reference.md and the pages of the roles tell of variables and playbooks.

Sources are the argument specs of roles and playbooks, playbooks/vars/meanings.yml, and the headers of the playbooks.

Usage: reference.py
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import role_specs
import yaml
from tree import ROOT

BEGIN, END = "<!-- generated: begin -->\n", "<!-- generated: end -->\n"
PLAYBOOKS = sorted(path.stem for path in (ROOT / "playbooks").glob("*.yml"))
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
OWN = rf"(?:flexdisk|{'|'.join(ROLES)})_"  # how the names of variables begin
CHAINED = [name for name in PLAYBOOKS if "_" in name]  # a word of prose that no other meaning can have
WORD = re.compile(
    rf"(?P<code>\b{OWN}[\w*]+(?:=\w+)?|--[a-z]+)|(?<=the role )(?P<role>\w+)|\bdocs/(?P<page>\w+)\.md"
    rf"|(?P<playbook>(?<=playbook )\w+|\b(?:{'|'.join(CHAINED)})\b)"
)
MARKUP = re.compile(r"\b(?:[VCBIEMP]|RV|O)\((?:(?P<plugin>[\w.]+)#\w+:)?(?P<word>(?:[^()\\]|\\.)+)\)")


@dataclass(frozen=True)
class Variable:
    """A variable with its argument spec, whoever reads it, and its meaning as Markdown."""

    name: str
    spec: dict[str, Any]
    role: str | None
    playbooks: frozenset[str]
    meaning: str

    @property
    def is_duration(self) -> bool:
        """Whether it is seconds that may be written in ISO 8601: an argument of a playbook, or raw in a role."""
        raw = self.spec["type"] == "raw" and "V(PT1M30S)" in str(self.spec.get("description"))
        return raw or "duration" in self.spec

    @property
    def value(self) -> str:
        """Its choices, or its type in Ansible's words, and its default as YAML, or that there must be a value."""
        choices = ", ".join(f"`{choice}`" for choice in self.spec.get("choices", []))
        kind = choices or ("seconds or `PT1M30S`" if self.is_duration else str(self.spec["type"]))
        if self.spec["type"] == "list":
            kind = f"list of {choices or self.spec.get('elements')}"
        if "least" in self.spec:
            kind += (
                f", {self.spec['least']} to {self.spec['most']}"
                if "most" in self.spec
                else f", at least {self.spec['least']}"
            )
        value = self.spec.get("default")
        default = value if isinstance(value, str) and value else json.dumps(value)
        return kind + (
            "; required" if self.spec.get("required") else f"; default `{default}`" if value is not None else ""
        )


def read(path: str) -> Any:
    """A YAML file of the project."""
    return yaml.safe_load((ROOT / path).read_text())


@cache
def options(role: str) -> dict[str, dict[str, Any]]:
    """The argument specs of the variables of a role."""
    main = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]
    return dict(main["options"])


@cache
def variables() -> list[Variable]:
    """All variables by name. A variable of a role means in playbooks what it means for the role."""
    arguments = read("playbooks/vars/arguments.yml")["_flexdisk_arguments"]
    meanings = read("playbooks/vars/meanings.yml")
    roles = {name: (role, spec) for role in ROLES for name, spec in options(role).items()}
    there = {name for specs in arguments.values() for name in specs} | {*roles}
    if odd := sorted({*meanings} ^ (there - {*roles})):
        sys.exit(f"playbooks/vars/meanings.yml lacks, or is alone with, {', '.join(odd)}")
    found = []
    for name in sorted(there):
        readers = {playbook: specs[name] for playbook, specs in arguments.items() if name in specs}
        role, spec = roles.get(name, (None, {}))
        meaning = markdown(spec["description"][0]) if role else meanings[name]
        found.append(Variable(name, spec or joined(readers.values()), role, frozenset(readers), meaning))
    return found


def joined(specs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The spec of a variable that several playbooks read: it is required if it is for all of them."""
    several = list(specs)
    kinds = dict.fromkeys(spec["type"] for spec in several)
    required = all(spec.get("required") for spec in several)
    return {**several[0], "type": " or ".join(kinds), "required": required}


def markdown(text: str) -> str:
    """Ansible's semantic markup as Markdown."""

    def code(match: re.Match[str]) -> str:
        word = f"`{match['word']}`"
        return f"{word} of `{match['plugin']}`" if match["plugin"] else word

    return MARKUP.sub(code, text)


def table(columns: dict[str, Callable[[Variable], str]], rows: Iterable[Variable]) -> str:
    """A Markdown table."""
    lines = [[*columns], ["---"] * len(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def readers(variable: Variable) -> str:
    """The role and the playbooks that read a variable, as links."""

    def links(names: Iterable[str]) -> str:
        return ", ".join(f"[{name}](playbook-reference.md#{name})" for name in sorted(names))

    others = {*PLAYBOOKS} - variable.playbooks
    role = f"role [{variable.role}](../roles/{variable.role}/README.md)" if variable.role else ""
    told = links(variable.playbooks)
    if len(others) < len(variable.playbooks):
        told = "all playbooks" + (f" but {links(others)}" if others else "")
    return "; ".join(part for part in (role, told) if part)


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return text[0].upper() + text[1:].rstrip(".") + "."


COLUMNS: dict[str, Callable[[Variable], str]] = {
    "variable": lambda variable: f"`{variable.name}`",
    "value": lambda variable: variable.value,
    "meaning": lambda variable: sentence(variable.meaning),
}


def all_variables() -> str:
    """The table of docs/variables.md."""
    return table({**COLUMNS, "read by": readers}, variables())


def of_role(role: str) -> str:
    """The table of a role's page: the same without who reads the variables."""
    return table(COLUMNS, [variable for variable in variables() if variable.role == role])


def header(playbook: str) -> tuple[str, list[str], str]:
    """The name of the first play, the lines of usage, and what the header of a playbook says."""
    text, play = (ROOT / "playbooks" / f"{playbook}.yml").read_text().split("\n- name: ", 1)
    lines = [line[2:] for line in text.split("\n# Usage: ")[1].splitlines() if line.startswith("# ")]
    first = text.split("\n# Usage: ")[1].splitlines()[0]
    usage = [line.strip() for line in lines if line.startswith("  ")]
    return play.splitlines()[0], [first, *usage], "\n".join(line for line in lines if not line.startswith("  "))


def linked(match: re.Match[str]) -> str:
    """A word of a playbook's header as Markdown."""
    if match["code"]:
        return f"`{match['code']}`"
    if match["role"]:
        return f"[{match['role']}](../roles/{match['role']}/README.md)"
    if match["page"]:
        return f"[{match['page']}.md]({match['page']}.md)"
    return (
        f"[{match['playbook']}](playbook-reference.md#{match['playbook']})"
        if match["playbook"] in PLAYBOOKS
        else match[0]
    )


def all_playbooks() -> str:
    """What docs/playbook-reference.md tells of each playbook."""
    rows, parts = [], []
    for playbook in PLAYBOOKS:
        name, usage, words = header(playbook)
        rows.append(f"| [{playbook}](#{playbook}) | {sentence(name)} |\n")
        commands = [line if line.startswith("ansible-playbook ") else f"    {line}" for line in usage]
        code = "".join(f"    {line}\n" for line in commands)
        parts.append(f"\n## {playbook}\n\n{code}\n{WORD.sub(linked, words)}\n")
    return "| playbook | what it does |\n|---|---|\n" + "".join(rows + parts)


def documentation(path: Path) -> dict[str, Any]:
    """What a module, a plugin or a role says of itself, in its own file or in one beside it."""
    beside = path.with_suffix(".yml")
    path = beside if beside.exists() else path
    text = path.read_text()
    if path.name == "argument_specs.yml":
        return dict(yaml.safe_load(text)["argument_specs"]["main"])
    if path.suffix == ".py":
        given = {
            ast.unparse(node.targets[0]): node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)
        }
        return dict(yaml.safe_load(ast.literal_eval(given["DOCUMENTATION"])))
    return dict(yaml.safe_load(text)["DOCUMENTATION"])


def all_contents() -> str:
    """What docs/contents.md tells: modules, plugins and roles, each with its first sentence."""
    plugins = ROOT / "plugins"
    places = {
        "module": sorted(plugins.glob("modules/*.py")),
        "filter": sorted(plugins.glob("filter/*.yml")),
        "inventory": sorted(plugins.glob("inventory/*.py")),
        "role": sorted(ROOT.glob("roles/*/meta/argument_specs.yml")),
    }
    rows = []
    for kind, paths in places.items():
        for path in paths:
            name = path.parts[-3] if kind == "role" else path.stem
            named = f"[{name}](../roles/{name}/README.md)" if kind == "role" else f"`{name}`"
            words = MARKUP.sub(lambda match: f"`{match['word']}`", documentation(path)["short_description"])
            rows.append(f"| {kind} | {named} | {sentence(words)} |\n")
    return "| kind | name | what it is for |\n|---|---|---|\n" + "".join(rows)


def pages() -> dict[Path, str]:
    """Each page that has a generated part, with this part."""
    docs = ROOT / "docs"
    found = {docs / "variables.md": all_variables(), docs / "playbook-reference.md": all_playbooks()}
    found[docs / "contents.md"] = all_contents()
    return found | {ROOT / "roles" / role / "README.md": of_role(role) for role in ROLES}


def main() -> None:
    """Renew the specs that are written from modules, and replace the generated part of each page."""
    role_specs.main()
    for page, part in pages().items():
        before, rest = page.read_text().split(BEGIN, 1)
        page.write_text(f"{before}{BEGIN}\n{part}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
