# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action start_order: whom the playbook start_host asks, and what it tells each host. It touches no host."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import starting
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

_Dict = t.Dict[str, t.Any]

ARGUMENTS: _Dict = {
    "do": {"type": "str", "choices": ["ask", "decide"], "required": True},
    "every": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(ControllerAction):
    """The action. Of each host of the play it knows the results that its tasks have registered."""

    arguments = ARGUMENTS
    wants = "what the playbook start_host gives it"

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the result of the task: hosts to ask, or what each host of the play is told."""
        every = variables["hostvars"]
        known = {host: every[host] for host in variables["ansible_play_hosts"]}
        looks = {host: one.get("_flexdisk_seen") or {} for host, one in known.items()}
        if given["do"] == "ask":
            others = starting.hosts_to_ask(looks, given["every"], every)
            shares = {host: others[number :: len(looks)] for number, host in enumerate(looks)}
            return {"changed": False, "hosts": shares}
        answers = {host: one.get("_flexdisk_heard") or {} for host, one in known.items()}
        for one in known.values():
            answers.update({str(said["item"]): said for said in one.get("_flexdisk_asked", {}).get("results", ())})
        return {"changed": False, "claims": starting.claims_for(looks, answers)}
