# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter declared_vm: what the inventory says of one VM."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import declared
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Result = t.TypeVar("_Result")


def declared_vm(*given: t.Any) -> t.Dict[str, str]:
    """The host that has the VM, and how its entry names it; or what is wrong, as problem."""
    return _guarded("declared_vm", declared.declared_vm, *given)


def _guarded(name: str, work: t.Callable[..., _Result], *args: t.Any) -> _Result:
    """What work returns. Input of a strange form becomes an error of the filter."""
    try:
        return work(*args)
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"{name} wants what the playbooks of flexdisk.hypervisor give it ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"declared_vm": declared_vm})
