# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a whole roll: its steps if nothing fails, what it costs, and why it is refused."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import Problem
from ...model.text import count
from .homes import Homes, placed
from .policy import RollPolicy
from .refusals import pauses_of, refusals
from .roll import Group, Step, all_steps, is_done


@dataclass(frozen=True)
class GroupPlan:
    """The plan of a roll."""

    steps: t.Tuple[Step, ...]
    done: bool
    # Members that are not as declared afterwards, because they failed or cannot be read.
    left: t.Tuple[str, ...]
    # The highest number of members.
    peak: int
    # The lowest number of members in service.
    in_service: int
    # Seconds of all pauses.
    pauses: int
    warnings: t.Tuple[str, ...] = ()
    problems: t.Tuple[Problem, ...] = ()


def plan_group(group: Group, policy: RollPolicy, homes: Homes) -> GroupPlan:
    """Return the plan for a group as it is now. homes: where new members are to be."""
    group = placed(group, homes, policy)
    steps, end = all_steps(group, policy)
    problems = refusals(group, policy, homes, steps, end)
    peak = max([len(group.there), *(step.peak for step in steps)])
    fewest = min([group.serving, *(step.in_service for step in steps)])
    warnings = tuple(_warnings(group, policy))
    left = tuple(m.name for m in end.members if not m.current and (m.there or m.index < end.size))
    return GroupPlan(tuple(steps), is_done(group), left, peak, fewest, pauses_of(steps), warnings, tuple(problems))


def _warnings(group: Group, policy: RollPolicy) -> t.Iterator[str]:
    unread = [member.name for member in group.members if not member.reachable]
    if unread:
        yield f"{', '.join(unread)} cannot be read and will not be changed, and count as down"
    floor = policy.limits(group.size).min_in_service
    if floor > group.size:
        yield f"min_in_service is {floor}, but the group has {count(group.size, 'member')}; {group.size} is meant"
    if group.there and group.serving < min(floor, group.size):
        serving = f"{group.serving} of {count(group.size, 'member')} are in service"
        yield f"{serving}, fewer than {floor}; no healthy one is touched"
