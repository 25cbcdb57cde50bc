# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the action next_turn makes of the answers of hosts, and of a module that has died."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.action import next_call, next_turn
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Call,
    Run,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    next_turn as turn_after,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.recovery import (
    Recovery,
    recover,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _calling

VM, HOSTS = "aaaaaaaa-0000-4000-8000-000000000202", ["hv01", "hv02", "hv03"]
RECORD = {"vms": [], "records": [{"vm": VM, "host": "hv01"}], "moved": [], "known": []}
NONE = {**RECORD, "records": []}
FIRST = {"number": 0, "begun": "17.5"}
DIED = {"failed": True, "rc": 137, "msg": "MODULE FAILURE", "exception": "..."}


def answered(result, **more):
    return {**result, "turn": {**FIRST, "failed": False, "began": 1.0, "ended": 2.0, **more}}


def after(home):
    """What a failover does next, if its home has left this and the others have answered."""
    run = Run(False, False, lambda _host: {})
    flow = recover(Recovery(vm=VM, hosts=HOSTS, every=HOSTS, target="hv02", fenced=True), run)
    first = turn_after(flow, [])
    last = {**FIRST, **next_turn._next_tasks(first, HOSTS)}
    heard = {"hv01": home, "hv02": answered(RECORD), "hv03": answered(NONE)}
    looks = next_turn._answers(next_turn._heard(last, heard))
    flow = recover(Recovery(vm=VM, hosts=HOSTS, every=HOSTS, target="hv02", fenced=True), run)
    return turn_after(flow, [looks, {host: looks[host] for host in ("hv02", "hv03")}])


def test_a_home_that_cannot_be_reached_is_taken_for_one_that_is_down():
    for home in ({"unreachable": True, "msg": "no route"}, answered({"unreachable": True, "msg": "no route"})):
        assert after(home).call.name == "Bring the VM back"


@pytest.mark.parametrize(
    ("home", "why"),
    [
        ({}, "it gave no answer"),  # it has failed before
        ({"failed": True, "msg": "Task timeout"}, "Task timeout"),  # its storage hangs
        (answered(NONE, number=1), "it gave no answer"),
        (answered(NONE, begun="3.0"), "it gave no answer"),  # that of an earlier play
        (answered({"msg": "no zfs"}, failed=True), "no zfs"),
    ],
)
def test_a_home_without_an_answer_is_not_down(home, why):
    """It may be there, and its guest may run."""
    turn = after(home)
    assert turn.call is None
    assert f"hv01, the host of {VM}, may be there, but does not say what it has of the VM: {why}" in str(turn.failure)


def test_answers_are_no_arguments(monkeypatch):
    """Arguments of a task can be shown, and answers have secrets."""
    monkeypatch.setattr(next_turn._core, "check", lambda: None)
    monkeypatch.setattr(next_turn.ActionBase, "run", lambda *_any: {})
    arguments = {"vm": VM, "hosts": HOSTS, "every": HOSTS, "target": "hv02", "fenced": True}
    task = SimpleNamespace(
        args={"do": "begin", "flow": "recover", "arguments": arguments}, check_mode=False, diff=False
    )
    action = next_turn.ActionModule(task, *[None] * 5)
    variables = {"hostvars": {host: {} for host in HOSTS}, "ansible_play_hosts": HOSTS}
    first = action.run(None, {**variables, "_flexdisk_turn": {"memory": ["of an earlier play"], "begun": "1"}})
    assert (first["memory"], first["number"], first["_ansible_no_log"]) == ([], 0, True)
    assert sorted(first["calls"]) == HOSTS
    heard = {host: {"_flexdisk_heard": answered(NONE, begun=first["begun"])} for host in HOSTS}
    task.args = {**task.args, "do": "decide"}
    second = action.run(None, {**variables, "hostvars": heard, "_flexdisk_turn": first})
    assert (len(second["memory"]), second["number"], second["begun"]) == (1, 1, first["begun"])
    assert sorted(second["calls"]) == HOSTS


@pytest.mark.parametrize("may_fail", [True, False])
def test_a_module_that_has_died_fails_its_host_only_if_it_must_not(monkeypatch, may_fail):
    """Ansible goes by rc where failed is left out."""
    monkeypatch.setattr(_calling, "run_call", lambda *_any: dict(DIED))
    action = next_turn.ActionModule(*[None] * 6)
    call = Call("Look", "hv01", "failover", {}, may_fail=may_fail)
    result = action._call({**FIRST, "calls": {"hv01": call._asdict()}}, {"inventory_hostname": "hv01"})
    assert (result["failed"], result["rc"], result["turn"]["failed"]) == (not may_fail, 137, True)
    assert next_turn._identity(result["turn"]) == FIRST


def test_a_flow_goes_on_after_a_module_that_has_died(monkeypatch):
    """What comes next gives the VM back, or closes a door."""

    def flow(_given, _run):
        try:
            yield Call("Send", "hv01", "send", {}, hidden=True)
        except next_call.CallFailed:
            yield Call("Give it back", "hv01", "move", {})
        return {}

    monkeypatch.setattr(_calling, "run_call", lambda *_any: dict(DIED))
    monkeypatch.setitem(next_call.TASKS, "keep", flow)
    task = SimpleNamespace(args={"task": "keep", "arguments": {}}, check_mode=False, diff=False)
    action = next_call.ActionModule(task, *[None] * 5)
    shown = {"answers": {}, "next": {"begun": "1"}}
    result = action._next({"hostvars": {}}, shown, {})
    assert (result["failed"], result["rc"], result["next"]["name"]) == (False, 137, "Give it back")
