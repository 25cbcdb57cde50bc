# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action host_order: what a playbook does on which host. It runs on the controller and touches no host."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.order import Play, decide
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.playbooks import PLAYBOOKS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import cut
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

ARGUMENTS: t.Dict[str, t.Any] = {
    "playbook": {"type": "str", "required": True, "choices": sorted(PLAYBOOKS)},
    "read": {"type": "bool", "default": False},
    "orphans": {"type": "bool", "default": False},
    "placed": {"type": "dict"},
}
SECRET = ("create_vm",)  # what new VMs are given can be

_Dict = t.Dict[str, t.Any]


class ActionModule(ControllerAction):
    """The action. Of each host of the play it knows the variables, and the results that its tasks have registered."""

    arguments = ARGUMENTS
    wants = "what the playbooks of flexdisk.hypervisor give it"

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the order as the result of a task, which fails if the playbook refuses what was asked for."""
        order = decide(PLAYBOOKS[given["playbook"]], _play(variables, given))
        if order.problems:
            *others, last = cut(order.problems)
            texts = [text if text.endswith(".") else f"{text}." for text in others]
            return {"failed": True, "msg": " ".join([*texts, last])}
        return {"_ansible_no_log": given["playbook"] in SECRET, **dataclasses.asdict(order)}


def _first(variables: _Dict) -> _Dict:
    """Return the variables of the playbook for its first host, which alone has those by host for all hosts."""
    first = variables["ansible_play_hosts_all"][0]
    return t.cast("_Dict", variables["hostvars"][first].get("_flexdisk") or {})


def _play(variables: _Dict, args: _Dict) -> Play:
    hosts, every = list(variables["ansible_play_hosts"]), variables["ansible_play_hosts_all"]
    known = {host: variables["hostvars"][host] for host in hosts}
    looked = [known[host].get("_flexdisk_orphans") or {} for host in hosts] if args["orphans"] else []
    return Play(
        {host: known[host]["_flexdisk"] for host in hosts},
        {host: known[host]["_flexdisk_read"] for host in hosts} if args["read"] else {},
        [host for host in every if host not in hosts],
        [disk for result in looked for disk in result.get("disks", ())] if args["orphans"] else None,
        approved=_first(variables).get("flexdisk_plan_digests") or {},
        inventory_hosts=variables["groups"]["all"],
        placed=args["placed"],
    )
