# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop of the role vm_replica in this process: it does the calls of moves and syncs on simulated nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.flexdisk.hypervisor.plugins.action.next_call import TASKS
from ansible_collections.flexdisk.hypervisor.plugins.action.next_turn import FLOWS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.host_run import checked
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module import error
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call, locked
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import calls
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError, refusal
from ansible_collections.flexdisk.hypervisor.plugins.modules import host_step, replica_info

Params = dict[str, Any]


def _defaults(options: Mapping[str, Any]) -> Params:
    return {key: option.get("default") for key, option in {**options, **HOST, **LOCK}.items()}


def _refuses(**result: Any) -> None:
    raise AssertionError(result["msg"])


class Body:
    """What a call does on its host."""

    def __init__(self, call: calls.Call) -> None:
        given = json.loads(json.dumps(call.options))
        if call.module == "replica_info":
            self.params = {**_defaults(replica_info.OPTIONS), **given}
            self.reads = True
            return
        self.run = host_step.of_run(call.run)
        module: Any = SimpleNamespace(params={**_defaults(host_step.OPTIONS), **given}, fail_json=_refuses)
        self.params = checked(module, ArgumentSpecValidator)
        self.reads = self.params["step"] in self.run.reads

    def does(self, call: Call) -> Any:
        """The end of it."""
        if "run" not in self.params:
            return replica_info.body(call, self.params)
        given, problems = self.run.parse(self.params)
        return refusal(problems) if problems else self.run.run(call, print, self.params, given)


class Lost(Exception):
    """A host cannot be reached, and the run ends there."""


class Controller:
    """Does a task to its end. hosts: the nodes by their names; lost: those that cannot be reached."""

    def __init__(self, world: Any, hosts: Mapping[str, Any], lost: frozenset[str] = frozenset()) -> None:
        self.world, self.hosts, self.lost = world, hosts, lost
        self.answers: dict[str, calls.Answer] = {}
        """The last answer to each call, by the name of the call."""
        self.messages: list[str] = []
        self.warnings: list[str] = []

    def sync(self, home: str, peer: str, vms: list[str], **more: Any) -> Params:
        """The arguments of a sync."""
        folder = self.world.folder
        keys = {"authorized_keys": str(self.world.authorized), "ssh_directories": [str(folder)]}
        return {"vms": vms, "home": home, "peer": peer, "address": "192.0.2.2", **keys, **more}

    def does(self, task: str, arguments: Params, check: bool = False) -> Params:
        """The result of a task. Raises Stopped, or Lost."""
        run = calls.Run(check, False, lambda host: {} if host in self.hosts else None)
        flow = {**TASKS, **FLOWS}[task]
        answers: list[calls.Answer | calls.Answers] = []
        while True:
            turn = calls.next_turn(flow(arguments, run), answers)
            self.messages += [str(turn.says.text)] if turn.says else []
            if turn.at_once is not None:
                answers.append({call.host: self._answers(call, check) for call in turn.at_once.calls})
            elif turn.call is not None:
                answer = self._answers(turn.call, check)
                if answer.lost and not turn.call.may_be_lost:
                    raise Lost(answer.msg)
                answers.append(answer)
            else:
                break
        if turn.failure is not None:
            raise turn.failure
        return dict(turn.result or {})

    def _answers(self, call: calls.Call, check: bool) -> calls.Answer:
        began = time.time()
        answer = calls.Answer(calls.readable_part(call, self._does(call, check)), began, time.time())
        self.answers[call.name] = answer
        return answer

    def _does(self, call: calls.Call, check: bool) -> Params:
        if call.host in self.lost:
            return {"unreachable": True, "msg": f"{call.host} cannot be reached"}
        host, body = self.hosts[call.host], Body(call)
        self.world.acting(host)
        arguments = Call(host.zfs(), host.driver(), None, check or call.check, host)
        try:
            with locked(host, None, body.params, call.name, None if body.reads or arguments.check_mode else print):
                ended = body.does(arguments)
        except FlexdiskError as exc:
            return {"failed": True, **error(exc)}
        if isinstance(ended, dict):
            return {"failed": True, **ended}
        self.warnings += ended.warnings
        result = {"failed": True, **ended.failure} if ended.failure else ended.result
        reported: Params = json.loads(json.dumps(result))
        return {**reported, "changed": bool(reported.get("changed")) and not call.check}
