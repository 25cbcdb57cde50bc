# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the page is tested with: VMs with all that can be seen, and names of an attacker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

from pages import NOW, disk, finding, host, identity, many, quota, snapshot, vm

__all__ = ["HOSTILE", "NOW", "TURNED", "UNREAD", "few", "many"]

HOSTILE = "</script><img src=x onerror=alert(1)>"
TURNED = "\u202egpj.exe\u2066 {{ 1/0 }} \x00 \udcff"
HEBREW = "שרת-01"
UNREAD = {"hv09": f"Connection refused {HOSTILE}"}


def few() -> dict[str, Any]:
    """Three VMs on one host, and two with names of an attacker on another."""
    nocloud = disk("", 0, size=16, refreservation=17, hidden=True)
    web = vm("web01", [disk("root", 20, pinned=3072), disk("data", 50), nocloud], 100)
    web["snapshots"] = [snapshot("before", 3 * 1024**3), snapshot("nightly", 114688, 1795600000)]
    db = vm("db01", [disk("root", 10), disk("pgdata", 60)], 64)
    old = vm("legacy01", [disk("", 10)], None, state="stopped")
    drift = finding("warning", "quota_drift", web, "quota is 8 MiB above the law")
    gone = finding("error", "dangling_reference", db, "disk1 is gone", disk="disk1", volume="zones/x/disk1")
    repair = {"flexdisk.hypervisor.disk_verify": {"vms": [web["uuid"]], "repair": ["stale_copy"]}}
    stale = finding("info", "stale_copy", web, "slot is 0:4:1, not 0:9:0", disk="data", repair=repair)
    lone = finding("warning", "intent_index", None, "the list of intents is wrong", volume="zones/flexdisk")
    parked = [
        disk("archive", 40, vm=old["uuid"], mtime="2026-08-01T12:00:00Z", description="kept for the auditors"),
        disk("lost", 5, vm=identity("a VM of yesterday"), mtime="?"),
    ]
    quotas = [quota(web, 8, "overhead of a removed disk"), quota(db), quota(old)]
    evil = vm(HOSTILE, [disk(HOSTILE, 10, pinned=12)], 20, snapshots=[snapshot(HOSTILE, 5 * 1024**2)])
    turned = vm(TURNED, [disk(HEBREW, 10), disk("n" * 5000, 1)], 20)
    bad = [finding("error", "uuid_mismatch", evil, f"{TURNED}{HOSTILE}", disk=HOSTILE)]
    left = [disk(HEBREW, 1, vm="", description=f'"{HOSTILE}' * 20, mtime="2026-11-20T00:00:00Z")]
    return {
        "hv01": host([web, db, old], quotas, parked, [drift, gone, stale, lone], 400),
        f"hv<2>{HEBREW}": host([evil, turned], [quota(evil), quota(turned)], left, bad, 64),
    }
