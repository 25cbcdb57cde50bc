# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How actions run others on the host of their task."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Call
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

PREFIX = "flexdisk.hypervisor."

_Dict = t.Dict[str, t.Any]


def run_action(action: ActionBase, name: str, options: _Dict, variables: _Dict, **keywords: bool) -> _Dict:
    """Return the result of an action or a module, as its own task would have it. keywords: of that task."""
    task = action._task.copy()
    task.action, task.args = name, _core.with_defaults(name, action._task, options, action._templar)
    for keyword, value in keywords.items():
        setattr(task, keyword, value)
    loader = action._shared_loader_obj.action_loader
    module = loader.get(
        name if loader.has_plugin(name) else "ansible.legacy.normal",
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    result: _Dict = module.run(task_vars=variables)
    return result


def run_call(action: ActionBase, call: Call, variables: _Dict) -> _Dict:
    """Return the result of the module of a call."""
    task = action._task
    check_mode, no_log = task.check_mode or call.check, task.no_log or call.hidden
    try:
        result = run_action(action, PREFIX + call.module, call.options, variables, check_mode=check_mode, no_log=no_log)
    except AnsibleConnectionFailure as exc:
        if not call.may_be_lost:
            raise
        return {"unreachable": True, "msg": str(exc)}
    except AnsibleError as exc:
        return {"failed": True, "msg": str(exc)}
    return {**result, "changed": bool(result.get("changed")) and not call.check}


def options(variables: _Dict, host: str) -> t.Optional[_Dict]:
    """Return the options of modules for a host by the inventory."""
    if host not in variables["hostvars"]:
        return None
    known = variables["hostvars"][host]
    hypervisor = known.get("flexible_disks_hypervisor") or "auto"
    return {"hypervisor": hypervisor, "libvirt_uri": known.get("flexible_disks_libvirt_uri") or "qemu:///system"}
