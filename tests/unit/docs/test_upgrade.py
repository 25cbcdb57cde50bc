# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page about upgrades: what 0.2.0 has written is read, and the page says what 0.2.0 cannot read of today's.

data/records_0.2.0.json was written by the code of that release: a record of each kind, and the fields that it knows.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from pathlib import Path

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import record
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import Intent
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import (
    disk_properties,
    failover,
    journal,
    lease,
    moves,
    released_identity,
    replicas,
    snapshots,
)

from ..playbooks.nodes import Nodes

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "upgrade.md").read_text()
DATA = json.loads((ROOT / "tests" / "unit" / "data" / "records_0.2.0.json").read_text())
WRITTEN, FIELDS = DATA["written"], DATA["fields"]
VM, PLAN = "cafe0000-0000-4000-8000-000000000000", "0f0e0d0c-0000-4000-8000-00000000000a"
SINCE = "2026-11-27T08:00:00Z"
PLACE = f"zones/flexdisk/move/{VM}"


def test_interrupted_runs():
    entry = journal.decode(WRITTEN["intent"])
    assert entry == Intent(
        PLAN, "hv01", SINCE, "running", True, True, ("stop", "+ data 20 GiB"), ((7, "zones/a", "zones/b"),), boots=True
    )
    assert journal.decode_index(WRITTEN["intents"]) == [VM]


def test_leases():
    assert lease.decode(WRITTEN["lease"]) == lease.Lease(PLAN, "roll of web", 1795766400, 1795766460, 900)


def test_moves():
    tombstone = moves.decode_at(PLACE, WRITTEN["move"])
    assert tombstone == moves.Move(moves.MOVED, VM, "web01", "hv02", 1234567890123456789, "running", True, SINCE)
    coming = moves.decode_at(PLACE, WRITTEN["coming"])
    assert (coming.phase, coming.back_to, coming.term) == (moves.COMING, "flexdisk-sync-0000abcd-3", moves.UNKNOWN)
    assert moves.previous_tombstone(coming) == tombstone


def test_failover_and_replicas():
    assert failover.decode_setting(WRITTEN["failover"]) == failover.FailoverSetting(True, 2)
    assert failover.decode_setting(WRITTEN["failover_without"]) is None
    assert failover.term_of(WRITTEN["failover_without"]) == 2
    notes = [replicas.Note("0000abcd", "hv02", SINCE), replicas.Note("0000abce", "hv03", "", 77)]
    assert replicas.decode_notes(WRITTEN["replicas"]) == notes


def test_what_a_release_keeps():
    kept = released_identity.decode(WRITTEN["released"])
    assert (kept.name, kept.serial_no, kept.ctime) == ("data", 4, SINCE)
    assert kept.user_properties == {"tags": {"owner": "ops"}, "description": "a \u00e4"}


def test_snapshots_of_vms_that_have_moved():
    assert snapshots.decode(WRITTEN["parts"]) == snapshots.Origin(1795766400, (17, 255))


def test_records_of_vms():
    read = record.read_record(copy.deepcopy(WRITTEN["record"]))
    assert (read.alias, read.marks, read.disks[0].name) == ("web01", {"failover": "on:2"}, "data")
    assert json.loads(json.dumps(record.record_as_result(read))) == WRITTEN["record"]  # so no sync writes it again


def fields_now():
    return {
        "intent": Intent._fields,
        "lease": lease.Lease._fields,
        "move": moves.Move._fields,
        "record": [field.name for field in dataclasses.fields(record.Record)],
        "disk of record": [field.name for field in dataclasses.fields(record.DiskRecord)],
        "released": {*released_identity._FIELDS, *disk_properties.PROPERTIES},
        "properties": record.OWN,
    }


def test_the_page_says_what_the_older_version_cannot_read():
    """0.2.0 reads no record with a field that it does not know. New fields change the table of the page."""
    added = {kind: {*fields} - {*FIELDS[kind]} for kind, fields in fields_now().items()}
    assert {kind for kind, names in added.items() if names} == {"intent", "move", "properties"}
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert any(row.startswith("| interrupted runs | cannot be read") for row in rows)
    assert any(row.startswith("| moves, failovers, tombstones | cannot be read") for row in rows)
    (refused,) = (row for row in rows if "this is no record of a VM" in row)
    assert {word.strip("`,") for word in refused.split() if word.startswith("`")} >= added["properties"]


@pytest.mark.long
def test_an_interrupted_run_of_the_older_version_is_ended(tmp_path):
    """It had stopped the VM. The next run for it starts the VM again, and clears the record."""
    nodes = Nodes(tmp_path, {"hv01": ""})
    vm = nodes.create("hv01", "db01", 1024, 2, {}, flexible=6)
    nodes.run("hv01", "vmadm", "stop", vm)
    nodes.run("hv01", "zfs", "create", "-o", "mountpoint=none", "zones/flexdisk")
    entry = WRITTEN["intent"].replace('"host":"hv01"', f'"host":"{os.uname().nodename}"')
    nodes.run("hv01", "zfs", "set", f"flexdisk:intent.{vm}={entry}", f"flexdisk:intents={vm}", "zones/flexdisk")
    status, printed = nodes.play("status")
    assert (status, "db01: a run was interrupted" in printed) == (2, True), printed
    words = ("-e", "flexdisk_vm=db01", "-e", "flexdisk_disk=data", "-e", "flexdisk_disk_size=1GiB")
    status, printed = nodes.play("add_disk", *words)
    assert status == 0, printed
    (found,) = json.loads(nodes.run("hv01", "vmadm", "lookup", "-j"))
    assert (found["state"], len(found["disks"])) == ("running", 2)
    assert "flexdisk:intent" not in nodes.run("hv01", "zfs", "get", "-Ho", "property", "all", "zones/flexdisk")
    assert nodes.play("status")[0] == 0
