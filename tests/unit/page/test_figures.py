# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The figures of the page: bars add up, and every figure is one that a module has told."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.page.figures import (
    Part,
    edges,
    pools,
    room,
)

from .sample import few
from .sample import many as many_hosts

MIB = 1048576
GIB = 1024 * MIB
HV01 = few()["hv01"]


def by_name(found, alias):
    return next(vm for vm in found["vm_info"]["vms"] if vm["alias"] == alias)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**50), max_size=12), st.integers(1, 2000))
def test_widths_add_up_to_the_bar(sizes, width):
    found = edges([Part("disks", "", size) for size in sizes], width)
    assert sum(wide for _begin, wide in found) == (width if sum(sizes) else 0)
    assert all(begin + wide == after for (begin, wide), (after, _wide) in pairwise(found))
    for size, (_begin, wide) in zip(sizes, found, strict=True):
        assert not size or abs(wide - size * width / sum(sizes)) < 1


def test_a_pool_is_what_takes_it():
    (pool,) = pools(HV01)
    parts = {part.kind: part.size for part in pool.parts}
    assert sum(parts.values()) == pool.size == 400 * GIB
    told = HV01["host_info"]["host"]["pools"][0]
    disks = [disk for vm in HV01["vm_info"]["vms"] for disk in vm["disks"]]
    reserved = sum(vm["actual"]["reservation_bytes"] for vm in HV01["zfs_quota"]["vms"])
    assert parts["left"] == told["available"] * MIB
    assert parts["disks"] == sum(disk["refreservation"] for disk in disks) * MIB
    assert parts["snapshots"] == 3 * GIB
    assert parts["parked"] == told["parked"] * MIB
    assert parts["replicas"] == 4 * GIB
    assert parts["disks"] + parts["snapshots"] + parts["reserved"] == reserved
    assert parts["other"] == 2 * GIB


def test_bars_of_many_hosts_add_up():
    for found in many_hosts(4, 25).values():
        (pool,) = pools(found)
        assert sum(part.size for part in pool.parts) >= pool.size
        assert all(part.size >= 0 for part in pool.parts)
        for vm in found["vm_info"]["vms"]:
            space = room(vm)
            assert space.size is None or sum(part.size for part in space.parts) == space.size + space.over


def test_a_vm_is_its_disks_and_what_is_left():
    space = room(by_name(HV01, "web01"))
    assert [(part.kind, part.label, part.size) for part in space.parts] == [
        ("disks", "root", 20 * GIB),
        ("disks", "data", 50 * GIB),
        ("snapshots", "snapshots", 3 * GIB),
        ("left", "allocatable", 27 * GIB),
    ], "the hidden disk is outside"
    assert (space.size, space.left, space.over) == (100 * GIB, 27 * GIB, 0)


def test_a_vm_that_holds_too_much():
    space = room(by_name(HV01, "db01"))
    assert (space.size, space.left, space.over) == (64 * GIB, -6 * GIB, 6 * GIB)
    assert sum(part.size for part in space.parts) == 70 * GIB


def test_a_vm_without_flexible_disk_space():
    space = room(by_name(HV01, "legacy01"))
    assert (space.size, space.left, [part.label for part in space.parts]) == (None, None, ["(disk0)"])


def test_what_else_takes_a_vms_space():
    web = by_name(HV01, "web01")
    rounded = room({**web, "allocatable": web["allocatable"] - 3})
    assert [part.label for part in rounded.parts][-1] == "allocatable", "rounding is not shown"
    other = room({**web, "allocatable": web["allocatable"] - 1024})
    assert ("other", GIB) in [(part.kind, part.size) for part in other.parts]
    assert sum(part.size for part in other.parts) == 100 * GIB
