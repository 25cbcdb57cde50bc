# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every run on top-level disks is killed before and after its changes; the same task again ends it."""

from __future__ import annotations

import os
import pickle
from functools import cache

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.disk import disk_places

from .conftest import ONE, TWO, Bench

DATA = {"name": "data", "size": 64}
ATTACH = {"name": "data", "vm": "web01", "state": "attached"}
TAKE = {"name": "a", "from_vm": "web01", "vm": "web02", "state": "attached", "take": True}


def held(bench):
    """Disk data with a held snapshot and a clone of that."""
    bench.four_steps(DATA)
    volume = bench.disk("data").volume.name
    bench.run("zfs", "snapshot", volume + "@mine")
    bench.run("zfs", "hold", "backup", volume + "@mine")
    bench.four_steps({"name": "child", "source": "data", "source_snapshot": "mine", "source_method": "clone"})
    gone = {"destroy_snapshots": True, "release_holds": True}
    return {"name": "data", "state": "absent", **gone, "destroy_clones": [bench.disk("child").volume.name]}


def here(bench):
    bench.four_steps(DATA)
    return ATTACH


def snapshotted(bench):
    bench.run("zfs", "snapshot", bench.disk("a").volume.name + "@mine")
    return {"name": "twin", "source": "a", "source_snapshot": "mine", "source_method": "clone", "size": 48}


def running(bench):
    bench.start()
    return TAKE


SCENARIOS = {
    "make": lambda bench: DATA,
    "copy": lambda bench: {"name": "twin", "source": "a", "size": 48},
    "clone": snapshotted,
    "attach": here,
    "attach-larger": lambda bench: {**here(bench), "size": 96, "description": "x"},
    "detach": lambda bench: {"name": "a", "vm": "web01", "state": "detached"},
    "take": lambda bench: TAKE,
    "take-running": running,
    "change": lambda bench: {"name": "a", "vm": "web01", "size": 48, "compression": "lz4", "tags": {"a": "b"}},
    "destroy": held,
}


def state(bench):
    """What there is, without what only a clock or chance decides."""
    found = []
    for vm in (bench.vm(), bench.vm(TWO)):
        own = [
            (d.name, d.index, d.size_mib, d.pci_slot, d.user_properties["description"], d.user_properties["tags"])
            for d in vm.disks
        ]
        found.append((vm.config.state, vm.root.quota, vm.root.reservation, own))
    loose = [(d.name, d.vm, d.size_mib, d.volume.refreservation, len(d.snapshots)) for d in bench.read().detached]
    return found, sorted(loose)


def prepared(kind, name):
    """A world of its own for each run. To build it takes longer than the run."""
    return pickle.loads(built(kind, name))


@cache
def built(kind, name):
    bench = Bench(kind)
    digests = {}
    entry = SCENARIOS[name](bench)
    for disk in ("a", "b", "c", *(["data"] if any(d.name == "data" for d in bench.read().detached) else [])):
        digests[disk] = bench.write(disk, seed=len(disk) + ord(disk[0]))
    return pickle.dumps((bench, entry, digests))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("kind", ["vmadm", "libvirt", "proxmox"])
def test_a_second_run_ends_it(kind, name):
    """After a change is before the next one. So both are tried of the last one, and of each with FLEXDISK_FULL=1."""
    bench, entry, _digests = prepared(kind, name)
    bench.four_steps(entry, allow_restart=True)
    wanted, number = state(bench), 1
    while ended(kind, name, wanted, "before", number):
        if os.environ.get("FLEXDISK_FULL"):
            ended(kind, name, wanted, "after", number)
        number += 1
    assert ended(kind, name, wanted, "after", number - 1)
    assert number > {"make": 1}.get(name, 2)


def ended(kind, name, wanted, when, number):
    """Whether it was killed there. The second run has ended it, and a third has nothing to do."""
    bench, entry, digests = prepared(kind, name)
    come = bench.killed(when, number, entry, allow_restart=True)
    done = bench.go(entry, allow_restart=True)
    assert (done.problems, done.failure) == ([], None), (when, number)
    assert state(bench) == wanted, (when, number)
    bench.count = 0
    assert not bench.go(entry, allow_restart=True).changed, (when, number)
    assert bench.count == 0, (when, number)
    names = {d.name for d in (*bench.vm().disks, *bench.vm(TWO).disks, *bench.read().detached)}
    assert {n: bench.digest(n) for n in digests if n in names} == {n: digests[n] for n in digests if n in names}
    assert (set(digests) - names) == ({"data"} if name == "destroy" else set())
    bench.assert_lawful()
    every = [p.disk for p in disk_places(bench.read())]
    assert not any(d.guarded or "from" in d.volume.user for d in every), (when, number)
    return come


def test_an_unfinished_disk_is_used_for_nothing(bench):
    number = 1
    while not any(d.name == "twin" for d in bench.read().detached):
        assert bench.killed("before", number, {"name": "twin", "source": "a"})
        number += 1
    assert bench.disk("twin").volume.user["from"] == "import"
    for entry in ({"vm": "web01", "state": "attached"}, {"state": "detached"}):
        assert "interrupted; state=present of flexdisk.hypervisor.disk ends it" in bench.refused(
            "InUse", {"name": "twin", **entry}
        )
    bench.refused("InUse", {"name": "other", "source": "twin"})
    bench.four_steps({"name": "twin", "state": "absent"})
    assert ONE not in [d.vm for d in bench.read().detached]
