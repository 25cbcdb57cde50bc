# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One refused VM, and what on_refusal makes of the others: the same in vm_snapshot, vm, disk_adopt and zfs_quota."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from simnode.scenarios import build

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import (
    disk_adopt,
    vm,
    vm_snapshot,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run import results
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated
from ..modules.test_vm_snapshot import NOW, wanted

OTHER = VM[:-1] + "2"
FOURTH = "eeeeeeee-0000-4000-8000-000000000004"
THIRD = VM[:-1] + "3"
GIB = 1 << 30


def snapshot(sim, proceed, names=None, check=False, **options):
    spec = wanted(vms=None, **{"name": "nightly", **options})
    policy = Policy(continue_on_refusal=proceed)
    return vm_snapshot.run(Zfs(sim.runner), Vmadm(sim.runner), names, spec, policy, None, check, NOW)


def machines(sim, proceed, *entries, check=False, packages=()):
    policy = Policy(continue_on_refusal=proceed)
    raw = [{"state": "present", **entry} for entry in entries]
    return vm.run(Zfs(sim.runner), Vmadm(sim.runner), raw, packages, policy, None, check)


def adopt(sim, proceed, *entries, state="adopted", check=False):
    raw = list(entries) or None
    return disk_adopt.run(Zfs(sim.runner), Vmadm(sim.runner), raw, state, False, None, check, proceed).outcome


def taken(sim):
    names = sim.run("zfs", "list", "-Ht", "snapshot", "-o", "name").split()
    return sorted(name for name in names if name.count("/") == 1 and "@vmsnap" in name)


def test_the_nightly_snapshot_of_the_documentation_on_the_demo_node():
    text = (Path(__file__).parents[4] / "docs" / "snapshots.md").read_text()
    block = next(block for block in text.split("```") if "keep:" in block and "on_refusal" in block)
    arguments = yaml.safe_load(block.partition("yaml")[2])[0]["flexdisk.hypervisor.vm_snapshot"]
    sim = Simulated()
    sim.node = build("demo", None)
    proceed = arguments["on_refusal"] == "continue"
    done = snapshot(sim, proceed, name="2026-02-03", keep={"last": None, "weekly": None, **arguments["keep"]})
    assert [p.vm for p in done.problems] == ["legacy01"]
    assert [(vm["alias"], vm["changed"]) for vm in done.vms] == [("web01", True), ("db01", True)]


@pytest.fixture
def three(sim):
    """An inflexible VM, which has no room for a snapshot of what is written, and two others."""
    sim.adopted(2048, flexible=None)
    sim.write(sim.disks()["a"].volume.name, 1, 0, 100)
    for uuid, alias in ((OTHER, "web02"), (THIRD, "web03")):
        sim.adopted(64, uuid=uuid, alias=alias)
    return sim


def both(run, sim, *args, **options):
    """Check mode and the real run, which say the same."""
    before = sim.fingerprint()
    predicted = run(sim, *args, check=True, **options)
    assert sim.fingerprint() == before
    done = run(sim, *args, **options)
    assert predicted.problems == done.problems
    assert (predicted.changed, predicted.diff) == (done.changed, done.diff)
    assert [vm["uuid"] for vm in predicted.vms] == [vm["uuid"] for vm in done.vms]
    return done


def test_snapshots_of_all_vms(three):
    stopped = both(snapshot, three, False)
    assert ([p.vm for p in stopped.problems], stopped.changed, taken(three)) == (["web01"], False, [])
    done = both(snapshot, three, True)
    assert [(p.vm, p.code) for p in done.problems] == [("web01", "InsufficientSpace")]
    assert [(vm["alias"], vm["changed"]) for vm in done.vms] == [("web02", True), ("web03", True)]
    assert taken(three) == [f"zones/{uuid}@vmsnap-nightly" for uuid in (OTHER, THIRD)]
    failed = results.ending(done)
    assert (failed["changed"], failed["error_code"]) == (True, "InsufficientSpace")
    again = both(snapshot, three, True)
    assert ([p.vm for p in again.problems], again.changed) == (["web01"], False)


def test_snapshots_of_named_vms(three):
    done = both(snapshot, three, True, names=["nobody", "web03"])
    assert ([p.vm for p in done.problems], taken(three)) == (["nobody"], [f"zones/{THIRD}@vmsnap-nightly"])


def test_vms(three):
    entries = [{"vm": "web01", "vcpus": 999}, {"vm": "web02", "vcpus": 3}, {"vm": "web03", "package": "none"}]
    stopped = both(machines, three, False, *entries)
    assert ([p.vm for p in stopped.problems], stopped.vms) == (["web01", "web03"], [])
    assert three.get(OTHER)["vcpus"] == 1
    done = both(machines, three, True, *entries)
    assert [p.vm for p in done.problems] == ["web01", "web03"]
    assert [(vm["alias"], vm["vcpus"]) for vm in done.vms] == [("web02", 3)]
    assert [three.get(uuid)["vcpus"] for uuid in (VM, OTHER, THIRD)] == [1, 3, 1]


def test_a_package_that_is_wrong_stops_all(three):
    packages = [{"name": "p", "disk": "lots", "flexible_disk": True}]
    done = both(machines, three, True, {"vm": "web02", "vcpus": 3}, packages=packages)
    assert (len(done.problems), done.vms) == (1, [])


def test_a_pool_without_the_room_leaves_out_the_vm_that_needs_most(three):
    left = int(three.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    three.run("zfs", "create", "-o", f"reservation={left - 4 * GIB}", "zones/ballast")
    entries = [
        {"vm": "web02", "flexible_disk_size": 30720 + 3072},
        {"vm": "web03", "flexible_disk_size": 30720 + 2048},
    ]
    done = both(machines, three, True, *entries)
    assert [(p.vm, p.code) for p in done.problems] == [("web02", "InsufficientSpace")]
    assert [vm["alias"] for vm in done.vms] == ["web03"]


def test_a_quota_that_the_pool_cannot_give_leaves_the_others_repaired(three):
    law = three.vm(OTHER).root.reservation
    for uuid, lack in ((OTHER, 8 * GIB), (THIRD, 2 * GIB)):
        three.run("zfs", "set", f"reservation={law - lack}", "zones/" + uuid)
    left = int(three.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    three.run("zfs", "create", "-o", f"reservation={left - 4 * GIB}", "zones/ballast")
    stopped = three.quota()
    assert ([p.vm for p in stopped.problems], stopped.changed) == (["web02"], False)
    done = three.quota(proceed=True)
    assert [(p.vm, p.code) for p in done.problems] == [("web02", "InsufficientSpace")]
    assert [(vm["alias"], vm["changed"], bool(vm["drift"]["reservation_bytes"])) for vm in done.vms] == [
        ("web01", False, False),
        ("web02", False, True),
        ("web03", True, True),
    ]
    three.assert_lawful(THIRD)


@pytest.mark.parametrize("state", ["adopted", "released"])
def test_identities(state):
    sim = Simulated()
    for uuid, alias in ((VM, "web01"), (OTHER, "web02")):
        (sim.create if state == "adopted" else sim.adopted)(
            *(() if state == "adopted" else (64,)), uuid=uuid, alias=alias
        )
    if state == "adopted":
        entries = [{"vm": "web01", "disks": [{"index": 7, "name": "x"}]}, {"vm": "web02"}]
    else:
        assert sim.converge({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"}).failure is None
        entries = [{"vm": "web01"}, {"vm": "web02"}]
    stopped = both(adopt, sim, False, *entries, state=state)
    assert ([p.vm for p in stopped.problems], stopped.vms, stopped.changed) == (["web01"], [], False)
    done = both(adopt, sim, True, *entries, state=state)
    assert [p.vm for p in done.problems] == ["web01"]
    assert [(vm["alias"], vm["changed"]) for vm in done.vms] == [("web02", True)]


@pytest.mark.parametrize("first", ["", "no such slot"])
def test_a_vm_that_is_listed_twice_is_left_alone(three, first):
    """Neither of two entries is taken for the right one, be one of them wrong by itself or not."""
    disk = {"name": "a", "pci_slot": first or "0:4:5"}
    twice = [{"vm": "web02", "disks": [{"name": "root"}, entry]} for entry in (disk, {"name": "a", "size": 128})]
    done = three.converge(*twice, continue_on_refusal=True)
    assert (done.changed, done.vms) == (False, [])
    wrong = {"vm": "web02", "vcpus": 999 if first else 2}
    done = machines(three, True, wrong, {"vm": "web02", "vcpus": 3})
    assert (done.changed, done.vms) == (False, [])
    disks = [{"index": 0, "name": "bad name!" if first else "x"}]
    done = adopt(three, True, {"vm": "web02", "disks": disks}, {"vm": OTHER})
    assert (done.changed, done.vms) == (False, [])


def test_a_disk_whose_taker_is_left_out_stays_with_its_giver(three):
    """Detached from one VM, claimed by another that the pool has no room for."""
    three.adopted(64, uuid=FOURTH, alias="web04")
    root = {"name": "root", "boot": True}
    assert three.converge({"vm": FOURTH, "unlisted": "detach", "disks": [root]}).failure is None
    (detached,) = three.vm(FOURTH).detached
    left = int(three.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    three.run("zfs", "create", "-o", f"reservation={left - GIB}", "zones/ballast")
    taker = {"vm": "web02", "flexible_disk_size": "80GiB", "unlisted": "keep", "disks": [{"uuid": detached.uuid}]}
    entries = ({"vm": "web04", "disks": [{**root, "description": "new"}]}, taker)
    predicted, done = (three.converge(*entries, check=check, continue_on_refusal=True) for check in (True, False))
    assert [p.vm for p in done.problems] == ["web02"]
    assert done.failure is None
    for outcome in (predicted, done):
        assert [(vm["alias"], [d["name"] for d in vm["parked"]]) for vm in outcome.vms] == [("web04", ["a"])]
