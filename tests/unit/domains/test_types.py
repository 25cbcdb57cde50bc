# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Types of disks on a Linux host: each operation with each of them, in four steps."""

from __future__ import annotations

import os

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_info, vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.report import disk_template
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps import file_disks
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.perform import Change, Tools
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.steps.performers import PERFORM
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Policy,
    SnapshotDeclaration,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import ABSENT, Vm, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import changes, departures, predict
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import identity, space

from .conftest import OTHER, VM, LinuxHost
from .test_vm import GONE, IMAGE, settle
from .test_vm import host as with_image

ROOT = {"name": "root", "boot": True}
TYPES = ["thick", "sparse", "file"]
POWER = pytest.mark.parametrize("up", [True, False], ids=["running", "stopped"])
PAIRS = pytest.mark.parametrize(("was", "kind"), [(a, b) for a in TYPES for b in TYPES if a != b])
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


def snapshot(linux, check=False, **options):
    declaration = SnapshotDeclaration(**options)
    return vm_snapshot.run(linux.zfs(), linux.driver(), [VM], declaration, Policy(), None, check, 1_800_000_000)


@EACH
@POWER
def test_create(linux, kind, up):
    disk = made(linux, kind, up)
    assert disk.type == kind
    assert bool(disk.volume.refreservation) == (kind != "sparse")
    assert disk.volume.user.get("type", "thick") == kind


@EACH
@POWER
def test_grow_and_shrink(linux, kind, up):
    made(linux, kind, up)
    linux.four_steps(spec({"name": "d", "size": 64}))
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, 64)
    declaration = spec({"name": "d", "size": 16, "dangerous_allow_shrink": True})
    linux.four_steps(declaration, allow_restart=True)
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, 16)


@EACH
@POWER
def test_detach_and_attach(linux, kind, up):
    disk = made(linux, kind, up)
    write(linux, disk, 7)
    was = digest(linux, disk)
    linux.four_steps(spec(unlisted="detach"))
    detached = linux.vm().detached[0]
    assert (detached.type, detached.volume.user.get("type", "thick")) == (kind, kind)
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
    assert "needs 8" in refused.problems[0].message


@EACH
def test_deleted_snapshots_give_back_what_is_said(linux, kind):
    disk = made(linux, kind)
    for seed, length in ((1, 16), (2, 8)):
        write(linux, disk, seed, length)
        assert snapshot(linux, state="present", name="s%d" % seed).failure is None
    write(linux, disk, 3, 4)
    for name in ("s2", "s1"):
        frees = {s["name"]: s["frees_bytes"] for s in told(linux)["snapshots"]}[name]
        room = space.allocatable(linux.vm())
        assert snapshot(linux, state="absent", name=name).failure is None
        assert space.allocatable(linux.vm()) - room == frees


def told(linux):
    return vm_info.info(linux.zfs(), linux.driver(), [VM], None, True).vms[0]


@pytest.mark.parametrize(
    ("disks", "template"),
    [
        ([], "diskless"),
        (["thick"], "thick"),
        (["sparse", "sparse"], "sparse"),
        (["file"], "file"),
        (["thick", "sparse"], "mixed"),
        (["file", "thick"], "mixed"),
    ],
)
def test_the_template_of_a_vm(linux, disks, template):
    entries = [{"name": "d%d" % n, "size": 16, "type": kind} for n, kind in enumerate(disks)]
    if entries:
        entries[0]["boot"] = True
    linux.create(())
    declaration = {"vm": VM, "adopt": True, "flexible_disk_size": "1GiB", "disks": entries}
    done = linux.four_steps(declaration)
    assert [d["type"] for d in done.vms[0]["disks"]] == disks
    assert (disk_template(linux.vm()), told(linux)["disk_template"]) == (template, template)


def test_a_new_vm_has_disks_of_each_type():
    linux = with_image()
    entries = [
        {"name": "root", "type": "sparse"},
        *({"name": kind, "size": 32, "type": kind} for kind in TYPES),
    ]
    done = settle(linux, {"disks": entries})
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
    assert done.diff.splitlines()[2] == "  ~ d thick -> sparse"
    done = linux.converge(spec({"name": "d"}, {"name": "e", "size": 16, "type": "sparse"}), check=True)
    assert done.diff.splitlines()[2].startswith("  + e 16 MiB sparse at ")


@pytest.mark.parametrize("size", [16, 64])
@PAIRS
def test_another_size_at_once(linux, was, kind, size):
    made(linux, was)
    entry = {"name": "d", "type": kind, "size": size, "dangerous_allow_shrink": size < 32}
    linux.four_steps(spec(entry))
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, size)


@pytest.mark.parametrize("size", [16, 32, 64])
@PAIRS
def test_another_type_on_its_way_back(linux, was, kind, size):
    made(linux, was)
    linux.four_steps(spec(unlisted="detach"))
    entry = {"name": "d", "type": kind, "size": size, "dangerous_allow_shrink": size < 32}
    done = linux.four_steps(spec(entry))
    assert kinds(done) == (["convert", "attach"] if "file" in (was, kind) else ["attach"])
    assert (linux.disks()["d"].type, linux.disks()["d"].size_mib) == (kind, size)


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
    declaration = {"vm": VM, "disks": [{**ROOT, "size": 64}, {"name": "d", "size": 32}]}
    assert linux.converge(declaration).failure is None
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


def run(linux, declaration, stop_at=-1, **policy):
    """How many points it passes; killed at one of them."""
    count = 0

    def hook(*ignored) -> None:
        nonlocal count
        if count == stop_at:
            linux.hook = linux.domains.hook = linux.files.hook = None
            raise Killed
        count += 1

    linux.hook = linux.domains.hook = linux.files.hook = hook
    try:
        outcome = linux.converge(declaration, **policy)
        assert (outcome.failure, outcome.problems) == (None, [])
    finally:
        linux.hook = linux.domains.hook = linux.files.hook = None
    return count


def host_with(kind, detached=False, image=False):
    linux = with_image() if image else LinuxHost()
    disk = made(linux, kind)
    write(linux, disk, 7)
    if detached:
        assert linux.converge(spec(unlisted="detach")).failure is None
    return linux, digest(linux, linux.vm().detached[0] if detached else disk)


INTERRUPTED = {
    "thick to sparse": ("thick", False, {"name": "d", "type": "sparse"}),
    "sparse to thick": ("sparse", False, {"name": "d", "type": "thick"}),
    "sparse to thick and grow": ("sparse", False, {"name": "d", "type": "thick", "size": 64}),
    "sparse to thick on its way back": ("sparse", True, {"name": "d", "type": "thick"}),
    "thick to sparse on its way back": ("thick", True, {"name": "d", "type": "sparse"}),
    "attach sparse": ("sparse", True, {"name": "d"}),
    "attach a file and grow it": ("file", True, {"name": "d", "size": 64}),
    "grow a file": ("file", False, {"name": "d", "size": 64}),
    "shrink a file": ("file", False, {"name": "d", "size": 16, "dangerous_allow_shrink": True}),
    "make a file": ("thick", False, {"name": "d", "type": "thick"}, {"name": "e", "size": 16, "type": "file"}),
    "thick to file": ("thick", False, {"name": "d", "type": "file"}),
    "sparse to file and grow": ("sparse", False, {"name": "d", "type": "file", "size": 64}),
    "file to thick": ("file", False, {"name": "d", "type": "thick"}),
    "file to sparse": ("file", False, {"name": "d", "type": "sparse"}),
    "thick to file on its way back": ("thick", True, {"name": "d", "type": "file"}),
    "file to thick on its way back": ("file", True, {"name": "d", "type": "thick"}),
}


EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 2
RUNNING = ("thick to sparse", "grow a file", "attach a file and grow it", "thick to file")


@pytest.mark.parametrize(
    ("name", "up"), [*((name, False) for name in INTERRUPTED), *((name, True) for name in RUNNING)]
)
def test_killed_at_every_point(name, up):
    kind, detached, *entries = INTERRUPTED[name]

    def begin():
        linux, was = host_with(kind, detached)
        if up:
            linux.domains.boot(VM)
        return linux, was

    declaration = spec(*entries)
    whole = begin()[0]
    points = run(whole, declaration, allow_restart=True)
    assert points > 4
    for point in sorted({*range(up, points, EVERY), points - 1}):
        linux, was = begin()
        with pytest.raises(Killed):
            run(linux, declaration, point, allow_restart=True)
        predicted = linux.converge(declaration, check=True, allow_restart=True)
        done = linux.converge(declaration, allow_restart=True)
        assert (done.problems, done.failure) == ([], None), point
        assert done.diff == predicted.diff, point
        disk = linux.disks()["d"]
        assert (disk.type, digest(linux, disk)) == (entries[0].get("type", kind), was), point
        assert picture(linux) == picture(whole), point
        for one in linux.disks().values():
            assert one.volume.user.get("type", "thick") == one.type, point
            assert not {"from", "copied"} & set(one.volume.user), point
            assert one.type != "file" or linux.files.size(one.path) == one.size, point
        linux.assert_whole()
        assert not linux.converge(declaration).changed, point


def picture(linux):
    """Everything that is to be the same however often it was interrupted."""
    vm = linux.vm()
    return {
        "disks": {d.name: (d.type, d.size, d.pci_slot, d.boot, d.index, d.volume.name) for d in vm.disks},
        "datasets": sorted(n for n, d in linux.host().datasets.items() if d.kind != "snapshot"),
        "power": (vm.config.state, vm.config.autoboot),
        "space": (vm.root.quota, vm.root.reservation),
        "settled": vm.interrupted,
    }


@pytest.mark.parametrize("kind", [None, "thick", "sparse"])
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


@pytest.mark.parametrize("change", [{}, {"state": "absent"}])
def test_half_a_copy_goes_with_the_next_run_that_wants_none(change):
    """Killed while it copies, and then its operator thinks better of it."""
    linux, was = host_with("thick")
    with pytest.raises(Killed):
        run(linux, spec({"name": "d", "type": "file"}), points_until(linux_copying, "thick", {"type": "file"}))
    detached = linux.vm().detached[0]
    assert (detached.type, detached.partial_copy) == ("thick", detached.volume.name + ".copy")
    assert [d.volume.name for d in linux.host().detached] == [detached.volume.name], "half a copy is no disk"
    done = linux.converge(spec({"name": "d", **change}), allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert "half a copy of d, left by an interrupted conversion" in done.diff
    assert not [n for n in linux.host().datasets if n.startswith("tank/flexdisk/")]
    if not change:
        assert digest(linux, linux.disks()["d"]) == was


@pytest.mark.parametrize("uuid", [True, False], ids=["its own uuid", "no uuid"])
def test_a_property_alone_destroys_nothing(linux, uuid):
    """flexdisk:from of a detached disk names the guid of another one."""
    precious = made(linux, "thick")
    write(linux, precious, 7)
    was = digest(linux, precious)
    linux.four_steps(spec(unlisted="detach"))
    linux.four_steps(spec({"name": "e", "size": 16}))
    detached = linux.vm().detached[0]
    if not uuid:
        linux.run("zfs", "inherit", "flexdisk:uuid", detached.volume.name)
        detached = linux.vm().detached[0]
    linux.run("zfs", "set", "flexdisk:from=%d" % linux.disks()["e"].volume.guid, detached.volume.name)
    assert [d.volume.name for d in linux.host().detached] == [detached.volume.name]
    done = linux.converge(spec({"name": "e", "size": 32}))
    assert (done.problems, done.failure) == ([], None)
    assert "half a copy" not in done.diff
    assert digest(linux, detached) == was


def test_what_has_become_a_disk_is_not_discarded(linux):
    """Between the plan and its step the copy may have got another uuid."""
    made(linux, "thick")
    with pytest.raises(Killed):
        run(linux, spec({"name": "d", "type": "file"}), points_until(linux_copying, "thick", {"type": "file"}))
    detached = linux.vm().detached[0]

    vm, host = linux.vm(), linux.host()
    step = next(departures.discard_copies(vm.detached))
    assert step.destroys
    assert "DESTROYED" in step.text
    linux.run("zfs", "set", "flexdisk:uuid=" + OTHER, detached.partial_copy)
    tools = Tools(linux.zfs(), linux.driver(), Policy(), {"tank/flexdisk"})
    with pytest.raises(FlexdiskError, match="it is not a copy of"):
        PERFORM[type(step)](step, tools, Change(vm, vm, host.geometry["tank"]))
    assert detached.partial_copy in linux.host().datasets


@pytest.mark.parametrize("by", ["name", "uuid"])
def test_what_is_not_made_yet_is_not_attached(by):
    """A copy or a clone of a disk that was cut off: its size and its reservation are not what was asked for."""
    linux = host_with("thick", detached=True)[0]
    detached = linux.vm().detached[0]
    linux.run("zfs", "set", "flexdisk:from=import", detached.volume.name)
    declaration = spec({"name": "d"} if by == "name" else {"uuid": detached.uuid, "name": "d"})
    for check in (True, False):
        refused = linux.converge(declaration, check=check)
        assert [(p.code, p.disk) for p in refused.problems] == [("InUse", "d")]
        assert "the creation of" in refused.problems[0].message
        assert "state=present of flexdisk.hypervisor.disk ends it" in refused.problems[0].message
    assert not linux.converge(spec()).problems
    linux.four_steps(spec({"name": "d", "state": "absent"}))


def linux_copying(program, arguments, moment):
    return program == "copy" and moment == "after"


def points_until(found, kind, change):
    """How many points a conversion passes before this one."""
    linux, seen = host_with(kind)[0], []

    def hook(*point):
        seen.append(point)

    linux.hook = linux.domains.hook = linux.files.hook = hook
    linux.converge(spec({"name": "d", **change}))
    return next(n for n, point in enumerate(seen) if found(*point))


# -- a disk that is aside


def cut_off(was, kind, found, up=True):
    """A host with a running VM whose disk is being converted, killed where found(program, arguments, moment) says."""
    linux = host_with(was)[0]
    if up:
        linux.domains.boot(VM)

    def hook(*point):
        if found(*point):
            linux.hook = linux.domains.hook = linux.files.hook = None
            raise Killed

    linux.hook = linux.domains.hook = linux.files.hook = hook
    with pytest.raises(Killed):
        linux.converge(spec({"name": "d", "type": kind}), allow_restart=True)
    return linux


def after_the_original(program, arguments, moment):
    return moment == "after" and "destroy" in arguments


def after_the_conversion(program, arguments, moment):
    return moment == "after" and "inherit" in arguments and "flexdisk:copied" in arguments


ASIDE = pytest.mark.parametrize("point", [linux_copying, after_the_original, after_the_conversion])


@ASIDE
@pytest.mark.parametrize("declaration", [{"vm": VM}, {"vm": VM, "disks": [ROOT, {"name": "e", "size": 16}]}])
def test_no_vm_runs_without_the_disk_that_is_aside(point, declaration):
    linux = cut_off("thick", "file", point)
    assert linux.vm().config.state == "stopped"
    for check in (True, False):
        refused = linux.converge(declaration, check=check, allow_restart=True)
        assert [(p.code, p.disk) for p in refused.problems] == [("InUse", "d")]
        assert "conversion was interrupted" in refused.problems[0].message
    assert linux.vm().config.state == "stopped"
    done = linux.converge(spec({"name": "d"}, {"name": "e", "size": 16}), allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert linux.vm().config.state == "running"
    assert not {"from", "copied"} & set(linux.disks()["d"].volume.user)
    assert linux.vm().interrupted is None


@ASIDE
@pytest.mark.parametrize("entry", [{"type": "file"}, {"type": "thick"}, {"size": 64}])
def test_a_failure_starts_no_vm_whose_disk_is_aside(point, entry):
    """Neither does one of a later run, whose disk was aside before."""
    linux = cut_off("thick", "file", point)
    linux.files.broken = "Input/output error"
    done = linux.converge(spec({"name": "d", **entry}), allow_restart=True)
    if done.failure is not None:
        assert linux.vm().config.state == "stopped"
    assert (linux.vm().config.state == "running") == ("d" in linux.disks())


@ASIDE
def test_one_that_is_aside_can_be_given_up(point):
    linux = cut_off("thick", "file", point)
    done = linux.converge(spec({"name": "d", "state": "absent"}), allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    assert linux.vm().config.state == "running"
    assert not [n for n in linux.host().datasets if n.startswith("tank/flexdisk/")]


@pytest.mark.parametrize("change", [{}, {"type": "file"}])
def test_half_a_copy_goes_with_its_snapshots(change):
    """Recursive snapshots of a pool are taken of it, too."""
    linux = cut_off("thick", "file", linux_copying)
    linux.run("zfs", "snapshot", "-r", "tank@auto")
    declaration = spec({"name": "d", **change})
    linux.run("zfs", "destroy", linux.vm().detached[0].volume.name + "@auto")
    for check in (True, False):
        done = linux.converge(declaration, check=check, allow_restart=True)
        assert (done.problems, done.failure) == ([], None)
    assert linux.disks()["d"].type == change.get("type", "thick")
    assert not [n for n in linux.host().datasets if n.startswith("tank/flexdisk/")]


def test_what_others_have_made_below_half_a_copy_stays():
    linux = cut_off("thick", "file", linux_copying)
    below = linux.vm().detached[0].partial_copy + "/theirs"
    linux.run("zfs", "create", "-o", "mountpoint=none", below)
    done = linux.converge(spec({"name": "d"}), allow_restart=True)
    assert done.failure["error_code"] == "InUse"
    assert below in done.failure["message"]
    assert below in linux.host().datasets


@pytest.mark.parametrize("mine", [0, 1])
@pytest.mark.parametrize("was", ["thick", "file"])
def test_a_snapshot_that_came_while_it_copied_is_not_destroyed(was, mine):
    linux, content = host_with(was)
    linux.domains.boot(VM)
    for number in range(mine):
        assert snapshot(linux, state="present", name=f"s{number}").failure is None
    kind = "thick" if was == "file" else "file"

    def hook(*point):
        if linux_copying(*point):
            linux.hook = linux.domains.hook = linux.files.hook = None
            linux.run("zfs", "snapshot", linux.vm().detached[0].volume.name + "@theirs")

    linux.files.hook = hook
    declaration = spec({"name": "d", "type": kind, "destroy_snapshots": bool(mine)})
    done = linux.converge(declaration, allow_restart=True)
    assert done.failure["error_code"] == "Changed"
    assert "theirs" in done.failure["message"]
    done = linux.converge(spec({"name": "d"}), allow_restart=True)
    assert (done.problems, done.failure) == ([], None)
    disk = linux.disks()["d"]
    assert (disk.type, digest(linux, disk), len(disk.snapshots)) == (was, content, mine + 1)
    assert linux.vm().config.state == "running"


def test_a_detached_disk_does_not_boot_by_its_property(linux):
    made(linux, "thick")
    linux.four_steps(spec(unlisted="detach"))
    linux.run("zfs", "set", "flexdisk:boot=true", linux.vm().detached[0].volume.name)
    linux.four_steps(spec({"name": "d"}))
    assert [(d.name, d.boot) for d in linux.vm().disks] == [("root", True), ("d", False)]


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_boot_disk_that_was_cut_off_boots_again(where):
    """At every point, with another disk in the VM that could boot in its place."""

    def begin():
        return host_with("thick")[0]

    entries = [{**ROOT, "type": "file"}, {"name": "d"}]
    declaration = {"vm": VM, "disks": entries if where == "first" else entries[::-1]}
    whole = begin()
    points = run(whole, declaration)
    assert [(d.name, d.boot) for d in whole.vm().disks] == [("root", True), ("d", False)]
    for point in range(points):
        linux = begin()
        with pytest.raises(Killed):
            run(linux, declaration, point)
        done = linux.converge(declaration)
        assert (done.problems, done.failure) == ([], None), point
        assert picture(linux) == picture(whole), point
        assert not any({"from", "copied"} & set(d.volume.user) for d in linux.vm().disks), point
        linux.assert_whole()
        assert not linux.converge(declaration).changed, point


# -- files and volumes


COPIED = pytest.mark.parametrize(
    ("was", "kind"), [("thick", "file"), ("sparse", "file"), ("file", "thick"), ("file", "sparse")]
)


@COPIED
@POWER
def test_a_copy_keeps_all_but_the_type(linux, was, kind, up):
    made(linux, was, up)
    facts = {"description": "x", "tags": {"a": "b"}, "preserve": True, "pci_slot": "0:9:0", "compression": "lz4"}
    linux.four_steps(spec({"name": "d", **facts}), allow_restart=True)
    disk = linux.disks()["d"]
    write(linux, disk, 7)
    content = digest(linux, disk)
    done = linux.four_steps(spec({"name": "d", "type": kind}), allow_restart=True)
    middle = ["detach", "convert", "attach"]
    assert kinds(done) == (["stop", *middle, "start"] if up else middle)
    now = linux.disks()["d"]
    assert (now.type, digest(linux, now)) == (kind, content)
    for field in ("uuid", "name", "index", "size", "user_properties", "pci_slot", "model", "boot"):
        assert getattr(now, field) == getattr(disk, field), field
    assert now.volume.compression == "lz4"
    for fact in ("ctime", "uuid", "vm"):
        assert now.volume.user[fact] == disk.volume.user[fact]
    assert int(now.volume.user["serial_no"]) > int(disk.volume.user["serial_no"])
    assert now.path == (f"/var/lib/flexdisk/{now.uuid}/disk.raw" if kind == "file" else "/dev/zvol/" + now.volume.name)


@COPIED
def test_a_running_vm_must_stop_for_it(linux, was, kind):
    made(linux, was, up=True)
    before = linux.fingerprint()
    refused = linux.converge(spec({"name": "d", "type": kind}))
    assert [p.code for p in refused.problems] == ["VmNotStopped"]
    assert "its data is copied" in refused.problems[0].message
    assert linux.fingerprint() == before


@COPIED
def test_snapshots_do_not_come_along(linux, was, kind):
    disk = made(linux, was)
    assert snapshot(linux, state="present", name="one").failure is None
    refused = linux.converge(spec({"name": "d", "type": kind}))
    assert [(p.code, p.disk) for p in refused.problems] == [("HasSnapshots", "d")]
    assert "destroy_snapshots: true" in refused.problems[0].message
    linux.run("zfs", "hold", "mine", disk.volume.name + "@vmsnap-one")
    refused = linux.converge(spec({"name": "d", "type": kind, "destroy_snapshots": True}))
    assert [p.code for p in refused.problems] == ["Held"]
    linux.run("zfs", "release", "mine", disk.volume.name + "@vmsnap-one")
    done = linux.converge(spec({"name": "d", "type": kind, "destroy_snapshots": True}))
    assert (done.problems, done.failure) == ([], None)
    assert (linux.disks()["d"].type, linux.disks()["d"].snapshots) == (kind, ())
    assert "1 snapshot DESTROYED" in done.diff


@pytest.mark.parametrize("kind", ["file", "sparse"])
@pytest.mark.parametrize("entry", [{}, {"boot": True}])
def test_the_boot_disk_too(linux, kind, entry):
    linux.adopted(32)
    linux.four_steps(spec({"name": "a"}))
    declaration = {"vm": VM, "disks": [{**ROOT, "type": kind, **entry}, {"name": "a"}]}
    linux.four_steps(declaration)
    assert [(d.name, d.boot, d.type) for d in linux.vm().disks] == [("root", True, kind), ("a", False, "thick")]
    linux.four_steps({"vm": VM, "disks": [{**ROOT, "type": "thick"}, {"name": "a"}]})
    assert linux.disks()["root"].boot


def test_remaining_is_copied_as_it_is(linux):
    linux.adopted(32)
    linux.four_steps(spec({"name": "a"}, {"name": "d", "size": "remaining"}))
    size = linux.disks()["d"].size
    linux.four_steps(spec({"name": "a"}, {"name": "d", "size": "remaining", "type": "file"}))
    assert (linux.disks()["d"].size, linux.disks()["d"].type) == (size, "file")


@COPIED
def test_a_pool_that_has_no_room_for_both(linux, was, kind):
    made(linux, was, size=256)
    left = int(linux.run("zfs", "get", "-Hpo", "value", "available", "tank"))
    linux.run("zfs", "create", "-o", f"reservation={left - 128 * MIB}", "tank/ballast")
    before = linux.fingerprint()
    refused = linux.converge(spec({"name": "d", "type": kind}))
    assert [p.code for p in refused.problems] == ["InsufficientSpace"]
    assert linux.fingerprint() == before


def test_a_copy_that_fails_leaves_the_vm_down_and_the_disk_whole(linux):
    disk = made(linux, "thick", up=True)
    write(linux, disk, 7)
    was = digest(linux, disk)
    linux.files.broken = "Input/output error"
    done = linux.converge(spec({"name": "d", "type": "file"}), allow_restart=True)
    assert (done.failure["error_code"], done.failure["restarted"]) == ("FileFailed", False)
    assert linux.vm().config.state == "stopped", "it would run without its disk"
    assert [(d.name, d.type) for d in linux.vm().detached] == [("d", "thick")]
    linux.files.broken = ""
    again = linux.converge(spec({"name": "d"}))
    assert (again.problems, again.failure) == ([], None)
    assert (linux.vm().config.state, digest(linux, linux.disks()["d"])) == ("running", was)
    assert linux.disks()["d"].type == "thick"
    linux.assert_whole()


def test_how_far_it_is_can_be_seen(linux, monkeypatch):
    disk = made(linux, "thick")
    write(linux, disk, 7, 8)
    monkeypatch.setattr(file_disks, "PACE", 0.0)
    seen = []

    def hook(program, argv, moment):
        if moment == "after" and any("flexdisk:copied" in str(word) for word in argv):
            seen.append(" ".join(argv))

    linux.hook = hook
    assert linux.converge(spec({"name": "d", "type": "file"})).failure is None
    copy = f"tank/flexdisk/{disk.uuid}.copy"
    assert seen[:2] == [f"zfs set flexdisk:copied={n * MIB} {copy}" for n in (8, 32)]
    assert seen[2:] == [f"zfs inherit flexdisk:copied tank/flexdisk/{disk.uuid}"]


def test_where_a_file_lies_and_what_is_reserved_for_it(linux):
    disk = made(linux, "file", size=100)
    shown = linux.run("zfs", "get", "-Hpo", "property,value", "all", disk.volume.name)
    figures = dict(line.split("\t") for line in shown.splitlines())
    assert figures["type"] == "filesystem"
    assert figures["mountpoint"] == f"/var/lib/flexdisk/{disk.uuid}"
    assert (figures["recordsize"], figures["flexdisk:type"], figures["flexdisk:size"]) == (
        "131072", "file", str(100 * MIB)
    )  # fmt: skip
    # 100 MiB in 800 records, one block of pointers to them, seven of the tree above; these 128 KiB each, and twice.
    assert int(figures["refreservation"]) == (100 << 20) + 2 * 8 * (128 << 10)
    vm = linux.vm()
    others = [v for v in vm.volumes if v.name != disk.volume.name]
    geometry = linux.host().geometry["tank"]
    promised = space.quota_law(vm.root.refquota, 1 << 30, others, geometry)
    assert vm.root.quota == promised + 2 * 8 * (128 << 10)
    write(linux, disk, 3, 100)
    used = linux.vm().disks[1].volume.used
    assert used == int(figures["refreservation"]), "all of it written, and nothing beyond what is reserved"
    assert vm.other_used == linux.vm().other_used == 0


def test_the_domain_has_a_file(linux):
    disk = made(linux, "file", up=True)
    for live in (False, True):
        xml = linux.domains.xml(VM, live)
        assert f'<source file="{disk.path}"' in xml
        assert 'type="file"' in xml


def test_what_is_left_of_one_that_is_destroyed(linux):
    disk = made(linux, "file")
    linux.four_steps(spec({"name": "d", "state": "absent"}))
    assert disk.volume.name not in linux.host().datasets
    assert linux.files.calls[-1] == ("remove_folder", (f"/var/lib/flexdisk/{disk.uuid}",))
    assert linux.vm().other_used == 0


def test_a_file_that_has_gone_is_not_made_anew(linux):
    """An empty one in its place would look like its disk."""
    made(linux, "file")
    linux.four_steps(spec(unlisted="detach"))
    linux.files.size = lambda path: -1
    done = linux.converge(spec({"name": "d"}))
    assert done.failure["error_code"] == "Changed"
    assert "is missing" in done.failure["message"]


@pytest.mark.parametrize("up", [False, True])
def test_a_snapshot_knows_the_size_of_the_file(linux, up):
    disk = made(linux, "file")
    write(linux, disk, 1)
    was = digest(linux, disk)
    for name, size in (("one", 64), ("two", 96)):
        assert snapshot(linux, state="present", name=name).failure is None
        assert linux.converge(spec({"name": "d", "size": size})).failure is None
    assert [s.volsize // MIB for s in linux.disks()["d"].snapshots] == [32, 64]
    done = snapshot(linux, state="rolled_back", name="two", newer=None)
    assert (done.problems, done.failure) == ([], None)
    assert "d 96 MiB -> 64 MiB" in done.diff
    assert (linux.disks()["d"].size_mib, linux.files.size(disk.path) // MIB) == (64, 64)
    linux.assert_whole()
    done = snapshot(linux, state="rolled_back", name="one", newer=None)
    assert (done.problems, done.failure) == ([], None)
    assert (linux.disks()["d"].size_mib, linux.files.size(disk.path) // MIB) == (32, 32)
    assert digest(linux, disk) == was
    assert linux.disks()["d"].volume.refreservation == disk.volume.refreservation
    linux.assert_whole()


def test_a_deleted_vm_leaves_a_file_that_is_preserved():
    linux = with_image()
    entries = [
        {"name": "root"},
        {"name": "d", "size": 32, "type": "file", "preserve": True},
        {"name": "e", "size": 16, "type": "file"},
    ]
    done = settle(linux, {"disks": entries})
    preserved = done.vms[0]["disks"][1]
    write_to = preserved["volume"]
    linux.run("guest", "write", write_to, "0", "8", "7")
    was = linux.run("guest", "hash", write_to, "0", "8")
    settle(linux, {**GONE})
    assert [d.name for d in linux.host().detached] == ["d"]
    again = settle(linux, {"disks": entries})
    back = next(d for d in again.vms[0]["disks"] if d["name"] == "d")
    assert back["path"] == preserved["path"]
    assert linux.run("guest", "hash", back["volume"], "0", "8") == was


@pytest.mark.parametrize(("option", "value"), [("image", IMAGE), ("block_size", 8192)])
def test_what_a_file_has_not(linux, option, value):
    linux.adopted()
    refused = linux.converge(spec({"name": "d", "size": 16, "type": "file", option: value}))
    assert [(p.code, p.disk) for p in refused.problems] == [("InvalidArgument", "d")]
    assert f"{option} and type=file exclude each other" in refused.problems[0].message


def test_a_volume_gets_the_block_size_that_is_asked_for(linux):
    made(linux, "file")
    linux.four_steps(spec({"name": "d", "type": "thick", "block_size": 4096}))
    assert linux.disks()["d"].volume.volblocksize == 4096


def test_bhyve_has_no_files(linux):
    linux.uri = "bhyve:///system"
    linux.adopted()
    for entry in ({"name": "d", "size": 16, "type": "file"}, {**ROOT, "type": "file"}):
        disks = [entry] if entry["name"] == "root" else [ROOT, entry]
        refused = linux.converge({"vm": VM, "disks": disks})
        assert [(p.code, p.disk) for p in refused.problems] == [("NotSupported", entry["name"])]
        assert "type file" in refused.problems[0].message
        assert "thick or sparse" in refused.problems[0].message


def test_two_domains_with_one_file(linux):
    disk = made(linux, "file")
    text = linux.domains.xml(VM, False).replace(VM, OTHER).replace("web01", "web02")
    linux.domains.add(text)
    refused = linux.converge(spec({"name": "d", "size": 48}))
    assert {p.code for p in refused.problems} == {"InUse"}
    assert any(disk.volume.name in p.message for p in refused.problems)


def test_nothing_else_is_where_a_copy_goes(linux):
    disk = made(linux, "thick")
    linux.run("zfs", "create", "-V", "16M", f"tank/flexdisk/{disk.uuid}.copy")
    refused = linux.converge(spec({"name": "d", "type": "file"}))
    assert [(p.code, p.disk) for p in refused.problems] == [("AlreadyExists", "d")]


@PAIRS
def test_a_detached_disk_is_converted_where_it_lies(linux, was, kind):
    """Of no VM at all, as a task plans it that is about disks alone."""
    disk = made(linux, was)
    write(linux, disk, 7)
    content = digest(linux, disk)
    linux.four_steps(spec(unlisted="detach"))
    host, detached = linux.host(), linux.vm().detached[0]
    nobody = VmConfig("", "", "", ABSENT, False, "tank", "tank/flexdisk", None)
    vm = Vm(nobody, host.datasets["tank/flexdisk"], detached=(detached,))
    step = changes.convert(detached, kind, host.geometry["tank"])
    after = predict.apply(vm, step, host.geometry["tank"])
    tools = Tools(linux.zfs(), linux.driver(), Policy(), {"tank/flexdisk"})
    PERFORM[type(step)](step, tools, Change(vm, after, host.geometry["tank"]))
    now = linux.vm().detached[0]
    for field in ("type", "size", "uuid", "name", "vm", "index", "partial_copy", "snapshots", "image"):
        assert getattr(now, field) == getattr(after.detached[0], field), field
    assert now.volume.name == after.detached[0].volume.name == detached.volume.name
    assert now.volume.volblocksize == after.detached[0].volume.volblocksize
    assert now.volume.refreservation == after.detached[0].volume.refreservation
    assert (now.type, digest(linux, now)) == (kind, content)
    assert linux.host().detached == (now,)
    assert changes.convert(now, kind, host.geometry["tank"]) is None


def test_a_sparse_disk_that_is_detached_takes_what_was_written(linux):
    disk = made(linux, "sparse", size=512)
    write(linux, disk, 1, 16)
    linux.four_steps(spec(unlisted="detach"))
    assert linux.vm().detached[0].volume.used < 18 * MIB


def test_what_others_have_written_into_the_domain_stays_with_a_copy(linux):
    made(linux, "thick")
    text = linux.domains.xml(VM, False)
    serial = f"<serial>{identity.serial_of(linux.disks()['d'].uuid)}</serial>"
    linux.domains.add(text.replace(serial, serial + "<iotune><total_iops_sec>100</total_iops_sec></iotune>"))
    linux.four_steps(spec({"name": "d", "size": 64}))
    assert "iotune" in linux.domains.xml(VM, False)
    linux.four_steps(spec({"name": "d", "type": "file"}))
    assert "iotune" in linux.domains.xml(VM, False)


def test_a_type_that_is_none(linux):
    linux.adopted()
    refused = linux.converge(spec({"name": "d", "size": 16, "type": "drbd"}))
    assert [(p.code, p.disk) for p in refused.problems] == [("InvalidArgument", "d")]


def test_the_type_that_it_has_is_no_conversion(linux):
    for kind in TYPES:
        host = LinuxHost()
        made(host, kind)
        assert not host.converge(spec({"name": "d", "type": kind})).changed


def test_a_host_with_each_type_has_nothing_wrong(linux):
    linux.adopted()
    linux.four_steps(spec(*({"name": kind, "size": 16, "type": kind} for kind in TYPES)))
    assert findings(linux) == []
    linux.four_steps(spec(unlisted="detach"))
    assert findings(linux) == []


@pytest.mark.parametrize(("was", "kind"), [("thick", "file"), ("file", "thick")])
def test_half_a_copy_is_no_twin(was, kind):
    linux, _content = host_with(was)
    with pytest.raises(Killed):
        run(linux, spec({"name": "d", "type": kind}), points_until(linux_copying, was, {"type": kind}))
    assert findings(linux) == ["quota_drift", "from_mark", "intent"]


def findings(linux):
    result = verify(linux.zfs(), linux.driver(), None, [], None, 30, True, int(linux.node.now()))
    return [finding.kind for finding in result.findings]


# -- what somebody else has done to a file


def grown_by_hand(linux, detached=False):
    """A file of 32 MiB that has 64, with data there."""
    disk = made(linux, "file")
    if detached:
        linux.four_steps(spec(unlisted="detach"))
        disk = linux.vm().detached[0]
    linux.files.resize(identity.file_of(disk.uuid), 64 * MIB)
    linux.run("guest", "write", disk.volume.name, "40", "8", "tail")
    return disk, linux.run("guest", "hash", disk.volume.name, "40", "8")


@pytest.mark.parametrize(
    "entry",
    [{}, {"size": 48}, {"size": 16, "dangerous_allow_shrink": True}, {"type": "thick"}, {"type": "thick", "size": 48}],
    ids=str,
)
@pytest.mark.parametrize("detached", [False, True])
def test_what_a_file_has_beyond_its_size_is_not_cut_off(linux, detached, entry):
    disk, tail = grown_by_hand(linux, detached)
    if not entry and not detached:
        assert not linux.converge(spec({"name": "d"})).changed
        linux.four_steps(spec(unlisted="detach"))
    done = linux.converge(spec({"name": "d", **entry}))
    assert (done.problems, done.failure["error_code"]) == ([], "Changed")
    assert "has 64 MiB, but its dataset" in done.failure["message"]
    assert "is for 32 MiB and the task asks for" in done.failure["message"]
    path, volume = identity.file_of(disk.uuid), linux.files._on(f"/var/lib/flexdisk/{disk.uuid}").name
    assert linux.files.size(path) == 64 * MIB
    assert linux.run("guest", "hash", volume, "40", "8") == tail
    linux.four_steps(spec({"name": "d", "size": 64}))
    assert linux.run("guest", "hash", linux.disks()["d"].volume.name, "40", "8") == tail


@pytest.mark.parametrize("uuid", [None, "%s/.", "../..", "", "x"])
@pytest.mark.parametrize(
    "entry",
    [{"size": 64}, {"type": "thick"}, {"state": "absent"}, {"size": 16, "dangerous_allow_shrink": True}],
    ids=str,
)
@pytest.mark.parametrize("detached", [False, True])
def test_a_uuid_that_is_none_is_no_path(linux, uuid, entry, detached):
    disk = made(linux, "file")
    if detached:
        linux.four_steps(spec(unlisted="detach"))
        disk = linux.vm().detached[0]
    if uuid is None:
        linux.run("zfs", "inherit", "flexdisk:uuid", disk.volume.name)
    else:
        linux.run("zfs", "set", "flexdisk:uuid=" + uuid.replace("%s", disk.uuid), disk.volume.name)
    del linux.files.calls[:]
    done = linux.converge(spec({"name": "d", **entry}))
    if done.failure:
        assert done.failure["error_code"] == "IdentityMismatch"
    assert linux.files.calls == []


@pytest.mark.parametrize("kind", ["grow", "attach", "file to thick"])
def test_another_file_system_in_its_place_is_not_taken_for_it(linux, kind):
    """A backup that was received with its properties is mounted over the disk."""
    disk = made(linux, "file")
    write(linux, disk, 7)
    was = digest(linux, disk)
    linux.run("zfs", "create", "tank/backup")
    if kind == "attach":
        linux.four_steps(spec(unlisted="detach"))
    linux.files.over["/var/lib/flexdisk/" + disk.uuid] = "tank/backup"
    del linux.files.calls[:]
    declaration = spec({"name": "d", **{"grow": {"size": 64}, "attach": {}, "file to thick": {"type": "thick"}}[kind]})
    done = linux.converge(declaration)
    assert (done.problems, done.failure["error_code"]) == ([], "Changed")
    assert "tank/backup is mounted at" in done.failure["message"]
    assert linux.files.calls == []
    del linux.files.over["/var/lib/flexdisk/" + disk.uuid]
    done = linux.converge(declaration)
    assert (done.problems, done.failure) == ([], None)
    assert digest(linux, linux.disks()["d"]) == was


def test_a_copy_goes_to_its_own_file_system_only(linux):
    disk = made(linux, "thick")
    linux.run("zfs", "create", "tank/backup")
    linux.files.over["/var/lib/flexdisk/" + disk.uuid] = "tank/backup"
    done = linux.converge(spec({"name": "d", "type": "file"}))
    assert (done.problems, done.failure["error_code"]) == ([], "Changed")
    assert linux.files.calls == []
    assert linux.vm().detached[0].type == "thick"
