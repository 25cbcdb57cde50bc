# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter failed_hosts: which hosts failed and why, as one table at the end of a play."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.failures import failures
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def failed_hosts(hosts: t.Sequence[str], variables: t.Mapping[str, _Dict], results: t.Sequence[str]) -> t.List[str]:
    """Return the table. variables: hostvars. results: what tasks have registered, the first task first."""
    try:
        by_host = {host: {name: variables[host].get(name) for name in results} for host in hosts}
        return failures(by_host)
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"failed_hosts wants hosts, hostvars and names of results ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"failed_hosts": failed_hosts})
