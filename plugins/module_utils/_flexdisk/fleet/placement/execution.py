# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a playbook that carries out a plan must know: the moves that an earlier run has left, and what runs together."""

from __future__ import annotations

import typing as t

from ...rules.moves import COMING, LEAVING, MOVED
from .declared import has_tag

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]
MOVE, PUT_BACK, STUCK = "move", "put_back", "nothing"


class _Seen(t.NamedTuple):
    """What hosts say."""

    # Those that answered.
    hosts: t.Container[str]
    # Those that were asked.
    asked: t.Container[str]
    # By the host, and the UUID of the VM.
    marks: t.Mapping[t.Tuple[str, str], _Raw]
    # The same for the VMs that are there.
    has: t.AbstractSet[t.Tuple[str, str]]


class Wanted(t.NamedTuple):
    """Which moves are meant: those of VMs with these names or UUIDs and tags, from these hosts and host groups. What is
    empty means all.
    """

    vms: t.Sequence[str] = ()
    tags: t.Mapping[str, t.Any] = {}
    hosts: t.Sequence[str] = ()
    groups: t.Sequence[str] = ()

    def means(self, names: t.Set[str], tags: _Raw, host: str, group: str) -> bool:
        """Whether the move of a VM with these names and tags from a host of a group is meant."""
        return (
            (not self.vms or bool(names.intersection(self.vms)))
            and all(has_tag(tags, key, value) for key, value in self.tags.items())
            and (not self.hosts or host in self.hosts)
            and (not self.groups or group in self.groups)
        )


def under_way(hosts: t.Sequence[_Raw], wanted: Wanted) -> t.List[_Dict]:
    """The moves that have begun and not ended, as jobs, one after the other.

    hosts: C(name), C(group) and C(info) as move_plan takes them. What is done is MOVE if the move goes on, PUT_BACK if
    it is given up, and STUCK if nothing can be done. C(why) says why a move does not go on.
    """
    seen = _seen(hosts)
    marks, groups = seen.marks, _groups(hosts)
    tags = {vm["uuid"]: vm["tags"] for host in hosts for vm in (host["info"] or {}).get("vms", ())}
    jobs: t.List[_Dict] = []
    for name, uuid, old, new in sorted(_routes(seen)):
        home, do, why = _decide(uuid, old, new, seen)
        if wanted.means({name, uuid}, tags.get(uuid, {}), home, groups.get(home, "")):
            after = [len(jobs)] if jobs else []
            coming = marks.get((new, uuid), {})
            pool = coming.get("pool", "") if coming.get("phase") == COMING else ""
            operation = {"do": do, "vm": uuid, "from": home, "to": new, "pool": pool}
            job = {"job": len(jobs) + 1, "name": name, "operations": [operation], "why": why}
            jobs.append({**job, "depends": after, "needs": []})
    return jobs


def elsewhere(hosts: t.Sequence[_Raw], wanted: Wanted) -> t.List[str]:
    """The VMs that have left for hosts of which nothing is known, in words. Whether they have arrived is not known.

    hosts: as under_way takes them.
    """
    seen, groups = _seen(hosts), _groups(hosts)
    lines = []
    for (old, uuid), mark in sorted(seen.marks.items()):
        name, new = mark["alias"] or uuid, mark["host"]
        there = [host for host, vm in seen.has if vm == uuid]
        gone = mark["phase"] == MOVED and not there and new not in seen.hosts
        if gone and wanted.means({name, uuid}, {}, old, groups.get(old, "")):
            why = "cannot be read" if new in seen.asked else "this run does not read"
            goes_on = f"ansible-playbook flexdisk.hypervisor.move_vm -e flexdisk_vm={name} -e flexdisk_target={new}"
            lines.append(f"{name} has left {old} for {new}, which {why}. If it has not come to its end: {goes_on}")
    return lines


def _seen(hosts: t.Sequence[_Raw]) -> _Seen:
    infos = {host["name"]: host["info"] for host in hosts if host["info"] is not None}
    marks = {(name, move["uuid"]): move for name, info in infos.items() for move in info["moves"]}
    has = {(name, vm["uuid"]) for name, info in infos.items() for vm in info["vms"]}
    return _Seen(set(infos), {host["name"] for host in hosts}, marks, has)


def _groups(hosts: t.Sequence[_Raw]) -> t.Dict[str, str]:
    return {host["name"]: host.get("group") or "" for host in hosts}


def _routes(seen: _Seen) -> t.Set[t.Tuple[str, str, str, str]]:
    """Name and UUID of each VM that is on its way, where from, and where to."""
    result = set()
    for (host, uuid), mark in seen.marks.items():
        name = mark["alias"] or uuid
        if mark["phase"] == COMING:
            result.add((name, uuid, mark["host"], host))
        elif mark["phase"] == LEAVING or (mark["phase"] == MOVED and (host, uuid) in seen.has):
            result.add((name, uuid, host, mark["host"]))
    return result


def _decide(uuid: str, old: str, new: str, seen: _Seen) -> t.Tuple[str, str, str]:
    """The host that has the VM, what is done, and why the move does not go on."""
    mark = seen.marks.get((old, uuid))
    if any(one.get("failover") for one in (mark, seen.marks.get((new, uuid))) if one):
        return old, STUCK, f"{new} takes it over from {old}; the playbook failover_vm goes on"
    if old not in seen.hosts:
        return (
            old,
            STUCK,
            f"{old} cannot be read; the playbook move_vm says whether the move to {new} goes on without it",
        )
    if mark is None and (old, uuid) in seen.has:
        return old, PUT_BACK, f"it had not left {old} yet"
    others = _others(uuid, old, new, seen)
    if others and mark is not None and mark["host"] == new:
        text = f"{' and '.join(others)} has it, too, or expects it"
        text += f"; if it was taken over, failover_vm with flexdisk_failover_state=returned ends it on {old}"
        return old, STUCK, text
    if mark is not None and mark["host"] == new:
        silent = [host for host in mark.get("asks", ()) if host not in seen.hosts]
        if silent:
            text = f"it has left {old}, and {' and '.join(silent)} could not be asked whether it has been"
            return old, STUCK, f"{text} taken over; the playbook move_vm goes on"
        if new in seen.hosts:
            return old, MOVE, ""
        if new not in seen.asked:
            return old, STUCK, f"{new}, where it goes, has not been asked; the playbook move_vm goes on"
        return old, PUT_BACK if mark["phase"] == LEAVING else STUCK, f"{new} cannot be read"
    homes = [host for host, vm in sorted(seen.has) if vm == uuid and host != new and (host, vm) not in seen.marks]
    if len(homes) == 1:
        return homes[0], PUT_BACK, f"{new} still expects it from {old}"
    return old, STUCK, f"{new} expects it from {old}, which does not have it"


def _others(uuid: str, old: str, new: str, seen: _Seen) -> t.List[str]:
    """The hosts beside the one that a VM leaves that have it, or expect it. That the host expects it where it goes is
    as it should be.
    """
    has = {host for host, vm in seen.has if vm == uuid}
    coming = {host for (host, vm), mark in seen.marks.items() if vm == uuid and mark["phase"] == COMING}
    whole = {new} if new in has - coming else set()
    return sorted((has | coming) - {old, new} | whole)


def queue(jobs: t.Sequence[_Raw], stage: str, most: int) -> _Dict:
    """The hosts of a play that carries jobs out, batch by batch: C(hosts), each with a C(name), and the C(sizes).

    Each batch begins with a host that only says what the batch does. As it cannot fail, a batch whose jobs all fail
    does not end the play. stage makes the names of the hosts unlike those of other plays. most: jobs of a batch.
    With more than Ansible has forks, a VM that is down would wait for the transfers of others.
    """
    names = {job["job"]: f"{job['name']} to {job['operations'][0]['to']} ({stage} {job['job']})" for job in jobs}
    hosts: t.List[_Dict] = []
    sizes = []
    found = [batch[at : at + most] for batch in _batches(jobs) for at in range(0, len(batch), most)]
    for number, batch in enumerate(found, 1):
        text = f"{stage}, batch {number} of {len(found)}"
        hosts.append({"name": text, "says": ", ".join(job["name"] for job in batch)})
        for job in batch:
            operation = {**job["operations"][0], "name": job["name"], "why": job.get("why", "")}
            needs = [names[other] for other in job["needs"]]
            hosts.append({"name": names[job["job"]], "move": operation, "needs": needs})
        sizes.append(len(batch) + 1)
    return {"hosts": hosts, "sizes": sizes}


def _batches(jobs: t.Sequence[_Raw]) -> t.List[t.List[_Raw]]:
    """Jobs that can run at the same time, one batch after the other. Each job follows those that it depends on."""
    level: t.Dict[int, int] = {}
    result: t.List[t.List[_Raw]] = []
    for job in jobs:
        level[job["job"]] = max((level[other] + 1 for other in job["depends"]), default=0)
        if level[job["job"]] == len(result):
            result.append([])
        result[level[job["job"]]].append(job)
    return result
