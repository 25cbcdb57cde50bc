# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types of disks where vmadm keeps the storage: all are thick, and what somebody made sparse is told, not kept."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from ..conftest import VM

ROOT = {"name": "root"}


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def kinds(done):
    return [step["step"] for step in done.vms[0]["steps"]]


def thin(sim):
    """web01 whose disk a somebody has made sparse."""
    sim.adopted(64)
    sim.run("zfs", "set", "refreservation=none", sim.disks()["a"].volume.name)


@pytest.mark.parametrize("kind", ["sparse", "file"])
@pytest.mark.parametrize("entry", [{"name": "a"}, {"name": "new", "size": 64}])
def test_what_vmadm_would_undo_is_refused(sim, kind, entry):
    sim.adopted(64)
    before = sim.fingerprint()
    disks = [entry] if entry["name"] == "a" else [{"name": "a"}, entry]
    declaration = one(*disks[:-1], {**disks[-1], "type": kind})
    for check in (True, False):
        refused = sim.converge(declaration, check=check)
        assert [(p.code, p.disk) for p in refused.problems] == [("NotSupported", entry["name"])]
        assert f"type {kind}" in refused.problems[0].message
        assert "can only be thick" in refused.problems[0].message
    assert sim.fingerprint() == before


def test_thick_is_what_they_are(sim):
    sim.adopted(64)
    assert not sim.converge(one({"name": "a", "type": "thick"})).changed
    done = sim.four_steps(one({"name": "a"}, {"name": "b", "size": 64, "type": "thick"}))
    assert [d["type"] for d in done.vms[0]["disks"]] == ["thick"] * 3


def test_a_sparse_one_is_told_and_left_alone(sim):
    thin(sim)
    done = sim.converge(one({"name": "a"}))
    assert (done.changed, [d["type"] for d in done.vms[0]["disks"]]) == (False, ["thick", "sparse"])
    vm_now = info(Zfs(sim.runner), Vmadm(sim.runner), [VM], None, True).vms[0]
    assert (vm_now["disk_template"], [d["type"] for d in vm_now["disks"]]) == ("mixed", ["thick", "sparse"])


@pytest.mark.parametrize("up", [True, False])
def test_it_can_be_made_thick_again(sim, up):
    thin(sim)
    if up:
        sim.run("vmadm", "start", VM)
    sim.write(sim.disks()["a"].volume.name, 3)
    was = sim.digest(sim.disks()["a"].volume.name)
    done = sim.four_steps(one({"name": "a", "type": "thick"}))
    assert (kinds(done), sim.disks()["a"].type) == (["convert"], "thick")
    assert sim.digest(sim.disks()["a"].volume.name) == was


@pytest.mark.parametrize(
    "declaration",
    [
        one({"name": "a", "size": 128}),
        one({"name": "a", "size": 32, "dangerous_allow_shrink": True}),
        one({"name": "a"}, flexible_disk_size=40960),
    ],
    ids=["grow", "shrink", "F"],
)
def test_what_makes_it_thick(sim, declaration):
    thin(sim)
    done = sim.four_steps(declaration)
    assert done.vms[0]["disks"][1]["type"] == "thick"
    assert "type" not in sim.disks()["a"].volume.user


def test_detached_it_is_sparse_and_attached_thick(sim):
    thin(sim)
    done = sim.four_steps(one(unlisted="detach"))
    assert [d["type"] for d in done.vms[0]["parked"]] == ["sparse"]
    sim.four_steps(one({"name": "a"}))
    assert sim.disks()["a"].type == "thick"
    assert "type" not in sim.disks()["a"].volume.user
