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
    linux.host.run("zfs", "snapshot", linux.disk("data").volume.name + "@mine")
    refused = linux.go({"name": "data", "type": "thick"})
    assert [p.code for p in refused.problems] == ["HasSnapshots"]
    linux.four_steps({"name": "data", "type": "thick", "destroy_snapshots": True})


def test_no_copy_of_a_file(linux):
    linux.four_steps({"name": "data", "size": 64, "type": "file"})
    refused = linux.go({"name": "twin", "source": "data"})
    assert [p.code for p in refused.problems] == ["NotSupported"]
    assert "cannot be copied or cloned" in refused.problems[0].message


@pytest.mark.parametrize("kind", ["sparse", "file"])
def test_vmadm_has_neither(kind):
    bench = Bench("vmadm")
    bench.four_steps({"name": "data", "size": 64})
    for wish in ({"name": "data", "type": kind}, {"name": "new", "size": 64, "type": kind}):
        refused = bench.go(wish)
        assert [(p.code, p.disk) for p in refused.problems] == [("NotSupported", wish["name"])]
        assert f"type {kind}" in refused.problems[0].message


def begun(entry, until):
    """A bench whose detached disk data is being converted by this entry, killed as soon as until(bench) is true."""
    number = 0
    while True:
        number += 1
        bench = Bench("libvirt")
        bench.four_steps({"name": "data", "size": 64})
        bench.host.run("zfs", "snapshot", bench.disk("data").volume.name + "@mine")
        bench.four_steps({"name": "child", "source": "data", "source_snapshot": "mine", "source_method": "clone"})
        bench.write("child")
        assert bench.killed("after", number, entry), "it never comes so far"
        if until(bench):
            return bench


def halved(bench):
    return bool(bench.disk("child").partial_copy)


def replaced(bench):
    child = bench.disk("child")
    return child.volume.user.get("from", "").isdigit() and not child.partial_copy


GONE = {"name": "data", "state": "absent", "destroy_snapshots": True}


def test_half_a_copy_of_a_clone_goes_with_it():
    bench = begun({"name": "child", "type": "file"}, halved)
    bench.four_steps({**GONE, "destroy_clones": [bench.disk("child").volume.name]})
    assert not [n for n in bench.read().datasets if n.startswith("tank/flexdisk/")]


@pytest.mark.parametrize("entry", [{"size": 96}, {"state": "absent"}, {"type": "file"}])
def test_what_is_given_up_as_a_clone_is_listed_once(linux, entry):
    linux.four_steps({"name": "data", "size": 64})
    linux.host.run("zfs", "snapshot", linux.disk("data").volume.name + "@mine")
    linux.four_steps({"name": "child", "source": "data", "source_snapshot": "mine", "source_method": "clone"})
    gone = {**GONE, "destroy_clones": [linux.disk("child").volume.name]}
    for entries in ([gone, {"name": "child", **entry}], [{"name": "child", **entry}, gone]):
        assert "listed twice" in linux.refused("InvalidArgument", *entries)


@pytest.mark.parametrize("more", [{}, {"type": "file"}, {"size": 96}, {"type": "sparse"}, {"state": "absent"}])
def test_a_conversion_that_was_cut_off_after_the_original(more):
    """The copy is the disk, and is called so by the next run."""
    bench = begun({"name": "child", "type": "file"}, replaced)
    uuid, was = bench.disk("child").uuid, bench.digest("child")
    assert bench.disk("child").volume.name == f"tank/flexdisk/{uuid}.copy"
    done = bench.four_steps({"name": "child", **more})
    if "state" in more:
        assert not [n for n in bench.read().datasets if uuid in n]
        return
    disk = bench.disk("child")
    assert (disk.volume.name, bench.digest("child")) == (f"tank/flexdisk/{uuid}", was)
    assert not {"from", "copied"} & set(disk.volume.user)
    assert (disk.type, disk.size_mib) == (more.get("type", "file"), more.get("size", 64))
    assert done.changed


@pytest.mark.parametrize(("was", "kind"), [("thick", "file"), ("file", "thick")])
def test_killed_at_any_change_of_a_conversion(was, kind):
    """And then at any change of the run that ends it."""
    number, come = 0, True
    while come:
        number += 1
        for when in ("before", "after"):
            bench = Bench("libvirt")
            bench.four_steps({"name": "data", "size": 32, "type": was})
            digest, uuid = bench.write("data"), bench.disk("data").uuid
            come = bench.killed(when, number, {"name": "data", "type": kind})
            bench.killed(when, 1, {"name": "data", "type": kind})
            bench.four_steps({"name": "data", "type": kind})
            disk = bench.disk("data")
            assert (disk.type, bench.digest("data"), disk.uuid) == (kind, digest, uuid), (when, number)
            assert [n for n in bench.read().datasets if uuid in n] == [f"tank/flexdisk/{uuid}"], (when, number)
            assert not {"from", "copied"} & set(disk.volume.user), (when, number)
    assert number > 4
