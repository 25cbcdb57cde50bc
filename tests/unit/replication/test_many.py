# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many VMs in one sync: they cost few commands, and one that fails does not stop the others."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import trust
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    read_transfers,
    transfer_as_result,
)

from .world import REPLICAS, VM, World

OTHERS = {f"web{number:02}": f"bbbbbbbb-0000-4000-8000-{number:012}" for number in range(1, 4)}
SINCE = "2026-01-01T00:00:00Z"


class Many(World):
    """The VM db01, and others with one disk each."""

    def make(self):
        super().make()
        for name, uuid in OTHERS.items():
            payload = {
                "uuid": uuid,
                "alias": name,
                "brand": "bhyve",
                "ram": 128,
                "quota": 1,
                "flexible_disk_size": 256,
                "disks": [{"boot": True, "model": "virtio", "size": 64}],
            }
            assert self.home.node.run(["vmadm", "create"], json.dumps(payload))[0] == 0

    def sent(self, *names):
        """What has gone to the peer, which has not taken stock."""
        planned = self.planned(list(names))
        assert not planned.problems
        made, failures = self.sender().prepare(planned, self.peer_name)
        assert not failures
        transfers = read_transfers(json.loads(json.dumps([transfer_as_result(vm) for vm in made])))
        if any(disk.streams for vm in transfers for disk in vm.disks):
            self.send(transfers, self.receiver().open(transfers, [str(self.folder)]))
        return transfers

    def ended(self, transfers):
        """What the peer has, whether anything was changed, and what failed."""
        stock = self.receiver().close(transfers, SINCE)
        changed, failures = self.sender().finish(transfers, stock.complete, self.peer_name)
        return stock.complete, stock.changed or changed, stock.failures + failures


@pytest.fixture
def many(tmp_path, monkeypatch):
    return Many(tmp_path, monkeypatch)


def test_an_idle_sync_of_many_takes_as_many_commands_as_one_of_one(many):
    counts = []
    for names in (["web01"], [*OTHERS, "db01"]):
        many.ended(many.sent(*names))
        ran = []
        many.watch = lambda ran=ran: ran.append(1)
        complete, changed, failures = many.ended(many.sent(*names))
        many.watch = lambda: None
        assert (len(complete), changed, failures) == (len(names), False, [])
        counts.append(len(ran))
    assert counts[0] == counts[1]


def test_keys_outlast_the_whole_sync(many, monkeypatch):
    """The VMs are sent one after the other, so that the key of the last one is used last."""
    amounts = []
    monkeypatch.setattr(trust, "expiry", lambda amount: amounts.append(amount) or "20990101000000")
    transfers = many.sent(*OTHERS, "db01")
    each = [vm.sends for vm in transfers]
    assert min(each) > 0
    assert {*amounts} == {sum(each)}


def test_a_disk_that_has_gone_does_not_stop_the_others(many):
    transfers = many.sent(*OTHERS)
    lost = f"zones/{OTHERS['web02']}/disk0"
    stock = many.receiver().close(transfers, SINCE)
    assert sorted(stock.complete) == sorted(OTHERS.values())
    many.home.ok("vmadm", "delete", OTHERS["web02"])
    changed, (failure,) = many.sender().finish(transfers, stock.complete, many.peer_name)
    assert changed
    assert failure.startswith("web02")
    assert lost in failure
    for name in ("web01", "web03"):
        disk = many.home.disks(OTHERS[name])[0]["dataset"]
        assert "hv02@" in many.home.ok("zfs", "get", "-Ho", "value", "flexdisk:replicas", disk)
        assert many.home.points(disk, "bookmark") == [transfers[0].set]


def test_a_replica_that_cannot_be_dated_does_not_stop_the_others(many, monkeypatch):
    transfers = many.sent(*OTHERS)
    replicas = {name: f"{REPLICAS}/{many.home.disks(uuid)[0]['uuid']}" for name, uuid in OTHERS.items()}
    run = many.peer.node.run

    def broken(words, *stdin):
        if words[:2] == ["zfs", "set"] and "synced" in words[2] and any(replicas["web02"] in word for word in words):
            return 1, "", "cannot set property for 'web02': dataset does not exist\n"
        return run(words, *stdin)

    monkeypatch.setattr(many.peer.node, "run", broken)
    complete, changed, (failure,) = many.ended(transfers)
    assert (sorted(complete), changed) == (sorted({OTHERS["web01"], OTHERS["web03"]}), True)
    assert failure.startswith("web02")
    assert VM not in complete
    for name in ("web01", "web03"):
        assert many.peer.ok("zfs", "get", "-Ho", "value", "flexdisk:replica.synced", replicas[name]) == SINCE


def test_news_before_a_failure_are_told(many, monkeypatch):
    """The first note is written for all, the second fails at first: the retry finds the first as it shall be."""
    transfers = many.sent(*OTHERS)
    stock = many.receiver().close(transfers, SINCE)
    many.sender().finish(transfers, stock.complete, many.peer_name)
    disk = many.home.disks(OTHERS["web01"])[0]["dataset"]
    many.home.ok("zfs", "set", "flexdisk:replicas=abcdef01=hv03@", disk)
    run, calls = many.home.node.run, []

    def broken(words, *stdin):
        if words[:2] == ["zfs", "set"] and words[2].startswith("flexdisk:replicas="):
            calls.append(words)
            if len(calls) == 2:
                return 1, "", "cannot set property: internal error: out of memory\n"
        return run(words, *stdin)

    monkeypatch.setattr(many.home.node, "run", broken)
    assert many.sender().finish(transfers, stock.complete, many.peer_name) == (True, [])
    assert len(calls) == 2 + len(OTHERS)
