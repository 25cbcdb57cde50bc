# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A simulated node from the export of a real one, so that a change can be rehearsed.

On the node: `vmadm lookup -j > vms.json`, `zfs get -Hp -r -t filesystem,volume,snapshot all zones > zfs.txt`,
`zpool status zones > zpool.txt` and `zdb -C zones > zdb.txt`. Metadata, tags and passwords hold secrets: they are left
behind here, and so are user properties that are not ours.
"""

from __future__ import annotations

import calendar
import json
import time
from typing import Any, Dict, List

from simnode import export_pool
from simnode.export_layout import ExportError
from simnode.node import Node
from simnode.vmadm import properties, store, vminfod

Vm = Dict[str, Any]
# What of the internal metadata says where the hidden cloud-init disk is.
CLOUD_INIT_KEYS = ("cloudinit_datasource", "cloudinit_nocloud_path")
_SECRET = ("password", "metadata", "tags")
_DEVICE_KEYS = ("path", "boot", "model", "media", "image_size", "image_uuid", "pci_slot", "uuid", "notrim",
                "guest_block_size")  # fmt: skip
_NOT_CONFIGURED = frozenset((
    "quota", "zpool", "zonename", "uuid", "indestructible_zoneroot", "indestructible_delegated", "zfs_root_recsize",
    "zfs_root_compression", "zfs_data_recsize", "zfs_data_compression", "zfs_filesystem_limit", "zfs_snapshot_limit",
))  # fmt: skip


def load(node: Node, vms: str, zfs: str, pool_status: str = "", zdb: str = "") -> None:
    """Replace pools and VMs of `node` by those of the export. Raises ExportError."""
    try:
        exported = json.loads(vms)
    except ValueError as error:
        raise ExportError(f"the export of the VMs is not valid JSON: {error}") from error
    if not isinstance(exported, list) or not all(isinstance(vm, dict) and "uuid" in vm for vm in exported):
        raise ExportError("the export of the VMs is not a list of VM objects")
    datasets = export_pool.parse(zfs)
    newest = max([_seconds(vm.get("last_modified")) for vm in exported] + [0])
    node.clock.advance(max(0.0, newest + 60 - node.clock.now()))
    export_pool.rebuild(node, datasets, pool_status, zdb)
    node.state.clear()
    records = store.records(node)
    for vm in exported:
        records[vm["uuid"]] = _record(vm)
    node.state["zones_made"] = max([record["zonedid"] for record in records.values()] + [0])
    _add_images(node, exported, datasets)
    vminfod.refresh(node)


def _seconds(timestamp: Any) -> int:
    if not isinstance(timestamp, str):
        return 0
    return calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S"))


def _configuration(vm: Vm) -> Dict[str, Any]:
    kinds = ("string", "integer", "boolean", "list", "uuid")
    return {
        key: value
        for key, value in vm.items()
        if key in properties.PROPERTIES
        and properties.PROPERTIES[key].kind in kinds
        and key not in _NOT_CONFIGURED
        and not any(word in key for word in _SECRET)
    }


def _record(vm: Vm) -> store.Record:
    zone_state = vm.get("zone_state", "installed")
    record: store.Record = {
        "uuid": vm["uuid"],
        "zonedid": int(vm.get("zonedid") or 1),
        "zone_state": zone_state,
        "zpool": vm.get("zpool") or str(vm.get("zonepath", "/zones")).split("/")[1],
        "created": _seconds(vm.get("create_timestamp")),
        "cfg": {"brand": vm["brand"], **_configuration(vm)},
        "devices": [{key: disk[key] for key in _DEVICE_KEYS if key in disk} for disk in vm.get("disks", [])],
        "nics": vm.get("nics", []),
        "json": {key: {} for key in store.JSON_KEYS},
        "snapshots": {},
        "mtime": _seconds(vm.get("last_modified")),
    }
    internal = vm.get("internal_metadata") or {}
    record["json"]["internal_metadata"] = {key: internal[key] for key in CLOUD_INIT_KEYS if key in internal}
    record["json"]["routes"] = vm.get("routes") or {}
    if vm.get("pci_devices"):
        record["pci_devices"] = vm["pci_devices"]
    if zone_state == "running":
        record["booted"] = _seconds(vm.get("boot_timestamp"))
        record["zoneid"] = vm.get("zoneid")
    if vm.get("state") not in (None, zone_state, "stopped" if zone_state == "installed" else zone_state):
        record["transition"] = vm["state"]
    return record


def _add_images(node: Node, vms: List[Vm], datasets: export_pool.Datasets) -> None:
    """Manifests of the images that the VMs were made from, as far as the VMs tell of them."""
    images = node.state.setdefault("images", {})
    for vm in vms:
        for disk in vm.get("disks", []):
            dataset = f"{disk.get('zpool', vm.get('zpool'))}/{disk.get('image_uuid')}"
            if "image_uuid" in disk and dataset in datasets:
                manifest = _manifest(disk["image_uuid"], "zvol")
                manifest["image_size"] = (
                    disk.get("image_size") or export_pool.number(datasets[dataset], "volsize") >> 20
                )
                images[disk["image_uuid"]] = {"manifest": manifest, "zpool": dataset.split("/", 1)[0]}
        dataset = f"{vm.get('zpool')}/{vm.get('image_uuid')}"
        if "image_uuid" in vm and dataset in datasets:
            kind = "lx-dataset" if vm["brand"] == "lx" else "zone-dataset"
            images[vm["image_uuid"]] = {"manifest": _manifest(vm["image_uuid"], kind), "zpool": vm["zpool"]}


def _manifest(uuid: str, kind: str) -> Dict[str, Any]:
    return {
        "v": 2, "uuid": uuid, "owner": "00000000-0000-0000-0000-000000000000", "name": "exported", "version": "1",
        "state": "active", "disabled": False, "public": True, "type": kind, "os": "other",
    }  # fmt: skip
