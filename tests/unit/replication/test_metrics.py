# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What host_metrics tells of replicas and of moves, on both hosts."""

from __future__ import annotations

import re
import time

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_metrics
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.sizes import MIB
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import seconds_of

from .test_move import move, smartos
from .world import REPLICAS, VM


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    return smartos(tmp_path, monkeypatch)


def metrics(host, *labels, policies=()):
    """The metrics of a host that have all of these labels, by their names and disks."""
    arguments = host_metrics.MetricsArguments("", policies)
    text = host_metrics.run(host.zfs(), host.driver(), None, arguments, False)[0]["text"]
    lines = [re.fullmatch(r"flexdisk_([a-z_]+){(.*)} (-?[0-9]+)", line) for line in text.splitlines() if line[0] != "#"]
    matches = [(match[1], dict(re.findall(r'([a-z_]+)="([^"]*)"', match[2])), int(match[3])) for match in lines]
    return {
        (name, here.get("disk", "")): value
        for name, here, value in matches
        if all(label in here.items() for label in labels)
    }


def test_how_old_replicas_are(world):
    """The disk's host tells what each replica lacks, the replica's host how much it takes; both, since when."""
    began = int(time.time())
    assert world.sync()[1]
    uuids = [*world.disks()]
    for uuid in uuids:
        samples = metrics(world.home, ("vm", VM), ("replica_host", world.peer_name))
        assert began <= samples["disk_replica_synced_timestamp_seconds", uuid] <= time.time()
        assert samples["disk_replica_lag_bytes", uuid] == 0
        there = metrics(world.peer, ("vm", VM), ("pool", "zones"))
        synced = world.peer.ok("zfs", "get", "-Ho", "value", "flexdisk:replica.synced", f"{REPLICAS}/{uuid}")
        assert there["replica_synced_timestamp_seconds", uuid] == seconds_of(synced)
        assert there["replica_used_bytes", uuid] > 8 * MIB
    world.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    world.write(0, 3)
    samples = metrics(world.home, ("vm", VM))
    assert 3 * MIB <= samples["disk_replica_lag_bytes", uuids[0]] < 4 * MIB
    assert samples["disk_replica_lag_bytes", uuids[1]] == 0
    dataset = world.disks()[uuids[0]]
    world.home.ok("zfs", "snapshot", f"{dataset}@mine")
    assert metrics(world.home)["disk_replica_lag_bytes", uuids[0]] == samples["disk_replica_lag_bytes", uuids[0]]
    for point in world.home.points(dataset):
        world.home.ok("zfs", "destroy", f"{dataset}@{point}")
    assert ("disk_replica_lag_bytes", uuids[0]) not in metrics(world.home)


def test_a_vm_that_has_moved(world):
    """Its old host tells of the tombstone, and of the replicas that it has now."""
    began = int(time.time())
    assert move(world)
    samples = metrics(world.home, ("vm", VM))
    moved = metrics(world.home, ("vm", VM), ("phase", "moved"), ("host", world.peer_name))
    assert began <= moved["move_since_timestamp_seconds", ""] <= time.time()
    assert ("vm_quota_drift_bytes", "") not in samples
    assert ("vm_quota_drift_bytes", "") in metrics(world.peer, ("vm", VM))
    assert all(("replica_used_bytes", disk["uuid"]) in samples for disk in world.peer.disks(VM))


def test_how_often_policies_ask_for_a_sync(world):
    """For the VMs of this host only. The entry of a VM comes before that of its group."""
    given = [
        {"group": "web", "host": "hv02", "every": 60},
        {"vm": "db01", "host": "hv02", "every": 900},
        {"vm": VM, "host": "hv03", "every": 3600},
        {"vm": "other", "host": "hv02", "every": 60},
        {"vm": "db01", "host": "hv04"},
    ]
    policies = host_metrics.parse({"path": None, "replicas": given})[0].policies
    for peer, every in {"hv02": 900, "hv03": 3600}.items():
        samples = metrics(world.home, ("vm", VM), ("replica_host", peer), policies=policies)
        assert samples == {("vm_replica_every_seconds", ""): every}
    assert metrics(world.peer, ("replica_host", "hv02"), policies=policies) == {}
    world.home.ok("zfs", "set", "flexdisk:member=web-1", f"zones/{VM}")
    samples = metrics(world.home, ("vm", VM), policies=policies[:1])
    assert samples["vm_replica_every_seconds", ""] == 60
