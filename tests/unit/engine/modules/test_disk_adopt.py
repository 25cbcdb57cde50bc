# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Adopt and release on the node: identities given, taken, and given back with nothing lost."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import disk_verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_adopt import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm import run as vm_run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps import perform
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer, changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import (
    identity,
    journal,
    property_text,
    released_identity,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.four_steps import four_steps

from ..conftest import VM, Simulated

OTHER = VM[:-1] + "2"
ROOT = f"zones/{VM}"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time stands still, so that what two nodes say of it is the same."""
    stopped = SimpleNamespace(time=lambda: 1770091506.0)
    monkeypatch.setattr(perform, "time", stopped)


def go(sim, *vms, check=False, state="adopted", forget=False, runner=None):
    runner = runner or sim.runner
    raw = list(vms) or None
    return run(Zfs(runner, lambda seconds: None), Vmadm(runner), raw, state, forget, None, check)


def release(sim, *names, **more):
    return go(sim, *({"vm": name} for name in names), state="released", **more)


def settle(sim, *vms, **more):
    """A task in four steps."""
    return four_steps(
        sim,
        lambda check: go(sim, *vms, check=check, **more),
        lambda done: {"vms": done.outcome.vms, "released": done.released, "skipped": done.skipped},
    )


def refusal(sim, *codes, vms=(), **more):
    before = sim.fingerprint()
    predicted, refused = (go(sim, *vms, check=check, **more).outcome.problems for check in (True, False))
    assert sim.fingerprint() == before
    assert predicted == refused
    assert sorted(p.code for p in refused) == sorted(codes), refused
    return "; ".join(f"{p.disk}: {p.message}" for p in refused)


def ours(sim):
    """Our properties of every dataset."""
    facts = {}
    for line in sim.run("zfs", "get", "-Hp", "-o", "name,property,value,source", "all").splitlines():
        name, key, value, source = line.split("\t")
        if key.startswith("flexdisk:") and source in ("local", "received"):
            facts[name, key[len("flexdisk:") :]] = value
    return facts


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
    done = settle(sim)
    assert rest(sim) == before
    assert f"= disk1 adopted (zones/{VM}/disk1 at 0:4:1)" in done.outcome.diff
    assert named(sim) == {"disk0": "disk0", "disk1": "disk1", "disk2": "disk2"}
    for uuid in (VM, OTHER):
        for disk, reported in zip(sim.vm(uuid).disks, sim.get(uuid)["disks"], strict=True):
            user = disk.volume.user
            assert (user["uuid"], user["vm"], user["serial_no"]) == (reported["uuid"], uuid, "1")
            assert (user["slot"], user["index"], user["model"]) == (reported["pci_slot"], str(disk.index), "virtio")
            assert user["boot"] == ("true" if disk.boot else "false")
            assert user["ctime"] == user["mtime"] != ""


def test_what_is_said_of_single_disks(sim):
    sim.create(sizes=(2048, 1024))
    uuid = sim.get()["disks"][1]["uuid"]
    entries = [
        {"index": 0, "name": "root"},
        {"uuid": uuid.upper(), "pci_slot": "4:1", "name": "data", "preserve": True, "tags": {"b": "1"}},
        {"pci_slot": "0:4:2", "description": "träge\tLogs"},
    ]
    settle(sim, {"vm": "web01", "disks": entries, "package": "small"})
    disks = sim.disks()
    assert list(disks) == ["root", "data", "disk2"]
    assert (
        disks["data"].preserve,
        disks["data"].user_properties["tags"],
        disks["disk2"].user_properties["description"],
    ) == (
        True,
        {"b": "1"},
        "träge\tLogs",
    )
    assert sim.vm().package == "small"


def test_an_adopted_disk_keeps_everything(sim):
    sim.adopted(2048)
    before = ours(sim)
    done = settle(sim, {"vm": "web01", "disks": [{"index": 1, "name": "a", "description": "new", "preserve": True}]})
    assert not done.outcome.changed
    assert ours(sim) == before
    assert [w.partition("; ")[0].partition("keeps its ")[2] for w in done.outcome.warnings] == [
        "preserve",
        "description",
    ]
    message = refusal(sim, "NameConflict", vms=[{"vm": "web01", "disks": [{"index": 1, "name": "b"}]}])
    assert "disk1 is called a; vm_disks renames it" in message


def test_disks_of_a_vmadm_that_gave_no_uuids(sim):
    """While the VM runs there is none to take; one that is stopped gets those that vm_disks would write down."""
    sim.create()
    sim.run("vmadm", "start", VM)
    sim.admin("vm-make-legacy", VM, "uuids")
    running = settle(sim)
    assert running.outcome.warnings == [f"web01 ({VM}): disk disk{n} has no uuid yet" for n in (0, 1)]
    assert [d.uuid for d in sim.vm().disks] == ["", ""]
    sim.run("vmadm", "stop", VM, "-F")
    sim.admin("vm-make-legacy", VM, "uuids")
    stopped = settle(sim)
    lines = [stopped.outcome.msg, f"web01 ({VM}):", "  ~ uuid and slot of disk0, disk1 written down"]
    assert stopped.outcome.diff.splitlines() == lines
    for disk, reported in zip(sim.vm().disks, sim.get()["disks"], strict=True):
        assert disk.volume.user["uuid"] == reported["uuid"] == identity.uuid_of(disk.volume.guid)
        assert disk.volume.user["serial_no"] == "2"


@pytest.mark.parametrize(
    ("codes", "disks", "text"),
    [
        (["InvalidArgument"], [{"index": 1, "name": "a b"}], "disk name 'a b'"),
        (["InvalidArgument"], [{"index": 1, "name": "42"}], "read it as a number"),
        (["InvalidArgument"], [{"index": 0, "name": "a"}, {"index": 1, "name": "a"}], "two disks have the name a"),
        (["NameConflict"], [{"index": 0, "name": "disk1"}], "choose another: disks: [{index: 1, name: disk1-2}]"),
        (["ResourceNotFound"], [{"index": 7}], "no disk with index 7; there are: index 0 at 0:4:0, uuid "),
        (["ResourceNotFound"], [{"uuid": OTHER}], f"no disk with uuid {OTHER}"),
        (["ResourceNotFound"], [{"index": 0, "pci_slot": "0:4:1"}], "index 0, pci_slot 0:4:1"),
        (["InvalidArgument"], [{"index": 1}, {"pci_slot": "0:4:1"}], "listed twice"),
        (["InvalidArgument"], [{"pci_slot": "x"}], "x"),
        (["InvalidArgument"] * 2, [{"index": 1, "uuid": "x"}, {"index": -1}], "is not a uuid"),
        (["InvalidArgument"], [{"index": 1, "ctime": "today"}], "write it as 2026-"),
        (["InvalidArgument"], [{"index": 1, "serial_no": 0}], "from 1 to"),
        (["InvalidArgument"], [{"index": 1, "remaining": "all"}], "give it as a release returned it"),
        (["InvalidArgument"], [{"index": 1, "description": "ä" * 4000}], "the limit is 8191"),
    ],
)
def test_what_cannot_be_said_of_a_disk(sim, codes, disks, text):
    sim.create()
    assert text in refusal(sim, *codes, vms=[{"vm": "web01", "disks": disks}])


def test_all_problems_together_and_no_vm_changed(sim):
    sim.create()
    sim.create(uuid=OTHER, alias="web02")
    wrong = [{"vm": "web01", "disks": [{"index": 9}, {"index": 0, "name": "7"}]}, {"vm": "nobody"}, {"vm": "web02"}]
    refusal(sim, "InvalidArgument", "ResourceNotFound", vms=wrong)
    refusal(sim, "InvalidArgument", vms=[{"vm": "web01"}, {"vm": VM}])
    refusal(sim, "InvalidArgument", vms=[{"vm": "web01"}], forget=True)


def test_a_default_name_that_a_detached_disk_has(sim):
    sim.adopted(2048, 1024)
    entries = [{"name": "root"}, {"name": "disk2", "uuid": sim.disks()["a"].uuid}, {"name": "b"}]
    assert sim.converge({"vm": "web01", "disks": entries}).failure is None
    done = sim.converge({"vm": "web01", "unlisted": "detach", "disks": [{"name": "root"}, {"name": "b"}]})
    assert (done.problems, done.failure) == ([], None)
    for key in released_identity.FACTS:
        sim.run("zfs", "inherit", "flexdisk:" + key, ROOT + "/disk2")
    message = refusal(sim, "NameConflict")
    assert f"{ROOT}/disk2 and zones/flexdisk/" in message
    settle(sim, {"vm": VM, "disks": [{"index": 2, "name": "b"}]})


def test_what_contradicts_itself_is_refused(sim):
    sim.adopted(2048)
    sim.create(uuid=OTHER, alias="web02")
    disk = sim.disks()["a"]
    sim.run("zfs", "set", f"flexdisk:uuid={OTHER}", disk.volume.name)
    assert f"has uuid {OTHER}, but the hypervisor says {disk.uuid}" in refusal(sim, "Ambiguous")
    refusal(sim, "Ambiguous", vms=[{"vm": "web01"}], state="released")
    settle(sim, {"vm": "web02"})
    twin = sim.get(OTHER)["disks"][1]["uuid"]
    sim.run("zfs", "set", f"flexdisk:uuid={disk.uuid}", disk.volume.name)
    sim.run("zfs", "create", "-o", f"flexdisk:uuid={twin}", "-V", "10M", ROOT + "/copy")
    message = refusal(sim, "Ambiguous", "Ambiguous")
    assert f"the uuid {twin} is on several volumes: {ROOT}/copy, zones/{OTHER}/disk1" in message


def test_a_vm_in_transition(sim):
    sim.create()
    sim.admin("vm-state", VM, "stopping")
    refusal(sim, "VmInTransition")
    sim.admin("vm-state", VM, "-")
    settle(sim)
    sim.admin("vm-state", VM, "stopping")
    refusal(sim, "VmInTransition", state="released")
    assert not go(sim).outcome.changed


def test_hidden_disks_and_orphans():
    sim = Simulated()
    image = "aaaaaaaa-0000-4000-8000-000000000004"
    sim.admin("image-import", image, "1024", "nocloud=yes")
    sim.create(disks=[{"image_uuid": image, "boot": True, "model": "virtio"}, {"size": 512, "model": "virtio"}])
    sim.run("zfs", "create", "-V", "10M", ROOT + "/mine")
    hidden = [d.volume.name for d in sim.vm().disks if d.hidden]
    done = settle(sim)
    assert done.outcome.warnings == [
        f"web01 ({VM}): volume {ROOT}/mine is not in the VM's configuration and is not adopted"
    ]
    assert {name for name, _key in ours(sim)} == {ROOT + "/disk0", ROOT + "/disk1"}
    assert len(hidden) == 1
    number = int(hidden[0][-1])
    assert "is a disk of the platform" in refusal(
        sim, "InvalidArgument", vms=[{"vm": VM, "disks": [{"index": number}]}]
    )


@pytest.mark.parametrize(
    "junk",
    [
        {"uuid": "../../x", "name": "a/b", "slot": "9:9:9", "tags": "[1]", "preserve": "maybe", "index": "x"},
        {"description": "%zz", "tags": "%7B", "serial_no": "many", "mtime": "<b>", "remaining": "junk"},
        {"name": "disk1"},
        {"serial_no": "7", "ctime": "2026-01-31T23:59:59Z"},
    ],
)
def test_junk_and_halves_become_whole(sim, junk):
    sim.create()
    for key, value in junk.items():
        sim.run("zfs", "set", f"flexdisk:{key}={value}", ROOT + "/disk1")
    if junk.get("uuid"):
        refusal(sim, "Ambiguous")
        sim.run("zfs", "inherit", "flexdisk:uuid", ROOT + "/disk1")
    settle(sim)
    disk = sim.vm().disks[1]
    assert (disk.name, disk.volume.user["uuid"]) == ("disk1", disk.uuid)
    assert released_identity.has_whole_identity(disk.volume)
    assert released_identity.decode(
        released_identity.encode(released_identity.identity_of(disk))
    ) == released_identity.identity_of(disk)


def test_check_mode_changes_nothing(sim):
    rich(sim)
    before = sim.fingerprint()
    assert go(sim, check=True, state="released", forget=True).outcome.changed
    assert sim.fingerprint() == before
    release(sim)
    before = sim.fingerprint()
    assert go(sim, check=True).outcome.changed
    assert sim.fingerprint() == before


# -- release


def down_and_up(sim, *, forget=False, handed=True):
    """All released, and adopted again with what was returned, or with what lies there."""
    before, others = ours(sim), rest(sim)
    down = settle(sim, state="released", forget=forget)
    assert rest(sim) == others
    left = {key for name, key in ours(sim) if not name.startswith("zones/flexdisk")}
    assert left == (set() if forget else {released_identity.RELEASED_PROPERTY})
    settle(sim, *(down.released if handed else ()))
    assert ours(sim) == before
    assert rest(sim) == others
    return down


def rich(sim, **more):
    """web01 with root, a, b that have everything that a disk can have."""
    sim.adopted(2048, 1024, **more)
    entries = [
        {"name": "root", "description": "Wurzel: 'ä' % \"x\"\tz", "preserve": True},
        {"name": "a", "tags": {"owner": "müller", "n": "1"}, "size": "remaining"},
        {"name": "b", "preserve": True, "tags": {}, "description": "-"},
    ]
    for number in range(3):
        entries[2]["description"] = "change %d" % number
        done = sim.converge({"vm": VM, "disks": entries})
        assert (done.problems, done.failure) == ([], None)
    sim.run("zfs", "set", "flexdisk:package=flexible", ROOT)
    sim.run("zfs", "set", "flexdisk:ctime=2026-01-31T23:59:59Z", "flexdisk:serial_no=41", ROOT + "/disk2")


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_up_down_up_again_loses_nothing(sim, forget, running):
    rich(sim)
    if running:
        sim.run("vmadm", "start", VM)
    down = down_and_up(sim, forget=forget)
    assert [d["name"] for d in down.released[0]["disks"]] == ["root", "a", "b"]
    b = down.released[0]["disks"][2]
    assert (b["serial_no"], b["ctime"], b["index"], b.get("tags", {})) == (
        41,
        "2026-01-31T23:59:59Z",
        2,
        {},
    )
    assert down.released[0]["package"] == "flexible"


# -- a saved identity counts


def released_vm(sim):
    """web01 with root, a and b, of which b is preserved; released. The facts of b as they were."""
    rich(sim)
    before = facts_of(sim, ROOT + "/disk2")
    assert before["preserve"] == "true"
    release(sim)
    assert not sim.disks()["b"].adopted
    return before


def facts_of(sim, volume):
    return {key: value for (name, key), value in ours(sim).items() if name == volume}


def test_a_released_disk_that_is_preserved_outlives_its_vm(sim):
    before = released_vm(sim)
    gone = {"vm": VM, "state": "absent", "unlisted": "refuse", "destroy_disks": True, "destroy_snapshots": True}
    done = vm_run(Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner), [gone], [], Policy(), None, False)
    assert (done.problems, done.failure) == ([], None)
    after = facts_of(sim, f"zones/flexdisk/{before['uuid']}")
    assert after == {**before, "mtime": after["mtime"], "serial_no": "42"}
    root = sim.run("zfs", "list", "-Ho", "name", "-r", "zones/flexdisk").split()
    assert len(root) == 3, "root is preserved, too; a is not"


@pytest.mark.parametrize("unlisted", ["destroy", "detach"])
def test_a_released_disk_that_is_preserved_leaves_with_its_identity_and_comes_back(sim, unlisted):
    before = released_vm(sim)
    spec = {"vm": VM, "unlisted": unlisted, "disks": [{"name": "root"}, {"name": "a"}]}
    sim.four_steps(spec)
    assert [d.name for d in sim.vm().disks] == ["root", "a"]
    after = facts_of(sim, f"zones/flexdisk/{before['uuid']}")
    assert after == {**before, "mtime": after["mtime"], "serial_no": "42"}
    sim.converge({"vm": VM, "disks": [*spec["disks"], {"name": "b"}]})
    after = facts_of(sim, ROOT + "/disk2")
    assert after == {**before, "mtime": after["mtime"], "serial_no": "43"}


def test_a_task_that_touches_a_released_disk_gives_it_all_of_its_identity_back(sim):
    before = released_vm(sim)
    spec = {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b", "description": "new"}]}
    done = sim.four_steps(spec)
    assert [step["step"] for step in done.vms[0]["steps"]] == ["identity"] * 3
    after = facts_of(sim, ROOT + "/disk2")
    assert after == {**before, "description": after["description"], "mtime": after["mtime"], "serial_no": "42"}
    assert "adopted" not in go(sim).outcome.diff


def test_a_released_disk_that_somebody_takes_out_keeps_its_identity(sim):
    before = released_vm(sim)
    sim.run("zfs", "rename", ROOT + "/disk2", "zones/away")
    sim.run("vmadm", "update", VM, stdin=json.dumps({"remove_disks": [sim.get()["disks"][2]["path"]]}))
    sim.run("zfs", "set", "quota=100G", ROOT)
    sim.run("zfs", "rename", "zones/away", ROOT + "/disk3")
    zfs, hypervisor = Zfs(sim.runner, lambda seconds: None), Vmadm(sim.runner)
    disk_verify.verify(zfs, hypervisor, None, ["orphan_volume"], None, 30, False, 1_800_000_000)
    after = facts_of(sim, f"zones/flexdisk/{before['uuid']}")
    lost = {key: after.get(key) for key in ("slot", "model", "index")}
    assert {**after, **lost} == {**before, **lost, "mtime": after["mtime"], "serial_no": "42"}


def test_killed_between_the_identity_and_the_saved_one_nothing_is_left(sim):
    released_vm(sim)
    sim.fault = lambda argv: "" if argv[:3] == ["zfs", "inherit", "flexdisk:released"] else None
    spec = {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b", "tags": {"n": "2"}}]}
    assert sim.converge(spec).failure is not None
    sim.fault = None
    assert sim.converge(spec).failure is None
    done = go(sim)
    assert done.outcome.warnings == []
    assert released_identity.RELEASED_PROPERTY not in {key for _name, key in ours(sim)}
    assert sim.disks()["b"].user_properties["tags"] == {"n": "2"}


def test_an_identity_that_zfs_did_not_write_leaves_the_saved_one(sim):
    released_vm(sim)
    saved = ours(sim)

    def silent(argv, stdin="", timeout=300):
        return Answer(0, "", "") if list(argv[:2]) == ["zfs", "set"] else sim.runner(argv, stdin, timeout)

    failed = go(sim, runner=silent).outcome.failure
    assert failed["error_code"] == "NotApplied"
    assert "the saved one is kept" in str(failed)
    assert ours(sim) == saved
    assert go(sim).outcome.failure is None
    assert sim.disks()["b"].user_properties["preserve"] is True


def test_down_twice_is_idle(sim):
    rich(sim)
    first = settle(sim, state="released")
    before = sim.fingerprint()
    second = go(sim, state="released")
    assert (second.outcome.changed, second.released, sim.fingerprint()) == (False, first.released, before)
    assert settle(sim, state="released", forget=True).released == first.released
    assert go(sim, state="released").released == []


def test_what_lies_there_is_enough(sim):
    rich(sim)
    down_and_up(sim, handed=False)


def test_a_released_identity_that_a_task_contradicts(sim):
    rich(sim)
    down = release(sim)
    other = {"vm": VM, "disks": [{**down.released[0]["disks"][1], "uuid": OTHER}]}
    refusal(sim, "ResourceNotFound", vms=[other])
    settle(sim, {"vm": VM, "disks": [{"index": 1, "name": "new", "description": ""}]})
    assert list(sim.disks()) == ["root", "new", "b"]
    assert sim.disks()["new"].user_properties["tags"] == {"owner": "müller", "n": "1"}


def test_a_released_identity_of_another_disk_or_unreadable_is_not_used(sim):
    rich(sim)
    release(sim)
    retained = ours(sim)[ROOT + "/disk1", released_identity.RELEASED_PROPERTY]
    sim.run("zfs", "set", f"flexdisk:{released_identity.RELEASED_PROPERTY}={retained}", ROOT + "/disk2")
    sim.run("zfs", "set", f"flexdisk:{released_identity.RELEASED_PROPERTY}=x", ROOT + "/disk0")
    done = go(sim)
    assert [w.partition("disk")[2][:40] for w in done.outcome.warnings] == [
        "0 cannot be read and is not used",
        "2 is that of another disk, " + json.loads(property_text.decode_text(retained))["uuid"][:13],
    ]
    assert (done.outcome.problems, list(sim.disks())) == ([], ["disk0", "a", "disk2"])
    again = go(sim)
    assert not again.outcome.changed
    assert all("a saved one of another" in w for w in again.outcome.warnings)
    assert len(again.outcome.warnings) == 2


def test_a_release_is_refused_while_a_disk_is_detached(sim):
    sim.adopted(2048, 1024)
    sim.create(uuid=OTHER, alias="web02")
    settle(sim, {"vm": "web02"})
    sim.converge({"vm": VM, "unlisted": "detach", "disks": [{"name": "root"}]})
    for more in ({}, {"vms": [{"vm": VM}]}):
        message = refusal(sim, "InUse", "InUse", state="released", **more)
        for disk in sim.vm().detached:
            assert (
                f"{disk.name}: zones/flexdisk/{disk.uuid} ({disk.size_mib >> 10} GiB, uuid {disk.uuid}) is detached"
                in message
            )
    settle(sim, {"vm": "web02"}, state="released")
    sim.run("vmadm", "delete", VM)
    refusal(sim, "InUse", "InUse", state="released")


def test_a_release_is_refused_while_an_intent_is_left(sim):
    sim.adopted(2048, 1024)
    sim.fault = lambda argv: "cannot" if argv[:2] == ["vmadm", "update"] else None
    done = sim.converge({"vm": VM, "unlisted": "detach", "disks": [{"name": "root"}]})
    assert done.failure is not None
    sim.fault = None
    record = Intent(OTHER, "elsewhere", "2026-01-31T23:59:59Z", "running", True, True)
    facts = [f"flexdisk:intent.{OTHER}={journal.encode(record)}", f"flexdisk:intents={OTHER}"]
    sim.run("zfs", "set", *facts, "zones/flexdisk")
    problems = go(sim, state="released").outcome.problems
    assert "an interrupted run left its record in pool zones" in "; ".join(p.message for p in problems)
    assert OTHER in {p.vm for p in problems}


def test_whole_vms_are_released(sim):
    sim.adopted(2048)
    one = {"vm": VM, "disks": [{"index": 1}], "package": "x"}
    refusal(sim, "InvalidArgument", "InvalidArgument", vms=[one], state="released")


def test_a_released_identity_that_does_not_fit(sim):
    sim.adopted(2048)
    for key in ("description", "tags"):
        value = "d" * 5000 if key == "description" else json.dumps({"a": "t" * 5000})
        sim.run("zfs", "set", f"flexdisk:{key}={value}", ROOT + "/disk1")
    assert "the limit is 8191" in refusal(sim, "InvalidArgument", state="released")


# -- interrupted


class Killed(BaseException):
    pass


def interrupted(sim, when, number, task):
    """A task that is killed before or after its change of that number; whether it came so far."""
    count = 0

    def killing(argv, stdin="", timeout=300):
        nonlocal count
        changing = changes(argv)
        count += changing
        if changing and count == number and when == "before":
            raise Killed
        answer = sim.runner(argv, stdin, timeout)
        if changing and count == number and when == "after":
            raise Killed
        return answer

    try:
        task(runner=killing)
    except Killed:
        return True
    return False


SCENARIOS = {
    "adopt": (lambda sim: sim.create(sizes=(2048, 1024)), {}),
    "adopt without uuids": (lambda sim: (sim.create(), sim.admin("vm-make-legacy", VM, "uuids")), {}),
    "release": (rich, {"state": "released"}),
    "release and forget": (rich, {"state": "released", "forget": True}),
    "adopt again": (lambda sim: (rich(sim), release(sim)), {}),
}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_any_change_the_same_task_ends_it(name, when):
    make, options = SCENARIOS[name]
    whole = Simulated()
    make(whole)
    others = rest(whole)
    done = go(whole, **options)
    wanted = ours(whole)
    number, came = 0, True
    while came:
        number += 1
        sim = Simulated()
        make(sim)
        came = interrupted(sim, when, number, lambda runner, sim=sim: go(sim, runner=runner, **options))
        predicted = go(sim, check=True, **options)
        again = go(sim, **options)
        assert (again.outcome.problems, again.outcome.failure) == ([], None), number
        assert again.outcome.diff == predicted.outcome.diff, number
        assert ours(sim) == wanted, number
        assert name == "adopt without uuids" or rest(sim) == others, number
        assert not go(sim, **options).outcome.changed, number
        if name == "release":
            assert again.released == done.released
            settle(sim)
            assert list(sim.disks()) == ["root", "a", "b"]
    assert number > 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_release_that_was_killed_is_taken_back(when):
    """Whatever was stripped before the kill comes back with the released identity; vm_disks waits for that."""
    number, came, waited = 0, True, 0
    while came:
        number += 1
        sim = Simulated()
        rich(sim)
        before = ours(sim)
        came = interrupted(sim, when, number, lambda runner, sim=sim: release(sim, runner=runner))
        half = [d for d in sim.vm().disks if released_identity.release_interrupted(d.volume)]
        problems = sim.converge(
            {"vm": VM, "disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}]}, check=True
        ).problems
        if half:
            waited += 1
            assert "disk_adopt finishes it" in problems[0].message
        settle(sim)
        assert ours(sim) == before, number
    assert waited > 20


def test_what_the_hypervisor_refuses_is_told(sim):
    sim.create()
    sim.fault = lambda argv: (
        "cannot set property" if argv[:2] == ["zfs", "set"] and argv[-1].endswith("disk1") else None
    )
    done = go(sim)
    assert done.outcome.failure["step"].startswith("= disk1 adopted")
    assert [step["status"] for step in done.outcome.failure["steps"]] == ["done", "failed"]
    sim.fault = None
    settle(sim)


def test_a_listed_disk_whose_volume_is_gone(sim):
    sim.create(sizes=(2048, 1024))
    sim.run("zfs", "destroy", ROOT + "/disk2")
    message = refusal(sim, "ResourceNotFound", vms=[{"vm": VM, "disks": [{"index": 2, "name": "b"}]}])
    assert f"no disk with index 2; the volume of /dev/zvol/rdsk/{ROOT}/disk2 does not exist" in message
    done = settle(sim)
    assert [w.rpartition(": ")[2] for w in done.outcome.warnings] == [
        f"the volume of /dev/zvol/rdsk/{ROOT}/disk2 does not exist"
    ]


def test_what_ganeti_tests_of_upgrades_is_tested_here():
    """That the tests which the table names exist is checked beside the other table."""
    table = Path(__file__).resolve().parents[2] / "data" / "ganeti_upgrade.yml"
    assert set(yaml.safe_load(table.read_text())) == {f"X{number:02d}" for number in range(1, 16)}
