# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Differences between versions of ansible-core, and a refusal of versions that are too old."""

from __future__ import annotations

import functools
import typing as t

from ansible import errors, template
from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.executor import module_common
from ansible.module_utils.common import json
from ansible.release import __version__

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import core_version

CODE = " [AnsibleTooOld]"

# What templating raises for a value that is left out with omit, since ansible-core 2.19.
OMITTED: t.Type[Exception] = getattr(errors, "AnsibleValueOmittedError", errors.AnsibleError)

_Filters = t.Dict[str, t.Callable[..., t.Any]]


def trust_as_template(value: str) -> str:
    """Return the same text, which Ansible may take for a template. Since ansible-core 2.19, so check() is first."""
    return template.trust_as_template(value)


# Any: a task and a templar of ansible-core, which have no types.
def with_defaults(action: str, task: t.Any, arguments: t.Dict[str, t.Any], templar: t.Any) -> t.Dict[str, t.Any]:
    """Return the arguments of a module with what module_defaults of a task say of it. Only since ansible-core 2.19."""
    defaults: t.Dict[str, t.Any] = module_common._apply_action_arg_defaults(action, task, arguments, templar)
    return defaults


def load_encoders() -> None:
    """Load what arguments and results of modules are written and read with. Later, the process of each host does it."""
    for direction in getattr(json, "Direction", ()):  # since ansible-core 2.19
        json.get_module_encoder("legacy", direction)


def check(version: str = __version__) -> None:
    """Raises AnsibleError where ansible-core is too old for this collection. Plugins of the controller begin with it,
    but filters, since Ansible hides what goes wrong when it loads them, and actions whose module says the same.
    """
    too_old = core_version.refusal(version)
    if too_old:
        raise AnsibleError(too_old + CODE)


def filters(functions: _Filters, version: str = __version__) -> _Filters:
    """Return the filters, with errors in words; each raises AnsibleFilterError if ansible-core is too old."""
    too_old = core_version.refusal(version)

    def refuse(*_values: t.Any, **_options: t.Any) -> t.Any:
        raise AnsibleFilterError(too_old + CODE)

    if too_old:
        return dict.fromkeys(functions, refuse)
    return {name: _in_words(name, function) for name, function in functions.items()}


def _in_words(name: str, function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    """Return the filter, whose errors about numbers that no computer counts with are told to users, too."""

    @functools.wraps(function)
    def guarded(*values: t.Any, **options: t.Any) -> t.Any:
        try:
            return function(*values, **options)
        except (MemoryError, OverflowError, RecursionError) as exc:
            raise AnsibleFilterError(f"{name}: a number is too large, or a value lies in too many others") from exc

    return guarded
