# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Members of an instance group, as they are, and the order in which a roll takes them."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...rules.identity import member_of

NOTHING, LIVE, RESTART, RECREATE, REFUSED = "nothing", "live", "restart", "recreate", "refused"
CLASSES = (NOTHING, LIVE, RESTART, RECREATE, REFUSED)  # each needs more than the one before
MAX_MEMBERS = 10_000  # members of a group; a bigger size is a slip of the hand, and its plan would fill the memory


@dataclass(frozen=True)
class Member:
    """A member as it is."""

    name: str
    # The number at the end of its name.
    index: int
    # Where its VM, its detached disks or its intent are, "" for nowhere.
    host: str = ""
    # It is a VM.
    there: bool = True
    # It runs, and has passed its gate.
    in_service: bool = True
    # What the template changes, one of CLASSES.
    change: str = NOTHING
    # Messages of a refusal.
    why: t.Tuple[str, ...] = ()
    # A run has taken it out of service, and has not put it back.
    marked: bool = False
    # Its host can be read.
    reachable: bool = True
    # MiB of the disks that its change destroys, or its deletion if it is above the size.
    destroys: int = 0
    # The disks that its deletion destroys.
    loses: t.Tuple[str, ...] = ()
    # The disks that its deletion leaves.
    keeps: t.Tuple[str, ...] = ()

    @property
    def serves(self) -> bool:
        """Whether the member counts for the floor: it can be read and is in service, and nobody has taken it out."""
        return self.there and self.reachable and self.in_service and not self.marked

    @property
    def current(self) -> bool:
        """Whether a roll has nothing left to do with the member."""
        return self.serves and self.change == NOTHING


def removed_disks(member: Member) -> str:
    """Return what becomes of the disks of a member that is deleted: C(: root 20 GiB destroyed, data 50 GiB stays)."""
    parts = [f"{disk} destroyed" for disk in member.loses] + [f"{disk} stays" for disk in member.keeps]
    return f": {', '.join(parts)}" if parts else ""


def member_name(group: str, index: int) -> str:
    """Return the name of a member: C(web-0)."""
    return f"{group}-{index}"


def index_of(name: str, group: str) -> int:
    """Return the number of the member of that name, -1 if it is none of the group's."""
    owner, index = member_of(name)
    return index if owner == group else -1


def absent_member(group: str, index: int) -> Member:
    """Return a member that is found nowhere."""
    return Member(member_name(group, index), index, there=False, in_service=False)


def highest_index_first(members: t.Iterable[Member]) -> t.List[Member]:
    """Return the members, the highest index first."""
    return sorted(members, key=lambda member: -member.index)


def members_to_update(members: t.Iterable[Member], canaries: t.Collection[str]) -> t.List[Member]:
    """Return the members that are there and not up to date, in the order in which they are taken: those out of service,
    then canaries, then the others, each from the highest index.
    """
    left = [member for member in members if member.there and not member.current]
    return sorted(left, key=lambda member: (member.serves, member.name not in canaries, -member.index))


def size_problems(size: int) -> t.List[str]:
    """Return the problems with the size of a group."""
    if size < 0:
        return [f"size is {size}, but must not be negative"]
    return [f"size is {size}, but a group has at most {MAX_MEMBERS} members"] if size > MAX_MEMBERS else []
