# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action move_jobs: the next steps and messages of playbooks that carry out moves. It touches no host."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement import carried
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.execution import Wanted
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

_Dict = t.Dict[str, t.Any]

ARGUMENTS: _Dict = {
    "do": {"type": "str", "choices": ["queue", "begin", "end", "tell"], "required": True},
    "stage": {"type": "str", "choices": list(carried.STAGES)},
    "hosts": {"type": "list", "elements": "dict", "default": []},
    "vms": {"type": "list", "elements": "str", "default": []},
    "vm_tags": {"type": "dict", "default": {}},
    "from_hosts": {"type": "list", "elements": "str", "default": []},
    "from_groups": {"type": "list", "elements": "str", "default": []},
    "plan": {"type": "dict", "default": {}},
    "digest": {"type": "str", "default": ""},
    "forks": {"type": "int", "default": 5},
    "job": {"type": "dict"},
    "downtime": {"type": "raw"},
    "outlook": {"type": "dict"},
    "failed": {"type": "dict"},
    "last": {"type": "dict", "default": {}},
    "unplanned": {"type": "str", "default": ""},
}


class ActionModule(ControllerAction):
    """The action. What became of other jobs stands with their hosts, in the groups of the stages."""

    arguments = ARGUMENTS

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the result of the task, which fails if nothing may be done."""
        does = {"queue": self._queue, "begin": self._begin, "end": self._end, "tell": self._summarize}
        return {"changed": False, **does[given["do"]](given, variables)}

    def _queue(self, given: _Dict, _variables: _Dict) -> _Dict:
        wanted = Wanted(given["vms"], given["vm_tags"], given["from_hosts"], given["from_groups"])
        plan = carried.Planned(given["plan"], given["unplanned"] or given["last"].get("unplanned", ""))
        approved = carried.Approved(given["digest"], bool(self._task.check_mode))
        made = carried.queued(given["stage"], given["hosts"], wanted, plan, approved, given["forks"])
        if made["refused"]:
            raise AnsibleActionFail(made["refused"])
        return made

    def _begin(self, given: _Dict, variables: _Dict) -> _Dict:
        ended = {name: known.get("_flexdisk_ended") for name, known in _queued(variables, [given["stage"]])}
        why = carried.why_not(given["job"], ended)
        if why:
            raise AnsibleActionFail(why)
        return {}

    def _end(self, given: _Dict, _variables: _Dict) -> _Dict:
        if given["failed"] is not None:
            return carried.failed(given["failed"])
        return carried.done(given["job"]["move"], bool(self._task.check_mode), given["downtime"], given["outlook"])

    def _summarize(self, given: _Dict, variables: _Dict) -> _Dict:
        queue = _queued(variables, carried.STAGES)
        jobs = [(known["_flexdisk_job"], known.get("_flexdisk_ended")) for _host, known in queue]
        return carried.overall_result(jobs, given["last"].get("unplanned", ""))


def _queued(variables: _Dict, stages: t.Sequence[str]) -> t.List[t.Tuple[str, t.Any]]:
    """Return the hosts of jobs, each with its variables."""
    names = dict.fromkeys(name for stage in stages for name in variables["groups"].get(f"flexdisk_{stage}", ()))
    return [(name, variables["hostvars"][name]) for name in names]
