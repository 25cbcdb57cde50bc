# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Steps of a rolling update, from the members as they are: the next one, or all of them if nothing fails.

The progress of a roll is not stored anywhere. The next step follows from the members alone, so a run that was killed is
continued by the next one. A step never takes a member out of service if fewer than the floor would be left.
"""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, replace

from .batches import next_batch
from .members import (
    LIVE,
    NOTHING,
    RECREATE,
    RESTART,
    Member,
    absent_member,
    highest_index_first,
    member_name,
    members_to_update,
)
from .policy import RollPolicy

# What a step does with a member. return: put one back into service that an interrupted run has taken out, or was about
# to, and that can serve. finish: do what that run has begun with it first. heal: wait for one that is as the template
# says.
RETURN, FINISH, HEAL, CREATE, REMOVE = "return", "finish", "heal", "create", "remove"


@dataclass(frozen=True)
class Group:
    """A group as it is, and its declared size."""

    name: str
    size: int
    members: t.Tuple[Member, ...]
    # Its members have disks that a surge member would not have, so there is no surge.
    keeps_disks: bool = True
    # Members that have failed in this run, and are left alone.
    failed: t.FrozenSet[str] = frozenset()
    # The run changes nothing but the size.
    only_size: bool = False

    @property
    def there(self) -> t.List[Member]:
        """The members that are VMs."""
        return [member for member in self.members if member.there]

    @property
    def serving(self) -> int:
        """The number of members in service."""
        return sum(member.serves for member in self.members)


@dataclass(frozen=True)
class Action:
    """What a step does with a member: C(live), C(restart), C(recreate) or a word of this file. destroys is MiB."""

    member: str
    index: int
    host: str
    do: str
    destroys: int = 0


class Step(t.NamedTuple):
    """One step of a roll."""

    actions: t.Tuple[Action, ...]
    # Members in service while it runs, at least.
    in_service: int
    # Members that exist, at most.
    peak: int
    # Seconds to wait after it, unless it is the last.
    pause: int


def next_step(group: Group, policy: RollPolicy) -> t.Optional[Step]:
    """Return the next step, or None: either the group is as declared, or what is left may not be done now (blocked)."""
    marked = [member for member in group.there if member.marked and _may_touch(group, member)]
    returning = _returning(group, policy, marked)
    if returning:
        return _step(group, policy, [(member, RETURN) for member in highest_index_first(returning)], pause=0)
    if marked:
        parts = [(member, FINISH if member.index < group.size else REMOVE) for member in highest_index_first(marked)]
        return _step(group, policy, parts)
    staying = [member for member in group.there if member.index < group.size and _may_touch(group, member)]
    alive = [member for member in staying if member.change == LIVE]
    if alive:
        return _step(group, policy, [(member, LIVE) for member in highest_index_first(alive)], pause=0)
    taken = _batch(group, policy, staying)
    return _step(group, policy, taken) if taken else None


def _returning(group: Group, policy: RollPolicy, marked: t.Sequence[Member]) -> t.List[Member]:
    """Return the marked members that go back into service. One above the size does if fewer than the floor are left: a
    killed run may have marked it, and not taken it out.
    """
    able = [member for member in marked if member.in_service]
    returning = [member for member in able if member.index < group.size]
    lacking = policy.floor(group.size) - group.serving - len(returning)
    surplus = [member for member in able if member.index >= group.size]
    return returning + surplus[: max(0, lacking)]


def canaries_of(group: Group, policy: RollPolicy) -> t.Tuple[str, ...]:
    """Return the names of the canaries. A number means so many members from the highest index."""
    if not isinstance(policy.canary, int):
        return policy.canary
    lowest = max(0, group.size - policy.canary)
    return tuple(member_name(group.name, index) for index in range(group.size - 1, lowest - 1, -1))


def in_order_of_creation(group: Group, policy: RollPolicy, members: t.Iterable[Member]) -> t.List[Member]:
    """Return the members in the order in which steps make them: canaries, then the others, the lowest index first."""
    canaries = canaries_of(group, policy)
    return sorted(members, key=lambda member: (member.name not in canaries, member.index))


def _may_touch(group: Group, member: Member) -> bool:
    """Return whether this run may touch the member."""
    return member.reachable and member.name not in group.failed


def _batch(group: Group, policy: RollPolicy, staying: t.Sequence[Member]) -> t.List[t.Tuple[Member, str]]:
    """Return the members of a step that takes some out of service, makes new ones or removes those above the size."""
    limits, size = policy.limits(group.size), group.size
    # What this run may not touch is left as it is: nothing waits for it, and it takes no place.
    there = [member for member in group.there if member.index < size or _may_touch(group, member)]
    done = sum(member.current or not _may_touch(group, member) for member in there if member.index < size)
    batch = next_batch(size, len(there), done, limits.max_batch_size, limits.min_in_service)
    canaries = canaries_of(group, policy)
    waits = members_to_update(staying, canaries)
    taken = [(m, HEAL if m.change == NOTHING else m.change) for m in waits if not m.serves][: batch.batch]
    made = in_order_of_creation(group, policy, _missing(group, size if group.keeps_disks else max(size, batch.size)))
    budget = _OutageBudget(group, policy)
    healthy = [member for member in waits if member.serves]

    def fill(new: t.Sequence[Member], stale: t.Sequence[Member]) -> None:
        taken.extend((member, CREATE) for member in new[: batch.batch - len(taken)])
        taken.extend((m, m.change) for m in stale if len(taken) < batch.batch and budget.take_out(m))

    first = [member for member in healthy if member.name in canaries]
    fill([member for member in made if member.name in canaries], first)
    if not any(member.name in canaries for member, _do in taken):  # canaries go alone
        fill(made, [] if first else healthy)
    surplus = [member for member in highest_index_first(there) if member.index >= size]
    idle = [member for member in surplus if not member.serves]
    spare = [member for member in surplus if member.serves][: max(0, len(there) - len(idle) - batch.size)]
    return [*taken, *((member, REMOVE) for member in idle + [member for member in spare if budget.take_out(member)])]


def _missing(group: Group, size: int) -> t.List[Member]:
    """Return the members that a group of that size lacks, the lowest index first: where they lie, or nowhere yet."""
    known = {member.index: member for member in group.members}
    lacking = [known.get(index) or absent_member(group.name, index) for index in range(size)]
    return [member for member in lacking if not member.there and _may_touch(group, member)]


class _OutageBudget:
    """How many members may leave service: for the floor of the group, and on each host."""

    def __init__(self, group: Group, policy: RollPolicy) -> None:
        self._left = group.serving - policy.floor(group.size)
        self._max_down_per_host = policy.max_down_per_host
        down = (member.host for member in group.members if not member.serves and member.index < group.size)
        self._down = collections.Counter(down)

    def take_out(self, member: Member) -> bool:
        """Take a member out of service if that is allowed."""
        if self._left < 1 or self._down[member.host] >= self._max_down_per_host:
            return False
        self._left -= 1
        self._down[member.host] += 1
        return True


def _step(
    group: Group, policy: RollPolicy, taken: t.Sequence[t.Tuple[Member, str]], pause: t.Optional[int] = None
) -> Step:
    out = sum(member.serves and do in (RESTART, RECREATE, REMOVE) for member, do in taken)
    new = sum(do == CREATE for _member, do in taken)
    if pause is None:
        canaries = canaries_of(group, policy) if policy.canary_pause is not None else ()
        canary = any(member.name in canaries for member, _do in taken)
        pause = policy.canary_pause if canary and policy.canary_pause is not None else policy.pause
    actions = tuple(Action(member.name, member.index, member.host, do, member.destroys) for member, do in taken)
    return Step(actions, group.serving - out, len(group.there) + new, pause)


def group_after(group: Group, step: Step) -> Group:
    """Return the group after a step in which nothing fails."""
    members = {member.name: member for member in group.members}
    for action in step.actions:
        name = action.member
        if action.do == REMOVE:
            members[name] = replace(members[name], there=False, in_service=False, marked=False)
        elif action.do == LIVE:
            members[name] = replace(members[name], change=NOTHING)
        elif action.do == RETURN:
            members[name] = replace(members[name], marked=False)
        else:
            members[name] = Member(name, action.index, action.host)
    return replace(group, members=tuple(members.values()))


def batch_of(members: t.Sequence[t.Mapping[str, t.Any]], actions: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[t.Any]:
    """Return the members of a step, each with what is done to it as C(do). actions are as group_plan returns them."""
    known = {member["name"]: member for member in members}
    return [{**known[action["member"]], "do": action["do"]} for action in actions]


def failed_members(group: Group, actions: t.Iterable[t.Tuple[str, str]]) -> t.FrozenSet[str]:
    """Return the members for which a step has failed. actions: names and kinds. group: as it is after the step."""
    members = {member.name: member for member in group.members}
    failed = set()
    for name, do in actions:
        member = members.get(name)
        if do == REMOVE:
            ended = member is None or (member.reachable and not member.there)
        elif do == LIVE:
            ended = member is not None and member.reachable and member.change == NOTHING
        elif do == RETURN:
            ended = member is not None and member.serves
        else:
            ended = member is not None and member.current
        failed |= set() if ended else {name}
    return frozenset(failed)


def left_over(group: Group) -> t.List[Member]:
    """Return the members that a roll still has to change, create or remove, as far as this run may touch them."""
    changed = [m for m in group.there if _may_touch(group, m) and not (m.current and m.index < group.size)]
    return _missing(group, group.size) + highest_index_first(changed)


def is_done(group: Group) -> bool:
    """Return whether the group is as declared: of its size, every member up to date and in service, none marked."""
    there = group.there
    return {member.index for member in there} == set(range(group.size)) and all(member.current for member in there)


def all_steps(group: Group, policy: RollPolicy) -> t.Tuple[t.List[Step], Group]:
    """Return the steps that are left if nothing fails, and the group after them.

    A step returns, changes, makes or removes at least one member, and a surge makes and removes some once more.
    """
    steps: t.List[Step] = []
    for _number in range(4 * (len(group.members) + group.size) + policy.limits(group.size).max_batch_size):
        step = next_step(group, policy)
        if step is None:
            break
        steps.append(step)
        group = group_after(group, step)
    return steps, group
