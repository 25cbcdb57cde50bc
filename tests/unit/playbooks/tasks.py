# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks of all playbooks and roles, each with what is set where it stands."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLES = ROOT / "roles"


@cache
def read(path: Path) -> Any:
    """What is in a file of YAML. The quick loader takes a fifth of the time."""
    return yaml.load(path.read_text(), Loader=yaml.CSafeLoader)


FILES = {
    path: read(path)
    for folder in (ROOT / "playbooks", *ROLES.glob("*/tasks"))
    for path in sorted(folder.rglob("*.yml"))
    if path.parent.name != "vars"
}
INNER = ("block", "rescue", "always", "tasks")
INCLUDES = ("include_tasks", "import_tasks", "include_role", "import_playbook")


class Task(NamedTuple):
    """A task, a block or a play.

    scope: the variables that `vars` set for it, there and around it. options: those that module_defaults give modules,
    there and around it, as MODULE.OPTION.
    """

    path: Path
    here: dict[str, Any]
    scope: frozenset[str]
    options: frozenset[str]

    @property
    def label(self) -> str:
        return f"{self.path.relative_to(ROOT)}: {self.here.get('name')}"

    def texts(self) -> list[str]:
        """All that is written in it, without what is in its inner tasks."""
        return list(texts({key: value for key, value in self.here.items() if key not in INNER}))


def texts(found: Any) -> Iterator[str]:
    """All text in something, without the keys of dictionaries."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, (list, dict)):
        for part in found.values() if isinstance(found, dict) else found:
            yield from texts(part)


def tasks(path: Path, found: Any, scope: frozenset[str], options: frozenset[str]) -> Iterator[Task]:
    for here in found or ():
        task_scope = scope.union(here.get("vars") or ())
        defaults = here.get("module_defaults") or {}
        task_options = options.union(
            f"{module.rpartition('.')[2]}.{key}" for module in defaults for key in defaults[module]
        )
        yield Task(path, here, task_scope, task_options)
        for inner in INNER:
            yield from tasks(path, here.get(inner), task_scope, task_options)


def included(task: Task) -> list[Path]:
    """The files that the task includes. A name with a template can be that of any file that no task names in full."""
    for word in INCLUDES:
        wanted = task.here.get(f"ansible.builtin.{word}")
        if wanted and word == "include_role":
            role = ROLES / wanted["name"].rpartition(".")[2] / "tasks"
            return [role / (wanted.get("tasks_from", "main").removesuffix(".yml") + ".yml")]
        if wanted:
            name = wanted if isinstance(wanted, str) else wanted["file"]
            if "{{" not in name:
                return [(task.path.parent / name).resolve()]
            pattern = re.sub(r"\{\{.*?\}\}", "*", name)
            return (
                []
                if pattern == "*"
                else sorted(set(task.path.parent.glob(pattern)) - {task.path} - named(task.path.parent))
            )
    return []


@cache
def named(folder: Path) -> frozenset[Path]:
    """The files of a folder that tasks of the folder include by their whole names."""
    pages = [path.read_text() for path in FILES if path.parent == folder]
    return frozenset(folder / name for page in pages for name in re.findall(r"_tasks: (\w+\.yml)$", page, re.MULTILINE))


def role_variables(path: Path) -> frozenset[str]:
    """The variables that the role of a file has by itself."""
    if not path.is_relative_to(ROLES):
        return frozenset()
    role = ROLES / path.relative_to(ROLES).parts[0]
    files = [role / kind / "main.yml" for kind in ("defaults", "vars")]
    return frozenset(name for file in files if file.exists() for name in read(file) or ())


@lru_cache(maxsize=1)
def every_task() -> tuple[Task, ...]:
    """All tasks. Those of a file that is included have what all tasks have that include it."""
    given: dict[Path, list[tuple[frozenset[str], frozenset[str]]]] = {}
    while True:
        found: list[Task] = []
        for path, content in FILES.items():
            scopes, options = zip(*given.get(path, [(frozenset(), frozenset())]), strict=True)
            scope = role_variables(path).union(frozenset.intersection(*scopes))
            found += tasks(path, content, scope, frozenset.intersection(*options))
        again = defaultdict(list)
        for task in found:
            for path in included(task):
                if path != task.path:  # a loop begins with what others have given it
                    again[path].append((task.scope, task.options))
        if again == given:
            return tuple(found)
        given = dict(again)
