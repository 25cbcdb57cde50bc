# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failover with libvirt: autostart, and domains whose memory is saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover import (
    guests_service,
    vm_failover,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_ending import (
    EndRequest,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_home import (
    FailoverHome,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.failover.failover_return import (
    FailoverReturn,
)
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.host.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm as vms
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.replication import records
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication import host_steps
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.claims import read_claims
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import SAVED_STATE
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.plan import vm_move
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import usage
from tests.unit.replication.test_failover import mark, protect, said_by, start, stored, take
from tests.unit.replication.test_move import POLICY, config, linux, move, swap
from tests.unit.replication.test_other_tasks import DATA, ROOT, done, task
from tests.unit.replication.world import VM

FILE = {"name": "logs", "type": "file", "size": 16}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A running domain with failover, two disks on volumes and one in a file. It starts with its host."""
    monkeypatch.setattr(records, "_FOLDER", str(tmp_path))
    made = linux(tmp_path, monkeypatch)
    made.listed = (FILE,)
    made.before = config(made.home)
    protect(made)
    return made


def booted(world):
    """The host has lost power, and has booted."""
    world.home.power_off(VM)
    world.home.reboot()


def saved(world):
    """The host was shut down and has booted: libvirt-guests has saved the domain."""
    world.home.domains.save(VM)
    world.home.reboot()


def declared(world, **options):
    return vms.run(world.home.zfs(), world.home.driver(), [{"vm": "db01", **options}], [], POLICY, "zones", False)


def test_autostart_is_off_while_a_domain_has_failover(world):
    """Whatever is done: a task of the module vm, of vm_disks, a move there and back. It is back without failover."""
    assert world.before["autoboot"] is True
    for step in (
        lambda: declared(world, state="stopped"),
        lambda: declared(world, state="stopped", autoboot=False),
        lambda: declared(world, state="running", autoboot=True),
        lambda: done(world, ROOT, {**DATA, "pci_slot": "5:0:0"}, allow_restart=True),
        lambda: move(world),
    ):
        step()
        assert (world.home.autoboots(VM), world.peer.autoboots(VM)) == (False, False)
    swap(world)
    FailoverHome(world.home.zfs(), world.home.driver(), world.home).set_failover([VM], False, "hv02", False)
    assert world.home.autoboots(VM) is True


def test_the_domain_comes_back_with_all_that_it_has(world):
    """UEFI variables, metadata, settings of its disks. Only autostart is off; start_host knows that it shall start."""
    booted(world)
    hashes = world.hashes()
    assert take(world)
    assert (config(world.peer), world.peer.hashes(VM)) == ({**world.before, "autoboot": False}, hashes)
    swap(world)
    booted(world)
    assert start(world, {"hv01": []}, unasked=True).started
    assert world.home.power(VM) == "running"


def test_nobody_starts_a_domain_before_start_host_has_asked(world):
    booted(world)
    (problem,) = declared(world, state="running").problems
    assert (problem.code, world.home.power(VM)) == ("NotAtHome", "stopped")
    assert start(world, {"hv02": said_by(world.peer)}).started
    assert world.home.power(VM) == "running"


@pytest.mark.parametrize("check", [True, False])
def test_a_saved_domain_goes_on_at_home(world, check):
    saved(world)
    done_ = start(world, {"hv02": said_by(world.peer)}, check=check)
    assert (done_.started, done_.failures) == ([f"db01 ({VM})"], [])
    assert world.home.power(VM) == ("saved" if check else "running")


def test_a_saved_domain_that_was_taken_over_stays_saved(world):
    """It does not run, so it is no second copy that runs. What it would write is given up by hand before it ends."""
    saved(world)
    assert [one["running"] for one in said_by(world.home, "db01")] == [False]
    assert take(world)
    left = start(world, {"hv02": said_by(world.peer)})
    assert (left.started, left.failures, left.left) == ([], [], [f"db01 ({VM}): hv02 has taken it over"])
    assert world.home.power(VM) == "saved"
    back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    request = EndRequest("db01", read_claims({"hv02": said_by(world.peer, "db01")}))
    with pytest.raises(FlexdiskError, match=rf"it is saved here.*Stop it here \(virsh managedsave-remove {VM}, which"):
        back.end(request)
    world.home.domains.saves.discard(VM)
    back.end(request)
    assert VM not in world.home.domains.configs


def test_messages_name_the_commands_of_libvirt(world):
    booted(world)
    assert take(world)
    world.home.power_on(VM)
    (message,) = start(world, {"hv02": said_by(world.peer)}).failures
    assert f"Stop it here (virsh shutdown {VM})" in message


def test_a_host_that_starts_all_domains_gets_no_failover(world, monkeypatch):
    """libvirt-guests asks nobody. A VM that has failover keeps it, and each sync says what is wrong."""
    home = FailoverHome(world.home.zfs(), world.home.driver(), world.home)
    monkeypatch.setattr(guests_service, "why_guests_start", lambda: "libvirt-guests starts all")
    marked = home.set_failover([VM], True, "hv01", False, "hv02")
    assert (marked.problems, len(marked.records), marked.failures) == ([], 1, ["hv01: libvirt-guests starts all"])
    assert not home.set_failover([VM], False, "hv01", False).failures
    (problem,) = home.set_failover([VM], True, "hv01", False, "hv02").problems
    assert (problem.code, problem.message) == ("NotSupported", "on this host, libvirt-guests starts all")
    assert world.home.autoboots(VM) is True


def why_saved(world):
    """What a task says of a domain whose memory is saved."""
    (problem,) = declared(world, state="stopped").problems
    assert problem.code == "VmInTransition"
    return problem.message


def test_no_message_tells_to_start_a_saved_domain_that_may_run_elsewhere(world):
    """virsh start asks no other host. start_host does, and afterwards the domain may be started by hand."""
    world.home.domains.save(VM)
    assert "start it (virsh start db01)" in why_saved(world)
    world.home.reboot()
    assert take(world)
    message = why_saved(world)
    assert "virsh start" not in message
    assert (
        "the playbook start_host asks whether another host has taken it over, and may start it; or give the" in message
    )
    assert f"(virsh managedsave-remove {VM}), which loses what the guest had in its memory" in message
    (problem,) = task(world, ROOT, {**DATA, "pci_slot": "5:0:0"}, allow_restart=True).problems
    assert (problem.code, problem.message) == ("VmInTransition", message)


def test_the_end_of_a_saved_domain_has_one_reason(world):
    saved(world)
    assert take(world)
    back = FailoverReturn(world.home.zfs(), world.home.driver(), world.home)
    (problem,) = back.look(EndRequest("db01", read_claims({"hv02": said_by(world.peer, "db01")}))).problems
    assert problem.code == "VmNotStopped"
    assert f"(virsh managedsave-remove {VM}, which loses what the guest had in its memory)" in problem.message


@pytest.mark.parametrize("state", ["paused", "crashed", "suspended"])
def test_a_guest_that_cannot_shut_itself_down_is_halted(world, state):
    """virsh shutdown does nothing to it, or fails. To resume it would make a second copy that runs."""
    booted(world)
    assert take(world)
    world.home.power_on(VM)
    world.home.domains.states[VM] = state
    (message,) = start(world, {"hv02": said_by(world.peer)}).failures
    assert f"Stop it here (virsh destroy {VM}, which halts it and keeps its disks)" in message


def test_a_volume_below_an_unknown_disk_is_shown_by_start_vm(world):
    """A domain with failover is started by what asks whether it may."""
    (vm,) = observe(world.home.zfs(), world.home.driver()).vms
    (entry, *_more) = vm.config.disks
    assert "the playbook start_vm shows it" in usage._perhaps(vm.config, entry).remedy
    assert "virsh start db01 shows it" in usage._perhaps(replace(vm.config, failover=False), entry).remedy


@pytest.mark.parametrize("check", [True, False])
def test_a_host_that_starts_all_domains_gets_no_first_record(world, monkeypatch, check):
    """It could not be the home of the VM. A record that it has is renewed, and each sync says what is wrong."""
    given = mark(world).records
    monkeypatch.setattr(guests_service, "why_guests_start", lambda: "libvirt-guests starts all")
    known = records.load(VM, records.FAILOVER)
    world.home.annotate(VM, "another")
    labels, (problem,) = stored(world, mark_failing(world).records, check)
    assert (labels, problem.code) == (["db01"], "NotSupported")
    assert problem.message.endswith(": libvirt-guests starts all")
    assert (records.load(VM, records.FAILOVER) == known) is check
    records.remove(VM, records.FAILOVER)
    labels, problems = stored(world, given, check)
    assert (labels, [one.message for one in problems]) == ([], [problem.message])
    assert records.known(records.FAILOVER) == []


def mark_failing(world):
    return FailoverHome(world.home.zfs(), world.home.driver(), world.home).set_failover(
        [VM], None, "hv01", False, "hv02"
    )


@pytest.mark.parametrize("check", [True, False])
def test_a_failover_to_a_host_that_starts_all_domains_says_so(world, monkeypatch, check):
    """The VM is needed there. What is wrong must end before the host boots."""
    booted(world)
    monkeypatch.setattr(guests_service, "why_guests_start", lambda: "libvirt-guests starts all")
    params = {**host_steps.defaults(), "step": "take_over", "vm": VM, "name": "hv02", "peers": {"hv01": ""}}
    arguments, problems = vm_failover.parse({**params, "authorized_keys": str(world.authorized)})
    call = Call(world.peer.zfs(), world.peer.driver(), None, check, world.peer)
    world.acting(world.peer)
    answer = vm_failover.run(call, arguments)
    assert (problems, answer.failure, answer.result["lost"]) == ([], None, ["hv02: libvirt-guests starts all"])
    assert "  - hv02: libvirt-guests starts all\n" in answer.result["diff"]["prepared"]
    assert world.peer.power(VM) == ("" if check else "running")


def test_a_saved_domain_is_sent_but_its_record_waits(world):
    """One failure, with the name and the reason once, although libvirt reports the saved state a second time."""
    world.home.domains.save(VM)
    world.home.domains.kept = [SAVED_STATE]
    assert world.sync()[1]
    home = FailoverHome(world.home.zfs(), world.home.driver(), world.home)
    marked = home.set_failover([VM], None, "hv01", False, "hv02")
    (failure,) = marked.failures
    assert (marked.records, failure.count(VM), failure.count("saved")) == ([], 1, 1)
    assert failure.endswith("[VmInTransition]")
    (problem,) = vm_move.refusals(observed(world), observed(world).vms[0], [SAVED_STATE])
    assert problem.code == "VmInTransition"


def observed(world):
    return observe(world.home.zfs(), world.home.driver())


@pytest.mark.parametrize("check", [True, False])
def test_a_domain_that_somebody_has_undefined_is_missed(world, check):
    """Its disks are here, and nothing would start it."""
    booted(world)
    world.home.domains.configs.pop(VM)
    for peers, key in (([], "failures"), (said_by(world.peer), "failures")):
        (text,) = getattr(start(world, {"hv02": peers}, check=check), key)
        assert text.startswith(
            f"{VM}: zones/{VM} has its disks and its failover, but libvirt does not have its domain; "
        )
    assert take(world)
    ended = start(world, {"hv02": said_by(world.peer)}, check=check)
    assert (ended.failures, len(ended.left)) == ([], 1)
    assert "hv02 has taken it over; what is left here is not ended: libvirt does not have its domain" in ended.left[0]
