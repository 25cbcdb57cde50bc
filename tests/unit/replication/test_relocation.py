# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbook move_vm does before the move itself, by what hosts say of the VM."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import (
    Answer,
    Run,
    next_turn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.relocation import (
    Relocation,
    relocate,
)

VM = "aaaaaaaa-0000-4000-8000-000000000202"
LOST = {"unreachable": True, "msg": "it is off"}
HOSTS = ["hv01", "hv02", "hv03"]


def says(vm="", phase="", host="", **more):
    """What a host says of the VM."""
    move = {"phase": phase, "host": host, "vm": VM, "term": 0} if phase else None
    return {"vm": vm, "move": move, "term": -1, "asks": [], "unmanaged": "", "known": [], **more}


HERE, NONE = says(VM), says()
LEFT, COMES = says(phase="moved", host="hv02"), says(phase="coming", host="hv01")


def turn(*rounds, check=False, vm=VM, **more):
    """The turn after these answers. A round has the answers of the hosts in their order, or by their names."""
    given = [one if isinstance(one, dict) else dict(zip(HOSTS, one, strict=False)) for one in rounds]
    wanted = Relocation(**{"vm": vm, "hosts": HOSTS[: len(given[0])] if given else HOSTS, "target": "hv02", **more})
    answers = [{host: Answer(one, 0, 1) for host, one in each.items()} for each in given]
    flow = relocate(wanted, Run(check, False, lambda _host: {}))
    return next_turn(flow, [one if len(one) > 1 else next(iter(one.values())) for one in answers])


def test_all_hosts_are_asked_at_once():
    calls = turn().at_once.calls
    assert [call.host for call in calls] == HOSTS
    assert dict(calls[1].arguments) == {"step": "look", "vm": VM, "name": "hv02"}
    assert all(call.hidden and call.may_fail and not call.may_be_lost for call in calls)


def test_a_move_without_a_target():
    assert "flexdisk_target is missing" in str(turn(target="").failure)
    assert turn(target="", state="forgotten").at_once


def test_the_vm_moves_from_where_it_is():
    """The other hosts' words go along, but no record, which may hold secrets."""
    ended = turn([HERE | {"record": {"secret": 1}}, NONE, LOST])
    others = {"hv02": {"vm": "", "move": None, "term": -1}, "hv03": ""}
    assert ended.result == {"moves": {"hv01": {"vm": VM, "seen": others}}}
    assert (ended.call, ended.at_once, ended.says) == (None, None, None)


@pytest.mark.parametrize(
    ("looks", "again"),
    [
        ([HERE, NONE, says(VM[::-1])], []),
        ([NONE, NONE, NONE], []),
        ([HERE, NONE, {"failed": True, "msg": "no"}], ["hv02"]),
        ([HERE, LOST, NONE], ["hv03"]),
        ([HERE, NONE, COMES], ["hv02"]),
        ([LEFT, NONE, NONE], ["hv02", "hv03"]),
    ],
)
def test_hosts_that_know_no_such_name_are_asked_by_uuid(looks, again):
    """It may have another name there. Not if its name was a UUID already."""
    asked = turn(looks, vm="db01").at_once
    assert [call.host for call in asked.calls if call.arguments["vm"] == VM] == again if asked else not again
    assert turn(looks).at_once is None


def test_a_source_that_calls_it_differently_gets_the_uuid():
    coming = says(phase="coming", host="hv01")
    again = {"hv01": says(VM, "leaving", "hv02"), "hv03": NONE}
    ended = turn([NONE, coming, NONE], again, vm="db01", state="stays")
    assert ended.result["moves"]["hv01"]["vm"] == VM
    assert turn([HERE, NONE], {"hv02": NONE, "": NONE}, vm="db01").result["moves"]["hv01"]["vm"] == "db01"


def test_a_host_that_cannot_say_what_it_has_ends_the_run():
    ended = turn([HERE, {"failed": True, "msg": "zfs failed"}, {"failed": True}])
    assert str(ended.failure) == "hv02: zfs failed. hv03: the look at the VM failed"


def test_a_target_that_could_not_be_reached():
    text = "hv02 could not be reached, so this run has begun nothing and changed nothing. db01 is on hv01. The same"
    assert str(turn([HERE, LOST], vm="db01").failure).startswith(text)
    assert "the same command" not in str(turn([HERE, LOST], state="stays").failure)
    assert turn([HERE, LOST], state="stays").result["moves"]["hv01"]["seen"] == {"hv02": ""}


@pytest.mark.parametrize("state", ["moved", "stays"])
def test_the_vm_is_there(state):
    ended = turn([NONE, HERE], state=state)
    assert (ended.says.text, ended.result) == (f"{VM} is on hv02", {"moves": {}})


def test_a_move_ends_on_its_target_without_its_source():
    """No other state does that, and only if the source cannot be asked."""
    call = turn([LOST, COMES, NONE], unasked=True, authorized_keys="k", stop_timeout=5).call
    assert (call.host, call.arguments["step"], call.arguments["peer_name"]) == ("hv02", "arrive", "hv01")
    assert call.arguments["peers"] == {"hv01": "", "hv03": {"vm": "", "move": None, "term": -1}}
    assert [call.arguments[key] for key in ("vm", "unasked", "authorized_keys", "lock_timeout")] == [VM, True, "k", 65]
    for check, text in ((False, "is on hv02; hv01"), (True, "would arrive on hv02; hv01")):
        ended = turn([LOST, COMES, NONE], {"hv02": {"changed": True}}, check=check)
        assert (ended.says.host, ended.result) == ("hv02", {"moves": {}})
        assert f"{VM} {text}, which it has left, was not asked" in ended.says.text
    assert set(turn([LEFT, COMES, NONE]).result["moves"]) == {"hv01"}
    assert turn([LOST, COMES, NONE], state="stays").failure


def test_every_host_forgets():
    ended = turn([HERE, says(phase="moved", host="hv01"), LOST], vm="db01", target="", state="forgotten")
    again = turn([HERE, NONE, NONE], {"hv02": LEFT, "hv03": NONE}, vm="db01", target="", state="forgotten")
    assert list(ended.result["moves"]) == ["hv01", "hv02"]
    assert [one["vm"] for one in again.result["moves"].values()] == ["db01"] * 3
    assert ended.result["moves"]["hv02"]["seen"] == {"hv01": {"vm": VM, "move": None, "term": -1}, "hv03": ""}


def test_names_that_are_similar():
    known = {"known": ["db01"]}
    assert "db02 is on none of hv01, hv02. Did you mean db01 on hv01?" in str(
        turn([NONE | known, NONE], vm="db02").failure
    )
    alone = NONE | {"unmanaged": "not adopted"} | known
    assert "Did you mean" not in str(turn([alone, NONE], vm="db02").failure)
