# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Many VMs in one sync: they cost few commands, and one that fails does not stop the others."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_home import (
    FailoverHome,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records, trust
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.failover_calls import (
    Unprepared,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.transfers import (
    read_transfers,
    transfer_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .controller import Controller
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

    def broken(text, *stdin):
        if text[:2] == ["zfs", "set"] and "synced" in text[2] and any(replicas["web02"] in word for word in text):
            return 1, "", "cannot set property for 'web02': dataset does not exist\n"
        return run(text, *stdin)

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

    def broken(text, *stdin):
        if text[:2] == ["zfs", "set"] and text[2].startswith("flexdisk:replicas="):
            calls.append(text)
            if len(calls) == 2:
                return 1, "", "cannot set property: internal error: out of memory\n"
        return run(text, *stdin)

    monkeypatch.setattr(many.home.node, "run", broken)
    assert many.sender().finish(transfers, stock.complete, many.peer_name) == (True, [])
    assert len(calls) == 2 + len(OTHERS)


# -- what becomes of each VM


class Rows:
    """Syncs of several VMs that go on, and what became of each VM."""

    def __init__(self, many, *names):
        self.many = many
        self.vms = [OTHERS[name] for name in names]
        self.controller = Controller(many, {many.home_name: many.home, many.peer_name: many.peer})
        self.before = {}
        """What is done before a call, by the beginning of its name."""
        answers = self.controller._answers

        def first(call, check):
            for start, action in self.before.items():
                if call.name.startswith(start):
                    action()
            return answers(call, check)

        self.controller._answers = first

    def sync(self, check=False, **more):
        """Whether the replicas of each VM are complete, and what failed, by name."""
        given = self.controller.sync(self.many.home_name, self.many.peer_name, self.vms, goes_on=True, **more)
        rows = self.controller.does("replicate", given, check)["rows"]
        names = {uuid: name for name, uuid in OTHERS.items()}
        return {names[row["vm"]]: (row["complete"], row["failure"]) for row in rows}

    def write(self, *names):
        for name in names:
            self.many.home.ok("guest", "write", f"zones/{OTHERS[name]}/disk0", "1", "1", name)


@pytest.fixture
def rows(many, monkeypatch, tmp_path):
    folders = {id(many.home): "home", id(many.peer): "peer"}
    many.acting = lambda host: monkeypatch.setattr(records, "_FOLDER", str(tmp_path / folders[id(host)]))
    return Rows(many, *OTHERS)


@pytest.mark.parametrize("check", [True, False])
def test_a_vm_that_cannot_have_failover_does_not_stop_the_others(many, rows, check):
    many.home.ok("zfs", "create", f"zones/{OTHERS['web02']}/extra")
    many.home.ok("zfs", "set", "quota=1M", f"zones/{OTHERS['web02']}/extra")
    ended = rows.sync(check, failover="present")
    assert {name: complete for name, (complete, _failure) in ended.items()} == {
        "web01": True,
        "web02": False,
        "web03": True,
    }
    assert (ended["web01"][1], ended["web03"][1]) == ("", "")
    assert f"zones/{OTHERS['web02']}/extra" in ended["web02"][1]
    assert not many.home.points(many.home.disks(OTHERS["web02"])[0]["dataset"], "snapshot")


def test_if_none_can_have_failover_nothing_is_asked_of_the_peer(many, rows):
    for uuid in OTHERS.values():
        many.home.ok("zfs", "create", f"zones/{uuid}/extra")
        many.home.ok("zfs", "set", "quota=1M", f"zones/{uuid}/extra")
    ended = rows.sync(failover="present")
    assert all(f"zones/{OTHERS[name]}/extra" in failure for name, (_complete, failure) in ended.items())
    assert not any(f"zones/{OTHERS['web02']}/extra" in ended[name][1] for name in ("web01", "web03"))
    assert "Read what the peer has" not in rows.controller.answers


def test_a_replica_that_takes_no_stream_does_not_stop_the_others(many, rows):
    """It is no longer as it was when the sync was planned."""
    assert all(complete for complete, _failure in rows.sync().values())
    rows.write(*OTHERS)
    replica = f"{REPLICAS}/{many.home.disks(OTHERS['web02'])[0]['uuid']}"
    other = "aaaaaaaa-0000-4000-8000-00000000dead"
    rows.before["Let the streams in"] = lambda: many.peer.ok("zfs", "set", f"flexdisk:replica={other}", replica)
    ended = rows.sync()
    assert (ended["web01"], ended["web03"]) == ((True, ""), (True, ""))
    assert not ended["web02"][0]
    assert replica in ended["web02"][1]
    rows.before.clear()
    many.peer.ok("zfs", "set", f"flexdisk:replica={many.home.disks(OTHERS['web02'])[0]['uuid']}", replica)
    assert all(complete for complete, _failure in rows.sync().values())


def test_a_failure_of_a_vm_is_shown_for_that_vm_alone(many, rows, monkeypatch):
    """Whichever step has it: its snapshot cannot be taken, or its replica is not as it was."""
    assert all(complete for complete, _failure in rows.sync().values())
    rows.write(*OTHERS)
    run = many.home.node.run

    def broken(text, *stdin):
        if text[:2] == ["zfs", "snapshot"] and any(OTHERS["web02"] in word for word in text):
            return 1, "", "cannot create snapshot: out of space\n"
        return run(text, *stdin)

    monkeypatch.setattr(many.home.node, "run", broken)
    replica = f"{REPLICAS}/{many.home.disks(OTHERS['web03'])[0]['uuid']}"
    other = "flexdisk:replica=aaaaaaaa-0000-4000-8000-00000000dead"
    rows.before["Take stock"] = lambda: many.peer.ok("zfs", "set", other, replica)
    ended = rows.sync()
    assert ended["web01"] == (True, "")
    assert "out of space" in ended["web02"][1]
    assert replica in ended["web03"][1]
    assert "web0" not in ended["web02"][1] + ended["web03"][1]  # whose failure it is says the row


def test_a_failover_that_is_not_prepared_is_a_failure_of_that_vm(many, rows, monkeypatch):
    """The last step of a sync. The replicas of all are complete then."""
    record = FailoverHome._record

    def broken(self, host, vm, *more):
        if vm.config.alias == "web02":
            raise FlexdiskError("NotSupported", "no record of it")
        return record(self, host, vm, *more)

    monkeypatch.setattr(FailoverHome, "_record", broken)
    ended = rows.sync(failover="present")
    assert (ended["web01"], ended["web03"]) == ((True, ""), (True, ""))
    text = "The replicas are complete, but the failover of a VM is not prepared: no record of it [NotSupported]"
    assert ended["web02"] == (True, text)


def test_what_is_unprepared_for_nobody_by_name_is_told_to_all():
    stopped = Unprepared(["VM web (1): no", "hv02: out of space", "VM web (2): never"])
    assert str(stopped).endswith("is not prepared: VM web (1): no. hv02: out of space. VM web (2): never")
    assert stopped.of("web (1)", ["web (2)", "db"]).endswith("is not prepared: no. hv02: out of space")
    assert Unprepared(["VM web (2): never"]).of("web (1)", ["web (2)"]) == ""
    assert Unprepared(["VM web (1): no"]).of("web (1)", []).endswith(": no")


def test_two_vms_of_one_alias_keep_their_failures(many, rows):
    many.home.ok("vmadm", "update", OTHERS["web02"], "alias=web01")
    assert all(complete for complete, _failure in rows.sync().values())
    rows.write(*OTHERS)
    replica = f"{REPLICAS}/{many.home.disks(OTHERS['web02'])[0]['uuid']}"
    other = "flexdisk:replica=aaaaaaaa-0000-4000-8000-00000000dead"
    rows.before["Take stock"] = lambda: many.peer.ok("zfs", "set", other, replica)
    ended = rows.sync()
    assert (ended["web01"], ended["web03"]) == ((True, ""), (True, ""))
    assert replica in ended["web02"][1]
