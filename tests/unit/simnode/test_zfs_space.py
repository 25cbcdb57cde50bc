# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Space accounting: what snapshots, reservations and quotas charge, against cases measured on real ZFS."""

from __future__ import annotations

import pytest

from tests.unit.simnode.zfs_support import GIB, MIB, VM, Zfs, mib

DISK = f"{VM}/disk0"
MORE = "size is greater than available space"


def balanced(zfs: Zfs, name: str) -> bool:
    parts = [zfs.num(name, f"usedby{part}") for part in ("snapshots", "dataset", "children", "refreservation")]
    return zfs.num(name, "used") == sum(parts)


def test_empty_thick_volume():
    zfs = Zfs()
    zfs.ok("create -V 1G zones/v")
    assert zfs.num("zones/v", "used") == zfs.num("zones/v", "refreservation") == 1109393408
    assert zfs.num("zones/v", "referenced") == zfs.num("zones/v", "usedbydataset") < 64 * 1024
    assert zfs.num("zones", "usedbychildren") == 1109393408
    assert balanced(zfs, "zones")


def test_written_data_costs_little_more_than_itself():
    zfs = Zfs()
    zfs.ok("create -V 1G zones/v")
    zfs.guest("write zones/v 0 160 1")
    assert mib(160) * 1.005 < zfs.num("zones/v", "referenced") < mib(160) * 1.015
    assert zfs.num("zones/v", "used") == 1109393408
    assert zfs.num("zones/v", "usedbyrefreservation") == 1109393408 - zfs.num("zones/v", "usedbydataset")


def test_rewriting_without_a_snapshot_costs_nothing():
    zfs = Zfs()
    zfs.ok("create -V 1G zones/v")
    zfs.guest("write zones/v 10 20 1")
    before = zfs.num("zones/v", "referenced")
    zfs.guest("write zones/v 10 20 2")
    assert zfs.num("zones/v", "referenced") == before


def test_a_snapshot_charges_the_reservation_again_in_full():
    """Right after a snapshot usedbysnapshots is 0, yet every shared block has been charged."""
    zfs = Zfs()
    zfs.vm(64, 192, 128)
    zfs.guest(f"write {DISK} 0 40 1")
    zfs.ok(f"snapshot {DISK}@s")
    assert zfs.num(DISK, "usedbysnapshots") == 0
    pinned = zfs.pinned(DISK)
    assert mib(40) < pinned < mib(41)
    assert zfs.num(DISK, "used") == zfs.num(DISK, "refreservation") + pinned


@pytest.mark.parametrize(("growth", "fits"), [(48, False), (25, False), (24, True), (20, True)])
def test_growing_after_a_snapshot(growth, fits):
    """F=192, a disk of 128, 40 written, one snapshot: 64 MiB look free, about 23.5 are, and 1 MiB of slack."""
    zfs = Zfs()
    zfs.vm(64, 192, 128)
    zfs.guest(f"write {DISK} 0 40 1")
    zfs.ok(f"snapshot {DISK}@s")
    pool = zfs.node.pools.pools["zones"]
    size = mib(128 + growth)
    extra = pool.auto(size, 8192) - size - (zfs.num(DISK, "refreservation") - mib(128))
    quota = zfs.num(VM, "quota") + extra
    zfs.ok(f"set quota={quota} reservation={quota} {VM}")
    if fits:
        zfs.ok(f"set volsize={size} {DISK}")
        assert zfs.num(DISK, "refreservation") == pool.auto(size, 8192)
    else:
        assert zfs.bad(f"set volsize={size} {DISK}") == f"cannot set property for '{DISK}': {MORE}\n"
        assert (zfs.num(DISK, "volsize"), zfs.num(DISK, "refreservation")) == (mib(128), pool.auto(mib(128), 8192))


def test_usedbysnapshots_grows_as_live_blocks_are_overwritten_up_to_what_is_pinned():
    zfs = Zfs()
    zfs.vm(64, 192, 128)
    zfs.guest(f"write {DISK} 0 40 1")
    zfs.ok(f"snapshot {DISK}@s")
    pinned, used = zfs.pinned(DISK), zfs.num(DISK, "used")
    zfs.guest(f"write {DISK} 0 10 2")
    assert abs(zfs.num(DISK, "usedbysnapshots") - mib(10) * 1.011) < MIB / 4
    zfs.guest(f"write {DISK} 0 40 3")
    assert abs(zfs.num(DISK, "usedbysnapshots") - pinned) < MIB / 4
    assert zfs.num(DISK, "used") == used
    assert balanced(zfs, DISK)


def test_a_thick_disk_never_runs_out_once_snapshotted():
    zfs = Zfs()
    zfs.vm(64, 320, 160)
    zfs.guest(f"write {DISK} 0 155 1")
    zfs.ok(f"snapshot {DISK}@s")
    for seed in range(2, 5):
        zfs.guest(f"write {DISK} 0 160 {seed}")


@pytest.mark.parametrize(("flexible", "fits"), [(319, False), (321, True)])
def test_a_snapshot_needs_room_for_all_that_is_written(flexible, fits):
    """A fully written disk of 160 MiB: 159 free are not enough, 161 and the slack of 1 MiB are."""
    zfs = Zfs()
    zfs.vm(64, flexible, 160)
    zfs.guest(f"write {DISK} 0 160 1")
    if not fits:
        expected = f"cannot create snapshot '{DISK}@s2': out of space\nno snapshots were created\n"
        assert zfs.bad(f"snapshot -r {VM}@s2") == expected
        assert zfs.names("snapshot") == []
        return
    zfs.ok(f"snapshot -r {VM}@s2")
    zfs.guest(f"write {DISK} 0 160 2")
    assert mib(161) < zfs.num(DISK, "usedbysnapshots") < mib(162.2)
    assert "out of space" in zfs.bad(f"snapshot {DISK}@s3")


def test_trim_lowers_what_a_snapshot_needs():
    zfs = Zfs()
    zfs.vm(64, 200, 128)
    zfs.guest(f"write {DISK} 0 128 1")
    assert "out of space" in zfs.bad(f"snapshot {DISK}@s")
    zfs.guest(f"trim {DISK} 40 88")
    zfs.ok(f"snapshot {DISK}@s")


def test_second_snapshot_needs_only_what_was_written_since():
    zfs = Zfs()
    zfs.vm(64, 192, 128)
    zfs.guest(f"write {DISK} 0 40 1")
    zfs.ok(f"snapshot {DISK}@a")
    zfs.ok(f"snapshot {DISK}@b")
    zfs.guest(f"write {DISK} 60 30 1")
    assert "out of space" in zfs.bad(f"snapshot {DISK}@c")


def test_snapshot_of_empty_disks_fits_into_the_slack():
    zfs = Zfs()
    zfs.vm(1024, 256, 128, 128)
    zfs.ok(f"snapshot -r {VM}@s")
    assert zfs.num(VM, "quota") - zfs.num(VM, "used") < MIB


def test_a_recursive_snapshot_pins_the_root_file_system_too():
    """40 MiB in the root: the volumes alone say 127 MiB, only 88 fit."""
    zfs = Zfs()
    zfs.vm(1024, 256, 128)
    zfs.guest(f"write {VM} 0 40 1")
    zfs.ok(f"snapshot -r {VM}@s")
    free = mib(256 - 128) - zfs.pinned(DISK)
    assert free // MIB == 127
    assert mib(87) < zfs.num(VM, "quota") - zfs.num(VM, "used") < mib(89)


def test_destroying_a_snapshot_gives_its_space_back():
    zfs = Zfs()
    zfs.vm(64, 192, 128)
    zfs.guest(f"write {DISK} 0 40 1")
    before = {prop: zfs.num(DISK, prop) for prop in ("used", "usedbyrefreservation", "written")}
    zfs.ok(f"snapshot {DISK}@s")
    assert zfs.num(DISK, "written") == 0
    zfs.ok(f"destroy {DISK}@s")
    assert {prop: zfs.num(DISK, prop) for prop in before} == before


def test_space_of_several_snapshots():
    zfs = Zfs()
    zfs.ok("create -s -V 1G zones/v")
    for index in range(3):
        zfs.guest(f"write zones/v 0 10 {index}")
        zfs.guest(f"write zones/v {20 + 10 * index} 5 {index}")
        zfs.ok(f"snapshot zones/v@s{index}")
    zfs.guest("write zones/v 0 10 9")
    alone = [zfs.num(f"zones/v@s{index}", "used") for index in range(3)]
    assert all(mib(10) < size < mib(10.3) for size in alone)
    assert zfs.num("zones/v", "usedbysnapshots") == sum(alone)
    zfs.guest("trim zones/v 20 5")
    assert [zfs.num(f"zones/v@s{index}", "used") for index in (0, 1)] == alone[:2]
    shared = zfs.num("zones/v", "usedbysnapshots") - sum(zfs.num(f"zones/v@s{index}", "used") for index in range(3))
    assert mib(5) < shared < mib(5.2)
    zfs.ok("destroy zones/v@s0,s1")
    assert zfs.num("zones/v@s2", "used") == zfs.num("zones/v", "usedbysnapshots") > mib(15)


def test_clones_start_free_and_pay_for_what_they_write():
    zfs = Zfs()
    zfs.ok("create -s -V 1G zones/image")
    zfs.guest("write zones/image 0 100 1")
    zfs.ok("snapshot zones/image@final")
    zfs.ok("clone zones/image@final zones/c")
    assert zfs.num("zones/c", "used") == 0
    assert zfs.num("zones/c", "referenced") == zfs.num("zones/image", "referenced")
    zfs.guest("write zones/c 0 50 2")
    assert mib(50) < zfs.num("zones/c", "used") < mib(51)
    assert zfs.num("zones/image", "usedbysnapshots") == 0
    zfs.ok("destroy zones/c")
    assert mib(100) < zfs.num("zones", "used") < mib(102)


def test_sparse_volume_meets_the_quota():
    """F=300 and one sparse disk of 200 MiB under vmadm's formula: the quota is 164, the guest stops near 100."""
    zfs = Zfs()
    zfs.ok(f"create {VM}")
    zfs.ok(f"create -s -V 200M {DISK}")
    assert zfs.law(64, 300) == mib(164)
    code, _out, err = zfs.run(f"guest write {DISK} 0 200 1")
    assert code == 1
    assert "No space left on device" in err
    assert mib(97) < zfs.num(DISK, "referenced") < mib(102)
    zfs.ok(f"set volsize=1T {DISK}")


def test_available_follows_the_tightest_quota_above():
    zfs = Zfs()
    zfs.ok("create -o quota=2G zones/a")
    zfs.ok("create -o quota=1G zones/a/b")
    zfs.ok("create zones/a/b/c")
    assert zfs.num("zones/a/b/c", "available") < GIB
    zfs.ok("create -V 1500M -s zones/a/v")
    zfs.guest("write zones/a/v 0 1400 1")
    assert zfs.num("zones/a/b/c", "available") < mib(650)
    zfs.ok("set refquota=100M zones/a/b/c")
    assert zfs.num("zones/a/b/c", "available") < mib(100)


def test_a_reservation_is_charged_to_the_parent_and_kept_for_the_children():
    zfs = Zfs()
    zfs.ok("create -o reservation=10G zones/a")
    assert zfs.num("zones", "usedbychildren") == 10 * GIB
    assert zfs.num("zones/a", "used") < MIB
    free = zfs.num("zones", "available")
    assert zfs.num("zones/a", "available") == free + 10 * GIB - zfs.num("zones/a", "used")
    zfs.ok("create -V 4G zones/a/v")
    assert zfs.num("zones", "available") == free
    zfs.ok("create -V 8G zones/a/w")
    assert zfs.num("zones", "available") == free + 10 * GIB - zfs.num("zones/a", "used")


@pytest.mark.parametrize(
    ("size", "slop"),
    [(1 * GIB, 128 * MIB), (200 * MIB, 100 * MIB), (64 * GIB, 2 * GIB), (8192 * GIB, 128 * GIB)],
)
def test_slop_space_is_not_available(size, slop):
    zfs = Zfs(size=size)
    assert zfs.num("zones", "available") + zfs.num("zones", "used") == size - slop


def test_pool_that_is_reserved_to_the_last_byte():
    zfs = Zfs(size=4 * GIB)
    zfs.ok("create zones/a")
    room = zfs.num("zones", "available") + zfs.num("zones/a", "used")
    assert MORE in zfs.bad(f"set reservation={room + 1} zones/a")
    zfs.ok(f"set reservation={room} zones/a")
    assert zfs.num("zones", "available") == 0
    assert zfs.bad("create zones/b") == "cannot create 'zones/b': out of space\n"
    zfs.ok("set x:note=1 zones/a")


def test_raidz_counts_the_padding_of_small_blocks():
    zfs = Zfs(vdevs=[{"type": "raidz1", "disks": 5}])
    zfs.ok("create -V 64M zones/v")
    zfs.guest("write zones/v 0 64 1")
    assert mib(100) < zfs.num("zones/v", "referenced") < mib(106)
    assert zfs.num("zones/v", "refreservation") == 111568486
