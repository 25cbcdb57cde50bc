# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""host_info on the node: what a planner of placements is told, and that no figure promises too much."""

from __future__ import annotations

import time

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.host_info import host_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
LAST = "ffffffff-0000-4000-8000-00000000000f"


def ask(sim, pool=None):
    return host_info(Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner), pool)


def zfs(sim, name, *properties):
    return [int(sim.run("zfs", "get", "-Hpo", "value", each, name)) for each in properties]


def test_the_machine(sim):
    began = int(time.time())
    sim.adopted(64)
    sim.create(uuid=OTHER, alias="web02", ram=512)
    sim.run("vmadm", "start", OTHER)
    result = ask(sim)
    assert (result["driver"], result["cpus"]) == ("vmadm", 16)
    assert began <= result["collected"] <= time.time()
    assert result["memory"] == {"total": 65536, "own": 4096, "free": 65536 - 4096 - 512}
    sim.admin("machine", "memory=1024", "own=600", "cpus=2")
    assert (ask(sim)["memory"], ask(sim)["cpus"]) == ({"total": 1024, "own": 512, "free": 0}, 2)
    sim.admin("machine", "own=0")
    assert ask(sim)["memory"] == {"total": 1024, "own": 0, "free": 512}


def test_memory_of_what_is_not_shown_is_the_hosts_own(sim):
    sim.admin("machine", "own=100")
    sim.create()
    sim.run("vmadm", "start", VM)
    sim.node.vmadm_state["vms"][VM]["cfg"]["brand"] = "kvm"
    result = ask(sim)
    assert result["vms"] == []
    assert result["memory"] == {"total": 65536, "own": 1124, "free": 65536 - 1124}


def test_vms(sim):
    sim.create(uuid=LAST, alias="last", flexible=None, sizes=())
    sim.adopted(1024, tags={"role": "web", "n": 1})
    sim.run("zfs", "set", "flexdisk:drained=true", f"zones/{VM}")
    web, last = ask(sim)["vms"]
    [quota] = zfs(sim, f"zones/{VM}", "quota")
    assert web == {
        "uuid": VM,
        "alias": "web01",
        "state": "stopped",
        "memory": 1024,
        "vcpus": 1,
        "drained": True,
        "disks": {"zones": -(-quota // MIB)},
        "tags": {"role": "web", "n": "1"},
    }
    assert (last["alias"], last["drained"], last["tags"]) == ("last", False, {})
    [quota] = zfs(sim, f"zones/{LAST}", "quota")
    assert last["disks"] == {"zones": -(-quota // MIB)}


def test_a_quota_that_has_drifted_is_told_by_the_law(sim):
    sim.adopted(1024)
    before = ask(sim)["vms"][0]["disks"]
    sim.run("zfs", "set", "quota=60G", "reservation=60G", f"zones/{VM}")
    assert ask(sim)["vms"][0]["disks"] == before


def test_a_vm_takes_at_least_what_it_holds(sim):
    """Without a quota, what snapshots hold comes on top of the law."""
    sim.adopted(64, flexible=None)
    sim.run("zfs", "set", "quota=none", "reservation=none", f"zones/{VM}")
    law = space.expected_quota(sim.vm(), sim.geometry())
    assert ask(sim)["vms"][0]["disks"] == {"zones": -(-law // MIB)}
    for number in range(40):
        sim.write(f"zones/{VM}/disk0", number, 0, 300)
        sim.run("zfs", "snapshot", f"zones/{VM}/disk0@n{number}")
    [used] = zfs(sim, f"zones/{VM}", "used")
    assert used > law
    assert ask(sim)["vms"][0]["disks"] == {"zones": -(-used // MIB)}


def test_pools(sim):
    sim.adopted(1024, 64)
    sim.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a"}], "unlisted": "detach"})
    [parked] = zfs(sim, sim.detached()["b"].volume.name, "used")
    sim.run("zfs", "create", "-o", "canmount=off", "zones/flexdisk/replica")
    sim.run("zfs", "create", "-V", "100000K", f"zones/flexdisk/replica/{OTHER}")
    [replicas] = zfs(sim, "zones/flexdisk/replica", "used")
    guid, used, available = zfs(sim, "zones", "guid", "used", "available")
    assert ask(sim)["pools"] == [
        {
            "name": "zones",
            "guid": guid,
            "size": (used + available) // MIB,
            "available": available // MIB,
            "parked": -(-parked // MIB),
            "replicas": -(-replicas // MIB),
        }
    ]


def test_replicas(sim):
    """Of which VM, in which pool, and from which home; each once."""
    place = "zones/flexdisk/replica"
    sim.run("zfs", "create", "-p", "-o", "canmount=off", place)
    for number, facts in enumerate(({"vm": VM, "home": 7}, {"vm": VM, "home": 7}, {"vm": LAST, "home": "x"}, {})):
        arguments = [f"-o flexdisk:replica.{key}={value}" for key, value in facts.items()]
        name = f"{place}/{OTHER[:-1]}{number}"
        sim.run("zfs", "create", "-V", "16M", *" ".join(arguments).split(), name)
    assert ask(sim)["replicas"] == [
        {"vm": uuid, "pool": "zones", "home": home} for uuid, home in sorted([(VM, 7), (LAST, 0)])
    ]


@pytest.fixture
def pools(sim):
    """Beside zones pools with a VM, with a container only, and with neither."""
    for name in ("fast", "kept", "other"):
        sim.node.pools.add_pool(name, 64 << 30, 12, [{"type": "disk", "disks": 1}], "illumos")
    sim.create(zpool="fast", disks=[{"size": 64, "boot": True, "model": "virtio"}])
    sim.run("zfs", "create", "kept/flexdisk")
    return sim


def test_which_pools(pools):
    assert [pool["name"] for pool in ask(pools)["pools"]] == ["fast", "kept", "zones"]
    for name, vms in (("fast", 1), ("other", 0)):
        result = ask(pools, name)
        assert [pool["name"] for pool in result["pools"]] == [name]
        assert [list(vm["disks"]) for vm in result["vms"]] == [[name]] * vms
    with pytest.raises(FlexdiskError, match="no such pool: nowhere"):
        ask(pools, "nowhere")


def test_a_host_without_vms_shows_the_pool_of_its_first_vm(sim):
    [pool] = ask(sim)["pools"]
    assert (pool["name"], pool["parked"], pool["replicas"]) == ("zones", 0, 0)
    assert pool["available"] > 0


@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize(("vdev", "processes"), [("disk", 5), ("raidz1", 6)])
def test_the_number_of_processes_does_not_depend_on_that_of_vms(count, vdev, processes):
    sim = Simulated(size=1 << 40, vdev=vdev)
    for number in range(count):
        sim.create(uuid="cccccccc-0000-4000-8000-%012d" % number, alias=f"vm{number}", sizes=(64, 64))
    sim.calls.clear()
    assert len(ask(sim)["vms"]) == count
    assert len(sim.calls) == processes, sim.calls
    assert not any(changes(call) for call in sim.calls)
