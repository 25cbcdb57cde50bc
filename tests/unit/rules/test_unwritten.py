# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether anything was written to a disk. The figures were measured on OpenZFS 2.1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import RECORD, Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.journal import datasets_in_use
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.unwritten import (
    FRESH_VOLUMES,
    unwritten,
)

MIB = 1 << 20
EMPTY = Dataset("p/flexdisk", "filesystem", logicalreferenced=43008, logicalused=43008 + 5 * MIB)
META = 28672


def volume(logical: int, referenced: int = 57344, **more: object) -> Dataset:
    properties: Any = {
        "volsize": 16 * MIB,
        "volblocksize": 8192,
        "referenced": referenced,
        "written": referenced,
        **more,
    }
    return Dataset("p/flexdisk/v", "volume", logicalreferenced=logical, logicalused=logical, **properties)


def file(logical: int, **more: object) -> Dataset:
    properties: Any = {"volsize": 16 * MIB, "volblocksize": RECORD, **more}
    return Dataset("p/flexdisk/f", "filesystem", logicalreferenced=logical, logicalused=logical, **properties)


# referenced and logicalreferenced of volumes of 16 MiB, by volblocksize, compression and what was written
WRITTEN = {
    "512 B, off: 512 bytes of zeros": (98304, 36864),
    "512 B, lz4: one sector of random bytes": (69632, 33280),
    "512 B, lz4: one sector of text": (65536, 33280),
    "4 KiB, lz4: one sector of text": (57344, 32768),
    "4 KiB, off: 4 KiB of zeros": (61440, 32768),
    "8 KiB, off: one sector of zeros": (65536, 36864),
    "8 KiB, lz4: one sector of random bytes": (61440, 36864),
    "8 KiB, lz4: the last sector": (69632, 40960),
    "8 KiB, lz4: 4 KiB of text": (57344, 36864),
    "8 KiB, zle: one byte": (57344, 36864),
    "8 KiB, lz4: 700 KiB of random bytes": (786432, 753664),
    "8 KiB, lz4: 32 MiB of text on 64 MiB": (98304, 33603584),
    "128 KiB, lz4: one sector of text": (61440, 159744),
    "128 KiB, lz4: 32 MiB of text on 64 MiB": (1122304, 33591296),
}


@pytest.mark.parametrize("case", WRITTEN)
def test_whatever_was_written_is_seen(case: str) -> None:
    referenced, logical = WRITTEN[case]
    assert not unwritten(volume(logical, referenced), EMPTY)
    assert datasets_in_use([volume(logical, referenced)], EMPTY) == ["p/flexdisk/v"]


def test_a_fresh_one() -> None:
    assert unwritten(volume(META), EMPTY)
    assert datasets_in_use([volume(META)], EMPTY) == []


@pytest.mark.parametrize("key", FRESH_VOLUMES)
def test_each_sector_size_has_its_own_figure(key: tuple[int, bool]) -> None:
    logical, encrypted = key
    root = "p" if encrypted else ""
    empty = replace(EMPTY, logicalreferenced=logical, encryptionroot=root)
    for figure in {*FRESH_VOLUMES.values()}:
        assert unwritten(volume(figure, encryptionroot=root), empty) == (figure == FRESH_VOLUMES[key])
    assert not unwritten(volume(FRESH_VOLUMES[key], encryptionroot="" if root else "p"), empty)


def test_what_cannot_be_told_counts_as_used() -> None:
    """A ZFS with other figures, a pool without the container, an old read without the property."""
    for fresh in (volume(META), file(43008)):
        assert not unwritten(fresh, None)
        assert not unwritten(fresh, replace(EMPTY, logicalreferenced=43009))
        assert not unwritten(fresh, replace(EMPTY, kind="volume"))
    assert not unwritten(volume(0), EMPTY)
    assert not unwritten(file(0), replace(EMPTY, logicalreferenced=0))


def test_what_only_a_snapshot_has_counts() -> None:
    """Written, taken a snapshot of, and discarded."""
    assert not unwritten(replace(volume(META), logicalused=2 * META), EMPTY)
    assert not unwritten(replace(file(43008), logicalused=2 * 43008), EMPTY)


@pytest.mark.parametrize(
    ("logicalused", "expected"),
    [(0, True), (4096, True), (META, True), (45056, False), (40960, False), (META + 512, False)],
)
def test_a_clone_is_told_by_what_it_has_beside_its_origin(logicalused: int, expected: bool) -> None:
    """Fresh, looked into by udev, sized; a sector written, zeros over a hole."""
    clone = replace(volume(1085440, 1122304, origin="p/image@final"), logicalused=logicalused)
    assert unwritten(clone, EMPTY) == expected


@pytest.mark.parametrize(("logical", "expected"), [(43008, True), (174080, False), (178176, False), (833536, False)])
def test_a_file(logical: int, expected: bool) -> None:
    assert unwritten(file(logical), EMPTY) == expected


def test_a_vm_s_file_system_is_told_without_what_lies_below_it() -> None:
    root = Dataset("p/vm", "filesystem", logicalreferenced=43008, logicalused=5 * MIB)
    assert datasets_in_use([root], EMPTY) == []
    assert datasets_in_use([replace(root, logicalreferenced=43520)], EMPTY) == ["p/vm"]
    snapshot = Dataset("p/vm@s", "snapshot", logicalreferenced=43008)
    assert datasets_in_use([root, snapshot], EMPTY) == []
    assert datasets_in_use([root, replace(snapshot, logicalreferenced=43520)], EMPTY) == ["p/vm@s"]
    assert datasets_in_use([snapshot], EMPTY) == ["p/vm@s"]


blocks = st.sampled_from([512 << n for n in range(9)])
indirect = st.integers(0, 1 << 30)


@given(st.sampled_from(sorted(FRESH_VOLUMES)), blocks, st.integers(1, 1 << 40), indirect, st.booleans())
def test_no_volume_with_a_block_of_data_is_unwritten(
    key: tuple[int, bool], block: int, count: int, more: int, clone: bool
) -> None:
    """Whatever it takes compressed: each block counts in full, and metadata in addition."""
    root = "p" if key[1] else ""
    empty = replace(EMPTY, logicalreferenced=key[0], encryptionroot=root)
    fresh = volume(FRESH_VOLUMES[key], encryptionroot=root, volblocksize=block, origin="p/image@final" if clone else "")
    assert unwritten(fresh, empty)
    assert not unwritten(replace(fresh, logicalused=fresh.logicalused + count * block + more), empty)


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.integers(0, 1 << 50))
def test_only_the_exact_figure_will_do(logical: int, referenced: int, empty: int) -> None:
    is_unwritten = unwritten(volume(logical, referenced), replace(EMPTY, logicalreferenced=empty))
    assert is_unwritten == (FRESH_VOLUMES.get((empty, False)) == logical)
    assert unwritten(file(logical), replace(EMPTY, logicalreferenced=empty)) == (0 < logical == empty)
