# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tasks are watched, and what of them is shown."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.action import vm
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _watched
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._watched import Watched, WatchedPlan

from .actions import ROOT

RUNTIME = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text())
ROUTES = RUNTIME["plugin_routing"]["modules"]
OTHERS = {"group_lease", "host_step"}
ENTRY = {"lock": "host", "state": "running", "task": "vm_disks of web01", "line": "at step 1 of 2, VM web01: stop"}


def action(**task):
    found = object.__new__(vm.ActionModule)
    given = {"args": {"pool": "zones", "libvirt_uri": "test:///default"}, "async_val": 0, "check_mode": False}
    found._task = SimpleNamespace(**{**given, "no_log": False, **task})
    found._templar = SimpleNamespace(template=lambda value: value)
    return found


def test_every_module_that_carries_out_plans_can_be_watched():
    """Ansible takes the action that the routing names, or the one that is called as the module."""
    routed = {name: there["action_plugin"] for name, there in ROUTES.items() if "action_plugin" in there}
    wanted = dict.fromkeys(set(RUNTIME["action_groups"]["locking"]) - OTHERS - {"vm"}, "flexdisk.hypervisor.vm")
    assert routed == wanted
    assert issubclass(vm.ActionModule, WatchedPlan)


@pytest.mark.parametrize(
    ("variables", "task", "watched"),
    [
        ({}, {}, False),
        ({"flexdisk_progress": None}, {}, False),
        ({"flexdisk_progress": "false"}, {}, False),
        ({"flexdisk_progress": "maybe"}, {}, False),
        ({"flexdisk_progress": True}, {}, True),
        ({"flexdisk_progress": "yes"}, {}, True),
        ({"flexdisk_progress": True}, {"check_mode": True}, False),
        ({"flexdisk_progress": True}, {"async_val": 60}, False),
        ({"flexdisk_progress": True}, {"no_log": True}, False),
    ],
)
def test_only_if_it_is_asked_for(monkeypatch, variables, task, watched):
    monkeypatch.setattr(ActionBase, "run", lambda *_any: {})
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **more: {"async": more["wrap_async"]})
    monkeypatch.setattr(Watched, "_watched", lambda *_any: {"watched": True})
    expected = {"watched": True} if watched else {"async": bool(task.get("async_val"))}
    assert action(**task).run(task_vars=variables) == expected


@pytest.mark.parametrize(("given", "handed"), [({}, None), ({"expect_plan": None}, ""), ({"expect_plan": "k1"}, "k1")])
def test_a_digest_that_is_missing_approves_nothing(monkeypatch, given, handed):
    """The module cannot tell null from an option that is not given, and would do anything."""
    monkeypatch.setattr(ActionBase, "run", lambda *_any: {})
    monkeypatch.setattr(ActionBase, "_execute_module", lambda self, **_more: dict(self._task.args))
    assert action(args=given).run(task_vars={}).get("expect_plan") == handed


def test_a_watched_module_runs_in_the_background(monkeypatch):
    """It is asked for until it has ended, and what it leaves is removed. Without a job, its answer is the result."""
    started = [{"ansible_job_id": "j1", "results_file": "/jobs/j1"}, {"msg": "no module"}]
    begun, asked, made = [], [], action()
    answers = [{"failed": True}, {}, {"finished": 1, "changed": True}, {}]
    monkeypatch.setattr(_watched.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(
        ActionBase,
        "_execute_module",
        lambda self, **more: begun.append((more["wrap_async"], self._task.async_val)) or started.pop(0),
    )
    monkeypatch.setattr(Watched, "_module", lambda _self, name, given, _vars: asked.append(given) or answers.pop(0))
    assert made._watched({}) == {"finished": 1, "changed": True}
    job = {"jid": "j1", "_async_dir": "/jobs"}
    assert asked == [job, job, job, {**job, "mode": "cleanup"}]
    assert made._watched({}) == {"msg": "no module"}
    assert begun == [(True, _watched.MAX_TASK_SECONDS)] * 2
    assert made._task.async_val == 0


@pytest.mark.parametrize(
    ("silent", "found"), [(_watched.MAX_MISSED_LOOKS - 1, {"finished": 1}), (_watched.MAX_MISSED_LOOKS, None)]
)
def test_a_host_that_is_silent_for_long_is_lost(monkeypatch, silent, found):
    answers = [{"failed": True}] * silent + [{"finished": 1}, {}]
    monkeypatch.setattr(_watched.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(ActionBase, "_execute_module", lambda *_any, **_more: {"ansible_job_id": "j1"})
    monkeypatch.setattr(Watched, "_module", lambda *_any: answers.pop(0))
    done = action()._watched({})
    assert (done == found) if found else ("does not tell any more" in done["msg"] and done["failed"])


def test_what_is_shown(monkeypatch):
    """Each line once, of those that live, and not of transfers. What cannot be read is not shown."""
    answers = [
        {"failed": True, "msg": "no"},
        {"progress": [ENTRY, {**ENTRY, "state": "dead", "task": "old"}, {**ENTRY, "lock": "transfer-1", "task": "x"}]},
        {"progress": [ENTRY]},
        {"progress": []},
        {"progress": [{**ENTRY, "state": "outlived", "line": "at step 2 of 2, VM web01: start"}]},
    ]
    asked, shown, made = [], [], action()
    made._display = SimpleNamespace(display=lambda line, stderr: shown.append(line))
    monkeypatch.setattr(Watched, "_module", lambda _self, *what: asked.append(what) or answers.pop(0))
    while answers:
        made._show_progress({"inventory_hostname": "hv01"})
    assert shown == [
        "hv01: vm_disks of web01, at step 1 of 2, VM web01: stop",
        "hv01: vm_disks of web01, at step 2 of 2, VM web01: start",
    ]
    name, given, _variables = asked[0]
    assert (name, given) == ("flexdisk.hypervisor.progress_info", {"pool": "zones", "libvirt_uri": "test:///default"})


MIB = 1 << 20


@pytest.mark.parametrize(
    ("sends", "limit", "watched"),
    [
        ([_watched.MIN_WATCHED_BYTES], None, True),
        ([_watched.MIN_WATCHED_BYTES - 1], None, False),
        ([_watched.MIN_WATCHED_BYTES // 2, _watched.MIN_WATCHED_BYTES // 2], None, True),
        ([int(_watched.MIN_WATCHED_SECONDS * MIB)], "1MiB", True),  # so slow that it takes long
        ([int(_watched.MIN_WATCHED_SECONDS * MIB) - 1], "1MiB", False),
        ([_watched.MIN_WATCHED_BYTES], "1TiB", True),
        ([], None, False),
        ([_watched.MIN_WATCHED_BYTES], "fast", False),  # the module says what is wrong with that
    ],
)
def test_which_transfers_are_watched(monkeypatch, sends, limit, watched):
    monkeypatch.setattr(_watched, "read_transfers", lambda _given: [SimpleNamespace(sends=size) for size in sends])
    assert _watched.is_long({"transfers": [], "bandwidth_limit": limit}) == watched


def test_what_is_no_transfer_is_not_watched():
    assert not _watched.is_long({})
    assert not _watched.is_long({"transfers": 5})
