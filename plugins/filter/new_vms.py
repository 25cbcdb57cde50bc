# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter new_vms: what new VMs take of each host."""

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


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"new_vms": new_vms})
