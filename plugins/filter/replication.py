# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of replication: how often VMs are replicated, in which rounds hosts do it, and what became of it."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.replicate_report import (
    report,
)
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def replication_rounds(calls: t.Mapping[str, _Dict]) -> t.List[int]:
    """Return the numbers of the rounds. calls: those of host_order for the playbook replicate, by host."""
    try:
        return list(range(max((len(one["peers"]) for one in calls.values()), default=0)))
    except (AttributeError, LookupError, TypeError) as exc:
        raise AnsibleFilterError(
            f"replication_rounds wants the calls of flexdisk.hypervisor.host_order ({exc!r})"
        ) from exc


def replication_lines(
    calls: t.Mapping[str, _Dict], hostvars: _Dict, left_out: t.Sequence[str] = (), check: bool = False
) -> _Dict:
    """Return the lines of the table, and what has failed. hostvars: with what the rounds have left there."""
    try:
        results = {host: hostvars[host].get("_flexdisk_ended_syncs") or [] for host in calls}
        return report(calls, results, left_out, check)._asdict()
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(
            f"replication_lines wants the calls of flexdisk.hypervisor.host_order ({exc!r})"
        ) from exc


def replication_intervals(entries: t.Sequence[_Dict]) -> t.List[_Dict]:
    """Return which VMs are replicated where and how often, as host_metrics takes it. entries: flexdisk_replicas."""
    keys = ("vm", "group", "host", "every")
    try:
        return [{key: one[key] for key in keys if one.get(key)} for one in entries if one.get("every")]
    except (AttributeError, TypeError) as exc:
        raise AnsibleFilterError(f"replication_intervals wants the variable flexdisk_replicas ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters(
            {
                "replication_intervals": replication_intervals,
                "replication_lines": replication_lines,
                "replication_rounds": replication_rounds,
            }
        )
