# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filters of the playbooks that carry out moves: moves_under_way, moves_elsewhere, move_queue and move_table."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement import execution
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_ODD = (AttributeError, LookupError, TypeError, ValueError)


_Names = t.Union[str, t.Sequence[str]]


def moves_under_way(
    hosts: t.Sequence[_Dict],
    vms: _Names = (),
    vm_tags: t.Optional[_Dict] = None,
    from_hosts: _Names = (),
    from_groups: _Names = (),
) -> t.List[t.Dict[str, t.Any]]:
    """All arguments are as flexdisk.hypervisor.move_plan takes them."""
    try:
        wanted = execution.Wanted(_names(vms), vm_tags or {}, _names(from_hosts), _names(from_groups))
        return execution.under_way(hosts, wanted)
    except _ODD as exc:
        raise AnsibleFilterError(f"moves_under_way wants what flexdisk.hypervisor.move_plan takes ({exc!r})") from exc


def moves_elsewhere(
    hosts: t.Sequence[_Dict], vms: _Names = (), from_hosts: _Names = (), from_groups: _Names = ()
) -> t.List[str]:
    """All arguments are as flexdisk.hypervisor.move_plan takes them."""
    try:
        wanted = execution.Wanted(_names(vms), {}, _names(from_hosts), _names(from_groups))
        return execution.elsewhere(hosts, wanted)
    except _ODD as exc:
        raise AnsibleFilterError(f"moves_elsewhere wants what flexdisk.hypervisor.move_plan takes ({exc!r})") from exc


def _names(told: _Names) -> t.Sequence[str]:
    return told.split(",") if isinstance(told, str) else told


def move_queue(jobs: t.Sequence[_Dict], stage: str, most: int = 5) -> t.Dict[str, t.Any]:
    """jobs: as flexdisk.hypervisor.move_plan returns them. most: how many are carried out at the same time."""
    try:
        return execution.queue(jobs, stage, most)
    except _ODD as exc:
        raise AnsibleFilterError(f"move_queue wants the jobs of flexdisk.hypervisor.move_plan ({exc!r})") from exc


def move_table(ended: t.Sequence[_Dict]) -> t.List[str]:
    """ended: moves with name, from, to and words."""
    try:
        return execution.table(ended)
    except _ODD as exc:
        raise AnsibleFilterError(f"move_table wants moves with name, from, to and words ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters(
            {
                "moves_under_way": moves_under_way,
                "moves_elsewhere": moves_elsewhere,
                "move_queue": move_queue,
                "move_table": move_table,
            }
        )
