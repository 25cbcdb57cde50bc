# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting and stopping. A running VM is just a state."""

from __future__ import annotations

import time
from typing import Any, Dict, Optional

from simnode.vmadm import boundaries, slots, store, vmobj
from simnode.vmadm import jsvalues as js
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
        # This command asks vminfod for the VM, which answers as a web server.
        reason = "bad statusCode: 404" if error.code == "ENOENT" else error.message
        raise VmError("Unable to start VM %s: %s" % (uuid, reason), error.code) from error


def start_quietly(host: VmadmHost, uuid: str) -> None:
    """Start as other commands do: errors without the words of the start command before them."""
    vm = vmobj.load(host, uuid)
    if vm["state"] == "running":
        raise VmError("VM %s is already 'running'" % uuid, "EALREADYRUNNING")
    if vm["state"] not in ("stopped", "provisioning") or vm["zone_state"] != "installed":
        raise VmError('Cannot start vm from state "%s", must be "stopped".' % vm["state"])
    if vm["brand"] == "bhyve":
        _persist_devices(host, uuid)
        _fill_nocloud(host, vmobj.load(host, uuid))
    boundaries.reach(host, "start boot", lambda: boot(host, store.records(host)[uuid]), vm)
    host.sleep(1.6)


def boot(host: VmadmHost, record: store.Record) -> None:
    """Set the zone running, also after a reboot of the node."""
    record["zone_state"] = "running"
    record["booted"] = int(host.now())
    record["boots"] = record.get("boots", 0) + 1
    record["zoneid"] = record["zonedid"]
    record.pop("transition", None)
    record["cfg"]["autoboot"] = True
    store.touch(host, record)
    if record["cfg"]["brand"] == "bhyve" and slots.clash([*record["devices"], *(record.get("pci_devices") or ())]):
        _end(host, record)  # bhyve itself does, and nobody tells vmadm


def _end(host: VmadmHost, record: store.Record) -> None:
    record["zone_state"] = "installed"
    record["exited"] = int(host.now())
    for key in ("zoneid", "transition", "booted", "ending"):
        record.pop(key, None)
    store.touch(host, record)


def halt(host: VmadmHost, record: store.Record) -> None:
    record["cfg"]["autoboot"] = False
    _end(host, record)


def end_guests(host: VmadmHost) -> None:
    """Halt the VMs whose guests have shut down by now, whatever has become of the vmadm that asked them to."""
    for record in store.records(host).values():
        if record.get("ending", host.now() + 1) <= host.now():
            halt(host, record)


def _persist_devices(host: VmadmHost, uuid: str) -> None:
    vm = vmobj.load(host, uuid)
    given = slots.assign(vm["disks"], {}, legacy=True)
    if given:
        update(host, uuid, {"update_disks": [{"path": disk["path"], "pci_slot": slot} for disk, slot in given]})
    nameless = [disk["path"] for disk in vm["disks"] if "uuid" not in disk]
    if nameless:
        update(host, uuid, {"update_disks": [{"path": path, "uuid": new_uuid(host)} for path in nameless]})


def valid_nocloud_disk(disks: Any, path: str) -> bool:
    """Return whether `disks` have the hidden cloud-init disk at that path."""
    return any(
        disk.get("path") == path
        and disk.get("size") == NOCLOUD_MIB
        and disk.get("block_size") == NOCLOUD_BLOCK_SIZE
        and disk.get("boot") is False
        for disk in disks
    )


def _fill_nocloud(host: VmadmHost, vm: Vm) -> None:
    """Write the data of cloud-init to its disk, and a digest of it to the metadata: what is on it already, stays."""
    metadata = vm["internal_metadata"]
    path = metadata.get("cloudinit_nocloud_path")
    if not path or metadata.get("cloudinit_datasource") != "nocloud":
        return
    if not valid_nocloud_disk(vm["disks"], path):
        raise VmError("Invalid cloudinit_nocloud_path: " + path)
    import hashlib  # only who needs it pays for it

    keys = ("uuid", "hostname", "alias", "nics", "resolvers", "customer_metadata")
    digest = hashlib.md5(js.compact({key: vm[key] for key in keys if key in vm}).encode()).hexdigest()
    store.records(host)[vm["uuid"]]["json"]["internal_metadata"]["cloudinit_nocloud_hash"] = digest


def _not_running(vm: Vm) -> VmError:
    return VmError("VM %s is already not 'running' (currently: %s)" % (vm["uuid"], vm["state"]), "ENOTRUNNING")


def stop(host: VmadmHost, uuid: str, timeout: Optional[float]) -> None:
    """Ask the guest to power off; halt it by force when `timeout` (180 s) has passed. That is a success, too."""
    vm = vmobj.load(host, uuid)
    record = store.records(host)[uuid]
    if vm["brand"] not in ("bhyve", "kvm") and timeout:
        raise VmError("first of 1 error: Timeout option is only supported for bhyve, KVM and docker containers.")
    boundaries.reach(host, "stop autoboot", lambda: _set_autoboot_off(host, record), vm)
    if vm["state"] != "running":
        raise _not_running(vm)
    boundaries.reach(host, "stop signal", lambda: _signal(host, record), vm)
    limit = timeout or STOP_TIMEOUT
    if record.get("stop_hangs") == "really":
        time.sleep(limit)
    boundaries.wait(host, limit if record.get("stop_hangs") else min(limit, record["ending"] - host.now()))
    halt(host, record)
    host.sleep(1.4)


def _set_autoboot_off(host: VmadmHost, record: store.Record) -> None:
    record["cfg"]["autoboot"] = False
    store.touch(host, record)


def _signal(host: VmadmHost, record: store.Record) -> None:
    """Ask the guest to shut down. It does in its own time, also if nobody waits for it."""
    if not record.get("stop_hangs"):
        record["ending"] = host.now() + record.get("stop_takes", 0)


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
