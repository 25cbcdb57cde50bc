# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drivers of modules that make, change, delete or move whole VMs. Other modules travel without these parts."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ..host.runner import SubprocessRunner
from .module_run import Drivers


def _vmadm(runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.vmadm import Vmadm

    return Vmadm(runner)


def _libvirt(uri: str, runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.libvirt_driver import Libvirt
    from ...hypervisor.libvirt_host import HostConnection
    from ...zfs.devices import at

    return Libvirt(HostConnection(uri, at), uri, runner)


WHOLE_VMS = Drivers(_vmadm, _libvirt)
