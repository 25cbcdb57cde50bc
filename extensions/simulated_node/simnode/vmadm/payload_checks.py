# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules between the properties of a payload and the VM it is for."""

from __future__ import annotations

from typing import Any, Dict, Optional

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties
from simnode.vmadm.errors import Abort, VmError

Payload = Dict[str, Any]
Vm = Dict[str, Any]
ARRAYS = tuple(
    "%s_%s" % (verb, noun)
    for noun in ("nics", "disks", "filesystems", "pci_devices")
    for verb in ("add", "update", "remove")
)
LIVE_DISK_KEYS = {"compression", "path", "refreservation"}


def check_arrays(payload: Payload) -> None:
    for name in ARRAYS:
        if name in payload and isinstance(payload[name], (str, int, float, bool)):
            raise VmError(name + " must be an array.")


def check_payload(payload: Payload, vm: Optional[Vm], brand: str) -> None:
    """Raise VmError if the payload does not fit the VM (None: a create)."""
    for name in ARRAYS:
        if not name.startswith("remove_") and not all(isinstance(item, dict) for item in payload.get(name, [])):
            raise Abort("TypeError: Cannot call method of " + js.compact(payload[name]))
    if vm is None:
        _check_create_memory(payload)
    else:
        _check_state(payload, vm)
    for disk in payload.get("add_disks", []):
        _check_new_disk(disk, vm, brand)
    for disk in payload.get("update_disks", []):
        _check_changed_disk(disk, brand)
    _check_root_dataset(payload)


def _check_create_memory(payload: Payload) -> None:
    if js.to_number(payload["max_locked_memory"]) > js.to_number(payload["max_physical_memory"]):
        raise VmError("max_locked_memory must be <= max_physical_memory")
    if js.to_number(payload["max_swap"]) < js.to_number(payload["max_physical_memory"]):
        raise VmError("max_swap must be >= max_physical_memory")


def _stopped(vm: Vm) -> bool:
    return bool(vm["state"] == "stopped" or (vm["state"] == "provisioning" and vm["zone_state"] == "installed"))


def _check_state(payload: Payload, vm: Vm) -> None:
    suffix = 'only allowed when state is "stopped", currently: %s (%s)' % (vm["state"], vm["zone_state"])
    if _stopped(vm):
        return
    if "add_disks" in payload or "remove_disks" in payload:
        raise VmError("updates to disks are " + suffix)
    if any(not set(disk) <= LIVE_DISK_KEYS for disk in payload.get("update_disks", [])):
        raise VmError("at least one specified update to disks is " + suffix)
    if any(verb + "_pci_devices" in payload for verb in ("add", "update", "remove")):
        raise VmError("updates to pci_devices are " + suffix)


def valid_record_size(value: Any) -> bool:
    number = js.to_number(value)
    return isinstance(number, int) and 512 <= number <= 131072 and number & (number - 1) == 0


def _check_new_disk(disk: Dict[str, Any], vm: Optional[Vm], brand: str) -> None:
    if "path" in disk and disk.get("media") != "cdrom" and not disk.get("nocreate"):
        raise VmError("you cannot specify a path for a disk unless you set nocreate=true")
    if "block_size" in disk:
        if not valid_record_size(disk["block_size"]):
            raise VmError(
                "invalid .block_size(%s), must be 512-131072 and a power of 2." % js.to_string(disk["block_size"])
            )
        if "image_uuid" in disk:
            raise VmError("setting both .block_size and .image_uuid on a volume is invalid")
    if "compression" in disk and disk["compression"] not in properties.COMPRESSIONS:
        raise VmError("invalid compression setting for disk, must be one of: " + ", ".join(properties.COMPRESSIONS))
    if disk.get("model", "undefined") != "undefined":
        _check_model(disk["model"], brand)
    else:
        disk["model"] = _default_model(disk, vm)


def _default_model(disk: Dict[str, Any], vm: Optional[Vm]) -> str:
    if vm is not None and "disk_driver" in vm:
        return str(vm["disk_driver"])
    if vm is not None and vm.get("disks") and vm["disks"][0].get("model"):
        return str(vm["disks"][0]["model"])
    raise VmError("missing .model option for disk: " + js.compact(disk))


def _check_model(model: Any, brand: str) -> None:
    models = properties.DISK_MODELS.get(brand, ())
    if model not in models:
        raise VmError(
            '"%s" is not a valid disk model for %s brand. Valid are: %s'
            % (js.to_string(model), brand, ",".join(models))
        )


def _check_changed_disk(disk: Dict[str, Any], brand: str) -> None:
    if "compression" in disk and disk["compression"] not in properties.COMPRESSIONS:
        raise VmError("invalid compression type for disk, must be one of: " + ", ".join(properties.COMPRESSIONS))
    if "model" in disk:
        _check_model(disk["model"], brand)


def _check_root_dataset(payload: Payload) -> None:
    for name in ("zfs_root_recsize", "zfs_data_recsize"):
        if name in payload:
            if payload[name] in (0, "") or payload[name] is js.UNDEFINED:
                payload[name] = 131072
            elif not valid_record_size(payload[name]):
                raise VmError(
                    "invalid %s (%s), must be 512-131072 and a power of 2. (0 to disable)"
                    % (name, js.to_string(payload[name]))
                )
    for name in ("zfs_root_compression", "zfs_data_compression"):
        if name in payload and payload[name] not in properties.COMPRESSIONS:
            raise VmError(
                "invalid compression type for %s, must be one of: %s"
                % (js.to_string(payload[name]), ", ".join(properties.COMPRESSIONS))
            )
    for name in ("zfs_filesystem_limit", "zfs_snapshot_limit"):
        if payload.get(name) is js.UNDEFINED:
            payload[name] = "none"
