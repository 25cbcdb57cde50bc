# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How plans are carried out: the moves that an earlier run has left unfinished, and what runs in parallel."""

from __future__ import annotations

import typing as t

from ...rules.moves import COMING, LEAVING, MOVED
from .declared import has_tag

_Raw = t.Mapping[str, t.Any]
_Dict = t.Dict[str, t.Any]
MOVE, PUT_BACK, STUCK = "move", "put_back", "nothing"


class _HostReports(t.NamedTuple):
    """What hosts say."""

    # Those that answered.
    hosts: t.Container[str]
    # Those that were asked.
    asked: t.Container[str]
    # By the host, and the UUID of the VM.
    moves: t.Mapping[t.Tuple[str, str], _Raw]
    # The same for the VMs that are there.
    has: t.AbstractSet[t.Tuple[str, str]]


class Wanted(t.NamedTuple):
    """Which moves are meant. Empty fields mean all."""

    # Names or UUIDs.
    vms: t.Sequence[str] = ()
    # Tags that the VM must have.
    tags: t.Mapping[str, t.Any] = {}
    # Hosts that the VM leaves.
    hosts: t.Sequence[str] = ()
    # Host groups that the VM leaves.
    groups: t.Sequence[str] = ()

    def means(self, names: t.Set[str], tags: _Raw, host: str, group: str) -> bool:
        """Return whether the move of a VM with these names and tags from a host of a group is meant."""
        return (
            (not self.vms or bool(names.intersection(self.vms)))
            and all(has_tag(tags, key, value) for key, value in self.tags.items())
            and (not self.hosts or host in self.hosts)
            and (not self.groups or group in self.groups)
        )


def unfinished_moves(hosts: t.Sequence[_Raw], wanted: Wanted) -> t.List[_Dict]:
    """Return the moves that have begun and not ended, as jobs, one after the other.

    hosts: C(name), C(group) and C(info) as move_plan takes them. What is done is MOVE if the move goes on, PUT_BACK if
    it is given up, and STUCK if nothing can be done. C(why) says why a move does not go on.
    """
    reports = _read_reports(hosts)
    moves, groups = reports.moves, _groups(hosts)
    tags = {vm["uuid"]: vm["tags"] for host in hosts for vm in (host["info"] or {}).get("vms", ())}
    jobs: t.List[_Dict] = []
    for name, uuid, source, target in sorted(_routes(reports)):
        home, do, why = _decide(uuid, source, target, reports)
        if wanted.means({name, uuid}, tags.get(uuid, {}), home, groups.get(home, "")):
            after = [len(jobs)] if jobs else []
            coming = moves.get((target, uuid), {})
            pool = coming.get("pool", "") if coming.get("phase") == COMING else ""
            operation = {"do": do, "vm": uuid, "from": home, "to": target, "pool": pool}
            job = {"job": len(jobs) + 1, "name": name, "operations": [operation], "why": why}
            jobs.append({**job, "depends": after, "needs": []})
    return jobs


def moves_to_unread_hosts(hosts: t.Sequence[_Raw], wanted: Wanted) -> t.List[str]:
    """Return a line for each VM that has left for a host that was not read. Whether it has arrived is not known.

    hosts: as for unfinished_moves.
    """
    reports, groups = _read_reports(hosts), _groups(hosts)
    lines = []
    for (source, uuid), move in sorted(reports.moves.items()):
        name, target = move["alias"] or uuid, move["host"]
        there = [host for host, vm in reports.has if vm == uuid]
        gone = move["phase"] == MOVED and not there and target not in reports.hosts
        if gone and wanted.means({name, uuid}, {}, source, groups.get(source, "")):
            why = "cannot be read" if target in reports.asked else "this run does not read"
            goes_on = f"ansible-playbook flexdisk.hypervisor.move_vm -e flexdisk_vm={name} -e flexdisk_target={target}"
            lines.append(
                f"{name} has left {source} for {target}, which {why}. If it has not come to its end: {goes_on}"
            )
    return lines


def _read_reports(hosts: t.Sequence[_Raw]) -> _HostReports:
    infos = {host["name"]: host["info"] for host in hosts if host["info"] is not None}
    moves = {(name, move["uuid"]): move for name, info in infos.items() for move in info["moves"]}
    has = {(name, vm["uuid"]) for name, info in infos.items() for vm in info["vms"]}
    return _HostReports(set(infos), {host["name"] for host in hosts}, moves, has)


def _groups(hosts: t.Sequence[_Raw]) -> t.Dict[str, str]:
    return {host["name"]: host.get("group") or "" for host in hosts}


def _routes(reports: _HostReports) -> t.Set[t.Tuple[str, str, str, str]]:
    """Name and UUID of each VM that is on its way, where from, and where to."""
    result = set()
    for (host, uuid), move in reports.moves.items():
        name = move["alias"] or uuid
        if move["phase"] == COMING:
            result.add((name, uuid, move["host"], host))
        elif move["phase"] == LEAVING or (move["phase"] == MOVED and (host, uuid) in reports.has):
            result.add((name, uuid, host, move["host"]))
    return result


def _decide(uuid: str, source: str, target: str, reports: _HostReports) -> t.Tuple[str, str, str]:
    """Return the host that has the VM, what to do (MOVE, PUT_BACK or STUCK), and why the move does not go on."""
    move = reports.moves.get((source, uuid))
    if any(one.get("failover") for one in (move, reports.moves.get((target, uuid))) if one):
        return source, STUCK, f"{target} takes it over from {source}; the playbook failover_vm goes on"
    if source not in reports.hosts:
        return (
            source,
            STUCK,
            f"{source} cannot be read; the playbook move_vm says whether the move to {target} goes on without it",
        )
    if move is None and (source, uuid) in reports.has:
        return source, PUT_BACK, f"it had not left {source} yet"
    others = _others(uuid, source, target, reports)
    if others and move is not None and move["host"] == target:
        text = f"{' and '.join(others)} has it, too, or expects it"
        text += f"; if it was taken over, failover_vm with flexdisk_failover_state=returned ends it on {source}"
        return source, STUCK, text
    if move is not None and move["host"] == target:
        unheard = [host for host in move.get("asks", ()) if host not in reports.hosts]
        if unheard:
            text = f"it has left {source}, and {' and '.join(unheard)} could not be asked whether it has been"
            return source, STUCK, f"{text} taken over; the playbook move_vm goes on"
        if target in reports.hosts:
            return source, MOVE, ""
        if target not in reports.asked:
            return source, STUCK, f"{target}, where it goes, has not been asked; the playbook move_vm goes on"
        return source, PUT_BACK if move["phase"] == LEAVING else STUCK, f"{target} cannot be read"
    homes = [
        host for host, vm in sorted(reports.has) if vm == uuid and host != target and (host, vm) not in reports.moves
    ]
    if len(homes) == 1:
        return homes[0], PUT_BACK, f"{target} still expects it from {source}"
    return source, STUCK, f"{target} expects it from {source}, which does not have it"


def _others(uuid: str, source: str, target: str, reports: _HostReports) -> t.List[str]:
    """Return the other hosts that have the VM or expect it. It is normal that the target expects it."""
    has = {host for host, vm in reports.has if vm == uuid}
    coming = {host for (host, vm), move in reports.moves.items() if vm == uuid and move["phase"] == COMING}
    arrived = {target} if target in has - coming else set()
    return sorted((has | coming) - {source, target} | arrived)


def queue(jobs: t.Sequence[_Raw], stage: str, max_parallel: int) -> _Dict:
    """Return the hosts of a play that carries jobs out, batch by batch: C(hosts), each with a C(name), and the
    C(sizes).

    Each batch begins with a host that only says what the batch does. As it cannot fail, a batch whose jobs all fail
    does not end the play. stage makes the names of the hosts unlike those of other plays. max_parallel: jobs of a
    batch. With more than Ansible has forks, a VM that is down would wait for the transfers of others.
    """
    names = {job["job"]: f"{job['name']} to {job['operations'][0]['to']} ({stage} {job['job']})" for job in jobs}
    hosts: t.List[_Dict] = []
    sizes = []
    chunks = [batch[at : at + max_parallel] for batch in _batches(jobs) for at in range(0, len(batch), max_parallel)]
    for number, batch in enumerate(chunks, 1):
        text = f"{stage}, batch {number} of {len(chunks)}"
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
