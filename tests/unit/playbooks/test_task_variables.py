# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tasks of playbooks and roles read is set where they stand, and what is set for them is read.

A variable that is left out of `vars`, or is given to no option, is found here for all tasks at once. Plays find it only
if one of them comes by.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from .tasks import FILES, ROLES, ROOT, Task, every_task, included, role_variables

PRIVATE = r"(?<![\w'.])_[a-z]\w*"
GUARDED = PRIVATE + r"(?= \| default\(| is (?:not )?defined)"


def facts(found: Any) -> Iterator[str]:
    """The names of what tasks leave for all that follow."""
    if isinstance(found, list):
        for part in found:
            yield from facts(part)
    if isinstance(found, dict):
        yield from found.get("ansible.builtin.set_fact") or ()
        yield from found.get("ansible.builtin.add_host") or ()
        read = found.get("ansible.builtin.include_vars")
        loop = found.get("loop_control") or {}
        names = [found.get("register"), isinstance(read, dict) and read["name"], loop.get("loop_var")]
        yield from (name for name in names if isinstance(name, str))
        for part in found.values():
            yield from facts(part)


def test_what_a_task_reads_is_set_where_it_stands():
    everywhere = frozenset(name for content in FILES.values() for name in facts(content))
    inside = {path: set_in(path) for path in FILES}
    missing = set()
    for task in every_task():
        seen = task.scope.union(everywhere, *(inside[path] for path in included(task)))
        read = {name for text in task.texts() for name in re.findall(PRIVATE, re.sub(GUARDED, "", text))}
        missing |= {(task.label, name) for name in read - seen}
    assert sorted(missing) == []


def test_what_is_set_for_a_task_is_read():
    """There, elsewhere in its file or its role, or in a file that it includes, or that includes it."""
    words = {path: set(re.findall(r"\b_\w+\b(?!:)", path.read_text())) for path in FILES}
    below, above = defaultdict(set), defaultdict(set)
    for task in every_task():
        for path in included(task):
            below[task.path].add(path)
            above[path].add(task.path)
    idle = []
    for path, tasks_here in tasks_by_file().items():
        near = words[path].union(
            words_of_role(path), *(words[other] for around in (below, above) for other in reachable(path, around))
        )
        names = {name for task in tasks_here for name in task.here.get("vars") or () if name.startswith("_")}
        idle += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(names - near)]
    assert idle == []


def set_in(path: Path) -> frozenset[str]:
    return role_variables(path).union(name for task in tasks_by_file()[path] for name in task.here.get("vars") or ())


@cache
def tasks_by_file() -> dict[Path, list[Task]]:
    found = defaultdict(list)
    for task in every_task():
        found[task.path].append(task)
    return found


def reachable(start: Path, around: dict[Path, set[Path]]) -> set[Path]:
    """The file itself and those that it includes (or that include it), with what those include (or are included by)."""
    found: set[Path] = set()
    fresh = {start}
    while fresh:
        found |= fresh
        fresh = {path for one in fresh for path in around[one]} - found
    return found


def words_of_role(path: Path) -> set[str]:
    file = path.parents[1] / "vars" / "main.yml"
    return (
        set(re.findall(r"\b_\w+\b(?!:)", file.read_text())) if path.is_relative_to(ROLES) and file.exists() else set()
    )


def test_every_refusal_has_words():
    """Without fail_msg, Ansible prints the condition; without quiet, also that it holds."""
    every = list(every_task())
    asserts = [(task, task.here["ansible.builtin.assert"]) for task in every if "ansible.builtin.assert" in task.here]
    assert [task.label for task, given in asserts if not (given.get("fail_msg") and given.get("that"))] == []
    assert [task.label for task, given in asserts if given.get("quiet") is not True] == []
