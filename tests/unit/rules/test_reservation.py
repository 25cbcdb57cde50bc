# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reservation forecast against figures that ZFS itself gave, and those that illumos' formula gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    PoolGeometry,
    Vdev,
    automatic_reservation,
    automatic_size,
    default_block_size,
    is_automatic,
    overhead,
)

MIB = 2**20
GIB = 2**30
PLAIN_VDEV = Vdev("plain", 12, 1, 0, 0)
PLAIN = PoolGeometry((PLAIN_VDEV,), "classic")


def raidz(ashift, disks, parity, rounding="classic"):
    return PoolGeometry((Vdev("raidz", ashift, disks, parity, 0),), rounding)


@pytest.mark.parametrize(
    ("mib", "block_size", "reservation", "over", "reported_mib"),
    [
        (10, 8192, 13107200, 2621440, 13),
        (16, 512, 27262976, 10485760, 26),
        (100, 8192, 110362624, 5505024, 106),
        (256, 8192, 278921216, 10485760, 266),
        (512, 8192, 555745280, 18874368, 530),
        (1024, 8192, 1109393408, 35651584, 1058),
        (1024, 4096, 1142947840, 69206016, 1090),
        (1024, 16384, 1092616192, 18874368, 1042),
        (1024, 32768, 1084227584, 10485760, 1034),
        (1024, 131072, 1077936128, 4194304, 1028),
        (2048, 8192, 2216689664, 69206016, 2114),
        (4096, 8192, 4431282176, 136314880, 4226),
        (10240, 8192, 11075584000, 338165760, 10563),
        (11264, 8192, 12182880256, 371720192, 11619),
        (20480, 8192, 22148808704, 673972224, 21123),
        (102400, 8192, 110735130624, 3360948224, 105606),
        (131072, 8192, 141740212224, 4301258752, 135174),
    ],
)
@pytest.mark.parametrize("rounding", ["classic", "modern"])
def test_plain_pool(mib, block_size, reservation, over, reported_mib, rounding):
    geometry = PoolGeometry((PLAIN_VDEV, PLAIN_VDEV), rounding)
    assert automatic_reservation(mib * MIB, block_size, geometry) == reservation
    assert overhead(mib * MIB, block_size, geometry) == over
    assert -(-reservation // MIB) == reported_mib


def test_another_plain_figure():
    assert automatic_reservation(17178820608, 8192, PLAIN) == 17718312960


def test_copies_do_not_count():
    formula_with_two_copies = 2200961024
    assert automatic_reservation(1024 * MIB, 8192, PLAIN) == 1109393408 != formula_with_two_copies


@pytest.mark.parametrize(
    ("block_size", "plain", "raidz1"),
    [
        (4096, 73400320, 113665536),
        (8192, 71303168, 111568384),
        (16384, 70254592, 83676160),
        (65536, 69206016, 69206016),
        (131072, 69206016, 69206016),
    ],
)
def test_64_mib_as_measured_on_openzfs(block_size, plain, raidz1):
    assert automatic_reservation(64 * MIB, block_size, PLAIN) == plain
    assert automatic_reservation(64 * MIB, block_size, raidz(12, 5, 1, "modern")) == raidz1


@pytest.mark.parametrize(
    ("block_size", "plain_mib", "raidz_mib"), [(4096, 6, None), (8192, 4, 42), (16384, 3, 16), (65536, 2, 2)]
)
def test_64_mib_overheads(block_size, plain_mib, raidz_mib):
    assert overhead(64 * MIB, block_size, PLAIN) == plain_mib * MIB
    if raidz_mib is not None:
        assert round(overhead(64 * MIB, block_size, raidz(12, 5, 1)) / MIB) == raidz_mib


def test_roundings_differ_by_bytes():
    classic, modern = raidz(12, 5, 1, "classic"), raidz(12, 5, 1, "modern")
    assert automatic_reservation(64 * MIB, 8192, classic) == 111568486
    assert automatic_reservation(64 * MIB, 8192, modern) == 111568384


@pytest.mark.parametrize(
    ("ashift", "disks", "parity", "block_size", "reservation"),
    [
        (12, 5, 1, 8192, 17518034944),
        (12, 5, 1, 16384, 13054771200),
        (12, 5, 1, 32768, 10823401472),
        (12, 6, 2, 8192, 21813002240),
        (12, 10, 2, 8192, 24880836022),
        (12, 11, 3, 8192, 31574291549),
        (9, 5, 1, 8192, 11075584000),
    ],
)
def test_raidz_by_the_illumos_formula(ashift, disks, parity, block_size, reservation):
    assert automatic_reservation(10240 * MIB, block_size, raidz(ashift, disks, parity)) == reservation


def test_the_worst_raidz_counts_and_plain_vdevs_do_not():
    one, two = Vdev("raidz", 12, 5, 1, 0), Vdev("raidz", 12, 6, 2, 0)
    both = automatic_reservation(10240 * MIB, 8192, PoolGeometry((one, PLAIN_VDEV, two), "classic"))
    assert both == 21813002240
    assert automatic_reservation(10240 * MIB, 8192, PoolGeometry((PLAIN_VDEV, one), "classic")) == 17518034944


@pytest.mark.parametrize("rounding", ["classic", "modern"])
def test_draid_takes_whole_rows(rounding):
    """draid1:4d: 8 KiB take a row of 5 sectors of 4 KiB (20 KiB), 128 KiB take 8 rows (160 KiB): a factor of 2."""
    geometry = PoolGeometry((Vdev("draid", 12, 11, 1, 4),), rounding)
    metadata = overhead(64 * MIB, 8192, PLAIN)
    assert automatic_reservation(64 * MIB, 8192, geometry) == 128 * MIB + metadata
    assert automatic_reservation(64 * MIB, 131072, geometry) == 69206016
    wide = PoolGeometry((Vdev("draid", 12, 14, 2, 8),), rounding)
    # 16 KiB take one row of 10 sectors; 128 KiB take 4 rows: 40960 * 131072 / 163840 = 32768 for each 16 KiB.
    assert automatic_reservation(64 * MIB, 16384, wide) == 128 * MIB + overhead(64 * MIB, 16384, PLAIN)


@pytest.mark.parametrize(
    ("tebibytes", "block_size", "vdev"),
    [(128, 131072, Vdev("raidz", 12, 5, 1, 0)), (2, 512, Vdev("draid", 12, 15, 3, 9))],
)
def test_classic_rounding_overflows_as_it_does_there(tebibytes, block_size, vdev):
    volsize = tebibytes * 2**40
    modern = automatic_reservation(volsize, block_size, PoolGeometry((vdev,), "modern"))
    assert modern > volsize
    assert automatic_reservation(volsize, block_size, PoolGeometry((vdev,), "classic")) < modern / 2


def test_is_automatic_knows_both_roundings():
    for rounding in ("classic", "modern"):
        geometry = raidz(12, 5, 1, rounding)
        assert is_automatic(111568486, 64 * MIB, 8192, geometry)
        assert is_automatic(111568384, 64 * MIB, 8192, geometry)
        assert not is_automatic(111568485, 64 * MIB, 8192, geometry)
        assert not is_automatic(0, 64 * MIB, 8192, geometry)
        assert not is_automatic(71303168, 64 * MIB, 8192, geometry)
    assert is_automatic(71303168, 64 * MIB, 8192, PLAIN)


@pytest.mark.parametrize(
    ("disks_mib", "quota_gib", "flexible_mib", "expected"),
    [
        ([10240], 1, None, 12149325824),
        ([10240, 1024], 1, None, 13258719232),
        ([10240], 10, None, 21813002240),
        ([10240], 100, None, 118449766400),
        ([10240], 1, 15360, 17518034944),
        ([10240, 512], 1, 13824, 15926296576),
        ([10240, 2048], 1, 12288, 14366015488),
        ([10240, 2048], 1, 20480, 22955950080),
        ([10240, 2048, 4096], 1, 20480, 23092264960),
        ([10240, 1024], 10, 11264, 22922395648),
        ([], 1, 10240, 11811160064),
    ],
)
def test_quotas_that_follow_from_the_forecast(disks_mib, quota_gib, flexible_mib, expected):
    quota = quota_gib * GIB
    if flexible_mib is None:
        quota += sum(automatic_reservation(mib * MIB, 8192, PLAIN) for mib in disks_mib)
    else:
        quota += flexible_mib * MIB + sum(overhead(mib * MIB, 8192, PLAIN) for mib in disks_mib)
    assert quota == expected


@pytest.mark.parametrize(
    ("vdevs", "size"),
    [
        ((), 8192),
        ((PLAIN_VDEV,), 8192),
        ((Vdev("raidz", 12, 5, 1, 0),), 32768),
        ((Vdev("raidz", 12, 5, 1, 0), PLAIN_VDEV), 32768),
        ((Vdev("raidz", 12, 5, 1, 0), Vdev("plain", 9, 1, 0, 0)), 8192),
        ((Vdev("raidz", 9, 5, 1, 0),), 8192),
        ((Vdev("raidz", 13, 5, 1, 0),), 8192),
        ((Vdev("draid", 12, 11, 1, 4),), 8192),
    ],
)
def test_default_block_size(vdevs, size):
    assert default_block_size(PoolGeometry(vdevs, "classic")) == size
    assert default_block_size(PoolGeometry(vdevs, "modern"), platform="linux") == 16384


def test_what_is_not_known_is_refused():
    for call in (
        lambda: automatic_reservation(-1, 8192, PLAIN),
        lambda: automatic_reservation(MIB, 0, PLAIN),
        lambda: automatic_reservation(MIB, 8192, raidz(12, 5, 1, "baroque")),
        lambda: automatic_reservation(MIB, 8192, PoolGeometry((Vdev("tape", 12, 1, 0, 0),), "classic")),
        lambda: default_block_size(PLAIN, platform="solaris"),
    ):
        with pytest.raises(FlexdiskError) as caught:
            call()
        assert caught.value.code == "InvalidArgument"


# With blocks of 512 bytes on wide draid vdevs, the classic rounding overflows at 1.3 TiB; here, it never does.
BLOCK_SIZES = st.sampled_from([2**n for n in range(9, 18)])
VDEVS = st.one_of(
    st.just(PLAIN_VDEV),
    st.builds(
        lambda ashift, parity, more: Vdev("raidz", ashift, parity + more, parity, 0),
        st.sampled_from([9, 12]),
        st.integers(1, 3),
        st.integers(1, 9),
    ),
    st.builds(
        lambda parity, data: Vdev("draid", 12, parity + data + 3, parity, data), st.integers(1, 3), st.integers(1, 9)
    ),
)
GEOMETRIES = st.builds(
    PoolGeometry, st.lists(VDEVS, min_size=1, max_size=3).map(tuple), st.sampled_from(["classic", "modern"])
)


@given(st.integers(1, 2**20), st.integers(0, 2**16), BLOCK_SIZES, GEOMETRIES)
def test_more_volume_reserves_more_and_is_recognised(mib, more, block_size, geometry):
    reservation = automatic_reservation(mib * MIB, block_size, geometry)
    assert reservation <= automatic_reservation((mib + more) * MIB, block_size, geometry)
    assert is_automatic(reservation, mib * MIB, block_size, geometry)
    assert overhead(mib * MIB, block_size, geometry) == reservation - mib * MIB > 0


@given(
    st.integers(1, 1 << 18),
    st.sampled_from([512, 4096, 8192, 16384, 32768, 131072, 1 << 20]),
    st.sampled_from(
        [PLAIN, *(raidz(12, 5, parity, rounding) for parity in (1, 2) for rounding in ("classic", "modern"))]
    ),
)
def test_the_size_that_has_a_reservation(mib, block_size, geometry):
    reserved = automatic_reservation(mib * MIB, block_size, geometry)
    assert automatic_size(reserved, block_size, geometry) == mib * MIB
    assert automatic_size(reserved + 1, block_size, geometry) is None
    assert automatic_size(reserved - 1, block_size, geometry) is None


def test_no_size_has_no_reservation():
    assert automatic_size(0, 8192, PLAIN) is None
    assert automatic_size(1, 8192, PLAIN) is None
