# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keywords of tasks that no play shows unless a host is away, a guest has another user, or somebody seeks secrets."""

from __future__ import annotations

from typing import Any

import pytest

from .tasks import Task, every_task

ONCE = (
    "group_plan",
    "host_order",
    "move_plan",
    "group_gate",
    "start_order",
)  # they run on the controller, for all hosts
CALLS = [
    (task, str((value or {}).get("run") or key.rpartition(".")[2]), value or {})
    for task in every_task()
    for key, value in task.here.items()
    if key.startswith("flexdisk.hypervisor.")
]


def lacking(which: Any, keyword: str, wanted: Any = True) -> list[str]:
    """The calls of modules that have another value of a keyword, of those that need it."""
    found = [task for task, module, options in CALLS if which(task, module, str(options.get("step", "")))]
    assert found
    return [task.label for task in found if task.here.get(keyword) != wanted]


def tolerant(task: Task, module: str, _step: str) -> bool:
    """A later task says what is wrong. Where the result is hidden, that one also says that a host is away."""
    return task.here.get("failed_when") is False and "no_log" not in task.here and module != "guest_growth"


def for_all(task: Task, module: str, _step: str) -> bool:
    """It decides for all hosts of the play."""
    given = task.here.get(f"flexdisk.hypervisor.{module}") or {}
    decides = module == "next_turn" and given["do"] != "call"
    shows = module == "show_results" and given["about"] not in ("findings", "quotas")  # those are of one host
    shows = shows or (module == "guest_batches" and given["do"] != "begin")
    return decides or shows or (module == "move_jobs" and given["do"] in ("involve", "follow", "queue", "tell"))


def asks(task: Task, *_call: str) -> bool:
    return task.here.get("check_mode") is True


@pytest.mark.parametrize(
    ("which", "keyword", "wanted"),
    [
        (tolerant, "ignore_unreachable", True),
        (lambda _task, module, _step: module in ONCE, "run_once", True),
        (for_all, "run_once", True),
        (lambda _task, module, _step: module == "guest_growth", "become", True),
        (lambda task, module, _step: asks(task) and module != "move", "changed_when", False),
        (
            lambda task, module, _: task.here.get("changed_when") is False and module != "group_lease",
            "check_mode",
            True,
        ),
    ],
)
def test_calls_that_need_a_keyword_have_it(which, keyword, wanted):
    assert lacking(which, keyword, wanted) == []


def test_facts_that_are_too_long_or_secret_are_not_printed():
    facts = {task.here["name"]: task for task in every_task() if "ansible.builtin.set_fact" in task.here}
    hidden = {name for name, task in facts.items() if task.here.get("no_log") is True}
    assert hidden >= {"Note the answers"}
