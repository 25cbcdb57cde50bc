# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""disk_verify on the node: every defect is found by its kind, and repaired where that needs no guess."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import journal as engine_intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import journal
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.findings import KINDS, REPAIRABLE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.layout import detached_place as place
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

from ..conftest import VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
NOBODY = "cccccccc-0000-4000-8000-00000000000f"
FOREIGN = "dddddddd-0000-4000-8000-000000000001"
BOX = "zones/flexdisk"
ROOT = f"zones/{VM}"
DAY = 86400
MODULES = Path(verify.__code__.co_filename).parents[4] / "modules"
UNIT = Path(__file__).resolve().parents[2]


def world():
    """web01 with root, a and b, and c detached from it; web02 with root and a. Nothing is wrong."""
    sim = Simulated()
    sim.adopted(2048, 1024, 512)
    sim.adopted(1024, uuid=OTHER, alias="web02")
    names = [{"name": name} for name in ("root", "a", "b")]
    assert sim.converge({"vm": VM, "disks": names, "unlisted": "detach"}).failure is None
    return sim


def go(sim, *repair, check=False, vms=None, later=0, unused_days=30):
    zfs, hypervisor = Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner)
    now = int(sim.node.now()) + later
    return verify(zfs, hypervisor, vms, repair, None, unused_days, check, now)


def kinds(result):
    return [finding.kind for finding in result.findings]


def findings(result):
    return [finding.as_dict() for finding in result.findings]


def detached(sim):
    return sim.detached()["c"].volume.name


def settle(sim, *repair):
    """Repairs in four steps; the findings that are left are those that check mode tells."""

    def told(result):
        return {"findings": findings(result), "steps": result.steps, "repaired": [f.as_dict() for f in result.repaired]}

    done = four_steps(sim, lambda check: go(sim, *repair, check=check), told, planned=False)
    assert done.outcome.changed
    return done


# -- defects, each as somebody makes it


def device(sim, number, uuid=VM):
    """A disk in the VM's configuration, which a test changes behind vmadm's back."""
    return sim.node.vmadm_state["vms"][uuid]["devices"][number]


def destroyed(sim):
    sim.run("zfs", "destroy", f"{ROOT}/disk1")


def moved_by_hand(sim):
    sim.run("zfs", "rename", f"{ROOT}/disk1", "zones/elsewhere")


def half_detached(sim):
    uuid = sim.disks()["a"].uuid
    sim.run("zfs", "set", f"reservation={3 << 30}", ROOT)
    sim.run("zfs", "rename", f"{ROOT}/disk1", f"{BOX}/{uuid}")


def shared(sim):
    sim.node.vmadm_state["vms"][OTHER]["devices"].append({**device(sim, 1), "uuid": FOREIGN, "pci_slot": "0:4:7"})


def twice(sim):
    sim.node.vmadm_state["vms"][VM]["devices"].append({**device(sim, 1), "uuid": FOREIGN, "pci_slot": "0:4:7"})


def same_slot(sim):
    device(sim, 2)["pci_slot"] = device(sim, 1)["pci_slot"]


def no_dataset(sim):
    sim.run("zfs", "rename", f"zones/{OTHER}", "zones/lost")


def strayed(sim):
    moved_by_hand(sim)
    device(sim, 1)["path"] = "/dev/zvol/rdsk/zones/elsewhere"


def one_uuid(sim):
    sim.run("zfs", "set", f"flexdisk:uuid={sim.disks()['a'].uuid}", detached(sim))


def nameless_twin(sim):
    """Its place says that it is a, and so does a."""
    sim.run("zfs", "create", "-V", "64M", f"{BOX}/{sim.disks()['a'].uuid}")


def orphaned_twins(sim):
    for name in ("disk8", "disk9"):
        sim.run("zfs", "create", "-V", "64M", "-o", f"flexdisk:uuid={FOREIGN}", f"{ROOT}/{name}")


def other_uuid(sim):
    sim.run("zfs", "set", f"flexdisk:uuid={FOREIGN}", f"{ROOT}/disk1")


def swapped(sim):
    for old, new in (("disk1", "x"), ("disk2", "disk1"), ("x", "disk2")):
        sim.run("zfs", "rename", f"{ROOT}/{old}", f"{ROOT}/{new}")


def exchanged_for_an_orphan(sim):
    """The disk that the configuration means lies beside it, another volume where it was."""
    sim.run("zfs", "rename", f"{ROOT}/disk1", f"{ROOT}/disk9")
    sim.run("zfs", "create", "-V", "512M", f"{ROOT}/disk1")
    sim.run("zfs", "set", "flexdisk:uuid=eeeeeeee-0000-4000-8000-00000000000e", f"{ROOT}/disk1")


def no_uuid(sim):
    del device(sim, 1)["uuid"]


def stale(sim):
    wrong = ("slot=0:9:0", "model=ahci", "boot=true", "index=7", f"vm={OTHER}")
    sim.run("zfs", "set", *["flexdisk:" + word for word in wrong], f"{ROOT}/disk1")


def lost_property(sim):
    sim.run("zfs", "inherit", "flexdisk:slot", f"{ROOT}/disk1")


def same_name(sim):
    sim.run("zfs", "set", "flexdisk:name=a", f"{ROOT}/disk2")


def same_name_as_detached(sim):
    sim.run("zfs", "set", "flexdisk:name=a", detached(sim))


def number_as_name(sim):
    sim.run("zfs", "set", "flexdisk:name=42", f"{ROOT}/disk1")


def no_name_at_all(sim):
    sim.run("zfs", "set", "flexdisk:name=a b/c", f"{ROOT}/disk1")


def garbage(sim):
    wrong = ("tags=[1]", "serial_no=-3", "ctime=yesterday", "preserve=maybe")
    sim.run("zfs", "set", *["flexdisk:" + word for word in wrong], f"{ROOT}/disk1")


def garbage_of_a_detached_disk(sim):
    sim.run("zfs", "set", "flexdisk:slot=400:1", "flexdisk:index=x", "flexdisk:vm=web01", detached(sim))


def set_above(sim):
    sim.run("zfs", "set", "flexdisk:description=mine", "flexdisk:tags=%7B%22a%22:%22b%22%7D", ROOT)


def set_on_the_pool(sim):
    sim.run("zfs", "set", f"flexdisk:remaining={FOREIGN}", "zones")


def received(sim):
    """A disk that came back from a backup, with zfs send -p."""
    name = detached(sim)
    sim.run("zfs", "snapshot", name + "@backup")
    stream = sim.run("zfs", "send", "-p", name + "@backup")
    sim.run("zfs", "destroy", "-r", name)
    sim.run("zfs", "receive", name, stdin=stream)


def orphaned(sim):
    sim.run("zfs", "create", "-V", "64M", f"{ROOT}/disk9")


def orphaned_with_identity(sim):
    name = detached(sim)
    sim.run("zfs", "set", "quota=100G", ROOT)
    sim.run("zfs", "rename", name, f"{ROOT}/disk3")


def misplaced(sim):
    sim.run("zfs", "rename", detached(sim), f"{BOX}/data")


def made_by_hand(sim):
    sim.run("zfs", "create", "-V", "64M", f"{BOX}/mine")


def no_uuid_of_its_own(sim):
    sim.run("zfs", "inherit", "flexdisk:uuid", detached(sim))


def vm_gone(sim):
    sim.run("zfs", "set", f"flexdisk:vm={NOBODY}", detached(sim))


def copied(sim):
    sim.run("zfs", "create", "-V", "64M", "-o", f"flexdisk:uuid={FOREIGN}", "zones/backup")


def drifted(sim):
    sim.run("zfs", "set", "quota=60G", "reservation=60G", ROOT)


def half_set(sim):
    sim.run("zfs", "set", "quota=60G", ROOT)


def other_base(sim):
    sim.run("zfs", "set", "refreservation=100M", ROOT)


def thin(sim):
    sim.run("zfs", "set", "refreservation=512M", f"{ROOT}/disk1")


def guarded(sim, name=f"{ROOT}/disk1"):
    sim.run("zfs", "snapshot", name + "@flexdisk-guard")
    sim.run("zfs", "hold", "flexdisk-guard", name + "@flexdisk-guard")


def guarded_detached(sim):
    guarded(sim, detached(sim))


def marked(sim):
    sim.run("zfs", "set", "flexdisk:from=zones/old", f"{ROOT}/disk1")


def marked_detached(sim):
    sim.run("zfs", "set", "flexdisk:from=import", detached(sim))


def half_imported(sim):
    sim.run("zfs", "create", "-V", "64M", "-o", "flexdisk:from=import", f"zones/{NOBODY}")


def intend(sim, vm, host="", value="", listed=True, **more):
    host = host or engine_intent.host_name()
    record = Intent(FOREIGN, host, "2026-01-01T00:00:00Z", "running", True, False, ("~ a grown",), **more)
    sim.run("zfs", "set", f"flexdisk:intent.{vm}={value or journal.encode(record)}", BOX)
    if listed:
        sim.run("zfs", "set", f"flexdisk:intents={vm}", BOX)


def ours_left(sim):
    intend(sim, VM)


def half_rolled_back(sim):
    intend(sim, VM, rollback="one")


def theirs_left(sim):
    intend(sim, VM, host="elsewhere")


def unreadable_move(sim):
    place = f"zones/flexdisk/move/{OTHER}"
    sim.run("zfs", "create", "-p", "-o", "mountpoint=none", place)
    sim.run("zfs", "set", 'flexdisk:move={"phase":"leaving"}', place)


def unreadable(sim):
    intend(sim, VM, value="%7B")


def of_no_vm(sim):
    intend(sim, NOBODY)


def of_a_vm_being_made(sim):
    sim.run("zfs", "create", f"zones/{NOBODY}")
    intend(sim, NOBODY, creates="web09")


def unfinished(sim):
    sim.node.state["vms"][VM].update(zone_state="configured")


def not_listed(sim):
    intend(sim, OTHER, listed=False)


def listed_only(sim):
    sim.run("zfs", "set", f"flexdisk:intents={VM}", BOX)


# What is made, all kinds that are found then, and those that are left after the repair of all of them.
TWINS = {"orphan_volume", "duplicate_uuid", "quota_drift"}
EXCHANGED = {"uuid_mismatch", "orphan_volume", "duplicate_uuid", "quota_drift"}
SHARED = {"shared_volume", "stray_volume", "uuid_mismatch", "duplicate_name"}
DEFECTS = [
    (destroyed, {"dangling_reference", "quota_drift"}, {"dangling_reference"}),
    (
        moved_by_hand,
        {"dangling_reference", "stranger_volume", "quota_drift"},
        {"dangling_reference", "stranger_volume"},
    ),
    (half_detached, {"parked_still_configured", "quota_drift"}, set()),
    (shared, SHARED, SHARED),
    (twice, {"disk_twice", "uuid_mismatch"}, {"disk_twice", "uuid_mismatch"}),
    (same_slot, {"slot_conflict", "stale_copy"}, {"slot_conflict"}),
    (no_dataset, {"vm_without_dataset", "stranger_volume"}, {"vm_without_dataset", "stranger_volume"}),
    (unfinished, {"vm_unfinished"}, {"vm_unfinished"}),
    (strayed, {"stray_volume"}, {"stray_volume"}),
    (one_uuid, {"duplicate_uuid", "parked_place"}, {"duplicate_uuid", "parked_place"}),
    (nameless_twin, {"parked_place"}, {"parked_place"}),
    (orphaned_twins, TWINS, TWINS - {"quota_drift"}),
    (other_uuid, {"uuid_mismatch"}, set()),
    (swapped, {"uuid_mismatch"}, {"uuid_mismatch"}),
    (exchanged_for_an_orphan, EXCHANGED, EXCHANGED - {"quota_drift"}),
    (no_uuid, {"uuid_not_configured"}, {"uuid_not_configured"}),
    (stale, {"stale_copy"}, set()),
    (lost_property, {"stale_copy"}, set()),
    (same_name, {"duplicate_name"}, {"duplicate_name"}),
    (same_name_as_detached, {"duplicate_name"}, {"duplicate_name"}),
    (number_as_name, {"invalid_name"}, {"invalid_name"}),
    (no_name_at_all, {"invalid_name"}, {"invalid_name"}),
    (garbage, {"invalid_property"}, {"invalid_property"}),
    (garbage_of_a_detached_disk, {"invalid_property"}, {"invalid_property"}),
    (set_above, {"inherited_property"}, set()),
    (set_on_the_pool, {"inherited_property"}, set()),
    (received, {"received_property"}, set()),
    (orphaned, {"orphan_volume", "quota_drift"}, set()),
    (orphaned_with_identity, {"orphan_volume", "quota_drift"}, set()),
    (misplaced, {"parked_place"}, set()),
    (made_by_hand, {"parked_place"}, set()),
    (no_uuid_of_its_own, {"parked_place"}, set()),
    (vm_gone, {"unknown_vm"}, {"unknown_vm"}),
    (copied, {"stranger_volume"}, {"stranger_volume"}),
    (drifted, {"quota_drift"}, set()),
    (half_set, {"quota_drift"}, set()),
    (other_base, {"quota_drift"}, set()),
    (thin, {"reservation_off_auto"}, set()),
    (guarded, {"guard"}, set()),
    (guarded_detached, {"guard"}, set()),
    (marked, {"from_mark"}, set()),
    (marked_detached, {"from_mark"}, {"from_mark"}),
    (half_imported, {"from_mark"}, {"from_mark"}),
    (unreadable_move, {"move_unreadable"}, {"move_unreadable"}),
    (ours_left, {"intent"}, {"intent"}),
    (half_rolled_back, {"intent"}, {"intent"}),
    (theirs_left, {"intent_of_other_host"}, set()),
    (unreadable, {"intent_unreadable"}, set()),
    (of_no_vm, {"intent_without_vm"}, set()),
    (of_a_vm_being_made, {"intent_without_vm"}, {"intent_without_vm"}),
    (not_listed, {"intent", "intent_index"}, {"intent"}),
    (listed_only, {"intent_index"}, set()),
]


REPAIRS = [(make, kind) for make, kinds, left in DEFECTS for kind in sorted(kinds - left)]


def named(value):
    return value if isinstance(value, str) else getattr(value, "__name__", "-")


def test_nothing_is_wrong_with_a_clean_host():
    sim = world()
    before = sim.fingerprint()
    for repair in ((), REPAIRABLE):
        assert findings(go(sim, *repair)) == []
        assert findings(go(sim, *repair, check=True)) == []
    assert sim.fingerprint() == before
    assert findings(go(Simulated())) == []


def test_papers_of_a_package_are_no_defect_of_disks():
    sim = world()
    sim.run("zfs", "set", "flexdisk:released=small", ROOT)
    assert kinds(go(sim)) == []


@pytest.mark.parametrize(("make", "found", "left"), DEFECTS, ids=named)
def test_each_defect_is_found_and_repaired(make, found, left):
    sim = world()
    data = sim.disks()["b"].volume
    sim.write(data.name, 5)
    digest = sim.digest(data.name)
    make(sim)
    result = go(sim)
    assert set(kinds(result)) == found
    assert not result.outcome.changed
    for finding in findings(result):
        assert finding["meaning"] == KINDS[finding["kind"]].meaning
        assert finding["repair"] or "guess" in finding["message"] or ";" in finding["message"], finding
        assert finding["volume"], finding
        for module, task in (finding["repair"] or {}).items():
            assert set(task) <= options_of(module), finding
    if found != left:
        sim.calls.clear()
        settle(sim, *REPAIRABLE)
        lost = [call[-1] for call in sim.calls if call[:2] == ["zfs", "destroy"]]
        assert all(name.endswith("@flexdisk-guard") for name in lost), lost
        assert not [call for call in sim.calls if call[:2] in (["vmadm", "stop"], ["vmadm", "delete"])]
        for vm in sim.node.vmadm_state["vms"]:
            sim.assert_lawful(vm)
    after = go(sim)
    assert set(kinds(after)) == left
    assert not [finding for finding in after.findings if finding.repairable]
    moved = {
        d.volume.guid: d.volume.name for vm in (VM, OTHER) if vm in sim.run("vmadm", "lookup") for d in volumes(sim, vm)
    }
    assert sim.digest(moved[data.guid]) == digest


@cache
def options_of(module):
    """Of a module of ours, as its documentation has them."""
    name = module.removeprefix("flexdisk.hypervisor.")
    beside = MODULES / f"{name}.yml"
    if beside.exists():
        return set(yaml.safe_load(beside.read_text())["DOCUMENTATION"]["options"])
    text = re.search(r'DOCUMENTATION = r"""(.*?)"""', (MODULES / f"{name}.py").read_text(), re.DOTALL)[1]
    return set(yaml.safe_load(text)["options"])


def volumes(sim, uuid):
    try:
        vm = sim.vm(uuid)
    except StopIteration:
        return []
    return [*vm.disks, *vm.orphans, *vm.detached]


@pytest.mark.parametrize(("make", "kind"), REPAIRS, ids=named)
def test_each_kind_is_repaired_by_the_task_that_its_finding_gives(make, kind):
    """And by nothing else: the other kinds stay, or go with it."""
    sim = world()
    make(sim)
    finding = next(f for f in go(sim).findings if f.kind == kind)
    [(module, task)] = finding.repair.items()
    assert (module, task["repair"]) == ("flexdisk.hypervisor.disk_verify", [kind])
    done = go(sim, *task["repair"], vms=task.get("vms"))
    assert (done.outcome.problems, done.outcome.failure, done.outcome.changed) == ([], None, True)
    assert [f.kind for f in done.repaired if f.kind == kind]
    assert kind not in kinds(go(sim))


def test_every_kind_is_among_the_defects_or_tested_elsewhere():
    elsewhere = {"never_used", "unused_quota"}  # below
    elsewhere |= {"unread_pool"}  # engine/steps/test_in_use.py
    elsewhere |= {"overlaid_disk"}  # domains/test_in_use.py
    elsewhere |= {"serial_mismatch", "not_plugged"}  # domains/test_disk_verify.py
    elsewhere |= {"property_too_long"}  # rules/test_verify.py
    elsewhere |= {"guest_paused", "memory_left", "disks_closed"}  # replication/test_suspended*.py
    elsewhere |= {"record_differs"}  # proxmox/test_records.py
    elsewhere |= {"unfinished_snapshot"}  # proxmox/test_rollback.py
    elsewhere |= {"unused_without_volume"}  # proxmox/test_verified.py
    elsewhere |= {kind for kind in KINDS if kind.startswith("replica_")}  # replication/test_engine.py
    assert {kind for _make, result, _left in DEFECTS for kind in result} | elsewhere == set(KINDS)


# -- what needs more than one look


def test_a_detached_disk_that_was_never_used():
    sim = world()
    assert kinds(go(sim, later=29 * DAY)) == []
    [finding] = go(sim, later=31 * DAY).findings
    assert (finding.kind, finding.disk, finding.alias) == ("never_used", "c", "web01")
    assert finding.repair == {"flexdisk.hypervisor.disk": {"uuid": sim.detached()["c"].uuid, "state": "absent"}}
    assert not finding.repairable
    assert kinds(go(sim, later=31 * DAY, unused_days=40)) == []
    for length, seed in (("512B", "7"), ("512B", "text"), ("700K", "7")):
        used = world()
        used.run("guest", "write", detached(used), "0", length, seed)
        assert kinds(go(used, later=31 * DAY)) == []
    [task] = finding.repair.values()
    done = disk.run(Zfs(sim.runner), Vmadm(sim.runner), [task], Policy(), None, False)
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert (sim.detached(), kinds(go(sim, later=31 * DAY))) == ({}, [])


def test_room_that_an_inflexible_vm_keeps():
    sim = Simulated()
    sim.adopted(1024, flexible=None)
    sim.converge({"vm": VM, "disks": [{"name": "root"}], "unlisted": "detach"})
    [finding] = go(sim).findings
    assert (finding.kind, finding.severity, finding.repairable) == ("unused_quota", "info", False)
    assert finding.repair == {"flexdisk.hypervisor.zfs_quota": {"vms": [VM], "reclaim": True}}
    assert not go(sim, *REPAIRABLE).outcome.changed
    assert sim.quota(reclaim=True).changed
    assert kinds(go(sim)) == []


def test_an_inflexible_vm_that_lacks_quota():
    sim = Simulated()
    sim.adopted(1024, flexible=None)
    law = sim.vm().root.quota
    sim.run("zfs", "set", "reservation=none", ROOT)
    settle(sim, "quota_drift")
    assert (sim.vm().root.quota, sim.vm().root.reservation) == (law, law)


def test_an_overdrawn_vm_is_left_with_its_drift():
    sim = Simulated()
    sim.adopted(2048, flexible=10240 + 2048)
    sim.write(f"{ROOT}/disk1", 7, 0, 300)
    sim.run("zfs", "set", "quota=20G", "reservation=20G", ROOT)
    sim.run("zfs", "snapshot", f"{ROOT}/disk1@mine")
    [finding] = go(sim, *REPAIRABLE).findings
    assert (finding.kind, finding.repairable, finding.repair) == ("quota_drift", False, None)
    assert "more than flexible_disk_size, which must be at least" in finding.message


def test_a_running_vm_is_repaired_without_a_stop_but_for_its_configuration():
    sim = world()
    for make in (stale, orphaned, drifted, guarded):
        make(sim)
    sim.run("vmadm", "start", VM)
    settle(sim, *REPAIRABLE)
    assert (kinds(go(sim)), sim.get()["state"]) == ([], "running")
    half_detached(sim)
    [ghost] = [f for f in go(sim, *REPAIRABLE).findings if f.kind == "parked_still_configured"]
    assert (ghost.repairable, "stop it first" in ghost.message) == (False, True)
    sim.run("vmadm", "stop", VM, "-F")
    settle(sim, *REPAIRABLE)
    assert kinds(go(sim)) == []


def test_an_interrupted_vm_is_left_to_the_run_that_takes_it_up():
    sim = world()
    for make in (stale, drifted, ours_left):
        make(sim)
    before = sim.fingerprint()
    result = go(sim, *REPAIRABLE)
    assert sorted(kinds(result)) == ["intent", "quota_drift", "stale_copy"]
    assert sim.fingerprint() == before
    [task] = [f.repair for f in result.findings if f.kind == "intent"]
    assert task == {"flexdisk.hypervisor.vm_disks": {"vms": [{"vm": VM}]}}
    assert sim.converge({**task["flexdisk.hypervisor.vm_disks"]["vms"][0], "disks": None}).failure is None
    assert set(kinds(go(sim, "stale_copy"))) == set()


def test_a_rollback_is_ended_by_its_own_module():
    sim = world()
    half_rolled_back(sim)
    [finding] = go(sim).findings
    assert finding.repair == {"flexdisk.hypervisor.vm_snapshot": {"vms": [VM], "name": "one", "state": "rolled_back"}}


def test_a_disk_without_uuid_gets_it_by_the_task_given():
    sim = world()
    no_uuid(sim)
    [finding] = go(sim).findings
    [spec] = finding.repair["flexdisk.hypervisor.vm_disks"]["vms"]
    done = sim.converge(spec)
    assert (done.problems, done.failure, done.changed) == ([], None, True)
    assert kinds(go(sim)) == []


def test_only_what_is_named_is_repaired():
    sim = world()
    for make in (stale, misplaced, drifted):
        make(sim)
    done = settle(sim, "parked_place")
    assert [f.kind for f in done.repaired] == ["parked_place"]
    assert sorted(kinds(done)) == ["quota_drift", "stale_copy"]


def test_only_the_named_vms():
    sim = world()
    stale(sim)
    copied(sim)
    sim.run("zfs", "set", "flexdisk:slot=0:9:0", f"zones/{OTHER}/disk1")
    assert [f.alias for f in go(sim, vms=["web02"]).findings] == ["web02"]
    done = go(sim, *REPAIRABLE, vms=["web02"])
    assert [f.alias for f in done.repaired] == ["web02"]
    assert sorted(kinds(go(sim))) == ["stale_copy", "stranger_volume"]
    assert [p.code for p in go(sim, vms=["nobody"]).outcome.problems] == ["ResourceNotFound"]


def twin(sim):
    """Another VM is configured with the orphan."""
    path = f"/dev/zvol/rdsk/{ROOT}/disk9"
    sim.node.vmadm_state["vms"][OTHER]["devices"].append({**device(sim, 1), "path": path, "uuid": FOREIGN})


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda sim: sim.run("zfs", "create", "-V", "8M", place_of(sim)), "already exists"),
        (twin, "has it open or configured"),
    ],
    ids=["taken", "used"],
)
def test_an_orphan_that_cannot_be_detached(prepare, says):
    sim = world()
    orphaned(sim)
    prepare(sim)
    [finding] = [f for f in go(sim, *REPAIRABLE).findings if f.kind == "orphan_volume"]
    assert (finding.repairable, finding.repair) == (False, None)
    assert says in finding.message


def place_of(sim):
    [orphan] = sim.vm().orphans
    return place(orphan)


def test_an_orphan_keeps_data_snapshots_and_identity_and_gives_up_a_name_that_is_taken():
    sim = world()
    orphaned_with_identity(sim)
    orphan = sim.vm().orphans[0]
    sim.write(orphan.volume.name, 9)
    sim.run("zfs", "snapshot", orphan.volume.name + "@mine")
    sim.run("zfs", "set", "flexdisk:name=a", orphan.volume.name)
    digest = sim.digest(orphan.volume.name)
    done = settle(sim, "orphan_volume")
    assert f"detached without its name (uuid {orphan.uuid})" in done.outcome.diff
    [disk] = sim.vm().detached
    assert (disk.uuid, disk.name, disk.volume.guid) == (orphan.uuid, "", orphan.volume.guid)
    assert sim.digest(disk.volume.name) == digest
    assert [s.name.split("@")[1] for s in disk.snapshots] == ["mine"]
    assert kinds(go(sim)) == []


def test_one_defect_beside_the_other_all_at_once():
    """Together they are repaired in one run, and what is left is what each leaves by itself."""
    sim = world()
    for make in (stale, set_above, orphaned, misplaced, drifted, guarded, marked, theirs_left, number_as_name, copied):
        make(sim)
    settle(sim, *REPAIRABLE)
    assert sorted(kinds(go(sim))) == ["invalid_name", "stranger_volume"]


def test_a_pool_without_room_for_what_is_detached():
    sim = world()
    orphaned_with_identity(sim)
    left = int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))
    sim.run("zfs", "create", "-o", f"reservation={left - (64 << 20)}", "zones/ballast")
    before = sim.fingerprint()
    for check in (True, False):
        [problem] = go(sim, "orphan_volume", check=check).outcome.problems
        assert (problem.code, problem.vm) == ("InsufficientSpace", "web01")
    assert sim.fingerprint() == before


# -- interruptions


class Killed(BaseException):
    """The module is gone."""


def kill(sim, number, after):
    """The module dies before or after its change with this number."""
    real, left = sim.runner, [number]

    def dying(argv, stdin="", timeout=300):
        if changes(argv):
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
        answer = real(argv, stdin, timeout)
        if left[0] == 0 and changes(argv):
            raise Killed
        return answer

    sim.runner = dying
    return lambda: setattr(sim, "runner", real)


def state_of(sim):
    """What there is, but for stamps."""
    vms = [sim.vm(uuid) for uuid in (VM, OTHER)]
    return [
        (
            (vm.root.quota, vm.root.reservation, vm.root.refreservation, vm.config),
            sorted(
                (d.volume.name, d.volume.guid, d.uuid, d.name, d.path, sim.digest(d.volume.name))
                for d in volumes(sim, vm.config.uuid)
            ),
        )
        for vm in vms
    ]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("make", "kind"), REPAIRS, ids=named)
def test_killed_at_every_change_the_same_task_ends_it(make, kind, after):
    sim = world()
    make(sim)
    go(sim, kind)
    wanted_end, number = (state_of(sim), findings(go(sim))), 0
    while True:
        number += 1
        sim = world()
        make(sim)
        restore = kill(sim, number, after)
        try:
            go(sim, kind)
            break
        except Killed:
            pass
        finally:
            restore()
        done = go(sim, kind)
        assert (done.outcome.problems, done.outcome.failure) == ([], None), number
        assert (state_of(sim), findings(go(sim))) == wanted_end, number
    assert number > 1


@pytest.mark.parametrize("make", [stale, orphaned, misplaced, theirs_left, guarded_detached, thin])
def test_a_failure_tells_what_was_not_done(make):
    sim = world()
    make(sim)
    sim.fault = lambda argv: "cannot do it: I/O error" if changes(argv) else None
    done = go(sim, *REPAIRABLE)
    assert done.outcome.failure["message"]
    assert done.outcome.failure["steps"][0]["status"] == "failed"
    assert done.repaired == []
    assert done.findings
    sim.fault = None
    settle(sim, *REPAIRABLE)


# -- processes


@pytest.mark.parametrize("count", [1, 1000])
def test_the_number_of_processes_does_not_depend_on_that_of_disks(count):
    sim = world()
    for number in range(count):
        facts = [
            "flexdisk:uuid=dddddddd-0000-4000-8000-%012d" % number,
            f"flexdisk:vm={VM}",
            "flexdisk:name=n%d" % number,
        ]
        arguments = [word for fact in facts for word in ("-o", fact)]
        sim.run("zfs", "create", "-s", "-V", "8M", *arguments, "%s/dddddddd-0000-4000-8000-%012d" % (BOX, number))
    theirs_left(sim)
    sim.calls.clear()
    assert kinds(go(sim)) == ["intent_of_other_host"]
    assert len(sim.calls) == 4, sim.calls


def test_what_ganeti_verifies_is_tested_or_has_a_reason():
    table = yaml.safe_load((UNIT / "data" / "ganeti_verify.yml").read_text())
    assert {f"check {n}" for n in range(1, 15)} | {"C12", "C13", "V01", "V02"} <= {row.split(",")[0] for row in table}
    for row, reason in table.items():
        assert set(reason) in ({"test"}, {"reason"}), row
        if "reason" in reason:
            continue
        path, test, defect = re.fullmatch(r"(\S+)::(\w+)(?:\[(\w+)\])?", reason["test"]).groups()
        text = (UNIT / path).read_text()
        assert f"\ndef {test}(" in text, row
        assert defect is None or f"\n    ({defect}, " in text, row
