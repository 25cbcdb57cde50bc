# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vmadm create`, `delete` and `reprovision`."""

from __future__ import annotations

from typing import Any, Dict

from simnode.vmadm import images, lifecycle, normalize, protection, quota, store, vminfod, vmobj, volumes
from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import MIB, ZVOL_PREFIX, VmadmHost, zfs, zfs_get
from simnode.vmadm.ids import new_uuid

Payload = Dict[str, Any]
NOCLOUD_MIB = 16
NOCLOUD_BLOCK_SIZE = 512


def create(host: VmadmHost, payload: Payload) -> str:
    """Make a VM; its uuid. Raises VmError (nothing is left then) or Abort (what was made is left)."""
    payload.setdefault("uuid", new_uuid(host))
    if payload["uuid"] in store.records(host):
        raise VmError("VM with UUID %s already exists" % payload["uuid"])
    normalize.normalize(host, payload, None)
    root = "%s/%s" % (payload["zpool"], payload["uuid"])
    if payload["brand"] == "bhyve":
        _create_bhyve(host, root, payload)
    elif payload["brand"] == "kvm":
        _create_kvm(host, root, payload)
    else:
        _create_zone(host, root, payload)
    record = store.add(host, payload)
    vminfod.datasets(host)
    vminfod.load(
        host,
        [root]
        + [
            disk["path"][len(ZVOL_PREFIX) :]
            for disk in payload.get("add_disks", [])
            if str(disk.get("path", "")).startswith(ZVOL_PREFIX)
        ],
    )
    if payload.get("indestructible_zoneroot"):
        protection.protect(host, root, True)
    host.sleep(5.0)
    if payload.get("autoboot"):
        lifecycle.boot(host, record)
    return str(payload["uuid"])


def _create_bhyve(host: VmadmHost, root: str, payload: Payload) -> None:
    zfs(host, "create", root)
    try:
        _add_nocloud_disk(payload)
        volumes.create_all(host, root, "bhyve", payload["uuid"], payload["zpool"], payload.get("add_disks", []), [])
        quota.set_quota_bhyve(host, root, payload["quota"], payload.get("flexible_disk_size", js.UNDEFINED))
    except VmError:
        host.zfs(["destroy", "-rf", root])
        raise
    for disk in payload.get("add_disks", []):
        if disk.pop("cloudinit_datasource", None) == "nocloud":
            payload["internal_metadata"]["cloudinit_nocloud_path"] = disk["path"]


def _add_nocloud_disk(payload: Payload) -> None:
    metadata = payload.get("internal_metadata") or {}
    if metadata.get("cloudinit_datasource") != "nocloud" or metadata.get("cloudinit_nocloud_path"):
        return
    add_nocloud_disk(payload)


def add_nocloud_disk(payload: Payload) -> None:
    """The hidden disk for cloud-init, and the room it needs."""
    payload["add_disks"].append(
        {
            "size": NOCLOUD_MIB,
            "model": "virtio",
            "boot": False,
            "media": "disk",
            "block_size": NOCLOUD_BLOCK_SIZE,
            "cloudinit_datasource": "nocloud",
        }
    )
    if "flexible_disk_size" in payload:
        payload["flexible_disk_size"] += NOCLOUD_MIB
    elif (payload.get("quota") or 0) < 1:
        payload["quota"] = (payload.get("quota") or 0) + 1


def _create_kvm(host: VmadmHost, root: str, payload: Payload) -> None:
    volumes.create_all(host, root, "kvm", payload["uuid"], payload["zpool"], payload.get("add_disks", []), [])
    zfs(host, "create", root)
    quota.set_quota(host, "kvm", root, payload["quota"], None)


def _create_zone(host: VmadmHost, root: str, payload: Payload) -> None:
    image = "%s/%s@final" % (payload["zpool"], payload["image_uuid"])
    zfs(host, "clone", image, root)
    quota.set_quota(host, payload["brand"], root, payload["quota"], None)
    if payload.get("delegate_dataset"):
        zfs(host, "create", root + "/data")


def delete(host: VmadmHost, uuid: str) -> None:
    """Destroy a VM with everything below its dataset."""
    vm = vmobj.load(host, uuid)
    for key in ("indestructible_zoneroot", "indestructible_delegated"):
        if vm.get(key):
            raise VmError("%s is set, cannot delete" % key)
    host.zfs(["destroy", "-rf", "%s/%s" % (store.records(host)[uuid]["zpool"], uuid)])
    for disk in vm.get("disks", []):
        volumes.destroy(host, disk)
    del store.records(host)[uuid]
    host.sleep(2.5)


def reprovision(host: VmadmHost, uuid: str, payload: Payload) -> None:
    """Replace disk0 by a plain clone of another image."""
    vm = vmobj.load(host, uuid)
    if vm["brand"] == "kvm":
        raise VmError('brand "kvm" does not yet support reprovision')
    if "image_uuid" not in payload:
        raise VmError("payload is missing image_uuid")
    if vm.get("indestructible_zoneroot"):
        raise VmError("indestructible_zoneroot is set, cannot reprovision")
    if vm["brand"] != "bhyve":
        raise VmError('brand "%s" is not simulated for reprovision' % vm["brand"])
    image = images.check(host, payload["image_uuid"], vm["zpool"], ["zvol"], js.UNDEFINED, js.UNDEFINED)
    disk = next((disk for disk in vm["disks"] if disk["path"].endswith("/disk0")), None)
    if disk is None:
        raise VmError("disk0 not found for bhyve VM" if vm["disks"] else "No disks found for bhyve VM")
    volume = disk["path"][len(ZVOL_PREFIX) :]
    size = int(zfs_get(host, volume, "volsize")["volsize"]) // MIB
    if image["size"] > size:
        raise VmError("Cannot reprovision: image (%d MiB) > disk0 (%d MiB)" % (image["size"], size))
    if vm["zone_state"] != "installed":
        lifecycle.stop(host, uuid, None)
    if not disk.get("boot"):
        raise VmError("disk0 found but does not have boot property set to true - reprovision requires a bootable disk0")
    zfs(host, "destroy", "-r", "-f", volume)
    zfs(host, "clone", "%s/%s@final" % (vm["zpool"], payload["image_uuid"]), volume)
    record = store.records(host)[uuid]
    for device in record["devices"]:
        if device["path"] == disk["path"]:
            device["image_uuid"] = payload["image_uuid"]
    store.touch(host, record)
    host.sleep(4.0)
    if vm["autoboot"]:
        lifecycle.boot(host, record)
