# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments of vm_disks from the variables of the role flexible_disks, and variables that contradict each other."""

from __future__ import annotations

import typing as t

PREFIX = "flexible_disks_"
# Options of vm_disks that have the names of variables. The empty digest is one, too: it approves nothing.
PASSED = (
    "allow_restart",
    "stop_timeout",
    "allow_force_stop",
    "matching",
    "on_refusal",
    "expect_plan",
    "expect_lines",
    "lock_timeout",
    "hypervisor",
    "libvirt_uri",
    "pool",
)

_Dict = t.Mapping[str, t.Any]


def refusal(variables: _Dict, plans_only: bool, recalculates: bool) -> str:
    """Return why the variables contradict each other, or nothing. Their names are given without flexible_disks."""
    only = variables["only"]
    if recalculates and (only or plans_only or "expect_plan" in variables):
        subject = (
            f"{PREFIX}only chooses"
            if only
            else f"{PREFIX}plan_only plans"
            if plans_only
            else f"{PREFIX}expect_plan approves"
        )
        return f"{subject} the disks of the declared VMs only; set {PREFIX}recalculate_quota to false"
    count = len(_chosen(variables))
    if only and count != 1:
        return f"{PREFIX}only is {only}, which {PREFIX}vms declares {count} times; it has to be there once"
    return ""


def contradicted(given: _Dict, extra: _Dict) -> str:
    """Return why a playbook cannot give the role these variables, or nothing: extra variables override them.

    They would be ignored silently, though each restricts what is done.
    """
    names = [PREFIX + name for name in ("only", "plan_only", "expect_plan", "expect_lines")]
    both = [name for name in names if name in given and name in extra]
    other = [f"-e {name}" for name in both if str(extra[name]).lower() != str(given[name]).lower()]
    if not other:
        return ""
    text = (
        f"{' and '.join(other)} cannot count here, and would restrict what is done: plan and apply go by flexdisk_vm,"
    )
    return f"{text} flexdisk_plan_digests and flexdisk_plan_lines. Leave it out, or use converge"


def arguments(variables: _Dict) -> t.Dict[str, t.Any]:
    """Return the arguments of vm_disks."""
    given = {name: variables[name] for name in PASSED if name in variables}
    if "expect_plan" in given:
        given["expect_plan"] = given["expect_plan"] or ""
    return {"vms": _chosen(variables), **given}


def _chosen(variables: _Dict) -> t.List[_Dict]:
    vms: t.List[_Dict] = variables["vms"]
    return [entry for entry in vms if entry.get("vm") == variables["only"]] if variables["only"] else vms
