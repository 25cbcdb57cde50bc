# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A group as a task declares it, with its members as their hosts report them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ...model.errors import Problem, Problems
from ...rules.naming import check_names
from .homes import Homes, parse_homes
from .members import Member, index_of, size_problems
from .policy import RollPolicy, parse_policy
from .roll import Group, failed_members

_Raw = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class GroupDeclaration:
    """A group, how it may be changed, and where its members are to be."""

    group: Group
    policy: RollPolicy
    homes: Homes


def parse_group(raw: _Raw) -> t.Tuple[GroupDeclaration, t.List[Problem]]:
    """Return the arguments of group_plan, whose types Ansible has checked, and all their problems."""
    problems = Problems("")
    if not raw["name"]:
        problems.add("InvalidArgument", "name is empty, but a group needs a name")
    check_names(raw, problems, text=("why", "policy"))
    for message in size_problems(raw["size"]):
        problems.add("InvalidArgument", message)
    policy, wrong = parse_policy(raw["policy"] or {})
    problems += wrong
    homes = problems.attempt("", parse_homes, raw["hosts"] if raw["hosts"] is not None else []) or Homes()
    members = _members(raw["name"], raw["members"] or (), problems)
    group = Group(
        raw["name"],
        raw["size"],
        members,
        raw["keeps_disks"],
        frozenset(raw["failed"] or ()),
        bool(raw.get("only_size")),
    )
    done = [(action["member"], action["do"]) for action in raw["after"] or ()]
    group = replace(group, failed=group.failed | failed_members(group, done))
    return GroupDeclaration(group, policy, homes), list(problems)


def _members(group: str, raw: t.Sequence[_Raw], problems: Problems) -> t.Tuple[Member, ...]:
    """Return the members. One that several hosts have is a problem, never a choice."""
    places: t.Dict[str, t.List[str]] = {}
    members = []
    for entry in raw:
        name = entry["name"]
        index = index_of(name, group)
        if index < 0:
            problems.add(
                "InvalidArgument", f'"{name}" is not a member of {group}: those are called {group}-0, {group}-1'
            )
        if (entry.get("destroys") or 0) < 0:
            problems.add("InvalidArgument", f"{name} destroys {entry['destroys']} MiB, but that must not be negative")
        places.setdefault(name, []).append(entry["host"] or "no host")
        members.append(
            Member(
                index=index,
                **{
                    **entry,
                    "host": entry["host"] or "",
                    **{key: tuple(entry.get(key) or ()) for key in ("why", "loses", "keeps")},
                },
            )
        )
    for name, hosts in places.items():
        if len(hosts) > 1:
            problems.add("Ambiguous", f"{name} is on several hosts: {', '.join(hosts)}")
    return tuple(members)
