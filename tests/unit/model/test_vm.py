# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a VM says of the other VMs that have its disks."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import (
    SAVED,
    Disk,
    Intent,
    Sharer,
    Vm,
    VmConfig,
)

CONFIG = VmConfig("u1", "web01", "bhyve", "stopped", False, "zones", "zones/u1", 1024)


@pytest.mark.parametrize("state", ["running", "paused", "stopping", "unknown", SAVED])
def test_who_is_not_stopped_writes(state):
    """A paused VM goes on, and a saved one comes back, with what it has in its memory."""
    others = (Sharer("zones/u1/disk1", "u2", "web02", state), Sharer("zones/u1/disk1", "u3", "web03", "stopped"))
    vm = Vm(CONFIG, Dataset("zones/u1", "filesystem"), sharers=others)
    assert vm.writers == others[:1]
    assert vm.shared == (f"zones/u1/disk1 is in use by web02, which is {state}",)


@pytest.mark.parametrize("boots", [True, False])
def test_a_boot_disk_that_an_interrupted_run_has_taken_is_remembered(boots):
    """Else the VM would be started without one."""
    root = Dataset("zones/u1", "filesystem")
    entry = Intent("p", "hv01", "2026-01-01T00:00:00Z", "running", True, True, boots=boots)
    assert Vm(CONFIG, root, interrupted=entry).booted == boots
    assert not Vm(CONFIG, root).booted
    disk = Disk(Dataset("zones/u1/disk0", "volume"), "u1", 0, boot=True)
    assert Vm(CONFIG, root, disks=(disk,)).booted
