# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_plan: the steps of a rolling update. It runs on the controller and touches no host."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.declared import parse_group
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import CLASSES
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.plan import (
    GroupPlan,
    plan_group,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.report import result
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.roll import (
    CREATE,
    FINISH,
    HEAL,
    REMOVE,
    RETURN,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import refusal
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

MEMBER: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "host": {"type": "str"},
    "there": {"type": "bool", "default": True},
    "in_service": {"type": "bool", "default": True},
    "change": {"type": "str", "choices": list(CLASSES), "default": CLASSES[0]},
    "why": {"type": "list", "elements": "str"},
    "marked": {"type": "bool", "default": False},
    "reachable": {"type": "bool", "default": True},
    "destroys": {"type": "int", "default": 0},
    "loses": {"type": "list", "elements": "str"},
    "keeps": {"type": "list", "elements": "str"},
}
ACTION: t.Dict[str, t.Any] = {
    "member": {"type": "str", "required": True},
    "do": {"type": "str", "choices": [*CLASSES[1:4], RETURN, FINISH, HEAL, CREATE, REMOVE], "required": True},
    "host": {"type": "str"},
    "destroys": {"type": "int"},
}
ARGUMENTS: t.Dict[str, t.Any] = {
    "name": {"type": "str", "required": True},
    "size": {"type": "int", "required": True},
    "policy": {"type": "dict"},
    "members": {"type": "list", "elements": "dict", "options": MEMBER, "required": True},
    "hosts": {"type": "raw"},
    "keeps_disks": {"type": "bool", "default": True},
    "only_size": {"type": "bool", "default": False},
    "failed": {"type": "list", "elements": "str"},
    "after": {"type": "list", "elements": "dict", "options": ACTION},
}


class ActionModule(ControllerAction):
    """The action. All that it knows of a group are its arguments."""

    arguments = ARGUMENTS

    def decide(self, given: t.Dict[str, t.Any], variables: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        """Return the plan as the result of a task, which fails for a group that is refused."""
        declared, problems = parse_group(given)
        plan: t.Optional[GroupPlan] = None
        if not problems:
            plan = plan_group(declared.group, declared.policy, declared.homes)
            problems = list(plan.problems)
        if plan is None or problems:
            refused = {**refusal(problems, noun=""), "failures": sorted(declared.group.failed)}
            return {**refused, "failed": True}
        return result(declared.group, plan)
