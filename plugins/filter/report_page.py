# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter report_page: what hosts say of their pools, VMs and disks, as one HTML file."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page import summary
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


def report_pages(hosts: t.Sequence[str], path: str, most: int) -> t.List[t.Dict[str, t.Any]]:
    """Return the files of the report, each with its path, its hosts, and whether it is the summary."""
    if most < 1:
        raise AnsibleFilterError(f"report_pages: a page must have at least one host, not {most}")
    return summary.pages(hosts, path, most)


def report_figures(results: _Dict) -> t.Dict[str, int]:
    """Return what the summary shows of one host. results: as report_page takes it for this host."""
    try:
        return summary.figures(results)
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"report_figures wants what report_page has of one host ({exc!r})") from exc


def report_summary(
    figures: t.Mapping[str, t.Mapping[str, int]], time: str, files: t.Sequence[_Dict], unread: t.Mapping[str, str]
) -> str:
    """Return the summary. figures: what report_figures returns, by host. files: what report_pages returns."""
    try:
        return summary.summary(figures, time, unread, files)
    except FlexdiskError as exc:
        raise AnsibleFilterError(f"report_summary: {exc.message}") from exc
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"report_summary wants figures and files ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters(
            {
                "report_page": report_page,
                "report_pages": report_pages,
                "report_figures": report_figures,
                "report_summary": report_summary,
            }
        )
