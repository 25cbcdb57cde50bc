# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The filter verify_lines: the findings of disk_verify as lines of text."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.text import visible
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.knobs import command, for_playbooks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.skipped import not_looked_at
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]


def verify_lines(result: _Dict, host: str) -> t.List[str]:
    """result: that of disk_verify for the host. One line for each finding, with the command that repairs it below, and
    for each VM that was not looked at.
    """
    try:
        lines = [f"repaired: {_finding(one)}" for one in result["repaired"]]
        for one in result["findings"]:
            lines.append(f"{one['severity']}: {_finding(one)}")
            lines += [f"    {command(one['repair'], host, str(one['alias'] or ''))}"] if one["repair"] else []
        known = {one["vm"] for one in result["findings"]}
        others = not_looked_at([vm for vm in result.get("skipped_vms", ()) if vm["uuid"] not in known])
        fine = "nothing is wrong with the VMs that were looked at" if others else "nothing is wrong"
        return [visible(line) for line in [*(lines or [fine]), *map(for_playbooks, others)]]
    except (AttributeError, LookupError, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"verify_lines wants a result of flexdisk.hypervisor.disk_verify ({exc!r})") from exc


def _finding(one: _Dict) -> str:
    return f"{one['kind']} {one['alias'] or one['vm']}: {for_playbooks(one['message'])}"


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters({"verify_lines": verify_lines})
