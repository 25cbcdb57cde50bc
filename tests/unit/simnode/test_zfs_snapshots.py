# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots, rollback, holds, and the contents they carry."""

from __future__ import annotations

import pytest
from simnode.zfs import kernel
from simnode.zfs.errors import ZfsError

from tests.unit.simnode.zfs_support import VM, Zfs, mib

DISK = f"{VM}/disk0"


@pytest.fixture
def zfs() -> Zfs:
    made = Zfs()
    made.vm(64, 4096, 160)
    return made


def test_snapshots_of_several_datasets_are_all_or_none(zfs):
    zfs.ok(f"snapshot {DISK}@b")
    err = zfs.bad(f"snapshot {VM}@b {DISK}@b")
    assert err == f"cannot create snapshot '{DISK}@b': dataset already exists\nno snapshots were created\n"
    assert zfs.names("snapshot") == [f"{DISK}@b"]
    assert zfs.bad(f"snapshot {DISK}@b") == f"cannot create snapshot '{DISK}@b': dataset already exists\n"
    zfs.ok(f"snap -r {VM}@c")
    assert zfs.get(f"{VM}@c", "createtxg") == zfs.get(f"{DISK}@c", "createtxg")


def test_snapshot_refusals(zfs):
    assert zfs.bad("snapshot zones/no@a", code=2).startswith("cannot open 'zones/no': dataset does not exist\nusage:")
    assert zfs.bad(f"snapshot {VM}", code=2).startswith("invalid snapshot name\nusage:")
    why = "this property can not be modified for snapshots"
    assert zfs.bad(f"snapshot -o quota=1G {VM}@a") == f"cannot create snapshots : {why}\n"
    assert "invalid character '!'" in zfs.bad(f"snapshot '{VM}@a!'")


@pytest.mark.parametrize(("first", "then", "left"), [(64, 160, "grown"), (160, 64, "shrunk")])
def test_rollback_restores_size_and_data_but_not_reservation_or_properties(zfs, first, then, left):
    zfs.ok(f"set volsize={first}M {DISK}")
    zfs.guest(f"write {DISK} 0 {first} 1")
    digest = zfs.hash(DISK)
    zfs.ok(f"set x:y=before {DISK}")
    zfs.ok(f"snapshot {DISK}@s")
    zfs.ok(f"set volsize={then}M x:y=after {DISK}")
    zfs.guest(f"write {DISK} 0 30 2")
    reserved = zfs.num(DISK, "refreservation")
    zfs.ok(f"rollback {DISK}@s")
    assert (zfs.num(DISK, "volsize"), zfs.hash(DISK)) == (mib(first), digest)
    assert (zfs.num(DISK, "refreservation"), zfs.get(DISK, "x:y")) == (reserved, "after")
    auto = zfs.node.pools.pools["zones"].auto(mib(first), 8192)
    assert (reserved > auto) == (left == "grown")
    zfs.ok(f"set refreservation=auto {DISK}")
    assert zfs.num(DISK, "refreservation") == auto


def test_figures_of_a_reservation_after_rollback(zfs):
    """After rolling back a growth from 160: 266 MiB reserved for a volume of 160; after a shrink: 68."""
    for size, expected in ((256, 266), (64, 68)):
        zfs.ok(f"set volsize=160M refreservation=auto {DISK}")
        zfs.ok(f"snapshot {DISK}@s{size}")
        zfs.ok(f"set volsize={size}M {DISK}")
        zfs.ok(f"rollback {DISK}@s{size}")
        assert zfs.num(DISK, "refreservation") == mib(expected)


def test_rollback_moves_a_reservation_that_equals_the_size(zfs):
    zfs.ok(f"snapshot {DISK}@s")
    zfs.ok(f"set volsize=64M refreservation=64M {DISK}")
    zfs.ok(f"rollback {DISK}@s")
    assert zfs.num(DISK, "refreservation") == mib(160)


def test_rollback_needs_r_for_newer_snapshots_and_big_r_for_their_clones(zfs):
    for short in "abc":
        zfs.ok(f"snapshot {DISK}@{short}")
    assert zfs.bad(f"rollback {DISK}@a") == (
        f"cannot rollback to '{DISK}@a': more recent snapshots or bookmarks exist\n"
        f"use '-r' to force deletion of the following snapshots and bookmarks:\n{DISK}@b\n{DISK}@c\n"
    )
    for line in (f"clone {DISK}@b zones/c", "snapshot zones/c@x", "snapshot zones/c@y", "clone zones/c@x zones/d"):
        zfs.ok(line)
    zfs.ok("snapshot zones/d@z")
    assert zfs.bad(f"rollback -r {DISK}@a") == (
        f"cannot rollback to '{DISK}@a': clones of previous snapshots exist\n"
        "use '-R' to force deletion of the following clones and dependents:\n"
        "zones/d@z\nzones/d\nzones/c@x\nzones/c@y\nzones/c\n"
    )
    zfs.ok(f"rollback -R {DISK}@a")
    assert zfs.names() == ["zones", VM, DISK, f"{DISK}@a"]


def test_rollback_refused_by_held_snapshots_has_destroyed_the_others(zfs):
    for short in "abcde":
        zfs.ok(f"snapshot {DISK}@{short}")
    zfs.ok(f"hold keep {DISK}@b {DISK}@d")
    assert zfs.bad(f"rollback -r {DISK}@a") == (
        f"cannot destroy '{DISK}@b': dataset is busy\ncannot destroy '{DISK}@d': dataset is busy\n"
    )
    assert zfs.names("snapshot") == [f"{DISK}@{short}" for short in "abd"]


def test_rollback_refused_by_what_a_clone_holds_keeps_the_clone_alone(zfs):
    for line in ("snapshot DISK@a", "snapshot DISK@b", "clone DISK@b zones/c", "snapshot zones/c@x", "snapshot DISK@d",
                 "clone DISK@d zones/e", "hold keep zones/c@x"):  # fmt: skip
        zfs.ok(line.replace("DISK", DISK))
    assert zfs.bad(f"rollback -R {DISK}@a") == (
        "cannot destroy 'zones/c@x': dataset is busy\n"
        "cannot destroy 'zones/c': dataset is busy\n"
        f"cannot destroy '{DISK}@b': dataset already exists\n"
    )
    assert zfs.names() == ["zones", "zones/c", "zones/c@x", VM, DISK, f"{DISK}@a", f"{DISK}@b"]


def test_rollback_that_would_need_the_reservation_twice(zfs):
    zfs.guest(f"write {DISK} 0 160 1")
    zfs.ok(f"snapshot {DISK}@a")
    zfs.guest(f"write {DISK} 0 160 2")
    quota = zfs.num(VM, "used") + mib(1)
    zfs.ok(f"set reservation={quota} quota={quota} {VM}")
    assert zfs.bad(f"rollback {DISK}@a") == f"cannot rollback '{DISK}': out of space\n"
    zfs.guest(f"trim {DISK} 0 160")
    zfs.ok(f"rollback {DISK}@a")


def test_holds(zfs):
    zfs.ok(f"snapshot -r {VM}@s")
    zfs.ok(f"hold -r keep {VM}@s")
    zfs.ok(f"hold other {VM}@s")
    rows = zfs.ok(f"holds -rH {VM}@s").splitlines()
    assert [row.split("\t")[:2] for row in rows] == [[f"{VM}@s", "keep"], [f"{VM}@s", "other"], [f"{DISK}@s", "keep"]]
    assert zfs.ok(f"holds {DISK}@s").startswith("NAME              TAG   TIMESTAMP\n")
    assert (zfs.num(f"{VM}@s", "userrefs"), zfs.num(f"{DISK}@s", "userrefs")) == (2, 1)
    err = zfs.bad(f"hold keep {DISK}@s")
    assert err == f"cannot hold snapshot '{DISK}@s': tag already exists on this dataset\n"
    assert zfs.bad(f"hold keep {DISK}@none") == f"cannot hold snapshot '{DISK}@none': dataset does not exist\n"
    assert zfs.bad(f"hold keep {DISK}") == f"'{DISK}' is not a snapshot\n"
    err = zfs.bad(f"release nothing {DISK}@s")
    assert err == f"cannot release hold from snapshot '{DISK}@s': no such tag on this dataset\n"
    zfs.ok(f"release -r keep {VM}@s")
    assert [row.split("\t")[1] for row in zfs.ok(f"holds -rH {VM}@s").splitlines()] == ["other"]


def test_renaming_snapshots(zfs):
    zfs.ok(f"snapshot -r {VM}@vmsnap-a")
    zfs.guest(f"write {DISK} 0 5 1")
    zfs.ok(f"rename {DISK}@vmsnap-a {DISK}@parked-a")
    zfs.ok(f"rename {DISK}@parked-a parked-b")
    assert zfs.names("snapshot") == [f"{VM}@vmsnap-a", f"{DISK}@parked-b"]
    zfs.ok(f"snapshot {DISK}@parked-c")
    assert zfs.bad(f"rename {DISK}@parked-c {DISK}@parked-b") == (
        f"cannot rename '{DISK}@parked-c': dataset already exists\n"
    )
    assert zfs.bad(f"rename {DISK}@parked-c {VM}@x") == (
        f"cannot rename to '{VM}@x': snapshots must be part of same dataset\n"
    )
    zfs.ok(f"snapshot -r {VM}@n")
    zfs.ok(f"rename -r {VM}@n {VM}@m")
    assert [name for name in zfs.names("snapshot") if name.endswith("@m")] == [f"{VM}@m", f"{DISK}@m"]
    zfs.ok(f"snapshot -r {VM}@o")
    assert "a child dataset already has a snapshot with the new name" in zfs.bad(f"rename -r {VM}@o {VM}@m")


# -- contents --------------------------------------------------------------------------------------------------------


def test_hash_says_whether_contents_are_equal(zfs):
    zfs.ok("create -s -V 160M zones/other")
    assert zfs.hash(DISK) == zfs.hash("zones/other")
    zfs.guest(f"write {DISK} 10 20 a")
    for start, length in ((20, 10), (10, 10)):
        zfs.guest(f"write zones/other {start} {length} a")
    assert zfs.hash(DISK) == zfs.hash("zones/other")
    zfs.guest("write zones/other 15 1 b")
    assert zfs.hash(DISK) != zfs.hash("zones/other")
    assert zfs.hash(DISK, 0, 15) == zfs.hash("zones/other", 0, 15)
    zfs.guest("trim zones/other 10 20")
    zfs.guest(f"trim {DISK} 0 160")
    assert zfs.hash(DISK) == zfs.hash("zones/other")


def test_snapshots_and_clones_keep_contents(zfs):
    zfs.guest(f"write {DISK} 0 50 1")
    digest = zfs.hash(DISK)
    zfs.ok(f"snapshot {DISK}@s")
    zfs.guest(f"write {DISK} 20 50 2")
    zfs.ok(f"clone {DISK}@s zones/c")
    assert zfs.hash("zones/c") == digest != zfs.hash(DISK)


def test_guest_refusals(zfs):
    assert zfs.run(f"guest write {DISK} 150 11 1")[0::2] == (1, f"guest: cannot write '{DISK}': I/O error\n")
    assert zfs.run("guest hash zones/no")[0::2] == (1, "guest: cannot hash 'zones/no': dataset does not exist\n")
    assert zfs.run(f"guest hash {DISK} 0 161")[0] == 1
    for line in ("guest", "guest write", "guest write a b c d", f"guest hash {DISK} 1"):
        code, _out, err = zfs.run(line)
        assert (code, err[:6]) == (2, "usage:")


def test_the_kernel_rolls_back_to_nothing_but_the_newest_snapshot(zfs):
    zfs.ok(f"snapshot {DISK}@a")
    dataset = zfs.node.pools.dataset(DISK)
    (gone,) = dataset.snapshots
    for line in (f"snapshot {DISK}@b", f"destroy {DISK}@a", f"destroy {DISK}@b"):
        zfs.ok(line)
        with pytest.raises(ZfsError) as caught:
            kernel.rollback(zfs.node.pools, dataset, gone)
        assert caught.value.code == "EEXIST"
