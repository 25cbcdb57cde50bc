# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action move_plan: which VM goes where. It runs on the controller and touches no host."""

from __future__ import annotations

import time
import typing as t

from ansible.errors import AnsibleActionFail

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.answers import (
    answer,
    job_dependencies,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.asked import new_vms
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.declared import (
    TAKES,
    parse_request,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.facts import (
    Settings,
    read_facts,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    POLICIES,
    PREFERRED,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.report import result
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import Problems, refusal
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import check_names
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

HOST: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "group": {"type": "str"},
    "info": {"type": "dict"},
    "error": {"type": "str"},
    "drained": {"type": "bool", "default": False},
    "tags": {"type": "list", "elements": "str"},
    "locations": {"type": "list", "elements": "str"},
}
GROUP: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "alloc_policy": {"type": "str", "choices": list(POLICIES), "default": PREFERRED},
    "cpu_ratio": {"type": "float"},
}
NEW_VM: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "memory": {"type": "raw"},
    "vcpus": {"type": "int"},
    "disks": {"type": "dict"},
    "running": {"type": "bool", "default": True},
    "tags": {"type": "dict"},
    "spread": {"type": "str"},
    "hosts": {"type": "dict"},
}
ARGUMENTS: t.Dict[str, t.Any] = {
    "request": {"type": "str", "choices": list(TAKES), "required": True},
    "hosts": {"type": "list", "elements": "dict", "options": HOST, "required": True},
    "host_groups": {"type": "list", "elements": "dict", "options": GROUP},
    "vms": {"type": "list", "elements": "str"},
    "vm_tags": {"type": "dict"},
    "from_hosts": {"type": "list", "elements": "str"},
    "from_groups": {"type": "list", "elements": "str"},
    "to_groups": {"type": "list", "elements": "str"},
    "new_vms": {"type": "list", "elements": "dict", "options": NEW_VM},
    "answers": {"type": "dict"},
    "exclusive_tags": {"type": "list", "elements": "str"},
    "allowed_moves": {
        "type": "list",
        "elements": "dict",
        "options": {"from": {"type": "str", "required": True}, "to": {"type": "str", "required": True}},
    },
    "redundancy": {"type": "bool", "default": False},
    "max_age": {"type": "int", "default": 900},
    "max_moves": {"type": "int"},
    "min_gain": {"type": "float"},
    "moves_per_host": {"type": "int", "default": 0},
    "moves_between_groups": {"type": "int", "default": 0},
    "allow_partial": {"type": "bool", "default": False},
}


class ActionModule(ControllerAction):
    """The action. All that it knows of hosts and VMs are its arguments."""

    arguments = ARGUMENTS

    def decide(self, given: t.Dict[str, t.Any], variables: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        """Return the plan as the result of a task, which fails for a request that is refused."""
        plan = move_plan(given, time.time())
        return {**plan, "failed": "error_code" in plan}

    def _checked(self) -> t.Dict[str, t.Any]:
        """Check the options, with what answers say as new_vms. Entries of answers can have secrets, and Ansible gives
        callbacks the options of a task that fails, too.
        """
        answers = self._task.args.pop("answers", None)
        if answers is None:
            return super()._checked()
        if self._task.args.get("new_vms") is not None:
            raise AnsibleActionFail("parameters are mutually exclusive: new_vms|answers")
        self._task.args["new_vms"] = _answered(answers)
        return super()._checked()


def _answered(answers: t.Mapping[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    """Return the new VMs, as hosts have answered."""
    try:
        return new_vms(answers)
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        wanted = "answers wants vms, checks (results of flexdisk.hypervisor.vm) and beside for each host"
        raise AnsibleActionFail(f"{wanted} ({exc!r})") from exc


def move_plan(arguments: t.Mapping[str, t.Any], now: float) -> t.Dict[str, t.Any]:
    """Return the keys of the result. now: seconds since 1970."""
    problems = Problems("")
    exclusive = tuple(arguments["exclusive_tags"] or ())
    moves = frozenset((pair["from"], pair["to"]) for pair in arguments["allowed_moves"] or ())
    check_names(arguments, problems, text=("info", "error"))
    settings = Settings(now, arguments["max_age"], exclusive, moves)
    facts = read_facts(arguments["hosts"], arguments["host_groups"] or (), settings, problems)
    for key in ("max_age", "moves_per_host", "moves_between_groups"):
        if arguments[key] < 0:
            problems.add("InvalidArgument", f"{key} is {arguments[key]}, but must not be negative")
    request = parse_request(arguments, facts, exclusive, problems)
    if problems:
        return refusal(problems, noun="")
    planned = answer(facts.known, request)
    after = job_dependencies(facts.known, planned.jobs, arguments["moves_per_host"], arguments["moves_between_groups"])
    return result(facts, request, planned, after, arguments["allow_partial"])
