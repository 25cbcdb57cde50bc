# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings about what interrupted commands for snapshots have left of a VM."""

from __future__ import annotations

from ..model.vm import Vm
from . import snapshots
from .findings import OURS, Task
from .verify_facts import Facts, Findings, of_vm

_LOCKS = ("snapshot", "snapshot-delete", "rollback")


def unfinished_snapshots(facts: Facts, vm: Vm) -> Findings:
    """Yield the snapshots of a VM that are half made or half deleted, and a lock that such a command has left."""
    config = vm.config
    if config.proxmox.get("lock") in _LOCKS:
        yield of_vm(vm, "unfinished_snapshot", config.frozen, volume="")
        return
    for one in (one for one in config.snapshots if one.unfinished):
        by_task = not one.off and not snapshots.deletion_command(vm, one)
        text = f"snapshot {one.name} is half made or half deleted; {snapshots.what_deletes(vm, one)}"
        yield of_vm(vm, "unfinished_snapshot", text, volume="", repair=_given_up(vm, one.name) if by_task else None)


def _given_up(vm: Vm, name: str) -> Task:
    return {OURS + "vm_snapshot": {"vms": [vm.config.uuid], "name": name, "state": "absent"}}
