# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How this run was started: its extra variables, and its playbooks."""

from __future__ import annotations

import os
import typing as t

from ansible import context
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.utils.vars import load_extra_vars

COLLECTION = "flexdisk.hypervisor"
_PREFIX = COLLECTION + "."
_FOLDER = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "playbooks"))
_IMPORTS = ("import_playbook", "ansible.builtin.import_playbook")


def variables() -> t.Dict[str, object]:
    """Return the extra variables. Ansible has read them at the start, and has kept them."""
    return {str(name): value for name, value in load_extra_vars(DataLoader()).items()}


def playbooks() -> t.Optional[t.Set[str]]:
    """Return the playbooks of this collection that run, None if plays of somebody else run, too."""
    result: t.Set[str] = set()
    for argument in context.CLIARGS.get("args", ()):
        names = _named(str(argument))
        if names is None:
            return None
        result |= names
    return result


def _named(argument: str) -> t.Optional[t.Set[str]]:
    """Return the playbooks of this collection that a playbook consists of; None if it has other plays."""
    if argument.startswith(_PREFIX):
        return {argument[len(_PREFIX) :]}
    path = os.path.realpath(argument)
    if os.path.dirname(path) == _FOLDER:
        return {os.path.splitext(os.path.basename(path))[0]}
    try:
        entries = DataLoader().load_from_file(path)
    except (AnsibleError, OSError):
        return None
    imports = [_imported(entry) for entry in entries] if isinstance(entries, list) else [""]
    ours = {name[len(_PREFIX) :] for name in imports if name.startswith(_PREFIX)}
    return ours if len(ours) == len(set(imports)) else None


def _imported(entry: object) -> str:
    """Return the playbook that an entry of a playbook imports, empty for a play."""
    names = [entry.get(key) for key in _IMPORTS if key in entry] if isinstance(entry, dict) else []
    return str(names[0]) if names else ""
