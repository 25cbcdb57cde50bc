# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action show_results: shows what the tasks of a playbook have registered. It runs on the controller."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    ABOUT,
    Registered,
    Shown,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._report_pages import Pages, write_pages

ARGUMENTS: t.Dict[str, t.Any] = {
    "about": {"type": "str", "required": True, "choices": [*sorted(ABOUT), "pages"]},
    "results": {"type": "list", "elements": "str", "required": True},
    "path": {"type": "str"},
    "page_hosts": {"type": "int", "default": 100},
}

_Dict = t.Dict[str, t.Any]


class ActionModule(ActionBase):
    """The action. Of other hosts it reads only what a playbook shows together, once for the play."""

    _supports_check_mode = True
    _supports_diff = False

    def run(self, tmp: t.Optional[str] = None, task_vars: t.Optional[_Dict] = None) -> _Dict:
        """Return lines as the message of a task, which fails if the playbook has to; skipped without any line."""
        _core.check()
        answer: _Dict = super().run(tmp, task_vars)
        checked = self.validate_argument_spec(  # type: ignore[no-untyped-call]
            argument_spec=ARGUMENTS, required_if=[["about", "pages", ["path"]]]
        )
        args: _Dict = checked[1]
        variables = task_vars or {}
        try:
            registered = _registered(variables, args["results"])
            if args["about"] == "pages":
                pages = Pages(args["path"], args["page_hosts"])
                return {**answer, **write_pages(self, registered, pages, variables), "_ansible_verbose_always": True}
            return {**answer, **_result(ABOUT[args["about"]](registered))}
        except FlexdiskError as exc:
            raise AnsibleActionFail(f"show_results: {exc.message}") from exc
        except (AttributeError, LookupError, TypeError, ValueError) as exc:
            wants = "show_results wants what the playbooks of flexdisk.hypervisor give it"
            raise AnsibleActionFail(f"{wants} ({exc!r})") from exc
        except (MemoryError, OverflowError, RecursionError) as exc:
            raise AnsibleActionFail("show_results: a number is too large, or a value lies in too many others") from exc


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
        return {"failed": True, "msg": shown.problem, "lines": list(shown.lines), "_ansible_verbose_always": True}
    if not shown.lines:
        return {"skipped": True}
    return {"msg": list(shown.lines), "_ansible_verbose_always": True}
