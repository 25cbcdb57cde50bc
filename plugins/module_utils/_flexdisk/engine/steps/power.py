# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts VMs, after it has asked whether each may run on this host. Nothing else starts one."""

from __future__ import annotations

from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...rules.failover import BOOT
from ...rules.power import TASK, check_start
from ...zfs.commands import Zfs
from . import autoboot


def start(hypervisor: Hypervisor, vm: Vm, asks: str = TASK) -> None:
    """Start the VM if it may run here (rules/power.py). vmadm turns autoboot on with it, also if the start fails.

    vm: as it is known to be now. Other VMs that have its disks may have been started since it was read, also by the
    same task, so they are looked at here. asks: what wants to start it.
    """
    check_start(_beside(hypervisor, vm), asks)
    try:
        hypervisor.start(vm.config.uuid)
    finally:
        autoboot.keep_off(hypervisor, vm)


def _beside(hypervisor: Hypervisor, vm: Vm) -> Vm:
    """The VM with the present states of the VMs that have its disks, too. One process for each of them."""
    if not vm.sharers:
        return vm
    states = {uuid: _state(hypervisor, uuid) for uuid in sorted({one.uuid for one in vm.sharers})}
    now = replace(vm, sharers=tuple(one._replace(state=states[one.uuid]) for one in vm.sharers))
    return replace(now, ran=vm.ran and now.beside_no_more_than(vm))


def _state(hypervisor: Hypervisor, uuid: str) -> str:
    try:
        return hypervisor.vm(uuid).state
    except FlexdiskError as exc:
        if exc.code != "ResourceNotFound":
            raise
        return "stopped"  # it is not there any more


def note_home(zfs: Zfs, hypervisor: Hypervisor, vm: Vm) -> None:
    """Write down that this host is the home of a VM with failover, for as long as the host does not boot."""
    boot = hypervisor.boot_id()
    if boot:
        zfs.set_facts(vm.root.name, {BOOT: boot})
