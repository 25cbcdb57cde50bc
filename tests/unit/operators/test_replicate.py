# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which VMs the playbook replicate replicates from which host, and what it does not understand."""

from __future__ import annotations

import pytest
from hypothesis import given as draws
from hypothesis import strategies as st

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators import (
    replica_age,
    replicate,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.registered import (
    show_replicated,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.replicate_report import (
    report,
)

from .plays import DATA, DB, READ, WEB, calls, disk, host, order, refused, registered, vm

ENTRIES = [
    {"vm": "web", "host": "hv02"},
    {"vm": WEB, "host": "hv02"},
    {"vm": "web", "host": "hv03", "pool": "tank"},
    {"vm": "db", "host": "hv01"},
]
GIVEN = {"flexdisk_replicas": ENTRIES}


NAMES = {WEB: "web", DB: "db"}


def peer(name, *vms, ages=(None, None), every=None, no_age="", **more):
    known = {"every": every, "no_age": no_age}
    rows = [
        {"vm": uuid, "name": NAMES.get(uuid, uuid), "age": age, **known} for uuid, age in zip(vms, ages, strict=False)
    ]
    return {"host": name, "failover": "unchanged", **more, "vms": list(vms), "rows": rows}


def to(*peers, fresh=(), rounds=None):
    """The call of a host, which has nothing to do in the rounds after its own. fresh: name, to and seconds of each."""
    keys = ("name", "to", "seconds")
    unsent = [dict(zip(keys, one, strict=True)) for one in fresh]
    return {"peers": [*peers, *[None] * ((rounds or len(peers)) - len(peers))], "fresh": unsent}


def test_each_host_has_the_peers_of_its_vms():
    assert order("replicate", GIVEN, {}).reads
    assert calls("replicate", GIVEN) == {
        "hv01": to(peer("hv02", WEB), peer("hv03", WEB, pool="tank")),
        "hv02": to(peer("hv01", DB), rounds=2),
    }
    assert calls("replicate", {**GIVEN, "flexdisk_vm": "db"})["hv01"] == to(rounds=1)
    given = {**GIVEN, "flexdisk_vm": "web", "flexdisk_replica_host": "hv09"}
    assert calls("replicate", given)["hv01"] == to(peer("hv09", WEB))


def test_a_host_without_an_entry_has_nothing_to_replicate():
    """As where each home has its own in host_vars."""
    found = order("replicate", {}, inventory={"hv01": GIVEN})
    assert (found.problems, found.calls["hv02"]["peers"][0]) == ([], None)
    assert found.calls["hv01"]["peers"]
    found = order("replicate", {"flexdisk_vm": "web"}, inventory={"hv01": GIVEN})
    assert (found.problems, found.calls["hv02"]["peers"][0]) == ([], None)


def test_a_name_that_means_none_is_left_out_and_told_at_the_end():
    found = order("replicate", {"flexdisk_replicas": [*ENTRIES, {"vm": "nobody", "host": "hv02"}]})
    assert (found.problems, found.left_out) == ([], ["VM nobody is on none of hv01, hv02."])
    assert found.calls["hv02"] == to(peer("hv01", DB), rounds=2)


def test_replicas_of_a_vm_that_is_gone_can_be_given_up_if_all_hosts_are_read():
    gone = "dddd0000-0000-4000-8000-000000000000"
    read = {**READ, "hv02": {**host(), "parked": [{**disk("old", DATA), "vm": gone}]}}
    given = {"flexdisk_vm": gone, "flexdisk_replica_host": "hv01"}
    assert order("replicate", given, read).left_out
    given["flexdisk_replica_state"] = "absent"
    assert order("replicate", given, read).calls["hv02"] == to(peer("hv01", gone))
    found = order("replicate", given, read, unread=["hv03"])
    assert "hv03 could not be read" in found.left_out[0]
    assert found.calls["hv02"] == to()
    assert not order("replicate", GIVEN, unread=["hv03"]).left_out


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"flexdisk_replica_host": "hv02"}, ["flexdisk_replica_host needs flexdisk_vm"]),
        ({**GIVEN, "flexdisk_replica_state": "absent"}, ["flexdisk_replica_state=absent needs flexdisk_vm"]),
        (
            {**GIVEN, "flexdisk_vm": "web", "flexdisk_replica_state": "absent", "flexdisk_failover": True},
            ["flexdisk_failover=true needs the replicas that flexdisk_replica_state=absent gives up"],
        ),
        (
            {"flexdisk_replica_host": "hv02", "flexdisk_replica_state": "absent"},
            ["flexdisk_replica_host needs flexdisk_vm", "flexdisk_replica_state=absent needs flexdisk_vm"],
        ),
        ({}, ["flexdisk_replicas has no entry"]),
        ({"flexdisk_vm": "web"}, ["flexdisk_replicas has no entry"]),
    ],
)
def test_what_does_not_say_what_is_meant(given, texts):
    assert refused("replicate", given, read={}) == texts


def test_failover_needs_the_replicas():
    failover = {"flexdisk_vm": "web", "flexdisk_replica_host": "hv02", "flexdisk_failover": True}
    assert calls("replicate", {**failover, "flexdisk_replica_state": "present"})
    assert calls("replicate", {**failover, "flexdisk_failover": False, "flexdisk_replica_state": "absent"})


# -- the entries of a VM, however they name it

APP = "aaaa0000-0000-4000-8000-000000000000"


def app(given, **more):
    """What a play decides about the VM app-0 of the group app, on hv01."""
    read = {"hv01": host(replicated(APP, "app-0", "app-0", hv03=60), replicated(WEB, "web")), "hv02": host()}
    return order("replicate", given, read, **more)


POLICY = {"host": "hv03", "pool": "tank", "keep": {"daily": 3}, "bandwidth_limit": "1MiB"}


@pytest.mark.parametrize("meant", [{"group": "app"}, {"vm": APP}, {"vm": "app-0"}, {"vm": "aaaa"}, {"vm": " app-0 "}])
@pytest.mark.parametrize("name", ["app-0", APP, "aaaa0000", " app-0"])
@pytest.mark.parametrize("to_host", [{}, {"flexdisk_replica_host": "hv03"}])
def test_a_named_vm_has_its_entry(meant, name, to_host):
    """So that its replica is not made again in another pool, and what it keeps does not go."""
    others = [{"vm": "web", "host": "hv03"}, {"group": "none", "host": "hv03"}, {"vm": "nobody", "host": "hv02"}]
    given = {"flexdisk_replicas": [*others, {**POLICY, **meant, "every": 900}], "flexdisk_vm": name, **to_host}
    found = app(given)
    assert (found.problems, found.left_out) == ([], [])
    (one,) = found.calls["hv01"]["peers"]
    assert {**POLICY, "vms": [APP]}.items() <= one.items()


def test_a_host_without_an_entry_of_the_named_vm_gets_a_replica_all_the_same():
    given = {"flexdisk_replicas": [{"group": "app", **POLICY}], "flexdisk_vm": "app-0", "flexdisk_replica_host": "hv09"}
    (one,) = app(given).calls["hv01"]["peers"]
    assert (one["host"], one["vms"], "pool" in one) == ("hv09", [APP], False)
    own = [{"group": "app", **POLICY}, {"vm": APP, "host": "hv03", "pool": "fast"}]
    for more in ({}, {"flexdisk_replica_host": "hv03"}):
        (one,) = app({"flexdisk_replicas": own, "flexdisk_vm": "app-0", **more}).calls["hv01"]["peers"]
        assert one["pool"] == "fast"  # the entry of the VM comes before that of its group


def test_a_named_vm_without_an_entry_is_refused():
    given = {"flexdisk_replicas": [{"group": "app", **POLICY}, {"vm": "nobody", "host": "hv02"}], "flexdisk_vm": "web"}
    assert app(given).problems == [
        "flexdisk_replicas of hv01 has no entry for VM web, but for nobody, group app. Say with flexdisk_replica_host"
        " where its replica is"
    ]
    missing = app({**given, "flexdisk_vm": "webb"})
    assert (missing.problems, missing.calls["hv01"]["peers"]) == ([], [])
    assert missing.left_out[0].startswith("VM webb is on none of hv01, hv02.")


def test_a_name_with_blanks_around_it_is_replicated():
    entries = {"flexdisk_replicas": [{"vm": " web ", "host": "hv03"}]}
    assert calls("replicate", entries)["hv01"] == to(peer("hv03", WEB))


def test_a_group_on_a_host_that_cannot_be_read_is_told():
    given = {"flexdisk_replicas": [{"group": "app", **POLICY}]}
    found = app(given, unread=["hv09"])
    assert found.left_out == ["hv09 could not be read and may have members of group app"]
    assert found.calls["hv01"]["peers"]
    assert not app({**given, "flexdisk_vm": "app-0"}, unread=["hv09"]).left_out


@pytest.mark.parametrize("more", [{"pool": "b"}, {"pool": None}, {"keep": {"daily": 9}}, {"every": 60}])
@pytest.mark.parametrize("run", [{}, {"flexdisk_vm": "web"}, {"flexdisk_vm": "web", "flexdisk_replica_host": "hv03"}])
def test_two_entries_that_contradict_each_other_are_refused(more, run):
    """Neither is meant more than the other, and nothing is done."""
    first = {"vm": "web", "host": "hv03", "pool": "a", "every": 900}
    given = {"flexdisk_replicas": [first, {**first, "vm": WEB, **more}], **run}
    assert refused("replicate", given) == [
        f"flexdisk_replicas of hv01 has two entries of web to hv03 that differ in {next(iter(more))}."
        " One of them must go"
    ]
    assert calls("replicate", {"flexdisk_replicas": [first, {**first, "vm": WEB}], **run})
    absent = {"flexdisk_vm": "web", "flexdisk_replica_state": "absent"}
    assert calls("replicate", {**given, **absent})["hv01"]["peers"]  # its replicas are given up wherever they are


# -- policies


def replicated(uuid, alias, member="", **ages):
    """A VM with two disks, whose replicas have these ages by hosts. The second disk is hidden and has none."""
    one = disk("root", uuid)
    one.update(hidden=False, replicas=[{"host": name, "synced": "x", "age": age} for name, age in ages.items()])
    return {**vm(uuid, alias, one, {**disk("seed", uuid), "hidden": True, "replicas": []}), "member": member}


@pytest.mark.parametrize(
    ("age", "every", "due"),
    [(None, 900, True), (0, None, True), (0, 900, False), (809, 900, False), (810, 900, True), (9999, 900, True)],
)
def test_a_replica_is_due_after_nine_tenths_of_its_interval(age, every, due):
    """The age counts from its snapshots. A run whose time has come finds it a little younger than the interval."""
    assert replica_age.is_due(age, every) is due


def test_what_is_fresh_is_left_alone():
    read = {**READ, "hv01": host(replicated(WEB, "web", hv02=60, hv03=4000))}
    entries = [{"vm": "web", "host": name, "every": 3600} for name in ("hv02", "hv03")]
    given = {"flexdisk_replicas": entries}
    due = peer("hv03", WEB, ages=[4000], every=3600)
    assert calls("replicate", given, read=read)["hv01"] == to(due, fresh=[("web", "hv02", 3180)])
    named = {**given, "flexdisk_vm": "web"}
    both = to(peer("hv02", WEB, ages=[60], every=3600), due)
    assert calls("replicate", named, read=read)["hv01"] == both


def test_a_disk_without_a_replica_makes_its_vm_due():
    web = replicated(WEB, "web", hv02=60)
    web["disks"].append({**disk("new", DATA), "hidden": False, "replicas": []})
    given = {"flexdisk_replicas": [{"vm": "web", "host": "hv02", "every": 3600}]}
    due = peer("hv02", WEB, every=3600, no_age="disk new has no sync yet")
    assert calls("replicate", given, read={**READ, "hv01": host(web)})["hv01"] == to(due)


def note(age, synced="2026-11-30T00:00:00Z", name="hv02"):
    return {"host": name, "age": age, "synced": synced}


@pytest.mark.parametrize(
    ("notes", "seconds", "reason"),
    [
        ([], None, ""),
        ([[], []], None, ""),
        ([[note(None, "")], [note(5, name="hv03")]], None, ""),  # begun, and elsewhere
        ([[note(5)], [note(7)]], 7, ""),
        ([[note(5)], []], None, "disk disk1 has no sync yet"),
        ([[note(5)], [note(None, "")]], None, "disk disk1 has no sync yet"),
        ([[note(5)], [], []], None, "2 disks have no sync yet"),
        ([[note(None)], []], None, "disk disk1 has no sync yet"),
        ([[note(5)], [note(None)]], None, "not known: by another clock"),  # it came with a move
    ],
)
def test_why_a_replica_has_no_age(notes, seconds, reason):
    """A disk was attached, or there never was a replica, or nobody can tell. The second and third have no names."""
    disks = [
        {**disk("" if number else "root", DATA, volume=f"zones/web/disk{min(number, 1)}"), "replicas": some}
        for number, some in enumerate(notes)
    ]
    hidden = {**disk("seed", DATA), "hidden": True, "replicas": []}
    found = replica_age.replica_age({"disks": [*disks, hidden]}, "hv02")
    assert found == (seconds, reason)
    assert replica_age.age_text(*found) == (reason or ("7 s" if seconds else "never"))


@pytest.mark.parametrize(
    ("age", "every", "seconds", "text"),
    [
        (None, 900, 0, "next run"),
        (60, None, 0, "next run"),
        (810, 900, 0, "next run"),
        (809, 900, 1, "in 1 s"),
        (0, 3600, 3240, "in 54 min"),
    ],
)
def test_when_a_replica_is_due(age, every, seconds, text):
    assert (replica_age.due_in(age, every), replica_age.due_text(age, every)) == (seconds, text)
    assert replica_age.is_due(age, every) is (seconds == 0)


def test_groups():
    """All members, wherever they are. The entry of a VM itself comes first."""
    members = {f"aaaa000{number}-0000-4000-8000-000000000000": f"app-{number}" for number in range(3)}
    first, second, third = members
    read = {
        "hv01": host(*(replicated(uuid, members[uuid], members[uuid]) for uuid in (first, second))),
        "hv02": host(replicated(third, "app-2", "app-2"), replicated(DB, "db", None)),
    }
    entries = [{"group": "app", "host": "hv03", "every": 900}, {"vm": "app-0", "host": "hv03", "keep": {"daily": 2}}]
    assert order("replicate", {"flexdisk_replicas": entries[:1]}, {}).reads
    found = calls("replicate", {"flexdisk_replicas": entries}, read=read)
    assert [(one["vms"], one.get("keep"), "keep_home" in one) for one in found["hv01"]["peers"]] == [
        ([first], {"daily": 2}, False),
        ([second], None, False),
    ]
    assert found["hv02"]["peers"][0]["vms"] == [third]
    (problem,) = order("replicate", {"flexdisk_replicas": [{"group": "none", "host": "hv03"}]}, read).left_out
    assert problem == "Group none has no VM on hv01, hv02."
    twice = {**read, "hv02": host(replicated(first, "app-0", "app-0"))}
    found = order("replicate", {"flexdisk_replicas": entries[:1]}, twice)
    assert [one["vms"] for one in found.calls["hv01"]["peers"]] == [[second]]
    assert first in found.left_out[0]


def test_what_the_run_says_comes_before_the_entry():
    entry = {"vm": "web", "host": "hv02", "failover": True, "bandwidth_limit": "50MiB", "keep_home": {"last": 2}}
    given = {"flexdisk_replicas": [entry]}
    (one,) = calls("replicate", given)["hv01"]["peers"]
    assert one == peer("hv02", WEB, failover="present", bandwidth_limit="50MiB", keep_home={"last": 2})
    given.update(flexdisk_failover=False, flexdisk_bandwidth_limit=7)
    (one,) = calls("replicate", given)["hv01"]["peers"]
    assert (one["failover"], one["bandwidth_limit"]) == ("absent", 7)
    given.update(flexdisk_vm="web", flexdisk_replica_host="hv02")  # the entry of the same VM and host counts
    assert calls("replicate", given)["hv01"]["peers"] == [one]


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({}, "flexdisk_replicas: an entry needs either vm or group"),
        ({"vm": "a", "group": "b"}, "flexdisk_replicas, vm a: an entry needs either vm or group"),
        ({"vm": "a", "keep": {"daily": 0}}, "flexdisk_replicas, vm a: keep: it needs a number above 0"),
        ({"group": "a", "keep_home": {"x": 1}}, "flexdisk_replicas, group a: keep_home: it has x, but can have last"),
    ],
)
def test_an_entry_that_is_none(entry, text):
    assert refused("replicate", {"flexdisk_replicas": [{**entry, "host": "hv02"}]}, read={})[0].startswith(text)


@draws(
    sends=st.dictionaries(
        st.sampled_from("abcdef"), st.lists(st.sampled_from("uvwxyz"), max_size=6, unique=True), min_size=1
    ),
    most=st.integers(1, 3),
)
def test_rounds(sends, most):
    """Each sync is in one round; in a round a host sends to one other, and not too many send to one."""
    peers = {home: [{"host": name} for name in names] for home, names in sends.items()}
    rounds = replicate._rounds(peers, most)
    assert {home: sorted(one["host"] for one in some if one) for home, some in rounds.items()} == {
        home: sorted(names) for home, names in sends.items()
    }
    assert len({len(some) for some in rounds.values()}) == 1
    for one in zip(*rounds.values(), strict=True):
        receivers = [peer["host"] for peer in one if peer]
        assert receivers
        assert max(map(receivers.count, receivers)) <= most


# -- the end


def ended(uuid, peer_name="hv02", failure="", **more):
    row = {"vm": uuid, "complete": not failure, "sent_bytes": 3 << 20, "seconds": 1.5, "age": 4, "failure": failure}
    return {"peer": peer_name, "rows": [{**row, **more}]}


def test_the_table():
    both = peer("hv02", WEB, DB, ages=[4000, None], every=3600)
    call = to(both, fresh=[("a", "hv02", 9), ("b", "hv02", 8)], rounds=2)
    results = {"hv01": [{"peer": "hv02", "rows": [*ended(WEB)["rows"], *ended(DB, failure="no room")["rows"]]}]}
    found = report({"hv01": call, "hv03": to(fresh=[("c", "hv02", 7)])}, results, ["VM x is on none."])
    assert found.lines == [
        "VM   host  to    sent   took  age before  age after  next due   failed",
        "web  hv01  hv02  3 MiB  2 s   1 h 6 min   4 s        in 53 min",
        "db   hv01  hv02  3 MiB  2 s   never       never      next run   yes",
        "2 replicas were due, 3 replicas are fresh, 2 failed",
    ]
    assert found.failures == ["VM x is on none.", "db to hv02: no room"]
    found = report({"hv01": call}, results, check=True)
    assert found.lines[0].split() == ["VM", "host", "to", "to", "send", "age", "failed"]
    assert "about 3 MiB" in found.lines[1]
    assert found.lines[-1] == "2 replicas would be due, 2 replicas are fresh, 1 failed"


def test_the_end_of_the_run_fails_for_what_failed():
    """Of one VM there is no table, as its plan was shown; a run that gives replicas up shows nothing."""

    def shown(**given):
        results = [ended(WEB, failure="no room")]
        order = {"calls": {"hv01": to(peer("hv02", WEB)), "hv02": to(rounds=1)}, "left_out": ["No VM x"]}
        first = {"_flexdisk": given, "_flexdisk_order": order, "ansible_check_mode": False, "syncs": results}
        return show_replicated(registered({"hv01": first, "hv02": {}}, "syncs"))

    lines, problem = shown()
    assert lines[-1] == "1 replica was due, 2 failed"
    assert problem == "No VM x. web to hv02: no room"
    assert shown(flexdisk_vm="web") == ([], problem)
    assert shown(flexdisk_vm="web", flexdisk_replica_state="absent") == ([], "")


def test_a_host_that_was_lost_in_the_middle_has_failed():
    found = report({"hv01": to(peer("hv02", WEB))}, {})
    assert found.failures == ["web to hv02: hv01 was lost in the middle of the run"]
    assert found.lines[-1] == "1 replica was due, 1 failed"


def test_nothing_is_due():
    lines = ["no replica is due, 1 replica is fresh", "the next one, web to hv02, is due in 53 min"]
    assert report({"hv01": to(fresh=[("web", "hv02", 3236)])}, {}) == (lines, [])
    calls_of_two = {"hv01": to(fresh=[("web", "hv02", 99)]), "hv02": to(fresh=[("db", "hv01", 98)])}
    assert report(calls_of_two, {}).lines[1] == "the next one, db to hv01, is due in 98 s"
    assert report({"hv01": to()}, {}) == (["no replica is due"], [])


def test_a_disk_without_a_sync_is_told_in_check_mode():
    call = to(peer("hv02", WEB, every=3600, no_age="disk new has no sync yet"))
    found = report({"hv01": call}, {"hv01": [ended(WEB)]}, check=True)
    assert found.lines[1].split("  ")[-1] == "disk new has no sync yet"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "never"),
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (86400, "1 d"),
        (90061, "1 d 1 h"),
        (3660, "1 h 1 min"),
    ],
)
def test_ages_for_people(seconds, text):
    assert replica_age.age_text(seconds) == text
