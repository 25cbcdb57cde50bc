# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types of disks that no VM has, and of those that a task means by themselves."""

from __future__ import annotations

import pytest

from .conftest import Bench

TYPES = ["thick", "sparse", "file"]
PAIRS = [(a, b) for a in TYPES for b in TYPES if a != b]


@pytest.fixture
def linux() -> Bench:
    return Bench("libvirt")


@pytest.mark.parametrize("kind", TYPES)
def test_a_life(linux, kind):
    done = linux.four_steps({"name": "data", "size": 64, "type": kind})
    assert done.disks[0]["type"] == kind
    digest = linux.write("data")
    linux.four_steps({"name": "data", "size": 96})
    linux.four_steps({"name": "data", "size": 48, "dangerous_allow_shrink": True})
    linux.four_steps({"name": "data", "vm": "web01", "state": "attached"})
    linux.four_steps({"name": "data", "from_vm": "web01", "vm": "web02", "state": "attached", "take": True})
    linux.four_steps({"name": "data", "vm": "web02", "state": "detached"})
    disk = linux.disk("data")
    assert (disk.type, disk.size_mib, linux.digest("data")) == (kind, 48, digest)
    linux.four_steps({"name": "data", "state": "absent"})


@pytest.mark.parametrize(("was", "kind"), PAIRS)
@pytest.mark.parametrize("where", ["detached", "attached"])
def test_another_type(linux, was, kind, where):
    linux.four_steps({"name": "data", "size": 64, "type": was})
    digest = linux.write("data")
    if where == "attached":
        linux.four_steps({"name": "data", "vm": "web01", "state": "attached"})
    uuid = linux.disk("data").uuid
    done = linux.four_steps({"name": "data", "type": kind, "size": 96})
    assert (done.disks[0]["type"], done.disks[0]["uuid"], done.disks[0]["state"]) == (kind, uuid, where)
    assert (linux.disk("data").size_mib, linux.digest("data")) == (96, digest)


def test_a_file_becomes_a_volume_of_the_block_size_asked_for(linux):
    linux.four_steps({"name": "data", "size": 64, "type": "file"})
    linux.four_steps({"name": "data", "vm": "web01", "state": "attached"})
    linux.four_steps({"name": "data", "type": "thick", "block_size": 65536})
    assert linux.disk("data").volume.volblocksize == 65536


def test_snapshots_are_given_up_by_a_word(linux):
    linux.four_steps({"name": "data", "size": 64})
    linux.host.run("zfs", "snapshot", linux.disk("data").volume.name + "@mine")
    refused = linux.go({"name": "data", "type": "file"})
    assert [p.code for p in refused.problems] == ["HasSnapshots"]
    linux.four_steps({"name": "data", "type": "file", "destroy_snapshots": True})


def test_no_copy_of_a_file(linux):
    linux.four_steps({"name": "data", "size": 64, "type": "file"})
    refused = linux.go({"name": "twin", "source": "data"})
    assert [p.code for p in refused.problems] == ["NotSupported"]
    assert "is copied or cloned" in refused.problems[0].message


@pytest.mark.parametrize("kind", ["sparse", "file"])
def test_vmadm_has_neither(kind):
    bench = Bench("vmadm")
    bench.four_steps({"name": "data", "size": 64})
    for wish in ({"name": "data", "type": kind}, {"name": "new", "size": 64, "type": kind}):
        refused = bench.go(wish)
        assert [(p.code, p.disk) for p in refused.problems] == [("NotSupported", wish["name"])]
        assert "type %s" % kind in refused.problems[0].message
