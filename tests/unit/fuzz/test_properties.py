# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""User properties that anybody may have written: they are data, and never enough to destroy or to shorten something."""

from __future__ import annotations

import contextlib
import os

from hypothesis import given, seed
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import NAMES
from tests.unit.engine.conftest import IMAGE, VM

from .node import FAST, TEXTS, watched

SEED = seed(int(os.environ["FLEXDISK_SEED"]))
VALUES = st.one_of(
    TEXTS, st.sampled_from(["true", "false", "root", "a", "b", "p", VM, "20480:320", "0:4:2", "2026-01-01T00:00:00Z"])
)
LOCAL = st.tuples(
    st.sampled_from(["disk0", "disk1", "disk2", "parked", "root", "image", "new"]), st.sampled_from(NAMES), VALUES
)
TASKS = st.sampled_from(
    [
        {"disks": [{"name": "root"}, {"name": "a"}, {"name": "b"}]},
        {"disks": [{"name": "root", "boot": True}, {"name": "a", "size": 128}, {"name": "b", "size": 64}]},
        {"disks": [{"name": "root"}, {"name": "a", "size": 256}, {"name": "p"}], "unlisted": "detach"},
        {"disks": [{"name": "root"}], "unlisted": "detach"},
        {"disks": [{"name": "a", "size": "remaining"}], "unlisted": "keep"},
        {"disks": [{"name": "new", "size": 16}], "unlisted": "detach"},
        {"disks": [], "unlisted": "keep"},
        {"flexible_disk_size": 30720},
    ]
)
"""Tasks that give nothing up."""


def places(sim):
    """The datasets whose properties somebody writes."""
    detached = [d.volume.name for d in sim.vm().detached]
    sim.run("zfs", "create", "-V", "32M", f"zones/{VM}/disk7")
    known = {"root": f"zones/{VM}", "image": f"zones/{IMAGE}", "parked": [*detached, f"zones/{VM}/disk3"][0]}
    return {**known, "new": f"zones/{VM}/disk7", **{disk: f"zones/{VM}/{disk}" for disk in ("disk0", "disk1", "disk2")}}


def volumes(sim):
    """Every volume by guid: its size and its contents."""
    pool = sim.node.pools.pools["zones"]
    found = {d.guid: d for d in pool.datasets.values() if d.kind == "volume"}
    return {guid: (d.volsize, sim.digest(d.name, "0", "16")) for guid, d in found.items()}


@SEED
@FAST
@given(written=st.lists(LOCAL, max_size=6), adopted=st.booleans(), task=TASKS)
def test_what_gives_nothing_up_destroys_nothing(written, adopted, task):
    """Neither a volume nor a snapshot goes, none is shortened; refusals and typed errors are fine."""
    sim = watched(adopted)
    where = places(sim)
    for which, name, value in written:
        sim.node.run(("zfs", "set", f"flexdisk:{name}={value}", where[which]))
    before = volumes(sim)
    sim.calls.clear()
    with contextlib.suppress(FlexdiskError):
        sim.converge({"vm": "web01", **task})
        sim.quota()
    assert sim.destroying() == []
    after = volumes(sim)
    for guid, (size, digest) in before.items():
        assert after[guid][0] >= size
        assert after[guid][1] == digest
    assert "@kept" in sim.run("zfs", "list", "-Hr", "-t", "snapshot", "-o", "name", "zones")


@SEED
@FAST
@given(facts=st.lists(st.tuples(st.sampled_from(NAMES), VALUES.filter(lambda v: not set(v) & set("\t\n"))), max_size=6))
def test_inherited_ones_count_for_nothing(facts):
    """What a dataset above carries says nothing of the volumes below it."""
    sim = watched(False)
    before = sim.vm()
    for name, value in facts:
        for above in ("zones", f"zones/{VM}"):
            sim.node.run(("zfs", "set", f"flexdisk:{name}={value}", above))
    after = sim.vm()
    assert after.disks == before.disks
    assert [d.adopted for d in after.disks] == [False] * len(after.disks)


@SEED
@FAST
@given(value=VALUES, name=st.sampled_from(NAMES))
def test_unlisted_destroy_needs_more_than_properties(value, name):
    """Under unlisted=destroy a disk that no run has adopted is a refusal, unless its own properties name it."""
    sim = watched(False)
    for above in ("zones", f"zones/{VM}"):
        sim.node.run(("zfs", "set", f"flexdisk:{name}={value}", above))
    sim.calls.clear()
    with contextlib.suppress(FlexdiskError):
        done = sim.converge({"vm": "web01", "unlisted": "destroy", "disks": [{"name": "root", "boot": True}]})
        assert done.problems
    assert sim.destroying() == []
