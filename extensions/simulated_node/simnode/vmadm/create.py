# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`vmadm create`, `delete` and `reprovision`."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from simnode.vmadm import boundaries, images, lifecycle, normalize, protection, quota, store, vminfod, vmobj, volumes
from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import MIB, ZVOL_PREFIX, VmadmHost, zfs, zfs_get
from simnode.vmadm.ids import new_uuid

Payload = Dict[str, Any]
NOCLOUD_MIB = 16
NOCLOUD_BLOCK_SIZE = 512


def create(host: VmadmHost, payload: Payload) -> str:
    """Make a VM; its uuid. Raises VmError or Abort. Nothing is left of a VM that fails before its zone is configured;
    a zone that is, stays as far as it came.
    """
    payload.setdefault("uuid", new_uuid(host))
    if payload["uuid"] in store.records(host):
        raise VmError("VM with UUID %s already exists" % payload["uuid"])
    normalize.normalize(host, payload, None)
    try:
        boundaries.run(host, "create", CREATE, payload)
    except VmError:
        if payload.get("zoneroot_made") and payload["uuid"] not in store.records(host):
            host.zfs(["destroy", "-rf", _root(payload)])
        raise
    return str(payload["uuid"])


def _root(payload: Payload) -> str:
    return "%s/%s" % (payload["zpool"], payload["uuid"])


def _make_root(host: VmadmHost, payload: Payload) -> None:
    if payload["brand"] == "bhyve":
        zfs(host, "create", _root(payload))
        payload["zoneroot_made"] = True


def _make_volumes(host: VmadmHost, payload: Payload) -> None:
    root = _root(payload)
    if payload["brand"] == "kvm":
        _create_kvm(host, root, payload)
    elif payload["brand"] != "bhyve":
        _create_zone(host, root, payload)
    else:
        _add_nocloud_disk(payload)
        volumes.create_all(host, root, "bhyve", payload["uuid"], payload["zpool"], payload.get("add_disks", []), [])


def _set_quota(host: VmadmHost, payload: Payload) -> None:
    if payload["brand"] != "bhyve":
        return
    quota.set_quota_bhyve(host, _root(payload), payload["quota"], payload.get("flexible_disk_size", js.UNDEFINED))
    for disk in payload.get("add_disks", []):
        if disk.pop("cloudinit_datasource", None) == "nocloud":
            payload["internal_metadata"]["cloudinit_nocloud_path"] = disk["path"]


def _configure_zone(host: VmadmHost, payload: Payload) -> None:
    """Configure the zone. vminfod does not know its dataset yet, and its metadata is not written."""
    record = store.add(host, payload)
    record["zone_state"] = "configured"
    record["provisioning"] = True
    record["unseen"] = host.now() + vminfod.REFRESH_SECONDS
    record["json"] = {key: {} for key in store.JSON_KEYS}


def _see_dataset(host: VmadmHost, payload: Payload) -> None:
    store.records(host)[payload["uuid"]].pop("unseen", None)
    vminfod.datasets(host)
    paths = [str(disk.get("path", "")) for disk in payload.get("add_disks", [])]
    vminfod.load(host, [_root(payload), *(path[len(ZVOL_PREFIX) :] for path in paths if path.startswith(ZVOL_PREFIX))])


def _install(host: VmadmHost, payload: Payload) -> None:
    store.records(host)[payload["uuid"]]["zone_state"] = "installed"


def _write_metadata(host: VmadmHost, payload: Payload) -> None:
    store.set_json(store.records(host)[payload["uuid"]], payload)
    if payload.get("indestructible_zoneroot"):
        protection.protect(host, _root(payload), True)


def _end_provisioning(host: VmadmHost, payload: Payload) -> None:
    record = store.records(host)[payload["uuid"]]
    record.pop("provisioning", None)
    store.touch(host, record)
    host.sleep(5.0)


def _first_boot(host: VmadmHost, payload: Payload) -> None:
    if payload.get("autoboot"):
        lifecycle.boot(host, store.records(host)[payload["uuid"]])


CREATE: Tuple[boundaries.Part, ...] = (
    ("root", _make_root),
    ("volumes", _make_volumes),
    ("quota", _set_quota),
    ("zonecfg", _configure_zone),
    ("dataset", _see_dataset),
    ("install", _install),
    ("metadata", _write_metadata),
    ("provisioned", _end_provisioning),
    ("boot", _first_boot),
)


def _add_nocloud_disk(payload: Payload) -> None:
    metadata = payload.get("internal_metadata") or {}
    if metadata.get("cloudinit_datasource") != "nocloud" or metadata.get("cloudinit_nocloud_path"):
        return
    add_nocloud_disk(payload)


def add_nocloud_disk(payload: Payload) -> None:
    """Add the hidden disk for cloud-init, and the space it needs."""
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
    boundaries.run(host, "delete", DELETE, {"uuid": uuid, "disks": vm.get("disks", [])})


def _autoboot_off(host: VmadmHost, context: Payload) -> None:
    store.records(host)[context["uuid"]]["cfg"]["autoboot"] = False


def _halt(host: VmadmHost, context: Payload) -> None:
    record = store.records(host)[context["uuid"]]
    if record["zone_state"] == "running":
        lifecycle.halt(host, record)


def _uninstall(host: VmadmHost, context: Payload) -> None:
    """The brand destroys the VM's dataset with everything below. A zone that is not installed cannot be uninstalled."""
    record = store.records(host)[context["uuid"]]
    if record["zone_state"] == "configured":
        raise VmError("zoneadm: zone '%s': must be installed before uninstall." % context["uuid"])
    record["zone_state"] = "incomplete"
    root = "%s/%s" % (record["zpool"], context["uuid"])
    code, _out, err = host.zfs(["destroy", "-rf", root])
    if code != 0 and "dataset does not exist" not in err:
        raise VmError("zoneadm: zone '%s': %s" % (context["uuid"], err.strip()))
    record["zone_state"] = "configured"
    record["json"] = {key: {} for key in store.JSON_KEYS}
    store.touch(host, record)


def _destroy_volumes(host: VmadmHost, context: Payload) -> None:
    for disk in context["disks"]:
        volumes.destroy(host, disk)


def _unconfigure(host: VmadmHost, context: Payload) -> None:
    store.records(host).pop(context["uuid"], None)
    host.sleep(2.5)


DELETE: Tuple[boundaries.Part, ...] = (
    ("autoboot", _autoboot_off),
    ("halt", _halt),
    ("uninstall", _uninstall),
    ("volumes", _destroy_volumes),
    ("zonecfg", _unconfigure),
)


def finish(host: VmadmHost, at_once: bool = False) -> None:
    """Do the rest of the commands for which nobody waits any longer, as far as it is due."""
    for rest in boundaries.due(host, at_once):
        parts = CREATE if rest["command"] == "create" else DELETE
        boundaries.run(host, rest["command"], parts, rest["context"], rest["first"])


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
