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
_BEFORE_A_HOST = r"(\b(?:host|hostname|on|to|by|from) |@)"
_Result = t.Mapping[str, t.Any]


def failures(results: t.Mapping[str, t.Sequence[_Result]]) -> t.List[str]:
    """Return the lines of the table. results: of the tasks that failed on each failed host, the first task first."""
    groups: t.Dict[str, t.Dict[str, str]] = {}
    for host, host_results in results.items():
        reason = _reason(host_results)
        groups.setdefault(_masked(host, reason), {})[host] = reason
    counted = f"{len(results)} host{'' if len(results) == 1 else 's'} failed:"
    return [counted, *(visible(_line(masked, reasons)) for masked, reasons in groups.items())]


# Any: what a variable holds that has the name of a result.
def has_failed(result: t.Any) -> bool:
    """Return whether this is the result of a task that failed, or did not reach its host."""
    return isinstance(result, t.Mapping) and bool(result.get("failed") or result.get("unreachable"))


def without_prefix(message: str) -> str:
    """Return the message of a failed task without what Ansible says before it."""
    return _OF_ANSIBLE.sub("", message)


def _masked(host: str, reason: str) -> str:
    """Return the reason with HOST for the name of its host, so that equal reasons are one. The name is replaced only
    where it surely is that of the host: a VM may have the same one.
    """
    return re.sub(rf"{_BEFORE_A_HOST}{re.escape(host)}(?![\w.-])", r"\1HOST", reason)


def _line(masked: str, reasons: t.Mapping[str, str]) -> str:
    """Return the line of hosts with the same reason, as they reported it unless their names differ in it."""
    reported = set(reasons.values())
    return f"{', '.join(reasons)}: {reported.pop() if len(reported) == 1 else masked}"


def _reason(results: t.Sequence[_Result]) -> str:
    """Return the first line of the last failure."""
    if not results:
        return ELSEWHERE
    lines = _lines(results[-1])
    text = lines[0] if lines else ELSEWHERE
    more = " (and more, above)" if len(lines) > 1 else ""
    lost = "unreachable: " if results[-1].get("unreachable") else ""
    return lost + (text if len(text) <= LONGEST else f"{text[:LONGEST]}...") + more


def _lines(result: _Result) -> t.List[str]:
    """Return the lines of the message. Of a loop, those of its failed items: its own says only that some failed."""
    items = result.get("results")
    looped = [item for item in items if isinstance(item, t.Mapping)] if isinstance(items, (list, tuple)) else []
    failed = [item for item in looped if "ansible_loop_var" in item and has_failed(item)]
    lines = [
        line for part in failed or [result] for line in without_prefix(str(part.get("msg") or "").strip()).splitlines()
    ]
    return list(dict.fromkeys(lines))
