# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action start_order: whom the playbook start_host asks, and what it tells each host. It touches no host."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import starting
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Dict[str, t.Any]

ARGUMENTS: _Dict = {
    "do": {"type": "str", "choices": ["ask", "decide"], "required": True},
    "every": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(ActionBase):
    """The action. Of each host of the play it knows the results that its tasks have registered."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return the result of the task: hosts to ask, or what each host of the play is told."""
        _core.check()
        start: _Dict = super().run(tmp, task_vars)
        given: _Dict = self.validate_argument_spec(argument_spec=ARGUMENTS)[1]  # type: ignore[no-untyped-call]
        variables = task_vars or {}
        every = variables["hostvars"]
        known = {host: every[host] for host in variables["ansible_play_hosts"]}
        looks = {host: one.get("_flexdisk_seen") or {} for host, one in known.items()}
        if given["do"] == "ask":
            others = starting.hosts_to_ask(looks, given["every"], every)
            shares = {host: others[number :: len(looks)] for number, host in enumerate(looks)}
            return {**start, "changed": False, "hosts": shares}
        answers = {host: one.get("_flexdisk_heard") or {} for host, one in known.items()}
        for one in known.values():
            answers.update({str(said["item"]): said for said in one.get("_flexdisk_asked", {}).get("results", ())})
        return {**start, "changed": False, "claims": starting.claims_for(looks, answers)}
