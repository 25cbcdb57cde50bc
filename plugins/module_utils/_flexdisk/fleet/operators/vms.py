# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks about VMs that a user names, or about all VMs of each host."""

from __future__ import annotations

import json
import typing as t

from . import refusals
from .declared import DISKS, declarations_undoing, declared_vm
from .order import Order, Play, Raw, given_options

DIGESTS = "flexdisk_plan_digests"


def change_package(play: Play) -> Order:
    """The VM gets one of the packages, unless the inventory declares another one."""
    order = Order()
    for host, variables, name, uuid in _named(play):
        package = variables["flexdisk_package"]
        packages = [str(one["name"]) for one in variables.get("flexdisk_packages") or ()]
        if package not in packages:
            known = ", ".join(packages) or "none"
            order.problems.append(f"flexdisk_package is {package}, but flexdisk_packages has {known}")
        change = {"package": package}
        places = declarations_undoing(play.read, play.variables, uuid, change)
        if places:
            instead = (
                f"Write {json.dumps(change)} to {', and to '.join(places)}; then use create_vm for virtual_machine_vms,"
                " and update_group for flexdisk_groups."
            )
            order.problems.append(refusals.declared(f"the package of VM {name}", host, instead))
        order.calls[host] = {"vms": [{"vm": uuid, **change}]}
    return order


def delete_vm(play: Play) -> Order:
    """The VM is deleted, unless the inventory declares it."""
    order = Order()
    for host, variables, name, uuid in _named(play):
        places = declarations_undoing(play.read, play.variables, uuid)
        if places:
            instead = (
                f"Take it out of {', and of '.join(places)}, or make the group smaller with scale_group; then run this "
                "again."
            )
            order.problems.append(refusals.declared(f"VM {name}", host, instead))
        permits = given_options(
            variables, destroy_disks="flexdisk_destroy_disks", destroy_snapshots="flexdisk_destroy_snapshots"
        )
        order.calls[host] = {"vms": [{"vm": uuid, "state": "absent", **permits}]}
    return order


def in_state(state: str) -> t.Callable[[Play], Order]:
    """Return how a playbook decides that brings named VMs into a state.

    What the inventory declares otherwise is shown, and refuses nothing: who stops a VM in an emergency has no time.
    """
    lasting = "stopped" if state == "stopped" else "running"

    def calls(play: Play) -> Order:
        order = Order()
        for host, _variables, name, uuid in _named(play):
            call = order.calls.setdefault(host, {"vms": []})
            entry = {"vm": uuid, "state": state}
            call["vms"] += [entry] if entry not in call["vms"] else []
            places = declarations_undoing(play.read, play.variables, uuid, {"state": lasting})
            if places:
                text = f"VM {name}: the next run for the inventory changes this again. See {', and '.join(places)}"
                order.lines.setdefault(host, []).append(text)
        return order

    return calls


def declared_disks(play: Play) -> Order:
    """Return the VMs of flexible_disks_vms that are meant: C(only) the named one, as its entry has it; "" for all."""
    named = next(_named(play), None)
    if named is None:
        hosts = [host for host, variables in play.variables.items() if variables.get(DISKS)]
        return Order(calls={host: {"only": ""} for host in hosts})
    lists = {host: variables.get(DISKS) for host, variables in play.variables.items()}
    entry = declared_vm(play.read, lists, named[3], named[2])
    return Order([entry["problem"]] if entry["problem"] else [], calls={entry["host"]: {"only": entry["name"]}})


def approved_disks(play: Play) -> Order:
    """Return the same, if there is a digest for each host that is meant, and for no other host of the play."""
    order = declared_disks(play)
    in_play = {*play.variables, *play.unread}
    approved = [host for host, digest in play.approved.items() if digest]
    problems = [f"{host} has declared VMs, but {_why_not(play, host)}." for host in order.calls if host not in approved]
    problems += [
        f"{host} is in {DIGESTS}, but not in the inventory." for host in approved if host not in play.inventory_hosts
    ]
    problems += [
        f"{host} is in {DIGESTS}, but none of the VMs that are meant is declared for it."
        for host in approved
        if host in in_play and host not in order.calls
    ]
    if order.problems or not problems:
        return order
    return Order([*problems, "Nothing was changed. Look at a new plan, or leave hosts out with --limit."])


def _why_not(play: Play, host: str) -> str:
    """Return why the plan of a host is not approved."""
    if host in play.approved:
        return f"its digest in {DIGESTS} is empty: the playbook plan had no plan for it (NO PLAN)"
    return f"{DIGESTS} has no digest of it"


def adopt(play: Play) -> Order:
    """Return the entries of the VMs that each host has, or all VMs."""
    order = Order()
    for host, variables in play.variables.items():
        entries = variables.get("flexdisk_adopt_vms")
        here = play.here[host]
        if entries is None:
            order.calls[host] = {}
        elif here:
            order.calls[host] = {"vms": [{**one, **here[one["vm"]]} for one in entries if one["vm"] in here]}
    return order


def chosen(*names: str) -> t.Callable[[Play], Order]:
    """Return how a playbook decides that is about named VMs, or about all. names: the variables that name some."""

    def calls(play: Play) -> Order:
        order = Order()
        for host, variables in play.variables.items():
            uuids = list(dict.fromkeys(located["vm"] for located in play.here[host].values()))
            if not any(name in variables for name in names):
                order.calls[host] = {}
            elif uuids:
                order.calls[host] = {"vms": uuids}
        return order

    return calls


def vms_of(*names: str) -> t.Callable[[Raw], t.List[str]]:
    """Return what gives the VMs that the first of these variables names that is there: a list, or one VM."""

    def listed(variables: Raw) -> t.List[str]:
        value = next((variables[name] for name in names if name in variables), None) or []
        entries = [value] if isinstance(value, str) else value
        return [one["vm"] if isinstance(one, t.Mapping) else one for one in entries]

    return listed


def odd_names(variables: Raw) -> t.List[str]:
    """Return the problems with the variables of adopt."""
    odd = [name for name in vms_of("flexdisk_adopt_vms")(variables) if name != name.strip()]
    text = f"flexdisk_adopt_vms: vm must be a name without blanks around it, got: {', '.join(odd)}"
    return [text] if odd else []


def one_way(several: str) -> t.Callable[[Raw], t.List[str]]:
    """Return what is wrong with variables of a playbook that needs one VM or several. several: their variable."""

    def problems(variables: Raw) -> t.List[str]:
        text = f"Name the VM with flexdisk_vm, or several VMs with {several}; exactly one of the two is needed"
        return [] if ("flexdisk_vm" in variables) != (several in variables) else [text]

    return problems


def not_two_ways(variables: Raw) -> t.List[str]:
    """Return the problems with the variables of snapshot."""
    text = "Name one VM with flexdisk_vm, or several with flexdisk_snapshot_vms, but not both"
    return [text] if "flexdisk_vm" in variables and "flexdisk_snapshot_vms" in variables else []


def _named(play: Play) -> t.Iterator[t.Tuple[str, Raw, str, str]]:
    """Yield the named VM: its host, the host's variables, its name and UUID. More than one if hosts name others."""
    for host, here in play.here.items():
        for name, located in here.items():
            yield host, play.variables[host], name, located["vm"]
