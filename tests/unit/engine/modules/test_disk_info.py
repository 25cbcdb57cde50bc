# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""disk_info on the node: every disk, each filter, and to the byte what destroying a disk frees."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_info import (
    Filters,
    disks_info,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM, Simulated

OTHER = "cccccccc-0000-4000-8000-000000000002"
GONE = "cccccccc-0000-4000-8000-00000000000f"
ROOT = f"zones/{VM}"
BOX = "zones/flexdisk"


def ask(sim, figures=False, hidden=False, **filters):
    zfs = Zfs(sim.runner, lambda seconds: None)
    return disks_info(zfs, Vmadm(sim.runner), Filters(**filters), None, figures, hidden)


def labels(result):
    return [(disk["alias"], disk["name"], disk["state"]) for disk in result.disks]


@pytest.fixture
def sim():
    """web01 with root, a, b; c detached from it; an orphan; web02 with root and a; a disk of a VM that is gone."""
    sim = Simulated()
    sim.adopted(2048, 1024, 512)
    sim.adopted(1024, uuid=OTHER, alias="web02")
    disks = [
        {"name": "root"},
        {"name": "a", "tags": {"owner": "ann", "tier": "db"}},
        {"name": "b", "tags": {"owner": "bob"}, "preserve": True, "description": "logs"},
    ]
    assert sim.converge({"vm": VM, "disks": disks, "unlisted": "detach"}).failure is None
    sim.run("zfs", "create", "-V", "64M", f"{ROOT}/disk9")
    facts = ["flexdisk:uuid=" + GONE, "flexdisk:vm=" + GONE, "flexdisk:name=lost"]
    sim.run("zfs", "create", "-s", "-V", "64M", *[w for f in facts for w in ("-o", f)], f"{BOX}/{GONE}")
    return sim


def test_every_disk_wherever_it_is(sim):
    assert labels(ask(sim)) == [
        ("web01", "root", "attached"),
        ("web01", "a", "attached"),
        ("web01", "b", "attached"),
        ("web01", "", "orphaned"),
        ("web02", "root", "attached"),
        ("web02", "a", "attached"),
        ("web01", "c", "detached"),
        ("", "lost", "detached"),
    ]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"name": "a"}, ["a", "a"]),
        ({"name": "a", "vm": "web02"}, ["a"]),
        ({"vm": VM}, ["root", "a", "b", "", "c"]),
        ({"vm": "cccccccc-0000-4000-8000-000000000002"}, ["root", "a"]),
        ({"vm": GONE}, ["lost"]),
        ({"uuid": GONE}, ["lost"]),
        ({"uuid": GONE.upper()}, ["lost"]),
        ({"uuid": "dddddddd-0000-4000-8000-000000000001"}, []),
        ({"state": ["detached"]}, ["c", "lost"]),
        ({"state": ["orphaned", "detached"]}, ["", "c", "lost"]),
        ({"state": []}, []),
        ({"type": ["sparse"]}, ["lost"]),
        ({"type": ["thick"], "state": ["detached"]}, ["c"]),
        ({"tags": {"owner": None}}, ["a", "b"]),
        ({"tags": {"owner": "bob"}}, ["b"]),
        ({"tags": {"owner": None, "tier": "db"}}, ["a"]),
        ({"tags": {"tier": "web"}}, []),
        ({"tags": {}}, ["root", "a", "b", "", "root", "a", "c", "lost"]),
    ],
)
def test_filters(sim, filters, names):
    result = ask(sim, **filters)
    assert [disk["name"] for disk in result.disks] == names


def test_an_unknown_vm_is_refused(sim):
    assert [p.code for p in ask(sim, vm="nobody").problems] == ["ResourceNotFound"]


def test_what_is_said_of_a_disk(sim):
    [disk] = ask(sim, figures=True, name="b").disks
    assert (disk["preserve"], disk["description"], disk["tags"]) == (True, "logs", {"owner": "bob"})
    assert (disk["vm"], disk["vm_state"], disk["pci_slot"]) == (VM, "stopped", "0:4:2")
    assert (disk["adopted"], disk["type"], disk["size"], disk["index"]) == (True, "thick", 1024, 2)
    assert (disk["clones"], disk["held_snapshots"], disk["snapshots"]) == ([], [], 0)
    assert isinstance(disk["serial_no"], int)
    assert disk["ctime"].endswith("Z")
    assert disk["mtime"].endswith("Z")
    [orphan] = ask(sim, state=["orphaned"]).disks
    assert (orphan["uuid"], orphan["adopted"], orphan["path"]) == ("", False, "")


def test_never_used(sim):
    def used():
        return {disk["name"]: disk["never_used"] for disk in ask(sim, vm=VM).disks}

    assert used() == {"root": False, "a": True, "b": True, "": True, "c": True}
    sim.write(f"{ROOT}/disk1", 7)
    sim.write(f"{ROOT}/disk2", 7, 0, 4)
    sim.run("zfs", "snapshot", f"{ROOT}/disk2@mine")
    assert used() == {"root": False, "a": False, "b": False, "": True, "c": True}


@pytest.mark.parametrize(
    ("start", "length", "seed", "expected"),
    [
        ("0", "512B", "7", False),
        ("0", "512B", "text", False),
        ("0", "700K", "7", False),
        ("0", "1000K", "text", False),
        ("1048575K", "1K", "text", False),
        ("0", "1", "zeros", True),
    ],
)
def test_whatever_was_written_is_seen(sim, start, length, seed, expected):
    sim.run("guest", "write", f"{ROOT}/disk1", start, length, seed)
    [disk] = ask(sim, name="a", vm=VM).disks
    assert disk["never_used"] is expected


def test_clones_and_holds_stand_against_it(sim):
    sim.run("zfs", "snapshot", f"{ROOT}/disk1@mine")
    sim.run("zfs", "hold", "mine", f"{ROOT}/disk1@mine")
    sim.run("zfs", "clone", f"{ROOT}/disk1@mine", "zones/copy")
    [disk] = ask(sim, figures=True, name="a", vm=VM).disks
    assert (disk["clones"], disk["held_snapshots"]) == (["zones/copy"], [f"{ROOT}/disk1@mine"])


# -- what is freed, to the byte


def available(sim):
    return int(sim.run("zfs", "get", "-Hpo", "value", "available", "zones"))


def settled(sim):
    """A host without orphan, drift and the disk of a VM that is gone."""
    sim.run("zfs", "destroy", f"{ROOT}/disk9")
    sim.write(f"{ROOT}/disk1", 7, 0, 300)
    sim.write(f"{ROOT}/disk2", 8, 0, 100)
    return sim


@pytest.mark.parametrize("snapshots", [0, 1, 2])
@pytest.mark.parametrize("name", ["a", "b"])
def test_what_destroying_an_attached_disk_frees_is_true(sim, name, snapshots):
    settled(sim)
    for number in range(snapshots):
        sim.run("zfs", "snapshot", f"{ROOT}/disk1@n{number}")
        sim.run("zfs", "snapshot", f"{ROOT}/disk2@n{number}")
        sim.write(f"{ROOT}/disk1", 20 + number, 100, 150)
    [disk] = ask(sim, figures=True, name=name, vm=VM).disks
    room, free = space.allocatable(sim.vm()), available(sim)
    others = [{"name": n} for n in ("root", "a", "b") if n != name]
    gone = {"name": name, "state": "absent", "destroy_snapshots": True}
    done = sim.converge({"vm": VM, "disks": [*others, gone]})
    assert (done.problems, done.failure) == ([], None)
    assert disk["frees_bytes"]["allocatable"] == space.allocatable(sim.vm()) - room
    assert disk["frees_bytes"]["pool"] == available(sim) - free
    assert disk["frees_bytes"]["reserved"] is None


@pytest.mark.parametrize("snapshots", [0, 2])
def test_what_destroying_a_detached_disk_frees_is_true(sim, snapshots):
    settled(sim)
    volume = sim.detached()["c"].volume.name
    for number in range(snapshots):
        sim.write(volume, number, 0, 90)
        sim.run("zfs", "snapshot", f"{volume}@n{number}")
    [disk] = ask(sim, figures=True, name="c").disks
    room, free = space.allocatable(sim.vm()), available(sim)
    sim.run("zfs", "destroy", "-r", volume)
    assert disk["frees_bytes"] == {"pool": available(sim) - free, "allocatable": None, "reserved": None}
    assert space.allocatable(sim.vm()) == room


def test_what_destroying_an_orphan_frees_is_true(sim):
    sim.write(f"{ROOT}/disk9", 7, 0, 30)
    assert sim.quota().changed
    [disk] = ask(sim, figures=True, state=["orphaned"]).disks
    room, free = space.allocatable(sim.vm()), available(sim)
    sim.run("zfs", "destroy", f"{ROOT}/disk9")
    assert sim.quota().changed
    assert disk["frees_bytes"]["allocatable"] == space.allocatable(sim.vm()) - room
    assert disk["frees_bytes"]["pool"] == available(sim) - free


def test_an_inflexible_vm_keeps_the_room():
    sim = Simulated()
    sim.adopted(1024, flexible=None)
    [disk] = ask(sim, figures=True, name="a").disks
    before, free = sim.vm().root.reservation, available(sim)
    assert sim.converge({"vm": VM, "disks": [{"name": "root"}, {"name": "a", "state": "absent"}]}).failure is None
    assert sim.vm().root.reservation == before
    assert disk["frees_bytes"]["pool"] == 0
    assert disk["frees_bytes"]["allocatable"] is None
    assert sim.quota(reclaim=True).changed
    assert disk["frees_bytes"]["reserved"] == before - sim.vm().root.reservation
    assert available(sim) - free == disk["frees_bytes"]["reserved"]


@pytest.mark.parametrize("figures", [True, False])
@pytest.mark.parametrize("count", [1, 1000])
def test_the_number_of_processes_does_not_depend_on_that_of_disks(sim, count, figures):
    for number in range(count):
        uuid = "dddddddd-0000-4000-8000-%012d" % number
        sim.run("zfs", "create", "-s", "-V", "8M", "-o", "flexdisk:uuid=" + uuid, f"{BOX}/{uuid}")
    sim.calls.clear()
    assert len(ask(sim, figures=figures).disks) == 8 + count
    assert len(sim.calls) == 3, sim.calls
    assert not any(changes(call) for call in sim.calls)
