# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which hosts failed in a play, and why: one line for each reason, however many hosts have it."""

from __future__ import annotations

import re
import typing as t

from ..model.text import visible

LONGEST = 200
ELSEWHERE = "see the output above"
_OF_ANSIBLE = re.compile(r"\A(Task failed: |Action failed: )+")
_Result = t.Mapping[str, t.Any]


def failures(results: t.Mapping[str, t.Mapping[str, t.Optional[_Result]]]) -> t.List[str]:
    """Return the lines of the table. results: what the tasks of each failed host returned, the first task first."""
    hosts: t.Dict[str, t.List[str]] = {}
    for host, host_results in results.items():
        hosts.setdefault(_reason(host, host_results), []).append(host)
    counted = f"{len(results)} host{'' if len(results) == 1 else 's'} failed:"
    return [counted, *(visible(f"{', '.join(some)}: {reason}") for reason, some in hosts.items())]


def _reason(host: str, host_results: t.Mapping[str, t.Optional[_Result]]) -> str:
    """The first line of the last failure, with HOST instead of the name of the host, so that equal reasons are one."""
    for result in reversed(list(host_results.values())):
        if result and (result.get("failed") or result.get("unreachable")):
            lines = _OF_ANSIBLE.sub("", str(result.get("msg") or "").strip()).splitlines()
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", "HOST", lines[0]) if lines else ELSEWHERE
            more = " (and more, above)" if len(lines) > 1 else ""
            lost = "unreachable: " if result.get("unreachable") else ""
            return lost + (text if len(text) <= LONGEST else f"{text[:LONGEST]}...") + more
    return ELSEWHERE
