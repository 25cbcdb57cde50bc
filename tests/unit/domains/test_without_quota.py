# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM that was made by hand, so that its dataset has no quota: the first task does what check mode says."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk_adopt

from .conftest import VM
from .test_in_use import findings, vm_task

ROOT = {"name": "disk0", "boot": True}
TASKS = {
    "detach": [ROOT],
    "grow": [ROOT, {"name": "disk1", "size": 48}],
    "add": [ROOT, {"name": "disk1"}, {"name": "new", "size": 16}],
}


@pytest.fixture
def bare(linux):
    """The VM with two adopted disks, and without a quota."""
    linux.create((64, 32))
    adopted = disk_adopt.run(linux.zfs(), linux.driver(), [{"vm": VM}], "adopted", False, None, False).outcome
    assert (adopted.problems, adopted.failure) == ([], None)
    assert linux.run("zfs", "get", "-Hpo", "value", "quota", f"tank/{VM}").strip() == "0"
    return linux


def lose(linux):
    """The second disk is not configured any more."""
    devices = linux.domains.configs[VM].find("devices")
    devices.remove(devices.findall("disk")[1])


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_its_disks_change(bare, task, orphan):
    if orphan:
        lose(bare)
    flexible = {} if task == "detach" else {"flexible_disk_size": 256}
    bare.four_steps({"vm": VM, "disks": TASKS[task], "unlisted": "detach", **flexible}, allow_restart=True)


def test_an_orphan_is_detached_by_disk_verify(bare):
    lose(bare)
    done = findings(bare, "orphan_volume").outcome
    assert (done.problems, done.failure, done.changed) == ([], None, True)


def test_it_is_deleted_and_a_preserved_disk_stays(bare):
    bare.run("zfs", "set", "flexdisk:preserve=true", f"tank/{VM}/disk1")
    predicted, done = (vm_task(bare, check, state="absent") for check in (True, False))
    assert (done.problems, done.failure, done.plan) == ([], None, predicted.plan)
    assert VM not in bare.domains.configs
