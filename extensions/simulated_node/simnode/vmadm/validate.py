# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of a payload against the property table, as `vmadm validate` and every create and update do it."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from simnode.vmadm import images, properties, slots
from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import Abort, VmError
from simnode.vmadm.host import DEFAULT_POOL, VmadmHost, pools

Payload = Dict[str, Any]


class Errors:
    """Findings of a validation, in order of discovery."""

    def __init__(self) -> None:
        self.bad_values: List[str] = []
        self.bad_properties: List[str] = []
        self.missing_properties: List[str] = []

    def __bool__(self) -> bool:
        return bool(self.bad_values or self.bad_properties or self.missing_properties)

    def value(self, name: str) -> None:
        if name not in self.bad_values:
            self.bad_values.append(name)

    def property(self, name: str) -> None:
        if name not in self.bad_properties:
            self.bad_properties.append(name)

    def as_dict(self) -> Dict[str, List[str]]:
        return {
            "bad_values": self.bad_values,
            "bad_properties": self.bad_properties,
            "missing_properties": self.missing_properties,
        }


def validate(host: VmadmHost, brand: Any, action: str, payload: Payload) -> Errors:
    """Check `payload`; fills in image_size, bootrom and the cloud-init tag from image manifests.

    Raises BadBrand for an unknown brand and Abort where vmadm itself would crash.
    """
    if not isinstance(brand, str) or brand not in properties.TYPES:
        raise BadBrand(brand)
    errors = Errors()
    known_pools = pools(host)
    for name in list(payload):
        _check_property(brand, name, payload[name], action, known_pools, errors)
        _check_members(brand, name, payload[name], known_pools, errors)
    if brand in properties.HVM:
        _check_disk_sources(payload, errors)
    if brand == "bhyve":
        _check_pci_devices(payload, errors)
    for name, brands in properties.REQUIRED.items():
        if brand in brands and action == "create" and name not in payload:
            errors.missing_properties.append(name)
    _check_images(host, brand, payload, errors)
    for key in ("disks", "add_disks"):
        for index, disk in _disks(payload, key):
            if js.to_number(disk.get("refreservation", 0)) < 0:
                errors.bad_values.append("%s.%d.refreservation" % (key, index))
    return errors


class BadBrand(VmError):
    """The brand is none that vmadm knows."""

    def __init__(self, brand: Any) -> None:
        shown = brand if brand and brand is not js.UNDEFINED else "undefined"
        super().__init__(js.dumps({"bad_brand": shown}))


def _check_property(brand: str, name: str, value: Any, action: str, known_pools: List[str], errors: Errors) -> None:
    if not properties.allowed(name, brand, action):
        errors.property(name)
    known = properties.PROPERTIES.get(name)
    if known is not None:
        _CHECKS[known.kind](name, value, known_pools, errors)


def _check_members(brand: str, name: str, value: Any, known_pools: List[str], errors: Errors) -> None:
    known = properties.PROPERTIES.get(name)
    if known is None or known.kind != "object-array" or not isinstance(value, list):
        return
    prefix = (known.check_as or name) + ".*."
    action = "update" if name.startswith("update_") else "add"
    for member in value:
        if not js.is_object(member):
            errors.value(name)
            continue
        for key, item in js.entries(member or {}):
            _check_property(brand, prefix + key, item, action, known_pools, errors)


def _uuid(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if not js.is_uuid(value):
        errors.value(name)


def _boolean(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if (js.is_number(value) and value == 1) or value == "1":
        return
    if not isinstance(js.fix_boolean(value), bool):
        errors.value(name)


def _string(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if js.blank(value):
        return
    if not isinstance(value, str):
        errors.value(name)
    if name == "disks.*.guest_block_size" and not _valid_sector_size(value):
        errors.value(name)


def _valid_sector_size(value: Any) -> bool:
    if not isinstance(value, str):
        raise Abort("TypeError: str.split is not a function")
    sizes = value.split("/")
    return len(sizes) <= 2 and all(re.fullmatch(r"\d+", size) and _power_of_two(int(size)) for size in sizes)


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _integer(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if js.blank(value):
        return
    known = properties.PROPERTIES[name]
    number = js.to_number(value)
    low, high = known.minimum, known.maximum
    if (
        isinstance(value, bool)
        or not isinstance(number, int)
        or (low is not None and number < low)
        or (high is not None and number > high)
    ):
        errors.bad_values.append(name)


def _zpool(name: str, value: Any, known_pools: List[str], errors: Errors) -> None:
    if value not in known_pools:
        errors.value(name)


def _flat_object(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if not js.is_object(value) or any(js.is_object(item) for _key, item in js.entries(value or {})):
        errors.value(name)


def _list(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if isinstance(value, str):
        value = [item for item in value.split(",") if item]
    if not isinstance(value, list):
        errors.value(name)
        return
    for item in value:
        if (not isinstance(item, str) and not js.is_number(item)) or "," in js.to_string(item):
            errors.value(name)


def _object_array(name: str, value: Any, _pools: List[str], errors: Errors) -> None:
    if not isinstance(value, list) or any(not js.is_object(item) for item in value):
        errors.value(name)


_CHECKS: Dict[str, Callable[[str, Any, List[str], Errors], None]] = {
    "uuid": _uuid,
    "boolean": _boolean,
    "string": _string,
    "integer": _integer,
    "zpool": _zpool,
    "flat-object": _flat_object,
    "list": _list,
    "object-array": _object_array,
}


def _check_disk_sources(payload: Payload, errors: Errors) -> None:
    for key in ("disks", "add_disks"):
        for index, disk in enumerate(_dicts(payload.get(key))):
            if disk.get("media", "disk") == "disk":
                _check_disk_source("%s.%d." % (key, index), disk, payload, errors)


def _check_disk_source(prefix: str, disk: Dict[str, Any], payload: Payload, errors: Errors) -> None:
    if "image_uuid" in disk:
        if "image_size" not in disk:
            errors.missing_properties.append(prefix + "image_size")
        if "size" in disk and "flexible_disk_size" not in payload:
            errors.bad_properties.append(prefix + "size")
        if "block_size" in disk:
            errors.bad_properties.append(prefix + "block_size")
        return
    if "size" not in disk:
        errors.missing_properties.append(prefix + "size")
    for name in ("image_name", "image_size"):
        if name in disk:
            errors.bad_properties.append(prefix + name)


def _check_pci_devices(payload: Payload, errors: Errors) -> None:
    for key in ("pci_devices", "add_pci_devices"):
        for index, device in enumerate(_dicts(payload.get(key))):
            prefix = "%s.%d." % (key, index)
            if "path" not in device:
                errors.missing_properties.append(prefix + "path")
            elif not str(device["path"]).startswith("/devices"):
                errors.bad_values.append(prefix + "path")
            if "pci_slot" not in device:
                errors.missing_properties.append(prefix + "pci_slot")
            elif not slots.valid(device["pci_slot"]):
                errors.bad_values.append(prefix + "pci_slot")
            if "model" in device and device["model"] != "passthru":
                errors.bad_values.append(prefix + "model")


def _disks(payload: Payload, key: str) -> List[Tuple[int, Dict[str, Any]]]:
    """Disks with their indices. Raises Abort for what has no forEach and for null in the list."""
    if key not in payload:
        return []
    if not isinstance(payload[key], list) or None in payload[key]:
        raise Abort("TypeError: Cannot call method of " + js.compact(payload[key]))
    return [(index, disk) for index, disk in enumerate(payload[key]) if isinstance(disk, dict)]


def _dicts(value: Any) -> List[Dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _check_images(host: VmadmHost, brand: str, payload: Payload, errors: Errors) -> None:
    bootrom = payload.get("bootrom", js.UNDEFINED)
    if js.is_uuid(payload.get("image_uuid")):
        types = list(properties.ZONEROOT_IMAGES.get(brand, ("zone-dataset",)))
        _check_image(host, payload, payload, "", types, js.UNDEFINED, errors)
    for key in ("disks", "add_disks"):
        for index, disk in _disks(payload, key):
            if "image_uuid" in disk:
                wanted = bootrom if bootrom and disk.get("boot") else js.UNDEFINED
                _check_image(host, payload, disk, "%s.%d." % (key, index), ["zvol"], wanted, errors)


def _check_image(
    host: VmadmHost,
    payload: Payload,
    target: Dict[str, Any],
    prefix: str,
    types: List[str],
    bootrom: Any,
    errors: Errors,
) -> None:
    pool = target.get("zpool", DEFAULT_POOL)
    try:
        additions = images.check(
            host, js.to_string(target["image_uuid"]), pool, types, target.get("image_size", js.UNDEFINED), bootrom
        )
    except images.ImageProblem as problem:
        names = {"size": prefix + "image_size", "bootrom": "bootrom"}
        errors.bad_values.append(names.get(problem.code or "", prefix + "image_uuid"))
        return
    if "size" in additions and "image_size" not in target:
        target["image_size"] = additions["size"]
        if prefix + "image_size" in errors.missing_properties:
            errors.missing_properties.remove(prefix + "image_size")
        if js.to_number(target.get("size", js.UNDEFINED)) < additions["size"]:
            errors.bad_values.append("size")
    if "bootrom" in additions and not payload.get("bootrom"):
        payload["bootrom"] = additions["bootrom"]
    if "cloudinit_datasource" in additions:
        metadata = payload.get("internal_metadata")
        if not isinstance(metadata, dict):
            metadata = payload["internal_metadata"] = {}
        metadata["cloudinit_datasource"] = additions["cloudinit_datasource"]


def failure(errors: Errors) -> Optional[VmError]:
    """Return the error that create and update raise for the findings. Bad properties alone are no error."""
    if errors.bad_values:
        return VmError("Invalid value(s) for: " + ",".join(errors.bad_values))
    if errors.missing_properties:
        return VmError("Missing required properties: " + ",".join(errors.missing_properties))
    return None


_COMPOUND = ("disks", "nics", "filesystems", "pci_devices")


def drop_bad_properties(payload: Payload, errors: Errors) -> None:
    """Take what is not allowed out of the payload, as silently as vmadm does."""
    for name in errors.bad_properties:
        for compound in _COMPOUND:
            if name.startswith(compound + ".*."):
                key = name[len(compound) + 3 :]
                for list_name in (compound, "add_" + compound, "update_" + compound):
                    for member in _dicts(payload.get(list_name)):
                        member.pop(key, None)
        payload.pop(name, None)
