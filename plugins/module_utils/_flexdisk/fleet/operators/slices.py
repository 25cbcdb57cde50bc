# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which playbooks may run on a slice of the hosts: an inventory without the others, as AWX makes for sliced jobs."""

from __future__ import annotations

import typing as t

from .playbooks import PLAYBOOKS

MAY_BE_SLICED = frozenset(
    {"adopt", "converge", "list_disks", "recalculate_quota", "report", "verify_disks", "write_metrics"}
)
"""Each host is a matter of its own for these, unless VMs are named: another host could have one of that name, too."""
NEEDS_ALL_BECAUSE = {
    "status": "status needs all hosts: what a move or a failover has left half done is on two of them",
}
"""For playbooks that only read, so that one might think that a slice would do."""
GROUP = "hypervisors"


def refusal(playbook: str, variables: t.Mapping[str, t.Any], present: int) -> str:
    """Return why the playbook must not run on this inventory, "" if it may.

    variables: those of the playbook. present: how many hosts of the group hypervisors the inventory has.
    """
    expected = variables.get("flexdisk_host_count")
    if expected is None or present == expected:
        return ""
    if present > expected:
        return f"flexdisk_host_count is {expected}, but the group {GROUP} has {present} hosts. Correct the variable"
    why = _why_all(playbook, variables)
    if not why:
        return ""
    return (
        f"{why}, but the inventory has only {present} of {expected} hosts of the group {GROUP} (flexdisk_host_count). "
        "In AWX, set the job slices to 1"
    )


def _why_all(playbook: str, variables: t.Mapping[str, t.Any]) -> str:
    """Why the playbook needs all hosts, "" if a slice will do."""
    if playbook not in MAY_BE_SLICED:
        return NEEDS_ALL_BECAUSE.get(playbook, f"{playbook} needs all hosts")
    if "flexdisk_report_html" in variables:
        return "flexdisk_report_html has all hosts on one page"
    names = PLAYBOOKS[playbook].names(variables) if playbook in PLAYBOOKS else ()
    return f"{', '.join(map(str, names))} must be looked for on all hosts" if names else ""
