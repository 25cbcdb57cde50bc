# Copyright (c) 2026, flexdisk.hypervisor contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The drivers of the module that takes snapshots of VMs, also on Proxmox VE."""

from __future__ import annotations

from ...hypervisor.protocol import Hypervisor
from ..host.runner import SubprocessRunner
from .module_run import VMS_THAT_ARE_THERE


def _proxmox(root: str, runner: SubprocessRunner) -> Hypervisor:
    from ...hypervisor.pve_snapshots import ProxmoxSnapshots

    return ProxmoxSnapshots(runner, root)


SNAPSHOTTING = VMS_THAT_ARE_THERE._replace(proxmox=_proxmox)
