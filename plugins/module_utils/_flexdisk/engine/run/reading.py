# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drivers of modules that only read. Those of Proxmox VE travel with no other module."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ..host.runner import SubprocessRunner
from .module_run import VMS_THAT_ARE_THERE


def _proxmox(root: str, _runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.pve_vms import ProxmoxVms

    return ProxmoxVms(root)


READING = VMS_THAT_ARE_THERE._replace(proxmox=_proxmox)
