# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the payload as given to the payload as carried out, for create and update."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional

from simnode.vmadm import jsvalues as js
from simnode.vmadm import memory, properties, slots, store, validate
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import VmadmHost
from simnode.vmadm.ids import new_uuid
from simnode.vmadm.payload_checks import check_arrays, check_payload

Payload = Dict[str, Any]
Vm = Dict[str, Any]


def normalize(host: VmadmHost, payload: Payload, vm: Optional[Vm]) -> None:
    """Change `payload` in place: types, defaults, validation, dropped keys, slots and uuids of disks.

    `vm` is the VM as it is, None for a create. Raises VmError or Abort as vmadm does.
    """
    _fix_types(payload)
    if "quota" in payload and payload["quota"] is js.UNDEFINED:
        payload["quota"] = 0
    if vm is not None:
        memory.fix_memory(payload, vm, vm["brand"])
    elif _known_brand(payload.get("brand", "joyent")):
        memory.apply_defaults(payload)
    brand = vm["brand"] if vm is not None else payload.get("brand")
    if not isinstance(brand, str) or not _known_brand(brand):
        raise VmError("Unsupported brand: " + js.to_string(brand))
    check_arrays(payload)
    if vm is None:
        _check_doubled_lists(payload)
    _validate(host, brand, "update" if vm is not None else "create", payload)
    payload.setdefault("zonename", payload.get("uuid"))
    _rename_lists(payload)
    for nic in payload.get("add_nics") or []:
        if nic and nic.get("mac"):
            nic["mac"] = store.short_mac(nic["mac"])
    _assign_slots(brand, payload, vm)
    _assign_uuids(host, brand, payload, vm)
    for name, value in list(payload.items()):
        known = properties.PROPERTIES.get(name)
        if known is not None and known.kind == "boolean":
            payload[name] = js.fix_boolean_loose(value)
    check_payload(payload, vm, brand)


def _known_brand(brand: Any) -> bool:
    return isinstance(brand, str) and brand in properties.TYPES


def _fix_types(payload: Payload) -> None:
    for name, value in list(payload.items()):
        known = properties.PROPERTIES.get(name)
        if known is None or value is js.UNDEFINED:
            continue
        if known.kind == "integer":
            payload[name] = _integer(name, value)
        elif known.kind == "list" and isinstance(value, str):
            payload[name] = [item for item in value.split(",") if item]


def _integer(name: str, value: Any) -> Any:
    if value is None or value == "":
        return js.UNDEFINED
    number = js.to_number(value)
    if math.isnan(number):
        raise VmError("Invalid value for %s: null:number" % name)
    return number


def _validate(host: VmadmHost, brand: str, action: str, payload: Payload) -> None:
    errors = validate.validate(host, brand, action, payload)
    failure = validate.failure(errors)
    if failure is not None:
        raise failure
    validate.drop_bad_properties(payload, errors)


_LISTS = ("disks", "nics", "filesystems", "pci_devices")


def _check_doubled_lists(payload: Payload) -> None:
    for name in _LISTS:
        if name in payload and "add_" + name in payload:
            raise VmError('Cannot specify both "%s" and "add_%s"' % (name, name))


def _rename_lists(payload: Payload) -> None:
    for name in _LISTS:
        if name in payload:
            payload["add_" + name] = payload.pop(name)


def _assign_slots(brand: str, payload: Payload, vm: Optional[Vm]) -> None:
    if brand != "bhyve" or "add_disks" not in payload:
        return
    occupied: slots.Occupied = {}
    if vm is not None:
        slots.assign(vm["disks"], occupied, legacy=True)
    for disk, slot in slots.assign(payload["add_disks"], occupied, legacy=False):
        disk["pci_slot"] = slot


def _assign_uuids(host: VmadmHost, brand: str, payload: Payload, vm: Optional[Vm]) -> None:
    if brand != "bhyve" or "add_disks" not in payload:
        return
    taken = [disk["uuid"] for disk in (vm["disks"] if vm is not None else []) if "uuid" in disk]
    for disk in payload["add_disks"]:
        if "uuid" not in disk:
            disk["uuid"] = new_uuid(host)
        elif disk["uuid"] in taken:
            raise VmError("duplicate disk uuid " + disk["uuid"])
        taken.append(disk["uuid"])
