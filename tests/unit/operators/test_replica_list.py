# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The table of the playbook list_replicas: ages, when replicas are due, and what is wrong with them."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_replicas,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.replica_list import (
    replica_list,
)

from .plays import DATA, DB, OLD, WEB, calls, disk, host, order, registered, vm

NOON = "2026-11-30T12:00:00Z"
LATER = "2026-11-30T12:00:09Z"


def with_replicas(name, uuid, **ages):
    """A disk with replicas of these ages on these hosts; None before the first sync has ended."""
    notes = [{"host": one, "age": age, "synced": "" if age is None else NOON} for one, age in ages.items()]
    return {**disk(name, uuid), "replicas": notes, "hidden": False}


def replica(uuid, owner=WEB, age=60, **more):
    known = {"uuid": uuid, "vm": owner, "age": age, "synced": "" if age is None else LATER, "written_bytes": 0}
    known |= {"dataset": f"zones/flexdisk/replica/{uuid}", "interrupted": False, "key_loaded": True, "snapshots": []}
    return {**known, **more}


def has(*replicas):
    return {"replicas": list(replicas)}


def wants(*entries):
    """What the entries want of a host: the VM, the host of its replicas, and every."""
    return {"replicas": [{"vm": uuid, "host": name, "every": every} for uuid, name, every in entries]}


TWO = vm(WEB, "web", with_replicas("root", DATA, hv02=60), with_replicas("data", OLD, hv02=50))
READ = {"hv01": host(TWO), "hv02": host()}
STORED = {"hv01": has(), "hv02": has(replica(DATA), replica(OLD, age=50, synced=NOON))}
HOURLY = {"hv01": wants((WEB, "hv02", 3600)), "hv02": wants()}


def row(read=None, stored=None, wanted=None, **more):
    """The cells of the only row."""
    head, line, *_rest = replica_list(read or READ, stored or STORED, wanted or HOURLY, **more)
    starts = [head.index(name) for name in ("VM", "HOME", "REPLICA ON", "SYNCED", "AGE", "NEXT DUE", "PROBLEMS")]
    return [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_a_vm_with_replicas():
    """It is as old as the oldest one. When it was complete is by the clock of their host, as failover_vm shows it."""
    assert replica_list(READ, STORED, HOURLY) == [
        "VM   HOME  REPLICA ON  SYNCED                AGE   NEXT DUE   PROBLEMS",
        "web  hv01  hv02        2026-11-30T12:00:00Z  60 s  in 53 min",
        "1 replica of VMs on 2 hosts",
    ]


def test_without_any_replica():
    assert replica_list({"hv01": host()}, {"hv01": has()}, {"hv01": wants()}) == ["0 replicas of VMs on 1 host"]


@pytest.mark.parametrize(
    ("wanted", "age", "due", "problems"),
    [
        (HOURLY, 3300, "next run", ""),
        (HOURLY, 3601, "next run", "older than 1 h"),
        ({"hv01": wants((WEB, "hv02", None))}, 60, "next run", ""),
        ({"hv01": wants()}, 60, "no entry", ""),
    ],
)
def test_when_it_is_due(wanted, age, due, problems):
    read = {**READ, "hv01": host(vm(WEB, "web", with_replicas("root", DATA, hv02=age)))}
    assert row(read, {**STORED, "hv02": has(replica(DATA))}, wanted)[5:] == [due, problems]


def test_a_replica_that_never_was():
    read = {**READ, "hv01": host(vm(WEB, "web", with_replicas("root", DATA)))}
    assert row(read, {"hv01": has(), "hv02": has()})[3:] == ["never", "never", "next run", ""]


def test_a_disk_that_was_attached_since():
    disks = with_replicas("root", DATA, hv02=60), with_replicas("new", OLD)
    read = {**READ, "hv01": host(vm(WEB, "web", *disks))}
    cells = row(read, {**STORED, "hv02": has(replica(DATA))})
    assert cells[3:] == [LATER, "", "next run", "disk new has no sync yet"]


@pytest.mark.parametrize(
    ("replicas", "problem"),
    [
        ([replica(DATA)], "hv02 has no replica of disk data"),
        ([replica(DATA), replica(OLD, interrupted=True)], "disk data: a transfer was interrupted"),
        ([replica(DATA), replica(OLD, written_bytes=9)], "disk data: its replica was written to"),
        ([replica(DATA), replica(OLD, key_loaded=False)], "disk data: the key of its replica is not loaded"),
        (
            [replica(DATA), replica(OLD), replica(DB, interrupted=True)],  # of a disk that the VM does not have
            f"zones/flexdisk/replica/{DB}: a transfer was interrupted",
        ),
    ],
)
def test_what_is_wrong_with_one_disk(replicas, problem):
    assert row(stored={**STORED, "hv02": has(*replicas)})[6] == problem


def test_a_home_that_is_off():
    """The hosts of replicas tell of them; when they are due, nobody can say. The VM is known by its UUID only."""
    lines = replica_list(
        {"hv02": host()}, {"hv02": STORED["hv02"]}, {"hv02": wants()}, ["hv01"], ["VM web is on none."]
    )
    assert lines[1].split("  ")[:2] == [WEB, "not found"]
    assert "60 s" in lines[1]
    assert lines[1].endswith("no host that was read has the VM")
    assert lines[2:] == [
        "1 replica of VMs on 1 host, 1 with problems",
        "hv01 could not be read, and may have more",
        "VM web is on none.",
    ]


def test_a_host_of_replicas_that_is_off():
    cells = row({"hv01": READ["hv01"]}, {"hv01": has()}, unread=["hv02"])
    assert cells[3:] == [NOON, "60 s", "in 53 min", "hv02 was not read"]


def test_a_vm_on_two_hosts_and_on_the_host_of_its_replicas():
    read = {"hv01": host(TWO), "hv03": host(TWO)}
    assert row(read, {**STORED, "hv03": has()})[1::5] == ["hv01 and hv03", "several hosts have the VM: see status"]
    read = {"hv01": host(), "hv02": host(vm(WEB, "web", with_replicas("root", DATA)))}
    assert row(read, {"hv01": has(), "hv02": has(replica(DATA))}, {"hv01": wants()})[6] == "the VM itself is there"


def test_a_replica_of_an_unknown_vm():
    stored = {"hv01": has(), "hv02": has(replica("", owner="", interrupted=True))}
    cells = row({"hv01": host(), "hv02": host()}, stored, {"hv01": wants()})
    assert cells[:3] == ["unknown", "not found", "hv02"]


def test_what_the_entries_want():
    """As the playbook decides it, before it asks the hosts for replicas. A name that means none is told at the end."""
    entries = [{"vm": "web", "host": "hv02", "every": 900}, {"vm": "nobody", "host": "hv02"}]
    given = {"flexdisk_replicas": entries}
    assert order("list_replicas", given, {}).reads
    assert order("list_replicas", {}, {}).reads  # replicas may be there without any entry
    found = order("list_replicas", given)
    assert (found.problems, found.left_out) == ([], ["VM nobody is on none of hv01, hv02."])
    assert found.calls == {"hv01": wants((WEB, "hv02", 900)), "hv02": wants()}
    assert calls("list_replicas", {}) == {"hv01": wants(), "hv02": wants()}
    twice = {"flexdisk_replicas": [entries[0], {**entries[0], "every": 60}]}
    assert "two entries of web to hv02 that differ in every" in order("list_replicas", twice).problems[0]


def test_a_disk_without_a_uuid():
    """It was attached by hand since, and nothing has given it one yet."""
    bare = {key: value for key, value in with_replicas("extra", "").items() if key != "uuid"}
    more = vm(WEB, "web", with_replicas("root", DATA, hv02=60), bare)
    cells = row(read={**READ, "hv01": host(more)}, stored={**STORED, "hv02": has(replica(DATA))})
    assert cells[4:] == ["", "next run", "disk extra has no sync yet"]


def test_what_the_tasks_have_registered():
    variables = {name: {"read": READ[name], "stored": STORED[name]} for name in ("hv01", "hv02")}
    variables["hv01"].update({"_flexdisk_order": {"calls": HOURLY, "left_out": ["x"]}, "_flexdisk": {}})
    variables["hv03"] = {}
    shown = show_replicas(registered(variables, "read", "stored", hosts=["hv01", "hv02"]))
    assert shown.lines == replica_list(READ, STORED, HOURLY, ["hv03"], ["x"])
    assert shown.problem == ""


def test_a_replica_of_a_detached_disk():
    """No sync renews it, so it says nothing of when the VM was replicated."""
    stored = {**STORED, "hv02": has(replica(DATA), replica(OLD), replica(DB, synced="2026-11-01T00:00:00Z"))}
    assert row(stored=stored)[3] == LATER


def test_the_snapshots_of_one_vm():
    """Newest first, each with the disks that have it."""
    first, second, third = ({"name": f"flexdisk-sync-{n}", "synced": f"2026-11-30T1{n}:00:00Z"} for n in (0, 1, 2))
    user = {"name": "vmsnap-nightly", "synced": ""}
    there = has(replica(DATA, snapshots=[user, first, second, third]), replica(OLD, snapshots=[user, second, third]))
    other = has(replica(DATA, snapshots=[third]), replica(OLD, snapshots=[third]), replica(DB, owner=DB))
    stored = {"hv01": has(), "hv02": there, "hv03": other}
    read = {**READ, "hv03": host(vm(DB, "db"))}
    for name in ("web", WEB, WEB[:8], WEB.upper()):
        assert replica_list(read, stored, HOURLY, vm=name)[3:-1] == [
            "VM   REPLICA ON  SNAPSHOT         AS IT WAS AT          DISKS",
            "web  hv02        flexdisk-sync-2  2026-11-30T12:00:00Z  data, root",
            "web  hv02        flexdisk-sync-1  2026-11-30T11:00:00Z  data, root",
            "web  hv02        flexdisk-sync-0  2026-11-30T10:00:00Z  root, not all of 2",
            "web  hv02        vmsnap-nightly   not known             data, root",
            "web  hv03        flexdisk-sync-2  2026-11-30T12:00:00Z  data, root",
        ]


def test_disks_of_the_same_name_and_without_a_replica():
    """A detached disk lacks newer sets, and an attached one without a replica is missing in all."""
    points = [{"name": "one", "synced": NOON}]
    parked = {**disk("root", DB), "state": "parked"}
    read = {"hv01": host({**TWO, "parked": [parked]}), "hv02": host()}

    def last(*stored):
        return replica_list(read, {"hv01": has(), "hv02": has(*stored)}, HOURLY, vm="web")[-2].split("Z  ")[1]

    both = replica(DATA, snapshots=points), replica(OLD, snapshots=points)
    assert last(*both, replica(DB)) == "data, root"
    assert last(*both, replica(DB, snapshots=points)) == "data, root, root"
    assert last(both[0]) == "root, not all of 2"


def test_a_name_that_means_no_vm_or_several():
    variables = {"_flexdisk_order": {"calls": HOURLY, "left_out": []}, "stored": STORED["hv02"], "read": READ["hv01"]}

    def problem(name, read):
        given = {**variables, "read": read, "_flexdisk": {"flexdisk_list_vm": name}}
        return show_replicas(registered({"hv01": given}, "read", "stored"))

    assert problem("db", host(TWO)) == ([], "no replicas of db are on the hosts that were read, but of: web")
    off = {"hv01": {**variables, "read": host(), "_flexdisk": {"flexdisk_list_vm": "web"}}, "hv02": {}}
    text = f"but of: {WEB}; hv02 could not be read: a VM whose home is off is found by its UUID"
    assert text in show_replicas(registered(off, "read", "stored", hosts=["hv01"])).problem
    twin = vm(DB, "web", with_replicas("root", DB, hv02=60))
    assert problem("web", host(TWO, twin)) == ([], f"web could be {' or '.join(sorted((DB, WEB)))}")
