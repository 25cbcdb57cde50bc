# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook replicate: which VMs each host replicates to which peers, and which of them are due."""

from __future__ import annotations

import json
import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import member_of
from ...rules.retention import read_counts
from .find import find_vms
from .order import Here, Order, Play, Raw
from .replica_age import due_in, is_due, replica_age

ABSENT = "absent"
PER_HOST = 2  # homes that send to one host at the same time
_Dict = t.Dict[str, t.Any]
_Meant = t.Tuple[Raw, t.Sequence[str]]  # an entry, and the UUIDs of its VMs on a host


def names(variables: Raw) -> t.List[str]:
    """Return the VMs that are replicated, as far as they are named."""
    return [str(variables["flexdisk_vm"])] if "flexdisk_vm" in variables else _names_in(_entries(variables))


def names_groups(variables: Raw) -> bool:
    """Return whether VMs are replicated as members of groups."""
    return any(entry.get("vm") is None for entry in _entries(variables))


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
    """Return a problem if no host has an entry. A host without one has nothing to replicate."""
    for variables in play.variables.values():
        if _entries(variables) or "flexdisk_replica_host" in variables or contradictions(variables):
            return []
    return ["flexdisk_replicas has no entry"]


def _label(entry: Raw) -> str:
    return str(entry["vm"]) if entry.get("vm") is not None else f"group {entry.get('group')}"


def replicate(play: Play) -> Order:
    """Give each host the peers of its VMs, one for each round, null for a round in which it has none.

    A peer has C(host), C(vms), the options of the sync as far as they are given, and C(rows): C(vm), C(name), the
    C(every) of its entry, the C(age) of the replica in seconds, null if it has none, and C(no_age): why, although there
    is a replica. C(fresh) has the replicas that are not due: C(name), C(to) and C(seconds) until they are.

    Raises FlexdiskError if a named VM has no entry, or entries contradict each other.
    """
    meant, problems = _all_meant(play)
    peers: t.Dict[str, t.List[_Dict]] = {}
    fresh: t.Dict[str, t.List[_Dict]] = {}
    for host in play.variables:
        peers[host], fresh[host] = _peers(play, host, meant[host])
    per_host = min(int(one.get("flexdisk_replicas_per_host", PER_HOST)) for one in play.variables.values())
    rounds = _rounds(peers, per_host)
    calls = {host: {"peers": rounds[host], "fresh": fresh[host]} for host in play.variables}
    return Order(calls=calls, left_out=problems)


def wanted(play: Play) -> Order:
    """Give each host the replicas that its VMs should have by the entries: C(vm), C(host) and C(every) of each.

    Raises FlexdiskError if entries contradict each other.
    """
    meant, problems = _all_meant(play)
    calls = {
        host: {
            "replicas": [
                {"vm": uuid, "host": entry["host"], "every": entry.get("every")} for uuid, entry in _firsts(some)
            ]
        }
        for host, some in meant.items()
    }
    return Order(calls=calls, left_out=problems)


def _all_meant(play: Play) -> t.Tuple[t.Dict[str, t.List[_Meant]], t.List[str]]:
    """Return the entries that each host carries out, and what is wrong with groups in them."""
    groups, places = _Groups(play), _places(play)
    return {host: _meant(play, host, groups, places) for host in play.variables}, groups.problems


class _Groups:
    """The VMs of the groups that entries name."""

    def __init__(self, play: Play) -> None:
        entries = [entry for variables in play.variables.values() for entry in _entries(variables)]
        wanted = {str(entry["group"]) for entry in entries if entry.get("vm") is None}
        self.members: t.Dict[str, t.Dict[str, t.List[str]]] = {name: {} for name in wanted}
        """The UUIDs, by group and host."""
        self.problems: t.List[str] = []
        found = {
            group: [vm["uuid"] for info in play.read.values() for vm in info["vms"] if _group_of(vm) == group]
            for group in wanted
        }
        located = find_vms(play.read, [uuid for some in found.values() for uuid in some], play.unread)
        for group, uuids in sorted(found.items()):
            for host, here in located.here.items():
                self.members[group][host] = [uuid for uuid in uuids if uuid in here]
        if any("flexdisk_vm" in variables for variables in play.variables.values()):
            return  # what else is in these groups is not meant
        self.problems += located.problems
        for group, uuids in sorted(found.items()):
            if not uuids:
                unread = f"; {', '.join(play.unread)} could not be read" if play.unread else ""
                self.problems.append(f"Group {group} has no VM on {', '.join(play.read)}{unread}.")
            elif play.unread:
                unread = ", ".join(play.unread)
                self.problems.append(f"{unread} could not be read and may have members of group {group}")


def _group_of(vm: _Dict) -> str:
    return member_of(str(vm["member"] or ""))[0]


def _places(play: Play) -> Here:
    """Return where the VMs are that are named by the user or, if the user names one, by any entry."""
    if not any("flexdisk_vm" in variables for variables in play.variables.values()):
        return play.here
    named = [name for variables in play.variables.values() for name in _names_in(_entries(variables))]
    others = find_vms(play.read, named, play.unread, gone=any(map(gives_up, play.variables.values()))).here
    return {host: {**others.get(host, {}), **play.here[host]} for host in play.here}


def _meant(play: Play, host: str, groups: _Groups, places: Here) -> t.List[_Meant]:
    """Return the entries that a host carries out, each with its VMs there. A VM's own entries come first."""
    variables = play.variables[host]
    found = [(entry, _uuids(host, entry, groups, places)) for entry in _entries(variables)]
    found.sort(key=lambda one: one[0].get("vm") is None)
    if "flexdisk_vm" in variables:
        found = _of_named(host, variables, found, places)
    if not gives_up(variables):
        _refuse_contradictions(play, host, found)
    return found


def _of_named(host: str, variables: Raw, found: t.Sequence[_Meant], places: Here) -> t.List[_Meant]:
    """Return the entries of the VM that the user names, however they name it."""
    name = str(variables["flexdisk_vm"]).strip()
    located = places[host].get(name)
    if located is None:
        return []
    uuid, peer = located["vm"], variables.get("flexdisk_replica_host")
    of_vm: t.List[_Meant] = [(entry, [uuid]) for entry, uuids in found if uuid in uuids]
    if peer is not None:
        return [one for one in of_vm if one[0]["host"] == peer] or [({"vm": name, "host": peer}, [uuid])]
    if not of_vm:
        known = ", ".join(dict.fromkeys(_label(entry) for entry, _uuids_here in found)) or "none"
        text = f"flexdisk_replicas of {host} has no entry for VM {name}, but for {known}"
        raise FlexdiskError("InvalidArgument", f"{text}. Say with flexdisk_replica_host where its replica is")
    return of_vm


def _refuse_contradictions(play: Play, host: str, found: t.Sequence[_Meant]) -> None:
    """Raise FlexdiskError if two entries say different things of one VM and host, and neither comes first."""
    firsts: t.Dict[t.Tuple[str, str, bool], Raw] = {}
    for entry, uuids in found:
        for uuid in uuids:
            first = firsts.setdefault((uuid, entry["host"], entry.get("vm") is None), entry)
            keys = sorted({*first, *entry} - {"vm", "group"})
            different = [key for key in keys if first.get(key) != entry.get(key)]
            if different:
                known = {vm["uuid"]: vm.get("alias") for vm in play.read.get(host, {}).get("vms", ())}
                text = f"flexdisk_replicas of {host} has two entries of {known.get(uuid) or uuid} to {entry['host']}"
                text += f" that differ in {', '.join(different)}. One of them must go"
                raise FlexdiskError("InvalidArgument", text)


def _peers(play: Play, host: str, meant: t.Sequence[_Meant]) -> t.Tuple[t.List[_Dict], t.List[_Dict]]:
    """Return the peers of a host with what is due, and the replicas that are not."""
    variables = play.variables[host]
    known = {vm["uuid"]: vm for vm in play.read.get(host, {}).get("vms", ())}
    peers: t.Dict[str, _Dict] = {}
    fresh: t.List[_Dict] = []
    for uuid, entry in _firsts(meant):
        vm, every = known.get(uuid, {}), entry.get("every")
        name, age = vm.get("alias") or uuid, replica_age(vm, entry["host"])
        if "flexdisk_vm" not in variables and not is_due(age.seconds, every):
            fresh.append({"name": name, "to": entry["host"], "seconds": due_in(age.seconds, every)})
            continue
        options = _options(variables, entry)
        key = json.dumps(options, sort_keys=True)
        peer = peers.setdefault(key, {**options, "vms": [], "rows": []})
        peer["vms"].append(uuid)
        peer["rows"].append({"vm": uuid, "name": name, "every": every, "age": age.seconds, "no_age": age.reason})
    return list(peers.values()), fresh


def _firsts(meant: t.Sequence[_Meant]) -> t.List[t.Tuple[str, Raw]]:
    """Return the VMs with the first entry of each for each host."""
    firsts: t.Dict[t.Tuple[str, str], Raw] = {}
    for entry, uuids in meant:
        for uuid in uuids:
            firsts.setdefault((uuid, entry["host"]), entry)
    return [(uuid, entry) for (uuid, _host), entry in firsts.items()]


def _uuids(host: str, entry: Raw, groups: _Groups, places: Here) -> t.Sequence[str]:
    if entry.get("vm") is None:
        return groups.members[str(entry["group"])].get(host, [])
    located = places[host].get(str(entry["vm"]).strip())
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


def _entries(variables: Raw) -> t.Sequence[Raw]:
    return variables.get("flexdisk_replicas") or ()


def _names_in(entries: t.Sequence[Raw]) -> t.List[str]:
    return [str(entry["vm"]) for entry in entries if entry.get("vm") is not None]
