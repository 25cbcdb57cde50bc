# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM that was taken over is not started on its old home, wherever it has gone since. Three simulated nodes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_start
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.host_info import host_info
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.placement.execution import (
    Wanted,
    unfinished_moves,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import (
    Claim,
    read_claims,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.record import (
    read_record,
    record_as_result,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import moves
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_engine import TWIN
from .test_failover import protect, take
from .test_move import VMADM, gone, guid, hosts, look, move
from .test_move import pair as on_both
from .test_start_door import boot, power
from .world import VM

world = on_both
DISK = {"boot": True, "model": "virtio", "size": 64}


@pytest.fixture
def three(world, monkeypatch):
    """hv01 is the home, hv02 has replicas and the record, hv03 is empty. Each host has records of its own."""
    world.home.ok("zfs", "set", "quota=none", f"zones/{VM}")
    world.hv = {"hv01": world.home, "hv02": world.peer, "hv03": world.host(3)}

    def acting(host):
        (name,) = [name for name, one in world.hv.items() if one is host]
        monkeypatch.setattr(records, "_FOLDER", str(world.folder / name))

    world.acting = acting
    acting(world.peer)
    protect(world)
    return world


def between(world, home, peer):
    """What is done next is between these hosts."""
    world.home, world.home_name = world.hv[home], home
    world.peer, world.peer_name = world.hv[peer], peer
    world.acting(world.peer)


def taken_over(world):
    """hv01 has died, hv02 has taken the VM over, and hv01 is there again."""
    boot(world.home)
    between(world, "hv01", "hv02")
    take(world)


def powers(world):
    return {name: host.power(VM) for name, host in world.hv.items()}


def seen(host):
    arguments = (host.zfs(), host.driver(), Copies(host))
    return json.loads(json.dumps(failover_start.look(*arguments)))


def asked(world, *names):
    """What these hosts say to start_host."""
    matches = {name: seen(world.hv[name]) for name in names}
    return {name: one["vms"] + one["moved"] for name, one in matches.items()}


def start(world, answers, here="hv01", check=False):
    """start_host on a host."""
    host = world.hv[here]
    return failover_start.start(host.zfs(), host.driver(), read_claims(answers), False, check, here)


def begun(world):
    """The VM is expected on the other host."""
    result = look(world)
    record = read_record(json.loads(json.dumps(record_as_result(result["record"]))))
    assert world.sync()[1]
    hosts(world)[1].expect(record, "zones")
    assert world.sync()[1]
    return result


@pytest.mark.parametrize("names", [["hv02"], ["hv03", "hv02"], ["hv01", "hv02", "hv03"]])
def test_the_taker_has_moved_it_on(three, names):
    """The tombstone says so, and so does the host that has it."""
    taken_over(three)
    between(three, "hv02", "hv03")
    assert move(three)
    answers = asked(three, *names)
    for check in (True, False):
        done = start(three, answers, check=check)
        assert (done.started, done.failures) == ([], [])
        (message,) = done.left
        assert "hv02 says that it has moved on to hv03" in message
    assert powers(three) == {"hv01": "stopped", "hv02": "", "hv03": "running"}
    between(three, "hv03", "hv02")
    boot(three.home)
    assert start(three, asked(three, "hv01", "hv02", "hv03"), here="hv03").started


def test_the_tombstone_of_the_taker_is_given_up(three):
    """The host that has the VM says it, for all hosts are asked."""
    taken_over(three)
    between(three, "hv02", "hv03")
    assert move(three)
    assert hosts(three)[0].forget(VM, {"hv03": moves.Sighting(VM, "")})
    assert start(three, asked(three, "hv02", "hv03")).left


def test_in_the_middle_of_that_move(three):
    """The VM has left, and has not come yet: the tombstone says so, and so does the host that expects it."""
    taken_over(three)
    between(three, "hv02", "hv03")
    gone(three, begun(three))
    assert powers(three) == {"hv01": "stopped", "hv02": "", "hv03": "stopped"}
    for name, text in (("hv02", "has moved on to hv03"), ("hv03", "comes from hv02")):
        done = start(three, {"hv02": [], **asked(three, name)})
        assert done.failures == []
        assert f"{name} says that it {text}" in done.left[0]


def test_returned_after_another_failover(three):
    """hv02 has ended the VM for hv03, which took it over from there: its tombstone has the term of hv03."""
    taken_over(three)
    between(three, "hv02", "hv03")
    protect(three)
    boot(three.home)
    take(three)
    back = FailoverReturn(three.home.zfs(), three.home.driver(), three.home)
    whole = json.loads(json.dumps(failover_start.look(three.peer.zfs(), three.peer.driver(), Copies(three.peer), VM)))
    back.end(EndRequest(VM, read_claims({"hv03": whole["vms"]})))
    assert "hv02 says that it has moved on to hv03" in start(three, asked(three, "hv02")).left[0]
    assert powers(three) == {"hv01": "stopped", "hv02": "", "hv03": "running"}


def test_a_vm_that_has_come_back_by_moves_starts(three):
    """Tombstones of its way say nothing against it: a move leaves the term as it is."""
    for one, other in (("hv01", "hv03"), ("hv03", "hv01")):
        between(three, one, other)
        assert move(three)
    between(three, "hv01", "hv02")
    assert three.sync()[1]
    boot(three.home)
    assert start(three, asked(three, "hv01", "hv02", "hv03")).started


def test_a_tombstone_of_an_older_version_is_followed(three):
    """It does not say how often the VM was taken over. So the host where it went must be asked."""
    taken_over(three)
    between(three, "hv02", "hv03")
    assert move(three)
    answers = asked(three, "hv02")
    (tombstone,) = answers["hv02"]
    answers["hv02"] = [{**tombstone, "term": moves.UNKNOWN}]
    assert "hv03 could not be asked" in start(three, answers).failures[0]
    assert start(three, {**answers, **asked(three, "hv03")}).left
    answers["hv02"] = [{**tombstone, "term": moves.UNKNOWN, "host": "hv01"}]
    assert start(three, {**answers, "hv03": []}).started


# -- a VM that runs here, and that another host has, too


def fails(done):
    """The only thing that start_host says, and that makes it fail."""
    assert (done.started, done.left) == ([], [])
    (message,) = done.failures
    return message


def test_a_vm_that_runs_on_its_old_home_is_a_failure(three):
    """Somebody has started it there by hand. Both hosts fail, until it is stopped and ended there."""
    taken_over(three)
    three.hv["hv01"].power_on(VM)
    for check in (True, False):
        message = fails(start(three, asked(three, "hv02", "hv03"), check=check))
        assert message.startswith(f"db01 ({VM}): it is running here, and hv02 has taken it over")
        assert "it also runs on hv02" in message
        assert f"Stop it here ({three.home.stop} {VM})" in message
        assert "flexdisk_failover_state=returned" in message
        message = fails(start(three, asked(three, "hv01", "hv03"), here="hv02", check=check))
        assert "it is running here, and hv01 has it, too, and runs it" in message
        assert "flexdisk_old_host" in message
    three.hv["hv02"].power_off(VM)
    assert "it also runs on" not in fails(start(three, asked(three, "hv02", "hv03")))
    assert powers(three) == {"hv01": "running", "hv02": "stopped", "hv03": ""}
    three.hv["hv01"].power_off(VM)
    done = start(three, asked(three, "hv02", "hv03"))
    assert (done.failures, done.left) == ([], [f"db01 ({VM}): hv02 has taken it over"])


def test_it_runs_on_its_old_home_and_was_moved_on(three):
    """The failure also says where it went."""
    taken_over(three)
    between(three, "hv02", "hv03")
    assert move(three)
    three.hv["hv01"].power_on(VM)
    message = fails(start(three, asked(three, "hv02", "hv03")))
    assert "hv02 says that it has moved on to hv03" in message
    assert "it also runs on hv03" in message


def test_it_runs_here_while_it_leaves_and_was_taken_over(three):
    """The mark of an interrupted move does not hide that."""
    between(three, "hv01", "hv03")
    result = begun(three)
    hosts(three)[0].leave(VM, "hv01", "hv03", guid(three.peer), result["digest"])
    taken_over(three)
    three.hv["hv01"].power_on(VM)
    assert "hv02 has taken it over" in fails(start(three, asked(three, "hv02")))


def test_it_runs_here_and_another_host_is_about_to_take_it_over(three):
    (claim,) = asked(three, "hv01")["hv01"]
    message = fails(start(three, {"hv02": [{**claim, "taking": "hv01", "running": False}]}))
    assert "it is running here, and hv02 has begun to take it over" in message
    assert f"Stop it here ({three.home.stop} {VM}), then the playbook failover_vm goes on" in message
    assert "flexdisk_failover_state=stays" in message


@pytest.mark.parametrize("running", [True, False])
def test_it_runs_here_and_it_is_not_clear_whose_it_is(three, running):
    (claim,) = asked(three, "hv01")["hv01"]
    message = fails(start(three, {"hv02": [{**claim, "running": running}]}))
    assert "it is running here, and hv02 has it, too" in message
    assert ("and runs it" in message) is running


@pytest.mark.parametrize(("phase", "term", "beats"), [("moved", 0, False), ("coming", 1, True), ("moved", None, False)])
def test_what_a_move_says(phase, term, beats):
    claim = Claim(VM, term, phase=phase, other="hv03")
    assert (claim.beats(0), claim.disputes(0)) == (beats, False)
    assert replace(claim, phase="").beats(0)


def test_a_host_that_boots_between_the_question_and_the_start(three):
    """It died after the others had been asked, and the VM was taken over meanwhile."""
    boot(three.home)
    known = seen(three.home)
    answers = asked(three, "hv02")
    assert known["boot"]
    taken_over(three)
    host = three.hv["hv01"]
    for check in (True, False):
        with pytest.raises(FlexdiskError, match="run the playbook start_host again") as caught:
            failover_start.start(host.zfs(), host.driver(), read_claims(answers), False, check, "hv01", known["boot"])
        assert caught.value.code == "Changed"
    assert power(host) == "stopped"


# -- a VM that may have been taken over does not leave, and nothing of it is sent


def refused(world):
    """What is said to a move from hv01 to hv03."""
    between(world, "hv01", "hv03")
    result = look(world)
    assert [problem.code for problem in result["refusals"]] == ["NotAtHome"]
    with pytest.raises(FlexdiskError, match="the playbook start_host asks") as caught:
        hosts(world)[0].leave(VM, "hv01", "hv03", guid(world.peer), result["digest"])
    assert caught.value.code == "NotAtHome"
    return result["refusals"][0].message


def test_a_vm_that_was_taken_over_does_not_leave(three):
    """The host that took it over does not answer. Here the VM is stopped, as its host has booted."""
    taken_over(three)
    assert "flexdisk_failover_state=returned" in refused(three)
    assert three.home.ok("zfs", "list", "-Ho", "name").find("flexdisk/move") < 0


def test_a_move_that_was_killed_does_not_go_on_after_a_boot(three):
    """It was killed when the VM had been stopped. Given up, nothing starts the VM, and start_host asks."""
    between(three, "hv01", "hv03")
    result = begun(three)
    hosts(three)[0].leave(VM, "hv01", "hv03", guid(three.peer), result["digest"])
    assert not look(three)["refusals"]
    boot(three.home)
    assert "flexdisk_move_state=stays first" in refused(three)
    assert hosts(three)[0].stay(VM)
    assert hosts(three)[1].cancel(VM)
    assert powers(three) == {"hv01": "stopped", "hv02": "", "hv03": ""}
    between(three, "hv01", "hv02")
    assert start(three, asked(three, "hv02", "hv03")).started
    between(three, "hv01", "hv03")
    assert move(three)


def test_a_vm_that_runs_leaves_and_is_at_home_while_it_is_down(three):
    """After an update, nothing is noted of it yet. A move that is killed after the stop goes on."""
    between(three, "hv01", "hv03")
    three.home.ok("zfs", "inherit", "flexdisk:at_home", f"zones/{VM}")
    result = begun(three)
    hosts(three)[0].leave(VM, "hv01", "hv03", guid(three.peer), result["digest"])
    assert power(three.home) == "stopped"
    assert move(three)
    assert powers(three) == {"hv01": "", "hv02": "", "hv03": "running"}


@pytest.mark.parametrize("phase", ["leaving", "moved"])
def test_plans_of_moves_do_not_go_on_with_a_vm_that_was_taken_over(three, phase):
    """evacuate_host and its like: its move was killed, its host died, and hv02 has it."""
    between(three, "hv01", "hv03")
    result = begun(three)
    if phase == "leaving":
        hosts(three)[0].leave(VM, "hv01", "hv03", guid(three.peer), result["digest"])
    else:
        gone(three, result)
    assert [job["operations"][0]["do"] for job in unfinished_moves(infos(three), Wanted())] == ["move"]
    three.home.reboot()
    between(three, "hv01", "hv02")
    take(three)
    (job,) = unfinished_moves(infos(three), Wanted())
    assert job["operations"][0]["do"] == "nothing"
    assert "hv02 has it, too" in job["why"]


def infos(world):
    """What all hosts say to a plan of moves."""
    told_of = {name: host_info(host.zfs(), host.driver(), None) for name, host in world.hv.items()}
    return [{"name": name, "group": "", "info": json.loads(json.dumps(one))} for name, one in told_of.items()]


def test_nothing_is_sent_of_a_vm_that_was_taken_over(three):
    """A set that is complete would be as old as the VM that is stopped, and seem to be new."""
    taken_over(three)
    between(three, "hv01", "hv03")
    planned = three.planned()
    assert [problem.code for problem in planned.problems] == ["NotAtHome"]
    assert planned.transfers == []


@VMADM
def test_the_other_vms_are_sent(three):
    """One that was taken over is left out, and named."""
    three.home.create({**TWIN, "alias": "db02", "disks": [DISK]})
    boot(three.home)
    between(three, "hv01", "hv03")
    planned = three.planned([VM, TWIN["uuid"]])
    assert planned.problems == []
    (message,) = planned.failures
    assert message.startswith(f"db01 ({VM}): it has failover and does not run")
    assert [one.uuid for one in planned.transfers] == [TWIN["uuid"]]


def test_a_vm_that_has_left_asks(three):
    """Its move was killed when it had left. Its host does not have it any more, so that refuses no failover."""
    between(three, "hv01", "hv03")
    result = begun(three)
    assert look(three)["asks"] == []
    gone(three, result)
    assert look(three)["asks"] == ["hv02"]
    (job,) = unfinished_moves(infos(three), Wanted())
    assert job["operations"][0]["do"] == "move"
    (job,) = unfinished_moves(
        [one if one["name"] != "hv02" else {**one, "info": None} for one in infos(three)], Wanted()
    )
    assert job["operations"][0]["do"] == "nothing"
    assert "hv02 could not be asked whether it has been taken over" in job["why"]
    assert move(three)
    assert powers(three) == {"hv01": "", "hv02": "", "hv03": "running"}
