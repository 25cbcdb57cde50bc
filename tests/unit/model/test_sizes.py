# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sizes: what is accepted, what is refused and how, and how they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import (
    GIB,
    MIB,
    REMAINING,
    parse_quota,
    parse_size,
    parse_size_or_remaining,
    render_bytes,
    render_change,
    render_exact,
    render_mib,
    render_pair,
)

LARGEST = 2**43 - 1
FACTORS = {"": 1, "M": 1, "MiB": 1, "G": 1024, "GiB": 1024, "T": 1024**2, "TiB": 1024**2}


@pytest.mark.parametrize(
    ("value", "mib"),
    [
        (1, 1),
        (20480, 20480),
        (20480.0, 20480),
        (LARGEST, LARGEST),
        ("2048", 2048),
        ("2048.0", 2048),
        (" 2048 ", 2048),
        ("1024K", 1),
        ("2048 KiB", 2),
        ("512M", 512),
        ("512mib", 512),
        ("20G", 20480),
        ("20GiB", 20480),
        ("20 gIb", 20480),
        ("1.5G", 1536),
        ("0.5GiB", 512),
        ("0.0009765625 G", 1),
        ("2T", 2 * 1024**2),
        ("1.25TiB", 1310720),
        ("8388607T", 8388607 * 1024**2),
    ],
)
def test_parse_size(value, mib):
    result = parse_size(value)
    assert (result, type(result)) == (mib, int)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (0, "at least 1 MiB"),
        (-1, "at least 1 MiB"),
        ("0", "at least 1 MiB"),
        ("0G", "at least 1 MiB"),
        (0.0, "at least 1 MiB"),
        (1.5, "whole number of MiB"),
        (float("inf"), "whole number of MiB"),
        ("1.3G", "whole number of MiB"),
        ("1.5", "whole number of MiB"),
        ("1K", "whole number of MiB"),
        ("0.3M", "whole number of MiB"),
        ("1.00000001M", "whole number of MiB"),
        (2**43, "below 8 EiB"),
        ("8388608T", "below 8 EiB"),
        (1e300, "below 8 EiB"),
        (True, "give whole MiB"),
        (False, "give whole MiB"),
        (None, "give whole MiB"),
        (float("nan"), "give whole MiB"),
        ([1], "give whole MiB"),
        (b"1G", "give whole MiB"),
        ("", "give whole MiB"),
        ("-1G", "give whole MiB"),
        ("+1G", "give whole MiB"),
        ("1e3", "give whole MiB"),
        ("0x10", "give whole MiB"),
        ("1GB", "give whole MiB"),
        ("1P", "give whole MiB"),
        ("1  G", "give whole MiB"),
        (".5G", "give whole MiB"),
        ("1.G", "give whole MiB"),
        ("1,5G", "give whole MiB"),
        ("1_000", "give whole MiB"),
        ("\u0661G", "give whole MiB"),
        ("9" * 5000, "give whole MiB"),
        ("remaining", "give whole MiB"),
        ("G", "give whole MiB"),
    ],
)
def test_parse_size_refuses(value, rule):
    with pytest.raises(FlexdiskError) as caught:
        parse_size(value, name="disks[1].size")
    assert caught.value.code == "InvalidArgument"
    assert caught.value.message.startswith("disks[1].size ")
    assert rule in caught.value.message
    assert len(caught.value.message) < 200
    shown = value if isinstance(value, str) else repr(value)
    assert f'"{shown[:50]}' in caught.value.message


def test_parse_size_or_remaining():
    assert parse_size_or_remaining("remaining") == REMAINING
    assert parse_size_or_remaining("1G") == 1024
    assert parse_size_or_remaining(7) == 7
    with pytest.raises(FlexdiskError, match=r'size "remainder" is not valid: .*or "remaining"'):
        parse_size_or_remaining("remainder")
    with pytest.raises(FlexdiskError, match='data "None" is not valid'):
        parse_size_or_remaining(None, name="data")


@pytest.mark.parametrize(
    ("value", "size"),
    [("1GiB", GIB), ("512M", 512 * MIB), ("10 g", 10 * GIB), ("1M", MIB), ("1024K", MIB), ("1.5G", 1536 * MIB)],
)
def test_parse_quota(value, size):
    assert parse_quota(value) == size


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (10, "give a number with its unit"),
        (10.0, "give a number with its unit"),
        (True, "give a number with its unit"),
        (None, "give a number with its unit"),
        ("10", "give a number with its unit"),
        ("none", "give a number with its unit"),
        ("10 apples", "give a number with its unit"),
        ("0G", "at least 1 MiB"),
        ("1K", "whole number of MiB"),
        ("8388608T", "below 8 EiB"),
    ],
)
def test_parse_quota_refuses(value, rule):
    with pytest.raises(FlexdiskError, match=rule) as caught:
        parse_quota(value)
    assert caught.value.code == "InvalidArgument"
    assert caught.value.message.startswith(f'quota "{value}" is not valid: ')


@pytest.mark.parametrize(
    ("mib", "text"),
    [
        (0, "0 MiB"),
        (1, "1 MiB"),
        (512, "512 MiB"),
        (1023, "1023 MiB"),
        (1024, "1 GiB"),
        (1025, "1.0 GiB"),
        (1536, "1.5 GiB"),
        (20480, "20 GiB"),
        (30207, "29.4 GiB"),
        (2047, "1.9 GiB"),
        (1024**2, "1 TiB"),
        (1024**2 + 1024, "1025 GiB"),
        (3 * 1024**2, "3 TiB"),
        (-512, "-512 MiB"),
        (-1536, "-1.5 GiB"),
    ],
)
def test_render_mib(mib, text):
    assert render_mib(mib) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (MIB, "1 MiB"),
        (35651584, "34 MiB"),
        (MIB + MIB // 4, "1.2 MiB"),
        (22955950080, "21.3 GiB"),
        (-MIB - 1, "-1.1 MiB"),
    ],
)
def test_render_bytes(size, text):
    assert render_bytes(size) == text


@given(st.integers(1, 2**22), st.sampled_from(sorted(FACTORS)), st.sampled_from(["", " "]))
def test_units_multiply(number, unit, space):
    assert parse_size("%d%s%s" % (number, space if unit else "", unit)) == number * FACTORS[unit]
    if unit:
        assert parse_quota("%d%s" % (number, unit)) == number * FACTORS[unit] * MIB


@given(st.one_of(st.integers(1, 1023), st.builds(lambda n: n * 512, st.integers(2, 2**32))))
def test_exact_rendering_reads_back(mib):
    assert parse_size(render_mib(mib)) == mib
    assert parse_quota(render_bytes(mib * MIB)) == mib * MIB


@given(st.integers(1, 2**42), st.integers(0, 2**42))
def test_rendering_is_monotone_and_never_above(mib, more):
    def shown(value):
        number, unit = render_mib(value).split()
        return float(number) * {"MiB": 1, "GiB": 1024, "TiB": 1024**2}[unit]

    assert shown(mib) <= mib < shown(mib) + 1024 / 10 + 1e-6 * mib
    assert shown(mib) <= shown(mib + more)


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=12), st.binary(max_size=3)))
def test_anything_gives_a_size_or_the_refusal(value):
    try:
        size = parse_size(value)
    except FlexdiskError:
        return
    assert 1 <= size <= LARGEST


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (20 * GIB, 50 * GIB, "20 GiB -> 50 GiB"),
        (1025 * MIB, 1026 * MIB, "1025 MiB -> 1026 MiB"),
        (33693368320, 33697562624, "32132.5 MiB -> 32136.5 MiB"),
        (20 * GIB + 5, 20 * GIB + 6, "21474836485 B -> 21474836486 B"),
        (GIB, GIB, "1 GiB -> 1 GiB"),
    ],
)
def test_a_change_never_looks_like_none(before, after, text):
    assert render_change(before, after) == text


def test_a_figure_to_write_down_is_exact():
    assert [render_exact(mib) for mib in (0, 1, 1023, 1024, 122880, 122881, 1 << 20)] == [
        "0 MiB", "1 MiB", "1023 MiB", "1 GiB", "120 GiB", "122881 MiB", "1 TiB",
    ]  # fmt: skip


def test_what_is_compared_has_one_unit():
    assert render_pair(16384, 10240) == "16 GiB needed, 10 GiB free"
    assert render_pair(16384, 10241) == "16384 MiB needed, 10241 MiB free"
    assert render_pair(1024, 0) == "1 GiB needed, 0 MiB free"
