# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_info on a host with libvirt."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.host_info import host_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space

from .conftest import OTHER, VM


def ask(linux, pool=None):
    return host_info(linux.zfs(), linux.driver(), pool)


def test_the_host(linux):
    linux.adopted(64)
    linux.domains.boot(VM)
    result = ask(linux)
    assert (result["driver"], result["cpus"]) == ("libvirt", 16)
    assert result["memory"] == {"total": 65536, "own": 4096, "free": 65536 - 4096 - 64}
    quota = int(linux.run("zfs", "get", "-Hpo", "value", "quota", f"tank/{VM}"))
    [vm] = result["vms"]
    assert (vm["uuid"], vm["state"], vm["memory"], vm["vcpus"]) == (VM, "running", 64, 1)
    assert vm["disks"] == {"tank": -(-quota // MIB)}
    [pool] = result["pools"]
    assert (pool["name"], pool["parked"], pool["replicas"]) == ("tank", 0, 0)


def test_memory_that_guests_have_not_touched_is_not_taken_from_the_hosts_own(linux):
    linux.create()
    linux.domains.boot(VM)
    linux.domains.own = -64
    assert ask(linux)["memory"] == {"total": 65536, "own": 0, "free": 65536}


def test_sparse_disks_without_a_quota_count_in_full(linux):
    linux.create((64,))
    linux.run("zfs", "set", "refreservation=none", f"tank/{VM}/disk0")
    law = space.expected_quota(linux.vm(), linux.host().geometry["tank"])
    assert law > 64 * MIB
    assert [vm["disks"] for vm in ask(linux)["vms"]] == [{"tank": -(-law // MIB)}]


def test_a_host_without_vms_has_only_the_pool_that_is_named(linux):
    assert ask(linux)["pools"] == []
    assert [pool["name"] for pool in ask(linux, "tank")["pools"]] == ["tank"]


@pytest.mark.parametrize("count", [1, 9])
def test_the_number_of_processes_does_not_depend_on_that_of_vms(linux, count):
    for number in range(count):
        linux.create(uuid=f"{OTHER[:-1]}{number}", name=f"vm{number}")
    linux.calls.clear()
    assert len(ask(linux)["vms"]) == count
    assert len(linux.calls) == 2, linux.calls
    assert not any(changes(call) for call in linux.calls)
