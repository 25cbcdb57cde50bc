# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter play_hosts: the pattern of a play's hosts, refused if no host fits it."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleError, AnsibleFilterError
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader

from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core


def play_hosts(
    pattern: t.Any, groups: t.Mapping[str, t.Sequence[str]], limit: str = "", variable: str = "flexdisk_hosts"
) -> t.Any:
    """Return the pattern unchanged. Ansible skips a play without hosts, and its run succeeds; this is an error instead.

    groups: of the inventory. Without any host there, as in a check of the syntax, every pattern is accepted.
    """
    if not any(groups.values()):
        return pattern
    inventory = InventoryManager(DataLoader(), parse=False)
    for group, hosts in groups.items():
        inventory.add_group(group)
        for host in hosts:
            inventory.add_host(host, group=group)
    if not _fitting(inventory, pattern):
        text = f"no host of the inventory fits {_shown(pattern)}. Nothing was done. {variable} says which are meant"
        raise AnsibleFilterError(text)
    if limit and not limit.startswith("@"):
        inventory.subset(limit)
        if not _fitting(inventory, pattern):
            text = f"--limit {limit} leaves none of the hosts that fit {_shown(pattern)} ({variable})"
            raise AnsibleFilterError(text)
    return pattern


def _fitting(inventory: InventoryManager, pattern: t.Any) -> t.List[str]:
    """Return the hosts, without localhost if the inventory does not have it."""
    try:
        return [host.name for host in inventory.get_hosts(pattern) if not host.implicit]
    except AnsibleError:
        return []


def _shown(pattern: t.Any) -> str:
    return pattern if isinstance(pattern, str) else ", ".join(map(str, pattern))


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"play_hosts": play_hosts})
