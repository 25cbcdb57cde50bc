# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Makes the disks of the platform again for a VM that comes to this host."""

from __future__ import annotations

from ...fleet.replication.record import Record
from ...hypervisor.protocol import Hypervisor
from ...model.sizes import MIB
from ...zfs.commands import Zfs


def make_again(zfs: Zfs, hypervisor: Hypervisor, record: Record) -> None:
    """Attach the platform's disks that the VM lacks. They are empty: the platform fills them when the VM starts."""
    known = {entry.path for entry in hypervisor.vm(record.uuid).disks} if record.hidden else set()
    for disk in record.hidden:
        path = hypervisor.capabilities.device_prefix + disk.volume
        if path in known:
            continue
        if not zfs.exists(disk.volume):
            zfs.create_volume(disk.volume, disk.size, {"volblocksize": str(disk.block_size)}, {})
        entry = {"path": path, "uuid": disk.uuid, "size": disk.size // MIB, "model": disk.model, "boot": False}
        hypervisor.attach_disk(record.uuid, {**entry, **({"pci_slot": disk.pci_slot} if disk.pci_slot else {})})
