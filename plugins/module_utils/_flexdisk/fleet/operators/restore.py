# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks restore_disk and restore_vm: which replicas disks are restored from, and on which host."""

from __future__ import annotations

import typing as t

from ...model.errors import FlexdiskError
from ...rules.identity import is_uuid
from . import refusals
from .disks import is_unadopted, vm_disk
from .order import Order, Play, Raw, given_options
from .refusals import run_playbook

_VARIABLES = (
    "flexdisk_vm",
    "flexdisk_disk",
    "flexdisk_restored_name",
    "flexdisk_replaced_name",
    "flexdisk_restored_suffix",
    "flexdisk_replaced_suffix",
    "flexdisk_replica_host",
    "flexdisk_replica_snapshot",
    "flexdisk_target",
)


def names(variables: Raw) -> t.Sequence[str]:
    """Return the VM whose disk is meant, if it is named. Without it no host is read: the VM's may be down."""
    return [variables["flexdisk_vm"]] if "flexdisk_vm" in variables else []


def in_place(variables: Raw) -> bool:
    """Return whether the disks themselves get the contents."""
    return "flexdisk_replaced_name" in variables or "flexdisk_replaced_suffix" in variables


def contradictions(variables: Raw) -> t.Sequence[str]:
    """Return what is wrong with the variables."""
    problems = _one_way(variables, "flexdisk_restored_name", "flexdisk_replaced_name", "the name of")
    if "flexdisk_vm" in variables:
        return problems
    if in_place(variables):
        problems.append("flexdisk_replaced_name needs flexdisk_vm, whose disk gets the contents")
    if not is_uuid(str(variables["flexdisk_disk"]).lower()):
        problems.append(
            f"flexdisk_disk {variables['flexdisk_disk']} is no UUID, so it needs flexdisk_vm. If the host of the VM "
            "cannot be read, give the UUID of the disk: the name of the replica below POOL/flexdisk/replica has it"
        )
    if "flexdisk_replica_host" not in variables:
        problems.append("Without flexdisk_vm, flexdisk_replica_host must say which host has the replica")
    return problems


def vm_contradictions(variables: Raw) -> t.Sequence[str]:
    """Return what is wrong with the variables of restore_vm."""
    suffixes = ("flexdisk_restored_suffix", "flexdisk_replaced_suffix")
    problems = _one_way(variables, *suffixes, "what is added to the names of")
    return problems + [f"{name} is empty" for name in suffixes if variables.get(name) == ""]


def _one_way(variables: Raw, beside: str, replaced: str, text: str) -> t.List[str]:
    """Return problems unless the variables mean exactly one of both ways."""
    if (beside in variables) == (replaced in variables):
        return [
            f"Give either {beside}, {text} what is restored beside the disk, or {replaced}, {text} what the disk has "
            "now, which is kept detached when the disk itself gets the contents"
        ]
    odd = [name for name in ("flexdisk_target", "flexdisk_target_pool") if name in variables and replaced in variables]
    return [f"{' and '.join(odd)} cannot be given with {replaced}: the contents come where the disk is"] if odd else []


def restore_disk(play: Play) -> Order:
    """Return the call for the host of the replica. It makes a detached disk there, or sends it to another host."""
    variables = _variables(play)
    uuid, host = str(variables["flexdisk_disk"]).lower(), str(variables.get("flexdisk_replica_host", ""))
    restoring = _restoring(play) if "flexdisk_vm" in variables else []
    if restoring:
        matches = [one for one in restoring if uuid == one["disk"] or str(variables["flexdisk_disk"]) == one["name"]]
        disks = [{"disk": one["disk"], "new_name": variables.get("flexdisk_replaced_name")} for one in matches]
        return _end(play, variables, restoring, disks)
    if "flexdisk_vm" in variables:
        known = _disk(play, variables)
        uuid, host = known["uuid"], _host(known, variables, host)
    if host not in play.variables:
        hosts = ", ".join(play.variables)
        raise FlexdiskError("ResourceNotFound", f"{host}, which has the replica, is none of the hosts here: {hosts}")
    if in_place(variables):
        disks = [{"disk": uuid, "new_name": variables["flexdisk_replaced_name"]}]
        return Order(calls={host: _sent(variables, disks, _home(play))})
    name, target = variables["flexdisk_restored_name"], str(variables.get("flexdisk_target", host))
    if target == host:
        more = given_options(variables, source_snapshot="flexdisk_replica_snapshot")
        return Order(calls={host: {"name": name, "replica": uuid, **more}})
    return Order(calls={host: _sent(variables, [{"disk": uuid, "new_name": name}], target)})


def restore_vm(play: Play) -> Order:
    """Return the call for the host of the replicas. It sends all disks of the VM to the VM's host, or another one."""
    variables, home = _variables(play), _home(play)
    suffix = variables.get("flexdisk_replaced_suffix", variables.get("flexdisk_restored_suffix"))
    restoring = _restoring(play)
    if restoring:
        disks = [{"disk": uuid, "new_name": f"{name}-{suffix}"} for uuid, name in _every_disk(play, restoring)]
        return _end(play, variables, restoring, disks)
    disks, problems = [], []
    hosts: t.Dict[str, t.List[str]] = {}
    for one in _disks_of(play):
        name = str(one["name"] or one["uuid"])
        disks.append({"disk": one["uuid"], "new_name": f"{name}-{suffix}"})
        if not (one["name"] and one["uuid"]):
            problems.append(refusals.unadopted(variables["flexdisk_vm"], name))
        for replica in one.get("replicas") or ():
            hosts.setdefault(str(replica["host"]), []).append(one["uuid"])
    if problems or not disks:
        return Order(problems or [f"VM {variables['flexdisk_vm']} on {home} has no disks"])
    host = _host_of_all(variables, {host: len(uuids) for host, uuids in hosts.items()}, len(disks))
    if host not in play.variables:
        names_here = ", ".join(play.variables)
        text = f"{host}, which has the replicas, is none of the hosts here: {names_here}"
        raise FlexdiskError("ResourceNotFound", text)
    target = str(variables.get("flexdisk_target", home))
    if target == host:
        text = f"{host} has the replicas: restore_disk makes disks there, one by one, and failover_vm brings up the VM"
        raise FlexdiskError("NotSupported", text)
    return Order(calls={host: _sent(variables, disks, target)})


def ending(vm: str, restoring: t.Sequence[Raw]) -> t.Tuple[str, t.List[t.Tuple[str, str]]]:
    """Return the playbook, and its variables, that ends an interrupted restore of a VM. vm: its UUID. restoring: as
    vm_info reports it.
    """
    first = restoring[0]
    variables = [("flexdisk_vm", vm)]
    suffix = str(first["new_name"])[len(first["name"]) + 1 :]
    if first["together"] > 1:
        return "restore_vm", [*variables, ("flexdisk_replaced_suffix", suffix)]
    more = [("flexdisk_disk", str(first["disk"])), ("flexdisk_replaced_name", str(first["new_name"]))]
    return "restore_disk", variables + more


def _end(play: Play, variables: Raw, restoring: t.Sequence[Raw], disks: t.Sequence[Raw]) -> Order:
    """Return the call that ends an interrupted restore, if the same is wanted. All has come to the host of the VM, so
    no other host is needed. disks: the wanted ones.
    """
    home, snapshot = _home(play), variables.get("flexdisk_replica_snapshot")
    wanted = [(one["disk"], one["new_name"]) for one in disks]
    is_same = in_place(variables) and all(
        (one["disk"], one["new_name"]) in wanted
        and one["together"] == len(disks)
        and snapshot in (None, one["snapshot"])
        for one in restoring
    )
    if not is_same:
        names = ", ".join(f"{one['name']} (its former contents become {one['new_name']})" for one in restoring)
        playbook, given = ending(_vm(play), restoring)
        text = f"VM {variables['flexdisk_vm']} on {home}: the restore of its disks was interrupted while volumes "
        text += f"changed places: {names}. Nothing else is restored before this has ended it: "
        raise FlexdiskError("InUse", text + run_playbook(playbook, *given))
    call = _sent(variables, disks, home)
    return Order(calls={home: {**call, "restore": {**call["restore"], "begun": True}}})


def _restoring(play: Play) -> t.List[Raw]:
    """Return the disks of the VM whose restore was interrupted while volumes changed places."""
    return [one for each in play.read[_home(play)]["vms"] if each["uuid"] == _vm(play) for one in each["restoring"]]


def _every_disk(play: Play, restoring: t.Sequence[Raw]) -> t.List[t.Tuple[str, str]]:
    """Return UUID and name of all disks of the VM. Those that are about to change places can be listed as others."""
    volumes = [one["volume"] for one in restoring]
    others = [one for one in _disks_of(play) if one["volume"] not in volumes]
    return [(str(one["uuid"]), str(one["name"])) for one in others] + [(one["disk"], one["name"]) for one in restoring]


def _disks_of(play: Play) -> t.List[Raw]:
    disks = [one for each in play.read[_home(play)]["vms"] if each["uuid"] == _vm(play) for one in each["disks"]]
    return [one for one in disks if not one.get("hidden")]


def _host_of_all(variables: Raw, hosts: t.Mapping[str, int], number: int) -> str:
    """Return the host that has replicas of all disks. Raises FlexdiskError if it is not certain."""
    label, wanted = f"VM {variables['flexdisk_vm']}", str(variables.get("flexdisk_replica_host", ""))
    whole = [host for host, count in sorted(hosts.items()) if count == number]
    listed = ", ".join(f"{host} ({count} of {number} disks)" for host, count in sorted(hosts.items())) or "no host"
    if wanted and wanted not in whole:
        raise FlexdiskError("ResourceNotFound", f"{label} has not all its replicas on {wanted}, but on {listed}")
    if not whole:
        text = f"{label} has replicas of all its disks on no host, but on {listed}. restore_disk restores single disks"
        raise FlexdiskError("ResourceNotFound", text)
    if not wanted and len(whole) > 1:
        text = f"{label} has replicas on {', '.join(whole)}. Say with flexdisk_replica_host which ones you mean"
        raise FlexdiskError("Ambiguous", text)
    return wanted or whole[0]


def _sent(variables: Raw, disks: t.Sequence[Raw], target: str) -> t.Dict[str, t.Any]:
    """Return what the host of the replicas gets for disks that it sends."""
    more = given_options(variables, snapshot="flexdisk_replica_snapshot")
    if in_place(variables):
        more["in_place"] = True
        options = {"allow_restart": "flexible_disks_allow_restart", "stop_timeout": "flexible_disks_stop_timeout"}
        more.update(given_options(variables, **options))
    return {"restore": {"disks": [*disks], **more}, "target": target}


def _home(play: Play) -> str:
    """Return the host of the named VM."""
    return next(host for host, here in play.here.items() if here)


def _vm(play: Play) -> str:
    """Return the UUID of the named VM."""
    (vm,) = next(iter(play.here[_home(play)].values())).values()
    return vm


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
    host, vm = _home(play), _vm(play)
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
