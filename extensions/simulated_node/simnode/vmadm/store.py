# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The zone configurations: one record per VM in vmadm's state, and how a payload changes it.

A record holds `cfg` (properties of the zone), `devices` (its disks as configured, in order), `nics`, `json` (metadata,
tags and routes, which live in the zone's dataset), `snapshots` (those as they were at each snapshot), `zone_state` and
`mtime`.
"""

from __future__ import annotations

import copy
from typing import Any, Dict, List

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties
from simnode.vmadm.host import VmadmHost
from simnode.vmadm.ids import new_uuid

Record = Dict[str, Any]
Payload = Dict[str, Any]
JSON_KEYS = ("customer_metadata", "internal_metadata", "routes", "tags")
# What becomes an attribute of the zone when it is given; not what lives in ZFS or is handled apart.
_ELSEWHERE = frozenset(
    (
        "quota",
        "indestructible_zoneroot",
        "indestructible_delegated",
        "delegate_dataset",
        "nowait",
        "zfs_root_recsize",
        "zfs_root_compression",
        "zfs_data_recsize",
        "zfs_data_compression",
        "zfs_filesystem_limit",
        "zfs_snapshot_limit",
        "zpool",
        "zonename",
        "brand",
        "uuid",
        "image_uuid",
        "mdata_exec_timeout",
        "pci_devices",
        "dataset_uuid",
        "zone_dataset_uuid",
    )
)
_TRUE_ONLY = frozenset(("do_not_inventory", "docker", "archive_on_delete", "firewall_enabled", "maintain_resolvers"))
_DEVICE_KEYS = (
    "path",
    "boot",
    "model",
    "media",
    "image_size",
    "size",
    "image_uuid",
    "pci_slot",
    "uuid",
    "notrim",
    "guest_block_size",
)


def records(host: VmadmHost) -> Dict[str, Record]:
    vms: Dict[str, Record] = host.state.setdefault("vms", {})
    return vms


def touch(host: VmadmHost, record: Record) -> None:
    """Set the time of the zone's XML file."""
    record["mtime"] = int(host.now())


def add(host: VmadmHost, payload: Payload) -> Record:
    """Configure a new zone from a normalised create payload."""
    count = host.state.get("zones_made", 0) + 1
    host.state["zones_made"] = count
    uuid = payload["uuid"]
    record: Record = {
        "uuid": uuid,
        "zonedid": count,
        "zone_state": "installed",
        "zpool": payload["zpool"],
        "created": host.now(),
        "cfg": {"brand": payload["brand"]},
        "devices": [],
        "nics": [],
        "json": {key: {} for key in JSON_KEYS},
        "snapshots": {},
    }
    if "image_uuid" in payload:
        record["cfg"]["image_uuid"] = payload["image_uuid"]
    if payload.get("delegate_dataset"):
        record["datasets"] = ["%s/%s/data" % (payload["zpool"], uuid)]
    records(host)[uuid] = record
    set_json(record, payload)
    configure(host, record, payload)
    return record


def set_json(record: Record, payload: Payload) -> None:
    """Metadata, tags and routes of a new VM."""
    for key in JSON_KEYS:
        record["json"][key].update(js.entries(payload.get(key) or {}))


def configure(host: VmadmHost, record: Record, payload: Payload) -> None:
    """One rewrite of the zone's configuration: attributes, disks, nics."""
    brand = record["cfg"]["brand"]
    if brand == "bhyve" and "com1" not in payload and "com2" not in payload:
        payload["com1"] = "/dev/zconsole"
        payload["com2"] = "socket,/tmp/vm.ttyb"
    for name, value in list(payload.items()):
        known = properties.PROPERTIES.get(name)
        if (
            known is not None
            and known.kind in ("string", "integer", "boolean", "list")
            and name not in _ELSEWHERE
            and not name.startswith("remove_")
        ):
            _set_attribute(record["cfg"], brand, name, value)
    _change_devices(record, payload)
    _change_nics(host, record, payload)
    touch(host, record)


def _set_attribute(cfg: Dict[str, Any], brand: str, name: str, value: Any) -> None:
    if (name == "ram" and brand not in properties.HVM) or (name == "dns_domain" and brand == "bhyve"):
        return
    if (name in _TRUE_ONLY and value is not True) or (name == "restart_init" and value is True):
        value = ""
    if isinstance(value, list) and name not in ("resolvers", "internal_metadata_namespaces"):
        value = ",".join(js.to_string(item) for item in value)
    keep = isinstance(value, bool) or not (js.blank(value) or value == 0 or value == [])
    if keep or (value == 0 and name in properties.KEEP_ZERO):
        cfg[name] = copy.deepcopy(value)
    else:
        cfg.pop(name, None)


def _device(disk: Dict[str, Any]) -> Dict[str, Any]:
    device = {key: disk[key] for key in _DEVICE_KEYS if key in disk}
    device["boot"] = bool(disk.get("boot"))
    if "notrim" in device:
        device["notrim"] = js.fix_boolean(device["notrim"])
    device.pop("size", None)
    return device


def _change_devices(record: Record, payload: Payload) -> None:
    devices: List[Dict[str, Any]] = record["devices"]
    removed = list(payload.get("remove_disks") or [])
    added: List[Dict[str, Any]] = []
    for change in payload.get("update_disks") or []:
        for device in devices:
            if device["path"] == change.get("path"):
                removed.append(device["path"])
                fresh = dict(device)
                fresh.update({key: change[key] for key in properties.UPDATABLE_DISK_PROPERTIES if key in change})
                added.append(fresh)
    added.extend(payload.get("add_disks") or [])
    if removed or added:
        record["devices"] = [device for device in devices if device["path"] not in removed]
        record["devices"].extend(_device(disk) for disk in added)


def _change_nics(host: VmadmHost, record: Record, payload: Payload) -> None:
    nics: List[Dict[str, Any]] = record["nics"]
    gone = [short_mac(mac) for mac in payload.get("remove_nics") or []]
    nics[:] = [nic for nic in nics if nic.get("mac") not in gone]
    for change in payload.get("update_nics") or []:
        for nic in nics:
            if nic.get("mac") == short_mac(change.get("mac")):
                nic.update(change, mac=nic["mac"])
                if not {"ip", "netmask"}.isdisjoint(change):
                    nic.pop("ips", None)
                _complete(nic)
    for nic in payload.get("add_nics") or []:
        fresh = dict(nic)
        fresh.setdefault("interface", "net%d" % len(nics))
        fresh.setdefault("mac", ":".join(["c2"] + [new_uuid(host)[index : index + 2] for index in range(5)]))
        fresh["mac"] = short_mac(fresh["mac"])
        _complete(fresh)
        if not nics:
            fresh.setdefault("primary", True)
        nics.append(fresh)


def short_mac(mac: Any) -> str:
    """Return a MAC address as zonecfg writes it, without leading zeros."""
    return ":".join(part.lstrip("0") or "0" for part in js.to_string(mac).lower().split(":"))


def _complete(nic: Dict[str, Any]) -> None:
    """Every NIC with an address has it in `ips`, too."""
    address = nic.get("ip")
    if "ips" in nic or not address:
        return
    bits = sum(bin(int(part)).count("1") for part in str(nic.get("netmask") or "").split(".") if part.isdigit())
    nic["ips"] = ["%s/%d" % (address, bits) if bits else address]


def change_json(host: VmadmHost, record: Record, payload: Payload) -> None:
    """set_* and remove_* of metadata, tags and routes."""
    for key in JSON_KEYS:
        values = record["json"][key]
        for name in payload.get("remove_" + key) or []:
            values.pop(js.to_string(name), None)
        values.update(js.entries(payload.get("set_" + key) or {}))
        if "set_" + key in payload or "remove_" + key in payload:
            touch(host, record)
