# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a roll is refused before its first step: all reasons at once, each with members and figures."""

from __future__ import annotations

import typing as t

from ...model.errors import Problem, Problems
from ...model.text import count
from .batches import ANONYMOUS, sequence
from .homes import Homes, check_homes
from .members import CLASSES, LIVE, REFUSED, Member, index_of, removed_disks
from .policy import CONTINUE, RollPolicy
from .roll import REMOVE, Group, Step, canaries_of, left_over

MAX_NAMED = 20  # so many members are named in one message


def refusals(group: Group, policy: RollPolicy, homes: Homes, steps: t.Sequence[Step], end: Group) -> t.List[Problem]:
    """Return all reasons. steps and end are those of roll.all_steps."""
    problems = Problems("")
    _members(group, policy, problems)
    check_homes(group, homes, policy, steps, problems)
    _failures(group, policy, problems)
    _surge(group, policy, problems)
    _removals(group, policy, steps, problems)
    _time(policy, steps, problems)
    left = left_over(end)
    if not problems and left:
        problems.add("InvalidArgument", _blocked(end, left, policy))
    return list(problems)


def _members(group: Group, policy: RollPolicy, problems: Problems) -> None:
    """Members that the template cannot have, those that need more than the policy allows, canaries of no group."""
    staying = [member for member in group.there if member.index < group.size]
    for member in group.members:
        if member.change == REFUSED:
            problems.append(Problem("InvalidArgument", "; ".join(member.why) or "refused", member.name))
    above = [m for m in staying if CLASSES.index(policy.action_ceiling) < CLASSES.index(m.change)]
    needs: t.Dict[str, t.List[str]] = {}
    for member in above:
        if member.change != REFUSED:
            needs.setdefault(member.change, []).append(member.name)
    for change, names in needs.items():
        problems.add(
            "InvalidArgument",
            f"action_ceiling is {policy.action_ceiling}, but {change} is needed for {', '.join(names)}",
        )
    there = {member.name for member in group.members}
    for name in canaries_of(group, policy):
        index = index_of(name, group.name)
        if index < 0 or (index >= group.size and name not in there):
            problems.add("InvalidArgument", f"canary {name} is not a member of {group.name}")


def _failures(group: Group, policy: RollPolicy, problems: Problems) -> None:
    """More members that have failed, or are on hosts that cannot be read, than the policy allows in the whole run."""
    unread = {member.name for member in group.members if not member.reachable}
    budget = policy.failure_budget.of(group.size)
    if policy.on_failure == CONTINUE:
        return
    if len(unread | group.failed) > budget:
        parts = [
            f"{', '.join(sorted(names))} {state}"
            for names, state in ((group.failed, "failed"), (unread - group.failed, "cannot be read"))
            if names
        ]
        problems.add("InvalidArgument", f"failure_budget is {budget}, but {' and '.join(parts)}")


def _surge(group: Group, policy: RollPolicy, problems: Problems) -> None:
    """A floor that only further members could hold, where a further member has no data."""
    if not group.keeps_disks or not any(_leaves_service(member, group.size) for member in group.there):
        return
    limits, there = policy.limits(group.size), len(group.there)
    done = sum(member.current for member in group.there if member.index < group.size)
    changed = group.size - done
    floor = policy.floor(group.size)
    peak = sequence(group.size, group.size, floor, min(limits.max_batch_size, changed), ANONYMOUS).peak
    if peak <= max(group.size, there):
        return
    room = group.size - floor
    way = f"max_batch_size={room}" if room else f"min_in_service={max(0, group.size - 1)}"
    way = "max_surge=0" if policy.max_surge is not None else way
    problems.add(
        "InvalidArgument",
        f"{floor} of {count(group.size, 'member')} in service and {limits.max_batch_size} changed at a time take "
        f"{peak} members, but the members keep disks, which a further member does not have; {way} needs none",
    )


def _removals(group: Group, policy: RollPolicy, steps: t.Sequence[Step], problems: Problems) -> None:
    """More members that would be deleted than the policy allows."""
    limit = policy.max_removed
    if limit is None and group.only_size:
        return
    if limit is None:
        limit = 0 if group.keeps_disks else policy.limits(group.size).max_batch_size
    gone = [action for step in steps for action in step.actions if action.do == REMOVE]
    if len(gone) > limit:
        known = {member.name: member for member in group.members}
        names = [action.member for action in gone]
        text = "; ".join(_removal(known[name]) if name in known else name for name in names[:MAX_NAMED])
        more = f"; and {len(gone) - MAX_NAMED} more" if len(gone) > MAX_NAMED else ""
        them = "it" if len(gone) == 1 else "them"
        size = max(action.index for action in gone) + 1
        keeps = f"-e flexdisk_size={size}" if group.only_size else f"size: {size}"
        problems.add(
            "InvalidArgument",
            f"size is {group.size}, so {len(gone)} would be deleted, but max_removed is {limit}: {text}{more}. "
            f"Write {keeps} to keep {them}, or max_removed: {len(gone)} in the policy to delete {them}",
        )


def _removal(member: Member) -> str:
    return f"{member.name} on {member.host}{removed_disks(member)}"


def _leaves_service(member: Member, size: int) -> bool:
    return member.serves and member.index < size and CLASSES.index(member.change) > CLASSES.index(LIVE)


def _time(policy: RollPolicy, steps: t.Sequence[Step], problems: Problems) -> None:
    """Pauses that alone take as long as the whole roll may."""
    pauses = pauses_of(steps)
    if policy.deadline is not None and pauses and pauses >= policy.deadline:
        problems.add(
            "InvalidArgument",
            f"the pauses between {count(len(steps), 'step')} take {pauses} s, but deadline is {policy.deadline} s",
        )


def pauses_of(steps: t.Sequence[Step]) -> int:
    """Return seconds of all pauses: there is none after the last step."""
    return sum(step.pause for step in steps[:-1])


def _blocked(end: Group, left: t.Sequence[Member], policy: RollPolicy) -> str:
    """Return why something is left although there is no further step."""
    floor = policy.floor(end.size)
    names = [member.name for member in left if member.index < end.size] or [member.name for member in left]
    serving = f"{end.serving} member{' is' if end.serving == 1 else 's are'} in service"
    text = f"{', '.join(names)} cannot be changed: {serving}, at least {floor} must be,"
    text += f" and at most {policy.max_down_per_host} of a host may be down"
    down = [member for member in end.members if not member.serves and member.index < end.size]
    if down:
        text += "; down: " + ", ".join(f"{member.name} on {member.host or 'no host'}" for member in down)
    return text
