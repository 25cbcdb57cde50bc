# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the running QEMUs have: which disks are plugged, and whether their guests let them go.

The state has for each running VM: pid, plugged (by key: size, device, identity and serial, or None for an empty drive),
paused, and asked (keys whose removal the guest has been asked for and has not answered). A guest answers, unless the
state `deaf` has its VM.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from simnode.pve import drive, storage
from simnode.pve.config_text import Values, drives
from simnode.pve.errors import NotRecorded, PveError
from simnode.pve.host import DEVICES, Device
from simnode.pve.task import Run, qemus

UNPLUG_SECONDS = 6
CONTROLLER_SECONDS = 18
ANSWER_SECONDS = 1.5
PLUG_SECONDS = 7
FIRST_PID = 4000
_SCSI_DEVICES = ("virtio-scsi-single", "virtio-scsi-pci")
_FIRST_VIRTIO, _BRIDGED_VIRTIO = 0xA, 6


def is_running(run: Run, vmid: int) -> bool:
    """Return whether the VM has a QEMU."""
    return str(vmid) in qemus(run)


def pid(run: Run, vmid: int) -> int:
    """Return the process id of a VM's QEMU, 0 if it has none."""
    return int(qemus(run).get(str(vmid), {}).get("pid", 0))


def plugged(run: Run, vmid: int) -> Dict[str, Any]:
    """Return what the QEMU of a running VM has, by key."""
    disks: Dict[str, Any] = qemus(run)[str(vmid)]["plugged"]
    return disks


def answers(run: Run, vmid: int) -> bool:
    """Return whether the guest gives disks up and powers off when it is asked to."""
    return str(vmid) not in run.host.state.get("deaf", [])


def pid_path(vmid: int) -> str:
    """Return the file with the process id of a VM's QEMU."""
    return f"/run/qemu-server/{vmid}.pid"


def device_path(run: Run, volume: str) -> str:
    """Return the path of a volume's device."""
    return volume if volume.startswith("/") else DEVICES + storage.dataset(run, storage.volume(volume))


def device_of(run: Run, volume: str) -> Device:
    """Return the device of a volume. Raises PveError when it does not come."""
    if not volume.startswith("/"):
        storage.wait_for_device(run, storage.volume(volume))
    device = run.host.device(device_path(run, volume))
    if device is None:
        raise PveError(f"volume {volume} does not exist")
    return device


def entry(run: Run, disk: drive.Drive) -> Optional[Dict[str, Any]]:
    """Return what QEMU has of a disk, None for a drive for discs, with or without one."""
    if disk.is_cdrom or disk.volume == "none":
        return None
    device = device_of(run, disk.volume)
    serial = disk.options.get("serial", "")
    path = device_path(run, disk.volume)
    return {"size": device.size, "device": path, "identity": device.identity, "serial": serial}


def _holder(run: Run, identity: str) -> bool:
    return any(
        one is not None and one["identity"] == identity
        for qemu in qemus(run).values()
        for one in qemu["plugged"].values()
    )


# -- start and end ---------------------------------------------------------------------------------------------------


def start(run: Run, vmid: int, main: Values) -> None:
    """Start a QEMU with the disks of the VM. Raises PveError."""
    entries = {key: entry(run, disk) for key, disk in drives(main).items()}
    _refuse_arguments(run, main)
    taken: List[str] = []
    for key, one in entries.items():
        if one is not None and (one["identity"] in taken or _holder(run, one["identity"])):
            _no_write_lock(run, key, drives(main)[key], one["device"])
        if one is not None:
            taken.append(one["identity"])
    number = int(run.host.state.get("last_pid", FIRST_PID)) + 1
    run.host.state["last_pid"] = number
    run.host.write(f"/proc/{number}/comm", "kvm\n")
    qemus(run)[str(vmid)] = {"pid": number, "plugged": entries}
    run.host.write(pid_path(vmid), f"{number}\n")


def _refuse_arguments(run: Run, main: Values) -> None:
    arguments = main.get("args", "").split()
    if arguments == ["-foo"]:
        run.say("kvm: -foo: invalid option")
        raise PveError("start failed: QEMU exited with code 1")
    if arguments:
        raise NotRecorded(f"QEMU with the arguments '{main['args']}'")


def _no_write_lock(run: Run, key: str, disk: drive.Drive, device: str) -> None:
    serial = f"serial={disk.options['serial']}," if "serial" in disk.options else ""
    number = int(key.lstrip("abcdefghijklmnopqrstuvwxyz"))
    if drive.bus_of(key) == "virtio" and number < _BRIDGED_VIRTIO:
        address = f"id={key},bus=pci.0,addr={_FIRST_VIRTIO + number:#x},{serial}write-cache=on"
        text = f"kvm: -device virtio-blk-pci,drive=drive-{key},{address}: "
    else:  # that it fails so was seen of the others, too, but not the words that name the device
        text = f"kvm: simulated device {key}: "
    run.say(f'{text}Failed to get "write" lock\nIs another process using the image [{device}]?')
    raise PveError("start failed: QEMU exited with code 1")


def end(run: Run, vmid: int) -> None:
    """End a VM's QEMU."""
    number = pid(run, vmid)
    del qemus(run)[str(vmid)]
    for path in (pid_path(vmid), f"/proc/{number}/comm"):
        if run.host.read(path) is not None:
            run.host.remove(path)


# -- hot-plug --------------------------------------------------------------------------------------------------------


def plug(run: Run, vmid: int, key: str, disk: drive.Drive) -> None:
    """Plug a disk into a running VM. Raises PveError."""
    one = entry(run, disk)
    if one is not None and _holder(run, one["identity"]):
        run.host.sleep(PLUG_SECONDS)
        raise PveError(f"error on hotplug device '{key}'")
    plugged(run, vmid)[key] = one


def check_known(run: Run, vmid: int, main: Values, key: str, leaves: bool) -> None:
    """Refuse a hot-plug that was never seen. `leaves`: a disk has to go for it. Raises NotRecorded."""
    if drive.bus_of(key) != "scsi":
        return
    controller = main.get("scsihw", "lsi")
    if controller not in _SCSI_DEVICES:
        raise NotRecorded(f"hot-plug of {key} with scsihw {controller}")
    if leaves and controller != "virtio-scsi-single" and not answers(run, vmid):
        raise NotRecorded(f"a guest that keeps {key} with scsihw {controller}")


def unplug(run: Run, vmid: int, key: str) -> None:
    """Take a disk out of a running VM. Raises PveError when the guest keeps it, or the controller of it."""
    have, qemu = plugged(run, vmid), qemus(run)[str(vmid)]
    if answers(run, vmid):
        run.host.sleep(ANSWER_SECONDS)
        have.pop(key, None)
        return
    if drive.bus_of(key) == "scsi":
        have.pop(key, None)
        run.host.sleep(CONTROLLER_SECONDS)
        raise PveError(f"error on hot-unplugging device 'virtioscsi{key[4:]}' - still busy in guest?")
    qemu["asked"] = sorted({*qemu.get("asked", []), key})
    run.host.sleep(UNPLUG_SECONDS)
    raise PveError(f"error on hot-unplugging device '{key}' - still busy in guest?")


def let_go_late(run: Run, vmid: int) -> None:
    """Let the guest give up what it was asked for earlier: QEMU then lacks disks that the VM's file has."""
    qemu = qemus(run).get(str(vmid), {})
    for key in qemu.pop("asked", []):
        qemu["plugged"].pop(key, None)


def resized(run: Run, vmid: int, key: str, size: int) -> None:
    """Tell the QEMU of a running VM the new size of a disk."""
    one = plugged(run, vmid).get(key)
    if one is not None:
        one["size"] = size
