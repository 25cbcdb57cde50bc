# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The VM object that `vmadm get` and `lookup -j` print."""

from __future__ import annotations

import copy
import math
import re
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional

from simnode.vmadm import jsvalues as js
from simnode.vmadm import properties, store, vminfod
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import BUILDSTAMP, GIB, MIB, SERVER_UUID, ZVOL_PREFIX, VmadmHost

Vm = Dict[str, Any]
Rows = Dict[str, Dict[str, Any]]
UNLIMITED = 18446744073709551615
_DISK_INDEX = re.compile(r".*[-/]disk(\d+)\Z")


def timestamp(seconds: float) -> str:
    """ISO 8601 in milliseconds, as JavaScript prints it."""
    moment = datetime.fromtimestamp(math.floor(seconds * 1000) / 1000, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (moment.microsecond // 1000)


def load(host: VmadmHost, uuid: str) -> Vm:
    """Return the VM as vminfod knows it. Raises VmError with code ENOENT."""
    record = store.records(host).get(uuid)
    if record is None:
        raise VmError("VM %s not found" % uuid, "ENOENT")
    rows = vminfod.datasets(host)
    _mark_seen(host, record)
    return build(record, rows, _snapshots_by_dataset(rows))


def load_all(host: VmadmHost) -> List[Vm]:
    rows = vminfod.datasets(host)
    snapshots = _snapshots_by_dataset(rows)
    for record in store.records(host).values():
        _mark_seen(host, record)
    return [build(record, rows, snapshots) for record in store.records(host).values()]


def _mark_seen(host: VmadmHost, record: store.Record) -> None:
    """vminfod sees the dataset of a newly configured zone at its next refresh at the latest."""
    if record.get("unseen", math.inf) <= host.now():
        del record["unseen"]


def _snapshots_by_dataset(rows: Rows) -> Dict[str, List[str]]:
    result: Dict[str, List[str]] = {}
    for name in rows:
        dataset, separator, snapshot = name.partition("@")
        if separator:
            result.setdefault(dataset, []).append(snapshot)
    return result


def state_of(record: store.Record) -> str:
    transition = record.get("transition")
    state = transition or ("stopped" if record["zone_state"] == "installed" else record["zone_state"])
    if state == "stopped" and record.get("provisioning"):
        state = "provisioning"
    return "failed" if record.get("failed") else str(state)


def build(record: store.Record, rows: Rows, snapshots: Dict[str, List[str]]) -> Vm:
    """Return the object, with its keys in the order of a real one."""
    if "unseen" in record:
        rows, snapshots = {}, {}
    cfg = record["cfg"]
    uuid = record["uuid"]
    dataset = "%s/%s" % (record["zpool"], uuid)
    brand = cfg["brand"]
    vm: Vm = {
        "zonename": uuid,
        "autoboot": cfg.get("autoboot", False),
        "brand": brand,
        "limit_priv": cfg.get("limit_priv", "default"),
        "v": 1,
        "create_timestamp": timestamp(record["created"]),
    }
    vm.update({key: copy.copy(value) for key, value in cfg.items() if key not in vm and key != "flexible_disk_size"})
    if brand == "bhyve":
        vm["zlog_mode"] = "g--"
        vm["zlog_name"] = "platform.log"
    if "flexible_disk_size" in cfg:
        vm["flexible_disk_size"] = cfg["flexible_disk_size"]
    if brand in properties.HVM:
        if record["devices"]:
            vm["device"] = None
        vm["disks"] = _disks(record, rows)
    vm["nics"] = copy.deepcopy(record["nics"])
    if record.get("datasets"):
        vm["datasets"] = list(record["datasets"])
    if record.get("pci_devices"):
        vm["pci_devices"] = copy.deepcopy(record["pci_devices"])
    vm.update(
        {
            "uuid": uuid,
            "zone_state": record["zone_state"],
            "zonepath": "/" + dataset,
            "hvm": brand in properties.HVM,
            "zoneid": record.get("zoneid"),
            "zonedid": record["zonedid"],
            "last_modified": timestamp(record["mtime"]),
        }
    )
    vm.setdefault("resolvers", [])
    vm.setdefault("firewall_enabled", False)
    vm.update({"server_uuid": SERVER_UUID, "platform_buildstamp": BUILDSTAMP, "state": state_of(record)})
    _add_runtime(vm, record)
    vm.update(copy.deepcopy(record["json"]))
    root = rows.get(dataset)
    if root is not None:
        _add_root(vm, dataset, root, rows)
    vm["snapshots"] = _snapshot_list(dataset, rows, snapshots)
    if brand == "bhyve":
        _add_free_space(vm, rows)
    return vm


def _add_runtime(vm: Vm, record: store.Record) -> None:
    if record["zone_state"] == "running":
        vm["boot_timestamp"] = timestamp(record["booted"])
        vm["pid"] = 10000 + record["zonedid"]
    elif "exited" in record:
        vm["exit_status"] = 0
        vm["exit_timestamp"] = timestamp(record["exited"])
    if record.get("transition"):
        vm["transition_to"] = record.get("transition_to", "stopped")
        vm["transition_expire"] = int(record.get("transition_expire", 0))
    if record.get("provisioning"):
        vm["provisioning"] = True


def _add_root(vm: Vm, dataset: str, root: Dict[str, Any], rows: Rows) -> None:
    indestructible = rows.get(dataset + "@indestructible")
    if indestructible is not None and indestructible["userrefs"] != "-" and indestructible["userrefs"] > 0:
        vm["indestructible_zoneroot"] = True
    data = rows.get(dataset + "/data@indestructible")
    if data is not None and data["userrefs"] != "-" and data["userrefs"] > 0:
        vm["indestructible_delegated"] = True
    limit = root["refquota"] if vm["brand"] == "bhyve" else root["quota"]
    vm["quota"] = js.integral(limit / GIB)
    if root["compression"] != "off":
        vm["zfs_root_compression"] = root["compression"]
    vm["zfs_root_recsize"] = root["recsize"]
    for name in ("filesystem_limit", "snapshot_limit"):
        if isinstance(root[name], int) and root[name] != UNLIMITED:
            vm["zfs_" + name] = root[name]
    vm["zfs_filesystem"] = dataset
    vm["zpool"] = dataset.split("/", 1)[0]


def disk_index(path: Any) -> int:
    """Return N of .../diskN, 0 for any other path."""
    match = _DISK_INDEX.match(path) if isinstance(path, str) else None
    return int(match.group(1)) if match else 0


def _disks(record: store.Record, rows: Rows) -> List[Dict[str, Any]]:
    disks = [dict(device) for device in record["devices"]]
    disks.sort(key=lambda disk: disk_index(disk["path"]))
    for disk in disks:
        dataset = volume_of(disk["path"], rows)
        if dataset is None:
            disk["missing"] = True
            continue
        row = rows[dataset]
        disk["zfs_filesystem"] = dataset
        disk["zpool"] = dataset.split("/", 1)[0]
        disk["size"] = js.integral(row["volsize"] / MIB)
        disk["compression"] = row["compression"]
        disk["refreservation"] = -(-int(row["refreservation"]) // MIB)
        disk["block_size"] = row["volblocksize"]
    return disks


def volume_of(path: Any, rows: Rows) -> Optional[str]:
    """Return the known volume behind a disk's path, None if there is none."""
    if not isinstance(path, str) or not path.startswith(ZVOL_PREFIX):
        return None
    dataset = path[len(ZVOL_PREFIX) :]
    return dataset if rows.get(dataset, {}).get("type") == "volume" else None


def _snapshot_list(dataset: str, rows: Rows, snapshots: Dict[str, List[str]]) -> List[Dict[str, Any]]:
    result = []
    for name in snapshots.get(dataset, []):
        if name.startswith("vmsnap-") and len(name) > 7:
            row = rows["%s@%s" % (dataset, name)]
            result.append(
                {"name": name[7:], "size": js.integral(row["written"] / MIB), "created_at": timestamp(row["creation"])}
            )
    result.sort(key=lambda snapshot: str(snapshot["created_at"]), reverse=True)
    return result


def _add_free_space(vm: Vm, rows: Rows) -> None:
    if "flexible_disk_size" not in vm:
        return
    taken = 0
    for disk in vm["disks"]:
        dataset = disk.get("zfs_filesystem")
        if dataset is None:
            return
        taken += rows[dataset]["volsize"] + rows[dataset]["usedbysnapshots"]
    vm["free_space"] = math.floor(vm["flexible_disk_size"] - taken / MIB)
