# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a dataset says of itself."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset


@pytest.mark.parametrize(
    ("figures", "pinned"),
    [
        # reservation, what of it is left, used, written; the volume has 100
        ((103, 50, 130, 40), 27),
        ((103, 0, 130, 40), 27),  # all of the reservation is used up
        ((100, 0, 130, 40), 30),  # it is as large as the volume
        ((99, 0, 130, 40), 90),  # smaller, so it says nothing
        ((99, 1, 130, 40), 31),
        ((0, 0, 130, 40), 90),  # a sparse volume
        ((103, 0, 90, 40), 0),
        ((0, 0, 30, 40), 0),
    ],
)
def test_what_only_snapshots_hold(figures, pinned):
    reservation, left, used, written = figures
    volume = Dataset("zones/u/disk0", "volume", volsize=100, refreservation=reservation, usedbyrefreservation=left)
    assert Dataset(**{**vars(volume), "used": used, "written": written}).pinned == pinned


def test_without_a_size_the_reservation_says_nothing():
    assert Dataset("zones/u", "filesystem", refreservation=10, used=30, written=5).pinned == 25


@pytest.mark.parametrize(
    ("name", "kind", "parent", "pool"),
    [
        ("zones", "filesystem", "", "zones"),
        ("zones/u/disk0", "volume", "zones/u", "zones"),
        ("zones/u@a", "snapshot", "zones/u", "zones"),
        ("zones@a", "snapshot", "zones", "zones"),
    ],
)
def test_names(name, kind, parent, pool):
    assert (Dataset(name, kind).parent, Dataset(name, kind).pool) == (parent, pool)


@pytest.mark.parametrize(
    ("kind", "size", "backs"),
    [("volume", 0, True), ("filesystem", 1, True), ("filesystem", 0, False), ("snapshot", 5, False)],
)
def test_what_backs_a_disk(kind, size, backs):
    assert Dataset("zones/x", kind, volsize=size).backs == backs
