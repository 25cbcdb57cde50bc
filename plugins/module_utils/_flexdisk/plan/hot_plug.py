# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a disk can be attached to a running VM, or detached from it."""

from __future__ import annotations

from ..model.capabilities import Capabilities
from ..model.vm import Vm
from ..rules import slots


def why_cold(vm: Vm, model: str, slot: str, capabilities: Capabilities) -> str:
    """Return why a disk of this model cannot be attached at this slot, or detached, while the VM runs; "" if it can."""
    if capabilities.functions_per_slot > 1:
        return ""
    if model not in capabilities.models:
        return f"a disk of model {model} comes and goes only while the VM is stopped"
    if not slot:
        return ""
    place, pci = slots.parse_slot(slot), vm.config.pci
    taken = [slots.parse_slot(e.pci_slot) for e in vm.config.disks if e.pci_slot]
    if place.function or not slots.alone(place, taken):
        return "disks that share a PCI slot come and go together"
    if slot in pci.fixed:
        return pci.fixed[slot]
    if slot in pci.hot:
        return ""
    free = [s for s in map(slots.parse_slot, pci.hot) if s not in taken and slots.alone(s, taken)]
    none_free = "" if free or place in taken else ", and none is free"
    return f"{slot} is no slot for hot-plug{none_free}"
