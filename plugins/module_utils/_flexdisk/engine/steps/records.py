# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the record of a VM without a dataset of its own, from its volumes and its configuration as they are."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ...model.vm import Vm
from ...rules import inventory, vm_record
from .perform import Tools


def write_record(
    tools: Tools,
    after: Vm,
    given_up: t.Collection[str] = (),
    detached: t.Optional[t.Mapping[str, t.Mapping[str, str]]] = None,
) -> None:
    """Write the record if it differs.

    Args:
        tools: with the VM as it is.
        after: the VM with the flexible_disk_size that it should have.
        given_up: serials of disks that the record forgets.
        detached: the disks that are detached from the VM. None: as the record has them.
    """
    records = tools.hypervisor.records
    if records is None:
        raise AssertionError("the hypervisor of a VM without a dataset of its own keeps no records")
    config = tools.hypervisor.vm(after.config.uuid)
    names = tools.zfs.existing([entry.volume for entry in config.disks if entry.volume])
    datasets = {dataset.name: dataset for dataset in tools.zfs.datasets(*names, snapshots=False)} if names else {}
    config = inventory.completed(config, datasets)
    wanted = replace(config, flexible_disk_size=after.config.flexible_disk_size)
    record = vm_record.of_disks(wanted, inventory.attached_disks(config, datasets), given_up, detached)
    if record != config.record and (config.record is not None or vm_record.says_something(record)):
        records.write_record(after.config.uuid, record)
