# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arithmetic of rolling updates: how many members a step changes, and how large the group is after it.

It is that of OpenStack Heat (heat.scaling.rolling_update, heat.scaling.template), which its own figures test. It keeps
no state: the next step follows from the group as it is now.
"""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError

INDEXED, ANONYMOUS = "indexed", "anonymous"


class Batch(t.NamedTuple):
    """One step of a roll."""

    # Members after the step.
    size: int
    # Members that the step may bring to the new template. New members count first.
    batch: int


class RollSequence(t.NamedTuple):
    """All steps of a roll in which nothing fails."""

    batches: t.Tuple[Batch, ...]
    # The highest number of members.
    peak: int
    # The fewest members that a step leaves alone, None without steps.
    untouched_min: t.Optional[int]
    # The size that the group gets at once after the last step.
    final_size: int

    @property
    def pauses(self) -> int:
        """The number of pauses: one between each two steps."""
        return max(len(self.batches) - 1, 0)


def check_limits(min_in_service: int, max_batch_size: int) -> None:
    """Raises FlexdiskError InvalidArgument where Heat would roll for ever, or take a floor for none."""
    if max_batch_size < 1:
        raise FlexdiskError("InvalidArgument", f"max_batch_size is {max_batch_size}, but must be at least 1")
    if min_in_service < 0:
        raise FlexdiskError("InvalidArgument", f"min_in_service is {min_in_service}, but must not be negative")


def needs_update(target: int, current: int, up_to_date: int) -> bool:
    """Return whether a group has steps left: it is not of its target size, or has members that are not up to date."""
    return not up_to_date >= current == target


def next_batch(target: int, current: int, up_to_date: int, max_batch_size: int, min_in_service: int) -> Batch:
    """Return the next step of a group: target and current are sizes, up_to_date those of its members that are done.

    With m = min(min_in_service, target, current) and b = min(max_batch_size, max(target - up_to_date, 0)), the size is
    b + max(min(current, target - b), m). So b members more than the floor are there only if the floor needs them.
    """
    floor = min(min_in_service, target, current)
    batch = min(max_batch_size, max(target - up_to_date, 0))
    return Batch(batch + max(min(current, target - batch), floor), batch)


def sequence(current: int, requested: int, min_in_service: int, max_batch_size: int, flavour: str) -> RollSequence:
    """Return all steps from the size current to the size requested.

    C(indexed) is Heat's ResourceGroup: the group grows and shrinks inside the steps, and members above its size do not
    count as done. C(anonymous) is Heat's InstanceGroup: the group does not grow while it rolls, and gets its size at
    the end. Raises FlexdiskError InvalidArgument.
    """
    check_limits(min_in_service, max_batch_size)
    for name, size in (("current", current), ("requested", requested)):
        if size < 0:
            raise FlexdiskError("InvalidArgument", f"{name} is {size}, but a size must not be negative")
    if flavour not in (INDEXED, ANONYMOUS):
        raise FlexdiskError("InvalidArgument", f'flavour is {INDEXED} or {ANONYMOUS}, not "{flavour}"')
    indexed = flavour == INDEXED
    target = requested if indexed else min(requested or current, current)
    batches, size, done = [], current, 0
    while needs_update(target, size, done):
        step = next_batch(target, size, done, max_batch_size, min_in_service)
        above = step.size - max(size, target) if indexed else 0
        done, size = done + step.batch - max(above, 0), step.size
        batches.append(step)
    untouched = min((step.size - step.batch for step in batches), default=None)
    return RollSequence(tuple(batches), max([current, *(step.size for step in batches)]), untouched, requested)
