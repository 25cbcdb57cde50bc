# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook failover_vm does, by what hosts say of the VM."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Answer,
    Run,
    next_turn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.recovery import (
    Recovery,
    recover,
)

VM, OTHER = "aaaaaaaa-0000-4000-8000-000000000202", "bbbbbbbb-0000-4000-8000-000000000202"
LOST, FAILED = {"unreachable": True, "msg": "it is off"}, {"failed": True, "msg": "no zfs"}
HOSTS = ["hv01", "hv02", "hv03"]


def says(vms=(), records=(), moved=(), known=()):
    """What a host says of the VM. Of a record, the host of the VM is given."""
    retained = [{"vm": VM, "host": one} if isinstance(one, str) else one for one in records]
    return {"vms": list(vms), "records": retained, "moved": list(moved), "known": list(known)}


NONE, RECORD = says(), says(records=["hv01"])
HOME = says([{"vm": VM, "taking": "", "left": False}])
TAKES = says([{"vm": VM, "taking": "hv01", "left": False}], ["hv01"])
LEFT = says([{"vm": VM, "taking": "", "left": True}])


def turn(looks, *ended, again=None, check=False, **more):
    """The turn after these answers to the looks, and to what follows."""
    given = {"vm": VM, "hosts": HOSTS[: len(looks)], "every": HOSTS[: len(looks)], "target": "hv02", "fenced": True}
    first = {host: Answer(one, 0, 1) for host, one in zip(HOSTS, looks, strict=False)}
    second = {
        host: Answer(one, 0, 1)
        for host, one in zip(HOSTS, again or looks, strict=False)
        if "vms" in looks[HOSTS.index(host)]
    }
    flow = recover(Recovery(**{**given, **more}), Run(check, False, lambda _host: {}))
    rest = [
        {host: Answer(one, 0, 1) for host, one in each.items()} if "msg" not in each else Answer(each, 0, 1)
        for each in ended
    ]
    return next_turn(flow, [first, *([second] if second else []), *rest])


def test_what_is_missing_is_said_at_once():
    message = str(turn([LOST, NONE], target="", fenced=False).failure)
    assert "flexdisk_target is missing" in message
    assert f"flexdisk_fenced=true is missing. It says that the host of {VM} is down" in message
    assert turn([HOME, NONE], state="stays", target="", fenced=False).failure is None


def test_the_second_look_is_by_uuid():
    flow = recover(Recovery(vm="db01", hosts=HOSTS, target="hv02", fenced=True), Run(False, False, lambda _host: {}))
    looks = {"hv01": LOST, "hv02": RECORD, "hv03": FAILED}
    again = next_turn(flow, [{host: Answer(one, 0, 1) for host, one in looks.items()}]).at_once.calls
    assert [(call.host, call.arguments["vm"], call.arguments["vms"]) for call in again] == [("hv02", "db01", [VM])]
    assert all(call.may_fail and call.may_be_lost for call in again)


def test_each_host_changes_its_own_file_of_keys():
    keys = {"hv01": "old", "hv02": ""}
    assert turn([HOME, TAKES], {"msg": "it can"}, authorized_keys=keys).call.arguments["authorized_keys"] == "old"
    assert turn([LOST, TAKES], authorized_keys=keys).call.arguments["authorized_keys"] is None


def test_a_vm_comes_back():
    call = turn([LOST, RECORD, NONE], every=[*HOSTS, "hv04"], max_data_loss=9, leave_out=["d"], vm="db01").call
    given = call.arguments
    assert (call.name, call.host, given["step"], given["vm"]) == ("Bring the VM back", "hv02", "take_over", VM)
    assert given["peers"] == {"hv01": "", "hv02": [], "hv03": []}
    assert given["elsewhere"] == {"hv02": [], "hv03": []}
    assert (given["left_out"], given["max_data_loss"], given["leave_out"]) == (["hv04"], 9, ["d"])
    ended = turn([LOST, RECORD, NONE], {"msg": "it comes back", "lost": ["this", "that"]})
    assert (ended.says.text, ended.says.host) == ("it comes back; this; that", "hv02")


def test_the_vm_ends_first_on_its_old_host_that_is_there_again():
    """Asked in check mode whether it can go on. If that fails, nothing else is done."""
    asks = turn([HOME, TAKES]).call
    assert (asks.host, asks.arguments["step"], asks.check) == ("hv02", "take_over", True)
    ends = turn([HOME, TAKES], {"msg": "it can"}).call
    assert (ends.host, ends.arguments["step"], ends.arguments["begun"], ends.check) == ("hv01", "end", True, False)
    assert ends.arguments["peers"] == {"hv02": TAKES["vms"]}
    assert turn([HOME, TAKES], {"msg": "it can"}, {"msg": "ended"}).call.name == "Bring the VM back"
    assert turn([LOST, TAKES]).call.name == "Bring the VM back"
    for ended in ([FAILED], [{"msg": "it can"}, FAILED], [{"msg": "it can"}, LOST]):
        last = turn([HOME, TAKES], *ended)
        assert (last.call, str(last.failure)) == (None, ended[-1]["msg"])


@pytest.mark.parametrize(
    ("looks", "text"),
    [
        ([LOST, LOST, NONE], "hv02 is not among the hosts of this run, or could not be asked: it is off"),
        ([LOST, FAILED, NONE], "hv02 is not among the hosts of this run, or could not be asked: no zfs"),
        ([LOST, NONE], f"hv02 has no record of {VM}; replicate makes them for VMs with failover"),
        ([LOST, NONE, RECORD], "hv02 has no record of {VM}; hv03 has one"),
        (
            [LOST, says(records=["hv01", {"vm": OTHER, "host": "hv01"}])],
            f"2 records of {VM}; give the whole UUID: {VM}, {OTHER}",
        ),
        ([LOST, says(records=["hv09"])], "hv09, the host of {VM}, is not among the hosts of this run"),
        ([FAILED, RECORD], "hv01, the host of {VM}, may be there, but does not say what it has of the VM: no zfs"),
        (
            [LOST, RECORD, FAILED],
            "hv03 may be there, but does not say whether it has {VM}; find out, and leave it out with --limit "
            "'all:!hv03'",
        ),
    ],
)
def test_what_would_be_a_guess_is_refused(looks, text):
    ended = turn(looks)
    assert text.replace("{VM}", VM) in str(ended.failure)
    assert ended.call is None


def test_the_target_is_called_what_the_user_called_it():
    message = str(turn([LOST, says(known=["db01"])], vm="db1").failure)
    assert message.endswith(
        "hv02 has no record of db1; replicate makes them for VMs with failover. Did you mean db01 on hv02?"
    )
    assert "unknown" in str(turn([NONE, NONE], target="hv09").failure)


@pytest.mark.parametrize(
    ("looks", "text"),
    [
        ([LOST, NONE], "hv01 could not be asked whether the failover of {VM} has begun there"),
        (
            [HOME, TAKES, TAKES],
            "hv02 and hv03 have begun to take {VM} over; leave one out, as with --limit 'all:!hv02'",
        ),
        (
            [says([{"vm": OTHER, "taking": "", "left": False}]), HOME],
            f"several VMs are called {VM}; give the whole UUID: {OTHER}, {VM}",
        ),
        ([LOST, TAKES], "hv01, the host of {VM}, does not say that it still has it whole, nor does another host"),
        ([LEFT, TAKES], "hv01, the host of {VM}, does not say that it still has it whole, nor does another host"),
    ],
)
def test_a_failover_that_cannot_be_given_up(looks, text):
    assert text.replace("{VM}", VM) in str(turn(looks, state="stays").failure)


def test_a_failover_is_given_up():
    call = turn([HOME, TAKES], state="stays").call
    assert (call.host, call.arguments["step"], call.arguments["vm"]) == ("hv02", "stay", VM)
    assert turn([HOME, TAKES], {"msg": ""}, state="stays").says.text == f"{VM} is whole on hv01, and is not taken over"
    assert turn([HOME, NONE], state="stays").says.text == f"{VM} is not being taken over"
    arrived = says(moved=[{"vm": VM, "begun": True}])
    assert turn([LEFT, TAKES, arrived], state="stays").call.host == "hv02"


NOTHING, SOME = {"msg": "", "disks": [], "vm": ""}, {"msg": "", "disks": ["kept"], "vm": VM}


def test_the_vm_ends_on_its_old_host():
    looks = turn([HOME, HOME], state="returned").at_once.calls
    assert [(call.host, call.arguments["step"], call.check) for call in looks] == [
        ("hv01", "end", True),
        ("hv02", "end", True),
    ]
    assert looks[0].arguments["peers"] == {"hv02": HOME["vms"]}
    would = {"hv01": SOME, "hv02": NOTHING}
    does = turn([HOME, HOME], would, state="returned")
    assert (does.call.host, does.call.check) == ("hv01", False)
    assert does.says.text == f"hv02: nothing of {VM} is to be ended"
    ended = turn([HOME, HOME], would, SOME, state="returned")
    assert (ended.says.text, ended.says.host) == (["kept"], "hv01")


def test_the_old_host_is_named():
    calls = turn([HOME, HOME], state="given_up", old_host="hv02").at_once.calls
    assert [(call.host, call.arguments["step"], call.arguments["old"]) for call in calls] == [("hv02", "give_up", True)]
    message = str(turn([HOME, LOST], state="given_up", old_host="hv02").failure)
    assert message == "hv02 is not among the hosts of this run, or could not be asked"


@pytest.mark.parametrize(
    ("looks", "would", "text", "more"),
    [
        (
            [NONE, LOST],
            {"hv01": NOTHING},
            "hv01 say that nothing of {VM} is to be ended there, but hv02 could not be asked",
            {},
        ),
        (
            [NONE, NONE],
            {"hv01": NOTHING, "hv02": NOTHING},
            "but hv09 could not be asked, or was left out with --limit",
            {"every": ["hv09"]},
        ),
        (
            [HOME, HOME],
            {"hv01": SOME, "hv02": SOME},
            "hv01 and hv02 have something of {VM}; flexdisk_old_host says which",
            {},
        ),
        ([HOME, NONE], {"hv01": {**SOME, "vm": OTHER}, "hv02": NOTHING}, f"give the whole UUID: {VM}, {OTHER}", {}),
        (
            [HOME, HOME],
            {"hv01": NOTHING, "hv02": NOTHING},
            "hv01 and hv02 have {VM}; flexdisk_failover_state=returned ends it",
            {"state": "given_up"},
        ),
    ],
)
def test_what_is_not_clear_is_not_ended(looks, would, text, more):
    ended = turn(looks, would, **{"state": "returned", **more})
    assert text.replace("{VM}", VM) in str(ended.failure)
    assert ended.call is None


def test_a_host_that_was_left_out_does_not_matter_if_the_vm_has_ended_before():
    stone = says(moved=[{"vm": VM, "phase": "moved"}])
    assert turn([stone, LOST], {"hv01": NOTHING}, state="returned").failure is None


def test_a_look_that_fails_ends_it_for_all():
    ended = turn([HOME, HOME], {"hv01": SOME, "hv02": {**FAILED}}, state="returned")
    assert (ended.call, str(ended.failure)) == (None, "no zfs")
