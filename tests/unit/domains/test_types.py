# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types of disks on a Linux host: each operation with each of them, in four steps."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import info, snapshots
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.report import disk_template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import Policy, SnapshotSpec
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs

from .conftest import OTHER, VM, LinuxHost
from .test_vms import IMAGE, four_steps
from .test_vms import host as with_image

ROOT = {"name": "root"}
TYPES = ["thick", "sparse"]
POWER = pytest.mark.parametrize("up", [True, False], ids=["running", "stopped"])
EACH = pytest.mark.parametrize("kind", TYPES)


def spec(*disks, **more):
    return {"vm": "web01", "disks": [ROOT, *disks], **more}


def kinds(done, which=0):
    return [step["step"] for step in done.vms[which]["steps"]]


def made(linux, kind, up=False, size=32):
    """web01 with a data disk d of this type."""
    linux.adopted()
    if up:
        linux.domains.boot(VM)
    done = linux.four_steps(spec({"name": "d", "size": size, "type": kind}))
    assert kinds(done) == ["create"]
    return linux.disks()["d"]


def write(linux, disk, seed, length=8):
    linux.run("guest", "write", disk.volume.name, "0", str(length), str(seed))


def digest(linux, disk, length=8):
    return linux.run("guest", "hash", disk.volume.name, "0", str(length)).strip()


def snapshot(linux, check=False, **what):
    zfs = Zfs(linux.runner, lambda seconds: None, lambda name: "")
    wish = SnapshotSpec(**what)
    return snapshots.run(zfs, linux.driver(), [VM], wish, Policy(), None, check, 1_800_000_000)


@EACH
@POWER
def test_create(linux, kind, up):
    disk = made(linux, kind, up)
    assert disk.type == kind
    assert bool(disk.volume.refreservation) == (kind == "thick")
    assert disk.volume.user.get("type", "thick") == kind


@EACH
@POWER
def test_grow_and_shrink(linux, kind, up):
    made(linux, kind, up)
    linux.four_steps(spec({"name": "d", "size": 64}))
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, 64)
    wish = spec({"name": "d", "size": 16, "dangerous_allow_shrink": True})
    linux.four_steps(wish, allow_restart=True)
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, 16)


@EACH
@POWER
def test_detach_and_attach(linux, kind, up):
    disk = made(linux, kind, up)
    write(linux, disk, 7)
    was = digest(linux, disk)
    linux.four_steps(spec(unlisted="detach"))
    parked = linux.vm().parked[0]
    assert (parked.type, parked.volume.user.get("type", "thick")) == (kind, kind)
    linux.four_steps(spec({"name": "d", "size": 48}))
    back = linux.disks()["d"]
    assert (back.type, back.size_mib, back.uuid, digest(linux, back)) == (kind, 48, disk.uuid, was)


@EACH
def test_another_vm_takes_it_as_it_is(linux, kind):
    uuid = made(linux, kind).uuid
    linux.create((64,), uuid=OTHER, name="web02")
    entry = {"vm": "web02", "flexible_disk_size": "1GiB", "disks": [{**ROOT, "size": 64}]}
    linux.four_steps(entry)
    linux.four_steps(spec(unlisted="detach"))
    linux.four_steps({**entry, "disks": [ROOT, {"uuid": uuid, "name": "d"}]})
    assert linux.disks(OTHER)["d"].type == kind


@EACH
def test_remaining(linux, kind):
    linux.adopted(32)
    done = linux.four_steps(spec({"name": "a"}, {"name": "rest", "size": "remaining", "type": kind}))
    assert (done.vms[0]["allocatable"], linux.disks()["rest"].type) == (0, kind)


@EACH
def test_more_space_keeps_the_type(linux, kind):
    made(linux, kind)
    linux.four_steps(spec({"name": "d"}, flexible_disk_size="2GiB", quota="4MiB"))
    assert linux.disks()["d"].type == kind


@EACH
def test_snapshot_and_rollback(linux, kind):
    disk = made(linux, kind)
    write(linux, disk, 1)
    was = digest(linux, disk)
    room = space.allocatable(linux.vm())
    predicted = snapshot(linux, check=True, state="present", name="one")
    done = snapshot(linux, state="present", name="one")
    assert (done.problems, done.failure, done.diff) == ([], None, predicted.diff)
    held = linux.disks()["d"].volume.pinned
    assert 8 * MIB <= held < 9 * MIB, "what a snapshot may keep is no longer promised"
    assert space.allocatable(linux.vm()) <= room - held
    write(linux, disk, 2)
    assert linux.converge(spec({"name": "d", "size": 64})).failure is None
    done = snapshot(linux, state="rolled_back", name="one")
    assert (done.problems, done.failure) == ([], None)
    back = linux.disks()["d"]
    assert (back.type, back.size_mib, digest(linux, back)) == (kind, 32, was)
    linux.assert_whole()
    write(linux, disk, 3)
    done = snapshot(linux, state="absent", name="one")
    assert (done.problems, done.failure) == ([], None)
    assert linux.disks()["d"].volume.pinned == 0


@EACH
def test_a_snapshot_that_its_space_does_not_hold(linux, kind):
    """A guest may write each block again while the snapshot keeps the old one, sparse or not."""
    linux.adopted()
    linux.four_steps(spec({"name": "d", "size": "remaining", "type": kind}))
    write(linux, linux.disks()["d"], 1)
    refused = snapshot(linux, state="present", name="one")
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert "would hold 8" in refused.problems[0].message


@EACH
def test_deleted_snapshots_give_back_what_is_said(linux, kind):
    disk = made(linux, kind)
    for seed, length in ((1, 16), (2, 8)):
        write(linux, disk, seed, length)
        assert snapshot(linux, state="present", name="s%d" % seed).failure is None
    write(linux, disk, 3, 4)
    for name in ("s2", "s1"):
        frees = {s["name"]: s["frees"] for s in told(linux)["snapshots"]}[name]
        room = space.allocatable(linux.vm())
        assert snapshot(linux, state="absent", name=name).failure is None
        assert space.allocatable(linux.vm()) - room == frees


def told(linux):
    return info.info(Zfs(linux.runner), linux.driver(), [VM], None, True).vms[0]


@pytest.mark.parametrize(
    ("disks", "template"),
    [
        ([], "diskless"),
        (["thick"], "thick"),
        (["sparse", "sparse"], "sparse"),
        (["thick", "sparse"], "mixed"),
    ],
)
def test_the_template_of_a_vm(linux, disks, template):
    entries = [{"name": "d%d" % n, "size": 16, "type": kind} for n, kind in enumerate(disks)]
    if entries:
        entries[0]["boot"] = True
    linux.create(())
    wish = {"vm": VM, "adopt": True, "flexible_disk_size": "1GiB", "disks": entries}
    done = linux.four_steps(wish)
    assert [d["type"] for d in done.vms[0]["disks"]] == disks
    assert (disk_template(linux.vm()), told(linux)["disk_template"]) == (template, template)


def test_a_new_vm_has_disks_of_each_type():
    linux = with_image()
    entries = [
        {"name": "root", "type": "sparse"},
        *({"name": kind, "size": 32, "type": kind} for kind in TYPES),
    ]
    done = four_steps(linux, {"disks": entries})
    assert {d["name"]: d["type"] for d in done.vms[0]["disks"]} == {"root": "sparse", **{k: k for k in TYPES}}
    assert done.vms[0]["disks"][0]["image"] == IMAGE


# -- conversion


@POWER
def test_sparse_and_thick_and_back_in_place(linux, up):
    disk = made(linux, "thick", up)
    write(linux, disk, 7)
    was, quota = digest(linux, disk), linux.vm().root.quota
    for kind in ("sparse", "thick"):
        done = linux.four_steps(spec({"name": "d", "type": kind}))
        assert kinds(done) == ["convert"]
        now = linux.disks()["d"]
        assert (now.type, now.volume.guid, digest(linux, now)) == (kind, disk.volume.guid, was)
        assert now.volume.user["serial_no"] > disk.volume.user["serial_no"]
    assert now.volume.refreservation == disk.volume.refreservation
    assert linux.vm().root.quota == quota, "both count with their whole size"


def test_what_is_said_of_it(linux):
    made(linux, "thick")
    done = linux.converge(spec({"name": "d", "type": "sparse"}), check=True)
    assert done.diff.splitlines()[1] == "  ~ d thick -> sparse"
    done = linux.converge(spec({"name": "d"}, {"name": "e", "size": 16, "type": "sparse"}), check=True)
    assert done.diff.splitlines()[1].startswith("  + e 16 MiB sparse at ")


@pytest.mark.parametrize("size", [16, 64])
@pytest.mark.parametrize("kind", TYPES)
def test_another_size_at_once(linux, kind, size):
    made(linux, next(k for k in TYPES if k != kind))
    entry = {"name": "d", "type": kind, "size": size, "dangerous_allow_shrink": size < 32}
    linux.four_steps(spec(entry))
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, size)


@pytest.mark.parametrize("size", [16, 32, 64])
@pytest.mark.parametrize("kind", TYPES)
def test_another_type_on_its_way_back(linux, kind, size):
    made(linux, next(k for k in TYPES if k != kind))
    linux.four_steps(spec(unlisted="detach"))
    entry = {"name": "d", "type": kind, "size": size, "dangerous_allow_shrink": size < 32}
    done = linux.four_steps(spec(entry))
    assert kinds(done) == ["attach"]
    assert linux.disks()["d"].type == kind


def test_a_full_vm_has_room_for_it(linux):
    linux.adopted()
    linux.four_steps(spec({"name": "d", "size": "remaining", "type": "sparse"}))
    linux.four_steps(spec({"name": "d", "size": "remaining", "type": "thick"}))
    assert linux.disks()["d"].type == "thick"


def test_one_that_a_snapshot_has_overdrawn_has_not(linux):
    """A snapshot by hand asks nobody; what it holds of the sparse disk could not be reserved a second time."""
    linux.adopted()
    linux.four_steps(spec({"name": "d", "size": "remaining", "type": "sparse"}))
    disk = linux.disks()["d"]
    write(linux, disk, 1, 64)
    linux.run("zfs", "snapshot", disk.volume.name + "@by-hand")
    before = linux.fingerprint()
    refused = linux.converge(spec({"name": "d", "type": "thick"}))
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert linux.fingerprint() == before
    assert not linux.converge(spec({"name": "d"})).changed


def test_without_flexible_disk_size_the_quota_is_looked_at(linux):
    linux.create((64, 32))
    wish = {"vm": VM, "disks": [{**ROOT, "size": 64}, {"name": "d", "size": 32}]}
    assert linux.converge(wish).failure is None
    linux.four_steps(spec({"name": "d", "type": "sparse"}))
    disk = linux.disks()["d"]
    write(linux, disk, 1, 24)
    linux.run("zfs", "snapshot", disk.volume.name + "@by-hand")
    refused = linux.converge(spec({"name": "d", "type": "thick"}))
    assert [(p.code, p.disk) for p in refused.problems] == [("InsufficientSpace", "d")]
    assert "type thick needs" in refused.problems[0].message
    linux.run("zfs", "destroy", disk.volume.name + "@by-hand")
    linux.four_steps(spec({"name": "d", "type": "thick"}))


def test_a_pool_without_room_for_it(linux):
    """Only a disk that no VM has takes more of the pool by it; a VM's reservation holds the whole size already."""
    made(linux, "sparse", size=512)
    linux.four_steps(spec(unlisted="detach"))
    left = int(linux.run("zfs", "get", "-Hpo", "value", "available", "tank"))
    linux.run("zfs", "create", "-o", f"reservation={left - 64 * MIB}", "tank/ballast")
    linux.four_steps(spec({"name": "d", "type": "thick"}))


def test_a_volume_made_sparse_by_hand_stays_so(linux):
    linux.adopted(32)
    linux.run("zfs", "set", "refreservation=none", linux.disks()["a"].volume.name)
    done = linux.converge(spec({"name": "a"}))
    assert (done.changed, done.vms[0]["disks"][1]["type"]) == (False, "sparse")
    linux.four_steps(spec({"name": "a", "size": 48}))
    linux.four_steps(spec({"name": "a", "type": "thick"}))


# -- interruptions


class Killed(BaseException):
    pass


def run(linux, wish, stop_at=-1, **policy):
    """How many points it passes; killed at one of them."""
    count = 0

    def hook(*ignored) -> None:
        nonlocal count
        if count == stop_at:
            linux.hook = linux.domains.hook = None
            raise Killed
        count += 1

    linux.hook = linux.domains.hook = hook
    try:
        outcome = linux.converge(wish, **policy)
        assert (outcome.failure, outcome.problems) == (None, [])
    finally:
        linux.hook = linux.domains.hook = None
    return count


def host_with(kind, parked=False, image=False):
    linux = with_image() if image else LinuxHost()
    disk = made(linux, kind)
    write(linux, disk, 7)
    if parked:
        assert linux.converge(spec(unlisted="detach")).failure is None
    return linux, digest(linux, linux.vm().parked[0] if parked else disk)


INTERRUPTED = {
    "thick to sparse": ("thick", False, {"name": "d", "type": "sparse"}),
    "sparse to thick": ("sparse", False, {"name": "d", "type": "thick"}),
    "sparse to thick and grow": ("sparse", False, {"name": "d", "type": "thick", "size": 64}),
    "sparse to thick on its way back": ("sparse", True, {"name": "d", "type": "thick"}),
    "thick to sparse on its way back": ("thick", True, {"name": "d", "type": "sparse"}),
    "attach sparse": ("sparse", True, {"name": "d"}),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_killed_at_every_point(name):
    kind, parked, entry = INTERRUPTED[name]
    points = run(host_with(kind, parked)[0], spec(entry))
    assert points > 4
    for point in range(points):
        linux, was = host_with(kind, parked)
        with pytest.raises(Killed):
            run(linux, spec(entry), point)
        done = linux.converge(spec(entry))
        assert (done.problems, done.failure) == ([], None), point
        disk = linux.disks()["d"]
        assert (disk.type, digest(linux, disk)) == (entry.get("type", kind), was), point
        assert disk.volume.user.get("type", "thick") == disk.type, point
        linux.assert_whole()
        assert not linux.converge(spec(entry)).changed, point


@pytest.mark.parametrize("kind", [None, *TYPES])
def test_a_clone_that_was_cut_off_ends_as_what_it_was_to_be(kind):
    """A clone has no reservation at first; that alone makes it no sparse disk."""
    entry = {"name": "c", "image": IMAGE, **({"type": kind} if kind else {})}
    points = run(host_with("thick", image=True)[0], spec({"name": "d"}, entry))
    for point in range(points):
        linux = host_with("thick", image=True)[0]
        with pytest.raises(Killed):
            run(linux, spec({"name": "d"}, entry), point)
        done = linux.converge(spec({"name": "d"}, {**entry, "type": None}))
        assert (done.problems, done.failure) == ([], None), point
        was_there = bool(done.vms[0]["steps"]) and "create" not in kinds(done)
        if kind != "sparse" or was_there:
            assert linux.disks()["c"].type == (kind or "thick"), point
        linux.assert_whole()
