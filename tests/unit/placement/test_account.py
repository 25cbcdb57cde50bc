# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host has after one VM more or less, at its limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.extensions.iallocator.ganeti.books import (
    after_replica,
    settle_replicas,
    without_replica,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.account import (
    NO_DISK,
    NO_MEMORY,
    Account,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.known import (
    COPIED,
    DOWN,
    OFFLINE,
    KnownGroup,
    KnownHost,
    KnownVm,
)

GROUP = KnownGroup("g", "g", cpu_ratio=4.0, spindle_ratio=2.0)
HOST = KnownHost("hv1", "g", True, 8192, 1024, 8192, 100, 100, 4, 1, 4, pools={"zones": 100})
HERE = KnownVm("here", "hv1", "hv2", memory=1024, cpus=2, spindles=1, disk=10)
COMING = replace(HERE, name="coming", primary="hv3")
REPLICA = replace(HERE, name="replica", primary="hv2", secondary="hv1")


def account(free_after, change):
    """An account with a VM and a replica of 2048 MiB, whose free memory is so much after the change."""
    found = Account(HOST, GROUP)
    found.settle([HERE])
    settle_replicas(found, [replace(REPLICA, memory=2048)])
    found.free += free_after - change(found).free
    return found


CHANGES = {
    "a VM leaves": lambda now: now.without_vm(HERE),
    "a VM comes": lambda now: now.after_vm(COMING),
    "a replica leaves": lambda now: without_replica(now, replace(REPLICA, primary="hv4"), "hv4"),
    "a replica comes": lambda now: after_replica(now, replace(REPLICA, primary="hv4"), "hv4"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_host_is_safe_only_with_more_memory_than_replicas_may_need(change):
    for free, unsafe in ((2047, True), (2048, True), (2049, False)):
        after = CHANGES[change](account(free, CHANGES[change]))
        assert (after.free, after.reserved, after.unsafe) == (free, 2048, unsafe)


@pytest.mark.parametrize(("reported", "unsafe"), [(2047, True), (2048, False)])
def test_what_a_host_reports_decides_whether_it_is_safe_at_first(reported, unsafe):
    found = Account(replace(HOST, free_memory=reported), GROUP)
    found.settle([HERE])
    settle_replicas(found, [replace(REPLICA, memory=2048)])
    assert (found.free, found.unsafe) == (reported, unsafe)


@pytest.mark.parametrize(
    ("vm", "after"),
    [
        (HERE, (6144, 3, 8192)),
        (replace(HERE, state=DOWN), (7168, 3, 7168)),  # what it needs is free, but not for others
        (replace(HERE, state=OFFLINE), (7168, 1, 7168)),
    ],
)
def test_only_what_runs_takes_memory_and_what_may_run_takes_cpus(vm, after):
    found = Account(HOST, GROUP)
    found.settle([vm])
    assert (found.free, found.cpus, found.reported) == after


def test_a_vm_that_leaves_gives_back_what_it_had():
    found = Account(HOST, GROUP)
    found.settle([HERE])
    before = {name: getattr(found, name) for name in ("free", "cpus", "spindles", "primaries", "location")}
    again = found.without_vm(HERE, 1).after_vm(HERE, 1)
    assert {name: getattr(again, name) for name in before} == before
    gone = found.without_vm(HERE, 1)
    assert (gone.free, gone.reported, gone.disk, gone.primaries, gone.location) == (7168, 9216, 110, 0, -1)


@pytest.mark.parametrize(
    ("vm", "host", "said"),
    [
        (replace(COMING, memory=7167), {}, ""),  # something is left
        (replace(COMING, memory=7168), {}, NO_MEMORY),
        (replace(COMING, memory=7168, template=COPIED, pool="zones"), {}, ""),
        (replace(COMING, memory=7169, template=COPIED, pool="zones"), {}, NO_MEMORY),
        (replace(COMING, disk=99), {}, ""),
        (replace(COMING, disk=100), {}, NO_DISK),
        (replace(COMING, template=COPIED, pool="zones", disk=100), {}, ""),
        (replace(COMING, template=COPIED, pool="zones", disk=101), {}, NO_DISK),
        (replace(COMING, template=COPIED, pool="data"), {}, "no such pool"),
        (replace(COMING, template=COPIED, pool="data", home="hv1"), {}, ""),  # its disks are there
        (replace(COMING, template=COPIED, pool="zones"), {"replicas": frozenset({"coming"})}, "old replicas"),
        (replace(COMING, template="rbd", disk=1000), {}, ""),
    ],
)
def test_what_a_host_cannot_take(vm, host, said):
    found = Account(replace(HOST, **host), GROUP).with_vm(vm, False)
    assert (found if isinstance(found, str) else "") == said


@pytest.mark.parametrize(
    ("vm", "said"),
    [
        (replace(COMING, cpus=15), ""),
        (replace(COMING, cpus=16), "FailCPU"),
        (replace(COMING, spindles=8), ""),
        (replace(COMING, spindles=9), NO_DISK),
        (replace(COMING, spindles=9, template="rbd"), ""),
        (replace(COMING, exclusive=frozenset({"web"})), "FailTags"),
        (replace(COMING, exclusive=frozenset({"db"})), ""),
    ],
)
def test_soft_limits(vm, said):
    found = Account(HOST, GROUP)
    found.tags = {"web": 1}
    taken = found.with_vm(vm, True)
    assert (taken if isinstance(taken, str) else "") == said
    assert not isinstance(found.with_vm(vm, False), str)
