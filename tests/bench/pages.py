# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a page, of results as the modules return them: how long it takes, and how large it is."""

from __future__ import annotations

import random
import time
import uuid
from typing import Any

MIB = 1048576
NOW = "2026-11-27T00:30:00Z"


def identity(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, ascii(name)))


def disk(name: str, gib: int, **more: Any) -> dict[str, Any]:
    """What ZFS reserves for it is a 32nd more."""
    given = {"name": name, "uuid": identity(name), "size": gib * 1024, "refreservation": gib * 1056, "pinned": 0}
    return {**given, "hidden": False, "description": "", "volume": f"zones/x/{name or 'disk0'}", **more}


def snapshot(name: str, frees: int, created: int = 1795000000) -> dict[str, Any]:
    return {"name": name, "disks": ["root"], "created": created, "frees_bytes": frees}


def vm(alias: str, disks: list[dict[str, Any]], flexible: int | None, **more: Any) -> dict[str, Any]:
    """flexible in GiB, None for a VM without flexible disk space."""
    held = sum(one["size"] + one["pinned"] for one in disks if not one["hidden"])
    given = {"uuid": identity(alias), "alias": alias, "state": "running", "disks": disks, "snapshots": []}
    size = None if flexible is None else flexible * 1024
    return {**given, "flexible_disk_size": size, "allocatable": None if size is None else size - held, **more}


def quota(of: dict[str, Any], drift: int = 0, cause: str = "") -> dict[str, Any]:
    """drift in MiB."""
    flexible = of["flexible_disk_size"]
    sizes = sum(one["size"] for one in of["disks"])
    law = 1024 + sum(one["refreservation"] for one in of["disks"]) + max(0, (flexible or 0) - sizes)
    figures = {"quota_bytes": (law + drift) * MIB, "reservation_bytes": (law + drift) * MIB}
    moved = {"quota_bytes": drift * MIB, "reservation_bytes": drift * MIB}
    return {"uuid": of["uuid"], "expected_bytes": law * MIB, "actual": figures, "drift": moved, "cause": cause}


def finding(severity: str, kind: str, of: dict[str, Any] | None, message: str, **more: Any) -> dict[str, Any]:
    who = {"vm": of["uuid"], "alias": of["alias"]} if of else {"vm": "", "alias": ""}
    return {
        "severity": severity,
        "kind": kind,
        **who,
        "disk": "",
        "volume": "",
        "message": message,
        "repair": None,
        **more,
    }


def host(
    vms: list[dict[str, Any]],
    quotas: list[dict[str, Any]],
    parked: list[dict[str, Any]],
    findings: list[dict[str, Any]],
    size: int,
    other: int = 2048,
) -> dict[str, Any]:
    """size of the pool in GiB, other in MiB."""
    detached = sum(one["refreservation"] + one["pinned"] for one in parked)
    taken = sum(one["actual"]["reservation_bytes"] for one in quotas) // MIB
    pool = {"name": "zones", "size": size * 1024, "parked": detached, "replicas": 4096}
    pool["available"] = pool["size"] - taken - detached - 4096 - other
    counts = {level: sum(one["severity"] == level for one in findings) for level in ("error", "warning", "info")}
    return {
        "vm_info": {
            "vms": vms,
            "parked": parked,
            "skipped_vms": [{"uuid": "z1", "alias": "zone", "reason": "brand lx"}],
        },
        "host_info": {"host": {"pools": [pool], "vms": [{"uuid": one["uuid"], "disks": {"zones": 1}} for one in vms]}},
        "disk_verify": {"findings": findings, "counts": counts},
        "zfs_quota": {"vms": quotas},
    }


def many(hosts: int, each: int) -> dict[str, Any]:
    """The same at every call."""
    chance = random.Random(7)
    found = {}
    for number in range(hosts):
        vms, quotas, findings, parked = [], [], [], []
        for place in range(each):
            sizes = [20, *chance.choices((10, 40, 100, 200), k=chance.randint(0, 3))]
            name = f"{chance.choice(('web', 'db', 'mail', 'build'))}-{number:02}-{place:03}"
            disks = [disk(f"d{n}", size, pinned=chance.choice((0, 0, 700))) for n, size in enumerate(sizes)]
            one = vm(name, disks, chance.choice((None, 50, 200)) and sum(sizes) + chance.choice((5, 50, 200)))
            one["snapshots"] = [snapshot(f"s{n}", chance.randint(1, 9 * 1024**3)) for n in range(chance.randint(0, 2))]
            vms.append(one)
            off = chance.random() < 0.03
            quotas.append(quota(one, 8, "overhead of a removed disk") if off else quota(one))
            if chance.random() < 0.03:
                findings.append(finding("warning", "stale_copy", one, "slot is 0:4:1, not 0:9:0", disk="d0"))
            if chance.random() < 0.05:
                parked.append(disk(f"old{place}", 30, vm=one["uuid"], mtime="2026-03-01T00:00:00Z"))
        found[f"hv{number:02}"] = host(vms, quotas, parked, findings, 60000)
    return found


def page(vms: int) -> tuple[float, int]:
    """Seconds and bytes of the page of so many VMs, on ten hosts."""
    from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.document import page

    found = many(10, vms // 10)
    start = time.perf_counter()
    made = page(found, NOW, {})
    return time.perf_counter() - start, len(made.encode())
