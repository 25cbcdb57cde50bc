# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter status_lines: what is half done on all hosts, for a reader."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def status_lines(results: t.Mapping[str, _Dict], unread: t.Sequence[str] = ()) -> _Dict:
    """Return the lines, and how many things are half done, at work and kept. results: of host_status, by host."""
    try:
        return status(results, unread)._asdict()
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"status_lines wants results of flexdisk.hypervisor.host_status ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"status_lines": status_lines})
