# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A command that succeeds and does nothing: disk reads again what it has changed, and says what is different."""

from __future__ import annotations

import pickle
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes

from .conftest import built

TASKS = {
    "grow": {"vm": "web01", "name": "a", "size": 48, "description": "x"},
    "compress": {"vm": "web01", "name": "a", "compression": "lz4"},
    "detach": {"vm": "web01", "name": "b", "state": "detached"},
    "make": {"name": "data", "size": 64},
}


class Losing:
    """Runs all commands but one change, which only seems to succeed. lost: its number, from 1."""

    def __init__(self, runner, lost):
        self.runner, self.lost, self.count = runner, lost, 0
        self.words = ""

    def __call__(self, argv, stdin="", timeout=300):
        if changes(argv):
            self.count += 1
            if self.count == self.lost:
                self.words = " ".join(argv)
                return Answer(0, "", "")
        return self.runner(argv, stdin, timeout)


# The journal, what guards a destruction, what is only read for a record, and what the last command sets again: nothing
# that the plan promises
BESIDES = r"flexdisk:intent|flexdisk:mtime|@flexdisk-guard|zfs list |zfs set reservation=[0-9]+ "


@pytest.mark.parametrize("kind", ["vmadm", "proxmox"])
@pytest.mark.parametrize("task", TASKS)
def test_a_change_that_did_not_happen_is_a_failure(task, kind):
    number, failures, silent = 0, 0, []
    while True:
        number += 1
        bench = pickle.loads(built(kind))
        bench.runner = losing = Losing(bench.runner, number)
        done = bench.go(TASKS[task])
        if not losing.words:
            break
        failures += done.failure is not None
        if done.failure is None and not re.search(BESIDES, losing.words):
            silent.append(losing.words)
    assert silent == []
    assert failures > 0
