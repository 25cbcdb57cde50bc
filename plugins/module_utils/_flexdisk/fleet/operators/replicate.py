# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook replicate: which VMs each host replicates to which peers."""

from __future__ import annotations

import typing as t

from .order import Order, Play, Raw

ABSENT = "absent"


def names(variables: Raw) -> t.List[str]:
    """Return the VMs that are replicated."""
    return [str(entry["vm"]) for entry in _wanted(variables)]


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
    return problems


def without_entry(play: Play) -> t.List[str]:
    """Return a problem if no host has an entry that is meant. A host without one has nothing to replicate."""
    given = play.variables.values()
    if any(_wanted(variables) or contradictions(variables) for variables in given):
        return []
    name = next((variables["flexdisk_vm"] for variables in given if "flexdisk_vm" in variables), None)
    if name is None:
        return ["flexdisk_replicas has no entry"]
    known = ", ".join(dict.fromkeys(str(entry["vm"]) for one in given for entry in _entries(one))) or "none"
    text = f"flexdisk_replicas has no entry with vm: {name}, but with {known}. Name the VM as it stands there, or say"
    return [f"{text} with flexdisk_replica_host where its replica is"]


def replicate(play: Play) -> Order:
    """Each host gets the peers of its VMs: C(host), C(pool) and C(vms)."""
    return Order(calls={host: {"peers": _peers(play, host)} for host in play.variables})


def _peers(play: Play, host: str) -> t.List[t.Dict[str, t.Any]]:
    peers: t.Dict[t.Tuple[str, str], t.List[str]] = {}
    for entry in _wanted(play.variables[host]):
        located = play.here[host].get(str(entry["vm"]))
        if located:
            peers.setdefault((entry["host"], entry.get("pool") or ""), []).append(located["vm"])
    return [{"host": peer, "pool": pool, "vms": list(dict.fromkeys(vms))} for (peer, pool), vms in peers.items()]


def _wanted(variables: Raw) -> t.List[Raw]:
    name = variables.get("flexdisk_vm")
    return [entry for entry in _entries(variables) if name is None or entry["vm"] == name]


def _entries(variables: Raw) -> t.Sequence[Raw]:
    if "flexdisk_replica_host" in variables:
        return [{"vm": variables.get("flexdisk_vm"), "host": variables["flexdisk_replica_host"]}]
    return variables.get("flexdisk_replicas") or ()
