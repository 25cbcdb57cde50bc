# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter report_page: what hosts say of their pools, VMs and disks, as one HTML file."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.document import page
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def report_page(results: t.Mapping[str, _Dict], time: str, unread: t.Optional[t.Mapping[str, str]] = None) -> str:
    """Return the page of these hosts. results: the results of the four modules, by host."""
    try:
        return page(results, time, unread or {})
    except FlexdiskError as exc:
        raise AnsibleFilterError(f"report_page: {exc.message}") from exc
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(
            "report_page wants the results of vm_info (with space: true), host_info, disk_verify and zfs_quota for each"
            f" host ({exc!r})"
        ) from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"report_page": report_page})
