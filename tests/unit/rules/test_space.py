# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The arithmetic of space, on figures that were measured on real ZFS."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.dataset import Dataset
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Disk, Vm, VmConfig
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    PoolGeometry,
    Vdev,
    automatic_reservation,
    overhead,
)

MIB = 1 << 20
GIB = 1 << 30
PLAIN = PoolGeometry((Vdev("plain", 0, 1, 0, 0),), "classic")


def volume(size, pinned=0, number=0, **more):
    reserved = automatic_reservation(size * MIB, 8192, PLAIN)
    fields = {
        "volsize": size * MIB,
        "volblocksize": 8192,
        "refreservation": reserved,
        "used": reserved + pinned * MIB,
        "usedbyrefreservation": reserved,
    }
    return Dataset("zones/v/disk%d" % number, "volume", **{**fields, **more})


def vm(*volumes, flexible=None, quota=1, orphans=(), hidden=0, **root):
    config = VmConfig("v", "web", "bhyve", "stopped", False, "zones", "zones/v", flexible)
    base = {"refquota": quota * GIB, "refreservation": quota * GIB - MIB, "usedbyrefreservation": quota * GIB - MIB}
    disks = tuple(Disk(v, "v", n, hidden=n < hidden) for n, v in enumerate(volumes))
    strays = tuple(Disk(v, "v", 9) for v in orphans)
    other = root.pop("other_used", 0)
    machine = Vm(config, Dataset("zones/v", "filesystem", **{**base, **root}), disks, strays, other_used=other)
    if "quota" in root:
        return machine
    on_hold = space.expected_quota(machine, PLAIN)
    return replace(machine, root=replace(machine.root, quota=on_hold, reservation=on_hold))


def test_the_quota_law():
    """quota + flexible_disk_size + RESV - SIZE of RFD 154."""
    a, b = volume(10240), volume(2048)
    expected = GIB + 20480 * MIB + a.refreservation + b.refreservation - 12288 * MIB
    assert space.expected_quota(vm(a, b, flexible=20480), PLAIN) == expected
    assert space.expected_quota(vm(a, b), PLAIN) == GIB + a.refreservation + b.refreservation
    assert space.expected_quota(vm(flexible=1), PLAIN) == GIB + MIB
    assert space.expected_quota(vm(), PLAIN) == GIB


def test_sparse_and_reserved_by_hand_count_as_what_they_would_reserve():
    """F=300, one sparse disk of 200: the plain formula would give 164 MiB and the guest would run out at 100."""
    sparse, low = volume(200, refreservation=0, used=0, usedbyrefreservation=0), volume(200, refreservation=MIB)
    promised = GIB + 300 * MIB + overhead(200 * MIB, 8192, PLAIN)
    assert space.expected_quota(vm(sparse, flexible=300), PLAIN) == promised
    assert space.expected_quota(vm(low, flexible=300), PLAIN) == promised


def test_orphans_count():
    machine = vm(volume(100), flexible=300, orphans=(volume(50),))
    alone = vm(volume(100), flexible=300)
    more = space.expected_quota(machine, PLAIN) - space.expected_quota(alone, PLAIN)
    assert more == overhead(50 * MIB, 8192, PLAIN)
    assert space.allocatable(alone) - space.allocatable(machine) == 50 * MIB


def test_what_snapshots_pin_at_once():
    """Measured: F=192, 128 thick, 40 written, snapshot: RFD 154 says 64 free, ZFS has 24."""
    reserved = automatic_reservation(128 * MIB, 8192, PLAIN)
    after = volume(128, used=reserved + 40 * MIB, usedbyrefreservation=reserved, usedbysnapshots=0, written=0)
    machine = vm(after, flexible=192)
    assert space.free_space_mib(machine) == 64
    assert space.allocatable(machine) == 24 * MIB
    assert space.smallest_flexible_mib(machine) == 168


def test_the_vms_own_file_system():
    """Measured: 40 MiB in the root and one recursive snapshot: 127 by the volumes alone, and 88 fitted."""
    root = {"usedbydataset": 40 * MIB, "usedbyrefreservation": GIB - MIB, "usedbysnapshots": 0}
    assert space.root_excess(vm(flexible=300, **root)) == 39 * MIB
    root = {"usedbydataset": 40 * MIB, "usedbyrefreservation": GIB - MIB - 40 * MIB, "usedbysnapshots": 0}
    assert space.root_excess(vm(flexible=300, **root)) == 0


def test_other_children_count():
    assert space.allocatable(vm(flexible=300, other_used=10 * MIB)) == 290 * MIB


@pytest.mark.parametrize(
    ("dataset", "pinned"),
    [
        (volume(100), 0),
        (volume(100, pinned=7), 7),
        (volume(100, refreservation=0, used=30 * MIB, usedbyrefreservation=0, written=30 * MIB), 0),
        (volume(100, refreservation=0, used=30 * MIB, usedbyrefreservation=0, written=10 * MIB), 20),
        (volume(100, refreservation=50 * MIB, used=50 * MIB, usedbyrefreservation=50 * MIB, written=0), 0),
        (volume(100, refreservation=50 * MIB, used=60 * MIB, usedbyrefreservation=40 * MIB, written=10 * MIB), 10),
        (volume(100, refreservation=50 * MIB, used=90 * MIB, usedbyrefreservation=0, written=80 * MIB), 10),
    ],
    ids=["thick", "thick with snapshot", "sparse", "sparse with snapshot", "low", "low with snapshot", "low and full"],
)
def test_pinned(dataset, pinned):
    assert dataset.pinned == pinned * MIB


def test_inflexible_vms_have_no_such_figures():
    machine = vm(volume(100))
    assert space.allocatable(machine) is None
    assert space.free_space_mib(machine) is None
    assert space.flexible_bytes(machine) is None


def test_free_space_is_rounded_down_and_may_be_negative():
    assert space.free_space_mib(vm(volume(100, usedbysnapshots=1), flexible=100)) == -1
    assert space.free_space_mib(vm(volume(100, usedbysnapshots=1), flexible=102)) == 1


def test_hidden_disks_are_part_of_the_stored_figure_only():
    machine = vm(volume(16), volume(100), flexible=216, hidden=1)
    assert (machine.hidden_mib, machine.declared_flexible) == (16, 200)
    assert space.allocatable(machine) == 100 * MIB


REMOVED = "overhead of a removed disk"
POISONED = "poisoned flexible_disk_size or lowered by hand"


def test_drift():
    machine = vm(volume(100), flexible=300)
    assert space.quota_drift(machine, PLAIN) == (0, 0)
    assert space.drift_cause(machine, PLAIN) == ""
    root = machine.root
    for change, drift, cause in (
        ({"quota": root.quota + 4 * MIB, "reservation": root.quota + 4 * MIB}, (4 * MIB,) * 2, REMOVED),
        ({"quota": root.quota + 7 * GIB, "reservation": root.quota + 7 * GIB}, (7 * GIB,) * 2, "unknown"),
        ({"quota": root.quota + 5, "reservation": root.quota + 5}, (5, 5), "unknown"),
        ({"quota": root.quota + 5}, (5, 0), "half-applied set"),
        ({"reservation": 0}, (0, -root.quota), "half-applied set"),
        ({"quota": root.quota + 5, "reservation": root.quota - 5}, (5, -5), "unknown"),
        ({"quota": root.quota - 100 * MIB, "reservation": root.quota - 100 * MIB}, (-100 * MIB,) * 2, POISONED),
        ({"quota": root.quota - 300 * MIB, "reservation": root.quota - 300 * MIB}, (-300 * MIB,) * 2, "unknown"),
        ({"quota": root.quota - 5, "reservation": root.quota - 5}, (-5, -5), "unknown"),
        ({"refreservation": 0}, (0, 0), "refreservation of the VM's dataset"),
    ):
        drifted = replace(machine, root=replace(root, **change))
        assert space.quota_drift(drifted, PLAIN) == drift
        assert space.drift_cause(drifted, PLAIN) == cause


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        (automatic_reservation(64 * MIB, 8192, PLAIN), REMOVED),
        (automatic_reservation(64 * MIB, 8192, PLAIN) + 5, "unknown"),
        (7 * GIB, "unknown"),
        (-100 * MIB, "unknown"),
        (-automatic_reservation(100 * MIB, 8192, PLAIN), "disk attached without its overhead"),
    ],
)
def test_drift_of_an_inflexible_vm(more, cause):
    """A removed disk leaves its whole reservation, and there is no flexible_disk_size that could be poisoned."""
    machine = vm(volume(100))
    quota = machine.root.quota + more
    drifted = replace(machine, root=replace(machine.root, quota=quota, reservation=quota))
    assert space.drift_cause(drifted, PLAIN) == cause


def test_a_vm_without_disks_has_room_of_the_last_one():
    machine = vm()
    quota = machine.root.quota + automatic_reservation(64 * MIB, 8192, PLAIN)
    drifted = replace(machine, root=replace(machine.root, quota=quota, reservation=quota))
    assert space.drift_cause(drifted, PLAIN) == REMOVED


@pytest.mark.parametrize("in_zfs_only", [False, True])
def test_a_rollback_where_nobody_moves_the_quota_with_a_resize(in_zfs_only):
    """Only vmadm does, so only there the quota tells a rollback from a reservation set by hand."""
    disk = volume(64, refreservation=automatic_reservation(128 * MIB, 8192, PLAIN))
    machine = vm(disk, flexible=300)
    snapshot = Dataset("zones/v/disk0@s", "snapshot")
    with_snapshot = replace(machine, disks=(replace(machine.disks[0], snapshots=(snapshot,)),))
    with_snapshot = replace(with_snapshot, config=replace(with_snapshot.config, identity_in_zfs=in_zfs_only))
    assert space.drift_cause(with_snapshot, PLAIN) == (
        "rollback over a resize" if in_zfs_only else "refreservation off auto"
    )
    alone = replace(with_snapshot, disks=machine.disks)
    assert space.drift_cause(alone, PLAIN) == "refreservation off auto"


def test_an_older_formula_is_no_drift():
    raidz = PoolGeometry((Vdev("raidz", 12, 5, 1, 0),), "modern")
    classic = automatic_reservation(64 * MIB, 8192, replace(raidz, rounding="classic"))
    modern = automatic_reservation(64 * MIB, 8192, raidz)
    assert classic != modern
    assert space.off_automatic(vm(volume(64, refreservation=classic), flexible=300), raidz) == ()
    assert len(space.off_automatic(vm(volume(64, refreservation=classic + 1), flexible=300), raidz)) == 1
    assert space.off_automatic(vm(volume(64, refreservation=0), flexible=300), raidz) == ()


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 500)), max_size=5),
    st.integers(1, 50000),
    st.integers(0, 3 * GIB),
)
def test_smallest_flexible_is_the_smallest(disks, flexible, data):
    machine = vm(*(volume(s, p) for s, p in disks), flexible=flexible, usedbydataset=data, usedbyrefreservation=0)
    smallest = space.smallest_flexible_mib(machine)
    at = {
        n: space.allocatable(replace(machine, config=replace(machine.config, flexible_disk_size=n)))
        for n in (smallest, smallest - 1)
        if n > 0
    }
    assert at.get(smallest, 0) >= 0
    assert at.get(smallest - 1, -1) < 0


@given(st.integers(1, 5000), st.integers(0, 2000))
def test_quota_is_kept_only_while_the_vm_is_overdrawn(flexible, size):
    machine = vm(volume(size + 1), flexible=flexible, quota=1)
    raised = replace(machine, root=replace(machine.root, quota=machine.root.quota + GIB))
    settled = space.settled_quota(raised, PLAIN)
    assert settled == (raised.root.quota if size + 1 > flexible + 1 else machine.root.quota)
