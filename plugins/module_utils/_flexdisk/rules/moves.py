# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of VMs that leave this host or come to it. Each is a property of a dataset of its own.

The dataset of a VM that has left stays as a tombstone: no other VM here can get the name or the UUID.
"""

from __future__ import annotations

import json
import re
import typing as t

from ..model.dataset import Dataset
from ..model.errors import FlexdiskError, Problem
from . import identity
from .failover import FAILOVER_PROPERTY, term_of
from .layout import last_part, memory_dataset, moves_container, pool_of
from .replicas import is_host

MOVE_PROPERTY = "move"
MEMORY_PROPERTY = "memory"
"""Of the dataset with the saved memory of a guest: how far that has come (saved_memory.py), or MEMORY_ENDED."""
RESTORED = "restored"
MEMORY_ENDED = "ended"
"""The file is of no use any more, but others keep its file system from being destroyed."""
STAYED_PROPERTY = "stayed"
"""Property of a VM's dataset: when a move of the VM was last given up. Moves that began earlier end then."""
LEAVING, MOVED, COMING = "leaving", "moved", "coming"
UNKNOWN = -1


class Move(t.NamedTuple):
    """The record of a VM that moves or has moved."""

    # LEAVING, MOVED or COMING.
    phase: str
    vm: str
    alias: str
    # The other host.
    host: str
    # The guid of its pool.
    pool: int
    # state and autoboot of the VM before the move, to be restored.
    state: str
    autoboot: bool
    # When it began, by the clock of this host.
    since: str
    # The tombstone that this record replaces, encoded.
    was: str = ""
    # The set of snapshots that its disks are rolled back to, if the VM comes because its home has failed, else "".
    back_to: str = ""
    # How often the VM had been taken over, UNKNOWN if an older version has written this.
    term: int = UNKNOWN
    # The hosts that may take over a VM with failover that leaves, separated by commas.
    asks: str = ""
    # The VM has not moved, but has been taken over by the other host.
    taken: bool = False
    # The VM had left its former host when it began to come here.
    has_left: bool = False
    # What has become of the memory of its guest, or is said if nothing more is known: RESTORED, or why it is lost.
    memory_end: str = ""
    # This move has made its disks read-only, and makes them writable again.
    closed: bool = False

    @property
    def label(self) -> str:
        """What messages call the VM."""
        return self.alias or self.vm

    @property
    def memory_lost(self) -> str:
        """Why the VM goes on without the memory that was saved, "" if it does not."""
        return "" if self.memory_end == RESTORED else self.memory_end


def result(move: Move, memory: bool) -> t.Dict[str, t.Any]:
    """Return what results show of a move. memory: as for why_frozen()."""
    shown = {"uuid": move.vm, "alias": move.alias, "phase": move.phase, "host": move.host, "since": move.since}
    return {**shown, "memory_saved": memory}


def has_memory(move: Move, datasets: t.Mapping[str, Dataset], pools: t.Iterable[str]) -> bool:
    """Return whether the memory of its guest is saved here. datasets: all that there are. pools: theirs."""
    return any(memory_is_there(datasets, memory_dataset(pool, move.vm)) for pool in pools)


def stands_still(move: Move, state: str) -> bool:
    """Whether a guest stands still in its move, and only that lets it go on. state: of the VM, as in VmConfig."""
    return state == "paused" and move.phase in (LEAVING, COMING) and not (move.taken or move.back_to)


def memory_is_there(datasets: t.Mapping[str, Dataset], name: str) -> bool:
    """Return whether a dataset has the saved memory of a guest, and has not ended. datasets: all there are."""
    return name in datasets and datasets[name].user.get(MEMORY_PROPERTY) != MEMORY_ENDED


def encode(move: Move) -> str:
    """Return the value of MOVE_PROPERTY in the bytes of earlier releases, which property_text.py would change.

    These know no memory_end and no closed.
    """
    fields = {key: value for key, value in move._asdict().items() if value or key not in ("memory_end", "closed")}
    return json.dumps(fields, separators=(",", ":"), sort_keys=True)


def decode_at(name: str, text: str) -> t.Optional[Move]:
    """Return the record on the dataset of this name; None for anything that this collection has not written."""
    move = _decode(text)
    return move if move is not None and name == f"{moves_container(pool_of(name))}/{move.vm}" else None


def previous_tombstone(move: Move) -> t.Optional[Move]:
    """Return the tombstone that this record replaces, None if there is none."""
    return _decode(move.was)


def _decode(text: str) -> t.Optional[Move]:
    try:
        move = Move(**json.loads(text))
    except (RecursionError, TypeError, ValueError):
        return None
    return move if _valid(move) else None


def _valid(move: Move) -> bool:
    return (
        move.phase in (LEAVING, MOVED, COMING)
        and all(
            isinstance(value, str)
            for value in (
                move.vm,
                move.alias,
                move.host,
                move.state,
                move.since,
                move.was,
                move.back_to,
                move.asks,
                move.memory_end,
            )
        )
        and identity.is_uuid(move.vm)
        and is_host(move.host)
        and isinstance(move.pool, int)
        and isinstance(move.term, int)
        and move.state in ("running", "stopped")
        and isinstance(move.autoboot, bool)
        and isinstance(move.taken, bool)
        and isinstance(move.has_left, bool)
        and isinstance(move.closed, bool)
        and bool(identity.decode_time(move.since))
    )


class GivenUp(t.NamedTuple):
    """When a move of a VM was last given up.

    The greater tuple is later. The number alone does not suffice: a failover brings back the number of an older record.
    """

    term: int
    """How often the VM had been taken over."""
    number: int
    """Grows with each move that is given up in a term. 0 if none was."""


def given_up_at(user_properties: t.Mapping[str, str]) -> GivenUp:
    """Return when a move of the VM was last given up, from the properties of its dataset or of its record."""
    return GivenUp(term_of(user_properties.get(FAILOVER_PROPERTY, "")), stayed_at(user_properties))


def stayed_at(user_properties: t.Mapping[str, str]) -> int:
    """Return the number in given_up_at()."""
    text = user_properties.get(STAYED_PROPERTY, "")
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else 0


def stays_at(user_properties: t.Mapping[str, str], now: float) -> int:
    """Return the number to store when a move is given up: seconds since 1970, and always greater than the last one."""
    return max(int(now), stayed_at(user_properties) + 1)


def find(datasets: t.Iterable[Dataset]) -> t.Dict[str, Move]:
    """Return all records, by the UUIDs of the VMs."""
    known = [move for move in (decode_at(d.name, d.user[MOVE_PROPERTY]) for d in _places(datasets)) if move is not None]
    return {move.vm: move for move in known}


def unreadable(datasets: t.Iterable[Dataset]) -> t.List[str]:
    """Return the datasets with a record that cannot be read, sorted."""
    return sorted(d.name for d in _places(datasets) if decode_at(d.name, d.user[MOVE_PROPERTY]) is None)


def _places(datasets: t.Iterable[Dataset]) -> t.Iterator[Dataset]:
    for d in datasets:
        if d.kind == "filesystem" and d.parent == moves_container(d.pool) and MOVE_PROPERTY in d.user:
            yield d


def find_by_name(known: t.Mapping[str, Move], wanted: str) -> t.List[Move]:
    """Return the moves of VMs with this name, UUID or beginning of a UUID. A whole UUID takes precedence."""
    lower = wanted.lower()
    if lower in known:
        return [known[lower]]
    begins = identity.begins_uuid(lower)
    return [move for move in known.values() if wanted == move.alias or (begins and move.vm.startswith(lower))]


def why_moved_away(known: t.Mapping[str, Move], wanted: str) -> t.Optional[Problem]:
    """Return why there is no VM of this name or UUID here, and none may be created; None if no move is known."""
    for move in find_by_name(known, wanted):
        if move.phase == MOVED:
            reason = (
                f"it has moved to {move.host} ({move.since}); the playbook move_vm with flexdisk_move_state=forgotten"
            )
            reason += " makes the name free here"
        else:
            reason = why_frozen(move)
        return Problem("MovedAway", f"VM {move.label} ({move.vm}): {reason}", wanted)
    return None


def why_frozen(move: Move, memory: bool = False) -> str:
    """Return why no other task changes a VM while it moves. memory: that of its guest is saved here."""
    if move.taken:
        return f"{move.host} has taken it over; flexdisk_failover_state=returned of the playbook failover_vm goes on"
    if move.back_to:
        return f"it is being taken over from {move.host}; the playbook failover_vm goes on"
    way = "from" if move.phase == COMING else "to"
    saved = " with the saved memory of its guest" if memory else ""
    return f"it is being moved {way} {move.host}{saved}; the playbook move_vm goes on"


def to_ask(move: Move) -> t.List[str]:
    """Return the hosts that must confirm that they have not taken the VM over, before its move goes on.

    Another host may take over a VM that has left even if its host has not booted since, because that host does not have
    the VM any more.
    """
    return [one for one in move.asks.split(",") if one] if move.phase == MOVED else []


class Sighting(t.NamedTuple):
    """What another host reports about a VM."""

    vm: str
    """The UUID of the VM, if the host has it, else ""."""
    phase: str
    """As in Move, "" if the host has no record of a move."""
    target: str = ""
    """The host that the VM has gone to from there, or comes from."""
    moving: str = ""
    """The UUID of the VM in the record of a move, "" without one."""
    term: int = UNKNOWN
    """As in Move."""
    had: int = UNKNOWN
    """The term of the VM on that host. UNKNOWN without failover, if it runs, or if the host surely is its home."""
    has_left: bool = False
    """As in Move."""
    taking: bool = False
    """Whether the VM comes because its home has failed."""
    asks: t.Tuple[str, ...] = ()
    """The hosts that must confirm that they have not taken the VM over before its move from there goes on."""
    unmanaged: str = ""
    """Why no task manages the VM on that host, "" if it is managed, or not there."""

    def is_older_than(self, term: int) -> bool:
        """Whether the host is only an old home of a VM that has this term elsewhere."""
        return self.phase in ("", LEAVING) and UNKNOWN < self.had < term


def read_sightings(given: t.Mapping[str, t.Any]) -> t.Dict[str, t.Optional[Sighting]]:
    """Return what hosts report in the step look; None for an absent host. Raises FlexdiskError."""
    try:
        return {str(host): _sighting(one) if one != "" else None for host, one in given.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"peers are no results of the step look: {exc!r}") from exc


def _sighting(given: t.Any) -> Sighting:
    move = given["move"] or {}
    known = (str(move.get("phase", "")), str(move.get("host", "")), str(move.get("vm", "")))
    terms = (int(move.get("term", UNKNOWN)), int(given.get("term", UNKNOWN)))
    how = (bool(move.get("has_left")), bool(move.get("back_to")))
    asks = tuple(map(str, given.get("asks", ())))
    return Sighting(str(given["vm"]), *known, *terms, *how, asks, str(given.get("unmanaged", "")))


def why_not_on(
    vm: str,
    target: str,
    seen: t.Mapping[str, t.Optional[Sighting]],
    asks: t.Sequence[str] = (),
    term: int = UNKNOWN,
    unasked: bool = False,
) -> str:
    """Return why a VM must not go from its host to the target, judging by the reports of other hosts; "" if it may.

    asks: the hosts that must confirm that they have not taken it over, see to_ask(). term: that of the move. unasked:
    go on even if they cannot be asked.
    """
    answered = {host: one for host, one in seen.items() if one is not None and host != target}
    have = [host for host, one in sorted(answered.items()) if one.vm == vm and one.phase != COMING]
    have = [host for host in have if not answered[host].is_older_than(term)]
    if have:
        text = f"{' and '.join(have)} has it, too. If it was taken over there, end it on its old host with"
        return f"{text} flexdisk_failover_state=returned of the playbook failover_vm"
    coming = sorted(host for host, one in answered.items() if one.moving == vm and one.phase == COMING)
    if coming:
        text = f"it is on its way to {' and '.join(coming)}; go on there, or give that up with flexdisk_target and"
        return f"{text} flexdisk_move_state=stays of the playbook move_vm"
    if not asks:
        return ""
    raised = sorted(host for host, one in answered.items() if one.moving == vm and one.term > term)
    if raised:
        return f"it was taken over while it moved: {' and '.join(raised)} says that it went on from there"
    unanswered = sorted(set(asks) - {target} - answered.keys())
    if unanswered and not unasked:
        text = f"it has left its host, and {' and '.join(unanswered)} could not"
        text += " be asked whether it has been taken over; flexdisk_start_unasked=true goes on (of the role vm_move:"
        return f"{text} vm_move_unasked=true)"
    return ""


def why_not_here(move: Move, here: str, seen: t.Mapping[str, t.Optional[Sighting]]) -> str:
    """Return why a VM that was leaving must not go on here, judging by the reports of others; "" if it may."""
    answered = {host: one for host, one in seen.items() if one is not None and one.phase != COMING}
    have = sorted(host for host, one in answered.items() if one.vm == move.vm and not one.is_older_than(move.term))
    if not have:
        return ""
    text = f"{' and '.join(have)} has it, too, and it does not go on here ({here}). If it was taken over there, end it"
    return f"{text} on {here} with flexdisk_failover_state=returned of the playbook failover_vm"


def why_needed(move: Move, seen: t.Mapping[str, t.Optional[Sighting]], data: t.Sequence[str], unseen: bool) -> str:
    """Return why the tombstone of a VM must stay here; "" if it may go, because another host reports that it has the
    whole VM.

    A host that was not asked counts as not having it. A host that has it may be an old home. It does not count while
    the VM is on its way, or if the host that the VM went to does not answer. data: the datasets that this host has of
    the VM. unseen: the tombstone may also go if no host has the VM and none expects it.
    """
    coming = sorted(host for host, one in seen.items() if one is not None and one.phase == COMING)
    if coming:
        return f"it is on its way to {' and '.join(coming)}, and its tombstone is needed until it is there"
    have = sorted(host for host, one in seen.items() if one is not None and one.vm == move.vm and not one.phase)
    last = _trail(move, seen)
    unanswered = sorted(host for host, one in seen.items() if one is None)
    if unseen or (have and _is_gone_from(last, seen) and not (unanswered and move.term > 0)):
        return ""
    if have and _is_gone_from(last, seen):
        text = f"it had been taken over before it left, and {' and '.join(unanswered)} could not be asked: an old home"
        text += " that finds no tombstone starts the VM a second time. If such a host is gone for good,"
        return f"{text} flexdisk_forget_unseen=true gives the tombstone up"
    if have:
        text = f"{' and '.join(have)} has it, and may be an old home: it has gone to {last}, which "
        text += "could not be asked" if last in seen and seen[last] is None else "was not asked"
        if seen.get(last) is not None:
            text = f"{' and '.join(have)} has it, and may be an old home: {_says(last, seen[last])}"
        return f"{text}. If {last} is gone for good, flexdisk_forget_unseen=true gives the tombstone up"
    text = "no other host says that it has the VM, and a host that was not asked does not count: "
    text += "; ".join(_says(host, seen[host]) for host in sorted({*seen, move.host} & seen.keys())) or "none was asked"
    if move.host not in seen:
        text += f"; {move.host}, where it went, was not asked"
    text += f". What this host has of it: {', '.join(data) or 'nothing'}. The playbook move_vm with"
    text += (
        f" flexdisk_target={move.host} goes on with an interrupted move. If the VM was deleted, or its host is gone for"
    )
    return f"{text} good, flexdisk_forget_unseen=true gives the tombstone up"


def _trail(move: Move, seen: t.Mapping[str, t.Optional[Sighting]]) -> str:
    """Return the host that the VM has gone to, following the tombstones."""
    host = move.host
    passed: t.Set[str] = set()
    while host not in passed:
        passed.add(host)
        one = seen.get(host)
        if one is None or one.phase != MOVED:
            break
        host = one.target
    return host


def _is_gone_from(host: str, seen: t.Mapping[str, t.Optional[Sighting]]) -> bool:
    """Whether the last host of a trail has the whole VM, or has nothing of it any more."""
    one = seen.get(host)
    return one is not None and not one.phase


def _says(host: str, seen: t.Optional[Sighting]) -> str:
    if seen is None:
        return f"{host} could not be asked"
    if seen.phase == LEAVING:
        return f"{host} says that it is leaving for {seen.target}"
    if seen.phase:
        return f"{host} says that it has gone to {seen.target}"
    return f"{host} does not have it"


def is_place(name: str) -> bool:
    """Whether it is the dataset of such a record."""
    return identity.is_uuid(last_part(name)) and name.rpartition("/")[0] == moves_container(pool_of(name))
