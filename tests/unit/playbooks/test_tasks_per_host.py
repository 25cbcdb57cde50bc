# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many tasks a run has for each host. A task costs the controller 15 ms and more, also if it is skipped."""

from __future__ import annotations

from importlib import import_module

import pytest

controller = import_module("tests.bench.controller")
TASKS = {
    "converge, nothing declared": 2,
    "converge": 2,
    "plan": 2,
    "apply": 3,  # the plans of all hosts are compared before one is changed
    "report": 3,
    "list_disks": 3,
    "verify_disks": 4,
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return controller.Fleet(tmp_path_factory.mktemp("fleet") / "fleet")


@pytest.mark.parametrize("name", TASKS)
def test_one_host_more_has_so_many_tasks(fleet, name):
    assert fleet.tasks_per_host(name) == TASKS[name]


def test_every_playbook_that_is_measured_is_counted(fleet):
    assert fleet.plays().keys() == TASKS.keys()
