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
WEB, OTHER = "cafe0000-0000-4000-8000-000000000000", "beef0000-0000-4000-8000-000000000000"
HERE = [(WEB, "web")]
THEN = "2026-11-29T10:00:00Z"
PLAY = "ansible-playbook flexdisk.hypervisor."
OURS = "flexdisk.hypervisor."


def one(kind, text="it is so", vm=WEB, alias="web", since=THEN, **more):
    return dict(HalfDone(kind, text, vm, alias, since, **more)._asdict(), inherit=list(more.get("inherit", ())))


def host(*entries, vms=(), transfers=(), guid=0):
    have = [{"uuid": uuid, "alias": alias} for uuid, alias in vms]
    return {
        "half_done": list(entries),
        "vms": have,
        "transfers": list(transfers),
        "pools": [{"name": "zones", "guid": guid}],
    }


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
    """A playbook takes these variables and their values, and a VM is named by its UUID. All else is said in words."""
    if command.startswith("a task for "):
        ((module, options),) = yaml.safe_load(command.split(": ", 1)[1]).items()
        assert module.startswith(OURS)
        assert [entry["vm"] for entry in options["vms"]] == [WEB]
        return
    if command.startswith("as root on "):
        begins = ("zfs inherit flexdisk:", "zfs destroy -r zones/flexdisk/restoring/")
        assert command.split(": ", 1)[1].startswith(begins)
        return
    program, name, *words = shlex.split(command)
    assert program == "ansible-playbook"
    given = {}
    while words:
        flag, value, *words = words
        assert flag in ("-e", "--limit")
        if flag == "-e":
            given.update(json.loads(value) if value[0] == "{" else [value.split("=", 1)])
    named = [given["flexdisk_vm"]] if "flexdisk_vm" in given else []
    named += [vm for key, value in given.items() if key.endswith("_vms") for vm in value]
    assert name == f"{OURS}create_vm" or {*named} <= {WEB}
    told = answers(given, ARGUMENTS["_flexdisk_arguments"][name.removeprefix(OURS)])
    assert told["problems"] == []


def test_nothing_is_half_done():
    found = status({"hv01": host(), "hv02": host()}, [])
    assert found.lines == ["nothing is half done on 2 hosts"]
    assert found.counts == {"half_done": 0, "at_work": 0, "kept": 0}
    assert status({"hv01": host()}, ["hv02"]).lines[-1] == "hv02 could not be read, and may have more"


def test_a_move_is_one_row():
    leaves, comes = one(kinds.LEAVES, host="hv02"), one(kinds.COMES, host="hv01", since="2026-11-29T10:09:00Z")
    go = f"{PLAY}move_vm -e flexdisk_vm={WEB} -e flexdisk_target=hv02"
    stays = f"{go} -e flexdisk_move_state=stays"
    (row,) = shown({"hv01": host(leaves, vms=HERE), "hv02": host(comes)})
    text = f"half done hv02 {THEN} web: moves from hv01 to hv02, where it was made without its disks"
    assert row == (text, go, stays)
    (row,) = shown({"hv01": host(leaves, vms=HERE), "hv02": host()})
    assert row[1:] == (go, stays)
    assert "is about to leave for hv02, which does not expect it yet" in row[0]


def test_a_move_is_given_up_only_if_both_hosts_were_read():
    """The other host may have the VM, or this one may have it no more."""
    leaves, comes = one(kinds.LEAVES, host="hv02"), one(kinds.COMES, host="hv01")
    go = f"{PLAY}move_vm -e flexdisk_vm={WEB} -e flexdisk_target=hv02"
    (row,) = shown({"hv01": host(leaves, vms=HERE)})
    assert "hv02, which was not read and may have it" in row[0]
    assert row[1:] == (go, "")
    (row,) = shown({"hv02": host(comes)})
    assert row[0].endswith("; hv01 was not read")
    assert row[1:] == (go, "")
    (row,) = shown({"hv01": host(), "hv02": host(comes)})
    assert row[1:] == (go, "")


def test_a_vm_that_has_left_its_host_goes_forward_only():
    """Its tombstone is a part of the move then."""
    stone, comes = one(kinds.TOMBSTONE, host="hv02"), one(kinds.COMES, host="hv01")
    (row,) = shown({"hv01": host(stone), "hv02": host(comes)})
    assert "has left hv01 and not arrived on hv02" in row[0]
    assert row[1:] == (f"{PLAY}move_vm -e flexdisk_vm={WEB} -e flexdisk_target=hv02", "")


@pytest.mark.parametrize(
    ("others", "words", "gives_up"),
    [
        ({"hv02": "has"}, "has moved to hv02, and its name is taken on hv01", True),
        ({"hv02": "", "hv03": "has"}, "has moved to hv02, and its name is taken on hv01", True),
        ({"hv02": ""}, "has moved to hv02, which does not have it any more, and its name is taken on hv01", False),
        ({}, "has left for hv02, and whether it has arrived is not known: hv02 was not read", False),
        # it comes from elsewhere now
        ({"hv02": "comes"}, "has moved to hv02", False),
    ],
)
def test_a_tombstone_may_stay(others, words, gives_up):
    """Its end is offered only if a host has the VM."""
    made = {"": host(), "has": host(vms=HERE), "comes": host(one(kinds.COMES, host="hv03"))}
    read = {"hv01": host(one(kinds.TOMBSTONE, host="hv02")), **{name: made[kind] for name, kind in others.items()}}
    assert status(read, []).counts["kept"] == 1
    (row,) = [row for row in shown(read) if "kept" in row[0]]
    assert words in row[0]
    forget = f"{PLAY}move_vm -e flexdisk_vm={WEB} -e flexdisk_move_state=forgotten --limit hv01"
    assert row[1:] == ("", forget if gives_up else "")


def test_failovers():
    begin = f"{PLAY}failover_vm -e flexdisk_vm={WEB}"
    go, stays = f"{begin} -e flexdisk_target=hv02 -e flexdisk_fenced=true", f"{begin} -e flexdisk_failover_state=stays"
    takes = host(one(kinds.TAKES_OVER, host="hv01"))
    assert [row[1:] for row in shown({"hv01": host(vms=HERE), "hv02": takes})] == [(go, stays)]
    assert [row[1:] for row in shown({"hv01": host(), "hv02": takes})] == [(go, "")]
    assert [row[1:] for row in shown({"hv02": takes})] == [(go, "")]
    (row,) = shown({"hv01": host(one(kinds.TAKEN_OVER, host="hv02"), vms=HERE), "hv02": host(vms=HERE)})
    assert row[1:] == (f"{begin} -e flexdisk_failover_state=returned -e flexdisk_old_host=hv01", "")
    diverged = host(one(kinds.DIVERGED, volume="zones/flexdisk/diverged/x", since=""))
    (row,) = shown({"hv01": diverged, "hv02": host(vms=HERE)})
    assert row[1:] == ("", f"{begin} -e flexdisk_failover_state=given_up -e flexdisk_old_host=hv01")
    assert row[0].startswith("kept")
    (row,) = shown({"hv01": diverged, "hv02": host()})
    assert row[1:] == ("", ""), "it may be all that is left"
    (row,) = shown({"hv01": host(one(kinds.STOPPED))})
    assert row[1:] == (f"{PLAY}start_host --limit hv01", "")


def test_a_vm_that_two_hosts_have():
    (row,) = shown({"hv01": host(vms=HERE), "hv02": host(vms=HERE), "hv03": host()})
    assert row[0].startswith("half done hv01 - web: hv01 and hv02 have it")
    assert row[1:] == (f"{PLAY}failover_vm -e flexdisk_vm={WEB} -e flexdisk_failover_state=returned", "")


def test_a_host_with_two_names():
    found = status({"hv01": host(vms=HERE, guid=7), "10.0.0.1": host(vms=HERE, guid=7)}, [])
    assert found.counts["half_done"] == 0
    assert found.lines[-1].startswith("hv01 and 10.0.0.1 have the same pool (guid 7)")


def test_names_of_vms_that_live_count():
    """A record has the name that a VM had. If another VM has the name now, the UUID follows."""
    stone = one(kinds.TOMBSTONE, host="hv02")
    (row,) = shown({"hv01": host(stone), "hv02": host(vms=[(WEB, "shop"), (OTHER, "web")])})
    assert "shop: has moved" in row[0]
    (row,) = shown({"hv01": host(stone), "hv02": host(vms=[(OTHER, "web")])})
    assert f"web ({WEB}): has moved" in row[0]


def test_a_record_that_cannot_be_read():
    assert [row[1:] for row in shown({"hv01": host(one(kinds.UNREADABLE))})] == [("", "")]


def test_runs():
    task = {OURS + "vm_disks": {"vms": [{"vm": WEB}]}}
    inherit = (f"flexdisk:intent.{WEB}", "zones/flexdisk")
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task, inherit=inherit))})
    assert row == (
        f"half done hv01 {THEN} web: a run was interrupted: it is so",
        f"""a task for hv01: {{flexdisk.hypervisor.vm_disks: {{"vms": [{{"vm": "{WEB}"}}]}}}}""",
        f"as root on hv01: zfs inherit flexdisk:intent.{WEB} zones/flexdisk",
    )
    task = {OURS + "vm_snapshot": {"vms": [WEB], "name": "before", "state": "rolled_back"}}
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task))})
    assert row[1].startswith(f"{PLAY}rollback --limit hv01")
    assert row[2] == ""


def test_a_run_that_disk_verify_goes_on_with():
    task = {OURS + "disk_verify": {"vms": [WEB], "repair": ["guard"]}}
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task, repairable=True))})
    assert [command.startswith(f"{PLAY}verify_disks --limit hv01") for command in row[1:]] == [True, False]


def test_a_record_that_disk_verify_drops():
    """It cannot name one VM, so the row says what goes, too."""
    task = {OURS + "disk_verify": {"repair": ["intent_unreadable"]}}
    (row,) = shown({"hv01": host(one(kinds.RUN, repair=task, repairable=True))})
    assert [command.startswith(f"{PLAY}verify_disks --limit hv01") for command in row[1:]] == [False, True]
    assert row[0].endswith("; giving it up drops all such records of hv01")


ENDS = f"""a task for hv01: {{flexdisk.hypervisor.vm: {{"vms": [{{"vm": "{WEB}", "state": "absent"}}]}}}}"""
DELETE = f"{PLAY}delete_vm -e flexdisk_vm={WEB}"


@pytest.mark.parametrize(("vms", "unfinished", "ends"), [((), False, ENDS), ("has", True, DELETE), ("has", False, "")])
def test_vms_that_are_half_made(vms, unfinished, ends):
    """One that is whole is not deleted: it may be in use."""
    vms = HERE if vms else ()
    (row,) = shown({"hv01": host(one(kinds.RUN, creates="web-3", group="web", unfinished=unfinished), vms=vms)})
    assert row[1:] == (f"{PLAY}update_group -e flexdisk_group=web", ends)
    made = one(kinds.RUN, creates="new", alias="", unfinished=unfinished)
    (row,) = shown({"hv01": host(made, vms=vms)})
    assert row[1:] == (f"{PLAY}create_vm -e flexdisk_vm=new", ends)
    (row,) = shown({"hv01": host(made, vms=vms), "hv02": host(vms=[(OTHER, "new")])})
    assert row[1:] == ("", ends), "the name means another VM"


def test_vms_that_are_half_deleted():
    inherit = (f"flexdisk:intent.{WEB}", "zones/flexdisk")
    run = one(kinds.RUN, deletes="old", alias="", inherit=inherit)
    (row,) = shown({"hv01": host(run, vms=[(OTHER, "old")])})
    assert row[1:] == (ENDS, "")
    (row,) = shown({"hv01": host({**run, "unfinished": True}, vms=HERE)})
    assert row[1:] == (DELETE, "")
    (row,) = shown({"hv01": host(run, vms=HERE)})
    assert row[1:] == (DELETE, f"as root on hv01: zfs inherit flexdisk:intent.{WEB} zones/flexdisk")


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
        "as root on hv01: zfs inherit flexdisk:lease.web zones/flexdisk",
    )
    assert rows[1][1] == update
    assert '"drained": false' in rows[1][2]
    (row,) = shown({"hv01": host(one(kinds.DRAINED))})
    assert row[1] == ""


def test_what_works_has_no_command():
    """It would begin a second run, or end the one that works."""
    for kind in {*kinds.KINDS} - {kinds.TOMBSTONE, kinds.DIVERGED, kinds.UNREADABLE}:
        (row,) = shown({"hv01": host(one(kind, group="web", host="hv02", works=True), vms=HERE)})
        assert (row[0][:7], row[1:]) == ("at work", ("", ""))
    rows = shown(
        {"hv01": host(one(kinds.LEASE, group="web", works=True)), "hv02": host(one(kinds.DRAINED, group="web"))}
    )
    assert [(row[0].startswith("at work"), row[1:]) for row in rows] == [(True, ("", ""))] * 2


STREAM = one(kinds.REPLICA, alias="", volume="zones/flexdisk/replica/x", host="hv01", since="")


def test_transfers():
    """Only the host that sends knows whether it works. If it lacks the VM, the replica may be all that is left."""
    go = f"{PLAY}replicate -e flexdisk_vm={WEB} -e flexdisk_replica_host=hv02"
    read = {"hv01": host(vms=HERE), "hv02": host(STREAM)}
    assert [row[1:] for row in shown(read)] == [(go, f"{go} -e flexdisk_replica_state=absent")]
    read["hv01"] = host(vms=HERE, transfers=[WEB])
    assert [(row[0][:7], row[1:]) for row in shown(read)] == [("at work", ("", ""))]
    read["hv01"] = host()
    assert [row[1:] for row in shown(read)] == [("", "")]
    (row,) = shown({"hv02": host(STREAM)})
    assert row[0].endswith("; hv01, which sends it, was not read, so it may be at work")
    assert row[1:] == ("", "")


def test_a_restored_disk_that_is_not_whole():
    half = one(kinds.RESTORE, volume="zones/flexdisk/restoring/x", since="")
    (row,) = shown({"hv01": host(half, vms=HERE)})
    assert row[0].endswith("The playbook restore_disk with the same variables goes on")
    assert row[1:] == ("", "as root on hv01: zfs destroy -r zones/flexdisk/restoring/x")
    (row,) = shown({"hv01": host(half, vms=HERE), "hv02": host(transfers=[WEB])})
    assert (row[0][:7], row[1:]) == ("at work", ("", ""))


def test_a_transfer_belongs_to_its_move():
    leaves = one(kinds.LEAVES, host="hv02")
    read = {"hv01": host(leaves, vms=HERE), "hv02": host(STREAM)}
    assert ["move_vm" in row[1] for row in shown(read)] == [True]
    read["hv01"] = host(leaves, one(kinds.RUN), vms=HERE)
    assert ["move_vm" in row[1] for row in shown(read)] == [True], "a run that the move has begun"
    read["hv03"] = host(STREAM)
    assert ["move_vm" in row[1] for row in shown(read)] == [True, False], "a third host has its own"
    read = {"hv01": host({**leaves, "works": True}), "hv02": host(STREAM)}
    assert [row[0].startswith("at work") for row in shown(read)] == [True]


def test_an_overlay_says_itself_what_ends_it():
    (row,) = shown({"hv01": host(one(kinds.OVERLAY, "it uses x; virsh blockcommit web vda"))})
    assert row == ("half done hv01 - web: it uses x; virsh blockcommit web vda", "", "")


def test_what_somebody_must_do_comes_first():
    read = {
        "hv01": host(one(kinds.TOMBSTONE, host="hv03"), one(kinds.LEASE, group="a", works=True), one(kinds.OVERLAY))
    }
    assert [row[0].split(" hv01")[0] for row in shown(read)] == ["half done", "at work", "kept"]
    assert status(read, []).lines[-1] == "1 half done, 1 at work, 1 kept on 1 host"


def test_a_restore_whose_volumes_change_places():
    """Nothing gives it up: the VM has parts of two moments."""
    data = {"disk": OTHER, "name": "data", "new_name": "data-wrong", "together": 1}
    run = one(kinds.RUN, inherit=(f"flexdisk:intent.{WEB}", "zones/flexdisk"), restoring=[data])
    (row,) = shown({"hv01": host(run)})
    given = f"-e flexdisk_vm={WEB} -e flexdisk_disk={OTHER} -e flexdisk_replaced_name=data-wrong"
    assert row[1:] == (f"{PLAY}restore_disk {given}", "")
    (row,) = shown({"hv01": host({**run, "restoring": [{**data, "together": 2}]})})
    assert row[1:] == (f"{PLAY}restore_vm -e flexdisk_vm={WEB} -e flexdisk_replaced_suffix=wrong", "")
