# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action next_turn: decides what all hosts of a play do next, and does the part of one host."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Answer,
    Answers,
    Call,
    CallFailed,
    PlayFlow,
    Run,
    Turn,
    next_turn,
    readable_part,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.recovery import (
    Recovery,
    recover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.relocation import (
    Relocation,
    relocate,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _calling, _core

_Dict = t.Dict[str, t.Any]

FLOWS: t.Mapping[str, t.Callable[[_Dict, Run], PlayFlow]] = {
    "relocate": lambda given, run: relocate(Relocation(**given), run),
    "recover": lambda given, run: recover(Recovery(**given), run),
}


class ActionModule(ActionBase):
    """The action. A decision is hidden, for it has arguments and answers that can hold secrets; a refusal has none."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the next turn, failed if the flow is stopped; with a turn, the result of this host's module."""
        _core.check()
        start: _Dict = super().run(tmp, task_vars)
        variables = task_vars or {}
        begins = self._task.args["do"] == "begin"
        last: _Dict = {} if begins else variables["_flexdisk_turn"]
        if self._task.args["do"] == "call":
            return {**start, **self._call(last, variables)}
        every = variables["hostvars"]
        memory = (
            [] if begins else [*last["memory"], _heard(last, {host: _answer(every, host) for host in last["calls"]})]
        )
        begun = last.get("begun") or repr(time.time())
        return {**start, "_ansible_no_log": True, "begun": begun, **self._decide(memory, variables)}

    def _call(self, turn: _Dict, variables: _Dict) -> _Dict:
        """Do the call of this host. Its answer is told beside the result, as turn."""
        call = Call(**turn["calls"][variables["inventory_hostname"]])
        began = time.time()
        result = _calling.run_call(self, call, variables)
        failed = bool(result.get("failed"))
        if failed and call.may_fail:
            result["failed"] = False  # without it, Ansible would go by rc
            result.pop("exception", None)
        ended = {"failed": failed, "began": began, "ended": time.time()}
        return {**result, "turn": {**_identity(turn), **ended}}

    def _decide(self, memory: t.Sequence[_Dict], variables: _Dict) -> _Dict:
        """Return what comes next after these answers."""
        args = self._task.args
        run = Run(bool(self._task.check_mode), bool(self._task.diff), lambda host: _calling.options(variables, host))
        turn = next_turn(FLOWS[args["flow"]](args["arguments"], run), [_answers(one) for one in memory])
        shown = isinstance(turn.failure, CallFailed) and not turn.failure.call.hidden  # by its host
        if turn.failure is not None and not shown:
            raise AnsibleActionFail(str(turn.failure))
        return {"memory": memory, "number": len(memory), **_next_tasks(turn, variables["ansible_play_hosts"])}


def _answer(every: t.Mapping[str, t.Any], host: str) -> _Dict:
    """Return the result of a host's last call, from variables: it has secrets, and arguments can be shown."""
    return every[host].get("_flexdisk_heard") or {}


def _identity(turn: _Dict) -> _Dict:
    """Return what identifies a turn in a run of several plays."""
    return {key: turn.get(key) for key in ("number", "begun")}


def _answers(remembered: _Dict) -> t.Union[Answer, Answers]:
    """Return the answers to a turn, or the one to its only call."""
    answers = {host: Answer(**one) for host, one in remembered["answers"].items()}
    return answers if remembered["at_once"] else next(iter(answers.values()))


def _heard(last: _Dict, heard: t.Mapping[str, _Dict]) -> _Dict:
    """Return what to remember of the answers to a turn. Only a host that Ansible calls unreachable is lost: one without
    an answer may be there, and hang.
    """
    answers: _Dict = {}
    for host, call in last["calls"].items():
        result = heard.get(host) or {}
        turn = result.get("turn") or {}
        if _identity(turn) == _identity(last) and not result.get("unreachable"):
            readable = readable_part(Call(**call), {**result, "failed": turn["failed"]})
            answers[host] = {"result": readable, "began": turn["began"], "ended": turn["ended"]}
            continue
        how = "unreachable" if result.get("unreachable") else "failed"
        why = result.get("msg") if result.get("unreachable") or not turn else ""
        usual = (
            "it cannot be reached" if result.get("unreachable") else "it gave no answer; see what is said of it above"
        )
        answers[host] = {"result": {how: True, "msg": why or usual}, "began": 0.0, "ended": 0.0}
    return {"at_once": last["at_once"], "answers": answers}


def _next_tasks(turn: Turn, hosts: t.Sequence[str]) -> _Dict:
    """Return the input of the next tasks: the message and its host, the name of the task, and each host's call."""
    tasks: _Dict = {"calls": {}, "result": turn.result or {}, "title": "Say nothing", "says": "", "about": ""}
    if turn.says is not None:
        about = turn.says.host if turn.says.host in hosts else hosts[0]
        tasks.update(title=turn.says.name, says=turn.says.text, about=about)
    calls = turn.at_once.calls if turn.at_once is not None else [turn.call] if turn.call is not None else []
    if calls:
        one = calls[0]
        tasks.update(name=one.name, hidden=one.hidden, may_be_lost=one.may_be_lost, at_once=turn.at_once is not None)
        tasks["calls"] = {call.host: {**call._asdict(), "arguments": dict(call.arguments)} for call in calls}
    return tasks
