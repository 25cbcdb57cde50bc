# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Volumes of ours that an interrupted run has left in a VM unattached, and that nobody declares any more."""

from __future__ import annotations

import pytest

from ..conftest import VM

ROOT = {"name": "root"}
HERE = f"zones/{VM}/disk1"


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


@pytest.fixture
def left(sim):
    """Disk a as an attach leaves it that was killed after it had renamed the volume into the VM; and its data."""
    sim.adopted(512, 64)
    sim.write(HERE, 5, 0, 100)
    disk, digest = sim.disks()["a"], sim.digest(HERE, "0", "512")
    sim.four_steps(one({"name": "b"}, unlisted="detach"))
    sim.run("zfs", "set", "quota=100G", f"zones/{VM}")
    sim.run("zfs", "rename", "zones/flexdisk/" + disk.uuid, HERE)
    return disk, digest


@pytest.mark.parametrize("unlisted", ["detach", "destroy"])
@pytest.mark.parametrize("state", ["stopped", "running"])
def test_it_is_detached_whole(sim, left, unlisted, state):
    if state == "running":
        sim.run("vmadm", "start", VM)
    disk, digest = left
    done = sim.four_steps(one({"name": "b"}, unlisted=unlisted))
    assert "  - a 512 MiB (not attached) detached\n" in done.diff
    assert [step["step"] for step in done.vms[0]["steps"] if step["step"] != "law"] == ["park"]
    detached = sim.detached()["a"]
    assert (detached.volume.name, detached.volume.guid) == ("zones/flexdisk/" + disk.uuid, disk.volume.guid)
    assert sim.digest(detached.volume.name, "0", "512") == digest
    assert (done.vms[0]["unmanaged"], done.warnings) == ([], [])
    assert sim.get()["state"] == state


@pytest.mark.parametrize("unlisted", ["refuse", "keep"])
def test_these_words_leave_it_with_a_warning(sim, left, unlisted):
    done = sim.four_steps(one({"name": "b"}, unlisted=unlisted))
    assert done.vms[0]["unmanaged"] == [HERE]
    assert done.warnings == [f"web01: volume {HERE} is not in the VM's configuration"]


def test_what_is_declared_is_attached(sim, left):
    _disk, digest = left
    sim.four_steps(one({"name": "a"}, {"name": "b"}, unlisted="detach"))
    assert sim.digest(sim.disks()["a"].volume.name, "0", "512") == digest


@pytest.mark.parametrize("unlisted", ["detach", "destroy"])
def test_a_volume_without_our_identity_stays(sim, unlisted):
    sim.adopted()
    sim.run("zfs", "create", "-V", "64M", HERE)
    done = sim.four_steps(one(unlisted=unlisted))
    assert done.vms[0]["unmanaged"] == [HERE]


@pytest.mark.parametrize("listed", [True, False])
def test_a_name_that_is_taken_it_gives_up(sim, left, listed):
    disk, _digest = left
    sim.run("zfs", "set", "flexdisk:name=b", HERE)
    done = sim.four_steps(one(*[{"name": "b"}] * listed, unlisted="detach"))
    assert f"  - b 512 MiB (not attached) detached without its name (uuid {disk.uuid})\n" in done.diff
    assert sorted(d.name for d in sim.vm().detached) == ["", *["b"] * (not listed)]


def test_the_vms_snapshots_do_not_touch_it_any_more(sim, left):
    _disk, digest = left
    sim.run("vmadm", "create-snapshot", VM, "s")
    sim.four_steps(one({"name": "b"}, unlisted="detach"))
    detached = sim.detached()["a"]
    assert [s.name.split("@")[1].split("-")[:2] for s in detached.snapshots] == [["flexdisk", "parked"]]
    sim.run("vmadm", "rollback-snapshot", VM, "s")
    assert sim.digest(detached.volume.name, "0", "512") == digest


def test_its_place_is_taken(sim, left):
    disk, _digest = left
    sim.run("zfs", "create", "-V", "64M", "zones/flexdisk/" + disk.uuid)
    refused = sim.converge(one({"name": "b"}, unlisted="detach"))
    assert [p.code for p in refused.problems] == ["AlreadyExists"]


def test_a_preserved_one_that_is_recreated(sim, left):
    disk, _digest = left
    sim.run("zfs", "set", "flexdisk:preserve=true", HERE)
    entry = {"name": "a", "size": 64, "block_size": 4096, "recreate": True}
    sim.four_steps(one(entry, {"name": "b"}))
    assert sim.disks()["a"].volume.volblocksize == 4096
    assert [d.volume.name for d in sim.vm().detached] == ["zones/flexdisk/" + disk.uuid]
