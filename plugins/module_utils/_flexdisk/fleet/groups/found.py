# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""Where the members of a group are, from what all hosts say of themselves."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...model.errors import Problem, Problems
from ...rules.identity import uuid_for
from . import template
from .homes import Homes, parse_homes, placed
from .members import Member, index_of, member_name
from .policy import parse_policy
from .roll import Group

_Raw = t.Mapping[str, t.Any]
GATE = ("name", "index", "host", "address", "running", "guest_agent")  # what group_gate takes of a member
RENAMED = 3  # so many VMs of one pool may have had the name before, and are called otherwise today


@dataclass(frozen=True)
class Place:
    """Where a member is. what: C(vm), C(disks) (the VM is gone, but its detached disks or its intent are there) or
    C(taken) (a VM that this collection cannot manage has the name). vm: the VM as vm_info reports it, empty for none.
    """

    name: str
    index: int
    host: str
    what: str
    vm: _Raw


def find(results: t.Mapping[str, _Raw], group: _Raw, unread: t.Sequence[str]) -> t.Dict[str, t.Any]:
    """The members of a group, whether they keep disks, and the texts of all that is wrong with its declaration.

    results: what vm_info returned, by host. group: name, size, hosts, policy, template, members and replace. unread:
    hosts that cannot be read. Without problems, each member has what observed says, address, and gate for group_gate.
    """
    name, size, own = group["name"], group["size"], group["members"]
    policy, wrong = parse_policy(group["policy"])
    problems = template.check_template(name, group["template"], own)
    homes = problems.attempt("", parse_homes, group["hosts"]) or Homes()
    texts = [f"size is {size}, but must not be negative"] if size < 0 else []
    texts += [problem.message for problem in [*problems, *wrong]]
    texts += _strange(group, homes, {*results, *unread})
    keeps_disks = not texts and template.keeps_disks(group["template"])
    members: t.List[t.Dict[str, t.Any]] = []
    if not texts:
        uuids = {member: str(values.get("uuid") or "") for member, values in own.items()}
        found = places(results, name, size, uuids)
        texts = [problem.message for problem in check_places(found)]
        surge = 0 if keeps_disks else policy.limits(size).max_batch_size
        members = [] if texts else observed(found, name, size, unread, homes, surge)
    for member in members:
        member["address"] = template.facts_of(member, group["template"], own)[template.ADDRESS]
        member["gate"] = {key: member[key] for key in GATE}
    return {"members": members, "keeps_disks": keeps_disks, "problems": texts}


def _strange(group: _Raw, homes: Homes, hosts: t.Set[str]) -> t.List[str]:
    """Names of hosts that the play does not have, and names that no member can have."""
    name, astray = group["name"], sorted({*homes.hosts, *homes.fixed.values()} - hosts)
    texts = [f"hosts names {', '.join(astray)}, which this play does not have"] if astray else []
    for word, names in (("replace", group["replace"]), ("hosts", homes.fixed)):
        texts += [f"{word} names {m}, which is not a member of {name}" for m in sorted(names) if index_of(m, name) < 0]
    return texts


def places(results: t.Mapping[str, _Raw], group: str, size: int, uuids: t.Mapping[str, str]) -> t.List[Place]:
    """All places of members. results: what vm_info returned, by host. uuids: those that the template gives members."""
    return [place for host, result in results.items() for place in _on_host(host, result, group, size, uuids)]


def _on_host(host: str, result: _Raw, group: str, size: int, uuids: t.Mapping[str, str]) -> t.Iterator[Place]:
    here = set()
    for what, key in (("vm", "vms"), ("taken", "skipped_vms")):
        for vm in result[key]:
            index = index_of(vm["alias"], group)
            if index >= 0:
                here.add(index)
                yield Place(vm["alias"], index, host, what, vm if what == "vm" else {})
    taken = {vm["uuid"] for key in ("vms", "skipped_vms") for vm in result[key]}
    owners = {disk["vm"] for disk in result["parked"]} | {intent["vm"] for intent in result["intents"]}
    creates = {intent.get("creates") for intent in result["intents"]}
    for index in range(size):
        name = member_name(group, index)
        if index not in here and (name in creates or _own(name, result["pools"], taken, uuids) & owners):
            yield Place(name, index, host, "disks", {})


def _own(name: str, pools: t.Sequence[_Raw], taken: t.Set[str], uuids: t.Mapping[str, str]) -> t.Set[str]:
    """The UUIDs that a new VM of this name would get on the host: the first that no VM has, as in plan/creation."""
    if uuids.get(name):
        return {uuids[name].lower()}
    found = set()
    for pool in pools:
        every = (uuid_for(pool["guid"], name, number) for number in range(RENAMED + 1))
        free = next((uuid for uuid in every if uuid not in taken), None)
        found |= {free} if free else set()
    return found


def check_places(found: t.Sequence[Place]) -> t.List[Problem]:
    """Members with more than one place, and names that other VMs have."""
    problems = Problems("")
    by_name: t.Dict[str, t.List[Place]] = {}
    for place in found:
        by_name.setdefault(place.name, []).append(place)
        if place.what == "taken":
            problems.add("AlreadyExists", f"{place.host} has a VM {place.name}, which this collection cannot manage")
    for name, several in by_name.items():
        if len(several) > 1:
            words = [
                f"{place.host} has {'its detached disks' if place.what == 'disks' else 'a VM of this name'}"
                for place in several
            ]
            problems.add("Ambiguous", f"{name} is in several places: {' and '.join(words)}")
    return list(problems)


def observed(
    found: t.Sequence[Place], group: str, size: int, unread: t.Sequence[str], homes: Homes, surge: int
) -> t.List[t.Dict[str, t.Any]]:
    """The members as they are, those that are nowhere (C(nowhere)) with the host that they get. A member that is found
    nowhere may be on a host that cannot be read (unread). surge: so many members beyond the size get hosts, too.
    """
    members = {place.name: _member(place) for place in found}
    for index in range(size):
        name = member_name(group, index)
        blind = [host for host in unread if homes.fixed.get(name, host) == host]
        if name not in members:
            members[name] = _absent(name, index, blind)
    known = [Member(m["name"], m["index"], m["host"], m["there"], reachable=m["reachable"]) for m in members.values()]
    for member in placed(Group(group, size, tuple(known)), homes, surge).members:
        members.setdefault(member.name, _absent(member.name, member.index, ()))
        members[member.name]["host"] = member.host
    return sorted(members.values(), key=lambda member: int(member["index"]))


def _member(place: Place) -> t.Dict[str, t.Any]:
    """A member whose creation was interrupted is as good as marked: its mark may not have been written yet."""
    vm = place.vm
    half = bool((vm.get("intent") or {}).get("creates"))
    disks = [{key: disk[key] for key in ("name", "uuid", "size", "preserve", "boot")} for disk in vm.get("disks", ())]
    return {
        "name": place.name,
        "index": place.index,
        "host": place.host,
        "reachable": True,
        "nowhere": False,
        "there": place.what == "vm",
        "uuid": vm.get("uuid", ""),
        "running": vm.get("state") == "running" and not half,
        "guest_agent": vm.get("guest_agent", ""),
        "marked": bool(vm.get("drained")) or half,
        **{key: vm.get(key) for key in ("package", "memory", "vcpus")},
        "disks": disks,
    }


def _absent(name: str, index: int, blind: t.Sequence[str]) -> t.Dict[str, t.Any]:
    empty = _member(Place(name, index, " or ".join(blind), "vm" if blind else "", {}))
    return {**empty, "reachable": not blind, "nowhere": not blind}
