# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The quota of a VM's dataset, computed anew when the VM's quota or flexible_disk_size changes."""

from __future__ import annotations

from typing import Any, List

from simnode.vmadm import jsvalues as js
from simnode.vmadm.host import GIB, MIB, VmadmHost, ZfsFailed, zfs

BHYVE_MINIMUM = 1


def _zfs(host: VmadmHost, *argv: str) -> str:
    try:
        return zfs(host, *argv)
    except ZfsFailed as error:
        raise error.bare() from error


def set_quota(host: VmadmHost, brand: str, dataset: str, quota: Any, flexible: Any) -> None:
    """`quota` is GiB, `flexible` MiB (or unset). Raises VmError."""
    if brand == "bhyve":
        set_quota_bhyve(host, dataset, quota, flexible)
        return
    value = "none" if quota in (0, "0") else js.to_string(quota) + "g"
    _zfs(host, "set", "quota=" + value, dataset)


def set_quota_bhyve(host: VmadmHost, dataset: str, quota: Any, flexible: Any) -> None:
    """Every volume below `dataset` gets its automatic refreservation; the dataset its quota and reservation.

    The quota is `q + F + sum(refreservation) - sum(volsize)`, or `q + sum(refreservation)` without F, unless the
    VM's own quota alone is larger. 1 MiB of q stays unreserved.
    """
    base = int(max(BHYVE_MINIMUM, js.to_number(quota)) * GIB)
    flex = js.to_number(flexible) if flexible else 0
    _zfs(host, "set", "refreservation=none", "refquota=%d" % base, dataset)
    listed = _zfs(host, "list", "-Hrpt", "volume", "-o", "name,volsize", dataset)
    volumes: List[str] = []
    sizes = 0
    for line in listed.splitlines():
        name, size = line.split("\t")
        volumes.append(name)
        sizes += int(size)
    for volume in volumes:
        _zfs(host, "set", "refreservation=auto", volume)
    reserved = 0
    if volumes:
        reserved = sum(
            int(size) for size in _zfs(host, "list", "-Hpr", "-t", "volume", "-o", "refreservation", dataset).split()
        )
    total = base + reserved + (int(flex * MIB) - sizes if flex else 0)
    shown = "%sg" % js.to_string(quota) if js.to_number(quota) * GIB > total else str(total)
    _zfs(host, "set", "quota=" + shown, "reservation=" + shown, "refreservation=%d" % max(0, base - MIB), dataset)


def change_is_due(payload: Any, vm: Any) -> bool:
    """Return whether quota or flexible_disk_size differ as numbers. Two values that are no numbers differ."""
    for key in ("quota", "flexible_disk_size"):
        if key in payload and js.to_number(payload[key]) != js.to_number(vm.get(key, js.UNDEFINED)):
            return True
    return False
