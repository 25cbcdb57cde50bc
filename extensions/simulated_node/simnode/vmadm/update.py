# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vmadm update`: what is done, in which order, and what is waited for."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from simnode.vmadm import changes, normalize, protection, quota, store, vmobj, volumes
from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import VmError, first_of_one
from simnode.vmadm.host import VmadmHost, ZfsFailed, zfs
from simnode.vmadm.vminfod import WATCH_TIMEOUT

Payload = Dict[str, Any]
Vm = Dict[str, Any]


def update(host: VmadmHost, uuid: str, payload: Payload) -> None:
    """Carry out an update. Nothing is undone when a step fails. Raises VmError or Abort."""
    vm = vmobj.load(host, uuid)
    keys = list(payload)
    normalize.normalize(host, payload, vm)
    wanted = changes.expected(vm, payload, keys)
    try:
        _carry_out(host, vm, payload)
    except VmError as error:
        raise first_of_one(error) from error
    host.sleep(_duration(payload))
    _wait(host, vm, wanted)


def _wait(host: VmadmHost, before: Vm, wanted: List[List[changes.Change]]) -> None:
    record = store.records(host)[before["uuid"]]
    lost = record.get("lost_events", 0)
    if wanted and lost:
        record["lost_events"] = lost - 1
    elif not changes.unseen(wanted, changes.diff(before, vmobj.load(host, before["uuid"]))):
        return
    if wanted:
        host.sleep(WATCH_TIMEOUT)
        raise VmError('first of 1 error: vminfod watchForChanges "VM.js update (%s)" timeout exceeded' % before["uuid"])


def _duration(payload: Payload) -> float:
    if "flexible_disk_size" in payload or "quota" in payload:
        return 2.2
    return 2.0 if any(key.endswith("_disks") for key in payload) else 1.8


def _carry_out(host: VmadmHost, vm: Vm, payload: Payload) -> None:
    record = store.records(host)[vm["uuid"]]
    for disk in vm.get("disks", []):
        if disk["path"] in (payload.get("remove_disks") or []):
            volumes.destroy(host, disk)
    if payload.get("add_disks"):
        used = [vmobj.disk_index(disk["path"]) for disk in vm["disks"] if _is_numbered(vm["brand"], disk["path"])]
        volumes.create_all(
            host, vm.get("zfs_filesystem", ""), vm["brand"], vm["uuid"], record["zpool"], payload["add_disks"], used
        )
    store.change_json(host, record, payload)
    store.configure(host, record, payload)
    touched = False
    for step in _APPLY:
        touched = bool(step(host, vm, payload)) or touched
    if touched:
        store.touch(host, record)


def _is_numbered(brand: str, path: str) -> bool:
    separator = "/disk" if brand == "bhyve" else "-disk"
    return path.rpartition(separator)[2].isdigit()


def _resize(host: VmadmHost, vm: Vm, payload: Payload) -> bool:
    resized = False
    for change in payload.get("update_disks") or []:
        for disk in vm.get("disks", []):
            if disk["path"] == change.get("path") and "size" in change:
                allow = bool(change.get("dangerous_allow_shrink"))
                resized = volumes.resize(host, vm["zfs_filesystem"], disk, change["size"], allow) or resized
    return resized


def _quota(host: VmadmHost, vm: Vm, payload: Payload) -> bool:
    if not quota.change_is_due(payload, vm):
        return False
    size = payload.get("quota", vm.get("quota"))
    flexible = payload.get("flexible_disk_size", vm.get("flexible_disk_size", js.UNDEFINED))
    quota.set_quota(host, vm["brand"], vm["zfs_filesystem"], size, flexible)
    return True


_ROOT_PROPERTIES = (
    ("zfs_root_recsize", "recsize"),
    ("zfs_filesystem_limit", "filesystem_limit"),
    ("zfs_snapshot_limit", "snapshot_limit"),
    ("zfs_root_compression", "compression"),
)


def _root_properties(host: VmadmHost, vm: Vm, payload: Payload) -> bool:
    for key, name in _ROOT_PROPERTIES:
        if key in payload and not js.same(payload[key], vm.get(key, js.UNDEFINED)):
            try:
                zfs(host, "set", "%s=%s" % (name, js.to_string(payload[key])), vm["zfs_filesystem"])
            except ZfsFailed as error:
                raise error.bare() from error
    return False


def _indestructible(host: VmadmHost, vm: Vm, payload: Payload) -> bool:
    root = vm.get("zfs_filesystem", "")
    if "indestructible_zoneroot" in payload:
        protection.protect(host, root, bool(payload["indestructible_zoneroot"]))
    if "indestructible_delegated" in payload and root + "/data" in vm.get("datasets", []):
        protection.protect(host, root + "/data", bool(payload["indestructible_delegated"]))
    return False


def _disk_properties(host: VmadmHost, vm: Vm, payload: Payload) -> bool:
    for change in payload.get("update_disks") or []:
        for disk in vm.get("disks", []):
            if disk["path"] == change.get("path") and "zfs_filesystem" in disk:
                if "compression" in change:
                    zfs(host, "set", "compression=" + js.to_string(change["compression"]), disk["zfs_filesystem"])
                if "refreservation" in change:
                    zfs(
                        host,
                        "set",
                        "refreservation=%sM" % js.to_string(change["refreservation"]),
                        disk["zfs_filesystem"],
                    )
    return False


_APPLY: List[Callable[[VmadmHost, Vm, Payload], bool]] = [
    _resize,
    _quota,
    _root_properties,
    _indestructible,
    _disk_properties,
]
