# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action check_variables: what the variables of a playbook mean. It runs on the controller and touches no host."""

from __future__ import annotations

import re
import typing as t

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.loader import lookup_loader

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.failures import has_failed
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import slices
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.parse import layout, named_hosts
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import (
    answers,
    specifications,
    templated,
    unknown_variables,
)

_Dict = t.Dict[str, t.Any]

ARGUMENTS: _Dict = {"playbook": {"type": "str", "required": True}}
COMPARES = "flexible_disks_expect_plan"
ENVIRONMENT = "flexdisk_environment"
MORE = ("flexible_disks_plan_only", "flexible_disks_recalculate_quota")
RESULT = re.compile(r"_?flex(disk|ible_disks)_")
LIMITED = re.compile(r"[^\s,:]")
NAME = re.compile(r"[A-Za-z0-9]+(_|$)")

specifications()  # Ansible loads this file before it forks, so the process of each host has them


class ActionModule(ControllerAction):
    """The action. It templates the variables of the playbook, and no others: they may hold what fails or is slow."""

    arguments = ARGUMENTS

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return the variables that are set, as they are meant; failed, with all that is wrong with them."""
        playbook, readers = given["playbook"], specifications()
        if playbook not in readers.arguments:
            raise AnsibleError("check_variables wants the name of a playbook of flexdisk.hypervisor")
        specification = slices.specified(readers.arguments[playbook], variables)
        values = templated(self._templar, specification, _of_host(variables, specification, variables))
        checked = answers(values, specification)
        meant = _of_host(checked["variables"], specification, variables)
        unclear: t.List[str] = []
        if not checked["problems"]:
            meant, unclear = slices.joined(meant, specification)
        problems = [*checked["problems"], *unclear, *_limit(variables)]
        names = {slices.base_name(name) for name in filter(NAME.match, variables)}
        problems += unknown_variables(names, playbook, readers)
        problems += self._foreign(meant, variables)
        if not problems and playbook == "list_disks":
            problems = layout.problems(meant, specification["flexdisk_list_fields"]["choices"])
        groups = variables.get("groups") or {}
        hosts = groups.get(slices.GROUP, ())
        if not problems:
            hidden = slices.refusal(playbook, meant, len(hosts))
            problems = [hidden] if hidden else []
        if problems:
            return {"failed": True, "msg": ". ".join(problems)}
        secret = any(map(readers.secret.match, values))
        stands: _Dict = {"play": variables.get("ansible_play_name"), "playbook": playbook}
        failed = [name for name in filter(RESULT.match, variables) if has_failed(variables[name])]
        if failed:
            stands["failed_before"] = failed
        if playbook in slices.HAND_ON:
            stands["suffix"], stands["elsewhere"] = slices.suffix(meant, hosts), {}
            if stands["suffix"]:
                meant, stands["elsewhere"] = slices.of_inventory(meant, groups["all"])
        if playbook == "converge":
            stands["asks_more"] = self._asks_more(variables)
        return {**_without_secrets(meant), "stands": stands, "_ansible_no_log": secret}

    def _asks_more(self, variables: _Dict) -> bool:
        """Whether the role flexible_disks is asked for a plan, for a comparison with one, or for the quota of other
        VMs.
        """
        wanted = templated(self._templar, MORE, variables).values()
        return COMPARES in variables or any(boolean(str(value), strict=False) for value in wanted)

    def _foreign(self, meant: _Dict, variables: _Dict) -> t.List[str]:
        """Return what is wrong with hosts that variables name. Modules run there, on localhost on the controller."""
        if not named_hosts.named(meant):
            return []
        more = self._templar.template(variables.get("flexdisk_hosts")) or []
        patterns = ["hypervisors", *([more] if isinstance(more, str) else more)]
        lookup = lookup_loader.get("ansible.builtin.inventory_hostnames", loader=self._loader, templar=self._templar)
        return named_hosts.problems(meant, lookup.run(patterns, variables=variables))


def _without_secrets(meant: _Dict) -> _Dict:
    """Reduce environment variables to their names: what a task returns is shown, and kept in the events of AWX."""
    return {**meant, ENVIRONMENT: sorted(meant[ENVIRONMENT])} if ENVIRONMENT in meant else meant


def _of_host(values: _Dict, specification: t.Mapping[str, t.Mapping[str, t.Any]], variables: _Dict) -> _Dict:
    """Reduce dictionaries by host to the entry of this host. The first host of the play checks and keeps them whole."""
    host = variables.get("inventory_hostname")
    if host == next(iter(variables.get("ansible_play_hosts_all") or ()), host):
        return values
    reduced = {
        name: {host: values[name][host]} if host in values[name] else {}
        for name, wanted in specification.items()
        if wanted.get("by_host") and isinstance(values.get(name), t.Mapping)
    }
    return {**values, **reduced}


def _limit(variables: _Dict) -> t.List[str]:
    """Ansible takes every host for an empty limit, and the variable of a shell may have been empty."""
    limit = variables.get("ansible_limit", "all") or ""
    return [] if LIMITED.search(limit) else ["--limit is empty. Leave it out to take all hosts"]
