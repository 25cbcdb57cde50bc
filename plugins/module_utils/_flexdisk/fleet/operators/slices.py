# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which playbooks may run on a slice of the hosts, as AWX makes for sliced jobs; and how plans of slices are joined."""

from __future__ import annotations

import hashlib
import re
import typing as t

from .playbooks import PLAYBOOKS

MAY_BE_SLICED = frozenset(
    {
        "adopt",
        "apply",
        "converge",
        "grow_guests",
        "list_disks",
        "plan",
        "recalculate_quota",
        "report",
        "verify_disks",
        "write_metrics",
    }
)
"""Each host is a matter of its own for these, unless VMs are named: another host could have one of that name, too.
The hosts of grow_guests are guests. For a group it takes those in other slices for lost, and begins nothing.
"""
NEEDS_ALL_BECAUSE = {
    "status": "status needs all hosts: what a move or a failover has left half done is on two of them",
}
"""For playbooks that only read, so that one might think that a slice would do."""
HAND_ON = ("plan", "apply")
"""Of these, what the first leaves for the second has a name for each slice."""
GROUP = "hypervisors"
ELSEWHERE = "other slices"
_APPROVED = "flexdisk_plan_digests"
_OF_A_SLICE = re.compile(r"(flexdisk_plan_(?:digests|lines))_[0-9a-f]{8}\Z")

_Dict = t.Dict[str, t.Any]
_Wanted = t.Mapping[str, t.Mapping[str, t.Any]]


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


def suffix(variables: t.Mapping[str, t.Any], hosts: t.Iterable[str]) -> str:
    """Return what a slice appends to the names of the variables that it leaves for later jobs, "" if this is no slice.

    AWX keeps one variable of each name of all slices of a job. hosts: those of the group hypervisors, in the inventory.
    """
    names = sorted(hosts)
    if len(names) >= variables.get("flexdisk_host_count", 0):
        return ""
    return "_" + hashlib.sha256("\n".join(names).encode()).hexdigest()[:8]


def base_name(name: str) -> str:
    """Return the name of a variable without what a slice has appended to it."""
    match = _OF_A_SLICE.match(name)
    return match[1] if match else name


def specified(specification: _Wanted, names: t.Iterable[str]) -> _Wanted:
    """Return the specification of a playbook with the variables that slices have left for it.

    names: of all variables that are set.
    """
    of_slices = {name: base_name(name) for name in sorted(names) if _OF_A_SLICE.match(name)}
    mine = {name: base for name, base in of_slices.items() if base in specification}
    optional = {base: {**specification[base], "required": False} for base in mine.values()}
    return {**specification, **optional, **{name: optional[base] for name, base in mine.items()}}


def joined(variables: t.Mapping[str, t.Any], specification: _Wanted) -> t.Tuple[_Dict, t.List[str]]:
    """Return the variables with those of all slices as one, and what is wrong with them: a host that two slices have,
    with different values, or variables that all are null.

    specification: of the playbook, and of the variables of slices.
    """
    result: _Dict = {name: value for name, value in variables.items() if base_name(name) == name}
    problems = []
    of_slices = sorted(set(variables) - set(result))
    if of_slices and _APPROVED in result:
        problems.append(f"{_APPROVED} is that of a plan of all hosts; leave it, or {', '.join(of_slices)}, out")
        return result, problems
    for name in of_slices:
        base = base_name(name)
        known = result.get(base, {})
        different = [host for host, value in variables[name].items() if known.get(host, value) != value]
        problems += [_two_values(host, base) for host in different]
        result[base] = {**known, **variables[name]}
    bases = {base_name(name) for name in specification if base_name(name) != name}
    if _APPROVED in bases and _APPROVED not in result:
        problems.append(f"missing required arguments: {_APPROVED}")
    return result, problems


def _two_values(host: str, base: str) -> str:
    return (
        f"{host} has two different values in {base} and the variables {base}_..., so one of them is from an older "
        "plan. Launch the workflow again"
    )


def of_inventory(variables: t.Mapping[str, t.Any], hosts: t.Container[str]) -> t.Tuple[_Dict, t.Dict[str, str]]:
    """Return the variables of apply in a slice without digests of hosts outside of its inventory, and their text."""
    digests = variables.get(_APPROVED, {})
    here = {host: digest for host, digest in digests.items() if host in hosts}
    left_out = sum(map(bool, digests.values())) - sum(map(bool, here.values()))
    if not left_out:
        return {**variables, _APPROVED: here}, {}
    counted = "1 host has" if left_out == 1 else f"{left_out} hosts have"
    text = f"{counted} a digest, but {'is' if left_out == 1 else 'are'} not in the inventory of this slice"
    return {**variables, _APPROVED: here}, {ELSEWHERE: text}
