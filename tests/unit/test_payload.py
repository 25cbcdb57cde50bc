# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What travels to a host with each module has a budget: who exceeds it decides to, and changes the table."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# KiB of the compressed archive. tests/tools/payload.py MODULE shows which files take them.
BUDGET = {
    "disk": 383,
    "disk_adopt": 392,
    "disk_info": 326,
    "disk_verify": 403,
    "group_lease": 203,
    "guest_growth": 60,
    "guest_growth_info": 70,
    "host_info": 300,
    "host_metrics": 260,
    "host_status": 258,
    "host_step": 576,
    "progress_info": 52,
    "replica_info": 357,
    "vm": 375,
    "vm_disks": 355,
    "vm_info": 325,
    "vm_snapshot": 403,
    "zfs_quota": 372,
}
SLACK = 25  # KiB by which a module may stay below its budget


@pytest.fixture
def payload(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "tools"))
    import payload

    return payload


def test_every_module_of_hosts_has_a_budget(payload):
    assert payload.modules() == sorted(BUDGET)


@pytest.mark.parametrize("module", sorted(BUDGET))
def test_a_module_keeps_to_its_budget(payload, module):
    """One that has become much smaller gets a smaller budget, so that the gain is kept."""
    size = payload.zipped_kib(payload.payload(module))
    assert BUDGET[module] - SLACK < size <= BUDGET[module]


def test_what_a_module_cannot_need_does_not_travel_with_it(payload):
    travels = {module: [path.partition("/_flexdisk/")[2] for path in payload.payload(module)] for module in BUDGET}
    for module, paths in travels.items():
        assert not [path for path in paths if path.startswith(("fleet/placement/", "fleet/page/"))], module
    for module in ("guest_growth", "guest_growth_info", "progress_info"):
        assert not [path for path in travels[module] if path.startswith(("plan/", "zfs/", "hypervisor/libvirt_d"))]
    for module in ("disk_info", "host_info", "vm_info", "replica_info", "group_lease"):
        assert not [path for path in travels[module] if path.startswith("engine/steps/apply")], module
    changing = {"disk", "disk_adopt", "vm_disks", "vm_snapshot"}
    assert {module for module, paths in travels.items() if "hypervisor/pve_disks.py" in paths} == changing
    reading = {"disk_info", "disk_verify", "host_info", "host_metrics", "host_status", "replica_info"}
    reading |= {"vm_info", "zfs_quota", "group_lease"}
    assert {module for module, paths in travels.items() if "hypervisor/pve_vms.py" in paths} == reading | changing
    for module in BUDGET.keys() - {"host_step", "vm"}:
        of_whole_vms = {f"hypervisor/{name}.py" for name in ("libvirt_driver", "vmadm", "domain_travel", "images")}
        assert not of_whole_vms.intersection(travels[module]), module
