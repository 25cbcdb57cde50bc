# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All VMs of a host in one call: the pool's last space, the order, the processes."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
THIRD = "cccccccc-0000-4000-8000-000000000003"
ROOT = {"name": "root"}


@pytest.fixture
def pair(sim):
    sim.adopted(4096)
    sim.adopted(4096, uuid=OTHER, alias="web02")
    return sim


def fill(sim, left_mib):
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (left_mib << 20)}", "zones/ballast")


def test_who_releases_goes_first(pair):
    """web01 grows by what web02 gives back, in a pool with 64 MiB left."""
    fill(pair, 64)
    grows, shrinks = {"vm": "web01", "flexible_disk_size": 40960}, {"vm": "web02", "flexible_disk_size": 20480}
    done = pair.four_steps(grows, shrinks)
    assert [v["alias"] for v in done.vms] == ["web01", "web02"], "results keep the order of the task"


def test_not_even_together(pair):
    fill(pair, 64)
    before = pair.fingerprint()
    grows, shrinks = {"vm": "web01", "flexible_disk_size": 40961 + 64}, {"vm": "web02", "flexible_disk_size": 20480}
    refused = pair.converge(grows, shrinks)
    assert [(p.code, p.vm) for p in refused.problems] == [("InsufficientSpace", "web01")]
    assert "64 MiB left" in refused.problems[0].message
    assert "65 MiB" in refused.problems[0].message
    assert pair.fingerprint() == before


def test_a_destroyed_detached_disk_makes_room_for_another_vm(pair):
    pair.four_steps({"vm": "web02", "disks": [ROOT], "unlisted": "detach"})
    fill(pair, 64)
    gone = {"vm": "web02", "disks": [ROOT, {"name": "a", "state": "absent"}]}
    pair.four_steps({"vm": "web01", "flexible_disk_size": 30720 + 4096}, gone)


def test_detaching_and_lowering_in_one_task(pair):
    """The detached disk leaves the VM's reservation only when F falls: on the way both must not be needed at once."""
    fill(pair, 200)
    pair.four_steps({"vm": "web01", "disks": [ROOT], "unlisted": "detach", "flexible_disk_size": 30720 - 4096})


def test_detaching_and_lowering_the_quota_in_one_task(pair):
    pair.four_steps({"vm": "web01", "quota": "5GiB"})
    fill(pair, 200)
    pair.four_steps({"vm": "web01", "disks": [ROOT], "unlisted": "detach", "quota": "1GiB"})


def test_one_disk_goes_as_another_comes(pair):
    """In a pool with no room for either beside the other."""
    pair.four_steps({"vm": "web01", "disks": [ROOT, {"name": "b", "size": 4096}], "unlisted": "detach"})
    fill(pair, 200)
    pair.four_steps({"vm": "web01", "disks": [ROOT, {"name": "a"}], "unlisted": "detach"})
    assert set(pair.detached()) == {"b"}


def test_one_detached_disk_goes_for_another(pair):
    pair.four_steps({"vm": "web01", "disks": [ROOT, {"name": "b", "size": 4096}], "unlisted": "detach"})
    fill(pair, 200)
    pair.four_steps({"vm": "web01", "disks": [ROOT, {"name": "a", "state": "absent"}], "unlisted": "detach"})
    assert set(pair.detached()) == {"b"}


def test_what_is_needed_on_the_way_is_refused_before(pair):
    """In the end the pool gives nothing, but between detaching and lowering stands a resize, which needs it all."""
    pair.four_steps({"vm": "web01", "disks": [ROOT, {"name": "a"}, {"name": "b", "size": 2048}]})
    fill(pair, 200)
    before = pair.fingerprint()
    smaller = {"name": "b", "size": 1024, "dangerous_allow_shrink": True}
    spec = {"vm": "web01", "disks": [ROOT, smaller], "unlisted": "detach", "flexible_disk_size": 30720 - 4096}
    refused = pair.converge(spec)
    assert [(p.code, p.vm) for p in refused.problems] == [("InsufficientSpace", "web01")]
    assert "200 MiB left" in refused.problems[0].message
    assert pair.fingerprint() == before


def test_quota_of_one_vm_against_flexible_of_another(pair):
    fill(pair, 64)
    pair.four_steps({"vm": "web01", "quota": "11GiB"}, {"vm": "web02", "flexible_disk_size": 20480})


def test_several_problems_and_several_changes(sim):
    for number, uuid in enumerate((VM, OTHER, THIRD)):
        sim.adopted(512, uuid=uuid, alias="web0%d" % number)
    specs = [
        {"vm": "web00", "disks": [ROOT, {"name": "a", "size": 1024}]},
        {"vm": OTHER, "disks": [ROOT, {"name": "a"}, {"name": "n", "size": 64}]},
        {"vm": "cccccccc-0000-4000-8000-000000000003", "disks": [ROOT], "unlisted": "detach"},
    ]
    done = sim.four_steps(*specs)
    assert [v["vm"] for v in done.vms] == [s["vm"] for s in specs]
    assert done.diff.index("web00") < done.diff.index("web01") < done.diff.index("web02")


# -- processes


@pytest.mark.parametrize("count", [1, 12])
@pytest.mark.parametrize("vdev", ["disk", "raidz1"])
def test_an_idle_run_starts_four_processes_at_most(count, vdev):
    sim = Simulated(size=1 << 40, vdev=vdev)
    specs = []
    for number in range(count):
        uuid = "cccccccc-0000-4000-8000-%012d" % number
        sim.adopted(64, 64, uuid=uuid, alias="vm%d" % number)
        specs.append({"vm": uuid, "disks": [ROOT, {"name": "a", "size": 64}, {"name": "b", "size": 64}]})
    for check in (True, False):
        sim.calls.clear()
        assert not sim.converge(*specs, check=check).changed
        assert len(sim.calls) <= 4, sim.calls
    for figures in (True, False):
        sim.calls.clear()
        result = info(Zfs(sim.runner), Vmadm(sim.runner), None, None, figures)
        assert len(result.vms) == count
        assert len(sim.calls) <= 4
    sim.calls.clear()
    assert not sim.quota().changed
    assert len(sim.calls) <= 4


def test_adoption_asks_for_no_forecast(sim):
    """Forecasts are confirmed for volumes that come or change, not for those that only get a name."""
    sim.create(sizes=(64, 128))
    sim.calls.clear()
    entries = [{"name": "root", "boot": True}, {"name": "a", "size": 64}, {"name": "b", "size": 128}]
    assert sim.converge({"vm": "web01", "disks": entries}).changed
    assert not [call for call in sim.calls if call[:3] == ["zfs", "create", "-nP"]]
