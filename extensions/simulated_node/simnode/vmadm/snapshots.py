# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of a VM: recursive, so that they hold its dataset and all its disks."""

from __future__ import annotations

import copy
import re
from typing import Any, Dict

from simnode.vmadm import lifecycle, store, vmobj
from simnode.vmadm.errors import VmError, first_of_one
from simnode.vmadm.host import DEFAULT_POOL, VmadmHost, zfs

Vm = Dict[str, Any]
PREFIX = "@vmsnap-"
_NAME = re.compile(r"[a-zA-Z0-9\-_.:%]{1,64}\Z")


def _load(host: VmadmHost, uuid: str, name: str) -> Vm:
    if not _NAME.match(name):
        raise VmError("Invalid snapshot name")
    vm = vmobj.load(host, uuid)
    if vm["brand"] == "kvm":
        raise VmError("snapshots for kvm VMs currently unsupported")
    return vm


def _require(vm: Vm, name: str) -> None:
    if all(snapshot["name"] != name for snapshot in vm["snapshots"]):
        raise VmError('No snapshot named "%s" for %s' % (name, vm["uuid"]))


def create(host: VmadmHost, uuid: str, name: str) -> None:
    vm = _load(host, uuid, name)
    if vm.get("datasets"):
        raise VmError("Cannot currently snapshot zones that have datasets")
    if "zfs_filesystem" not in vm:
        raise VmError("vmobj missing zfs_filesystem, cannot create snapshot")
    if any(snapshot["name"] == name for snapshot in vm["snapshots"]):
        raise VmError('snapshot with name "%s" already exists.' % name)
    recursive = ["-r"] if vm["brand"] == "bhyve" else []
    try:
        zfs(host, "snapshot", *recursive, vm["zfs_filesystem"] + PREFIX + name)
    except VmError as error:
        raise first_of_one(error) from error
    record = store.records(host)[uuid]
    record["snapshots"][name] = copy.deepcopy(record["json"])
    host.sleep(2.0)
    store.touch(host, record)


def delete(host: VmadmHost, uuid: str, name: str) -> None:
    vm = _load(host, uuid, name)
    _require(vm, name)
    recursive = ["-r"] if vm["brand"] == "bhyve" else []
    try:
        zfs(host, "destroy", *recursive, vm["zfs_filesystem"] + PREFIX + name)
    except VmError as error:
        raise first_of_one(error) from error
    record = store.records(host)[uuid]
    record["snapshots"].pop(name, None)
    host.sleep(2.0)
    store.touch(host, record)


def rollback(host: VmadmHost, uuid: str, name: str) -> None:
    """Every dataset of the VM that has a snapshot of that name goes back to it, wherever the snapshot comes from."""
    vm = _load(host, uuid, name)
    _require(vm, name)
    targets = [vm["zfs_filesystem"] + PREFIX + name]
    if vm["brand"] == "bhyve":
        listed = zfs(host, "list", "-o", "name", "-H", "-t", "snapshot", "-r", "%s/%s" % (DEFAULT_POOL, uuid))
        targets = [line for line in listed.splitlines() if line.partition(PREFIX)[2] == name]
    if vm["state"] != "stopped":
        lifecycle.force_stop(host, uuid)
    for target in targets:
        zfs(host, "rollback", "-r", target)
    record = store.records(host)[uuid]
    if name in record["snapshots"]:
        record["json"] = copy.deepcopy(record["snapshots"][name])
    host.sleep(2.0)
    lifecycle.start_quietly(host, uuid)
