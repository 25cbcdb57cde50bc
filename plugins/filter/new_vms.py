# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters new_vms and placed_vms: what new VMs take of each host, and which of them a host has."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement import asked
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def new_vms(answers: t.Mapping[str, _Dict], spread: str = "") -> t.List[t.Dict[str, t.Any]]:
    """answers: for each host vms, checks and beside."""
    try:
        return asked.new_vms(answers, spread)
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        wanted = "new_vms wants vms, checks (results of flexdisk.hypervisor.vm) and beside for each host"
        raise AnsibleFilterError(f"{wanted} ({exc!r})") from exc


def placed_vms(entries: t.Sequence[_Dict], names: t.Sequence[str]) -> t.List[t.Dict[str, t.Any]]:
    """entries: as vm takes them, some with hypervisor. names: the VMs that the host has or gets."""
    try:
        return asked.placed_vms(entries, names)
    except (AttributeError, TypeError) as exc:
        raise AnsibleFilterError(f"placed_vms wants entries of flexdisk.hypervisor.vm ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"new_vms": new_vms, "placed_vms": placed_vms})
