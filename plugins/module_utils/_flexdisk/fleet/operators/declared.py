# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the inventory declares a VM or its disks, so that the next run for it would undo a change."""

from __future__ import annotations

import typing as t

from ...rules.naming import Identifiers, find_by_name
from ..groups.members import index_of
from .disks import vm_disk

_Dict = t.Mapping[str, t.Any]
_Read = t.Mapping[str, _Dict]  # the result of vm_info, by host
_Lists = t.Mapping[str, t.Optional[t.Sequence[_Dict]]]
DISKS = "flexible_disks_vms"
VMS = "virtual_machine_vms"


def declared_vm(read: _Read, lists: _Lists, uuid: str, name: str) -> t.Dict[str, str]:
    """Return the host that has the VM, and how its entry names it; or what is wrong, as problem.

    lists: flexible_disks_vms of each host. name: how a message calls the VM.
    """
    home, vm = _home(read, uuid)
    meaning = {
        host: [str(entry["vm"]) for entry in entries or () if _means(str(entry["vm"]), vm, _vms(read.get(host)))]
        for host, entries in lists.items()
    }
    here = meaning.get(home, [])
    if len(here) == 1:
        return {"host": home, "name": here[0], "problem": ""}
    if here:
        text = (
            f"{DISKS} of {home} declares VM {name} {len(here)} times, as {' and '.join(here)}; it has to be there once"
        )
    else:
        elsewhere = [host for host, names in meaning.items() if names]
        known = ", ".join(str(entry["vm"]) for entry in lists.get(home) or ()) or "no VM"
        text = f"VM {name} is on {home}, but {DISKS} " + (
            f"declares it for {' and '.join(elsewhere)}"
            if elsewhere
            else f"does not declare it there. It declares {known}"
        )
    return {"host": home, "name": "", "problem": text + "."}


def declarations_of_disks(
    read: _Read, inventory: t.Mapping[str, _Lists], uuid: str, disk: str = "", attaches: bool = False
) -> t.List[str]:
    """Return where the inventory declares the disks of the VM, or this one, as text.

    inventory: for each host its variables flexible_disks_vms, virtual_machine_vms, disk_registry_disks and
    flexdisk_groups. uuid: of the VM, or of its disk. attaches: only whether the disk is attached is to change, which
    disk_registry_disks can leave open.
    """
    if any(uuid == one.get("uuid") for result in read.values() for one in (result or {}).get("parked", ())):
        return []  # it is detached already
    home, vm = _home(read, uuid)
    known = vm_disk(read[home], vm.uuid, disk)
    names = {disk, known.get("name"), known.get("uuid")} - {"", None}
    places = []
    for host, variables in inventory.items():
        others = _vms(read.get(host))
        for variable in (DISKS, VMS):
            for entry in variables.get(variable) or ():
                named = str(entry.get("vm") or entry.get("name") or "")
                if entry.get("disks") is not None and _means(named, vm, others):
                    places.append(f"{variable} of {host}, in the entry {named}")
        for entry in variables.get("disk_registry_disks") or ():
            if attaches and entry.get("state") in (None, "present"):
                continue
            meant = {entry.get("name"), str(entry.get("uuid") or "").lower()} & names
            if meant and (not entry.get("vm") or _means(str(entry["vm"]), vm, others)):
                places.append(f"disk_registry_disks of {host}, in the entry {disk}")
    groups = inventory.get(home, {}).get("flexdisk_groups") or ()
    places += [f"flexdisk_groups, in the group {group['name']}" for group in groups if _member(vm, str(group["name"]))]
    return places


def declarations_undoing(
    read: _Read, inventory: t.Mapping[str, _Lists], uuid: str, change: t.Optional[_Dict] = None
) -> t.List[str]:
    """Return where the inventory declares the VM so that the next run for it would undo a change, as text.

    inventory: as for declaring. change: the options of the VM that change, with their new values. Without it, the VM is
    deleted.
    """
    home, vm = _home(read, uuid)
    places = []
    for host, variables in inventory.items():
        for entry in variables.get(VMS) or ():
            named = str(entry.get("vm") or entry.get("name") or "")
            if _undoes(entry, change) and _means(named, vm, _vms(read.get(host))):
                places.append(f"{VMS} of {host}, in the entry {named}")
    for group in inventory.get(home, {}).get("flexdisk_groups") or ():
        index = index_of(vm.alias, str(group["name"]))
        if 0 <= index < (int(group["size"]) if change is None else index + 1) and _undoes(group["template"], change):
            places.append(f"flexdisk_groups, in the group {group['name']}")
    return places


def _undoes(declared: _Dict, change: t.Optional[_Dict]) -> bool:
    """Return whether the declaration of a VM undoes a change, or without one its deletion."""
    if declared.get("state") == "absent":
        return change is not None
    if declared.get("state") == "present":  # running or stopped, as it is
        declared = {option: value for option, value in declared.items() if option != "state"}
    return change is None or any(declared.get(option, value) != value for option, value in change.items())


def _home(read: t.Mapping[str, _Dict], uuid: str) -> t.Tuple[str, Identifiers]:
    """Return the host and the names of the VM with this UUID, or with a disk of this UUID."""
    vms = [vm for result in read.values() for vm in (result or {}).get("vms", ())]
    owners = {str(vm["uuid"]) for vm in vms if any(disk.get("uuid") == uuid for disk in vm.get("disks", ()))}
    return next(
        (host, vm) for host, result in read.items() for vm in _vms(result) if vm.uuid == uuid or vm.uuid in owners
    )


def _vms(result: t.Optional[_Dict]) -> t.List[Identifiers]:
    known = [*result["vms"], *result["skipped_vms"]] if result else []
    return [Identifiers(str(vm["uuid"]), str(vm["alias"])) for vm in known]


def _means(named: str, vm: Identifiers, here: t.Sequence[Identifiers]) -> bool:
    """Return whether a host's inventory means the VM by this name; here: the host's own VMs, which come first."""
    return vm in (find_by_name(named, here) or find_by_name(named, [vm]))


def _member(vm: Identifiers, group: str) -> bool:
    return index_of(vm.alias, group) >= 0
