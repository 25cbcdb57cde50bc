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
    "do": {"type": "str", "choices": ["involve", "follow", "queue", "begin", "end", "tell"], "required": True},
    "request": {"type": "str"},
    "downtime": {"type": "raw"},
    "outlook": {"type": "dict"},
    "memory_lost": {"type": "str", "default": ""},
    "failed": {"type": "dict"},
}


class ActionModule(ControllerAction):
    """The action. What became of other jobs stands with their hosts, in the groups of the stages."""

    arguments = ARGUMENTS
    wants = "what the playbooks of flexdisk.hypervisor give it"

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the result of the task, which fails if nothing may be done."""
        does = {
            "involve": _involve,
            "follow": _follow,
            "queue": self._queue,
            "begin": _begin,
            "end": self._end,
            "tell": _summarize,
        }
        return {"changed": False, **does[given["do"]](given, variables)}

    def _queue(self, _given: _Dict, variables: _Dict) -> _Dict:
        last: _Dict = variables.get("_flexdisk_queue") or {}
        why_not = variables.get("_flexdisk_unplanned") or last.get("unplanned", "")
        plan = carried.Planned(variables.get("flexdisk_move_plan") or {}, why_not)
        approved = carried.Approved(variables["_flexdisk"].get("flexdisk_move_digest", ""), bool(self._task.check_mode))
        stage, forks = variables["_flexdisk_stage"], variables["ansible_forks"]
        made = carried.queued(stage, _hosts(variables), _wanted(variables), plan, approved, forks)
        if made["refused"]:
            raise AnsibleActionFail(made["refused"])
        return made

    def _end(self, given: _Dict, variables: _Dict) -> _Dict:
        if given["failed"] is not None:
            return carried.failed(given["failed"])
        move, check = variables["_flexdisk_job"]["move"], bool(self._task.check_mode)
        return carried.done(move, check, given["downtime"], given["outlook"], given["memory_lost"])


def _involve(given: _Dict, variables: _Dict) -> _Dict:
    to_groups = variables["_flexdisk"].get("flexdisk_move_to_groups", ())
    groups = _host_groups(variables, variables["ansible_play_hosts_all"])
    return {"groups": carried.involved_groups(given["request"], _wanted(variables), to_groups, groups)}


def _follow(_given: _Dict, variables: _Dict) -> _Dict:
    hosts = _hosts(variables)
    others = set(variables["ansible_play_hosts_all"]).difference(host["name"] for host in hosts)
    names = carried.hosts_of_moves(hosts, others)
    return {"hosts": names, "groups": list(_host_groups(variables, names).values())}


def _begin(_given: _Dict, variables: _Dict) -> _Dict:
    ended = {name: known.get("_flexdisk_ended") for name, known in _queued(variables, [variables["_flexdisk_stage"]])}
    why = carried.why_not(variables["_flexdisk_job"], ended)
    if why:
        raise AnsibleActionFail(why)
    return {}


def _summarize(_given: _Dict, variables: _Dict) -> _Dict:
    queue = _queued(variables, carried.STAGES)
    jobs = [(known["_flexdisk_job"], known.get("_flexdisk_ended")) for _host, known in queue]
    return carried.overall_result(jobs, variables["_flexdisk_queue"]["unplanned"])


def _wanted(variables: _Dict) -> Wanted:
    """Return which moves the variables of the playbook mean."""
    given = variables["_flexdisk"]
    return Wanted(
        given.get("flexdisk_move_vms", ()),
        given.get("flexdisk_move_tags", {}),
        given.get("flexdisk_move_from_hosts", ()),
        given.get("flexdisk_move_from_groups", ()),
    )


def _hosts(variables: _Dict) -> t.List[_Dict]:
    """Return the hosts that were to be read, as move_plan takes them."""
    known = (variables["hostvars"][host].get("_vm_placement_told") for host in variables["ansible_play_hosts_all"])
    return [one for one in known if one]


def _host_groups(variables: _Dict, hosts: t.Iterable[str]) -> t.Dict[str, str]:
    return {host: variables["hostvars"][host].get("flexdisk_host_group", "") for host in hosts}


def _queued(variables: _Dict, stages: t.Sequence[str]) -> t.List[t.Tuple[str, t.Any]]:
    """Return the hosts of jobs, each with its variables."""
    names = dict.fromkeys(name for stage in stages for name in variables["groups"].get(f"flexdisk_{stage}", ()))
    return [(name, variables["hostvars"][name]) for name in names]
