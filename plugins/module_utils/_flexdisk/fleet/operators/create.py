# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook create_vm: which of the declared VMs each host gets, after hosts were chosen for some of them."""

from __future__ import annotations

import typing as t

from ..placement.asked import placed_vms
from .declared import VMS
from .order import Order, Play, Raw

AUTO = "auto"


def asked_for(variables: Raw) -> t.List[str]:
    """Return the VMs that must be found: the named one, or all whose host is chosen."""
    return [variables["flexdisk_vm"]] if "flexdisk_vm" in variables else _auto(variables)


def not_for_one_host(play: Play) -> t.List[str]:
    """Return the problems with the hosts for which VMs are declared."""
    auto = {name for variables in play.variables.values() for name in _auto(variables)}
    torn = [
        name
        for variables in play.variables.values()
        for name in _declared(variables)
        if name in auto and name not in _auto(variables)
    ]
    problems = []
    if torn:
        names = ", ".join(dict.fromkeys(torn))
        problems.append(f"{names} must have hypervisor: auto on each host for which it is declared, or on none")
    wanted = next(iter(play.variables.values())).get("flexdisk_vm")
    hosts = [host for host, variables in play.variables.items() if wanted in _declared(variables)]
    if wanted is None or len(hosts) == 1 or (hosts and wanted in _auto(play.variables[hosts[0]])):
        return problems
    if hosts:
        return [*problems, f"VM {wanted} is declared for {' and '.join(hosts)}. Say with --limit for which one."]
    every = dict.fromkeys(name for variables in play.variables.values() for name in _declared(variables))
    text = f"VM {wanted} is declared for none of {', '.join(play.variables)}. {VMS} has {', '.join(every) or 'no VM'}."
    return [*problems, text]


def create_vm(play: Play) -> Order:
    """Each host gets its declared VMs. Hosts are chosen first for new VMs that can have several."""
    foreign = {
        host: [name for name in here if name not in _declared(play.variables[host])] for host, here in play.here.items()
    }
    if any(foreign.values()):
        return Order(
            [
                f"VM {', '.join(names)} is on {host}, but is declared for another host"
                for host, names in foreign.items()
                if names
            ]
        )
    new = {host: _new(play, variables) for host, variables in play.variables.items()}
    if play.placed is None and any(new.values()):
        place = {
            host: placed_vms([entry for entry in _entries(variables) if "hypervisor" in entry], new[host])
            for host, variables in play.variables.items()
        }
        return Order(place=place)
    return Order(calls=dict(_calls(play)))


def _calls(play: Play) -> t.Iterator[t.Tuple[str, t.Dict[str, t.Any]]]:
    for host, variables in play.variables.items():
        gets = {name for name, where in (play.placed or {}).items() if where == host}.union(play.here[host])
        names = [name for name in _declared(variables) if name in gets or name not in _auto(variables)]
        if variables.get("flexdisk_vm") in (None, *names):
            yield host, {"vms": placed_vms(_entries(variables), names)}


def _new(play: Play, variables: Raw) -> t.List[str]:
    """Return the VMs that the host may get, since no host has them."""
    there = {name for here in play.here.values() for name in here}
    return [name for name in asked_for(variables) if name in _auto(variables) and name not in there]


def _entries(variables: Raw) -> t.Sequence[Raw]:
    return variables.get(VMS) or ()


def _declared(variables: Raw) -> t.List[str]:
    return [name for entry in _entries(variables) for name in _names(entry)]


def _auto(variables: Raw) -> t.List[str]:
    return [name for entry in _entries(variables) if entry.get("hypervisor") == AUTO for name in _names(entry)]


def _names(entry: Raw) -> t.List[str]:
    return [str(entry[key]) for key in ("vm", "name") if entry.get(key) is not None]
