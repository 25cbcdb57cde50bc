# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The laws as properties, against the simulated ZFS and vmadm: quota, allocatable, idempotence, prediction, loss."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import space
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.reservation import (
    automatic_reservation,
    overhead,
)

from ..conftest import IMAGE, VM, Simulated

MIB = 1 << 20
SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
POOLS = st.sampled_from([("disk", "illumos"), ("raidz1", "2.1"), ("raidz2", "2.3"), ("mirror", "2.3")])
SIZES = st.lists(st.integers(1, 3000), max_size=4)
BLOCKS = st.sampled_from([4096, 8192, 65536, 131072])


def node(pool, sizes, flexible=30720, blocks=()):
    vdev, version = pool
    sim = Simulated(vdev=vdev, version=version)
    disks = [
        {"size": s, "model": "virtio", "block_size": b} for s, b in zip(sizes, [*blocks, *[8192] * 9], strict=False)
    ]
    sim.create(
        flexible,
        disks=[{"image_uuid": "aaaaaaaa-0000-4000-8000-000000000001", "boot": True, "model": "virtio"}, *disks],
    )
    return sim


@SLOW
@given(
    pool=POOLS,
    sizes=SIZES,
    blocks=st.lists(BLOCKS, max_size=4),
    flexible=st.integers(23000, 60000),
    quota=st.integers(1, 4),
)
def test_the_quota_law_is_vmadms_own_recompute(pool, sizes, blocks, flexible, quota):
    sim = node(pool, sizes, None, blocks)
    assert not sim.quota().changed, "without flexible_disk_size"
    sim.run("vmadm", "update", VM, stdin=json.dumps({"flexible_disk_size": flexible, "quota": quota}))
    result = sim.quota(check=True).vms[0]
    assert result["drift"] == {"quota_bytes": 0, "reservation_bytes": 0}
    vm = sim.vm()
    assert result["expected_bytes"] == vm.root.quota == vm.root.reservation
    assert vm.root.refreservation == (quota << 30) - MIB


NONE = st.just(0)
GUESTS = [
    st.tuples(st.just("write"), st.integers(0, 2), st.integers(0, 900), st.integers(1, 200)),
    st.tuples(st.just("snapshot"), st.integers(0, 2), NONE, NONE),
    st.tuples(st.just("vm snapshot"), NONE, NONE, NONE),
    st.tuples(st.just("root"), NONE, st.integers(0, 100), st.integers(1, 100)),
    st.tuples(st.just("trim"), st.integers(0, 2), st.integers(0, 900), st.integers(1, 200)),
]
OPERATORS = [
    st.tuples(st.just("vmadm snapshot"), NONE, NONE, NONE),
    st.tuples(st.just("rollback"), NONE, NONE, NONE),
    st.tuples(st.just("remove"), st.integers(1, 2), NONE, NONE),
]
ACTIONS = st.lists(st.one_of(*GUESTS, *OPERATORS), max_size=12)


def act(sim, actions):
    """What guests and other operators do; what ZFS or vmadm refuse does not happen."""
    for number, (action, which, start, length) in enumerate(actions):
        volumes = [d.volume.name for d in sim.vm().disks]
        volume = volumes[which % len(volumes)]
        if action == "remove" and volume == volumes[0]:
            continue
        argv = {
            "write": ("guest", "write", volume, str(start), str(length), str(number)),
            "trim": ("guest", "trim", volume, str(start), str(length)),
            "snapshot": ("zfs", "snapshot", "%s@s%d" % (volume, number)),
            "vm snapshot": ("zfs", "snapshot", "-r", "zones/%s@r%d" % (VM, number)),
            "root": ("guest", "write", "zones/" + VM, str(start), str(length), str(number)),
            "vmadm snapshot": ("vmadm", "create-snapshot", VM, "v"),
            "rollback": ("vmadm", "rollback-snapshot", VM, "v"),
            "remove": ("vmadm", "update", VM),
        }[action]
        before = sim.get()["state"]
        sim.node.run(argv, json.dumps({"remove_disks": ["/dev/zvol/rdsk/" + volume]}) if action == "remove" else "")
        if sim.get()["state"] != before:
            sim.node.run(("vmadm", "stop", VM, "-F") if before == "stopped" else ("vmadm", "start", VM))


@SLOW
@given(
    sizes=st.lists(st.integers(1000, 1500), min_size=2, max_size=2),
    actions=st.lists(st.one_of(*GUESTS), max_size=12),
    slack=st.integers(0, 3000),
)
def test_allocatable_is_exact(sizes, actions, slack):
    """What it promises can be had, and 2 MiB more cannot: ZFS gives 1 MiB that is never promised."""
    sim = node(("disk", "illumos"), sizes, 10240 + sum(sizes) + slack)
    act(sim, actions)
    vm = sim.vm()
    room = space.allocatable(vm)
    assume(room >= MIB)
    mib, volume = room // MIB, vm.disks[1].volume
    assert grow(sim, volume, mib) == 0
    sim.run("zfs", "set", "volsize=%d" % volume.volsize, "refreservation=auto", volume.name)
    sim.quota()
    assert space.allocatable(sim.vm()) == room
    assert grow(sim, volume, mib + 2) != 0


def grow(sim, volume, mib):
    """As the law grows: quota and reservation by the overhead, then the volume; quota back if that fails."""
    geometry = sim.geometry()
    size = volume.volsize + mib * MIB
    root = sim.vm().root
    more = overhead(size, volume.volblocksize, geometry) - overhead(volume.volsize, volume.volblocksize, geometry)
    quota = root.quota + more
    sim.run("zfs", "set", f"quota={quota}", f"reservation={quota}", root.name)
    status = sim.node.run(("zfs", "set", f"volsize={size}", "refreservation=auto", volume.name))[0]
    if status != 0:
        sim.run("zfs", "set", f"quota={root.quota}", f"reservation={root.quota}", root.name)
    return status


NAMES = ["root", "a", "b", "c", "d"]


@st.composite
def declarations(draw):
    """What an operator may write for the VM of the property below."""
    disks = [{"name": "root"}]
    for name in draw(st.lists(st.sampled_from(NAMES[1:]), unique=True)):
        entry = {"name": name}
        kind = draw(st.sampled_from(["size", "size", "remaining", "absent", "facts", "slot", "recreate", "image"]))
        if kind == "absent":
            entry.update(state="absent", destroy_snapshots=True)
        elif kind == "remaining" and not any(d.get("size") == "remaining" for d in disks):
            entry.update(size="remaining", dangerous_allow_shrink=True)
        elif kind == "facts":
            entry.update(
                preserve=draw(st.booleans()),
                description=draw(st.text(max_size=5)),
                size=draw(st.integers(1, 2000)),
                dangerous_allow_shrink=True,
            )
        elif kind == "recreate":
            entry.update(size=draw(st.integers(1, 300)), block_size=draw(BLOCKS), recreate=True, destroy_snapshots=True)
        elif kind == "image":
            entry.update(image=IMAGE, recreate=True, destroy_snapshots=True)
        elif kind == "slot":
            entry.update(size=64, pci_slot="0:4:%d" % draw(st.integers(1, 7)), dangerous_allow_shrink=True)
        else:
            entry.update(size=draw(st.integers(1, 3000)), dangerous_allow_shrink=True)
        disks.append(entry)
    spec = {"vm": "web01", "disks": disks, "unlisted": draw(st.sampled_from(["refuse", "keep", "detach", "destroy"]))}
    if draw(st.booleans()):
        spec["flexible_disk_size"] = draw(st.integers(11000, 30000))
    if draw(st.booleans()):
        spec["quota"] = "%dGiB" % draw(st.integers(1, 3))
    return spec


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(specs=st.lists(st.tuples(declarations(), ACTIONS), min_size=1, max_size=4), running=st.booleans())
def test_a_plan_applied_leaves_nothing_to_plan_and_was_predicted(specs, running):
    """Whatever is declared, in whatever order: refused without a trace, or in four steps; and nothing is lost that
    was not given up by name, nor by unlisted=destroy without preserve.
    """
    sim = Simulated()
    sim.adopted(1024, 512)
    if running:
        sim.run("vmadm", "start", VM)
    for spec, actions in specs:
        act(sim, actions)
        before = {d.volume.guid: d for d in (*sim.vm().disks, *sim.vm().detached)}
        print_before = sim.fingerprint()
        if sim.converge(spec, allow_restart=True, check=True).problems:
            assert sim.converge(spec, allow_restart=True).problems
            assert sim.fingerprint() == print_before
            continue
        done = sim.four_steps(spec, allow_restart=True)
        after = {d.volume.guid for d in (*sim.vm().disks, *sim.vm().detached)}
        given_up = {d["name"] for d in spec["disks"] if d.get("state") == "absent"}
        listed = {d["name"] for d in spec["disks"]}
        for guid, disk in before.items():
            if guid not in after:
                unlisted = spec["unlisted"] == "destroy" and disk.name not in listed and not disk.preserve
                recreated = any(d["name"] == disk.name and d.get("recreate") for d in spec["disks"])
                assert disk.name in given_up or (recreated and not disk.preserve) or (unlisted and not disk.detached), (
                    done.diff
                )
        slots = [d.pci_slot for d in sim.vm().disks]
        assert len(set(slots)) == len(slots)
        for disk in sim.vm().disks:
            assert disk.volume.refreservation == automatic_reservation(
                disk.size, disk.volume.volblocksize, sim.geometry()
            )
        assert sim.get()["state"] == ("running" if running else "stopped")


@pytest.mark.parametrize("unlisted", ["refuse", "keep"])
@SLOW
@given(entries=st.lists(st.sampled_from(["a", "b", "c", "x", "y"]), unique=True))
def test_what_is_not_listed_is_never_destroyed_by_these_words(unlisted, entries):
    sim = Simulated()
    sim.adopted(64, 64, 64)
    before = {d.volume.guid for d in sim.vm().disks}
    disks = [{"name": "root"}, *({"name": n, **({"size": 64} if n in "xy" else {})} for n in entries)]
    sim.converge({"vm": "web01", "unlisted": unlisted, "disks": disks})
    assert before <= {d.volume.guid for d in sim.vm().disks}
