# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Filters of what the inventory says of one VM and its disks, such as declared_vm, undone, vm_disk and new_disk."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.groups.members import index_of
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import (
    REMAINING,
    parse_size_or_remaining,
    render_mib,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.naming import (
    Names,
    fitting,
    names_volume,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.slots import normalise
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils import _core

_Dict = t.Mapping[str, t.Any]
_Lists = t.Mapping[str, t.Optional[t.Sequence[_Dict]]]
_Result = t.TypeVar("_Result")
DISKS = "flexible_disks_vms"
VMS = "virtual_machine_vms"


def declared_vm(
    found: t.Mapping[str, _Dict], lists: t.Mapping[str, t.Optional[t.Sequence[_Dict]]], uuid: str, name: str
) -> t.Dict[str, str]:
    """found: the result of vm_info for each host. lists: flexible_disks_vms of each host. The host that has the VM, and
    how its entry names it; or what is wrong, as problem.
    """
    return _guarded("declared_vm", _declared_vm, found, lists, uuid, name)


def declaring(
    found: t.Mapping[str, _Dict], inventory: t.Mapping[str, _Lists], uuid: str, disk: str = "", attaches: bool = False
) -> t.List[str]:
    """inventory: for each host its variables flexible_disks_vms, virtual_machine_vms, disk_registry_disks and
    flexdisk_groups. Where they declare the disks of the VM, or this one, in words. uuid: of the VM, or of its disk.
    attaches: only whether the disk is attached is to change, which disk_registry_disks can leave open.
    """
    return _guarded("declaring", _declaring, found, inventory, uuid, disk, attaches)


def undone(
    found: t.Mapping[str, _Dict], inventory: t.Mapping[str, _Lists], uuid: str, change: t.Optional[_Dict] = None
) -> t.List[str]:
    """found, inventory: as for declaring. Where the inventory declares the VM so that the next run for it would undo a
    change of the options that change has, with their new values, or without change the deletion of the VM; in words.
    """
    return _guarded("undone", _undone, found, inventory, uuid, change)


def vm_disk(found: _Dict, uuid: str, disk: str) -> t.Dict[str, t.Any]:
    """found: the result of vm_info of the host that has the VM. The disk of this name or UUID, or nothing. Several
    of one name are an error: an attached one and one that was detached, for example.
    """
    return _guarded("vm_disk", _vm_disk, found, uuid, disk)


def unadopted_disk(found: _Dict, uuid: str, disk: str) -> bool:
    """Whether this means a disk of the VM that has no name yet, but that reports show by its volume: C((disk1))."""
    return _guarded("unadopted_disk", _unadopted_disk, found, uuid, disk)


def new_disk(found: _Dict, uuid: str, disk: str, size: str, pci_slot: str = "") -> str:
    """Why a disk of this name and size cannot be a new one of the VM in a slot; "" if it can, or is there already."""
    return _guarded("new_disk", _new_disk, found, uuid, disk, size, pci_slot)


def _declared_vm(
    found: t.Mapping[str, _Dict], lists: t.Mapping[str, t.Optional[t.Sequence[_Dict]]], uuid: str, name: str
) -> t.Dict[str, str]:
    home, vm = _home(found, uuid)
    meaning = {
        host: [str(entry["vm"]) for entry in entries or () if _means(str(entry["vm"]), vm, _vms(found.get(host)))]
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


def _declaring(
    found: t.Mapping[str, _Dict], inventory: t.Mapping[str, _Lists], uuid: str, disk: str, attaches: bool
) -> t.List[str]:
    if any(uuid == one.get("uuid") for result in found.values() for one in (result or {}).get("parked", ())):
        return []  # it is detached already
    home, vm = _home(found, uuid)
    known = _vm_disk(found[home], vm.uuid, disk)
    names = {disk, known.get("name"), known.get("uuid")} - {"", None}
    places = []
    for host, variables in inventory.items():
        others = _vms(found.get(host))
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


def _undone(
    found: t.Mapping[str, _Dict], inventory: t.Mapping[str, _Lists], uuid: str, change: t.Optional[_Dict]
) -> t.List[str]:
    home, vm = _home(found, uuid)
    places = []
    for host, variables in inventory.items():
        for entry in variables.get(VMS) or ():
            named = str(entry.get("vm") or entry.get("name") or "")
            if _undoes(entry, change) and _means(named, vm, _vms(found.get(host))):
                places.append(f"{VMS} of {host}, in the entry {named}")
    for group in inventory.get(home, {}).get("flexdisk_groups") or ():
        index = index_of(vm.alias, str(group["name"]))
        if 0 <= index < (int(group["size"]) if change is None else index + 1) and _undoes(group["template"], change):
            places.append(f"flexdisk_groups, in the group {group['name']}")
    return places


def _undoes(declared: _Dict, change: t.Optional[_Dict]) -> bool:
    """Whether the declaration of a VM undoes a change, or without one its deletion."""
    if declared.get("state") == "absent":
        return change is not None
    return change is None or any(declared.get(option, value) != value for option, value in change.items())


def _vm_disk(found: _Dict, uuid: str, disk: str) -> t.Dict[str, t.Any]:
    disks = [one for vm in found["vms"] if vm["uuid"] == uuid for one in (*vm["disks"], *vm["parked"])]
    by_uuid = [entry for entry in disks if entry.get("uuid") and entry["uuid"] == disk.lower()]
    named = by_uuid or [entry for entry in disks if disk and entry["name"] == disk]
    if len(named) > 1:
        which = " and ".join(f"{entry.get('uuid') or entry['volume']} ({_state(entry)})" for entry in named)
        text = f"VM {uuid} has {len(named)} disks {disk}: {which}. Name the one that you mean by its UUID"
        raise AnsibleFilterError(text)
    return dict(named[0]) if named else {}


def _unadopted_disk(found: _Dict, uuid: str, disk: str) -> bool:
    disks = [one for vm in found["vms"] if vm["uuid"] == uuid for one in vm["disks"]]
    if any(one["name"] == disk for one in disks):
        return False
    return any(names_volume(disk, str(one["name"] or ""), str(one["volume"])) for one in disks)


def _state(disk: _Dict) -> str:
    return "detached" if disk["state"] == "parked" else "attached"


def _new_disk(found: _Dict, uuid: str, disk: str, size: str, pci_slot: str) -> str:
    try:
        wanted = parse_size_or_remaining(size)
    except FlexdiskError as exc:
        return exc.message
    there = _vm_disk(found, uuid, disk)
    taken = _in_slot(found, uuid, pci_slot)
    if taken and taken != there:
        who = taken["name"] or f"without a name ({taken.get('uuid') or taken['volume']})"
        kind = "its boot disk" if taken["boot"] else "a disk"
        text = f"pci_slot {pci_slot} has {kind} {who} of {render_mib(taken['size'])}, and a new disk needs a free one"
        return text if taken["name"] else f"{text}. The playbook adopt gives names to disks that have none"
    if not there:
        return ""
    if there["state"] == "parked":
        return f"a disk {disk} of {render_mib(there['size'])} has been detached from the VM. attach_disk brings it back"
    if there["remaining"] if wanted == REMAINING else there["size"] == wanted:
        return ""
    return f"the VM has a disk {disk} of {render_mib(there['size'])} already. resize_disk changes its size"


def _in_slot(found: _Dict, uuid: str, pci_slot: str) -> _Dict:
    """The disk of a VM that has a slot, or nothing."""
    wanted = normalise(pci_slot) if pci_slot else ""
    disks = [one for vm in found["vms"] if vm["uuid"] == uuid for one in vm["disks"]]
    return next((one for one in disks if wanted and one["pci_slot"] == wanted), {})


def _home(found: t.Mapping[str, _Dict], uuid: str) -> t.Tuple[str, Names]:
    """The host and the names of the VM with this UUID, or with a disk of this UUID."""
    vms = [vm for result in found.values() for vm in (result or {}).get("vms", ())]
    owners = {str(vm["uuid"]) for vm in vms if any(disk.get("uuid") == uuid for disk in vm.get("disks", ()))}
    return next(
        (host, vm) for host, result in found.items() for vm in _vms(result) if vm.uuid == uuid or vm.uuid in owners
    )


def _vms(result: t.Optional[_Dict]) -> t.List[Names]:
    known = [*result["vms"], *result["skipped_vms"]] if result else []
    return [Names(str(vm["uuid"]), str(vm["alias"])) for vm in known]


def _means(named: str, vm: Names, here: t.Sequence[Names]) -> bool:
    """Whether the inventory of a host means the VM by this name; here: the VMs that this host has, which come first."""
    return vm in (fitting(named, here) or fitting(named, [vm]))


def _member(vm: Names, group: str) -> bool:
    return index_of(vm.alias, group) >= 0


def _guarded(name: str, work: t.Callable[..., _Result], *args: t.Any) -> _Result:
    """What work returns. A wrong size, or input of a strange form, becomes an error of the filter."""
    try:
        return work(*args)
    except FlexdiskError as exc:
        raise AnsibleFilterError(exc.message) from exc
    except (AttributeError, LookupError, StopIteration, TypeError, ValueError) as exc:
        raise AnsibleFilterError(f"{name} wants what the playbooks of flexdisk.hypervisor give it ({exc!r})") from exc


class FilterModule:
    """Filters of the collection in this file."""

    def filters(self) -> t.Dict[str, t.Callable[..., t.Any]]:
        return _core.filters(
            {
                "declared_vm": declared_vm,
                "declaring": declaring,
                "undone": undone,
                "vm_disk": vm_disk,
                "unadopted_disk": unadopted_disk,
                "new_disk": new_disk,
            }
        )
