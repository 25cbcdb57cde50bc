# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many tasks a run has for each host, and what it reads. A task costs the controller 15 ms and more, also if it is
skipped. To read the variables of another host costs half a millisecond, a second where a thousand hosts are read.
"""

from __future__ import annotations

import functools
from importlib import import_module

import pytest

controller = import_module("tests.bench.controller")
TASKS = {
    "converge, nothing declared": 2,
    "converge": 2,
    "plan": 2,
    "apply": 3,  # the plans of all hosts are compared before one is changed
    "report": 3,
    "report, page": 7,
    "list_disks": 3,
    "verify_disks": 3,
    "plan_moves": 3,
    "update_group": 23,  # of a group without changes: each turn has two tasks that choose what is next
}
# A group has to be made first
PLAYS = [pytest.param(name, marks=[pytest.mark.long] if name == "update_group" else []) for name in TASKS]


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    """What a play costs on one host, on two, and on three."""
    return functools.lru_cache(maxsize=None)(controller.Fleet(tmp_path_factory.mktemp("fleet") / "fleet").on_few)


@pytest.mark.parametrize("name", PLAYS)
def test_one_host_more_has_so_many_tasks(costs, name):
    few, more, _most = costs(name)
    assert more.tasks - few.tasks == TASKS[name]


@pytest.mark.parametrize("name", PLAYS)
def test_no_host_reads_the_variables_of_all_hosts(costs, name):
    few, more, most = (cost.reads for cost in costs(name))
    assert most - more == more - few, "what a run once may read, each host reads: that grows with the square of hosts"


def test_every_playbook_that_is_measured_is_counted(tmp_path):
    assert controller.Fleet(tmp_path / "fleet").plays().keys() == TASKS.keys()
