# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""First fit, and the matching that keeps most: properties, by comparison with every possible matching."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.instance_group_matching import (
    Birth,
    compatible,
    first_fit,
    max_retention,
)

BIRTHS = st.builds(
    Birth, st.sampled_from(["zones", "fast"]), st.sampled_from([None, "image"]), st.none(), st.integers(1, 9)
)
SHORT = st.lists(BIRTHS, max_size=5)
LONG = st.lists(BIRTHS, max_size=26)


def sizes(*values):
    return [Birth("zones", None, None, value) for value in values]


def all_matchings(current, desired):
    choices = [[None] + [j for j, entry in enumerate(desired) if compatible(disk, entry)] for disk in current]
    for choice in itertools.product(*choices):
        claimed = [j for j in choice if j is not None]
        if len(claimed) == len(set(claimed)):
            yield [(i, j) for i, j in enumerate(choice) if j is not None]


def merit(current, desired, pairs, preserved=()):
    """Bytes kept that would be lost, disks kept, growth (less is better)."""
    size_retained = sum(current[i].size for i, _j in pairs if i not in preserved)
    return size_retained, len(pairs), -sum(desired[j].size - current[i].size for i, j in pairs)


def assert_valid(current, desired, pairs):
    assert pairs == sorted(pairs)
    assert len({i for i, _j in pairs}) == len({j for _i, j in pairs}) == len(pairs)
    assert all(compatible(current[i], desired[j]) for i, j in pairs)


@pytest.mark.parametrize(
    ("field", "value"), [("type", "fast"), ("image", "other"), ("snapshot", "other"), ("size", 19), ("image", None)]
)
def test_what_is_fixed_at_birth_and_shrinking_are_incompatible(field, value):
    disk = Birth("zones", "image", "snapshot", 20)
    assert compatible(disk, disk)
    assert compatible(disk, disk._replace(size=21))
    assert not compatible(disk, disk._replace(**{field: value}))


def test_first_fit_takes_the_first_free_entry_not_the_closest():
    assert first_fit(sizes(20), sizes(100, 20)) == [(0, 0)]
    assert first_fit(sizes(20, 50), sizes(60, 10)) == [(0, 0)]
    assert first_fit(sizes(50, 20), sizes(10, 60)) == [(0, 1)]


@given(LONG, LONG)
def test_first_fit_is_one_to_one_compatible_and_leaves_nothing_that_fits(current, desired):
    pairs = first_fit(current, desired)
    assert_valid(current, desired, pairs)
    mapped, claimed = {i for i, _j in pairs}, {j for _i, j in pairs}
    free = [entry for j, entry in enumerate(desired) if j not in claimed]
    assert not any(compatible(d, e) for i, d in enumerate(current) if i not in mapped for e in free)
    for i, j in pairs:
        taken_before = {m for k, m in pairs if k < i}
        assert all(m in taken_before or not compatible(current[i], desired[m]) for m in range(j))


@given(SHORT, SHORT, st.sets(st.integers(0, 4)))
def test_max_retention_is_the_best_of_all_matchings(current, desired, preserved):
    pairs = max_retention(current, desired, preserved)
    assert_valid(current, desired, pairs)
    best = max(merit(current, desired, other, preserved) for other in all_matchings(current, desired))
    assert merit(current, desired, pairs, preserved) == best


@given(LONG, LONG)
def test_max_retention_never_keeps_less_than_first_fit(current, desired):
    retained = max_retention(current, desired)
    assert_valid(current, desired, retained)
    assert merit(current, desired, retained) >= merit(current, desired, first_fit(current, desired))


@given(LONG)
def test_an_unchanged_list_maps_to_itself(current):
    same = [(i, i) for i in range(len(current))]
    assert max_retention(current, current) == same
    assert merit(current, current, max_retention(current, current[::-1]))[0] == sum(disk.size for disk in current)


def test_max_retention_prefers_the_list_order_among_equals():
    assert max_retention(sizes(20, 50), sizes(60, 60)) == [(0, 0), (1, 1)]
    assert max_retention(sizes(20, 50), sizes(60, 70)) == [(0, 0), (1, 1)]
    assert max_retention(sizes(20, 20), sizes(20)) == [(0, 0)]


def test_max_retention_gives_up_what_is_preserved_anyway():
    assert max_retention(sizes(20, 50), sizes(60)) == [(1, 0)]
    assert max_retention(sizes(20, 50), sizes(60), {1}) == [(0, 0)]
