# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Somebody takes a snapshot of the whole pool after the plan, at any moment: the engine itself never destroys it."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm, vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Policy,
    SnapshotDeclaration,
)

from .conftest import VM, LinuxHost

ROOT = f"tank/{VM}"
GONE = {"vm": VM, "state": "absent", "unlisted": "refuse", "destroy_disks": True, "destroy_snapshots": True}


def roll_back(linux, *more):
    spec, policy = SnapshotDeclaration("rolled_back", "one", newer=("two", *more)), Policy(allow_restart=True)
    return vm_snapshot.run(linux.zfs(), linux.driver(), [VM], spec, policy, None, False, 1_800_000_000)


def delete(linux):
    return vm.run(linux.zfs(), linux.driver(), [GONE], [], Policy(), "tank", False)


def destroy(linux):
    gone = {"name": "a", "state": "absent", "destroy_snapshots": True}
    return linux.converge({"vm": VM, "disks": [{"name": "root"}, gone]})


def convert(linux):
    return linux.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a", "type": "file"}]}, allow_restart=True)


def prepared(action):
    linux = LinuxHost()
    linux.adopted(32)
    if action is not convert:
        for name in ("one", "two"):
            spec = SnapshotDeclaration("present", name)
            vm_snapshot.run(linux.zfs(), linux.driver(), [VM], spec, Policy(), None, False, 1_800_000_000)
            linux.run("guest", "write", f"{ROOT}/disk1", "0", "4", "9")
    linux.run("zfs", "bookmark" if action is roll_back else "snapshot", *_others(action))
    linux.domains.boot(VM)
    return linux


def _others(action):
    return (f"{ROOT}/disk1@vmsnap-two", f"{ROOT}/disk1#mark") if action is roll_back else ("tank@before",)


@pytest.mark.parametrize("action", [roll_back, delete, destroy, convert])
def test_a_snapshot_taken_at_any_moment_outlives_the_task(action):
    refused = 0
    for number in range(100):
        linux = prepared(action)
        count, came = iter(range(1000)), []

        def hook(_who, argv, when, linux=linux, count=count, came=came, number=number):  # pylint: disable=dangerous-default-value
            if when == "before" and next(count) == number:
                linux.run("zfs", "snapshot", "-r", "tank@hourly")
                came.append(argv)

        linux.hook = linux.domains.hook = hook
        done = action(linux)
        linux.hook = linux.domains.hook = None
        assert done.problems == []
        if not came:
            assert done.failure is None, done.failure
            break
        names = linux.run("zfs", "list", "-Ho", "name", "-t", "snapshot", "-r", "tank").split()
        left = [name for name in names if name.endswith("@hourly") and (VM in name or "/flexdisk/" in name)]
        if done.failure is None:
            assert action in (roll_back, convert) or not [name for name in left if "disk1" in name or VM not in name]
            continue
        refused += 1
        assert done.failure["error_code"] == "Changed", done.failure
        assert left
        again = action(linux, "hourly") if action is roll_back else action(linux)
        assert again.failure is None
        assert again.problems == [] or action is convert
    assert refused
    if action is roll_back:
        assert "vmsnap-two" not in linux.run("zfs", "list", "-Ho", "name", "-t", "all", "-r", "tank")
