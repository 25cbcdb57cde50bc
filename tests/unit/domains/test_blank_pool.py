# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""ZFS allows pools with a blank in their name. VMs there are read, and nothing of them is changed."""

from __future__ import annotations

import pytest
from simnode import Node
from simnode.node import PoolSpec

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import _wrong_names

from .conftest import OTHER, VM, LinuxHost, domain
from .files import FakeFiles
from .test_disk_adopt import refusal as adoption
from .test_vm import refusal
from .test_vm_disks import spec

WORDS = "pool 'my pool' has a blank in its name, and nothing is changed in such a pool; zpool export 'my pool' and"


@pytest.fixture
def blank():
    linux = LinuxHost()
    pools = [PoolSpec(p, 64 << 30, 12, [{"type": "disk", "disks": 1}], "openzfs-2.1") for p in ("my pool", "tank")]
    linux.node = Node.create(None, pools)
    linux.files = FakeFiles(linux.node.pools)
    return linux


@pytest.mark.parametrize("home", [VM, "vms"])
def test_a_vm_in_such_a_pool_is_read_and_not_changed(blank, home):
    """In its own dataset, and elsewhere."""
    blank.create((64,), uuid=OTHER, name="other")
    blank.run("zfs", "create", f"my pool/{home}")
    blank.run("zfs", "create", "-V", "64M", f"my pool/{home}/disk0")
    blank.domains.add(domain([f"my+pool/{home}/disk0"]))
    assert ("web01" in {vm.config.alias for vm in blank.host().vms}) == (home == VM)
    for check in (True, False):
        [problem] = blank.converge(spec(adopt=True, flexible_disk_size="1GiB"), check=check).problems
        assert WORDS in problem.message
    assert WORDS in adoption(blank, *(["NotSupported"] if home == VM else ["ResourceNotFound"]), vms=[{"vm": "web01"}])
    assert blank.converge({**spec(flexible_disk_size="1GiB"), "vm": "other"}).problems == []


def test_no_vm_is_made_there(blank):
    disks = [{"name": "root", "boot": True, "size": 16}]
    assert WORDS in refusal(blank, "NotSupported", {"vm": "new", "disks": disks}, pool="my pool")


@pytest.mark.parametrize("option", ["pool", "peer_pool", "target_pool"])
def test_an_option_that_names_such_a_pool_is_refused(option):
    [message] = _wrong_names({option: "my pool"})
    assert message.message.startswith(WORDS)
    assert list(_wrong_names({option: "pool"})) == []
