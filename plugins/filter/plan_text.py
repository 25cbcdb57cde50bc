# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter plan_text: the plans of all hosts, for the person who approves them."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import render_change, render_mib
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import visible
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def plan_text(
    results: t.Mapping[str, _Dict],
    pools: t.Optional[t.Mapping[str, t.Sequence[_Dict]]] = None,
    left_out: t.Optional[t.Mapping[str, str]] = None,
) -> t.List[str]:
    """results: what vm_disks returned for each host. pools: host.pools of host_info. left_out: why there is no plan."""
    try:
        heads = [f"{host}: {result['plan'][0]}, digest {result['plan_digest']}" for host, result in results.items()]
        heads += [f"{host}: {why}" for host, why in (left_out or {}).items()]
        blocks = [
            line
            for host, result in results.items()
            if result["plan"][1:]
            for line in _block(host, result, (pools or {}).get(host, ()))
        ]
        return [visible(line) for line in (*heads, *blocks)]
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"plan_text wants results of flexdisk.hypervisor.vm_disks ({exc!r})") from exc


def _block(host: str, result: _Dict, pools: t.Sequence[_Dict]) -> t.Iterator[str]:
    yield f"{host}:"
    yield from (f"  {line}" for line in result["plan"][1:])
    before, after = (sum(vm["quota_bytes"][when] for vm in result["vms"]) for when in ("before", "after"))
    left = [f"pool {pool['name']} has {render_mib(pool['available'])} left now" for pool in pools]
    yield f"  space: quotas of these VMs {render_change(before, after)}{''.join(', ' + text for text in left)}"


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"plan_text": plan_text})
