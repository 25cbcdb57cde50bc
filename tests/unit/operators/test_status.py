# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbook status: one row for each thing, and commands that playbooks take."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import half_done as kinds
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.half_done import HalfDone
from ansible_collections.flexdisk.hypervisor.plugins.plugin_utils._playbook_variables import answers

ARGUMENTS = yaml.safe_load((Path(__file__).resolve().parents[3] / "playbooks" / "vars" / "arguments.yml").read_text())
WEB = "cafe0000-0000-4000-8000-000000000000"
THEN = "2026-11-29T10:00:00Z"
PLAY = "ansible-playbook flexdisk.hypervisor."
OURS = "flexdisk.hypervisor."


def one(kind, text="it is so", vm=WEB, alias="web", since=THEN, **more):
    return dict(HalfDone(kind, text, vm, alias, since, **more)._asdict(), inherit=list(more.get("inherit", ())))


def host(*entries, vms=()):
    return {"half_done": list(entries), "vms": [{"uuid": uuid, "alias": alias} for uuid, alias in vms]}


def shown(read, unread=()):
    """The rows without their table: the line in words, the command that goes on, and the one that gives up."""
    found = status(read, unread)
    rows = []
    for line in found.lines[1:] if found.lines[0].startswith("STATE") else []:
        words = line.strip()
        if line.startswith("    go on:"):
            rows[-1][1] = words.removeprefix("go on:").strip()
            check(rows[-1][1])
        elif line.startswith("    give up:"):
            rows[-1][2] = words.removeprefix("give up:").strip()
            check(rows[-1][2])
        elif line.startswith(("half done", "at work", "kept")):
            rows.append([" ".join(line.split()), "", ""])
    return [tuple(row) for row in rows]


def check(command):
    """A playbook takes these variables and their values; a module is one of ours, or runs zfs inherit."""
    program, name, *words = shlex.split(command)
    if program == "ansible":
        assert words[0] == "-m"
        assert words[2] == "-a"
        if words[1] == "ansible.builtin.command":
            assert words[3].startswith("zfs inherit flexdisk:")
        else:
            assert words[1].startswith(OURS)
            json.loads(words[3])
        return
    assert program == "ansible-playbook"
    given = {}
    while words:
        flag, value, *words = words
        assert flag in ("-e", "--limit")
        if flag == "-e":
            given.update(json.loads(value) if value[0] == "{" else [value.split("=", 1)])
    told = answers(given, ARGUMENTS["_flexdisk_arguments"][name.removeprefix(OURS)])
    assert told["problems"] == []


def test_nothing_is_half_done():
    found = status({"hv01": host(), "hv02": host()}, [])
    assert found.lines == ["nothing is half done on 2 hosts"]
    assert found.counts == {"half_done": 0, "at_work": 0, "kept": 0}
    assert status({"hv01": host()}, ["hv02"]).lines[-1] == "hv02 could not be read, and may have more"


def test_a_move_is_one_row():
    leaves, comes = one(kinds.LEAVES, host="hv02"), one(kinds.COMES, host="hv01", since="2026-11-29T10:09:00Z")
    go = f"{PLAY}move_vm -e flexdisk_vm=web -e flexdisk_target=hv02"
    (row,) = shown({"hv01": host(leaves, vms=[(WEB, "web")]), "hv02": host(comes)})
    text = f"half done hv02 {THEN} web: moves from hv01 to hv02, where it was made without its disks"
    assert row == (text, go, f"{go} -e flexdisk_move_state=stays")
    (row,) = shown({"hv01": host(leaves)})
    assert row[1:] == (go, f"{go} -e flexdisk_move_state=stays")
    assert "is about to leave for hv02, which does not expect it yet" in row[0]
    (row,) = shown({"hv02": host(comes)})
    assert row[1:] == (go, f"{go} -e flexdisk_move_state=stays")


def test_a_vm_that_has_left_its_host_goes_forward_only():
    """Its tombstone is a part of the move then."""
    stone, comes = one(kinds.TOMBSTONE, host="hv02"), one(kinds.COMES, host="hv01")
    (row,) = shown({"hv01": host(stone), "hv02": host(comes)})
    assert "has left hv01 and not arrived on hv02" in row[0]
    assert row[1:] == (f"{PLAY}move_vm -e flexdisk_vm=web -e flexdisk_target=hv02", "")


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"hv02": host(vms=[(WEB, "web")])}, "has moved to hv02, and its name is taken on hv01"),
        ({"hv02": host()}, "has moved to hv02, which does not have it any more, and"),
        ({}, "has moved to hv02, which was not read, and"),
        # it comes from elsewhere now
        ({"hv02": host(one(kinds.COMES, host="hv03"))}, "has moved to hv02"),
    ],
)
def test_a_tombstone_may_stay(others, words):
    found = status({"hv01": host(one(kinds.TOMBSTONE, host="hv02")), **others}, [])
    assert found.counts["kept"] == 1
    (row,) = [row for row in shown({"hv01": host(one(kinds.TOMBSTONE, host="hv02")), **others}) if "kept" in row[0]]
    assert words in row[0]
    assert row[1:] == ("", f"{PLAY}move_vm -e flexdisk_vm=web -e flexdisk_move_state=forgotten --limit hv01")


def test_failovers():
    (row,) = shown({"hv02": host(one(kinds.TAKES_OVER, host="hv01"))})
    begin = f"{PLAY}failover_vm -e flexdisk_vm=web"
    assert row[1:] == (
        f"{begin} -e flexdisk_target=hv02 -e flexdisk_fenced=true",
        f"{begin} -e flexdisk_failover_state=stays",
    )
    (row,) = shown({"hv01": host(one(kinds.TAKEN_OVER, host="hv02"))})
    assert row[1:] == (f"{begin} -e flexdisk_failover_state=returned -e flexdisk_old_host=hv01", "")
    (row,) = shown({"hv01": host(one(kinds.DIVERGED, volume="zones/flexdisk/diverged/x", since=""))})
    assert row[1:] == ("", f"{begin} -e flexdisk_failover_state=given_up -e flexdisk_old_host=hv01")
    assert row[0].startswith("kept")
    (row,) = shown({"hv01": host(one(kinds.STOPPED))})
    assert row[1:] == (f"{PLAY}start_host --limit hv01", "")


def test_runs():
    task = {OURS + "vm_disks": {"vms": [{"vm": WEB}]}}
    inherit = (f"flexdisk:intent.{WEB}", "zones/flexdisk")
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task, inherit=inherit))})
    assert row == (
        f"half done hv01 {THEN} web: a run was interrupted: it is so",
        f"""ansible hv01 -m flexdisk.hypervisor.vm_disks -a '{{"vms": [{{"vm": "{WEB}"}}]}}'""",
        f"ansible hv01 -m ansible.builtin.command -a 'zfs inherit flexdisk:intent.{WEB} zones/flexdisk'",
    )
    task = {OURS + "vm_snapshot": {"vms": [WEB], "name": "before", "state": "rolled_back"}}
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task))})
    assert row[1].startswith(f"{PLAY}rollback --limit hv01")
    assert row[2] == ""


@pytest.mark.parametrize(("kind", "gives_up"), [("intent_unreadable", True), ("guard", False)])
def test_what_disk_verify_does_about_a_run(kind, gives_up):
    task = {OURS + "disk_verify": {"vms": [WEB], "repair": [kind]}}
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task, repairable=True))})
    assert [command.startswith(f"{PLAY}verify_disks --limit hv01") for command in row[1:]] == [not gives_up, gives_up]


def test_vms_that_are_half_made_or_half_deleted():
    (row,) = shown({"hv01": host(one(kinds.RUN, creates="web-3", group="web"))})
    assert row[1] == f"{PLAY}update_group -e flexdisk_group=web"
    assert '"state": "absent"' in row[2]
    (row,) = shown({"hv01": host(one(kinds.RUN, creates="new"))})
    assert row[1] == f"{PLAY}create_vm -e flexdisk_vm=new"
    (row,) = shown({"hv01": host(one(kinds.RUN, deletes="old"))})
    assert '"vm": "old", "state": "absent"' in row[1]
    assert row[2] == ""


def test_leases_and_drained_members():
    inherit = ("flexdisk:lease.web", "zones/flexdisk")
    lease = one(kinds.LEASE, vm="", alias="", group="web", inherit=inherit)
    drained = one(kinds.DRAINED, group="web", since="")
    update = f"{PLAY}update_group -e flexdisk_group=web"
    rows = shown({"hv01": host(lease), "hv02": host(drained)})
    assert [row[0].startswith("half done") for row in rows] == [True, True]
    assert rows[0] == (
        f"half done hv01 {THEN} group web: it is so",
        update,
        "ansible hv01 -m ansible.builtin.command -a 'zfs inherit flexdisk:lease.web zones/flexdisk'",
    )
    assert rows[1][1] == update
    assert '"drained": false' in rows[1][2]
    rows = shown({"hv01": host({**lease, "works": True}), "hv02": host(drained)})
    assert [row[0].startswith("at work") for row in rows] == [True, True]
    assert rows[0][1:] == ("", f"{update} -e flexdisk_take_over=true")
    (row,) = shown({"hv01": host(one(kinds.DRAINED))})
    assert row[1] == ""


def test_a_transfer_belongs_to_its_move():
    stream = one(kinds.REPLICA, alias="", volume="zones/flexdisk/replica/x", host="hv01", since="")
    go = f"{PLAY}replicate -e flexdisk_vm=web -e flexdisk_replica_host=hv02"
    read = {"hv01": host(vms=[(WEB, "web")]), "hv02": host(stream)}
    assert [row[1:] for row in shown(read)] == [(go, f"{go} -e flexdisk_replica_state=absent")]
    read["hv01"] = host(one(kinds.LEAVES, host="hv02"), vms=[(WEB, "web")])
    assert ["move_vm" in row[1] for row in shown(read)] == [True]
    read["hv01"] = host(one(kinds.LEAVES, host="hv02"), one(kinds.RUN))
    assert ["move_vm" in row[1] for row in shown(read)] == [True], "a run that the move has begun"
    read["hv01"] = host({**one(kinds.LEAVES, host="hv02"), "works": True})
    assert [row[0].startswith("at work") for row in shown(read)] == [True]


@pytest.mark.parametrize("alias", ["no", "007", "a b", "$(x)", "", "4:1"])
def test_a_name_that_a_command_would_change_is_a_uuid_there(alias):
    (row,) = shown({"hv01": host(one(kinds.LEAVES, alias=alias, host="hv02"))})
    assert f"-e flexdisk_vm={WEB} " in row[1]


def test_an_overlay_says_itself_what_ends_it():
    (row,) = shown({"hv01": host(one(kinds.OVERLAY, "it uses x; virsh blockcommit web vda"))})
    assert row == ("half done hv01 - web: it uses x; virsh blockcommit web vda", "", "")


def test_what_somebody_must_do_comes_first():
    read = {
        "hv01": host(one(kinds.TOMBSTONE, host="hv03"), one(kinds.LEASE, group="a", works=True), one(kinds.OVERLAY))
    }
    assert [row[0].split(" hv01")[0] for row in shown(read)] == ["half done", "at work", "kept"]
    assert status(read, []).lines[-1] == "1 half done, 1 at work, 1 kept on 1 host"
