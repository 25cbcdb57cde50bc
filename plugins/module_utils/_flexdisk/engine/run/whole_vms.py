# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drivers of modules that make, change, delete or move whole VMs. Other modules travel without these parts."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ...model.errors import FlexdiskError
from ..host.runner import SubprocessRunner
from .module_run import Drivers

LEFT_TO_PROXMOX = (
    "this host runs Proxmox VE, which creates, changes, starts, stops and deletes VMs with qm, and has moves, replicas "
    "and failover (HA) of its own: this collection does none of that there"
)


def _vmadm(runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.vmadm import Vmadm

    return Vmadm(runner)


def _libvirt(uri: str, runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.libvirt_driver import Libvirt
    from ...hypervisor.libvirt_host import HostConnection
    from ...zfs.devices import at

    return Libvirt(HostConnection(uri, at), uri, runner)


def _left_to_proxmox(_root: str, _runner: SubprocessRunner) -> Hypervisor:
    raise FlexdiskError("NotSupported", LEFT_TO_PROXMOX)


WHOLE_VMS = Drivers(_vmadm, _libvirt, _left_to_proxmox)
