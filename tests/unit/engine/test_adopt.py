# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adopt and release on the node: identities given, taken, and given back with nothing lost."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.identities import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .conftest import VM, Simulated

OTHER = VM[:-1] + "2"
ROOT = f"zones/{VM}"


def go(sim, *vms, check=False, state="adopted", forget=False, runner=None):
    runner = runner or sim.runner
    raw = list(vms) or None
    return run(Zfs(runner, lambda seconds: None), Vmadm(runner), raw, state, forget, None, check)


def release(sim, *names, **more):
    return go(sim, *({"vm": name} for name in names), state="released", **more)


def known(outcome):
    """The results without what check mode cannot know."""
    found = json.loads(json.dumps(outcome.vms))
    for disk in (d for vm in found for d in vm["disks"] + vm["parked"]):
        for key in report.VOLATILE:
            disk.pop(key, None)
    return found


def four_steps(sim, *vms, **more):
    before = sim.fingerprint()
    predicted = go(sim, *vms, check=True, **more)
    assert (predicted.outcome.problems, sim.fingerprint()) == ([], before)
    done = go(sim, *vms, **more)
    assert (done.outcome.problems, done.outcome.failure) == ([], None)
    assert (done.outcome.changed, done.outcome.diff) == (predicted.outcome.changed, predicted.outcome.diff)
    assert (known(done.outcome), done.released) == (known(predicted.outcome), predicted.released)
    assert (done.outcome.warnings, done.skipped) == (predicted.outcome.warnings, predicted.skipped)
    settled = sim.fingerprint()
    for check in (True, False):
        again = go(sim, *vms, check=check, **more)
        assert (again.outcome.problems, again.outcome.changed, again.outcome.diff) == ([], False, "")
        assert again.released == done.released or more.get("forget")
    assert sim.fingerprint() == settled
    return done


def refusal(sim, *codes, vms=(), **more):
    before = sim.fingerprint()
    predicted, refused = (go(sim, *vms, check=check, **more).outcome.problems for check in (True, False))
    assert sim.fingerprint() == before
    assert predicted == refused
    assert sorted(p.code for p in refused) == sorted(codes), refused
    return "; ".join(f"{p.disk}: {p.message}" for p in refused)


def ours(sim):
    """Our properties of every dataset."""
    found = {}
    for line in sim.run("zfs", "get", "-Hp", "-o", "name,property,value,source", "all").splitlines():
        name, key, value, source = line.split("\t")
        if key.startswith("flexdisk:") and source in ("local", "received"):
            found[name, key[len("flexdisk:") :]] = value
    return found


def rest(sim):
    """What neither adopting nor releasing may touch: everything of ZFS that is not ours, all VMs, all data."""
    lines = sim.run("zfs", "get", "-Hp", "-o", "name,property,value", "all").splitlines()
    zfs = [line for line in lines if "\tflexdisk:" not in line]
    data = [sim.digest(d.volume.name) for vm in (sim.vm(VM),) for d in vm.disks]
    return zfs, json.loads(sim.run("vmadm", "lookup", "-j")), data


def named(sim):
    return {d.volume.name.rpartition("/")[2]: d.name for d in sim.vm().disks}


def test_every_disk_of_every_vm_has_an_identity(sim):
    sim.create(sizes=(2048, 1024))
    sim.create(uuid=OTHER, alias="web02")
    sim.run("vmadm", "start", VM)
    before = rest(sim)
    done = four_steps(sim)
    assert rest(sim) == before
    assert "= disk1 adopted (zones/%s/disk1 at 0:4:1)" % VM in done.outcome.diff
    assert named(sim) == {"disk0": "disk0", "disk1": "disk1", "disk2": "disk2"}
    for uuid in (VM, OTHER):
        for disk, said in zip(sim.vm(uuid).disks, sim.get(uuid)["disks"], strict=True):
            user = disk.volume.user
            assert (user["uuid"], user["vm"], user["serial_no"]) == (said["uuid"], uuid, "1")
            assert (user["slot"], user["index"], user["model"]) == (said["pci_slot"], str(disk.index), "virtio")
            assert user["boot"] == ("true" if disk.boot else "false")
            assert user["ctime"] == user["mtime"] != ""


def test_what_is_said_of_single_disks(sim):
    sim.create(sizes=(2048, 1024))
    uuid = sim.get()["disks"][1]["uuid"]
    entries = [
        {"index": 0, "name": "root"},
        {"uuid": uuid.upper(), "pci_slot": "4:1", "name": "data", "preserve": True, "tags": {"b": 1}},
        {"pci_slot": "0:4:2", "description": "träge\tLogs"},
    ]
    four_steps(sim, {"vm": "web01", "disks": entries, "package": "small"})
    disks = sim.disks()
    assert list(disks) == ["root", "data", "disk2"]
    assert (disks["data"].preserve, disks["data"].tags, disks["disk2"].description) == (
        True,
        {"b": "1"},
        "träge\tLogs",
    )
    assert sim.vm().package == "small"


def test_an_adopted_disk_keeps_everything(sim):
    sim.adopted(2048)
    before = ours(sim)
    done = four_steps(sim, {"vm": "web01", "disks": [{"index": 1, "name": "a", "description": "new", "preserve": True}]})
    assert not done.outcome.changed
    assert ours(sim) == before
    assert [w.partition("; ")[0].partition("keeps its ")[2] for w in done.outcome.warnings] == ["preserve", "description"]
    said = refusal(sim, "NameConflict", vms=[{"vm": "web01", "disks": [{"index": 1, "name": "b"}]}])
    assert "disk1 is called a; vm_disks renames it" in said


def test_disks_of_a_vmadm_that_gave_no_uuids(sim):
    sim.create()
    for disk in sim.node.vmadm_state["vms"][VM]["cfg"]["disks"]:
        del disk["uuid"]
    sim.run("vmadm", "start", VM)
    if all("uuid" in disk for disk in sim.get()["disks"]):
        pytest.skip("the node gives uuids at a start")


@pytest.mark.parametrize(
    ("codes", "disks", "said"),
    [
        (["InvalidArgument"], [{"index": 1, "name": "a b"}], "disk name 'a b'"),
        (["InvalidArgument"], [{"index": 1, "name": "42"}], "taken for an index"),
        (["InvalidArgument"], [{"index": 0, "name": "a"}, {"index": 1, "name": "a"}], "two disks with the name a"),
        (["NameConflict"], [{"index": 0, "name": "disk1"}], "give it another: disks: [{index: 1, name: disk1-2}]"),
        (["ResourceNotFound"], [{"index": 7}], "no disk with index 7; there are: index 0 at 0:4:0, uuid "),
        (["ResourceNotFound"], [{"uuid": OTHER}], f"no disk with uuid {OTHER}"),
        (["ResourceNotFound"], [{"index": 0, "pci_slot": "0:4:1"}], "index 0, pci_slot 0:4:1"),
        (["InvalidArgument"], [{"index": 1}, {"pci_slot": "0:4:1"}], "listed twice"),
        (["InvalidArgument"], [{"pci_slot": "x"}], "x"),
        (["InvalidArgument"] * 2, [{"index": 1, "uuid": "x"}, {"index": -1}], "is not a uuid"),
        (["InvalidArgument"], [{"index": 1, "ctime": "today"}], "written as"),
        (["InvalidArgument"], [{"index": 1, "serial_no": 0}], "from 1 to"),
        (["InvalidArgument"], [{"index": 1, "remaining": "all"}], "is not what a release returns"),
        (["InvalidArgument"], [{"index": 1, "description": "ä" * 4000}], "the limit is 8191"),
    ],
)
def test_what_cannot_be_said_of_a_disk(sim, codes, disks, said):
    sim.create()
    assert said in refusal(sim, *codes, vms=[{"vm": "web01", "disks": disks}])


def test_all_problems_together_and_no_vm_changed(sim):
    sim.create()
    sim.create(uuid=OTHER, alias="web02")
    wrong = [{"vm": "web01", "disks": [{"index": 9}, {"index": 0, "name": "7"}]}, {"vm": "nobody"}, {"vm": "web02"}]
    refusal(sim, "InvalidArgument", "ResourceNotFound", vms=wrong)
    refusal(sim, "InvalidArgument", vms=[{"vm": "web01"}, {"vm": VM}])
    refusal(sim, "InvalidArgument", vms=[{"vm": "web01"}], forget=True)
