# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""VMs that do not exist yet, from what the module vm says in check mode of each of them on each host."""

from __future__ import annotations

import typing as t

_Raw = t.Mapping[str, t.Any]


def new_vms(answers: t.Mapping[str, _Raw], spread: str = "") -> t.List[t.Dict[str, t.Any]]:
    """The C(new_vms) of move_plan.

    answers: for each host C(vms), the entries of vm that it may get, C(check), the result of vm in check mode, and
    C(beside). spread: the name of the set to which all of them belong, "" for none.
    """
    found: t.Dict[str, t.Dict[str, t.Any]] = {}
    for host, answer in answers.items():
        for entry in answer["vms"]:
            name = entry.get("name") or entry["vm"]
            tags = (entry.get("options") or {}).get("tags") or {}
            new = found.setdefault(name, {"name": name, "tags": tags, "spread": spread, "hosts": {}})
            new["hosts"][host] = _on(name, answer["check"], answer["beside"])
    return list(found.values())


def placed_vms(entries: t.Iterable[_Raw], names: t.Container[str]) -> t.List[t.Dict[str, t.Any]]:
    """The entries of vm for a host that has or gets these of the VMs whose host is chosen (C(hypervisor) is C(auto)),
    without that word. Other entries stay as they are.
    """
    found = []
    for entry in entries:
        free = entry.get("hypervisor") == "auto"
        if not free or (entry.get("name") or entry.get("vm")) in names:
            found.append({key: value for key, value in entry.items() if not (free and key == "hypervisor")})
    return found


def _on(name: str, check: _Raw, beside: int) -> t.Dict[str, t.Any]:
    """What the VM takes of a host, or why the host refuses it."""
    problems = [problem for problem in check.get("problems") or () if problem["vm"] in (name, "")]
    known = [vm for vm in check.get("vms") or () if vm["vm"] == name]
    if problems or not known:
        words = "; ".join(problem["message"] for problem in problems)
        return {"refused": words or str(check.get("msg") or "says nothing of it")}
    (vm,) = known
    return {"memory": vm["memory"], "vcpus": vm["vcpus"], "disks": vm["takes"], "beside": beside}
