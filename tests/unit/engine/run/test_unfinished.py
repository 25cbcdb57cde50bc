# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A vmadm that ends between two of its commands: what it leaves is shown, and the same task ends it."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import yaml
from simnode.vmadm.boundaries import POINTS, WATCHES

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.unfinished import still_needed
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from ..conftest import IMAGE, Simulated
from ..modules.test_vm import NEW, NOCLOUD, go, interrupted, refusal

DISKS = [{"name": "root"}, {"name": "data", "size": 512}, {"name": "kept", "size": 64, "preserve": True}]
MADE = {**NEW, "package": None, "flexible_disk_size": 20480, "memory": 1024, "disks": DISKS}
GONE = {"state": "absent", "destroy_disks": True}
SELDOM = ("late:100000",) if os.environ.get("FLEXDISK_FULL") else ()
CREATE = [point for point in POINTS if point.startswith("create")]
DELETE = [point for point in POINTS if point.startswith("delete")]
FAULTS = [
    *((point, fault) for point in (*CREATE, *DELETE) for fault in ("kill", "fail", "late:40", *SELDOM)),
    *((point, "timeout") for point in WATCHES if not point.startswith("start")),
]


def disturbed(*faults: tuple[str, ...], made: bool = False, **more) -> Simulated:
    """A node on which these faults happen. made: web01 is there, with data on a disk."""
    sim = Simulated(512 << 30)
    sim.run("vmadm", "lookup")
    sim.admin("image-import", NOCLOUD, "1024", "nocloud=yes")
    if made:
        uuid = go(sim, {**MADE, **more}).vms[0]["uuid"]
        sim.write(f"zones/{uuid}/disk1", 9, 0, 20)
        sim.write(f"zones/{uuid}/disk2", 8, 0, 20)
    for point, *kinds in faults:
        sim.admin("vm-fault", point, *kinds)
    return sim


def names(sim: Simulated) -> list[str]:
    return sim.run("zfs", "list", "-H", "-o", "name").split()


def rest(sim: Simulated) -> list[str]:
    """Datasets of VMs that are there, whoever knows them."""
    images = {f"zones/{IMAGE}", f"zones/{NOCLOUD}", "zones", "zones/flexdisk"}
    return [n for n in names(sim) if n not in images and not n.startswith("zones/flexdisk/")]


def entries(sim: Simulated) -> list[str]:
    listed = sim.node.run(["zfs", "get", "-H", "-s", "local", "-o", "property,value", "all", "zones/flexdisk"])[1]
    return [line for line in listed.splitlines() if "intent." in line]


def shown(sim: Simulated) -> tuple[list[str], list[str]]:
    """What vm_info and disk_verify say of VMs that are not served, or unfinished."""
    zfs, hypervisor = Zfs(sim.runner), Vmadm(sim.runner)
    result = info(zfs, hypervisor, None, None, False)
    message = [one["reason"] for one in result.skipped] + [vm["state"] for vm in result.vms if vm["state"] != "stopped"]
    reported = verify(zfs, hypervisor, None, (), None, 90, False, int(sim.node.now())).findings
    return message, [f"{one.kind}: {one.message}" for one in reported if one.kind != "unknown_vm"]


def same_task(sim: Simulated, wanted: dict[str, Any]) -> None:
    """The same task ends what is left, as check mode says, and is idle then."""
    predicted = go(sim, wanted, check=True)
    done = go(sim, wanted)
    assert (done.problems, done.failure) == ([], None), (done.problems, done.failure)
    assert (predicted.problems, predicted.plan) == ([], done.plan)
    again = go(sim, wanted, check=True)
    assert (again.problems, again.changed) == ([], False), again.diff
    assert entries(sim) == []
    assert shown(sim) == ([], [])


def whole(sim: Simulated) -> None:
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    assert (vm["alias"], vm["state"]) == ("web01", "stopped")
    assert [disk.name for disk in sim.vm(vm["uuid"]).disks][:3] == ["root", "data", "kept"]
    assert all(name.startswith(f"zones/{vm['uuid']}") for name in rest(sim))
    sim.assert_lawful(vm["uuid"])


def gone(sim: Simulated) -> None:
    assert json.loads(sim.run("vmadm", "lookup", "-j")) == []
    assert rest(sim) == []


@pytest.mark.parametrize(("point", "fault"), [f for f in FAULTS if f[0] in CREATE])
def test_a_creation_that_ends_early_is_ended_by_the_same_task(point, fault):
    sim = disturbed((point, fault))
    done = go(sim, MADE)
    assert done.failure is not None or (point, fault) == ("create provisioned", "timeout")
    sim.node.sleep(50)
    same_task(sim, MADE)
    whole(sim)


@pytest.mark.parametrize(("point", "fault"), [f for f in FAULTS if f[0] in CREATE])
def test_a_creation_that_ends_early_can_be_given_up(point, fault):
    sim = disturbed((point, fault))
    go(sim, MADE)
    sim.node.sleep(50)
    same_task(sim, GONE)
    gone(sim)


@pytest.mark.parametrize(("point", "fault"), [f for f in FAULTS if f[0] in DELETE])
def test_a_deletion_that_ends_early_is_ended_by_the_same_task(point, fault):
    sim = disturbed((point, fault), made=True)
    data = sim.digest(rest(sim)[-1], "0", "20")
    go(sim, GONE)
    sim.node.sleep(50)
    same_task(sim, GONE)
    gone(sim)
    (retained,) = [name for name in names(sim) if name.count("/") == 2 and name.startswith("zones/flexdisk/")]
    assert sim.digest(retained, "0", "20") == data


@pytest.mark.parametrize(("point", "fault"), [f for f in FAULTS if f[0] in DELETE])
def test_the_name_of_a_vm_whose_deletion_ended_early_is_free(point, fault):
    """A VM that is still whole is one that is there. What is left of another makes room for a new one."""
    wanted = {**MADE, "disks": DISKS[:2], "unlisted": "keep"}
    sim = disturbed((point, fault), made=True)
    go(sim, GONE)
    sim.node.sleep(50)
    done = go(sim, wanted)
    assert (done.problems, done.failure) == ([], None)
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    assert (vm["alias"], vm["state"], len(vm["disks"])) == ("web01", "stopped", 2)
    assert entries(sim) == []


@pytest.mark.parametrize("wanted", [MADE, GONE], ids=["made", "gone"])
@pytest.mark.parametrize("point", [point for point in CREATE if point != "create provisioned"])  # that is a whole VM
def test_snapshots_of_the_whole_pool_keep_no_creation_from_being_ended(point, wanted):
    sim = disturbed((point, "kill"))
    go(sim, MADE)
    sim.node.sleep(50)
    for name in ("hourly", "daily"):
        sim.run("zfs", "snapshot", "-r", f"zones@{name}")
    same_task(sim, wanted)
    (gone if wanted is GONE else whole)(sim)


@pytest.mark.parametrize("wanted", [MADE, GONE], ids=["made", "gone"])
def test_what_vmadm_has_written_keeps_no_creation_from_being_ended(wanted):
    """The simulated vmadm writes no metadata and no logs, so they are written here."""
    sim = disturbed(("create metadata", "kill"))
    go(sim, MADE)
    sim.node.sleep(50)
    sim.write(f"zones/{json.loads(sim.run('vmadm', 'lookup', '-j'))[0]['uuid']}", 9, 0, 20)
    for name in ("hourly", "daily"):
        sim.run("zfs", "snapshot", "-r", f"zones@{name}")
    same_task(sim, wanted)
    (gone if wanted is GONE else whole)(sim)


@pytest.mark.parametrize(
    ("known", "deletes", "lasting"),
    [
        (True, False, ["zones/u/disk0"]),  # vmadm has written to zones/u
        (False, False, ["zones/u", "zones/u/disk0", "zones/u@hourly"]),
        (False, True, ["zones/u/disk0", "zones/u@hourly"]),
    ],
)
def test_what_lasts_of_what_vmadm_or_somebody_else_has_written(known, deletes, lasting):
    empty = Dataset("zones/flexdisk", "filesystem", logicalreferenced=43008, logicalused=43008)
    written = {"logicalreferenced": 99999, "logicalused": 99999}
    there = [
        Dataset("zones/u", "filesystem", **written),
        Dataset("zones/u/disk0", "volume", **written),
        Dataset("zones/u@hourly", "snapshot", **written),
    ]
    assert still_needed(there, "zones/u", empty, known, deletes) == lasting


@pytest.mark.parametrize("wanted", [MADE, GONE], ids=["made", "gone"])
@pytest.mark.parametrize("point", ["create dataset", "create install", "create metadata"])
def test_what_the_advice_leaves_of_a_creation_is_ended_by_the_same_task(point, wanted):
    sim = disturbed((point, "kill"))
    go(sim, MADE)
    sim.node.sleep(50)
    sim.write(next(name for name in names(sim) if name.endswith("/disk1")), 9, 0, 20)
    advice = refusal(sim, "AlreadyExists", MADE).partition("if nobody does, ")[2]
    assert advice.startswith("zfs destroy -r ")
    sim.run(*advice.partition(" removes it")[0].split())
    same_task(sim, wanted)
    (gone if wanted is GONE else whole)(sim)


@pytest.mark.parametrize(
    ("point", "when"), [("create root", "failed"), ("create dataset", "after"), ("create metadata", "failed")]
)
def test_two_disturbed_creations_in_a_row_are_ended_by_the_same_task(point, when):
    number, came = 0, True
    while came:
        number += 1
        sim = disturbed((point, "kill"))
        go(sim, MADE)
        came = interrupted(sim, when, number, MADE)
        same_task(sim, MADE)
        whole(sim)
    assert number > 3


def test_two_disturbed_creations_of_which_vmadm_makes_a_part_each():
    for first in CREATE[::2]:
        for second in CREATE[1::2]:
            sim = disturbed((first, "kill"))
            go(sim, MADE)
            sim.admin("vm-fault", second, "late:100000")
            go(sim, MADE)
            same_task(sim, MADE)
            whole(sim)


def test_a_creation_that_begins_when_nobody_waits_for_it_any_longer():
    sim = disturbed()
    given_up = []

    def fault(argv):
        if argv[:2] == ["vmadm", "create"]:
            given_up.append(sim.stdin)
            raise FlexdiskError("CommandTimeout", "vmadm did not end within 600 s and was killed: vmadm create")

    sim.fault = fault
    assert go(sim, MADE).failure["error_code"] == "CommandTimeout"
    sim.fault = None
    sim.run("vmadm", "create", stdin=given_up[0])
    same_task(sim, MADE)
    whole(sim)


# -- what is shown of it, and what nobody touches


def words_of(sim: Simulated) -> list[str]:
    """What is said of web01 by vm_info, disk_verify and vm_disks; they must say the same."""
    states, reported = shown(sim)
    (refused,) = sim.converge({"vm": "web01", "quota": "11GiB"}).problems
    assert refused.code == "VmInTransition"
    unfinished = [line for line in reported if line.startswith("vm_unfinished")]
    assert len(unfinished) == 1
    assert refused.message.partition(": ")[2] in unfinished[0]
    return [*states, *unfinished]


@pytest.mark.parametrize(
    ("point", "state", "text"),
    [
        ("create zonecfg", "configured", "its creation was interrupted at"),
        ("create install", "provisioning", "the same task of vm makes it anew, and state=absent removes it"),
        ("delete uninstall", "configured", "vm with state=absent deletes what is left"),
    ],
)
def test_it_is_shown_with_what_ends_it(point, state, text):
    sim = disturbed((point, "kill"), made=point.startswith("delete"))
    go(sim, GONE if point.startswith("delete") else MADE)
    message = "; ".join(words_of(sim))
    assert f"web01 ({json.loads(sim.run('vmadm', 'lookup', '-j'))[0]['uuid']})" in message
    assert f"the VM is {state}: " in message
    assert text in message


def test_what_a_deletion_has_left_of_the_dataset_is_shown():
    sim = disturbed(("delete uninstall", "fail"), made=True)
    sim.node.pools.faults[f"busy:{rest(sim)[0]}"] = 9
    done = go(sim, GONE)
    assert "the VM is deleted, but zones/" in done.failure["message"]
    assert "the same task again destroys it" in done.failure["message"]
    (reported,) = [line for line in shown(sim)[1] if "intent_without_vm" in line]
    assert "VM web01 was being deleted at" in reported
    assert "is left with its reservation of 30." in reported
    assert "; the same task of vm (state=absent) destroys it" in reported
    sim.node.pools.faults.clear()
    same_task(sim, GONE)
    gone(sim)


def test_the_name_of_a_half_deleted_vm_means_another_one():
    """What the playbook status says ends the half-deleted one alone."""
    sim = disturbed(("delete uninstall", "fail"), made=True)
    (left,) = rest(sim)[:1]
    sim.node.pools.faults[f"busy:{left}"] = 9
    go(sim, GONE)
    sim.node.pools.faults.clear()
    uuid = go(sim, {**MADE, "uuid": "dddddddd-0000-4000-8000-000000000007"}).vms[0]["uuid"]
    read = host_status.run(Zfs(sim.runner), Copies(sim.runner), Vmadm(sim.runner), None)[0]
    line = next(line for line in status({"hv01": read}, []).lines if line.startswith("    go on: "))
    ((module, task),) = yaml.safe_load(line.partition("a task for hv01: ")[2]).items()
    assert module == "flexdisk.hypervisor.vm"
    assert left == f"zones/{task['vms'][0]['vm']}"
    done = go(sim, *task["vms"])
    assert (done.failure, done.problems) == (None, [])
    assert left not in names(sim)
    assert f"zones/{uuid}" in names(sim)
    assert entries(sim) == []


@pytest.mark.parametrize("point", ["create zonecfg", "create dataset", "create install", "delete uninstall"])
def test_a_vm_that_is_not_ours_is_not_touched(point):
    """Somebody else makes or deletes it, or was interrupted."""
    sim = disturbed(made=point.startswith("delete"))
    for name in entries(sim):
        sim.run("zfs", "inherit", name.split()[0], "zones/flexdisk")
    sim.admin("vm-fault", point, "kill")
    if point.startswith("delete"):
        sim.node.run(["vmadm", "delete", json.loads(sim.run("vmadm", "lookup", "-j"))[0]["uuid"]])
    else:
        disk = {"size": 64, "model": "virtio", "boot": True}
        payload = {"alias": "web01", "brand": "bhyve", "ram": 256, "flexible_disk_size": 64, "disks": [disk]}
        sim.node.run(["vmadm", "create"], json.dumps({**payload, "autoboot": False}))
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    for wanted in (MADE, GONE):
        message = refusal(sim, "VmInTransition", wanted)
        assert "no task of this collection has begun that" in message
        assert f"vmadm delete {vm['uuid']} removes it" in message
    assert "no task of this collection has begun that" in "; ".join(words_of(sim))


@pytest.mark.parametrize("point", ["create dataset", "create install"])
def test_a_volume_that_somebody_has_written_to_is_not_destroyed(point):
    sim = disturbed((point, "kill"))
    go(sim, MADE)
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    sim.write(f"zones/{vm['uuid']}/disk1", 9, 0, 20)
    message = refusal(sim, "AlreadyExists", MADE)
    assert (
        f"zones/{vm['uuid']}/disk1 is left of a VM whose creation was interrupted, and may still be needed" in message
    )
    assert f"disk1 (512 MiB, uuid {vm['disks'][1]['uuid']})" in refusal(sim, "DataDisks", {"state": "absent"})


@pytest.mark.parametrize(("key", "value"), [("host", "hv09"), ("creates", "")])
def test_an_entry_of_another_host_or_of_another_task_proves_nothing(key, value):
    sim = disturbed(("create install", "kill"))
    go(sim, MADE)
    (entry,) = entries(sim)
    name, text = entry.split("\t")
    sim.run("zfs", "set", f"{name}={json.dumps({**json.loads(text), key: value})}", "zones/flexdisk")
    assert "no task of this collection has begun that" in refusal(sim, "VmInTransition", MADE)
    refusal(sim, "VmInTransition", GONE)


def test_it_is_made_anew_by_its_name_only():
    sim = disturbed(("create install", "kill"))
    go(sim, MADE)
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    message = refusal(sim, "VmInTransition", {**MADE, "vm": vm["uuid"]})
    assert "the same task of vm makes it anew" in message
    same_task(sim, {**GONE, "vm": vm["uuid"]})
    gone(sim)


def test_a_start_that_vminfod_does_not_confirm_is_one():
    sim = disturbed(("start boot", "timeout"), made=True)
    done = go(sim, {**MADE, "state": "running"})
    assert (done.problems, done.failure) == ([], None)
    assert done.vms[0]["state"] == "running"


def test_what_comes_between_the_look_and_the_removal_stops_it():
    sim = disturbed(("create install", "kill"))
    go(sim, MADE)
    (vm,) = json.loads(sim.run("vmadm", "lookup", "-j"))
    written = []

    def comes(argv):
        if argv[:2] == ["zfs", "set"] and not written:
            written.append(argv)
            sim.write(f"zones/{vm['uuid']}/disk1", 9, 0, 20)

    sim.fault = comes
    done = go(sim, MADE)
    assert done.failure["error_code"] == "Changed"
    assert f"zones/{vm['uuid']}/disk1" in done.failure["message"]
    assert sim.get(vm["uuid"])["state"] == "provisioning"


def test_what_is_left_takes_no_room_from_what_is_made_anew():
    """The pool has room for the VM once only."""
    sim = Simulated(40 << 30)
    sim.run("vmadm", "lookup")
    wanted = {**MADE, "flexible_disk_size": 12288, "disks": [{"name": "root"}, {"name": "data", "size": 512}]}
    for point in ("create quota", "create metadata", "create dataset"):
        sim.admin("vm-fault", point, "kill")
        assert go(sim, wanted).failure is not None
    same_task(sim, wanted)
