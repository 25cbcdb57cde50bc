# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What refreservation=auto reserves, against figures recorded on real pools and computed from illumos's formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simnode.zfs.reservation import Vdev, auto_refreservation, deflated

from tests.unit.simnode.zfs_support import MIB, Zfs

PLAIN = [Vdev("disk")]


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("size", "block", "expected"),
    [
        (10, 8192, 13107200),
        (16, 512, 27262976),
        (100, 8192, 110362624),
        (256, 8192, 278921216),
        (512, 8192, 555745280),
        (1024, 8192, 1109393408),
        (1024, 4096, 1142947840),
        (1024, 16384, 1092616192),
        (1024, 32768, 1084227584),
        (1024, 131072, 1077936128),
        (2048, 8192, 2216689664),
        (4096, 8192, 4431282176),
        (10240, 8192, 11075584000),
        (11264, 8192, 12182880256),
        (20480, 8192, 22148808704),
        (102400, 8192, 110735130624),
        (131072, 8192, 141740212224),
        (64, 4096, 73400320),
        (64, 8192, 71303168),
        (64, 16384, 70254592),
        (64, 65536, 69206016),
        (64, 131072, 69206016),
    ],
)
def test_plain_and_mirror(size, block, expected, modern):
    for vdevs in (PLAIN, [Vdev("mirror", 2), Vdev("mirror", 3)]):
        assert auto_refreservation(size * MIB, block, vdevs, 12, modern) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [(4096, 113665536), (8192, 111568384), (16384, 83676160), (65536, 69206016), (131072, 69206016)],
)
def test_raidz1_of_five_as_measured_on_openzfs_23(block, expected):
    assert auto_refreservation(64 * MIB, block, [Vdev("raidz1", 5)], 12, True) == expected


def test_older_rounding_differs_by_some_bytes():
    assert auto_refreservation(64 * MIB, 8192, [Vdev("raidz1", 5)], 12, False) == 111568486


@pytest.mark.parametrize(
    ("kind", "disks", "ashift", "block", "expected"),
    [
        ("raidz1", 5, 12, 8192, 17518034944),
        ("raidz1", 5, 12, 16384, 13054771200),
        ("raidz1", 5, 12, 32768, 10823401472),
        ("raidz2", 6, 12, 8192, 21813002240),
        ("raidz2", 10, 12, 8192, 24880836022),
        ("raidz3", 11, 12, 8192, 31574291549),
        ("raidz1", 5, 9, 8192, 11075584000),
    ],
)
def test_raidz_of_ten_gib_by_the_older_formula(kind, disks, ashift, block, expected):
    assert auto_refreservation(10240 * MIB, block, [Vdev(kind, disks)], ashift, False) == expected


def test_mirrors_beside_raidz_do_not_count_and_the_widest_raidz_rules():
    narrow, wide = Vdev("raidz1", 3), Vdev("raidz2", 6)
    alone = [auto_refreservation(64 * MIB, 8192, [vdev], 12, True) for vdev in (narrow, wide)]
    assert alone[0] != alone[1]
    assert auto_refreservation(64 * MIB, 8192, [Vdev("mirror", 2), narrow, wide], 12, True) == max(alone)


def test_draid_allocates_whole_rows():
    draid = Vdev("draid2:4d", 8)
    assert (draid.parity, draid.data_disks) == (2, 4)
    assert draid.asize(8192, 12) == 6 * 4096
    assert draid.asize(131072, 12) == 8 * 6 * 4096
    nominal = 64 * MIB * 2 + 2 * (7 + 8 + 1) * 131072
    assert auto_refreservation(64 * MIB, 8192, [draid], 12, False) == nominal


@given(st.integers(1, 1 << 26), st.sampled_from([512, 4096, 8192, 16384, 131072]))
def test_reservation_covers_the_data_and_grows_with_it(blocks, block):
    for vdevs in (PLAIN, [Vdev("raidz2", 6)]):
        small = auto_refreservation(blocks * block, block, vdevs, 12, False)
        assert small > blocks * block or vdevs is not PLAIN
        assert auto_refreservation((blocks + 1) * block, block, vdevs, 12, False) > small


def test_deflation_leaves_whole_records_as_they_are():
    assert deflated(131072, PLAIN, 12) == 131072
    assert abs(deflated(131072, [Vdev("raidz1", 5)], 12) - 131072) < 1024
    assert deflated(8192, [Vdev("raidz1", 5)], 12) > 8192 * 3 // 2
    assert deflated(512, PLAIN, 12) == 4096


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_forecast_by_dry_run(copies):
    zfs = Zfs()
    out = zfs.ok(f"create -nPV 1073741824 -o copies={copies} -o volblocksize=8192 zones/not-there/disk0")
    assert out.splitlines() == [
        "create\tzones/not-there/disk0",
        "property\tvolsize\t1073741824",
        f"property\tcopies\t{copies}",
        "property\tvolblocksize\t8192",
        "property\trefreservation\t1109393408",
    ]
    assert zfs.names() == ["zones"]


def test_forecast_under_an_existing_name_and_without_a_reservation():
    zfs = Zfs()
    zfs.ok("create -V 64M zones/v")
    assert "property\trefreservation\t71303168\n" in zfs.ok("create -nP -V 64M zones/v")
    assert zfs.ok("create -nPs -V 64M zones/v") == "create\tzones/v\nproperty\tvolsize\t67108864\n"
    assert zfs.ok("create -nv -V 1M zones/v").startswith("would create zones/v\n\tvolsize=1048576\n")
    assert zfs.bad("create -nPV 64M nopool/v") == "cannot open 'nopool': no such pool\n"


@pytest.mark.parametrize(
    ("version", "kind", "disks", "block"),
    [
        ("illumos", "disk", 1, 8192),
        ("illumos", "raidz2", 6, 8192),
        ("2.1", "disk", 1, 8192),
        ("2.1", "raidz2", 6, 16384),
        ("2.3", "disk", 1, 16384),
        ("2.3", "draid1:8d", 10, 32768),
    ],
)
def test_default_block_size(version, kind, disks, block):
    zfs = Zfs(version=version, vdevs=[{"type": kind, "disks": disks}])
    zfs.ok("create -V 64M zones/v")
    assert zfs.num("zones/v", "volblocksize") == block
    assert zfs.num("zones/v", "refreservation") == zfs.node.pools.pools["zones"].auto(64 * MIB, block)


def test_openzfs_23_warns_of_small_blocks_and_illumos_does_not():
    modern = Zfs(version="2.3").run("zfs create -nPV 64M -o volblocksize=8192 zones/v")
    assert modern[0] == 0
    assert modern[2].startswith("Warning: volblocksize (8192) is less than the default minimum block size (16384).\n")
    assert Zfs().run("zfs create -nPV 64M -o volblocksize=4096 zones/v")[2] == ""
