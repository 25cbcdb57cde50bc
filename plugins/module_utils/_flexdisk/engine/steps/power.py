# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starts VMs, after a check that each may run on this host. Nothing else starts a VM."""

from __future__ import annotations

from dataclasses import replace

from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError
from ...model.vm import Vm
from ...rules.failover import AT_HOME_PROPERTY
from ...rules.power import START_HOST, TASK, check_start
from ...zfs.commands import Zfs
from . import autoboot


def start(hypervisor: Hypervisor, vm: Vm, requester: str = TASK) -> None:
    """Start the VM if it may run here (rules/power.py). Raises FlexdiskError.

    The states of other VMs that share its disks are read again first, because they may have been started since. vmadm
    turns autoboot on with a start, even if it fails, so autoboot is turned off again for a VM with failover.

    vm: as it is known to be now. requester: what wants to start it, one of the constants of rules/power.py.
    """
    check_start(_with_states_of_sharers(hypervisor, vm), requester)
    try:
        # In the middle of a task, memory that somebody has just saved may not fit to the disks any more.
        hypervisor.start(vm.config.uuid, saved=requester == START_HOST)
    finally:
        autoboot.keep_off(hypervisor, vm)


def _with_states_of_sharers(hypervisor: Hypervisor, vm: Vm) -> Vm:
    """Return the VM with the current states of the VMs that share its disks. It takes one process for each of them."""
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
    """Write down that this host is the home of a VM with failover, until the host boots again."""
    boot = hypervisor.boot_id()
    if boot:
        zfs.set_facts(vm.root.name, {AT_HOME_PROPERTY: boot})
