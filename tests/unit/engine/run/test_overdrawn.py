# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM whose recursive snapshot holds more than its flexible_disk_size: idle runs stay idle, changes are refused."""

from __future__ import annotations

import re

import pytest

from ..conftest import VM

ROOT = {"name": "root"}
A = {"name": "a", "size": 256}
B = {"name": "b"}
F = 10240 + 512 + 300


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


@pytest.fixture
def overdrawn(sim):
    """ZFS checks what a recursive snapshot takes for each disk by itself."""
    sim.adopted(256, 256, flexible=F)
    for name in "ab":
        sim.write(sim.disks()[name].volume.name, 7, 0, 256)
    sim.run("zfs", "snapshot", "-r", f"zones/{VM}@all")
    return sim


@pytest.mark.parametrize(
    "spec",
    [
        {"vm": "web01"},
        one(A, B),
        one({"name": "a"}, B),
        one(A, B, flexible_disk_size=F),
        one(unlisted="keep"),
    ],
)
def test_an_idle_run_is_idle_and_says_so(overdrawn, spec):
    done = overdrawn.four_steps(spec)
    assert not done.changed
    assert len(done.warnings) == 1
    min_size = int(re.findall(r"raised to (\d+) MiB$", done.warnings[0])[0])
    refused = overdrawn.converge({"vm": "web01", "flexible_disk_size": min_size - 2})
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert overdrawn.four_steps({"vm": "web01", "flexible_disk_size": min_size}).warnings == []


def test_what_takes_no_space_is_done(overdrawn):
    done = overdrawn.four_steps(one({**A, "description": "d", "pci_slot": "0:4:5", "preserve": True}, B))
    assert [step["step"] for step in done.vms[0]["steps"]] == ["edit", "identity"]


@pytest.mark.parametrize(
    "spec",
    [
        one({"name": "a", "size": 257}, B),
        one({"name": "a", "size": 255, "dangerous_allow_shrink": True}, B),
        one(A, B, {"name": "n", "size": 1}),
        one(A, B, flexible_disk_size=F + 1),
        one(A, B, quota="2GiB"),
    ],
)
def test_a_change_that_leaves_it_overdrawn_is_refused(overdrawn, spec):
    before = overdrawn.fingerprint()
    refused = overdrawn.converge(spec)
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert overdrawn.fingerprint() == before


@pytest.mark.parametrize("setting", ["quota=20G", "reservation=1G"])
def test_off_the_law_it_is_refused(overdrawn, setting):
    overdrawn.run("zfs", "set", setting, f"zones/{VM}")
    assert [p.code for p in overdrawn.converge(one(A, B)).problems] == ["InsufficientSpace"]


@pytest.mark.parametrize(
    "spec",
    [
        one(A, B, flexible_disk_size=20480),
        one(B, unlisted="detach"),
        one({"name": "a", "state": "absent", "destroy_snapshots": True}, B),
    ],
)
def test_what_makes_room_is_done(overdrawn, spec):
    done = overdrawn.four_steps(spec)
    assert (done.changed, done.warnings) == (True, [])
