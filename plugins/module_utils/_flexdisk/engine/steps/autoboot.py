# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a VM starts with its host. Of a VM with failover this is a property, and the hypervisor's autoboot is off."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ...model.vm import Vm
from ...rules.failover import FAILOVER_PROPERTY, encode_setting, setting_of
from ...zfs.commands import Zfs


def keep_off(hypervisor: Hypervisor, vm: Vm, check_mode: bool = False) -> bool:
    """Turn the hypervisor's autoboot off if the VM has failover. Return whether it was on."""
    was_on = vm.config.failover and hypervisor.vm(vm.config.uuid).autoboot
    if was_on and not check_mode:
        hypervisor.set_autoboot(vm.config.uuid, False)
    return was_on


def set_autoboot(zfs: Zfs, hypervisor: Hypervisor, vm: Vm, autoboot: bool) -> None:
    """Store whether the VM starts with its host."""
    if vm.config.failover:
        zfs.set_facts(
            vm.root.name,
            {FAILOVER_PROPERTY: encode_setting(setting_of(vm.config, vm.root)._replace(autoboot=autoboot))},
        )
        keep_off(hypervisor, vm)
    elif not vm.config.prefixes:  # Proxmox VE leaves it as it is
        hypervisor.set_autoboot(vm.config.uuid, autoboot)
