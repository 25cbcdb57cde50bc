# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting and stopping. A running VM is just a state."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

from simnode.vmadm import slots, store, vmobj
from simnode.vmadm.errors import VmError
from simnode.vmadm.host import VmadmHost
from simnode.vmadm.ids import new_uuid
from simnode.vmadm.update import update

Vm = Dict[str, Any]
STOP_TIMEOUT = 180
REBOOT_TIMEOUT = 10
NOCLOUD_MIB = 16
NOCLOUD_BLOCK_SIZE = 512


def start(host: VmadmHost, uuid: str) -> None:
    """Boot a stopped VM. Disks that lack a slot or a uuid get theirs now, for good."""
    try:
        start_quietly(host, uuid)
    except VmError as error:
        raise VmError("Unable to start VM %s: %s" % (uuid, error.message), error.code) from error


def start_quietly(host: VmadmHost, uuid: str) -> None:
    """Start as other commands do: errors without the words of the start command before them."""
    vm = vmobj.load(host, uuid)
    if vm["state"] == "running":
        raise VmError("VM %s is already 'running'" % uuid, "EALREADYRUNNING")
    if vm["state"] not in ("stopped", "provisioning") or vm["zone_state"] != "installed":
        raise VmError('Cannot start vm from state "%s", must be "stopped".' % vm["state"])
    if vm["brand"] == "bhyve":
        _persist_devices(host, uuid)
        _check_nocloud(vmobj.load(host, uuid))
    boot(host, store.records(host)[uuid])
    host.sleep(1.6)


def boot(host: VmadmHost, record: store.Record) -> None:
    """The zone runs, and will after a reboot of the node."""
    record["zone_state"] = "running"
    record["booted"] = int(host.now())
    record["boots"] = record.get("boots", 0) + 1
    record["zoneid"] = record["zonedid"]
    record.pop("transition", None)
    record["cfg"]["autoboot"] = True
    store.touch(host, record)


def halt(host: VmadmHost, record: store.Record) -> None:
    record["zone_state"] = "installed"
    record["exited"] = int(host.now())
    for key in ("zoneid", "transition", "booted"):
        record.pop(key, None)
    record["cfg"]["autoboot"] = False
    store.touch(host, record)


def _persist_devices(host: VmadmHost, uuid: str) -> None:
    vm = vmobj.load(host, uuid)
    given = slots.assign(vm["disks"], {}, legacy=True)
    if given:
        update(host, uuid, {"update_disks": [{"path": disk["path"], "pci_slot": slot} for disk, slot in given]})
    nameless = [disk["path"] for disk in vm["disks"] if "uuid" not in disk]
    if nameless:
        update(host, uuid, {"update_disks": [{"path": path, "uuid": new_uuid(host)} for path in nameless]})


def valid_nocloud_disk(disks: Any, path: str) -> bool:
    """Whether `disks` have the hidden cloud-init disk at that path."""
    return any(
        disk.get("path") == path
        and disk.get("size") == NOCLOUD_MIB
        and disk.get("block_size") == NOCLOUD_BLOCK_SIZE
        and disk.get("boot") is False
        for disk in disks
    )


def _check_nocloud(vm: Vm) -> None:
    metadata = vm["internal_metadata"]
    path = metadata.get("cloudinit_nocloud_path")
    if path and metadata.get("cloudinit_datasource") == "nocloud" and not valid_nocloud_disk(vm["disks"], path):
        raise VmError("Invalid cloudinit_nocloud_path: " + path)


def _not_running(vm: Vm) -> VmError:
    return VmError("VM %s is already not 'running' (currently: %s)" % (vm["uuid"], vm["state"]), "ENOTRUNNING")


def stop(host: VmadmHost, uuid: str, timeout: Optional[float]) -> None:
    """Ask the guest to power off; halt it by force when `timeout` (180 s) has passed. That is a success, too."""
    vm = vmobj.load(host, uuid)
    record = store.records(host)[uuid]
    if vm["brand"] not in ("bhyve", "kvm") and timeout:
        raise VmError("first of 1 error: Timeout option is only supported for bhyve, KVM and docker containers.")
    record["cfg"]["autoboot"] = False
    store.touch(host, record)
    if vm["state"] != "running":
        raise _not_running(vm)
    if record.get("stop_hangs"):
        if record["stop_hangs"] == "really":
            time.sleep(timeout or STOP_TIMEOUT)
        host.sleep(timeout or STOP_TIMEOUT)
    halt(host, record)
    host.sleep(1.4)


def force_stop(host: VmadmHost, uuid: str) -> None:
    """Halt at once. A VM that does not run is an error here, unlike in stop."""
    vm = vmobj.load(host, uuid)
    record = store.records(host)[uuid]
    if vm["zone_state"] != "running":
        record.pop("transition", None)
        raise VmError("first of 1 error: " + _not_running(vm).message)
    halt(host, record)
    host.sleep(1.2)


def reboot(host: VmadmHost, uuid: str, timeout: Optional[float], force: bool) -> None:
    vm = vmobj.load(host, uuid)
    if vm["state"] != "running":
        if force:
            raise VmError('Cannot reset vm from state "%s", must be "running".' % vm["state"])
        raise VmError('Cannot reboot vm from state "%s", must be "running"' % vm["state"])
    if force:
        boot(host, store.records(host)[uuid])
        host.sleep(1.5)
        return
    stop(host, uuid, timeout or REBOOT_TIMEOUT)
    start_quietly(host, uuid)
