# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which entry is which disk, on the node: adoption, matching=order, old VMs without slots and uuids."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_adopt import run
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import IMAGE, VM

BOOT = {"name": "root", "boot": True}


def steps(done):
    return [step["step"] for step in done.vms[0]["steps"]]


def sizes(sim):
    return {d.name: d.size_mib for d in sim.vm().disks}


def test_adoption_by_size(sim):
    sim.create(sizes=(2048, 1024))
    done = sim.four_steps(
        {"vm": "web01", "disks": [BOOT, {"name": "small", "size": 1024}, {"name": "big", "size": 2048}]}
    )
    assert steps(done) == ["identity"] * 3
    assert f"= small adopted (zones/{VM}/disk2 at 0:4:2)" in done.diff
    assert sizes(sim) == {"root": 10240, "small": 1024, "big": 2048}


def test_adoption_by_slot(sim):
    sim.create(sizes=(2048, 2048))
    entries = [BOOT, {"name": "second", "pci_slot": "4:2"}, {"name": "first", "size": 2048}]
    sim.four_steps({"vm": "web01", "disks": entries})
    assert {d.name: d.index for d in sim.vm().disks} == {"root": 0, "first": 1, "second": 2}


@pytest.mark.parametrize("unlisted", ["keep", "detach"])
def test_a_boot_disk_never_becomes_a_data_disk_of_its_size(sim, unlisted):
    sim.create(sizes=(), flexible=40960)
    boot = sim.vm().disks[0]
    done = sim.four_steps({"vm": "web01", "unlisted": unlisted, "disks": [{"name": "backup", "size": 10240}]})
    assert steps(done) == ["create"]
    assert {(d.name, d.boot) for d in sim.vm().disks} == {("", True), ("backup", False)}
    (warning,) = done.warnings
    assert f"- {{uuid: {boot.uuid}, name: backup, boot: true}}" in warning


def test_a_later_absent_destroys_only_what_was_made_under_the_name(sim):
    sim.create(sizes=(2048,))
    old = sim.vm().disks[1].volume.guid
    spec = {"vm": "web01", "unlisted": "keep", "disks": [{"name": "scratch", "size": 2048}]}
    done = sim.four_steps(spec)
    assert "to use it instead, write - {uuid: " in done.warnings[0]
    sim.four_steps({**spec, "disks": [{"name": "scratch", "state": "absent"}]})
    assert [d.volume.guid for d in sim.vm().disks if not d.boot] == [old]


def test_detach_detaches_an_unnamed_disk_and_destroy_refuses_it(sim):
    sim.create(sizes=(2048,))
    spec = {"vm": "web01", "disks": [BOOT, {"name": "data", "size": 2048}]}
    refused = sim.converge({**spec, "unlisted": "destroy"})
    assert [p.code for p in refused.problems] == ["InvalidArgument"]
    assert "no identity from an earlier run" in refused.problems[0].message
    old = sim.vm().disks[1].volume.guid
    done = sim.four_steps({**spec, "unlisted": "detach"})
    assert "same size and no name" in done.warnings[0]
    assert [d.volume.guid for d in sim.vm().detached] == [old]


README = [
    {"name": "root", "boot": True, "size": 10240},
    {"name": "data", "size": 2048, "preserve": True, "pci_slot": "0:4:1"},
    {"name": "scratch", "size": "remaining"},
]


@pytest.mark.parametrize("unlisted", ["refuse", "keep"])
def test_disks_that_adopt_has_named_are_renamed_by_what_the_refusal_says(sim, unlisted):
    sim.create(sizes=(2048, 1024))
    assert run(Zfs(sim.runner), Vmadm(sim.runner), [{"vm": "web01"}], "adopted", False, None, False).outcome.changed
    assert [d.name for d in sim.vm().disks] == ["disk0", "disk1", "disk2"]
    refused = sim.converge({"vm": "web01", "unlisted": unlisted, "disks": README})
    problems = {p.disk: p.message for p in refused.problems}
    root = sim.vm().disks[0].uuid
    assert (
        f"disk0 (uuid {root}) is the boot disk and has another name; to rename it, give its uuid: "
        f"- {{uuid: {root}, name: root, boot: true}}"
    ) in problems["root"]
    assert next(iter(problems)) == "root"
    assert set(problems) == ({"root", "data", "scratch"} if unlisted == "refuse" else {"root", "data"})
    pasted = {name: yaml.safe_load(text[text.index("- {") :])[0] for name, text in problems.items()}
    entries = [{**entry, **pasted.get(entry["name"], {})} for entry in README]
    if unlisted == "keep":
        entries.pop()
    sim.four_steps({"vm": "web01", "unlisted": unlisted, "disks": entries})
    assert {"root", "data"} <= {d.name for d in sim.vm().disks}


def test_adoption_with_growth_needs_a_word(sim):
    sim.create(sizes=(2048,))
    grown = {"name": "data", "size": 4096}
    assert [p.code for p in sim.converge({"vm": "web01", "disks": [BOOT, grown]}).problems] == ["Ambiguous"]
    done = sim.four_steps({"vm": "web01", "disks": [BOOT, {**grown, "uuid": sim.vm().disks[1].uuid}]})
    assert steps(done) == ["grow", "identity", "identity"]


def test_the_refusals_own_words_can_be_pasted(sim):
    sim.create(sizes=(2048, 2048))
    entries = [BOOT, {"name": "a"}, {"name": "b"}]
    message = sim.converge({"vm": "web01", "disks": entries}).problems[0].message
    pasted = [line.split("uuid: ")[1].split(",")[0] for line in message.splitlines() if line.startswith("- {uuid: ")]
    assert pasted == [d.uuid for d in sim.vm().disks[1:]]
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "a", "uuid": pasted[1]}, {"name": "b", "uuid": pasted[0]}]})
    sim.four_steps({"vm": "web01", "disks": entries})


def test_many_alike_and_one_that_fits_nowhere_is_said_at_once(sim):
    """The search for the only assignment must not try every order of thirteen disks."""
    sim.create(sizes=(64,) * 6)
    for number in range(6):
        entry = {"size": 64, "model": "virtio", "pci_slot": "0:7:%d" % number}
        sim.run("vmadm", "update", VM, stdin=json.dumps({"add_disks": [entry]}))
    entries = [{"name": "d%d" % n, "size": 64} for n in range(11)]
    refused = sim.converge({"vm": "web01", "disks": [BOOT, *entries, {"name": "last", "size": 65}]})
    assert [p.code for p in refused.problems] == ["Ambiguous"]


def test_twelve_alike_with_words_of_their_own(sim):
    sim.create(sizes=(64,) * 6)
    slots = ["0:4:%d" % n for n in range(1, 7)]
    entries = [{"name": "d%d" % n, "pci_slot": slot, "size": 64} for n, slot in enumerate(slots)]
    done = sim.four_steps({"vm": "web01", "disks": [BOOT, *entries]})
    assert steps(done) == ["identity"] * 7


# -- matching=order


def test_order_twice(sim):
    """Names are given, and the next run, which does not look at them, changes nothing."""
    sim.create(sizes=(2048, 4096))
    spec = {"vm": "web01", "disks": [BOOT, {"name": "a", "size": 2048}, {"name": "b", "size": 4096}]}
    sim.four_steps(spec, matching="order")
    assert sizes(sim) == {"root": 10240, "a": 2048, "b": 4096}


def test_order_grows_the_first_that_fits(sim):
    sim.create(sizes=(2048, 1024))
    spec = {"vm": "web01", "disks": [BOOT, {"name": "a", "size": 3072}, {"name": "b", "size": 1024}]}
    done = sim.four_steps(spec, matching="order")
    assert "grow" in steps(done)
    assert sizes(sim) == {"root": 10240, "a": 3072, "b": 1024}


def test_order_with_remaining(sim):
    sim.create(flexible=20480, sizes=(2048,))
    spec = {"vm": "web01", "disks": [BOOT, {"name": "a", "size": 2048}, {"name": "rest", "size": "remaining"}]}
    sim.four_steps(spec, matching="order")
    assert sizes(sim) == {"root": 10240, "a": 2048, "rest": 8192}


def test_order_still_destroys_by_name(sim):
    sim.adopted(64, 64)
    spec = {"vm": "web01", "disks": [BOOT, {"name": "b", "size": 64}, {"name": "a", "state": "absent"}]}
    sim.four_steps(spec, matching="order")
    assert sizes(sim) == {"root": 10240, "b": 64}


def test_order_never_gives_a_data_entry_the_boot_disk(sim):
    sim.create(sizes=())
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "data", "size": 10240}]}, matching="order")
    assert [(d.name, d.boot) for d in sim.vm().disks] == [("root", True), ("data", False)]


def _mixed_up(sim, unlisted):
    """Disks without a name of 20 and of 50 MiB; the list has room for the second, and the first takes it."""
    sim.adopted(20, 50)
    for number in (1, 2):
        sim.run("zfs", "inherit", "flexdisk:name", f"zones/{VM}/disk{number}")
    return {"vm": "web01", "unlisted": unlisted, "disks": [BOOT, {"name": "a", "size": 60}, {"name": "c", "size": 10}]}


def test_order_warns_of_what_another_matching_would_keep(sim):
    spec = _mixed_up(sim, "destroy")
    _one, two = (disk.label for disk in sim.vm().disks[1:])
    done = sim.four_steps(spec, matching="order")
    assert done.warnings == [
        f"web01: matching=order: disks that no entry claims are destroyed with their data: {two}; 50 MiB (DATA_LOSS)",
        f"web01: matching=order: another matching would keep data that this one destroys: {two} -> a; 30 MiB "
        "(AVOIDABLE_LOSS)",
        "web01: matching=order: only the order of the list decides which disk goes: the entry of another disk would "
        f"fit it too: {two} -> a (IDENTITY_AMBIGUOUS)",
    ]
    assert sizes(sim) == {"root": 10240, "a": 60, "c": 10}


def test_order_warns_of_a_disk_that_is_left_behind(sim):
    done = sim.four_steps(_mixed_up(sim, "detach"), matching="order")
    assert [w.rpartition("(")[2] for w in done.warnings] == ["ORPHAN_LEFT)", "IDENTITY_AMBIGUOUS)"]


def test_order_warns_of_no_loss_where_unlisted_disks_stay(sim):
    sim.adopted(20)
    done = sim.four_steps({"vm": "web01", "disks": [BOOT], "unlisted": "keep"}, matching="order")
    assert done.warnings == []


def test_order_leaves_each_disk_its_name_and_its_data(sim):
    """Neither the order of the list nor a disk that leaves gives a name the data of another one."""
    sim.adopted(64, 64)
    for number in (1, 2):
        sim.write(f"zones/{VM}/disk{number}", number)
    data = [sim.digest(f"zones/{VM}/disk{number}") for number in (1, 2)]
    turned = {"vm": "web01", "disks": [BOOT, {"name": "b", "size": 64}, {"name": "a", "size": 64}]}
    done = sim.four_steps(turned, matching="order")
    assert (done.diff, done.warnings) == ("", [])
    spec = {"vm": "web01", "disks": [BOOT, {"name": "b"}], "unlisted": "destroy"}
    done = sim.four_steps(spec, matching="order")
    assert steps(done) == ["destroy"]
    assert sim.disks()["b"].volume.name == f"zones/{VM}/disk2"
    assert sim.digest(f"zones/{VM}/disk2") == data[1]


def test_order_takes_a_disk_from_an_image_for_an_entry_that_names_none(sim):
    sim.create(sizes=())
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "copy", "image": IMAGE}]})
    spec = {"vm": "web01", "unlisted": "destroy", "disks": [BOOT, {"name": "copy", "size": 10240}]}
    done = sim.four_steps(spec, matching="order")
    assert (done.diff, done.warnings) == ("", [])


def test_order_keeps_images_apart_that_entries_name(sim):
    sim.create(sizes=(10240,))
    spec = {"vm": "web01", "disks": [BOOT, {"name": "copy", "image": IMAGE}, {"name": "a", "size": 10240}]}
    sim.four_steps(spec, matching="order")
    assert [(d.name, d.image == IMAGE) for d in sim.vm().disks] == [("root", True), ("a", False), ("copy", True)]


# -- old VMs


def test_a_vm_without_slots(sim):
    """Absent slots are the legacy positions: boot 0:4:0, data 0:5:n."""
    sim.adopted(64, 64)
    sim.admin("vm-make-legacy", VM, "slots")
    entries = [
        {"name": "root", "pci_slot": "0:4:0"},
        {"name": "a", "pci_slot": "0:5:0"},
        {"name": "b", "pci_slot": "0:5:1"},
    ]
    assert not sim.converge({"vm": "web01", "disks": entries}).changed
    sim.four_steps({"vm": "web01", "disks": [*entries, {"name": "n", "size": 64}]})
    assert sim.disks()["n"].pci_slot == "0:4:1"
    sim.run("vmadm", "start", VM)
    assert not sim.converge({"vm": "web01", "disks": [*entries, {"name": "n", "size": 64}]}).changed


def test_a_slot_of_a_vm_without_slots(sim):
    sim.adopted(64, 64)
    sim.admin("vm-make-legacy", VM, "slots")
    taken = {"name": "n", "size": 64, "pci_slot": "0:5:1"}
    refused = sim.converge({"vm": "web01", "disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}, taken]})
    assert [p.code for p in refused.problems] == ["InvalidArgument"]
    assert "disk2" in refused.problems[0].message
    sim.four_steps({"vm": "web01", "disks": [{"name": "root"}, {"name": "a", "pci_slot": "0:4:1"}, {"name": "b"}]})
    sim.run("vmadm", "start", VM)
    assert {d.name: d.pci_slot for d in sim.vm().disks} == {"root": "0:4:0", "a": "0:4:1", "b": "0:5:1"}


def test_a_vm_without_uuids_is_adopted_and_its_disks_detached(sim):
    sim.create(sizes=(64,))
    sim.admin("vm-make-legacy", VM)
    spec = {"vm": "web01", "disks": [BOOT, {"name": "data", "size": 64}]}
    sim.four_steps(spec)
    assert [bool(d.get("uuid")) for d in sim.get()["disks"]] == [True, True]
    uuid = sim.disks()["data"].uuid
    assert sim.get()["disks"][1]["uuid"] == uuid == sim.disks()["data"].volume.user["uuid"]
    sim.four_steps({"vm": "web01", "disks": [{"name": "root"}], "unlisted": "detach"})
    sim.four_steps(spec)
    assert sim.get()["disks"][1]["uuid"] == uuid


def test_a_running_vm_without_uuids_is_adopted_without_them(sim):
    sim.create(sizes=(64,), autoboot=True)
    sim.admin("vm-make-legacy", VM, "uuids")
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "data", "size": 64}]})
    assert set(sizes(sim)) == {"root", "data"}
    sim.run("vmadm", "stop", VM, "-F")
    sim.run("vmadm", "start", VM)
    assert not sim.converge({"vm": "web01", "disks": [BOOT, {"name": "data", "size": 64}]}).changed
    assert sim.disks()["data"].volume.user["uuid"] == sim.disks()["data"].uuid


# -- facts that others wrote


@pytest.mark.parametrize(
    "junk",
    [
        {"uuid": "../../x", "name": "a/b", "slot": "9:9:9", "tags": "[1]", "preserve": "maybe", "index": "x"},
        {"uuid": "", "description": "%zz", "tags": "%7B", "serial_no": "many", "mtime": "<b>", "remaining": "junk"},
    ],
)
def test_junk_in_properties_is_no_identity(sim, junk):
    sim.create(sizes=(64,))
    for key, value in junk.items():
        if value:
            sim.run("zfs", "set", f"flexdisk:{key}={value}", f"zones/{VM}/disk1")
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "data", "size": 64, "description": "", "tags": {}}]})
    assert sizes(sim) == {"root": 10240, "data": 64}


def test_inherited_properties_count_for_nothing(sim):
    sim.create(sizes=(64,))
    for key, value in {"name": "evil", "preserve": "true", "uuid": "eeeeeeee-0000-4000-8000-00000000000e"}.items():
        sim.run("zfs", "set", f"flexdisk:{key}={value}", "zones")
    assert [d.name for d in sim.vm().disks] == ["", ""]
    assert not any(d.preserve or d.disowned for d in sim.vm().disks)
    sim.four_steps({"vm": "web01", "disks": [BOOT, {"name": "data", "size": 64}]})
