# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action show_results: shows what the tasks of a playbook have registered. It runs on the controller."""

from __future__ import annotations

import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    ABOUT,
    Registered,
    Shown,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._controller import ControllerAction
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._report_pages import Pages, write_pages

ARGUMENTS: t.Dict[str, t.Any] = {
    "about": {"type": "str", "required": True, "choices": [*sorted(ABOUT), "pages"]},
    "results": {"type": "list", "elements": "str", "required": True},
    "path": {"type": "str"},
    "page_hosts": {"type": "int", "default": 100},
}

_Dict = t.Dict[str, t.Any]


class ActionModule(ControllerAction):
    """The action. Of other hosts it reads only what a playbook shows together, once for the play."""

    _requires_connection = True  # pages are copied to it
    arguments = ARGUMENTS
    rules = {"required_if": [["about", "pages", ["path"]]]}  # noqa: RUF012 - nobody changes it
    wants = "what the playbooks of flexdisk.hypervisor give it"

    def decide(self, given: _Dict, variables: _Dict) -> _Dict:
        """Return lines as the message of a task, which fails if the playbook has to; skipped without any line."""
        registered = _registered(variables, given["results"])
        if given["about"] != "pages":
            return _result(ABOUT[given["about"]](registered))
        pages = Pages(given["path"], given["page_hosts"])
        return {**write_pages(self, registered, pages, variables), "_ansible_verbose_always": True}


def _registered(variables: _Dict, names: t.Sequence[str]) -> Registered:
    host = variables["inventory_hostname"]
    return Registered(
        list(variables["ansible_play_hosts_all"]),
        list(variables["ansible_play_hosts"]),
        lambda one: variables if one == host else variables["hostvars"][one],
        host,
        names,
    )


def _result(shown: Shown) -> _Dict:
    if shown.problem:
        return {"failed": True, "msg": shown.problem, "lines": shown.lines, "_ansible_verbose_always": True}
    if not shown.lines:
        return {"skipped": True}
    return {"msg": shown.lines, "_ansible_verbose_always": True}
