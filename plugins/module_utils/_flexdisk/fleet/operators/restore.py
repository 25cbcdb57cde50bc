# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook restore_disk: which replica a disk is restored from, and on which host."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import is_uuid
from . import refusals
from .disks import is_unadopted, vm_disk
from .order import Order, Play, Raw, given_options

_VARIABLES = (
    "flexdisk_vm",
    "flexdisk_disk",
    "flexdisk_restored_name",
    "flexdisk_replica_host",
    "flexdisk_replica_snapshot",
    "flexdisk_target",
)


def names(variables: Raw) -> t.Sequence[str]:
    """Return the VM whose disk is meant, if it is named. Without it no host is read: the VM's may be down."""
    return [variables["flexdisk_vm"]] if "flexdisk_vm" in variables else []


def contradictions(variables: Raw) -> t.Sequence[str]:
    """Return what is wrong with the variables."""
    if "flexdisk_vm" in variables:
        return []
    problems = []
    if not is_uuid(str(variables["flexdisk_disk"]).lower()):
        problems.append(
            f"flexdisk_disk {variables['flexdisk_disk']} is no UUID, so it needs flexdisk_vm. If the host of the VM "
            "cannot be read, give the UUID of the disk: the name of the replica below POOL/flexdisk/replica has it"
        )
    if "flexdisk_replica_host" not in variables:
        problems.append("Without flexdisk_vm, flexdisk_replica_host must say which host has the replica")
    return problems


def restore_disk(play: Play) -> Order:
    """Return the call for the host of the replica. It makes a detached disk there, or sends it to another host."""
    variables = _variables(play)
    uuid, host = str(variables["flexdisk_disk"]).lower(), str(variables.get("flexdisk_replica_host", ""))
    if "flexdisk_vm" in variables:
        known = _disk(play, variables)
        uuid, host = known["uuid"], _host(known, variables, host)
    if host not in play.variables:
        hosts = ", ".join(play.variables)
        raise FlexdiskError("ResourceNotFound", f"{host}, which has the replica, is none of the hosts here: {hosts}")
    name, target = variables["flexdisk_restored_name"], str(variables.get("flexdisk_target", host))
    if target == host:
        more = given_options(variables, source_snapshot="flexdisk_replica_snapshot")
        return Order(calls={host: {"name": name, "replica": uuid, **more}})
    more = given_options(variables, snapshot="flexdisk_replica_snapshot")
    return Order(calls={host: {"restore": {"disk": uuid, "new_name": name, **more}, "target": target}})


def _variables(play: Play) -> Raw:
    """Return the variables. Raises FlexdiskError Ambiguous if those of the hosts differ."""
    meant: t.Dict[t.Tuple[str, ...], t.List[str]] = {}
    for host, one in play.variables.items():
        key = tuple(f"{name}={one[name]}" for name in _VARIABLES if name in one)
        meant.setdefault(key, []).append(host)
    if len(meant) > 1:
        each = "; ".join(f"{', '.join(hosts)}: {' '.join(key)}" for key, hosts in meant.items())
        raise FlexdiskError("Ambiguous", f"the hosts of this run mean several disks ({each}). Name one with -e")
    return next(iter(play.variables.values()))


def _disk(play: Play, variables: Raw) -> Raw:
    """Return the disk of the named VM. Raises FlexdiskError ResourceNotFound if it is not there or has no UUID."""
    host, here = next((host, here) for host, here in play.here.items() if here)
    (vm,) = next(iter(here.values())).values()
    read, called, name = play.read[host], variables["flexdisk_vm"], str(variables["flexdisk_disk"])
    if is_unadopted(read, vm, name):
        raise FlexdiskError("ResourceNotFound", refusals.unadopted(called, name))
    known = vm_disk(read, vm, name)
    if not known.get("uuid"):
        of_vm = [each for each in read["vms"] if each["uuid"] == vm]
        disks = [one for each in of_vm for one in (*each["disks"], *each["parked"])]
        there = ", ".join(one["name"] for one in disks if one["name"]) or "none with a name"
        raise FlexdiskError("ResourceNotFound", f"VM {called} on {host} has no disk {name} with a UUID. It has {there}")
    return known


def _host(disk: Raw, variables: Raw, wanted: str) -> str:
    """Return the host whose replica is meant. Raises FlexdiskError if it is not certain."""
    replicas = disk.get("replicas")
    if replicas is None and wanted:  # of a detached disk, which vm_info says nothing of
        return wanted
    hosts = [str(one["host"]) for one in replicas or ()]
    label = f"disk {variables['flexdisk_disk']} of VM {variables['flexdisk_vm']}"
    if replicas is None:
        raise FlexdiskError("Ambiguous", f"{label} is detached. Say with flexdisk_replica_host where its replica is")
    if not hosts:
        raise FlexdiskError("ResourceNotFound", f"{label} has no replicas. The playbook replicate makes some")
    if wanted and wanted not in hosts:
        raise FlexdiskError("ResourceNotFound", f"{label} has no replica on {wanted}, but on {', '.join(hosts)}")
    if not wanted and len(hosts) > 1:
        each = ", ".join(f"{one['host']} (of {one['synced'] or 'no complete sync'})" for one in replicas)
        text = f"{label} has replicas on {each}. Say with flexdisk_replica_host which one you mean"
        raise FlexdiskError("Ambiguous", text)
    return wanted or hosts[0]
