# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action guest_batches: which guests grow in which batch. It runs on the controller and touches no host."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.loader import lookup_loader

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet import guest_batches
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction

ARGUMENTS: t.Dict[str, t.Any] = {
    "do": {"type": "str", "required": True, "choices": ["choose", "look", "begin", "end"]},
    "batch": {"type": "dict"},
}
NOT_FOR_ALL = (
    "The inventory sets flexdisk_guests or flexdisk_group, but not so that it holds for all guests of this run. "
    "Set it on the command line with -e"
)

_Dict = t.Dict[str, t.Any]


class ActionModule(ControllerAction):
    """The action. It reads the variables of guests and of their hypervisors once for the play."""

    arguments = ARGUMENTS
    wants = "what the playbooks of flexdisk.hypervisor give it"

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the result of the task."""
        does = {"choose": self._choose, "look": _look, "begin": _begin, "end": self._end}
        return {"changed": False, **does[given["do"]](variables, given["batch"] or {})}

    def _choose(self, variables: _Dict, _batch: _Dict) -> _Dict:
        """Return the batches. Variables that choose guests must hold for all of them."""
        every = variables["ansible_play_hosts_all"]
        known = {host: variables["hostvars"][host] for host in every}
        meant = {host: known[host].get("_flexdisk") or {} for host in every}
        named = [one["flexdisk_group"] for one in meant.values() if "flexdisk_group" in one]
        if len(named) not in (0, len(every)) or len(set(named)) > 1 or self._strays(meant, variables):
            raise AnsibleActionFail(NOT_FOR_ALL)
        # The pattern by default may also fit hosts that are no guests, such as a hypervisor.
        usual = {} if "flexdisk_guests" in variables["_flexdisk"] else {"reason": "it is no VM of the inventory plugin"}
        vms = {host: known[host].get("flexdisk_vm", usual) for host in every}
        hypervisors = dict.fromkeys(vm["hypervisor"] for vm in vms.values() if vm.get("hypervisor"))
        group, declared = variables["_flexdisk"].get("flexdisk_group"), []
        if group is not None:  # groups are declared for hypervisors, where guests do not see them
            homes = [variables["hostvars"][host] for host in hypervisors if host in variables["hostvars"]]
            declared = [one for host in (*known.values(), *homes) for one in host.get("flexdisk_groups", ())]
        unseen = sorted(host for host in hypervisors if host not in variables["hostvars"])
        growth = guest_batches.batches(vms, group, declared, unseen)
        if growth["problems"]:
            raise AnsibleActionFail(". ".join(growth["problems"]))
        return growth

    def _strays(self, meant: t.Mapping[str, _Dict], variables: _Dict) -> bool:
        """Return whether flexdisk_guests of a host means others than this host."""
        lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=self._loader, templar=self._templar)
        patterns = {host: meant[host].get("flexdisk_guests") for host in variables["ansible_play_hosts"]}
        chosen = {one: lookup.run([one], variables=variables) for one in set(patterns.values()) if one is not None}
        return any(host not in chosen[pattern] for host, pattern in patterns.items() if pattern is not None)

    def _end(self, variables: _Dict, batch: _Dict) -> _Dict:
        """Return how long to wait after a batch: not if it has changed nothing, nor if the next one is not begun."""
        there = set(variables["ansible_play_hosts"]).union(variables["_flexdisk_lost"]["failed_before"])
        results = [variables["hostvars"][host].get("guest_growth_result") or {} for host in batch["guests"]]
        worked = not there.issuperset(batch["guests"]) or any(result.get("changed") for result in results)
        waits = worked and not self._task.check_mode and not _begin(variables, batch)["stopped_by"]
        return {"pause": batch["pause"] if waits else 0}


def _look(variables: _Dict, _batch: _Dict) -> _Dict:
    """Return which guests are touched, and which are lost."""
    growth, hosts = variables["_flexdisk_growth"], variables["ansible_play_hosts"]
    planned = guest_batches.planned_guests(growth)
    failed = [host for host in planned if host not in hosts]
    pings = {host: variables["hostvars"][host].get("_flexdisk_reached") or {} for host in planned if host in hosts}
    unreached = [host for host, ping in pings.items() if "ping" not in ping]
    text = guest_batches.lines(growth, unreached, failed)
    return {"lines": text, "unreached": unreached, "failed_before": failed}


def _begin(variables: _Dict, _batch: _Dict) -> _Dict:
    """Return the guests that keep a batch from being begun."""
    healthy = set(variables["ansible_play_hosts"]).difference(variables["_flexdisk_lost"]["unreached"])
    of_all = "ansible_limit" not in variables and "flexdisk_guests" not in variables["_flexdisk"]
    return {"stopped_by": guest_batches.too_many_lost(variables["_flexdisk_growth"], healthy, of_all)}
