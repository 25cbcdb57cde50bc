# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vmadm needs of the machine it runs on, and what it keeps there."""

from __future__ import annotations

from typing import Any, Dict, List, Protocol, Tuple

from simnode.vmadm.errors import VmError

Result = Tuple[int, str, str]
MIB = 1 << 20
GIB = 1 << 30
DEFAULT_POOL = "zones"
ZVOL_PREFIX = "/dev/zvol/rdsk/"
SERVER_UUID = "00000000-0000-4000-8000-00000000abcd"
BUILDSTAMP = "20260113T000000Z"


class VmadmHost(Protocol):
    """All that vmadm may touch: the simulated node, or a machine with a real ZFS."""

    state: Dict[str, Any]

    def zfs(self, argv: List[str]) -> Result:
        """Run zfs; argv without the program's name."""

    def zpool(self, argv: List[str]) -> Result:
        """Run zpool; argv without the program's name."""

    def events(self, cursor: int) -> List[Tuple[int, str, str]]:
        """(sequence, kind, dataset) of what changed after `cursor`. A rename carries the old name only."""

    def now(self) -> float:
        """Epoch seconds."""

    def sleep(self, seconds: float) -> None:
        """Let time pass."""


def zfs(host: VmadmHost, *argv: str) -> str:
    """stdout of a zfs command that must succeed.

    Raises VmError with the text that node's execFile makes of a failure.
    """
    code, out, err = host.zfs(list(argv))
    if code != 0:
        raise ZfsFailed(err)
    return out


class ZfsFailed(VmError):
    """A zfs command failed; `stderr` is what it said."""

    def __init__(self, stderr: str) -> None:
        super().__init__("Command failed: " + stderr)
        self.stderr = stderr

    def bare(self) -> VmError:
        """Return the error without the prefix of execFile, as the quota code reports it."""
        return VmError(self.stderr.rstrip())


def zfs_get(host: VmadmHost, dataset: str, *properties: str) -> Dict[str, Any]:
    """Properties of a dataset; integers where the value looks like one."""
    out = zfs(host, "get", "-Hpo", "property,value", ",".join(properties), dataset)
    values: Dict[str, Any] = {}
    for line in out.splitlines():
        name, _tab, value = line.partition("\t")
        values[name] = int(value) if value.isdigit() else value
    return values


def pools(host: VmadmHost) -> List[str]:
    code, out, _err = host.zpool(["list", "-H", "-p", "-o", "name"])
    return out.split() if code == 0 else []
