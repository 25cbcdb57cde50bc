# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the programs of Proxmox VE need of the node they run on."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Tuple

Result = Tuple[int, str, str]
MIB = 1 << 20
GIB = 1 << 30
NODE = "pve1"
STORAGE_CFG = "/etc/pve/storage.cfg"
REPLICATION_CFG = "/etc/pve/replication.cfg"
HA_RESOURCES = "/etc/pve/ha/resources.cfg"
JOBS_CFG = "/etc/pve/jobs.cfg"
DEVICES = "/dev/zvol/"


class Device(NamedTuple):
    """A block device as QEMU sees it. The identity stays when the volume is renamed."""

    size: int
    identity: str


class PveHost(Protocol):
    """All that `qm` and `pvesm` may touch: the simulated node, or a machine with a real ZFS."""

    state: Dict[str, Any]
    """What the running QEMUs have, and faults for tests: JSON values."""

    def zfs(self, argv: List[str]) -> Result:
        """Run zfs; argv without the program's name."""

    def zpool(self, argv: List[str]) -> Result:
        """Run zpool; argv without the program's name."""

    def read(self, path: str) -> Optional[str]:
        """Return a file's text, None if there is no such file."""

    def write(self, path: str, text: str) -> None:
        """Write a file as a whole. Raises PveError where /etc/pve is read-only."""

    def remove(self, path: str) -> None:
        """Remove a file that is there."""

    def names(self, folder: str) -> List[str]:
        """Return the sorted names of what is directly in a folder, [] if there is no such folder."""

    def lock(self, path: str) -> bool:
        """Take the flock of a file without waiting. Return whether it was free."""

    def unlock(self, path: str) -> None:
        """Give the flock back."""

    def device(self, path: str) -> Optional[Device]:
        """Return the block device at this path, None if there is none."""

    def copy(self, source: str, target: str) -> None:
        """Copy the contents of one volume to another, both by the name of the dataset."""

    def disk_space(self, path: str) -> Tuple[int, int]:
        """Return the bytes that are used and free in the file system of a folder."""

    def now(self) -> float:
        """Epoch seconds."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


def config_path(vmid: int, node: str = NODE) -> str:
    """Return the path of a VM's configuration file."""
    return f"/etc/pve/nodes/{node}/qemu-server/{vmid}.conf"


def home_of(host: PveHost, vmid: int) -> Optional[str]:
    """Return the node that has the VM, None if there is no such VM in the cluster."""
    for node in host.names("/etc/pve/nodes"):
        if f"{vmid}.conf" in host.names(f"/etc/pve/nodes/{node}/qemu-server"):
            return node
    return None


def vms_of_node(host: PveHost) -> List[int]:
    """Return the ids of this node's VMs, sorted."""
    names = host.names(f"/etc/pve/nodes/{NODE}/qemu-server")
    return sorted(int(name[:-5]) for name in names if name.endswith(".conf") and name[:-5].isdigit())
