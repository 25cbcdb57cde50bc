# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action next_call: does one call of a move or a sync on the host of the task, and returns which call is next."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Answer,
    CallFailed,
    Flow,
    Run,
    Turn,
    next_turn,
    readable_part,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.move_calls import (
    Move,
    move_vm,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.restore_calls import (
    Restore,
    restore_disks,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.sync_arguments import Sync
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.sync_calls import (
    give_up_replicas,
    keep_replicas,
    replicate,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _calling, _core

_Dict = t.Dict[str, t.Any]
_Flow = t.Callable[[_Dict, Run], Flow]

TASKS: t.Mapping[str, _Flow] = {
    "keep": lambda given, run: keep_replicas(Sync(**given), run),
    "replicate": lambda given, run: replicate(Sync(**given), run),
    "give_up": lambda given, run: give_up_replicas(Sync(**given), run),
    "restore": lambda given, run: restore_disks(Restore(**{**given, "sync": Sync(**given["sync"])}), run),
    "move": lambda given, run: move_vm(Move(**{**given, "sync": Sync(**given["sync"])}), run),
}


class ActionModule(ActionBase):
    """The action. The answers to earlier calls come as its own results, those with secrets apart from the others."""

    _supports_check_mode = True
    _supports_diff = True

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the result of the module, with what is next. It fails if the task ends with that module's failure."""
        _core.check()
        start: _Dict = super().run(tmp, task_vars)
        variables = task_vars or {}
        shown = self._task.args.get("shown")
        if shown is None:
            begun = repr(time.time())
            return {**start, "answers": {}, "next": {**_next_task(self._turn(variables, {})), "begun": begun}}
        hidden = self._task.args.get("hidden") or {}
        if not hidden or hidden["next"]["begun"] != shown["next"]["begun"]:  # that of an earlier run in this play
            hidden = {"answers": {}}
        return {**start, **self._next(variables, shown, hidden["answers"])}

    def _next(self, variables: _Dict, shown: _Dict, hidden: _Dict) -> _Dict:
        """Do the call that is next after these answers."""
        answers = {**shown["answers"], **hidden}
        call = self._turn(variables, answers).call
        if call is None:
            raise AnsibleError("next_call: there is no call left")
        began = time.time()
        result = _calling.run_call(self, call, variables)
        if result.get("unreachable") and not call.may_be_lost:
            return result
        answer = {str(len(answers)): {"result": readable_part(call, result), "began": began, "ended": time.time()}}
        turn = self._turn(variables, {**answers, **answer})
        if isinstance(turn.failure, CallFailed) and turn.failure.call == call and not call.hidden:
            return result
        for key in ("unreachable", "exception"):
            result.pop(key, None)
        if result.get("failed"):
            result["failed"] = False  # without it, Ansible would go by rc
        following = {**_next_task(turn), "begun": shown["next"]["begun"]}
        return {**result, "answers": {**(hidden if call.hidden else shown["answers"]), **answer}, "next": following}

    def _turn(self, variables: _Dict, answers: t.Mapping[str, _Dict]) -> Turn:
        """Return what is next after these answers, by their numbers."""
        args = self._task.args
        run = Run(bool(self._task.check_mode), bool(self._task.diff), lambda host: _calling.options(variables, host))
        given = [Answer(**answers[str(number)]) for number in range(len(answers))]
        return next_turn(TASKS[args["task"]](args["arguments"], run), given)


def _next_task(turn: Turn) -> _Dict:
    """Return what the next task needs: its file among the tasks of the role vm_replica, its name and its host."""
    task: _Dict = {"file": "done", "result": turn.result}
    if turn.call is not None:
        task = {"file": "hidden" if turn.call.hidden else "call", "name": turn.call.name, "host": turn.call.host}
    elif turn.failure is not None:
        task = {"file": "fail", "msg": str(turn.failure)}
    if turn.says is None:
        return task
    return {**task, "file": "say", "then": task["file"], "title": turn.says.name, "says": turn.says.text}
