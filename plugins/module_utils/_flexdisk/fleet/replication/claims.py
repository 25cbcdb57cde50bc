# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether another host has taken a VM over: what hosts say of their VMs, and who is its home."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...model.errors import FlexdiskError
from ...rules.identity import decode_time
from ...rules.knobs import limit_without
from ...rules.moves import COMING, MOVED, UNKNOWN

_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Claim:
    """What a host says of a VM."""

    vm: str
    # How often the VM was taken over. None if it has no failover there, or if it moves and an older version has
    # recorded the move.
    term: t.Optional[int]
    # The host that the VM is being taken over from, "" for none.
    taking: str = ""
    # The VM is not stopped there.
    running: bool = False
    # The guid of its pool, if the host was asked for this VM.
    pool: int = 0
    # The guids of the snapshots and bookmarks of its disks, by their uuids, if the host was asked for this VM.
    points: t.Mapping[str, t.Sequence[int]] = field(default_factory=dict)
    # As in Move, of a VM that the host does not have. "" for one that it has.
    phase: str = ""
    # The host to which such a VM has left, or from which it comes.
    other: str = ""
    # What the VM is called there.
    alias: str = ""
    # As in Move.
    since: str = ""

    @property
    def whereabouts(self) -> str:
        """What became of the VM after it was taken over, for people; "" if the host has it."""
        if not self.phase:
            return ""
        return f"comes from {self.other}" if self.phase == COMING else f"has moved on to {self.other}"

    def beats(self, term: int) -> bool:
        """Return whether a host that has the VM with this term must not start it.

        A move leaves the term as it is. So a VM that has moved, or moves, with a higher one was taken over before.
        """
        if self.phase:
            return self.term is not None and self.term > term
        return bool(self.taking) or self.term is None or self.term >= term

    def disputes(self, term: int) -> bool:
        """Return whether neither host is clearly the home: equal terms, or the host with the lower one runs it."""
        if self.phase:
            return False
        older = self.term is not None and self.term < term
        return not self.taking and (self.term == term or (older and self.running))


Claims = t.Mapping[str, t.Optional[t.Sequence[Claim]]]  # by hosts, None for one that could not be asked


def read_claims(given: t.Mapping[str, t.Any]) -> Claims:
    """Parse the claims of hosts from results, "" for an absent host. Raises FlexdiskError InvalidArgument."""
    try:
        return {
            str(host): [_claim(one) for one in entries] if entries != "" else None for host, entries in given.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"peers are no results of the step look: {exc!r}") from exc


def _claim(given: t.Any) -> Claim:
    if given.get("phase"):
        moved = int(given["term"])
        known = moved if moved != UNKNOWN else None
        alias, since = str(given.get("alias", "")), decode_time(str(given.get("since", "")))
        phase, other = str(given["phase"]), str(given["host"])
        return Claim(str(given["vm"]), known, phase=phase, other=other, alias=alias, since=since)
    points = {str(disk): [int(guid) for guid in guids] for disk, guids in given["points"].items()}
    term = int(given["term"]) if given["failover"] else None
    details = (str(given["taking"]), bool(given["running"]), int(given["pool"]), points)
    return Claim(str(given["vm"]), term, *details, alias=str(given.get("alias", "")))


def home_elsewhere(vm: str, term: int, claims: Claims) -> t.List[str]:
    """Return the hosts that have the VM, and not an older one than the host with this term."""
    return sorted(
        host
        for host, host_claims in claims.items()
        if any(one.vm == vm and one.beats(term) for one in host_claims or ())
    )


def hosts_taking_over(vm: str, claims: Claims) -> t.List[str]:
    """Return the hosts that have begun to take the VM over, and not ended that."""
    return sorted(
        host for host, host_claims in claims.items() if any(one.vm == vm and one.taking for one in host_claims or ())
    )


def hosts_in_dispute(vm: str, term: int, claims: Claims) -> t.List[str]:
    """Return the hosts that have the VM with the same term, or let an older one run."""
    vm_claims = ((host, one) for host, host_claims in claims.items() for one in host_claims or () if one.vm == vm)
    return sorted({host for host, one in vm_claims if one.disputes(term)})


def running_on(vm: str, claims: Claims) -> t.List[str]:
    """Return the hosts that say that the VM is not stopped there."""
    return sorted(
        host for host, host_claims in claims.items() if any(one.vm == vm and one.running for one in host_claims or ())
    )


def moved_on_texts(vm: str, term: int, claims: Claims) -> t.List[str]:
    """Return a sentence for each host that the VM left, or comes to, since a failover from the host with this term."""
    vm_claims = (
        (host, one)
        for host, host_claims in claims.items()
        for one in host_claims or ()
        if one.vm == vm and one.beats(term)
    )
    return sorted({f"{host} says that it {one.whereabouts}" for host, one in vm_claims if one.whereabouts})


def unknown_successors(vm: str, claims: Claims) -> t.List[str]:
    """Return the hosts that the VM has left for, where its term is not known."""
    vm_claims = (one for host_claims in claims.values() for one in host_claims or () if one.vm == vm)
    return sorted({one.other for one in vm_claims if one.phase == MOVED and one.term is None})


def not_asked(hosts: t.Iterable[str], claims: Claims) -> t.List[str]:
    """Return the hosts that could not be asked."""
    return sorted(host for host in set(hosts) if claims.get(host) is None)


class Rival(t.NamedTuple):
    """What a host with a record of a VM could bring back, or what has come to a host that a VM moves to."""

    host: str
    home: str
    """The host of the VM then."""
    pool: int
    """The guid of the pool that the VM had there."""
    term: int
    """How often the VM was taken over."""
    synced: str
    """When the VM was as it would come back, by the clock of the host with the record; "" if that is not known."""
    points: t.Mapping[str, t.Tuple[int, ...]]
    """The guids of snapshots of syncs that would come back, by the disks' uuids. The last one is that of the set."""
    why_not: str = ""
    """Why that host could not bring the VM back from its replicas."""
    comes: bool = False
    """Whether the VM moves to that host, and the move has not ended."""
    begun: bool = False
    """Whether its arrival there has begun. Then the VM has left its home, and all that it had is there."""

    def includes(self, other: Rival) -> bool:
        """Return whether this host has all that the other one has: it knows the other's set, and its own is not older.

        Each stream brings the snapshots between two sets, those of other hosts' sets too. So of two hosts the one
        with the later set knows the other's. Guids cannot lie; the clocks of two hosts can.
        """
        both = self.points.keys() & other.points.keys()
        return bool(both) and all(other.points[disk][-1] in self.points[disk] for disk in both)


def read_rivals(given: t.Mapping[str, t.Any], vm: str) -> t.List[Rival]:
    """Return the records of a VM from results by host. Raises FlexdiskError InvalidArgument for any other."""
    try:
        matches = ((str(host), one) for host, entries in given.items() for one in entries if one["vm"] == vm)
        return [_rival(host, one) for host, one in matches if one.get("phase") != MOVED]
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"elsewhere has no results of the step look: {exc!r}") from exc


def _rival(host: str, given: t.Any) -> Rival:
    points = {str(disk): tuple(int(guid) for guid in guids) for disk, guids in given["points"].items() if guids}
    whose = (str(given["host"]), int(given["home"]), int(given["term"]), decode_time(str(given["synced"])))
    how = (given.get("phase") == COMING, bool(given.get("begun")))
    return Rival(host, *whose, points, str(given["why_not"]), *how)


def better_elsewhere(mine: Rival, rivals: t.Sequence[Rival], most: t.Optional[int]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield why the VM must not come back from this record: code and message. most: seconds that may be lost, None for
    nothing that another host could bring back.
    """
    recorded = {one.host for one in rivals if not one.comes}
    for one in rivals:
        if one.comes:
            if one.begun or one.host not in recorded:  # else the record tells of the same replicas
                yield from _comes_there(mine, one, most)
        elif one.term > mine.term:
            text = f"{one.host} has a record of it from after another failover; it comes back there, with"
            yield "TooOld", f"{text} flexdisk_target={one.host}"
        elif one.term == mine.term and one.pool != mine.pool:
            text = f"{one.host} has a record of it on {one.home} (pool guid {one.pool}), and {mine.host} has one of it"
            text += f" on {mine.home} (pool guid {mine.pool}); find out which one is old, and leave that host out with"
            yield "Ambiguous", f"{text} {limit_without(one.host)} or {limit_without(mine.host)}"
        elif one.term == mine.term and most is None:
            yield from _newer_elsewhere(mine, one)


def _comes_there(mine: Rival, one: Rival, most: t.Optional[int]) -> t.Iterator[t.Tuple[str, str]]:
    """Yield why the VM belongs to the host that it moves to. It does not if the move is from before a failover, or if
    mine knows the set that has come there.
    """
    text = f"its move from {one.home} to {one.host} has not ended"
    way = f"bring {one.home} up, and end the move with flexdisk_target={one.host} of the playbook move_vm"
    if one.begun:
        way = f"flexdisk_target={one.host} of the playbook move_vm goes on there, also without {one.home}"
    if one.term != UNKNOWN and one.term < mine.term:
        return
    if one.term > mine.term:
        yield "TooOld", f"{text}, and began after another failover than {mine.host} knows of; {way}"
    elif one.begun:
        yield "InUse", f"{text}, and it has left {one.home}: {one.host} has all that it had; {way}"
    elif most is None and not mine.includes(one):
        yield (
            "TooOld",
            f"{text}, and it is not known that {mine.host} has all that {one.host} has: {one.host} can have what the"
            f" VM wrote until it was stopped. To lose nothing, {way}. To give up what has come to {one.host}, give"
            f" flexdisk_max_data_loss; after the failover, flexdisk_target={one.host} and flexdisk_move_state=stays of"
            f" the playbook move_vm, without {one.home}, remove it there",
        )


def _newer_elsewhere(mine: Rival, one: Rival) -> t.Iterator[t.Tuple[str, str]]:
    """Yield why another host with replicas of the same home could lose less. It is not if this one knows its set."""
    accept = "flexdisk_max_data_loss allows to lose more"
    if one.why_not:
        text = f"{one.host} has replicas of it, too, and does not know how new they are: {one.why_not}. Look there"
        yield "Ambiguous", f"{text}, or leave {one.host} out with {limit_without(one.host)}; {accept}"
    elif not one.points or mine.includes(one):
        return
    elif one.includes(mine):
        text = f"{one.host} has a set of its snapshots that is newer than the one of {mine.host};"
        yield "TooOld", f"{text} flexdisk_target={one.host} loses less, and {accept}"
    else:
        clocks = f"{_noted(one)}, {_noted(mine)}, each by its own clock"
        text = (
            f"neither the replicas on {one.host} nor those on {mine.host} have the other's set of snapshots, so it is"
        )
        text += f" not known who loses less ({clocks}). Find out, and leave one of them out with"
        yield "Ambiguous", f"{text} {limit_without(one.host)} or {limit_without(mine.host)}; {accept}"


def _noted(rival: Rival) -> str:
    return f"{rival.host} says as of {rival.synced or 'an unknown time'}"
