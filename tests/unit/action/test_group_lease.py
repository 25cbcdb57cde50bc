# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_lease: which process it takes for the run, and whether that one lives."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible import constants
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.action import group_lease
from ansible_collections.flexdisk.hypervisor.plugins.action.group_lease import controller, has_died, token_of

FORK = multiprocessing.get_context("fork")


def orphan(answer, parent):
    """A task of a controller, the process parent, that has died before the task has come to ask for it."""
    while os.getppid() == parent:
        time.sleep(0.001)
    answer.send(controller())


def short_lived(answer):
    FORK.Process(target=orphan, args=(answer, os.getpid())).start()
    os._exit(0)  # as if killed: it does not wait for its children


def held_by(process):
    return {"holder": f"deploy on ctl1, process {process}", "token": token_of(process)}


def test_a_task_names_its_controller_even_if_that_has_died():
    """Whoever has adopted the task by then lives on, and nobody could take the lease over from it."""
    found, answer = FORK.Pipe(duplex=False)
    process = FORK.Process(target=short_lived, args=(answer,))
    process.start()
    assert found.recv() == process.pid
    process.join()
    assert has_died(held_by(process.pid))


def task(answer, process):
    answer.send(token_of(process))


def test_without_proc_all_tasks_of_a_run_have_one_token_and_no_other_run_has_it(monkeypatch):
    """As on macOS and the BSDs. Each task runs in a process of its own."""

    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", missing)
    monkeypatch.setattr(Path, "read_text", lambda path, **_more: missing(path))
    tokens = set()
    for _task in range(3):
        found, answer = FORK.Pipe(duplex=False)
        process = FORK.Process(target=task, args=(answer, os.getpid()))
        process.start()
        tokens.add(found.recv())
        process.join()
    assert tokens == {token_of(os.getpid())}
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", "/tmp/ansible-local-of-another-run")
    assert token_of(os.getpid()) not in tokens
    assert not has_died({"holder": f"deploy on ctl1, process {2**22 + 1}", "token": token_of(os.getpid())})


def test_a_run_of_another_user_lives(monkeypatch):
    """Its process takes no signals from this user, but it is there."""

    def refuses(process, number):
        raise PermissionError(process, number)

    monkeypatch.setattr(os, "kill", refuses)
    assert not has_died(held_by(os.getpid()))


def test_a_run_that_lives_or_is_not_of_this_controller_has_not_died():
    assert not has_died(held_by(os.getpid()))
    assert not has_died({**held_by(os.getpid()), "token": token_of(1)})
    assert not has_died({"holder": "deploy on ctl1", "token": token_of(os.getpid())})


@pytest.mark.parametrize(
    ("arguments", "code", "died", "takes_over"),
    [
        ({}, "InUse", True, True),
        ({"state": "held", "renew": False}, "InUse", True, True),
        ({}, "InUse", False, False),
        ({}, "Changed", True, False),
        ({}, None, True, False),
        ({"renew": True}, "InUse", True, False),  # it had the lease, and has lost it
        ({"state": "released"}, "InUse", True, False),
        ({"state": "read"}, "InUse", True, False),
    ],
)
def test_a_lease_of_a_run_that_has_died_is_taken_over(monkeypatch, arguments, code, died, takes_over):
    """Only by a run that begins. One that has lost its lease while it ran does nothing more."""
    asked = []
    lease = {"holder": "x"}

    def module(_self, module_args, **_more):
        asked.append(module_args)
        return {"error_code": code, "lease": lease} if len(asked) == 1 else {"changed": True}

    monkeypatch.setattr(ActionBase, "run", lambda *_any: {})
    monkeypatch.setattr(ActionBase, "_execute_module", module)
    monkeypatch.setattr(group_lease, "has_died", lambda told: died and told == lease)
    action = object.__new__(group_lease.ActionModule)
    action._task = SimpleNamespace(args={"group": "web", "token": None, **arguments})
    done = action.run(task_vars={})
    assert len(asked) == 1 + takes_over
    assert [given.get("take_over") for given in asked] == [None, True][: len(asked)]
    assert {given["token"] for given in asked} == {token_of(controller())}
    assert ("changed" in done) == takes_over
