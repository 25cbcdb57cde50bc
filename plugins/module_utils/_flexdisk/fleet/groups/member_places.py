# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locate the members of a group in the reports of all hosts."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass, replace

from ...model.errors import Problem, Problems
from ...model.text import cut
from ...rules.identity import uuid_for
from ...rules.one_host import same_host_problems
from . import template
from .homes import Homes, parse_homes, placed
from .lease import check_others, check_waits
from .members import Member, index_of, member_name, size_problems
from .policy import RollPolicy, parse_policy
from .roll import Group, in_order_of_creation

_Raw = t.Mapping[str, t.Any]
GATE = ("name", "index", "host", "address", "running", "guest_agent")  # what group_gate takes of a member
MAX_RENAMED = 3  # so many VMs of one pool may have had the name before, and are called otherwise today
VM, DISKS, TAKEN, STRANGER, UNMARKED, RENAMED_VM, MOVED = (
    "vm", "disks", "taken", "stranger", "unmarked", "renamed", "moved",
)  # fmt: skip
MAX_NAMED = 20  # so many VMs are named in one message


@dataclass(frozen=True)
class Place:
    """A place of a member on a host."""

    name: str
    index: int
    host: str
    # VM: the member is there. DISKS: only its detached disks or its intent. TAKEN: a VM of its name that cannot be
    # managed. STRANGER: a VM of its name that is marked as another member, or as none. UNMARKED: a VM of its name
    # without a mark. RENAMED_VM: the member under another name. MOVED: it has left this host, or is on its way.
    kind: str
    # The VM as vm_info reports it, empty for none.
    vm: _Raw


def find(results: t.Mapping[str, _Raw], group: _Raw, unread: t.Sequence[str]) -> t.Dict[str, t.Any]:
    """Return the members of a group, whether they keep disks, and the texts of all that is wrong with its declaration.
    C(new) are the members that lie nowhere, in the order in which a roll makes them.

    results: what vm_info returned, by host. group: name, size, hosts, policy, template, members, replace,
    most_steps, and adopt (names of VMs). unread: hosts that cannot be read. Without problems, each member has what
    observed says, address, and gate for group_gate.
    """
    name, size, member_values = group["name"], group["size"], group["members"]
    policy, wrong = parse_policy(group["policy"])
    problems = template.check_template(name, group["template"], member_values)
    homes = problems.attempt("", parse_homes, group["hosts"]) or Homes()
    texts = size_problems(size)
    if int(group.get("most_steps") or 0) < 0:
        texts.append(f"most_steps is {group['most_steps']}, but must not be negative; 0 is no limit")
    texts += ["hosts is an empty list; leave it out to take all hosts of the play"] if group["hosts"] == [] else []
    texts += [problem.message for problem in [*problems, *wrong]]
    texts += _unknown_names(group, homes, {*results, *unread})
    texts += same_host_problems({host: [pool["guid"] for pool in result["pools"]] for host, result in results.items()})
    if not wrong and group.get("waits") and not size_problems(size):
        texts += check_waits(policy=policy, size=size, **group["waits"])
    if group.get("token"):
        texts += check_others(results, name, group["token"])
    keeps_disks = not texts and template.keeps_disks(group["template"])
    members: t.List[t.Dict[str, t.Any]] = []
    shape = Group(name, size, (), keeps_disks)
    if not texts:
        uuids = {member: str(values.get("uuid") or "") for member, values in member_values.items()}
        surge = 0 if keeps_disks else policy.limits(size).max_batch_size
        known_places = places(results, name, size, uuids, group.get("adopt") or ())
        texts = [problem.message for problem in check_places(known_places, size + surge)]
        known_places = [place for place in known_places if place.kind in (VM, DISKS)]
        members = [] if texts else observed(known_places, shape, policy, unread, homes)
    for member in members:
        member["address"] = template.facts_of(member, group["template"], member_values)[template.ADDRESS]
        member["gate"] = {key: member[key] for key in GATE}
    nowhere = {member["name"]: member for member in members if member["nowhere"]}
    ranked = in_order_of_creation(shape, policy, [Member(name, one["index"]) for name, one in nowhere.items()])
    new = [nowhere[member.name] for member in ranked]
    return {"members": members, "new": new, "keeps_disks": keeps_disks, "problems": cut(texts)}


def _unknown_names(group: _Raw, homes: Homes, hosts: t.Set[str]) -> t.List[str]:
    """Names of hosts that the play does not have, and names that no member can have."""
    name, unknown = group["name"], sorted({*homes.hosts, *homes.fixed.values()} - hosts)
    texts = [f"hosts names {', '.join(unknown)}, which this play does not have"] if unknown else []
    for word, names in (("replace", group["replace"]), ("hosts", homes.fixed), ("adopt", group.get("adopt") or ())):
        texts += [f"{word} names {m}, which is not a member of {name}" for m in sorted(names) if index_of(m, name) < 0]
    above = sorted(m for m in group["replace"] if index_of(m, name) >= group["size"])
    texts += [f"replace names {m}, which is not a member: the group has size {group['size']}" for m in above]
    return texts


def adoptions(result: _Raw, names: t.Collection[str]) -> t.List[t.Dict[str, t.Any]]:
    """Return entries that mark these VMs of a host as members, for O(flexdisk.hypervisor.vm#module:vms). result: what
    vm_info returned. VMs that have a mark are left as they are.
    """
    unmarked = [vm["alias"] for vm in result["vms"] if vm.get("member") is None and vm["alias"] in names]
    return [{"vm": alias, "member": alias} for alias in unmarked]


def places(
    results: t.Mapping[str, _Raw], group: str, size: int, uuids: t.Mapping[str, str], adopt: t.Collection[str] = ()
) -> t.List[Place]:
    """Return all places of members. results: what vm_info returned, by host. uuids: those that the template gives
    members. adopt: names of VMs that count as marked.
    """
    return [place for host, result in results.items() for place in _on_host(host, result, group, size, uuids, adopt)]


def _on_host(
    host: str, result: _Raw, group: str, size: int, uuids: t.Mapping[str, str], adopt: t.Collection[str]
) -> t.Iterator[Place]:
    here = set()
    for vm in result["vms"]:
        name, kind = _member_of_vm(vm, group, adopt)
        if kind:
            here.add(index_of(name, group))
            yield Place(name, index_of(name, group), host, kind, vm)
    for vm in result["skipped_vms"]:
        index = index_of(vm["alias"], group)
        if index >= 0:
            here.add(index)
            yield Place(vm["alias"], index, host, TAKEN, {})
    yield from _remains(host, result, group, size, uuids, here)
    for move in result.get("moves") or ():
        index = index_of(move["alias"], group)
        if 0 <= index < size and index not in here:
            yield Place(move["alias"], index, host, MOVED, move)


def _member_of_vm(vm: _Raw, group: str, adopt: t.Collection[str]) -> t.Tuple[str, str]:
    """Return the member that a VM is or seems to be, and its kind as in Place; "" for neither.

    The mark decides, never the name. A VM whose creation was interrupted may have it only in its intent.
    """
    alias, marked_as = vm["alias"], vm.get("member")
    if marked_as and index_of(marked_as, group) >= 0:
        return marked_as, VM if marked_as == alias else RENAMED_VM
    index = index_of(alias, group)
    if index < 0:
        return "", ""
    if marked_as is not None:
        return alias, STRANGER
    becomes = (vm.get("intent") or {}).get("member")
    return alias, VM if alias in adopt or becomes == alias else UNMARKED


def _remains(
    host: str, result: _Raw, group: str, size: int, uuids: t.Mapping[str, str], here: t.Collection[int]
) -> t.Iterator[Place]:
    """Yield the remains of members without a VM on this host: detached disks, or intents. Before there were marks, only
    the UUID showed that a member had been renamed.
    """
    taken = {vm["uuid"] for key in ("vms", "skipped_vms") for vm in result[key]}
    owners = {disk["vm"] for disk in result["parked"]} | {intent["vm"] for intent in result["intents"]}
    creates = {intent.get("creates") for intent in result["intents"]}
    unmarked = {vm["uuid"]: vm for vm in result["vms"] if vm.get("member") is None}
    for index in range(size):
        name = member_name(group, index)
        if index in here:
            continue
        renamed = [unmarked[uuid] for uuid in _uuids_made_as(name, result["pools"], uuids) if uuid in unmarked]
        yield from (Place(name, index, host, RENAMED_VM, vm) for vm in renamed if index_of(vm["alias"], group) < 0)
        if not renamed and (name in creates or _expected_uuids(name, result["pools"], taken, uuids) & owners):
            yield Place(name, index, host, DISKS, {})


def _uuids_made_as(name: str, pools: t.Sequence[_Raw], uuids: t.Mapping[str, str]) -> t.Set[str]:
    """Return the UUIDs that a VM created under this name can have."""
    every = {uuid_for(pool["guid"], name, number) for pool in pools for number in range(MAX_RENAMED + 1)}
    return every | ({uuids[name].lower()} if uuids.get(name) else set())


def _expected_uuids(name: str, pools: t.Sequence[_Raw], taken: t.Set[str], uuids: t.Mapping[str, str]) -> t.Set[str]:
    """Return the UUIDs that a new VM of this name would get on the host: the first free one, as in plan/creation."""
    if uuids.get(name):
        return {uuids[name].lower()}
    result = set()
    for pool in pools:
        every = (uuid_for(pool["guid"], name, number) for number in range(MAX_RENAMED + 1))
        free = next((uuid for uuid in every if uuid not in taken), None)
        result |= {free} if free else set()
    return result


def check_places(known_places: t.Sequence[Place], limit: int) -> t.List[Problem]:
    """Return members with more than one place or under another name, and names that other VMs have. limit: members that
    there may be, surge members included.
    """
    problems = Problems("")
    by_name: t.Dict[str, t.List[Place]] = {}
    there = {place.name for place in known_places if place.kind == VM}
    for place in known_places:
        if place.kind in (VM, DISKS, TAKEN, UNMARKED):
            by_name.setdefault(place.name, []).append(place)
        if place.kind == TAKEN:
            problems.add("AlreadyExists", f"{place.host} has a VM {place.name}, which this collection cannot manage")
        if place.kind == STRANGER and place.index < limit:
            problems.add("AlreadyExists", _stranger(place))
        if place.kind == RENAMED_VM:
            problems.add("Ambiguous", _renamed(place))
        if place.kind == MOVED and place.name not in there:
            where = f"{place.vm['phase']}, {place.vm['host']}"
            problems.add("MovedAway", f"no host has {place.name}, but {place.host} has a record of its move ({where})")
    for name, several in by_name.items():
        if len(several) > 1:
            parts = [
                f"{place.host} has {'its detached disks' if place.kind == DISKS else 'a VM of this name'}"
                for place in several
            ]
            problems.add("Ambiguous", f"{name} is in several places: {' and '.join(parts)}")
    unmarked = [place for place in known_places if place.kind == UNMARKED and len(by_name[place.name]) == 1]
    if unmarked:
        problems.add("NotMarked", _unmarked(unmarked))
    return list(problems)


def _stranger(place: Place) -> str:
    name, marked_as = place.name, place.vm["member"] or "a VM of no group"
    return (
        f"{place.host} has a VM {name} ({place.vm['uuid']}), but that is marked as {marked_as}. The group needs this "
        f"name: if it is {name}, say so with the module vm ({{vm: {name}, member: {name}}}); otherwise give it another "
        "name"
    )


def _renamed(place: Place) -> str:
    alias, how = place.vm["alias"], "is marked as" if place.vm.get("member") else "was made as"
    return (
        f"{place.host} has a VM {alias} ({place.vm['uuid']}), which {how} {place.name}; call it {place.name} again, or "
        f'say with the module vm that it is in no group any more ({{vm: {alias}, member: ""}}): then a new '
        f"{place.name} with empty disks can be made"
    )


def _unmarked(unmarked: t.Sequence[Place]) -> str:
    """Return why VMs that are called like members are none, with the command that makes them members."""
    names = sorted({place.name for place in unmarked}, key=lambda name: int(name.rpartition("-")[2]))
    where = ", ".join(f"{place.name} on {place.host}" for place in unmarked[:MAX_NAMED])
    more = f" and {len(unmarked) - MAX_NAMED} more" if len(unmarked) > MAX_NAMED else ""
    adopt = json.dumps({"flexdisk_adopt_members": names})
    return (
        f"not marked as members of the group: {where}{more}. A name alone makes no member. If all of them are members "
        f"(version 0.2.0 set no marks), -e '{adopt}' marks them. For a VM that is none, say so with the "
        'module vm (member: ""), or give it another name'
    )


def observed(
    known_places: t.Sequence[Place], shape: Group, policy: RollPolicy, unread: t.Sequence[str], homes: Homes
) -> t.List[t.Dict[str, t.Any]]:
    """The members as they are, those that are nowhere (C(nowhere)) with the host that they get. A member that is found
    nowhere may be on a host that cannot be read (unread), whatever its declaration says of its host now. shape: the
    group, without members.
    """
    members = {place.name: _member(place) for place in known_places}
    for index in range(shape.size):
        name = member_name(shape.name, index)
        if name not in members:
            members[name] = _absent(name, index, unread)
    known = [Member(m["name"], m["index"], m["host"], m["there"], reachable=m["reachable"]) for m in members.values()]
    for member in placed(replace(shape, members=tuple(known)), homes, policy).members:
        members.setdefault(member.name, _absent(member.name, member.index, ()))
        members[member.name]["host"] = member.host
    return sorted(members.values(), key=lambda member: int(member["index"]))


def _member(place: Place) -> t.Dict[str, t.Any]:
    """Return the report of a member. An interrupted creation counts as marked: its mark may not be written yet."""
    vm = place.vm
    unfinished = bool((vm.get("intent") or {}).get("creates"))
    disks = [{key: disk[key] for key in ("name", "uuid", "size", "preserve", "boot")} for disk in vm.get("disks", ())]
    return {
        "name": place.name,
        "index": place.index,
        "host": place.host,
        "reachable": True,
        "nowhere": False,
        "there": place.kind == VM,
        "uuid": vm.get("uuid", ""),
        "running": vm.get("state") == "running" and not unfinished,
        "guest_agent": vm.get("guest_agent", ""),
        "marked": bool(vm.get("drained")) or unfinished,
        **{key: vm.get(key) for key in ("package", "memory", "vcpus")},
        "disks": disks,
    }


def _absent(name: str, index: int, unread: t.Sequence[str]) -> t.Dict[str, t.Any]:
    empty = _member(Place(name, index, " or ".join(unread), VM if unread else "", {}))
    return {**empty, "reachable": not unread, "nowhere": not unread}
