# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The calls of the playbook move_vm before the move itself: which host has the VM, and what is to be done where."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...rules.moves import read_sightings
from ...rules.naming import similar
from . import places
from .calls import Answer, AtOnce, Call, Message, PlayFlow, PlayPart, Run, Stopped

_Dict = t.Dict[str, t.Any]
_Seen = t.Mapping[str, Answer]
_KEEPS = ("vm", "move", "term", "asks", "unmanaged", "known", "memory_left")
_OF_OTHERS = ("vm", "move", "term")


@dataclass(frozen=True)
class Relocation:
    """The variables of the playbook."""

    vm: str
    hosts: t.Sequence[str]
    """Those of the run, in its order."""
    target: str = ""
    state: str = "moved"
    """moved, stays or forgotten."""
    unasked: bool = False
    authorized_keys: t.Optional[str] = None
    """Of the target."""
    stop_timeout: int = 180
    allow_memory_loss: bool = False

    @property
    def lock_timeout(self) -> int:
        """Another VM of the host may be shutting down."""
        return int(self.stop_timeout) + 60


def relocate(wanted: Relocation, run: Run) -> PlayFlow:
    """Return in C(moves) which hosts run the role vm_move: what they call the VM, and what others say of it (seen)."""
    if not wanted.target and wanted.state != "forgotten":
        raise Stopped("flexdisk_target is missing, the host that the VM moves to")
    looks, by_uuid = yield from _look(wanted)
    seen = {host: one.result for host, one in looks.items() if not one.lost}
    location = _places(wanted, seen)
    if wanted.state == "forgotten":
        return {"moves": {host: {"vm": wanted.vm, "seen": _others(looks, host)} for host in seen}}
    if wanted.state == "moved" and wanted.target in looks and wanted.target not in seen:
        raise Stopped(_cannot_be_reached(wanted, location))
    if location.homes == [wanted.target]:
        yield Message("Say that the VM is there", f"{wanted.vm} is on {wanted.target}")
        for host in (one for one in seen if seen[one].get("memory_left") and wanted.state == "moved"):
            arguments = {"step": "tidy", "vm": seen[host]["move"]["vm"], "lock_timeout": wanted.lock_timeout}
            yield Call("Destroy the memory that its guest has left", host, "move", arguments)
    elif location.source in seen:
        vm = seen[location.source]["vm"] if location.source in by_uuid else ""
        return {"moves": {location.source: {"vm": vm or wanted.vm, "seen": _others(looks, location.source)}}}
    elif wanted.state == "moved":
        yield from _arrive(wanted, run, location.source, looks)
    return {"moves": {}}


def _look(wanted: Relocation) -> PlayPart:
    """Look what each host has of the VM. Return what they say, and which of them were asked by its UUID."""
    looks: t.Dict[str, Answer] = yield _look_calls("Look what each host has of the VM", wanted.vm, wanted.hosts)
    answers = {host: one.result for host, one in looks.items() if "vm" in one.result}
    uuids = {vm for one in answers.values() for vm in (one["vm"], (one["move"] or {}).get("vm")) if vm}
    again = [host for host, one in answers.items() if not one["vm"] and not one["move"]]
    if len(uuids) != 1 or uuids == {wanted.vm} or not again:
        again = []
    else:
        name = "Look again by UUID, for it may have another name here"
        looks = {**looks, **(yield _look_calls(name, uuids.pop(), again))}
    failures = [f"{host}: {one.msg or 'the look at the VM failed'}" for host, one in looks.items() if _failed(one)]
    if failures:
        raise Stopped(". ".join(failures))
    return looks, again


def _look_calls(name: str, vm: str, hosts: t.Sequence[str]) -> AtOnce:
    """Return one look per host. A host that cannot be reached drops out of the run."""
    return AtOnce(
        [Call(name, host, "move", _step("look", host, vm), _KEEPS, hidden=True, may_fail=True) for host in hosts]
    )


def _step(step: str, host: str, vm: str) -> _Dict:
    return {"step": step, "vm": vm, "name": host}


def _failed(look: Answer) -> bool:
    return not look.lost and "vm" not in look.result


def _places(wanted: Relocation, seen: t.Mapping[str, t.Mapping[str, t.Any]]) -> places.Places:
    """Find out where the VM is. Refuse what cannot be done without a guess."""
    sightings = {host: one for host, one in read_sightings(seen).items() if one is not None}
    location = places.find(sightings, places.Wanted(wanted.vm, wanted.target, wanted.state, wanted.unasked))
    is_there = bool(location.source) or any(one.unmanaged for one in sightings.values())
    known = {host: one.get("known") or [] for host, one in seen.items()}
    meant = "" if is_there or wanted.state == "forgotten" else similar(wanted.vm, known)
    problems = [*location.problems, *filter(None, [meant])]
    if problems:
        raise Stopped(". ".join(problems))
    return location


def _cannot_be_reached(wanted: Relocation, location: places.Places) -> str:
    is_on = "is on" if location.homes else "has left"
    return (
        f"{wanted.target} could not be reached, so this run has begun nothing and changed nothing. {wanted.vm} {is_on}"
        f" {location.source}. The same command goes on when {wanted.target} answers"
    )


def _others(looks: _Seen, host: str) -> _Dict:
    """Return what the other hosts say, "" for those that could not be reached. The record is left out."""
    others = {other: one for other, one in looks.items() if other != host}
    return {other: "" if one.lost else {key: one.result[key] for key in _OF_OTHERS} for other, one in others.items()}


def _arrive(wanted: Relocation, run: Run, source: str, looks: _Seen) -> PlayPart:
    """End a move on its target, for the host that the VM has left cannot be asked."""
    target = wanted.target
    arguments = _step("arrive", target, looks[target].result["move"]["vm"])
    arguments.update(peer_name=source, peers=_others(looks, target), unasked=wanted.unasked)
    arguments.update(authorized_keys=wanted.authorized_keys, lock_timeout=wanted.lock_timeout)
    arguments.update(allow_memory_loss=wanted.allow_memory_loss)
    yield Call("End a move on its target, if the host that the VM has left cannot be asked", target, "move", arguments)
    text = (
        f"{wanted.vm} {'would arrive' if run.check else 'is'} on {target}; {source}, which it has left, was not asked"
    )
    yield Message("Say where the VM is, if the host that it has left could not be asked", text, target)
