# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM with failover is started by start_host and failover_vm alone, once its host has booted; no run starts it."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import failover_records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_home import (
    FailoverHome,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm, vm_snapshot
from tests.unit.engine.modules.test_vm_snapshot import NOW, wanted

from .test_failover import kept, mark, protect, said_by, snapshot, start, take, wish
from .test_move import POLICY, config, created, hosts, leave, look
from .test_move import pair as on_both
from .test_other_tasks import DATA, ROOT, done
from .world import VM, Killed

world = on_both


def power(host):
    return host.power(VM)


def boot(host):
    """The host loses power, and starts again. It starts no VM whose autoboot is off."""
    if power(host) == "running":
        host.power_off(VM)
    host.reboot()


def never(world, host):
    """From now on, the VM must not run on this host after any command."""
    world.watch = lambda: _stopped(host)


def _stopped(host):
    assert power(host) == "stopped"


def killed_when_stopped(world):
    """A run of vm_disks has stopped the VM, and is killed."""

    def watch():
        if power(world.home) == "stopped":
            raise Killed

    world.watch = watch
    with pytest.raises(Killed):
        done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
    world.watch = lambda: None


def test_an_interrupted_run_starts_no_vm_that_was_taken_over(world):
    """Its host died and has booted. The run is taken up, and the VM stays down."""
    protect(world)
    killed_when_stopped(world)
    boot(world.home)
    take(world)
    assert power(world.peer) == "running"
    never(world, world.home)
    assert start(world, {"hv02": said_by(world.peer)}).started == []
    done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
    assert (power(world.home), power(world.peer)) == ("stopped", "running")
    for check in (True, False):
        refused = vm.run(
            world.home.zfs(), world.home.driver(), [{"vm": "db01", "state": "running"}], [], POLICY, "zones", check
        )
        assert [problem.code for problem in refused.problems] == ["NotAtHome"]
        assert "the playbook start_host asks" in refused.problems[0].message
        assert "failover_vm" in refused.problems[0].message
    done(world, ROOT, DATA, allow_restart=True)
    assert power(world.home) == "stopped"


def test_start_host_turns_off_what_a_killed_start_has_left_on(world):
    """Wherever the home is: at the next boot, the hypervisor would start the VM without asking."""
    protect(world)
    for claims in ({"hv02": []}, {"hv02": ""}):
        world.home.set_autoboot(VM, True)
        for check, on in ((True, True), (False, False)):
            done = start(world, claims, check=check)
            assert [label.partition(" ")[0] for label in done.repaired] == ["db01"]
            assert world.home.autoboots(VM) is on
        for check in (True, False):
            assert start(world, claims, check=check).repaired == []


def test_start_host_starts_it_when_nobody_has_taken_it_over(world):
    """The interrupted run is finished without a start, or with one after start_host has asked."""
    for first in (True, False):
        saved = world.saved()
        protect(world)
        killed_when_stopped(world)
        boot(world.home)
        if first:
            done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
            assert power(world.home) == "stopped"
            assert start(world, {"hv02": said_by(world.peer)}).started
        else:
            (message,) = start(world, {"hv02": said_by(world.peer)}).failures
            assert "a run was interrupted" in message
            done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
        assert (power(world.home), wish(world.home)[1]) == ("running", False)
        for state in ("stopped", "running"):
            assert not created(world, {"vm": "db01", "state": state}).problems
            assert power(world.home) == state
        world.restore(saved)


def test_a_restart_by_name_is_refused_as_a_start_is(world):
    """Nobody has asked since the boot. A VM that runs has been started by who may, so it is restarted."""
    protect(world)
    boot(world.home)
    for check in (True, False):
        given = [{"vm": "db01", "state": "restarted"}]
        refused = vm.run(world.home.zfs(), world.home.driver(), given, [], POLICY, "zones", check)
        assert [problem.code for problem in refused.problems] == ["NotAtHome"]
        assert power(world.home) == "stopped"
    assert start(world, {"hv02": said_by(world.peer)}).started
    assert not created(world, {"vm": "db01", "state": "restarted"}).problems
    assert power(world.home) == "running"


def test_a_run_that_is_killed_is_taken_up_as_long_as_the_host_has_not_booted(world):
    protect(world)
    killed_when_stopped(world)
    done(world, ROOT, {**DATA, **world.cold}, allow_restart=True)
    assert power(world.home) == "running"


def test_a_vm_that_shall_not_start_with_its_host_is_started_after_start_host(world):
    """start_host has asked for it, too."""
    kept(world, "off")
    assert world.sync()[1]
    boot(world.home)
    assert created(world, {"vm": "db01", "state": "running"}).problems
    answers = {"hv02": said_by(world.peer)}
    assert start(world, answers, check=True) == start(world, answers) == ([], [], [], [])
    assert not created(world, {"vm": "db01", "state": "running"}).problems
    assert (power(world.home), wish(world.home)) == ("running", ("off:0", False))


def test_a_rollback_starts_nothing(world):
    """Not even for a moment, also one that was interrupted when the VM ran."""
    done(world, ROOT, DATA, flexible_disk_size=512)
    protect(world)
    snapshot(world, "present")
    world.write(0, 3, 9)
    arguments = (["db01"], wanted(name="one", state="rolled_back", destroy_newer=True), POLICY, None, False, NOW)
    boot(world.home)
    take(world)
    never(world, world.home)
    ended = vm_snapshot.run(world.home.zfs(), world.home.driver(), *arguments)
    assert (ended.problems, ended.failure, ended.changed) == ([], None, True)
    assert power(world.home) == "stopped"


def test_a_rollback_that_was_interrupted_starts_nothing_after_a_boot(world):
    done(world, ROOT, DATA, flexible_disk_size=512)
    protect(world)
    snapshot(world, "present")
    world.write(0, 3, 9)
    arguments = (["db01"], wanted(name="one", state="rolled_back", destroy_newer=True), POLICY, None, False, NOW)
    for at in (3, 5):
        saved, down = world.saved(), []

        def watch(at=at, down=down):  # pylint: disable=dangerous-default-value
            down += [1] if power(world.home) == "stopped" else []
            if len(down) == at:
                raise Killed

        world.watch = watch
        with pytest.raises(Killed):
            vm_snapshot.run(world.home.zfs(), world.home.driver(), *arguments)
        boot(world.home)
        never(world, world.home)
        ended = vm_snapshot.run(world.home.zfs(), world.home.driver(), *arguments)
        assert (ended.problems, ended.failure, ended.changed) == ([], None, True)
        assert ended.vms[0]["recovered"]
        assert power(world.home) == "stopped"
        world.watch = lambda: None
        world.restore(saved)


def test_a_move_that_is_given_up_starts_nothing_after_a_boot(world):
    """It was killed after the stop, its host died, and the VM was taken over."""
    protect(world)
    leave(world, look(world))
    assert power(world.home) == "stopped"
    saved = world.saved()
    hosts(world)[0].stay(VM)
    assert power(world.home) == "running"
    world.restore(saved)
    boot(world.home)
    never(world, world.home)
    hosts(world)[0].stay(VM)
    assert power(world.home) == "stopped"


def test_a_move_that_is_given_up_starts_what_ran_when_it_began(world):
    """Also if nobody has noted its home, as before 0.3.0. The attribute says so if it cannot be started."""
    protect(world)
    world.home.ok("zfs", "inherit", "flexdisk:at_home", f"zones/{VM}")
    leave(world, look(world))
    saved, departure = world.saved(), hosts(world)[0]
    departure.stay(VM)
    assert (power(world.home), departure.left_down) == ("running", "")
    world.restore(saved)
    boot(world.home)
    departure = hosts(world)[0]
    departure.stay(VM)
    assert power(world.home) == "stopped"
    assert "ran before its move, and is stopped now: it has failover" in departure.left_down
    assert "the playbook start_host asks and starts it" in departure.left_down


@pytest.mark.parametrize("autoboot", ["on", "off"])
def test_a_host_that_does_not_tell_its_boots_apart(world, monkeypatch, autoboot):
    """The message names what starts the VM there, which is not start_host if it shall not start with its host."""
    protect(world)
    monkeypatch.setattr(type(world.home.driver()), "boot_id", lambda _self: "")
    world.home.ok("zfs", "set", f"flexdisk:failover={autoboot}:0", f"zones/{VM}")
    world.home.power_off(VM)
    (problem,) = created(world, {"vm": "db01", "state": "running"}).problems
    (text,) = not_marked(world, False)
    way = {
        "on": "the playbook start_host asks and starts it",
        "off": f"make sure that no other host has it, then start it by hand (vmadm start or virsh start {VM})",
    }
    (sent,), (leaves,) = world.planned().problems, look(world)["refusals"]
    assert text == f"{sent.message} [NotAtHome]" == f"{leaves.message} [NotAtHome]"
    for message in (problem.message, text, sent.message):
        assert "this host does not tell one boot from the next" in message
        assert way[autoboot] in message
    assert problem.code == "NotAtHome"
    assert bool(start(world, {"hv02": said_by(world.peer)}).started) is (autoboot == "on")
    if autoboot == "off":
        world.home.power_on(VM)
    assert mark(world, False).changed


# -- giving failover up


def not_marked(world, wanted, check=False):
    """What the step says, which changes nothing."""
    before = (config(world.home), world.home.ok("zfs", "get", "-H", "-o", "value", "all", f"zones/{VM}"))
    marked = FailoverHome(world.home.zfs(), world.home.driver(), world.home).set_failover(
        ["db01"], wanted, "hv01", check
    )
    assert (config(world.home), world.home.ok("zfs", "get", "-H", "-o", "value", "all", f"zones/{VM}")) == before
    assert (marked.changed, marked.records) == (False, [])
    return [f"{one.message} [{one.code}]" for one in marked.problems] or marked.failures


@pytest.mark.parametrize("taken", [True, False])
def test_an_old_home_does_not_give_failover_up(world, taken):
    """Else the VM would start with the host again, and any task could start it. The other host forgets nothing."""
    protect(world)
    boot(world.home)
    if taken:
        take(world)
    for check in (True, False):
        for failover in (False, True, None):
            (message,) = not_marked(world, failover, check)
            assert message.endswith("[NotAtHome]")
            assert "the playbook start_host asks" in message
            assert "flexdisk_start_unasked=true" in message
            assert "flexdisk_failover_state=returned" in message
    problems = failover_records.in_use(world.peer.zfs(), world.peer.driver(), [VM])
    assert [one.code for one in problems] == (["InUse"] if taken else [])
    assert world.home.autoboots(VM) is False
    assert [one.code for one in created(world, {"vm": "db01", "state": "running"}).problems] == ["NotAtHome"]


def test_nobody_loses_failover_with_its_replicas_on_an_old_home(world):
    protect(world)
    boot(world.home)
    world.sender().remove(["db01"], world.peer_name, False)
    assert not_marked(world, None)
    start(world, {}, unasked=True)
    assert mark(world).changed
    assert world.home.autoboots(VM) is True


@pytest.mark.parametrize("by_hand", [True, False])
def test_failover_is_given_up_at_home(world, by_hand):
    """After start_host, or a VM that runs although nobody knows of its home."""
    protect(world)
    boot(world.home)
    if by_hand:
        world.home.power_on(VM)
    else:
        start(world, {"hv02": said_by(world.peer)})
    assert mark(world, False).changed
    assert world.home.autoboots(VM) is True


# -- deleting the VM


GONE = {"vm": "db01", "state": "absent", "destroy_disks": True, "destroy_snapshots": True}


def not_deleted(world):
    """The only problem of a task that deletes the VM. Check mode tells it, too, and nothing changes."""
    before = world.home.node.pools.to_json()["pools"]
    for check in (True, False):
        ended = vm.run(world.home.zfs(), world.home.driver(), [GONE], [], POLICY, "zones", check)
        (problem,) = ended.problems
        assert world.home.node.pools.to_json()["pools"] == before
    return problem


@pytest.mark.parametrize("taken", [True, False])
def test_an_old_home_does_not_delete_a_vm_that_may_have_been_taken_over(world, taken):
    """Its preserved disks would stay for ever in the way of the replicas that come back."""
    protect(world)
    boot(world.home)
    if taken:
        take(world)
    done(world, {**ROOT, "preserve": True}, {**DATA, "preserve": True})
    problem = not_deleted(world)
    assert (problem.code, problem.vm) == ("NotAtHome", "db01")
    assert "the playbook start_host asks" in problem.message
    assert "flexdisk_failover_state=returned ends the VM here" in problem.message


def test_a_vm_with_failover_is_not_deleted(world):
    """The other host would bring it back. Without its failover, it is deleted as any other."""
    protect(world)
    done(world, {**ROOT, "preserve": True}, {**DATA, "preserve": True})
    problem = not_deleted(world)
    assert problem.code == "Replicated"
    assert "the playbook replicate with flexdisk_failover=false gives that up first" in problem.message
    assert mark(world, False).changed
    assert created(world, GONE).failure is None
    assert power(world.home) == ""
