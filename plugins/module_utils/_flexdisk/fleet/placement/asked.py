# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs that do not exist yet, from the check mode of the module vm for each of them on each host."""

from __future__ import annotations

import typing as t

_Raw = t.Mapping[str, t.Any]


def new_vms(answers: t.Mapping[str, _Raw]) -> t.List[t.Dict[str, t.Any]]:
    """Return the C(new_vms) of move_plan.

    answers: for each host C(vms), the entries of vm that it may get, C(checks), results of vm in check mode, C(beside),
    and C(spread), the name of the set to which all of them belong. Of the checks that say something of a VM the last
    one counts: it was asked for alone.
    """
    by_name: t.Dict[str, t.Dict[str, t.Any]] = {}
    for host, answer in answers.items():
        for entry in answer["vms"]:
            name = entry.get("name") or entry["vm"]
            tags = (entry.get("options") or {}).get("tags") or {}
            new = by_name.setdefault(
                name, {"name": name, "tags": tags, "spread": answer.get("spread", ""), "hosts": {}}
            )
            new["hosts"][host] = _on(name, answer["checks"], answer["beside"])
    return list(by_name.values())


def placed_vms(entries: t.Iterable[_Raw], names: t.Container[str]) -> t.List[t.Dict[str, t.Any]]:
    """Return the entries of vm for a host that has or gets these of the VMs whose host is chosen (C(hypervisor) is
    C(auto)), without that word. Other entries stay as they are.
    """
    result = []
    for entry in entries:
        free = entry.get("hypervisor") == "auto"
        if not free or (entry.get("name") or entry.get("vm")) in names:
            result.append({key: value for key, value in entry.items() if not (free and key == "hypervisor")})
    return result


def _on(name: str, checks: t.Sequence[_Raw], beside: int) -> t.Dict[str, t.Any]:
    """Return what the VM takes of a host, or why the host refuses it."""
    why = "says nothing of it"
    for check in reversed(checks):
        for vm in check.get("vms") or ():
            if vm["vm"] == name:
                return {"memory": vm["memory"], "vcpus": vm["vcpus"], "disks": vm["takes"], "beside": beside}
        messages = [problem["message"] for problem in check.get("problems") or () if problem["vm"] in (name, "")]
        if messages:
            return {"refused": "; ".join(messages)}
        why = str(check.get("msg") or why)
    return {"refused": why}
