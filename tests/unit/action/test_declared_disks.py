# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the task of a host leaves with the controller, and what it finds there."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.action import declared_disks
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import WatchedPlan


@pytest.mark.parametrize(("verbosity", "left"), [(0, set()), (2, set()), (3, {"invocation"}), (5, {"invocation"})])
def test_the_arguments_of_the_module_are_left_where_they_are_shown(monkeypatch, verbosity, left):
    """The controller handles each value of a result several times."""
    said = {"changed": False, "msg": "1 VM: nothing to change", "invocation": {"module_args": {"vms": []}}}
    monkeypatch.setattr(WatchedPlan, "run", lambda *_any: dict(said))
    monkeypatch.setattr(_core, "with_defaults", lambda _action, _task, options, _templar: options)
    action = object.__new__(declared_disks.ActionModule)
    action._task, action._templar = SimpleNamespace(action="", args={}), None
    action._display = SimpleNamespace(verbosity=verbosity)
    result = action._module_of_host("vm_disks", {"vms": []}, None, {}, False)
    assert set(result) - {"changed", "msg"} == left


def test_what_writes_arguments_and_reads_results_is_loaded_before_hosts_have_processes(monkeypatch):
    """That is when Ansible imports the action. Older versions of ansible-core have nothing of it."""
    loaded = []
    encoders = SimpleNamespace(Direction=("there", "back"), get_module_encoder=lambda *what: loaded.append(what))
    monkeypatch.setattr(_core, "json", encoders)
    importlib.reload(declared_disks)
    assert loaded == [("legacy", "there"), ("legacy", "back")]
    monkeypatch.setattr(_core, "json", SimpleNamespace())
    _core.load_encoders()
