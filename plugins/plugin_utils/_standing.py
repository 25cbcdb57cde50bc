# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Messages of modules with the names that users of playbooks and roles know."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.knobs import (
    with_user_names,
    with_variables,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._extra import COLLECTION
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import specifications

_Dict = t.Mapping[str, t.Any]


# Any: a task of ansible-core, which has no types.
def for_user(
    result: _Dict, task: t.Any, task_vars: _Dict, reads: t.AbstractSet[str] = frozenset()
) -> t.Dict[str, t.Any]:
    """Return the result of a module with messages that name variables instead of options where the task is one of this
    collection's playbooks or roles, and VMs as the user has named them. Elsewhere the result is as it was.
    reads: more variables that count there.
    """
    variables = _of_playbook(task_vars) | _of_role(task) | reads
    if not (result.get("failed") or result.get("warnings")) or not variables:
        return dict(result)
    names = _names(task_vars)

    def translate(text: t.Any) -> t.Any:
        """Return a message, or what ansible-core has made of a warning."""
        if isinstance(text, str):
            return with_user_names(with_variables(text, variables), names)
        event: t.Any = getattr(text, "event", None)
        if event is None or not isinstance(getattr(event, "msg", None), str):
            return text
        return dataclasses.replace(text, event=dataclasses.replace(event, msg=translate(event.msg)))

    changed: t.Dict[str, t.Any] = {"msg": translate(result["msg"])} if "msg" in result else {}
    if result.get("warnings"):
        changed["warnings"] = [translate(text) for text in result["warnings"]]
    if result.get("problems"):
        changed["problems"] = [{**one, "message": translate(one.get("message"))} for one in result["problems"]]
    if isinstance(result.get("failure"), dict):
        changed["failure"] = {**result["failure"], "message": translate(result["failure"].get("message"))}
    translated = {**result, **changed}
    error = getattr(result.get("exception"), "event", None)
    if (
        translated.get("msg") != result.get("msg")
        and error is not None
        and not getattr(error, "formatted_traceback", None)
    ):
        del translated["exception"]  # it has the message as the module wrote it; ansible-core makes another one
    return translated


def checked_variables(task_vars: _Dict) -> _Dict:
    """Return what check_variables has left in a playbook of this collection; nothing in a play of somebody else, which
    may follow one of ours.
    """
    checked: _Dict = task_vars.get("_flexdisk") or {}
    play = (checked.get("stands") or {}).get("play")
    return checked if play and play == task_vars.get("ansible_play_name") else {}


def _of_playbook(task_vars: _Dict) -> t.Set[str]:
    """Return the variables of the playbook that runs."""
    stands = checked_variables(task_vars).get("stands") or {}
    return set(specifications().arguments.get(str(stands.get("playbook")), ()))


# Any: see above.
def _of_role(task: t.Any) -> t.Set[str]:
    """Return the variables of the roles of this collection that have the task: one may include another."""
    role = getattr(task, "_role", None)
    roles = [] if role is None else [*role.get_dep_chain(), role]
    ours = [one for one in roles if str(one.get_name()).startswith(COLLECTION + ".")]
    return {name for one in ours for name in one.get_default_vars()}


def _names(task_vars: _Dict) -> t.Dict[str, str]:
    """Return the names under which the user has named VMs, by UUID."""
    order = task_vars.get("_flexdisk_order") or {}
    here = order.get("here", {}).get(task_vars.get("inventory_hostname"), {})
    pairs = {str(entry["vm"]): str(name) for name, entry in here.items() if "vm" in entry}
    return {uuid: name for uuid, name in pairs.items() if not uuid.startswith(name.lower())}
