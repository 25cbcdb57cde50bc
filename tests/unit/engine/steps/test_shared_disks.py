# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A disk that two VMs are configured with: neither goes back in time, nor runs, behind the other one's back."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_start
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps import power as door
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import power
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM
from ..modules import test_vm_snapshot as snap
from .test_in_use import FOREIGN, OTHER, ROOT, devices, two  # noqa: F401  # pylint: disable=unused-import
from .test_late_guests import GROWN, OPTIONS, power_off

ONE = {"name": "one", "state": "rolled_back"}


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("state", ["running", "stopped"])
def test_a_rollback_of_a_disk_that_another_vm_has(two, orphan, state):  # noqa: F811
    snap.go(two, name="one")
    two.write(f"{ROOT}/disk2", 5)
    if orphan:
        del devices(two)[2]
    if state == "stopped":
        two.run("vmadm", "stop", OTHER, "-F")
    message = snap.refusal(two, "InUse", **ONE)
    assert f"{ROOT}/disk2 is also attached to web02 ({OTHER}), whose data a rollback would take back" in message


def test_a_disk_that_is_not_in_the_snapshot_keeps_no_other_from_going_back(two):  # noqa: F811
    snap.go(two, name="one")
    two.run("zfs", "destroy", f"{ROOT}/disk2@vmsnap-one")
    two.write(f"{ROOT}/disk1", 5)
    assert snap.go(two, **ONE).failure is None
    assert two.vm().disks[1].volume.written == 0


@pytest.mark.parametrize(
    "options", [{"name": "nightly-1"}, {"name": "one", "state": "absent"}, {**ONE, "restart": True}]
)
def test_a_vm_that_a_run_has_stopped_is_not_started_beside_another_writer(sim, options):
    sim.adopted(2048, autoboot=False)
    snap.go(sim, name="one")
    sim.adopted(uuid=OTHER, alias="web02")
    sim.run("vmadm", "start", VM)
    sim.write(f"{ROOT}/disk1", 5)
    sim.admin("vm-stop-hangs", VM, "on")
    assert sim.converge(GROWN, **OPTIONS).failure["error_code"] == "VmNotStopped"
    sim.admin("vm-stop-hangs", VM, "off")
    power_off(sim)
    devices(sim, OTHER).append({**devices(sim)[1], "uuid": FOREIGN, "pci_slot": "0:4:7"})
    sim.run("vmadm", "start", OTHER)
    message = snap.refusal(sim, "InUse", **options)
    assert f"{ROOT}/disk1 is in use by web02 ({OTHER}), which is running; two writers would destroy its data" in message
    sim.run("vmadm", "stop", OTHER, "-F")
    devices(sim, OTHER).pop()
    assert snap.go(sim, **options).failure is None
    assert sim.get()["state"] == "running"


def test_the_door_of_starts_asks_for_other_writers(two):  # noqa: F811
    with pytest.raises(FlexdiskError, match=f"disk2 is in use by web02 .{OTHER}., which is running; two writers"):
        power.check_start(two.vm())
    two.run("vmadm", "start", VM)
    power.check_start(two.vm())  # it is only started again
    two.run("vmadm", "stop", VM, "-F")
    two.run("vmadm", "stop", OTHER, "-F")
    power.check_start(two.vm())


def start_host(sim, check=False):
    return failover_start.start(Zfs(sim.runner), Vmadm(sim.runner), {}, True, check)


def both_have_failover(sim, *wishes):
    sim.run("vmadm", "stop", OTHER, "-F")
    for uuid, declaration in zip((VM, OTHER), wishes, strict=True):
        sim.run("zfs", "set", f"flexdisk:failover={declaration}:0", f"zones/{uuid}")


@pytest.mark.parametrize("check", [True, False])
def test_start_host_starts_neither_of_two_vms_with_one_disk(two, check):  # noqa: F811
    both_have_failover(two, "on", "on")
    done = start_host(two, check)
    assert (done.started, [two.get(uuid)["state"] for uuid in (VM, OTHER)]) == ([], ["stopped", "stopped"])
    ends = f"{ROOT}/disk2 is also attached to %s (%s); two writers would destroy its data [InUse]"
    assert done.failures == [f"web01 ({VM}): {ends % ('web02', OTHER)}", f"web02 ({OTHER}): {ends % ('web01', VM)}"]


def test_start_host_starts_the_one_that_shall_run(two):  # noqa: F811
    both_have_failover(two, "on", "off")
    for check in (True, False):
        done = start_host(two, check)
        assert (done.started, done.failures) == ([f"web01 ({VM})"], [])
    assert (two.get()["state"], two.get(OTHER)["state"]) == ("running", "stopped")


def test_check_mode_of_start_host_tells_who_runs_with_the_disk(two):  # noqa: F811
    both_have_failover(two, "on", "off")
    two.run("vmadm", "start", OTHER)
    (failure,) = start_host(two, True).failures
    assert f"{ROOT}/disk2 is in use by web02 ({OTHER}), which is running; two writers would destroy its data" in failure
    assert start_host(two).failures == [failure]
    assert two.get()["state"] == "stopped"


def test_the_door_of_starts_looks_at_the_other_vms_again(two):  # noqa: F811
    """They may have been started since the VM was read, by the same task or by somebody else, or have gone."""
    two.run("vmadm", "stop", OTHER, "-F")
    vm = two.vm()
    two.run("vmadm", "start", OTHER)
    with pytest.raises(FlexdiskError, match=f"disk2 is in use by web02 .{OTHER}., which is running; two writers"):
        door.start(Vmadm(two.runner), vm)
    two.run("vmadm", "stop", OTHER, "-F")
    devices(two, OTHER).pop()
    two.run("vmadm", "delete", OTHER)
    door.start(Vmadm(two.runner), vm)
    assert two.get()["state"] == "running"


def test_who_ran_alone_is_not_started_again_beside_another_writer(two):  # noqa: F811
    two.run("vmadm", "stop", OTHER, "-F")
    two.run("vmadm", "start", VM)
    vm = two.vm()
    two.run("vmadm", "stop", VM, "-F")
    two.run("vmadm", "start", OTHER)
    with pytest.raises(FlexdiskError, match="two writers"):
        door.start(Vmadm(two.runner), vm)
