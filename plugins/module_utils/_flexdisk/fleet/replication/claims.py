# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Whether another host has taken a VM over: what hosts say of their VMs, and who is its home."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ...model.errors import FlexdiskError
from ...rules.identity import decode_time

_Dict = t.Dict[str, t.Any]


@dataclass(frozen=True)
class Claim:
    """What a host says of a VM. term: as in Wish, None if the VM has no failover there. taking: the host that it is
    being taken over from, "" for none. running: it is not stopped there. pool: the guid of its pool; points: the
    guids of the snapshots and bookmarks of its disks, by their uuids; both only if the host was asked for this VM.
    """

    vm: str
    term: t.Optional[int]
    taking: str = ""
    running: bool = False
    pool: int = 0
    points: t.Mapping[str, t.Sequence[int]] = field(default_factory=dict)

    def beats(self, term: int) -> bool:
        """Whether a host that has the VM with this term must not start it."""
        return bool(self.taking) or self.term is None or self.term >= term

    def disputes(self, term: int) -> bool:
        """Whether neither host is clearly the home: the terms are the same, or the host with the lower one runs it."""
        older = self.term is not None and self.term < term
        return not self.taking and (self.term == term or (older and self.running))


Claims = t.Mapping[str, t.Optional[t.Sequence[Claim]]]  # by hosts, None for one that could not be asked


def read_claims(given: t.Mapping[str, t.Any]) -> Claims:
    """What hosts say, from results; "" of one that could not be asked. Raises FlexdiskError InvalidArgument for what is
    none.
    """
    try:
        return {str(host): [_claim(one) for one in said] if said != "" else None for host, said in given.items()}
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"peers are no results of vm_failover: {exc!r}") from exc


def _claim(given: t.Any) -> Claim:
    points = {str(disk): [int(guid) for guid in guids] for disk, guids in given["points"].items()}
    term = int(given["term"]) if given["failover"] else None
    return Claim(str(given["vm"]), term, str(given["taking"]), bool(given["running"]), int(given["pool"]), points)


def home_elsewhere(vm: str, term: int, claims: Claims) -> t.List[str]:
    """The hosts that have the VM, and not an older one than the host with this term."""
    return sorted(host for host, said in claims.items() if any(one.vm == vm and one.beats(term) for one in said or ()))


def takers(vm: str, claims: Claims) -> t.List[str]:
    """The hosts that have begun to take the VM over, and not ended that."""
    return sorted(host for host, said in claims.items() if any(one.vm == vm and one.taking for one in said or ()))


def without_order(vm: str, term: int, claims: Claims) -> t.List[str]:
    """The hosts that have the VM with the same term, or let an older one run."""
    found = ((host, one) for host, said in claims.items() for one in said or () if one.vm == vm)
    return sorted({host for host, one in found if one.disputes(term)})


def not_asked(hosts: t.Iterable[str], claims: Claims) -> t.List[str]:
    """Those of the hosts that could not be asked."""
    return sorted(host for host in set(hosts) if claims.get(host) is None)


class Rival(t.NamedTuple):
    """The record of the VM that another host has. home: the host of the VM then. term: as in Wish. synced: when the VM
    was as it would come back there, "" for never.
    """

    host: str
    home: str
    term: int
    synced: str


def read_rivals(given: t.Mapping[str, t.Any], vm: str) -> t.List[Rival]:
    """The records of a VM, from results of hosts by their names. Raises FlexdiskError InvalidArgument for any other."""
    try:
        found = [(str(host), one) for host, said in given.items() for one in said if one["vm"] == vm]
        return [Rival(host, str(r["host"]), int(r["term"]), decode_time(str(r["synced"]))) for host, r in found]
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise FlexdiskError("InvalidArgument", f"elsewhere has no results of vm_failover: {exc!r}") from exc


def better_elsewhere(mine: Rival, rivals: t.Sequence[Rival], most: t.Optional[int]) -> t.Iterator[t.Tuple[str, str]]:
    """Why the VM must not come back from this record: code and words. most: seconds that may be lost, None for nothing
    that another host could bring back.
    """
    for one in rivals:
        if one.term > mine.term:
            words = f"{one.host} has a record of it from after another failover; it comes back there, with"
            yield "TooOld", f"{words} flexdisk_target={one.host}"
        elif one.term == mine.term and one.home != mine.home:
            words = f"{one.host} has a record of it on {one.home}, and this host has one of it on {mine.home}; find out"
            yield "Ambiguous", f"{words} which one is old, and leave that host out with --limit"
        elif one.term == mine.term and one.synced > mine.synced and most is None:
            words = f"{one.host} has it as of {one.synced}, and this host as of {mine.synced or 'never'};"
            yield (
                "TooOld",
                f"{words} flexdisk_target={one.host} loses less, and flexdisk_max_data_loss allows to lose more",
            )
