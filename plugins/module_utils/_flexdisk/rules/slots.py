# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI slots of disks: syntax, reserved slots, allocation and collisions.

The driver describes the slots of each VM (Pci). SMARTOS is vmadm's rule for bhyve: disks are functions of device 4 on
bus 0, and some devices of bus 0 are reserved for the hypervisor.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ..model.desired import VmDisksDeclaration
from ..model.errors import FlexdiskError, Problem, Problems
from ..model.vm import DiskConfig, Pci, VmConfig

FUNCTIONS = 8
# Root ports that stay free when a stopped VM gets a disk, for disks that it gets while it runs.
SPARE_PORTS = 4
_CDROM_DEVICE = 3
_DISK_DEVICE = 4
_LEGACY_DATA_DEVICE = 5


def _functions(device: int) -> t.Tuple[str, ...]:
    return tuple(f"0:{device}:{function}" for function in range(FUNCTIONS))


SMARTOS = Pci(
    candidates=_functions(_DISK_DEVICE),
    taken={"0:0": "the host bridge", "0:6": "network interfaces", "0:30": "the frame buffer", "0:31": "the LPC bridge"},
)
_BUSES = ("ide", "sata", "scsi", "virtio")
_KEY = re.compile(r"(ide|sata|scsi|virtio)(0|[1-9][0-9]?)")
_KEY_BUS = 1000  # the first bus of slots that are places on a bus and no PCI addresses
_SLOT = re.compile(r"(?:(?:([0-9]{1,3}):)?([0-9]{1,2}):([0-9])|([0-9]{1,2}))")


def smartos(passed_through: t.Mapping[str, str]) -> Pci:
    """Return SMARTOS for a VM with devices of the host. They are given as paths by slots, as vmadm reports them."""
    others = {valid(slot): f"the passed-through device {path}" for slot, path in passed_through.items() if valid(slot)}
    return replace(SMARTOS, candidates=tuple(s for s in SMARTOS.candidates if s not in others), others=others)


class Slot(t.NamedTuple):
    """A PCI address as the guest sees it. Or a place such as C(virtio3), with a bus that no PCI address has."""

    bus: int
    device: int
    function: int


def parse_slot(text: object) -> Slot:
    """Return the slot that C(D), C(D:F) or C(B:D:F) names (decimal; bus 0 to 255, device 0 to 31, function 0 to 7), or
    a place such as C(virtio3).

    Raises FlexdiskError C(InvalidArgument). It does not check whether the slot is reserved; obstacle() does.
    """
    key = _KEY.fullmatch(text) if isinstance(text, str) else None
    if key:
        return Slot(_KEY_BUS + _BUSES.index(key.group(1)), int(key.group(2)), 0)
    match = _SLOT.fullmatch(text) if isinstance(text, str) else None
    if match:
        bus, device, function, alone = match.groups()
        slot = Slot(int(bus or 0), int(device or alone or 0), int(function or 0))
        if slot.bus <= 255 and slot.device <= 31 and slot.function < FUNCTIONS:
            return slot
    raise FlexdiskError("InvalidArgument", _not_valid(text))


def _not_valid(text: object) -> str:
    return (
        f'pci_slot "{text}" is not valid: write "bus:device:function", "device:function" or '
        '"device", in quotes and decimal, with bus 0 to 255, device 0 to 31 and function 0 to 7'
    )


def render_slot(slot: Slot) -> str:
    """Return the slot as BUS:DEVICE:FUNCTION in decimal, or as a place such as C(virtio3)."""
    if slot.bus >= _KEY_BUS:
        return f"{_BUSES[slot.bus - _KEY_BUS]}{slot.device}"
    return "%d:%d:%d" % slot


def normalise(text: object) -> str:
    """Return a slot in its full form: C(4:1) becomes C(0:4:1). Raises like parse_slot()."""
    return render_slot(parse_slot(text))


def bus_of(slot: str) -> str:
    """Return the bus of a slot that is a place such as C(virtio3); "" for a PCI address."""
    key = _KEY.fullmatch(slot)
    return key.group(1) if key else ""


def with_places(spec: VmDisksDeclaration, pci: Pci) -> VmDisksDeclaration:
    """Return the declaration with the VM's own names of slots, where it has the addresses that guests see."""
    places = {address: slot for slot, address in pci.addresses.items()}
    if not (spec.disks and places):
        return spec
    disks = [replace(disk, pci_slot=places.get(disk.pci_slot or "", disk.pci_slot)) for disk in spec.disks]
    return replace(spec, disks=tuple(disks))


def valid(text: str) -> str:
    """Return a stored slot, normalised; "" for anything that is not a slot."""
    try:
        return normalise(text) if text else ""
    except FlexdiskError:
        return ""


def obstacle(slot: Slot, pci: Pci) -> t.Optional[str]:
    """Return why no disk may have the slot, or None."""
    if slot.bus >= _KEY_BUS and render_slot(slot) in pci.others:
        return f"{pci.others[render_slot(slot)]} has it"
    if slot.bus >= _KEY_BUS:
        return None if render_slot(slot) in pci.candidates else "the VM has no such place for disks"
    if pci.candidates and bus_of(pci.candidates[0]):
        return f"no disk of the VM can have this PCI address; write a place such as {pci.candidates[0]}"
    device = f"{slot.device}" if not slot.bus else "%d:%d" % slot[:2]
    who = pci.taken.get("%d:%d" % slot[:2])
    if who is not None:
        return f"PCI device {device} is reserved for {who}"
    if render_slot(slot) in pci.others:
        return f"{pci.others[render_slot(slot)]} has it"
    if slot.function >= pci.functions:
        return f"PCI devices of this hypervisor have only {pci.functions} function"
    if pci.strict and slot.bus and render_slot(slot._replace(function=0)) not in pci.candidates:
        return f"the VM has no PCI device {device} for disks"
    return None


def alone(slot: Slot, taken: t.Iterable[Slot]) -> bool:
    """Whether no other function of its device is in use."""
    return all(other[:2] != slot[:2] or other == slot for other in taken)


def unseen(taken: t.Iterable[Slot], pci: Pci) -> t.Set[Slot]:
    """Return the slots that no guest finds, because function 0 of their device is missing. Only if strict."""
    there = set(taken)
    heads = {slot[:2] for slot in there if not slot.function} | {parse_slot(who + ":0")[:2] for who in pci.taken}
    return {slot for slot in there if pci.strict and slot[:2] not in heads}


def new_ports(before: t.Iterable[Slot], after: t.Iterable[Slot], pci: Pci) -> t.Tuple[int, ...]:
    """Return the numbers of the root ports that a stopped VM gets with new disks: one each, and some spare."""
    then = set(after)
    if not any(slot.bus for slot in then - set(before)):
        return ()
    used = {slot.bus for slot in then}
    coming = [parse_slot(text).bus for text in pci.addable_ports]
    spare = SPARE_PORTS - sum(parse_slot(text).bus not in used for text in pci.ports)
    count = sum(bus <= max(used) for bus in coming)
    spare -= sum(bus not in used for bus in coming[:count])
    return tuple(coming[: count + max(0, spare)])


def preferred(pci: Pci) -> t.List[str]:
    """Return the candidates in the order for new disks: those for hot-plug first, each in the driver's order."""
    return sorted(pci.candidates, key=lambda slot: slot not in pci.hot)


def allocate(taken: t.Collection[Slot], candidates: t.Sequence[str], *, alone_on_device: bool = False) -> Slot:
    """Return the first free candidate. alone_on_device: no other disk may be on its device.

    The order of the candidates is the policy: C(preferred) for new disks, C(positions) for those that bhyve places.
    Raises FlexdiskError C(InvalidArgument) if none is free.
    """
    for slot in map(parse_slot, candidates):
        if slot not in taken and (not alone_on_device or alone(slot, taken)):
            return slot
    ends = [end(candidates, key=parse_slot) for end in (min, max)] if candidates else []
    text = f"all {len(candidates)} from {ends[0]} to {ends[1]} are taken" if ends else "none"
    raise FlexdiskError("InvalidArgument", f"no PCI slot is left for disks: {text}; give pci_slot")


def positions(disks: t.Sequence[DiskConfig], pci: Pci) -> t.Dict[str, str]:
    """Return the slot of each configured disk by its path. A disk without a slot gets the one that bhyve will choose:
    the boot disk on device 4, CD-ROMs on device 3, the rest on device 5, each at the lowest free function; "" if none
    is left.
    """
    result = {disk.path: valid(disk.pci_slot) for disk in disks}
    if pci.strict:
        return result
    taken = {parse_slot(text) for text in result.values() if text}
    for disk in sorted((d for d in disks if not result[d.path]), key=lambda d: not d.boot):
        device = _CDROM_DEVICE if disk.media == "cdrom" else _DISK_DEVICE if disk.boot else _LEGACY_DATA_DEVICE
        try:
            slot = allocate(taken, _functions(device))
        except FlexdiskError:
            continue
        taken.add(slot)
        result[disk.path] = render_slot(slot)
    return result


def conflicts(assignments: t.Sequence[t.Tuple[str, Slot]]) -> t.List[t.Tuple[Slot, t.List[str]]]:
    """Return slots that several disks have, lowest first, each with the labels of its disks in the given order.

    On every bus: vmadm itself compares slots on bus 0 only, and the VM would fail at its next start.
    """
    labels: t.Dict[Slot, t.List[str]] = {}
    for label, slot in assignments:
        labels.setdefault(slot, []).append(label)
    return [(slot, labels[slot]) for slot in sorted(labels) if len(labels[slot]) > 1]


def clashes(assignments: t.Iterable[t.Tuple[str, Slot]], pci: Pci) -> t.Iterator[t.Tuple[str, str, str]]:
    """Return the disks whose slot another kind of device has, each with the slot and that device."""
    for label, slot in assignments:
        text = render_slot(slot)
        if text in pci.others:
            yield label, text, pci.others[text]


def slot_problems(spec: VmDisksDeclaration, config: VmConfig) -> t.List[Problem]:
    """Return problems of declared slots that no disk of this VM can have, unless a disk already has it."""
    problems = Problems(spec.vm)
    there = {disk.pci_slot for disk in config.disks} if config.pci.strict else set()
    for number, disk in enumerate(spec.disks or ()):
        if disk.pci_slot and disk.pci_slot not in there:
            label = disk.label or f"disks[{number}]"
            reason = obstacle(parse_slot(disk.pci_slot), config.pci)
            if reason and bus_of(disk.pci_slot) and not any(map(bus_of, config.pci.candidates)):
                problems.add("InvalidArgument", _not_valid(disk.pci_slot), label)
            elif reason:
                problems.add("InvalidArgument", f'pci_slot "{disk.pci_slot}": {reason}', label)
    return problems
