# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A failover of a VM that another host has, whatever it is called there. Three simulated nodes."""

from __future__ import annotations

import json

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    failover_records,
    failover_start,
    vm_failover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import host_steps
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies

from .test_failover import protect, take
from .test_move import move
from .test_start_claims import asked, between, powers, start
from .test_start_claims import three as three_hosts
from .test_start_claims import world as world_of_claims
from .test_start_door import boot
from .world import VM, Killed

world = world_of_claims
three = three_hosts


def look(world, name, *uuids):
    """What a host says to the playbook: by the name, and by the UUIDs that other hosts know by it."""
    host = world.hv[name]
    world.acting(host)
    answer = failover_start.look(host.zfs(), host.driver(), Copies(host), "db01", uuids)
    return json.loads(json.dumps(answer))


def fail_over(world, target, silent=(), check=True, left_out=(), **params):
    """The playbook failover_vm to a host, when some hosts are silent, or left out. What the module says."""
    answers = {name: look(world, name, VM) for name in world.hv if name not in {target, *silent, *left_out}}
    given = host_steps.defaults()
    given.update(step="take_over", vm=VM, name=target, authorized_keys=str(world.authorized), **params)
    given["peers"] = {**dict.fromkeys(silent, ""), **{name: one["vms"] + one["moved"] for name, one in answers.items()}}
    given["elsewhere"] = {name: one["records"] + one["moved"] for name, one in answers.items()}
    host = world.hv[target]
    world.acting(host)
    arguments, problems = vm_failover.parse(given)
    assert problems == []
    return vm_failover.run(Call(host.zfs(), host.driver(), None, check, host), arguments)


def refused(answer):
    """The problem, of which there is one."""
    (problem,) = answer.failure["problems"]
    return problem["code"], problem["message"]


def renamed(world, name, alias):
    world.hv[name].rename(VM, alias)


@pytest.fixture
def taken(three):
    """hv03 has replicas, too, and took the VM over when hv01 died. Then somebody has renamed it there."""
    between(three, "hv01", "hv03")
    protect(three)
    boot(three.hv["hv01"])
    take(three)
    renamed(three, "hv03", "db01-new")
    return three


def test_the_host_that_took_it_over_has_renamed_it(taken):
    """It is asked by UUID. By the name alone it says nothing."""
    assert look(taken, "hv03")["vms"] == []
    (vm_there,) = look(taken, "hv03", VM)["vms"]
    assert (vm_there["vm"], vm_there["alias"], bool(vm_there["points"])) == (VM, "db01-new", True)
    for check in (True, False):
        code, message = refused(fail_over(taken, "hv02", ["hv01"], check))
        assert code == "InUse"
        assert message == "hv03 has it, called db01-new, and it is not stopped there"
    assert powers(taken) == {"hv01": "stopped", "hv02": "", "hv03": "running"}


def test_the_old_home_ends_a_vm_that_was_renamed(taken):
    host = taken.hv["hv01"]
    taken.acting(host)
    back = FailoverReturn(host.zfs(), host.driver(), host)
    assert back.look(EndRequest(VM, read_claims({"hv03": look(taken, "hv03")["vms"]}))).move is None
    answer = look(taken, "hv03", VM)["vms"]
    taken.acting(host)
    assert back.look(EndRequest(VM, read_claims({"hv03": answer}))).move.host == "hv03"


def test_the_home_answers(three):
    code, message = refused(fail_over(three, "hv02"))
    assert (code, message[:35]) == ("InUse", "hv01, the host of db01, answers: mo")
    three.hv["hv01"].delete(VM)
    assert "does not have it any more" in refused(fail_over(three, "hv02"))[1]
    assert fail_over(three, "hv02", ["hv01"]).failure is None


def test_a_host_that_got_its_record_later_is_asked(three):
    """The record of hv02 is from before the first sync with hv03, which says that it could take the VM over, too."""
    between(three, "hv01", "hv03")
    protect(three)
    boot(three.hv["hv01"])
    assert fail_over(three, "hv02", ["hv01"], False, max_data_loss=10**9).failure is None
    assert look(three, "hv02", VM)["vms"][0]["peers"] == ["hv01", "hv03"]
    boot(three.hv["hv02"])
    done = start(three, {"hv01": [], "hv03": ""}, here="hv02")
    assert (done.started, "hv03 could not be asked" in done.failures[0]) == ([], True)
    between(three, "hv02", "hv01")
    assert start(three, asked(three, "hv01", "hv03"), here="hv02").started


def test_a_host_that_was_left_out_is_asked(three):
    """hv02 has heard from hv01 that hv03 can take the VM over, too, and keeps asking it wherever the VM goes."""
    host = three.hv["hv02"]
    three.acting(host)
    for check, expected in ((True, ["db01"]), (False, ["db01"]), (True, []), (False, [])):
        assert [label[:4] for label in failover_records.note([VM], "hv03", check)] == expected
    between(three, "hv01", "hv03")
    protect(three)
    boot(three.hv["hv01"])
    assert fail_over(three, "hv02", ["hv01"], False, left_out=["hv03"], max_data_loss=10**9).failure is None
    assert look(three, "hv02", VM)["vms"][0]["peers"] == ["hv01", "hv03"]
    between(three, "hv01", "hv02")
    old = three.hv["hv01"]
    three.acting(old)
    FailoverReturn(old.zfs(), old.driver(), old).end(
        EndRequest(VM, read_claims({"hv02": look(three, "hv02", VM)["vms"]}))
    )
    between(three, "hv02", "hv01")
    assert move(three)
    boot(old)
    done = start(three, {"hv02": [], "hv03": ""}, here="hv01")
    assert (done.started, "hv03 could not be asked" in done.failures[0]) == ([], True)


# -- a failover back to an old home


@pytest.fixture
def old(three):
    """hv02 took the VM over when hv01 died, and it wrote there. hv01 is back with its old copy, and hv02 dies."""
    boot(three.hv["hv01"])
    between(three, "hv01", "hv02")
    take(three)
    three.hv["hv02"].ok("guest", "write", f"zones/{VM}/disk1", "0", "9", "paid orders")
    return three


def test_an_old_copy_is_no_vm_that_is_here(old):
    """It is stopped, and hv02 could have taken it over. The message says what brings it up."""
    for check in (True, False):
        code, message = refused(fail_over(old, "hv01", ["hv02"], check))
        assert code == "NotAtHome"
        assert "has a copy of it, which is stopped" in message
        assert "flexdisk_start_unasked=true of start_host starts it nevertheless" in message
    assert powers(old)["hv01"] == "stopped"
    host = old.hv["hv01"]
    old.acting(host)
    done = failover_start.start(host.zfs(), host.driver(), read_claims({"hv02": ""}), True, False, "hv01")
    assert (len(done.started), powers(old)["hv01"]) == (1, "running")
    assert fail_over(old, "hv01", ["hv02"]).result["msg"] == f"VM {VM} is here"


def test_a_vm_at_home_that_was_stopped_is_here(old):
    """Somebody has stopped it on its new home. The host has not booted since."""
    old.hv["hv02"].power_off(VM)
    answer = fail_over(old, "hv02")
    assert (answer.failure, answer.result["changed"]) == (None, False)


# -- a failover from a record that is from before a move


def test_what_a_failover_from_an_old_record_has_begun_ends(three):
    """hv03 has begun it from a record of before the move to hv02, which was left out. hv02 is there again."""
    between(three, "hv01", "hv03")
    protect(three)
    between(three, "hv01", "hv02")
    assert move(three)
    newest = three.hv["hv02"].ok("guest", "hash", f"zones/{VM}/disk1")
    for name in ("hv01", "hv02"):
        boot(three.hv[name])

    def watch():
        if len(three.hv["hv03"].disks(VM)) == 1:
            raise Killed

    three.watch = watch
    with pytest.raises(Killed):
        fail_over(three, "hv03", ["hv01"], False, left_out=["hv02"], max_data_loss=10**9)
    three.watch = lambda: None
    host = three.hv["hv03"]
    claims = read_claims({name: look(three, name, VM)["vms"] for name in ("hv01", "hv02")})
    three.acting(host)
    back = FailoverReturn(host.zfs(), host.driver(), host)
    (problem,) = back.look(EndRequest(VM, claims)).problems
    assert "flexdisk_old_host with the name of this host" in problem.message
    assert back.look(EndRequest(VM, claims, False, True)).problems == []
    back.end(EndRequest(VM, claims, False, True))
    assert powers(three) == {"hv01": "", "hv02": "stopped", "hv03": ""}
    three.acting(three.hv["hv02"])
    assert start(three, asked(three, "hv01", "hv03"), here="hv02").started
    assert three.hv["hv02"].ok("guest", "hash", f"zones/{VM}/disk1") == newest


@pytest.fixture
def gone(three):
    """It has moved from hv01 to hv03, and hv02 still has the record of hv01. hv03 dies."""
    between(three, "hv01", "hv03")
    assert move(three)
    three.hv["hv03"].ok("guest", "write", f"zones/{VM}/disk1", "0", "9", "paid orders")
    boot(three.hv["hv03"])
    return three


def test_it_has_moved_on_since_the_record(gone):
    """The old home answers, and does not have it: its tombstone says where it went."""
    for check in (True, False):
        code, message = refused(fail_over(gone, "hv02", ["hv03"], check))
        assert code == "TooOld"
        assert message.startswith("hv01 says that it has moved on to hv03 (2")
        assert "hv02 only has replicas of it from hv01, " in message
        assert "If hv03 is gone for good, flexdisk_max_data_loss brings back what hv02 has" in message
    assert powers(gone) == {"hv01": "", "hv02": "", "hv03": "stopped"}


def test_the_host_where_it_went_is_gone_for_good(gone):
    """With the word for that, it comes back as it was before the move. If that host is there again, it is no home."""
    answer = fail_over(gone, "hv02", ["hv03"], False, max_data_loss=10**9)
    assert answer.failure is None
    assert "what it has written on hv03 is lost" in answer.result["lost"][0]
    assert powers(gone) == {"hv01": "", "hv02": "running", "hv03": "stopped"}
    done = start(gone, asked(gone, "hv01", "hv02"), here="hv03")
    assert (done.started, len(done.left)) == ([], 1)
