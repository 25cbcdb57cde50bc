# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""What a host writes down of a VM that leaves it or comes to it: on a dataset of its own, in one property.

The dataset of a VM that has left stays as a tombstone: the VM's name and UUID are taken here.
"""

from __future__ import annotations

import json
import typing as t

from ..model.dataset import Dataset
from ..model.errors import Problem
from . import identity
from .layout import last_part, moves, pool_of
from .replicas import is_host

FACT = "move"
LEAVING, MOVED, COMING = "leaving", "moved", "coming"


class Move(t.NamedTuple):
    """phase: the VM is about to leave, has left or comes. host: the other host, pool: the guid of its pool. state and
    autoboot are those that the VM had, and gets again. since: when it began, by the clock of this host. was: the
    tombstone in whose place this is, encoded. back_to: the VM comes because its home has failed, and its disks go back
    to this set of snapshots; "" for a move.
    """

    phase: str
    vm: str
    alias: str
    host: str
    pool: int
    state: str
    autoboot: bool
    since: str
    was: str = ""
    back_to: str = ""

    @property
    def label(self) -> str:
        """The VM for people."""
        return self.alias or self.vm


def encode(move: Move) -> str:
    """The value of FACT."""
    return json.dumps(move._asdict(), separators=(",", ":"), sort_keys=True)


def read(name: str, text: str) -> t.Optional[Move]:
    """What is written down on the dataset of this name; None for anything that this collection would not have written
    there.
    """
    try:
        found = Move(**json.loads(text))
    except (RecursionError, TypeError, ValueError):
        return None
    return found if _valid(found) and name == f"{moves(pool_of(name))}/{found.vm}" else None


def _valid(move: Move) -> bool:
    return (
        move.phase in (LEAVING, MOVED, COMING)
        and all(
            isinstance(text, str)
            for text in (move.vm, move.alias, move.host, move.state, move.since, move.was, move.back_to)
        )
        and identity.is_uuid(move.vm)
        and is_host(move.host)
        and isinstance(move.pool, int)
        and move.state in ("running", "stopped")
        and isinstance(move.autoboot, bool)
        and bool(identity.decode_time(move.since))
    )


def find(datasets: t.Iterable[Dataset]) -> t.Dict[str, Move]:
    """All that is written down, by the UUIDs of the VMs."""
    places = (d for d in datasets if d.kind == "filesystem" and d.parent == moves(d.pool) and FACT in d.user)
    found = [move for move in (read(d.name, d.user[FACT]) for d in places) if move is not None]
    return {move.vm: move for move in found}


def named(known: t.Mapping[str, Move], wanted: str) -> t.List[Move]:
    """The moves of VMs with this name, UUID or beginning of a UUID. A whole UUID takes precedence."""
    lower = wanted.lower()
    if lower in known:
        return [known[lower]]
    begins = identity.begins_uuid(lower)
    return [move for move in known.values() if wanted == move.alias or (begins and move.vm.startswith(lower))]


def away(known: t.Mapping[str, Move], wanted: str) -> t.Optional[Problem]:
    """Why there is no VM of this name or UUID here, and none may be made; None if nothing is known of it."""
    for move in named(known, wanted):
        if move.phase == MOVED:
            words = (
                f"it has moved to {move.host} ({move.since}); the playbook move_vm with flexdisk_move_state=forgotten"
            )
            words += " makes the name free here"
        else:
            words = why_frozen(move)
        return Problem("MovedAway", f"VM {move.label} ({move.vm}): {words}", wanted)
    return None


def why_frozen(move: Move) -> str:
    """Why no other task changes a VM that is here."""
    if move.back_to:
        return f"it is being taken over from {move.host}; the playbook failover_vm goes on"
    way = "from" if move.phase == COMING else "to"
    return f"it is being moved {way} {move.host}; the playbook move_vm goes on"


def is_place(name: str) -> bool:
    """Whether a dataset is one of moves."""
    return identity.is_uuid(last_part(name)) and name.rpartition("/")[0] == moves(pool_of(name))
