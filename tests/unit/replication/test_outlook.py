# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is told of a move before it: how long the VM will be down, and what pools must give."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host import lock
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import rates
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import report
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.outlook import (
    Hosts,
    downtime,
    lines,
    move_end,
    resume_message,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import seconds_of

from .world import World

MIB = 1 << 20


def sync(*kinds, size=24 * MIB, rate=8 * MIB):
    space = [
        {"here": True, "pool": "zones", "needs": 0, "available": 5 * MIB},
        {"here": False, "pool": "tank", "needs": size, "available": 9 * MIB},
    ]
    disks = [{"streams": [{"kind": kind}]} for kind in kinds]
    return {"msg": "sends", "transfers": [{"disks": disks}], "stream_bytes": size, "rate": rate, "space": space}


@pytest.mark.parametrize(
    ("known", "running", "text"),
    [
        (sync("increment", "rollback"), True, "about 3 s for 24 MiB at 8 MiB/s, beside shutdown and start"),
        (sync("increment", size=9 * MIB), True, "about 2 s for 9 MiB at 8 MiB/s, beside shutdown and start"),
        (sync("increment", rate=0), True, "not known: 24 MiB have changed, and no rate has been measured yet"),
        (sync("increment", "full"), True, "not known before its disks are there"),
        (sync("resume"), True, "not known before its disks are there"),
        (sync("full", rate=0), False, "none, for it does not run"),
    ],
)
def test_how_long_it_is_down(known, running, text):
    """Nothing is guessed."""
    assert downtime(known, running) == text


def test_space_on_both_sides():
    shown = lines(sync("increment"), "db01", Hosts("hv01", "hv02"), True, 3 * MIB)
    assert shown[-2:] == [
        "space: pool zones of hv01 has 5 MiB free; the snapshots take at most 0 B",
        "space: pool tank of hv02 has 9 MiB free; its replicas take 24 MiB more, and the VM 3 MiB beside them",
    ]
    assert lines(sync("increment"), "db01", Hosts("hv01", "hv02"), False, 0)[2] == (
        "leave: db01 is kept from being started"
    )


def test_the_rate_is_that_of_the_last_transfer(tmp_path, monkeypatch):
    """If it was long enough to tell, and if it can be written down."""
    monkeypatch.setattr(lock, "place", lambda: str(tmp_path))
    assert rates.load(7) == 0
    for size, seconds, expected in ((30 * MIB, 2.0, 15 * MIB), (MIB - 1, 1.0, 15 * MIB), (4 * MIB, 4.0, MIB)):
        rates.store(7, size, seconds)
        assert (rates.load(7), rates.load(8)) == (expected, 0)
    (tmp_path / "rate-00000007").write_text("fast")
    assert rates.load(7) == 0
    monkeypatch.setattr(lock, "place", lambda: str(tmp_path / "nowhere"))
    rates.store(7, 4 * MIB, 1.0)


def test_a_sync_tells_its_rate_and_its_space(tmp_path, monkeypatch):
    """What the pools have less afterwards is what was told: here at most, for the guest may write meanwhile."""
    monkeypatch.setattr(rates, "_MIN_BYTES", 1)
    world = World(tmp_path, monkeypatch)
    planned = world.planned()
    assert planned.rate == 0
    before = [int(host.ok("zfs", "get", "-Hpo", "value", "available", "zones")) for host in (world.home, world.peer)]
    assert [one.available for one in planned.space] == before
    assert world.sync()[1]
    after = [int(host.ok("zfs", "get", "-Hpo", "value", "available", "zones")) for host in (world.home, world.peer)]
    gave = [one - other for one, other in zip(before, after, strict=True)]
    assert 0 < gave[0] <= planned.space[0].needs
    assert abs(gave[1] - planned.space[1].needs) < MIB
    world.write(0, 5, 20)
    assert world.planned().rate > 0


def test_what_is_said_of_a_move_that_was_interrupted():
    """Where the VM is before the run goes on, and how long it was down in all, not in the last run alone."""
    hosts = Hosts("hv01", "hv02")
    begun = {"phase": "leaving", "since": "2026-01-01T05:00:00Z", "state": "running"}
    assert resume_message("db01", hosts, None) == ""
    assert resume_message("db01", hosts, begun) == (
        "the move of db01 to hv02, begun at 2026-01-01T05:00:00Z, was interrupted: hv01 still has the VM; this run goes"
        " on"
    )
    gone = resume_message("db01", hosts, {**begun, "phase": "moved"})
    assert "the VM has left hv01, and is down until it is on hv02; this run goes on" in gone
    start = seconds_of("2026-01-01T05:00:00Z")
    assert move_end("db01", hosts, begun, True, start + 590, start + 600) == (
        "db01 is on hv02; its move had been interrupted, and it was down for about 600 s, since 2026-01-01T05:00:00Z by"
        " the clock of hv01",
        600,
    )
    assert move_end("db01", hosts, None, True, 100, 112.52) == ("db01 is on hv02; it was down for 12.5 s", 12.5)
    assert move_end("db01", hosts, begun, False, 1, 2) == ("db01 is on hv02; it did not run before", None)


def test_what_is_said_of_a_sync():
    """How much in which time, and how old the replicas are; no age where an older snapshot may have arrived."""
    vms = [
        {"uuid": "a", "alias": "db01", "idle": False, "disks": [{"streams": [{"kind": "increment"}]}]},
        {"uuid": "b", "alias": "", "idle": True, "disks": []},
        {"uuid": "c", "alias": "web01", "idle": False, "disks": [{"streams": [{"kind": "resume"}]}]},
        {"uuid": "d", "alias": "lost", "idle": False, "disks": []},
    ]
    sent = [{"vm": uuid, "sent_bytes": 5 * MIB, "seconds": 2.5} for uuid in "acd"]
    assert report.done(vms, sent, ["a", "b", "c"], "hv02", "2026-01-01T05:00:00Z", 3.4) == [
        "db01: 5 MiB sent to hv02 in 2.5 s; its replicas are as of 2026-01-01T05:00:00Z, 3 s ago",
        "b: its replicas on hv02 have everything that was written until now",
        "web01: 5 MiB sent to hv02 in 2.5 s; its replicas are complete; a transfer that was interrupted has ended",
    ]
