# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of a VM: creation, cloning, resizing, destruction, and the quota that moves by their metadata only."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import Abort, VmError
from simnode.vmadm.host import MIB, ZVOL_PREFIX, VmadmHost, ZfsFailed, zfs, zfs_get

Disk = Dict[str, Any]
DEFAULT_BLOCK_SIZE = 8192
RAIDZ_BLOCK_SIZE = 32768


def forecast(host: VmadmHost, volume: str, size: int, block_size: Any) -> int:
    """Return the automatic refreservation of a volume of `size` bytes, by a dry run of zfs create."""
    code, out, err = host.zfs(
        ["create", "-nPV", str(size), "-o", "copies=1", "-o", "volblocksize=%s" % js.to_string(block_size), volume]
    )
    if code != 0:
        raise VmError(err.rstrip())
    for line in out.splitlines():
        fields = line.split("\t")
        if fields[:2] == ["property", "refreservation"] and len(fields) == 3:
            return int(fields[2])
    raise VmError("failed to obtain new refreservation")


def optimal_block_size(host: VmadmHost, volume: str) -> int:
    """32 KiB on a raidz pool of 4 KiB sectors, else 8 KiB."""
    pool = volume.split("/", 1)[0]
    _code, status, _err = host.zpool(["status", pool])
    _code, ashift, _err = host.zpool(["get", "-Hp", "-o", "value", "ashift", pool])
    return RAIDZ_BLOCK_SIZE if "raidz" in status and ashift.strip() == "12" else DEFAULT_BLOCK_SIZE


def _with_quota(host: VmadmHost, root: str, volume: str, delta: Callable[[], int], change: Callable[[], None]) -> None:
    """Do `change` with the VM's quota moved by `delta` bytes: up before, down after, back if it fails."""
    moved = delta() if volume.startswith(root + "/") else 0
    quota = 0
    if moved != 0:
        quota = int(zfs_get(host, root, "quota")["quota"] or 0)
        moved = moved if quota else 0
    if moved > 0:
        _set_quota(host, root, quota + moved)
    try:
        change()
    except VmError:
        if moved > 0:
            host.zfs(["set", "quota=%d" % quota, "reservation=%d" % quota, root])
        raise
    if moved < 0:
        _set_quota(host, root, quota + moved)


def _set_quota(host: VmadmHost, root: str, size: int) -> None:
    zfs(host, "set", "quota=%d" % size, "reservation=%d" % size, root)


def create(host: VmadmHost, root: str, disk: Disk) -> None:
    """Create or clone the volume disk["zfs_filesystem"] and set disk["path"]. `root` is the VM's dataset."""
    for name in ("size", "image_size"):
        if name in disk and not js.is_number(disk[name]):
            raise Abort("AssertionError: volume.%s (number) is required" % name)
    volume = disk["zfs_filesystem"]
    cloning = "image_uuid" in disk
    if "size" not in disk and "image_size" not in disk:
        raise VmError("FATAL: createVolume(%s): has no size or image_size" % js.compact(disk))
    size = int(disk["size"] if "size" in disk else disk["image_size"]) * MIB
    if not cloning and not disk.get("block_size"):
        disk["block_size"] = optimal_block_size(host, volume)

    def metadata() -> int:
        if "refreservation" in disk:
            return 0
        block_size = disk.get("block_size")
        if cloning:
            block_size = zfs_get(host, _image(disk), "volblocksize", "copies")["volblocksize"]
        return forecast(host, volume, size, block_size) - size

    _with_quota(host, root, volume, metadata, lambda: _clone(host, disk) if cloning else _create(host, disk))
    disk["path"] = ZVOL_PREFIX + volume


def _image(disk: Disk) -> str:
    return "%s/%s" % (disk["zpool"], disk["image_uuid"])


def _create(host: VmadmHost, disk: Disk) -> None:
    argv = ["create"]
    if "compression" in disk:
        argv += ["-o", "compression=" + js.to_string(disk["compression"])]
    argv += ["-o", "volblocksize=" + js.to_string(disk["block_size"])]
    if "refreservation" in disk:
        argv += ["-o", "refreservation=%sM" % js.to_string(disk["refreservation"])]
    zfs(host, *argv, "-V", "%sM" % js.to_string(disk["size"]), disk["zfs_filesystem"])


def _clone(host: VmadmHost, disk: Disk) -> None:
    snapshot = _image(disk) + "@final"
    try:
        zfs(host, "get", "-Ho", "value", "name", snapshot)
    except ZfsFailed as error:
        if "dataset does not exist" not in error.stderr:
            raise
        snapshot = "%s@%s" % (_image(disk), js.to_string(disk.get("uuid", js.UNDEFINED)))
        zfs(host, "snapshot", snapshot)
    argv = ["clone", "-F"]
    for name in ("compression", "block_size"):
        if name in disk:
            argv += ["-o", "%s=%s" % ("volblocksize" if name == "block_size" else name, js.to_string(disk[name]))]
    if "size" in disk:
        argv += ["-o", "volsize=%sM" % js.to_string(disk["size"])]
    reserved = "%sM" % js.to_string(disk["refreservation"]) if "refreservation" in disk else "auto"
    zfs(host, *argv, "-o", "refreservation=" + reserved, snapshot, disk["zfs_filesystem"])


def create_all(
    host: VmadmHost, root: str, brand: str, uuid: str, pool: str, disks: List[Disk], used: List[int]
) -> None:
    """Create volumes for those of `disks` that need one, at the lowest free indices.

    If one fails, all of them are destroyed, also one that was there before under the name of a failed one.
    """
    pattern = "%s/%s/disk%d" if brand == "bhyve" else "%s/%s-disk%d"
    created: List[Disk] = []
    index = 0
    taken = set(used)
    for disk in disks:
        if disk.get("media") == "cdrom" or disk.get("nocreate"):
            continue
        while index in taken:
            index += 1
        taken.add(index)
        disk.setdefault("zpool", pool)
        disk["zfs_filesystem"] = pattern % (disk["zpool"], uuid, index)
        created.append(disk)
    try:
        for disk in created:
            create(host, root, disk)
    except VmError:
        for disk in created:
            try:
                destroy(host, disk)
            except VmError:
                break
        raise


def destroy(host: VmadmHost, disk: Disk) -> None:
    """Destroy a volume with its snapshots, and its private origin. Nothing happens to a missing one."""
    volume = disk.get("zfs_filesystem")
    if disk.get("missing") or not volume:
        return
    try:
        origin = zfs(host, "get", "-Ho", "value", "origin", volume).strip()
    except ZfsFailed as error:
        if "dataset does not exist" in error.stderr:
            return
        raise
    zfs(host, "destroy", "-rF", volume)
    if origin and origin != "-" and "@final" not in origin:
        zfs(host, "destroy", "-rF", origin)


def resize(host: VmadmHost, root: str, disk: Disk, size: Any, allow_shrink: bool) -> bool:
    """Set a disk's size in MiB. True if anything changed."""
    if "zfs_filesystem" not in disk:
        raise VmError("failed to identify device to resize")
    if disk["size"] > js.to_number(size) and not allow_shrink:
        raise VmError(
            "cannot resize disk: new size must be greater than current size. (%s > %s)"
            % (js.to_string(disk["size"]), js.to_string(size))
        )
    if js.same(disk["size"], size):
        return False
    volume = disk["zfs_filesystem"]
    target = js.to_number(size) * MIB

    def metadata() -> int:
        now = zfs_get(host, volume, "volsize", "volblocksize", "copies", "refreservation")
        current = int(now["refreservation"]) - int(now["volsize"])
        return forecast(host, volume, int(target), now["volblocksize"]) - int(target) - current

    def change() -> None:
        zfs(host, "set", "volsize=%d" % target, volume)

    _with_quota(host, root, volume, metadata, change)
    return True
