# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the record of a VM without a dataset of its own, from its volumes and its configuration as they are."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.vm import Vm, VmConfig, VmRecord
from ...rules import inventory, vm_record
from .perform import Tools


def write_record(
    tools: Tools,
    after: Vm,
    given_up: t.Collection[str] = (),
    detached: t.Optional[t.Mapping[str, t.Mapping[str, str]]] = None,
) -> None:
    """Write the record if it differs. A disk that another VM has by now is detached from none.

    The records of other VMs that have a disk of this one as detached are corrected after it. So a disk that goes from
    one VM to another is in a record at any moment.

    Args:
        tools: with the VM as it is.
        after: the VM with the flexible_disk_size that it should have.
        given_up: serials of disks that the record forgets.
        detached: the disks that are detached from the VM. None: as the record has them.
    """
    records = tools.hypervisor.records
    if records is None:
        raise AssertionError("the hypervisor of a VM without a dataset of its own keeps no records")
    configs = {one.uuid: one for one in tools.hypervisor.vms()}
    config = configs.pop(after.config.uuid, None) or tools.hypervisor.vm(after.config.uuid)
    names = tools.zfs.existing([entry.volume for entry in config.disks if entry.volume])
    datasets = {dataset.name: dataset for dataset in tools.zfs.datasets(*names, snapshots=False)} if names else {}
    config = inventory.completed(config, datasets)
    wanted = replace(config, flexible_disk_size=after.config.flexible_disk_size)
    record = vm_record.of_disks(wanted, inventory.attached_disks(config, datasets), given_up, detached)
    taken = {uuid for other in configs.values() for uuid in _attached(other)}
    record = _without_detached(record, taken)
    if record != config.record and (config.record is not None or vm_record.says_something(record)):
        records.write_record(after.config.uuid, record)
    here = _attached(replace(config, record=record))
    for other in configs.values():
        left = _without_detached(other.record, here) if other.record is not None else None
        if left is not None and left != other.record and not other.frozen:
            records.write_record(other.uuid, left)


def _attached(config: VmConfig) -> t.Set[str]:
    """Return the uuids of the disks in the record of a VM that its configuration has."""
    serials = {entry.serial for entry in config.disks}
    return {str(saved.get("uuid")) for serial, saved in vm_record.known(config).items() if serial in serials}


def _without_detached(record: VmRecord, uuids: t.Collection[str]) -> VmRecord:
    return record._replace(detached={uuid: one for uuid, one in record.detached.items() if uuid not in uuids})
