# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook replicate: which VMs each host replicates to which peers, and which of them are due."""

from __future__ import annotations

import json
import typing as t

from ...rules.identity import member_of
from ...rules.retention import read_counts
from .find import find_vms
from .order import Order, Play, Raw

ABSENT = "absent"
PER_HOST = 2  # homes that send to one host at the same time
_DUE = 0.9  # of the interval: a timer that runs as often finds the replica due each time
_Dict = t.Dict[str, t.Any]


def names(variables: Raw) -> t.List[str]:
    """Return the VMs that are replicated, as far as they are named."""
    return [str(entry["vm"]) for entry in _wanted(variables) if entry.get("vm") is not None]


def names_groups(variables: Raw) -> bool:
    """Return whether VMs are replicated as members of groups."""
    return any(entry.get("vm") is None for entry in _wanted(variables))


def gives_up(variables: Raw) -> bool:
    """Return whether replicas are given up, also those of VMs that are gone."""
    return variables.get("flexdisk_replica_state") == ABSENT


def contradictions(variables: Raw) -> t.List[str]:
    """Return the problems with contradictory variables."""
    named = "flexdisk_vm" in variables
    problems = []
    if "flexdisk_replica_host" in variables and not named:
        problems.append("flexdisk_replica_host needs flexdisk_vm")
    if gives_up(variables) and not named:
        problems.append("flexdisk_replica_state=absent needs flexdisk_vm")
    if gives_up(variables) and variables.get("flexdisk_failover"):
        problems.append("flexdisk_failover=true needs the replicas that flexdisk_replica_state=absent gives up")
    return problems + [text for entry in variables.get("flexdisk_replicas") or () for text in _entry_problems(entry)]


def _entry_problems(entry: Raw) -> t.Iterator[str]:
    given = [key for key in ("vm", "group") if entry.get(key) is not None]
    label = f"flexdisk_replicas, {given[0]} {entry[given[0]]}" if given else "flexdisk_replicas"
    if len(given) != 1:
        yield f"{label}: an entry needs either vm or group"
    for key in ("keep", "keep_home"):
        try:
            read_counts(entry[key]) if entry.get(key) is not None else None
        except ValueError as exc:
            yield f"{label}: {key}: {exc}"


def without_entry(play: Play) -> t.List[str]:
    """Return a problem if no host has an entry that is meant. A host without one has nothing to replicate."""
    given = play.variables.values()
    if any(_wanted(variables) or contradictions(variables) for variables in given):
        return []
    name = next((variables["flexdisk_vm"] for variables in given if "flexdisk_vm" in variables), None)
    if name is None:
        return ["flexdisk_replicas has no entry"]
    known = ", ".join(dict.fromkeys(_label(entry) for one in given for entry in _entries(one))) or "none"
    text = f"flexdisk_replicas has no entry with vm: {name}, but with {known}. Name the VM as it stands there, or say"
    return [f"{text} with flexdisk_replica_host where its replica is"]


def _label(entry: Raw) -> str:
    return str(entry["vm"]) if entry.get("vm") is not None else f"group {entry.get('group')}"


def replicate(play: Play) -> Order:
    """Give each host the peers of its VMs, one for each round, null for a round in which it has none.

    A peer has C(host), C(vms), the options of the sync as far as they are given, and C(rows): C(vm), C(name) and the
    C(age) of the replica in seconds, null if it was never complete. C(fresh) counts replicas that are not due.
    """
    groups = _Groups(play)
    peers: t.Dict[str, t.List[_Dict]] = {}
    fresh: t.Dict[str, int] = {}
    for host in play.variables:
        peers[host], fresh[host] = _peers(play, host, groups)
    per_host = min(int(one.get("flexdisk_replicas_per_host", PER_HOST)) for one in play.variables.values())
    rounds = _rounds(peers, per_host)
    calls = {host: {"peers": rounds[host], "fresh": fresh[host]} for host in play.variables}
    return Order(calls=calls, left_out=groups.problems)


class _Groups:
    """The VMs of the groups that entries name."""

    def __init__(self, play: Play) -> None:
        entries = [entry for variables in play.variables.values() for entry in _wanted(variables)]
        wanted = {str(entry["group"]) for entry in entries if entry.get("vm") is None}
        self.members: t.Dict[str, t.Dict[str, t.List[str]]] = {name: {} for name in wanted}
        """The UUIDs, by group and host."""
        self.problems: t.List[str] = []
        found = {
            group: [vm["uuid"] for info in play.read.values() for vm in info["vms"] if _group_of(vm) == group]
            for group in wanted
        }
        located = find_vms(play.read, [uuid for some in found.values() for uuid in some], play.unread)
        self.problems += located.problems
        for group, uuids in sorted(found.items()):
            for host, here in located.here.items():
                self.members[group][host] = [uuid for uuid in uuids if uuid in here]
            if not uuids:
                unread = f"; {', '.join(play.unread)} could not be read" if play.unread else ""
                self.problems.append(f"Group {group} has no VM on {', '.join(play.read)}{unread}.")


def _group_of(vm: _Dict) -> str:
    return member_of(str(vm["member"] or ""))[0]


def _peers(play: Play, host: str, groups: _Groups) -> t.Tuple[t.List[_Dict], int]:
    """Return the peers of a host with what is due, and how many replicas are not."""
    variables = play.variables[host]
    known = {vm["uuid"]: vm for vm in play.read.get(host, {}).get("vms", ())}
    peers: t.Dict[str, _Dict] = {}
    seen: t.Set[t.Tuple[str, str]] = set()
    fresh = 0
    for entry in sorted(_wanted(variables), key=lambda one: one.get("vm") is None):  # a VM's own entry comes first
        for uuid in _uuids(play, host, entry, groups):
            if (uuid, entry["host"]) in seen:
                continue
            seen.add((uuid, entry["host"]))
            age = replica_age(known.get(uuid, {}), entry["host"])
            if "flexdisk_vm" not in variables and not is_due(age, entry.get("every")):
                fresh += 1
                continue
            options = _options(variables, entry)
            key = json.dumps(options, sort_keys=True)
            peer = peers.setdefault(key, {**options, "vms": [], "rows": []})
            peer["vms"].append(uuid)
            peer["rows"].append({"vm": uuid, "name": known.get(uuid, {}).get("alias") or uuid, "age": age})
    return list(peers.values()), fresh


def _uuids(play: Play, host: str, entry: Raw, groups: _Groups) -> t.Sequence[str]:
    if entry.get("vm") is None:
        return groups.members[str(entry["group"])].get(host, [])
    located = play.here[host].get(str(entry["vm"]))
    return [located["vm"]] if located else []


def _options(variables: Raw, entry: Raw) -> _Dict:
    """Return the options of a sync. What the user gives for the run comes before what the entry says."""
    failover = variables.get("flexdisk_failover", entry.get("failover"))
    given = {key: entry[key] for key in ("pool", "keep", "keep_home") if entry.get(key)}
    limit = variables.get("flexdisk_bandwidth_limit", entry.get("bandwidth_limit"))
    if limit is not None:
        given["bandwidth_limit"] = limit
    wanted = "unchanged" if failover is None else "present" if failover else "absent"
    return {"host": entry["host"], "failover": wanted, **given}


def replica_age(vm: Raw, host: str) -> t.Optional[int]:
    """Return the seconds since the replicas of all disks of a VM on a host were complete, None if one never was.

    vm: as vm_info reports it.
    """
    disks = [disk for disk in vm.get("disks", ()) if not disk.get("hidden")]
    notes = [{note["host"]: note["age"] for note in disk.get("replicas", ())} for disk in disks]
    ages = [note.get(host) for note in notes]
    known = [age for age in ages if age is not None]
    return max(known) if known and len(known) == len(ages) else None


def is_due(age: t.Optional[int], every: t.Optional[int]) -> bool:
    """Return whether a replica of this age needs a sync. every: seconds, None for one in each run."""
    return age is None or every is None or age >= every * _DUE


def _rounds(peers: t.Mapping[str, t.Sequence[_Dict]], per_host: int) -> t.Dict[str, t.List[t.Optional[_Dict]]]:
    """Return for each host which peer it sends to in which round. In each round, at most so many send to one host."""
    left = {host: list(some) for host, some in peers.items()}
    rounds: t.Dict[str, t.List[t.Optional[_Dict]]] = {host: [] for host in peers}
    while any(left.values()):
        receivers: t.Dict[str, int] = {}
        for host in sorted(left, key=lambda one: -len(left[one])):
            free = (peer for peer in left[host] if receivers.get(peer["host"], 0) < per_host)
            peer = next(free, None)
            rounds[host].append(peer)
            if peer is not None:
                left[host].remove(peer)
                receivers[peer["host"]] = receivers.get(peer["host"], 0) + 1
    return rounds


def _wanted(variables: Raw) -> t.List[Raw]:
    name = variables.get("flexdisk_vm")
    return [entry for entry in _entries(variables) if name is None or entry.get("vm") == name]


def _entries(variables: Raw) -> t.Sequence[Raw]:
    entries = variables.get("flexdisk_replicas") or ()
    if "flexdisk_replica_host" not in variables:
        return entries
    named = {"vm": variables.get("flexdisk_vm"), "host": variables["flexdisk_replica_host"]}
    same = [entry for entry in entries if {key: entry.get(key) for key in named} == named]
    return same[:1] or [named]
