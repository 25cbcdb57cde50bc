# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""size=remaining: resolved once, settled while its basis is the same, and never a silent shrink."""

from __future__ import annotations

import pytest

from ..conftest import IMAGE, VM

ROOT = {"name": "root"}
REST = {"name": "rest", "size": "remaining"}


def one(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def size(sim):
    return sim.disks()["rest"].size_mib


@pytest.fixture
def filled(sim):
    """F 20 GiB: root 10 GiB, a 2 GiB, rest 8 GiB."""
    sim.adopted(2048, flexible=20480)
    done = sim.four_steps(one({"name": "a"}, REST))
    assert size(sim) == 8192
    assert done.vms[0]["allocatable"] == 0
    return sim


def test_anywhere_in_the_list(sim):
    sim.adopted(flexible=20480)
    sim.four_steps(one(REST, {"name": "n", "size": 2048}))
    assert size(sim) == 8192


def test_snapshots_come_and_go(filled):
    sim = filled
    spec = one({"name": "a"}, REST)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    for check in (True, False):
        again = sim.converge(spec, check=check)
        assert (again.problems, again.changed) == ([], False)
    sim.run("vmadm", "delete-snapshot", VM, "s1")
    assert not sim.converge(spec).changed


def test_snapshots_at_creation_are_subtracted(sim):
    sim.adopted(2048, flexible=20480)
    sim.write(sim.disks()["a"].volume.name, 1, 0, 1000)
    sim.run("vmadm", "create-snapshot", VM, "s1")
    done = sim.four_steps(one({"name": "a"}, REST))
    assert 8192 - 1000 - 12 <= size(sim) <= 8192 - 1000
    assert done.vms[0]["allocatable"] == 0
    sim.run("vmadm", "delete-snapshot", VM, "s1")
    assert not sim.converge(one({"name": "a"}, REST)).changed


def test_a_left_over_guard_is_not_subtracted(sim):
    """It is lifted before the disk is made, and what it held is free then."""
    sim.adopted(2048, flexible=20480)
    volume = sim.disks()["a"].volume.name
    sim.write(volume, 1, 0, 1000)
    sim.run("zfs", "snapshot", volume + "@flexdisk-guard")
    sim.run("zfs", "hold", "flexdisk-guard", volume + "@flexdisk-guard")
    sim.four_steps(one({"name": "a"}, REST))
    assert size(sim) == 8192


def test_data_in_the_vms_own_file_system_counts(sim):
    sim.adopted(2048, flexible=20480)
    sim.run("guest", "write", f"zones/{VM}", "0", "500", "1")
    sim.run("zfs", "snapshot", "-r", f"zones/{VM}@s1")
    sim.four_steps(one({"name": "a"}, REST))
    assert size(sim) < 8192 - 490


def test_more_space_is_taken(filled):
    filled.four_steps(one({"name": "a"}, REST, flexible_disk_size=25600))
    assert size(filled) == 8192 + 5120


def test_less_space_is_a_shrink(filled):
    spec = one({"name": "a", "size": 4096}, REST)
    refused = filled.converge(spec)
    assert [(p.code, p.disk) for p in refused.problems] == [("InvalidArgument", "rest")]
    assert "8 GiB -> 6 GiB" in refused.problems[0].message
    filled.four_steps(one({"name": "a", "size": 4096}, {**REST, "dangerous_allow_shrink": True}))
    assert size(filled) == 6144


def test_what_remains_must_be_what_the_guest_needs(filled):
    rest = {**REST, "dangerous_allow_shrink": True, "min_size_from_guest": 6144}
    refused = filled.converge(one({"name": "a", "size": 4097}, rest))
    assert [(p.code, p.disk) for p in refused.problems] == [("TooSmallForGuest", "rest")]
    assert "5.9 GiB would cut off what the guest uses: min_size_from_guest is 6 GiB" in refused.problems[0].message
    assert size(filled) == 8192
    filled.four_steps(one({"name": "a", "size": 4096}, rest))
    assert size(filled) == 6144


def test_the_others_shrink_for_it(filled):
    filled.four_steps(one({"name": "a", "size": 1024, "dangerous_allow_shrink": True}, REST))
    assert size(filled) == 9216


def test_a_disk_more_and_a_disk_less(filled):
    filled.four_steps(one({"name": "a", "state": "absent"}, REST))
    assert size(filled) == 10240
    filled.four_steps(one({"name": "n", "size": 1024}, {**REST, "dangerous_allow_shrink": True}))
    assert size(filled) == 9216


def test_changed_basis_with_snapshots_takes_only_what_is_there(filled):
    sim = filled
    sim.write(sim.disks()["rest"].volume.name, 1, 0, 100)
    sim.four_steps({"vm": "web01", "flexible_disk_size": 22528})
    sim.run("zfs", "snapshot", sim.disks()["rest"].volume.name + "@s")
    done = sim.four_steps(one({"name": "a"}, REST))
    assert 8192 + 2048 - 105 <= size(sim) <= 8192 + 2048 - 100
    assert done.vms[0]["allocatable"] == 0


def test_nothing_left(filled):
    refused = filled.converge(one({"name": "a", "size": 10240}, {**REST, "dangerous_allow_shrink": True}))
    assert [(p.code, p.disk) for p in refused.problems] == [("InsufficientSpace", "rest")]
    filled.four_steps(one({"name": "a", "size": 10239}, {**REST, "dangerous_allow_shrink": True}))
    assert size(filled) == 1


def test_adoption_takes_the_present_size(sim):
    sim.create(sizes=(2048, 4096))
    uuids = [d.uuid for d in sim.vm().disks]
    spec = {
        "vm": "web01",
        "disks": [
            {"name": "root", "uuid": uuids[0]},
            {"name": "a", "uuid": uuids[1]},
            {"name": "rest", "uuid": uuids[2], "size": "remaining"},
        ],
    }
    done = sim.four_steps(spec)
    assert {step["step"] for step in done.vms[0]["steps"]} == {"identity"}
    assert size(sim) == 4096
    sim.four_steps({**spec, "flexible_disk_size": 31744})
    assert size(sim) == 31744 - 10240 - 2048


def test_a_fixed_disk_becomes_the_rest(sim):
    sim.adopted(2048, flexible=20480)
    sim.four_steps(one({"name": "a", "size": "remaining"}))
    assert sim.disks()["a"].size_mib == 10240
    assert sim.disks()["a"].volume.user["remaining"]
    sim.four_steps(one({"name": "a", "size": 10240}))
    assert "remaining" not in sim.disks()["a"].volume.user


def test_from_an_image(sim):
    sim.adopted(flexible=20480 + 1024)
    sim.four_steps(one({"name": "rest", "image": IMAGE, "size": "remaining"}))
    assert size(sim) == 10240 + 1024


def test_from_an_image_without_room(sim):
    sim.adopted(flexible=20479)
    refused = sim.converge(one({"name": "rest", "image": IMAGE, "size": "remaining"}))
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert "10240" in refused.problems[0].message


def test_out_and_back(filled):
    sim = filled
    sim.four_steps(one({"name": "a"}, unlisted="detach"))
    sim.four_steps(one({"name": "a", "size": 3072}, flexible_disk_size=25600))
    sim.four_steps(one({"name": "a"}, REST))
    assert size(sim) == 25600 - 10240 - 3072


def test_with_the_hidden_disk(sim):
    nocloud = "aaaaaaaa-0000-4000-8000-000000000004"
    sim.admin("image-import", nocloud, "1024", "nocloud=yes")
    disks = [{"image_uuid": nocloud, "boot": True, "model": "virtio"}]
    sim.create(flexible=4096, disks=disks)
    sim.four_steps({"vm": "web01", "disks": [{"name": "root", "boot": True}, REST]})
    assert size(sim) == 3072
    sim.four_steps({"vm": "web01", "flexible_disk_size": 5120, "disks": [ROOT, REST]})
    assert size(sim) == 4096
    assert sim.get()["flexible_disk_size"] == 5136
