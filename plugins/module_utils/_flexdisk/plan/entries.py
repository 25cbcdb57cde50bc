# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the entries of a task. An entry that depends on a refused one is refused too."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..model.desired import PlacedDiskDeclaration
from ..model.errors import Problem
from .detached import Job
from .steps import VmPlan


@dataclass
class Entry:
    """An entry with the VMs that it names or changes, and the volumes that it is about."""

    declared: PlacedDiskDeclaration
    refused: bool = False
    vms: t.Set[str] = field(default_factory=set)
    volumes: t.Set[str] = field(default_factory=set)

    def depends(self, other: Entry) -> bool:
        """Whether both concern the same VM or volume, or one is made from the other's disk."""
        return bool(
            self.vms & other.vms
            or self.volumes & other.volumes
            or _made_of(self.declared, other.declared)
            or _made_of(other.declared, self.declared)
        )


def _made_of(new: PlacedDiskDeclaration, source: PlacedDiskDeclaration) -> bool:
    return bool(new.source) and new.source in (source.spec.name, source.spec.uuid)


class Attempt(t.Protocol):
    """A Registry: one attempt to plan some entries."""

    jobs: t.List[t.Optional[Job]]
    entries: t.List[Entry]
    problems: t.List[Problem]

    def plan(self, declarations: t.Sequence[PlacedDiskDeclaration], wrong: t.Collection[int]) -> t.List[VmPlan]: ...


class PlannedEntries(t.NamedTuple):
    """The result for the declarations of a task."""

    jobs: t.List[Job]
    plans: t.List[VmPlan]
    problems: t.List[Problem]


def plan_entries(
    attempt: t.Callable[[], Attempt],
    declarations: t.Sequence[PlacedDiskDeclaration],
    wrong: t.Collection[int],
    carry_on: bool,
) -> PlannedEntries:
    """Return the plans for the declarations. wrong: the numbers of those that are refused already.

    carry_on: plan the others, without the refused ones and what depends on them. Otherwise a problem means that nothing
    is planned.
    """
    left, bad = list(declarations), {id(declarations[number]) for number in wrong}
    problems: t.List[Problem] = []
    while True:
        registry = attempt()
        plans = registry.plan(left, [n for n, declared in enumerate(left) if id(declared) in bad])
        problems += registry.problems
        out = _refused(registry.entries)
        if not (out or registry.problems):
            return PlannedEntries(t.cast(t.List[Job], registry.jobs), plans, problems)
        if not (out and carry_on):
            return PlannedEntries([], [], problems)
        left = [declared for declared in left if id(declared) not in out]


def _refused(entries: t.Sequence[Entry]) -> t.Set[int]:
    """Return the refused declarations, and all that depend on one of them."""
    out = [entry for entry in entries if entry.refused]
    rest = [entry for entry in entries if not entry.refused]
    for entry in out:  # out grows meanwhile
        out += [other for other in rest if other.depends(entry)]
        rest = [other for other in rest if not other.depends(entry)]
    return {id(entry.declared) for entry in out}
