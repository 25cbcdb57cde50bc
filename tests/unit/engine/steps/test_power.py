# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running VMs: stopped only when allowed, for as short as can be, and left as they were."""

from __future__ import annotations

import pytest

from ..conftest import VM, Simulated, running


def spec(**data):
    return {"vm": "web01", "disks": [{"name": "root"}, {"name": "a", **data}]}


@pytest.mark.parametrize("autoboot", [True, False])
def test_autoboot_is_as_before(autoboot):
    sim = running(autoboot)
    done = sim.four_steps(spec(size=4096), allow_restart=True)
    kinds = [s["step"] for s in done.vms[0]["steps"]]
    assert kinds == ["stop", "grow", "start", *([] if autoboot else ["autoboot"])]
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", autoboot)


@pytest.mark.parametrize("autoboot", [True, False])
def test_a_stopped_vm_stays_stopped(autoboot):
    sim = Simulated()
    sim.adopted(2048)
    sim.run("vmadm", "update", VM, f"autoboot={str(autoboot).lower()}")
    sim.four_steps(spec(size=4096), allow_restart=True)
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("stopped", autoboot)


def test_what_can_be_done_live_is_not_worth_a_stop():
    sim = running()
    done = sim.four_steps(
        {"flexible_disk_size": "40GiB", "quota": "2GiB", **spec(compression="lz4", preserve=True)}, allow_restart=True
    )
    assert "stop" not in {s["step"] for s in done.vms[0]["steps"]}


def test_every_reason_is_named():
    sim = running()
    refused = sim.converge({**spec(size=4096, model="nvme"), "flexible_disk_size": "40GiB"})
    assert [p.code for p in refused.problems] == ["VmNotStopped"]
    message = refused.problems[0].message
    assert "model virtio -> nvme" in message
    assert "a 2 GiB -> 4 GiB" in message
    assert "flexible_disk_size" not in message


def test_everything_in_one_stop():
    sim = running()
    done = sim.four_steps(
        {
            "vm": "web01",
            "flexible_disk_size": "50GiB",
            "unlisted": "detach",
            "disks": [
                {"name": "root", "size": "11GiB"},
                {"name": "n", "size": 512},
                {"name": "r", "size": "remaining"},
            ],
        },
        allow_restart=True,
    )
    kinds = [s["step"] for s in done.vms[0]["steps"]]
    assert (kinds.count("stop"), kinds[-1]) == (1, "start")
    assert sim.get()["state"] == "running"


def test_drift_is_repaired_before_the_stop():
    sim = running()
    sim.run("zfs", "set", "quota=100G", "reservation=100G", f"zones/{VM}")
    done = sim.four_steps(spec(size=4096), allow_restart=True)
    assert [s["step"] for s in done.vms[0]["steps"]] == ["law", "stop", "grow", "start"]


@pytest.mark.parametrize("autoboot", [True, False])
def test_a_guest_that_does_not_shut_down_is_left_running(autoboot):
    sim = running(autoboot)
    sim.admin("vm-stop-hangs", VM, "on")
    done = sim.converge(spec(size=4096), allow_restart=True, stop_timeout=30)
    assert done.failure is not None
    assert done.failure["error_code"] == "VmNotStopped"
    assert "stop_timeout=30" in done.failure["message"]
    assert [s["status"] for s in done.failure["steps"]] == ["failed"] + ["not done"] * (len(done.failure["steps"]) - 1)
    assert (sim.get()["state"], sim.get()["autoboot"]) == ("running", autoboot)
    assert sim.disks()["a"].size_mib == 2048


def test_a_guest_that_does_not_shut_down_is_halted_where_allowed():
    sim = running()
    sim.admin("vm-stop-hangs", VM, "on")
    began = sim.node.now()
    sim.four_steps(spec(size=4096), allow_restart=True, stop_timeout=30, allow_force_stop=True)
    assert 30 <= sim.node.now() - began < 120
    assert ["vmadm", "stop", VM, "-t", "30"] in sim.calls
    assert sim.disks()["a"].size_mib == 4096


def test_a_slow_guest_has_its_time():
    sim = running()
    sim.four_steps(spec(size=4096), allow_restart=True, stop_timeout=30)
    stop = next(call for call in sim.calls if call[:2] == ["vmadm", "stop"])
    assert int(stop[stop.index("-t") + 1]) > 30, "vmadm would halt the guest by itself with exit 0"


def test_a_vm_that_does_not_start():
    sim = running()
    sim.fault = lambda argv: "Unable to start VM: no" if argv[:2] == ["vmadm", "start"] else None
    done = sim.converge(spec(size=4096), allow_restart=True)
    assert done.failure is not None
    assert (done.failure["restarted"], done.failure["step"]) == (False, "start")


def test_a_running_vm_that_needs_nothing_is_not_touched():
    sim = running()
    sim.calls.clear()
    assert not sim.converge(spec(size=2048), allow_restart=True).changed
    assert len(sim.calls) <= 4
