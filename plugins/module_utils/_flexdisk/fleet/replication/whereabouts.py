# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a VM is that is to come back on another host, by the reports of all hosts."""

from __future__ import annotations

import typing as t

from ...rules.knobs import limit_without
from ...rules.moves import MOVED
from .claims import Claim, Claims


class Recorded(t.NamedTuple):
    """The record of a VM that shall come back."""

    vm: str
    home: str
    """The host of the VM then."""
    term: int
    """How often the VM was taken over."""
    here: str
    """The host with the record, as others call it."""


class MovedOn(t.NamedTuple):
    """That the VM has moved on since its record was stored."""

    text: str
    refuses: bool
    """Whether the VM must not come back from the record. Else the words say what is lost."""


def has_it(vm: str, alias: str, claims: Claims, home: str) -> t.Iterator[str]:
    """Yield which other hosts have the VM, by its UUID. alias: as it was called on its home, which may have it."""
    for host, one in _claims_of(vm, claims):
        if host == home or one.phase:
            continue
        text = f"{host} has it"
        if one.alias != alias:
            text += f", called {one.alias}" if one.alias else ", without an alias"
        if one.taking:
            yield f"{text}: it is being taken over from {one.taking} there; the playbook failover_vm goes on there"
        elif one.running:
            yield f"{text}, and it is not stopped there"
        else:
            yield f"{text}. If that is an old copy, leave {host} out with {limit_without(host)}"


def home_answers(vm: str, label: str, home: str, claims: Claims) -> str:
    """Return why the VM must not come back while its home says this; "" if the home is silent or tells of a move."""
    host_claims = claims.get(home)
    if host_claims is None or any(one.phase for one in host_claims if one.vm == vm):
        return ""
    begin = f"{home}, the host of {label}, answers"
    if any(one.vm == vm for one in host_claims):
        return f"{begin}: move the VM with the playbook move_vm, or shut that host down"
    return f"{begin}, and does not have it any more. If it was not deleted there on purpose, shut that host down"


def moved_on(record: Recorded, claims: Claims, age: str, most: t.Optional[int]) -> t.Iterator[MovedOn]:
    """Yield where the VM has gone since its record was stored. age: of what would come back, in words. most: seconds
    that may be lost, None for nothing that another host has.

    A tombstone says nothing against the record if its way ends at the home of the record, or here, or if it is from
    before a failover that the record tells of.
    """
    for host, stone in _last_stones(record, claims).items():
        yield _gone(host, stone, record, claims, age, most)


def not_heard(record: Recorded, claims: Claims) -> t.List[str]:
    """Return the silent hosts that may have the VM. Its home is to be silent, and so is a host where it has gone."""
    gone_to = {stone.other for stone in _last_stones(record, claims).values()}
    return sorted(
        host for host, host_claims in claims.items() if host_claims is None and host not in {record.home, *gone_to}
    )


def _last_stones(record: Recorded, claims: Claims) -> t.Dict[str, Claim]:
    """The tombstones at the ends of ways that the VM has gone since its record was stored, by their hosts."""
    stones = {host: one for host, one in _claims_of(record.vm, claims) if one.phase == MOVED}
    newer = {host: one for host, one in stones.items() if _is_newer(host, one, record, stones)}
    return {host: one for host, one in newer.items() if one.other not in newer} or newer


def _is_newer(host: str, stone: Claim, record: Recorded, stones: t.Mapping[str, Claim]) -> bool:
    if stone.term is not None and stone.term < record.term:
        return False
    passed, at = {host}, stone.other
    while at in stones and at not in passed:
        passed.add(at)
        at = stones[at].other
    return at in passed or at not in (record.home, record.here)


def _gone(host: str, stone: Claim, record: Recorded, claims: Claims, age: str, most: t.Optional[int]) -> MovedOn:
    there, here = stone.other, record.here
    text = f"{host} says that it has moved on to {there} ({stone.since or 'at an unknown time'})"
    if stone.term is not None and stone.term > record.term:
        text += f", after another failover than {here} knows of. Bring {there} up, or give a host as flexdisk_target"
        return MovedOn(f"{text} that has replicas from there", True)
    text += f", and {here} only has replicas of it from {record.home}, {age}"
    if there not in claims:
        text += f". {there} is not among the hosts of this run: it has to be asked whether it answers. If it is gone"
        text += " for good, flexdisk_move_state=forgotten and flexdisk_forget_unseen=true of the playbook move_vm, with"
        return MovedOn(f"{text} --limit {host}, give the tombstone up", True)
    if most is not None:
        return MovedOn(f"{text}: what it has written on {there} is lost", False)
    accept = f"flexdisk_max_data_loss brings back what {here} has"
    if claims[there] is not None:  # else it is refused, for it has the VM
        text += f". {there} does not have it any more; if it was not deleted there on purpose, {accept}"
        return MovedOn(text, True)
    text += f". {there} has had newer data: bring {there} up, or give a host as flexdisk_target that has replicas from"
    return MovedOn(f"{text} there. If {there} is gone for good, {accept}", True)


def _claims_of(vm: str, claims: Claims) -> t.List[t.Tuple[str, Claim]]:
    return [(host, one) for host, host_claims in sorted(claims.items()) for one in host_claims or () if one.vm == vm]
