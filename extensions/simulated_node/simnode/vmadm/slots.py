# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI slots of bhyve disks: syntax, reserved devices, collisions, automatic assignment."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from simnode.vmadm import jsvalues as js
from simnode.vmadm.errors import Abort, VmError

Disk = Dict[str, Any]
Occupied = Dict[int, Dict[int, Disk]]
RESERVED = (0, 6, 30, 31)
CDROM_DEVICE = 3
DISK_DEVICE = 4
LEGACY_DATA_DEVICE = 5
FUNCTIONS = 8


class Slot(NamedTuple):
    bus: int
    device: int
    function: int


def parse(text: Any) -> Slot:
    """B:D:F, D:F or D in decimal. Raises VmError."""
    if not isinstance(text, str):
        raise Abort("TypeError: slotstr.split is not a function")
    parts = text.split(":")
    numbers = [int(part) if re.fullmatch(r"[+-]?\d+", part) else -1 for part in parts]
    if len(parts) == 1:
        numbers = [0, numbers[0], 0]
    elif len(parts) == 2:
        numbers = [0, *numbers]
    if len(numbers) != 3 or not (0 <= numbers[0] <= 255 and 0 <= numbers[1] <= 31 and 0 <= numbers[2] <= 7):
        raise VmError('pci_slot "%s" is not valid' % text)
    return Slot(*numbers)


def valid(text: Any) -> bool:
    try:
        parse(text)
    except (VmError, Abort):
        return False
    return True


def _describe(disk: Disk) -> str:
    if disk.get("path"):
        return "path=" + js.to_string(disk["path"])
    if disk.get("pci_slot"):
        return "pci_slot=" + js.to_string(disk["pci_slot"])
    return '"%s"' % js.compact(disk)


def clash(devices: Iterable[Dict[str, Any]]) -> bool:
    """Return whether two devices have the same slot, on any bus. vmadm compares only disks, and bhyve then fails."""
    slots = [parse(device["pci_slot"]) for device in devices if device.get("pci_slot")]
    return len(set(slots)) < len(slots)


def _default_device(disk: Disk, legacy: bool) -> Optional[int]:
    media = disk.get("media", "disk")
    if media == "cdrom":
        return CDROM_DEVICE
    if media != "disk":
        return None
    return DISK_DEVICE if disk.get("boot") or not legacy else LEGACY_DATA_DEVICE


def _occupy(disk: Disk, occupied: Occupied) -> None:
    slot = parse(disk["pci_slot"])
    if slot.bus != 0:
        return
    if slot.device in RESERVED:
        raise VmError('pci_slot "%s" invalid: PCI device %d is reserved' % (disk["pci_slot"], slot.device))
    functions = occupied.setdefault(slot.device, {})
    if slot.function in functions:
        raise VmError(
            'VM has multiple disks in pci_slot "%s": "%s" and "%s'
            % (disk["pci_slot"], functions[slot.function].get("path", "undefined"), disk.get("path", "undefined"))
        )
    functions[slot.function] = disk


def _lowest(disk: Disk, occupied: Occupied, legacy: bool) -> str:
    device = _default_device(disk, legacy)
    if device is None:
        raise VmError(
            "VM has no PCI bus or slot assigned for %s devices; automatic pci_slot assignment not possible"
            % js.to_string(disk["media"])
        )
    functions = occupied.setdefault(device, {})
    function = 0
    while function in functions:
        function += 1
    if function >= FUNCTIONS:
        media = js.to_string(disk.get("media", js.UNDEFINED))
        raise VmError("VM has more than 8 %s devices on PCI device %d" % (media, device))
    functions[function] = disk
    return "0:%d:%d" % (device, function)


def assign(disks: List[Disk], occupied: Occupied, legacy: bool) -> List[Tuple[Disk, str]]:
    """Slots for those of `disks` that have none; `occupied` is read and filled. The boot disk chooses first."""
    boot: Any = None
    waiting: List[Disk] = []
    for disk in disks:
        if disk.get("boot"):
            if boot is not None:
                # The first one is known by its boot flag alone, so upstream prints that.
                raise VmError('multiple boot disks: ""%s"" and "%s"' % (js.compact(boot), _describe(disk)))
            boot = disk["boot"]
        if "pci_slot" in disk:
            _occupy(disk, occupied)
        elif disk.get("boot"):
            waiting.insert(0, disk)
        else:
            waiting.append(disk)
    return [(disk, _lowest(disk, occupied, legacy)) for disk in waiting]
