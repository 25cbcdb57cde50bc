# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# PRIVATE to this collection: it can change at any time.

"""PCI slots of disks: syntax, what is reserved, who gets which, collisions.

The rules are vmadm's for bhyve: disks sit on device 4 of bus 0, one function each; devices that the hypervisor needs
itself are reserved on bus 0.
"""

from __future__ import annotations

import re
import typing as t

from ..model.errors import FlexdiskError
from ..model.vm import DiskConfig

FUNCTIONS = 8
_CDROM_DEVICE = 3
_DISK_DEVICE = 4
_LEGACY_DATA_DEVICE = 5
_RESERVED = {0: "the host bridge", 6: "network interfaces", 30: "the frame buffer", 31: "the LPC bridge"}
_SLOT = re.compile(r"(?:(?:([0-9]{1,3}):)?([0-9]{1,2}):([0-9])|([0-9]{1,2}))")


class Slot(t.NamedTuple):
    """A PCI address as the guest sees it."""

    bus: int
    device: int
    function: int


def parse_slot(text: object) -> Slot:
    """The slot that C(D), C(D:F) or C(B:D:F) names (decimal; bus 0 to 255, device 0 to 31, function 0 to 7).

    Raises FlexdiskError C(InvalidArgument). Whether the slot is reserved is reserved_reason's business.
    """
    match = _SLOT.fullmatch(text) if isinstance(text, str) else None
    if match:
        bus, device, function, alone = match.groups()
        slot = Slot(int(bus or 0), int(device or alone or 0), int(function or 0))
        if slot.bus <= 255 and slot.device <= 31 and slot.function < FUNCTIONS:
            return slot
    raise FlexdiskError(
        "InvalidArgument",
        'pci_slot "%s" is not valid: write "bus:device:function", "device:function" or "device", in quotes and decimal,'
        " with bus 0 to 255, device 0 to 31 and function 0 to 7" % (text,),
    )


def render_slot(slot: Slot) -> str:
    return "%d:%d:%d" % slot


def normalise(text: object) -> str:
    """The one way to write a slot: C(4:1) becomes C(0:4:1). Raises as parse_slot does."""
    return render_slot(parse_slot(text))


def valid(text: str) -> str:
    """The slot as others wrote it, normalised; "" if it is none, so that garbage counts as no slot."""
    try:
        return normalise(text) if text else ""
    except FlexdiskError:
        return ""


def reserved_reason(slot: Slot) -> t.Optional[str]:
    """Why no disk may have the slot, or None. Only bus 0 has reserved devices."""
    if slot.bus or slot.device not in _RESERVED:
        return None
    return "PCI device %d is reserved for %s" % (slot.device, _RESERVED[slot.device])


def allocate(taken: t.Collection[Slot], *, device: int = _DISK_DEVICE, functions: int = FUNCTIONS) -> Slot:
    """The slot with the lowest free function of a device of bus 0.

    Raises FlexdiskError C(InvalidArgument) when all are taken.
    """
    for function in range(functions):
        if Slot(0, device, function) not in taken:
            return Slot(0, device, function)
    raise FlexdiskError(
        "InvalidArgument", "no slot left on PCI device %d: all %d are taken; give pci_slot" % (device, functions)
    )


def positions(disks: t.Sequence[DiskConfig]) -> t.Dict[str, str]:
    """The slot of each configured disk by its path, where bhyve will put it if it has none: the boot disk first, on
    device 4, CD-ROMs on device 3, the rest on device 5, each at the lowest free function; "" if there is none left.
    """
    found = {disk.path: valid(disk.pci_slot) for disk in disks}
    taken = {parse_slot(text) for text in found.values() if text}
    for disk in sorted((d for d in disks if not found[d.path]), key=lambda d: not d.boot):
        device = _CDROM_DEVICE if disk.media == "cdrom" else _DISK_DEVICE if disk.boot else _LEGACY_DATA_DEVICE
        try:
            slot = allocate(taken, device=device)
        except FlexdiskError:
            continue
        taken.add(slot)
        found[disk.path] = render_slot(slot)
    return found


def conflicts(assignments: t.Sequence[t.Tuple[str, Slot]]) -> t.List[t.Tuple[Slot, t.List[str]]]:
    """Slots given to more than one disk, lowest first, each with the labels of its disks in the given order.

    On every bus: vmadm itself compares slots of bus 0 only, and lets a VM fail at its next start.
    """
    labels: t.Dict[Slot, t.List[str]] = {}
    for label, slot in assignments:
        labels.setdefault(slot, []).append(label)
    return [(slot, labels[slot]) for slot in sorted(labels) if len(labels[slot]) > 1]
