# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The loop of the role vm_replica in this process: it does the calls of moves and syncs on simulated nodes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.flexdisk.hypervisor.plugins.action.next_call import TASKS
from ansible_collections.flexdisk.hypervisor.plugins.action.next_turn import FLOWS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import vm_failover
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.moves import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import (
    replica_receive_run,
    replica_send_run,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.arguments import HOST, LOCK
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module import error
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call, locked
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import calls
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError, refusal
from ansible_collections.flexdisk.hypervisor.plugins.modules import (
    replica_info as replica_info_module,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import (
    replica_receive as replica_receive_module,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import (
    replica_send as replica_send_module,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import (
    vm_failover as vm_failover_module,
)
from ansible_collections.flexdisk.hypervisor.plugins.modules import (
    vm_move as vm_move_module,
)

Params = dict[str, Any]


def _move(call: Call, params: Params) -> Any:
    arguments, problems = vm_move.parse(params)
    return refusal(problems) if problems else vm_move.run(call, print, arguments)


def _failover(call: Call, params: Params) -> Any:
    arguments, problems = vm_failover.parse(params)
    return refusal(problems) if problems else vm_failover.run(call, arguments)


def _send(call: Call, params: Params) -> Any:
    arguments, problems = replica_send_run.parse(params)
    given = replica_send_run.Given(params, print)
    return refusal(problems) if problems else replica_send_run.run(call, given, arguments)


def _receive(call: Call, params: Params) -> Any:
    transfers, problems = replica_receive_run.parse(params)
    return refusal(problems) if problems else replica_receive_run.run(call, params, transfers)


BODIES: Mapping[str, tuple[Mapping[str, Any], Callable[[Call, Params], Any]]] = {
    "vm_move": (vm_move_module.OPTIONS, _move),
    "vm_failover": (vm_failover_module.OPTIONS, _failover),
    "replica_send": (replica_send_module.OPTIONS, _send),
    "replica_receive": (replica_receive_module.OPTIONS, _receive),
    "replica_info": (replica_info_module.OPTIONS, replica_info_module.body),
}


class Lost(Exception):
    """A host cannot be reached, and the run ends there."""


class Controller:
    """Does a task to its end. hosts: the nodes by their names; lost: those that cannot be reached."""

    def __init__(self, world: Any, hosts: Mapping[str, Any], lost: frozenset[str] = frozenset()) -> None:
        self.world, self.hosts, self.lost = world, hosts, lost
        self.answers: dict[str, calls.Answer] = {}
        """The last answer to each call, by the name of the call."""
        self.messages: list[str] = []

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
        answer = calls.Answer(calls.kept(call, self._does(call, check)), began, time.time())
        self.answers[call.name] = answer
        return answer

    def _does(self, call: calls.Call, check: bool) -> Params:
        if call.host in self.lost:
            return {"unreachable": True, "msg": f"{call.host} cannot be reached"}
        options, body = BODIES[call.module]
        params = {key: option.get("default") for key, option in {**options, **HOST, **LOCK}.items()}
        given = {key: value for key, value in call.arguments.items() if value is not None}
        assert set(given) <= set(params), call
        if "authorized_keys" in params:  # as module_defaults of a play have it
            given.setdefault("authorized_keys", str(self.world.authorized))
        host = self.hosts[call.host]
        self.world.acting(host)
        what = Call(host.zfs(), host.driver(), None, check or call.check, host)
        reads = what.check_mode or given.get("step", "look") in ("look", "leave", "send")
        params.update(json.loads(json.dumps(given)))
        try:
            with locked(host, None, params, call.name, None if reads else print):
                ended = body(what, params)
        except FlexdiskError as exc:
            return {"failed": True, **error(exc)}
        if isinstance(ended, dict):
            return {"failed": True, **ended}
        result = {"failed": True, **ended.failure} if ended.failure else ended.result
        found: Params = json.loads(json.dumps(result))
        return {**found, "changed": bool(found.get("changed")) and not call.check}
