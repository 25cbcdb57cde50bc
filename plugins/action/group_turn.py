# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action group_turn: what the role instance_group does next. It runs on the controller and touches no host."""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.memory import TurnInput
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.turn import take
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

ARGUMENTS: t.Dict[str, t.Any] = {
    "group": {"type": "dict", "required": True},
    "last": {"type": "dict", "default": {}},
    "answers": {"type": "dict", "default": {}},
    "serving": {"type": "list", "elements": "str", "default": []},
    "bad": {"type": "list", "elements": "str", "default": []},
    "placed": {"type": "dict", "default": {}},
}
HOOKS = ("before_step", "before_member", "after_member", "after_step")


class ActionModule(ControllerAction):
    """The action. What a turn is to do can hold secrets of the template, so nobody sees it; a refusal holds none."""

    arguments = ARGUMENTS
    wants = "what flexdisk.hypervisor.instance_group gives it"

    def decide(self, given: t.Dict[str, t.Any], variables: t.Dict[str, t.Any]) -> t.Dict[str, t.Any]:
        """Return the next turn as the result of a task, which fails if the group is refused."""
        heard = {key: given[key] for key in ("answers", "serving", "bad", "placed")}
        hosts, check_mode = list(variables["ansible_play_hosts"]), self._task.check_mode
        now = TurnInput(time.time(), hosts, missing=_missing(given["group"]), check_mode=check_mode, **heard)
        turn = take(given["group"], given["last"], now)
        return {"_ansible_no_log": not turn.refused, **turn.result()}


def _missing(group: t.Mapping[str, t.Any]) -> t.List[str]:
    """Return the task files that are not there. Those whose place depends on where they are named are not checked."""
    files = [path for key in HOOKS for path in group[key]] + list(group["gate"].get("tasks") or ())
    return [path for path in files if os.path.isabs(path) and not os.path.isfile(path)]
