# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts for members that lie nowhere yet, and whether the others lie where they are declared."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, field, replace

from ...model.errors import FlexdiskError, Problems
from ...model.text import count
from .members import Member, absent_member
from .policy import RollPolicy
from .roll import Group, Step, in_order_of_creation


@dataclass(frozen=True)
class Homes:
    """Where members are to be: spread over hosts, or each on the host that fixed has for its name."""

    hosts: t.Tuple[str, ...] = ()
    fixed: t.Mapping[str, str] = field(default_factory=dict)


def parse_homes(raw: object) -> Homes:
    """Return a list of hosts, or a map from members to hosts. Raises FlexdiskError InvalidArgument."""
    if isinstance(raw, dict) and all(isinstance(word, str) and word for pair in raw.items() for word in pair):
        return Homes(fixed=dict(raw))
    if isinstance(raw, list) and all(isinstance(word, str) and word for word in raw):
        twice = sorted(name for name, count in collections.Counter(raw).items() if count > 1)
        if twice:
            raise FlexdiskError("InvalidArgument", f"hosts names {', '.join(twice)} more than once")
        return Homes(tuple(raw))
    raise FlexdiskError("InvalidArgument", f"hosts is a list of hosts, or a map from members to hosts; got {raw!r}")


def placed(group: Group, homes: Homes, policy: RollPolicy) -> Group:
    """Return the group with a host for each member that lies nowhere, if there is one: that of homes, or the host with
    the fewest members, of these the first. Members that a step may make for a while, above the size, get hosts, too.

    Hosts are chosen in the order in which members are made, so that the choice is the same after each step of a roll.
    None is chosen while a host cannot be read, for the member may lie there.
    """
    if any(not member.reachable for member in group.members):
        return group
    surge = 0 if group.keeps_disks else policy.limits(group.size).max_batch_size
    known = {member.index: member for member in group.members}
    numbers = collections.Counter(member.host for member in group.members if member.index < group.size)
    new = [known.get(index) or absent_member(group.name, index) for index in range(group.size + surge)]
    for member in in_order_of_creation(group, policy, new):
        host = member.host
        if not host:
            host = homes.fixed.get(member.name) or min(homes.hosts, key=lambda name: numbers[name], default="")
            known[member.index] = replace(member, host=host)
        if not member.host or member.index >= group.size:
            numbers[host] += 1
    return replace(group, members=tuple(known.values()))


def check_homes(group: Group, homes: Homes, policy: RollPolicy, steps: t.Sequence[Step], problems: Problems) -> None:
    """Members without a host, on one that is not theirs, or too many on one. placed has given the group its hosts."""
    surge = {action.index for step in steps for action in step.actions if action.index >= group.size}
    members = _members(group, [*range(group.size), *sorted(surge)])
    nowhere = [member.name for member in members if not member.host]
    unread = sorted({m.host or f"the host of {m.name}" for m in group.members if not m.reachable})
    if nowhere and unread:
        problems.add(
            "InvalidArgument", f"{', '.join(nowhere)}: no host is chosen while {', '.join(unread)} cannot be read"
        )
    elif nowhere:
        problems.add("InvalidArgument", f"{', '.join(nowhere)}: no host is given")
    for member in members:
        fixed = homes.fixed.get(member.name, member.host)
        if member.host and member.reachable and member.host != fixed:
            problems.add("InvalidArgument", f"{member.name} lies on {member.host}, but hosts says {fixed}")
    limit = policy.max_members_per_host
    numbers = collections.Counter(member.host for member in members if member.host)
    for host, number in sorted(numbers.items()):
        if limit is not None and number > limit:
            problems.add(
                "InvalidArgument", f"{host} would have {count(number, 'member')}, but max_members_per_host is {limit}"
            )


def _members(group: Group, indexes: t.Iterable[int]) -> t.List[Member]:
    """Return the members with these indexes, those that lie nowhere too."""
    known = {member.index: member for member in group.members}
    return [known.get(index) or absent_member(group.name, index) for index in indexes]
