# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks restore_disk and restore_vm in place, killed anywhere. The same command ends it."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import shlex
from itertools import product

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import host_status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.run.module_run import Call
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.order import Play, decide
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.playbooks import PLAYBOOKS
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.operators.status import status
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.fleet.replication.calls import Stopped
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.copies import Copies
from ansible_collections.flexdisk.hypervisor.plugins.modules import vm_info

from .controller import Controller
from .test_move import swap
from .test_other_tasks import task
from .test_restore import made
from .test_restore_in_place import NAMES, Site
from .world import VM, Fuse, Killed

EVERY = 1 if os.environ.get("FLEXDISK_FULL") else 7  # an odd number: before and after a command by turns
POWER = {"flexible_disks_allow_restart": True, "flexible_disks_stop_timeout": 9}
DISK = {"flexdisk_vm": "db01", "flexdisk_disk": "data", "flexdisk_replaced_name": "data-wrong", **POWER}
ALL = {"flexdisk_vm": "db01", "flexdisk_replaced_suffix": "wrong", **POWER}
COMMANDS = {"restore_disk": DISK, "restore_vm": ALL}
OTHERS = (
    ("restore_disk", {**DISK, "flexdisk_replaced_name": "other"}),
    ("restore_disk", {**DISK, "flexdisk_disk": "root"}),
    ("restore_disk", {**DISK, "flexdisk_replica_snapshot": "other"}),
    ("restore_disk", {"flexdisk_vm": "db01", "flexdisk_disk": "data", "flexdisk_restored_name": "data-wrong"}),
    ("restore_vm", {**ALL, "flexdisk_replaced_suffix": "other"}),
    ("restore_vm", {"flexdisk_vm": "db01", "flexdisk_restored_suffix": "wrong"}),
)


class Played(Site):
    """What a command does from the hosts as vm_info reports them."""

    def read(self, host):
        params = {"vms": None, "space": False, "leases": False}
        answer = vm_info.body(Call(host.zfs(), host.driver(), None, False, host), params)
        assert not answer.failure
        return json.loads(json.dumps(answer.result))

    def play(self, playbook, given, check=False):
        hosts = {"hv01": self.target, "hv02": self.source}
        reads = {name: self.read(host) for name, host in hosts.items()}
        variables = {name: dict(given) for name in hosts}
        order = decide(PLAYBOOKS[playbook], Play(variables, reads, inventory_hosts=list(hosts)))
        if order.problems:
            raise Stopped("; ".join(order.problems))
        ((home, call),) = order.calls.items()
        controller = Controller(self.world, hosts)
        arguments = {"sync": controller.sync(home, call["target"], []), **call["restore"]}
        return controller.does("restore", arguments, check)["plan"]

    def kill(self, number, after, playbook, given):
        """Whether there was such a command."""
        self.world.fuse = Fuse(number, after)
        with contextlib.suppress(Killed, Stopped, FlexdiskError):
            self.play(playbook, given)
        reached = self.world.fuse.counted >= number
        self.world.fuse = Fuse()
        return reached

    def begun(self):
        return "exchange" in {key for one in self.there().datasets.values() for key in one.user}

    def is_exchanged(self):
        """Before the VM is started."""
        return not self.begun() and any(disk.volume.user.get("replaced") for disk in self.there().detached)

    def why_not(self, playbook, given, check=True):
        before = self.state()
        with pytest.raises(Stopped) as caught:
            self.play(playbook, given, check)
        assert self.state() == before
        return str(caught.value)

    def named(self, playbook, given):
        """The command that the refusal of another restore names, and status, too. It is the one that was killed."""
        reasons = [self.why_not(*OTHERS[0], check=False), *(self.why_not(*other) for other in OTHERS)]
        (command,) = {reason.partition("before this has ended it: ")[2] for reason in reasons}
        half = host_status.run(self.target.zfs(), Copies(self.target), self.target.driver(), None)[0]
        assert f"    go on:   {command}" in status({"hv01": json.loads(json.dumps(half))}, []).lines
        _program, name, *words = shlex.split(command)
        variables = dict(word.split("=", 1) for word in words if word != "-e")
        assert name == f"flexdisk.hypervisor.{playbook}"
        assert variables["flexdisk_vm"] == VM
        meant = {"flexdisk_disk": self.uuid} if playbook == "restore_disk" else {}
        assert variables == {**{k: v for k, v in given.items() if k not in POWER}, "flexdisk_vm": VM, **meant}
        return variables

    def ended(self, playbook):
        self.whole()
        assert self.target.runs(VM)
        if playbook == "restore_vm":
            assert [self.target.hash(name) for name in self.places] == self.before[:2]


@pytest.fixture(params=["vmadm", "libvirt"])
def site(request, tmp_path, monkeypatch):
    """On libvirt, the file, of which nothing is restored in place, goes."""
    world = made(request.param, tmp_path, monkeypatch)
    if request.param == "libvirt":
        gone = task(world, *({"name": name} for name in NAMES), unlisted="detach")
        assert (gone.problems, gone.failure) == ([], None)
        assert world.sync()[1]
    return Played(world)


@pytest.mark.parametrize("playbook", COMMANDS)
def test_killed_at_every_command_the_same_command_ends_it(site, playbook):
    """So does the one that status and refusals name. Another restore is refused meanwhile."""
    given, saved, reports = COMMANDS[playbook], site.world.saved(), set()
    site.world.fuse = Fuse()
    site.play(playbook, given)
    counted = site.world.fuse.counted
    site.ended(playbook)
    for at, after in [*product(range(1, counted + 1), (False, True))][::-EVERY]:
        site.world.restore(saved)
        assert site.kill(at, after, playbook, given)
        if reports and site.vm().interrupted is None:
            return  # the replicas are still sent: test_restore_in_place kills that
        site.world.authorized.touch()
        report = str([vm["restoring"] for vm in site.read(site.target)["vms"]])
        if site.begun() and report not in reports:
            reports.add(report)
            named, killed = site.named(playbook, given), site.world.saved()
            site.play(playbook, {**named, **POWER})
            site.ended(playbook)
            site.world.restore(killed)
            site.world.authorized.touch()
        site.play(playbook, given)
        site.ended(playbook)
        assert site.play(playbook, given) == [], (at, after)
    raise AssertionError("it was never begun")


def test_disks_of_different_times(site):
    """Another run has restored one of them already, and its guest has written to it since."""
    site.play("restore_disk", DISK)
    swap(site.world)
    site.world.write(1, 4, 20)
    swap(site.world)
    assert "what they had before is data-wrong; of root-wrong this is not so" in site.why_not("restore_vm", ALL)
    site.why_not("restore_vm", ALL, check=False)
    site.play("restore_vm", {**ALL, "flexdisk_replaced_suffix": "later"})
    assert [site.target.hash(name) for name in site.places] == site.before[:2]


def killed_at_first(site, reached, playbook, given):
    """Kill it at the first command after which this is so, and then stays so."""
    saved = site.world.saved()

    def is_so(number):
        site.world.restore(saved)
        return not site.kill(number, True, playbook, given) or reached()

    number = bisect.bisect_left(range(400), True, lo=1, key=is_so)
    assert is_so(number)
    site.world.authorized.touch()


def test_the_named_snapshot_is_gone_when_all_has_come(site):
    point = site.source.points(site.replica)[-1]
    given = {**ALL, "flexdisk_replica_snapshot": point}

    def all_has_come():
        users = [one.user for one in site.there().datasets.values() if "restored" in one.user]
        return len(users) == 2 and not any("from" in user for user in users)

    killed_at_first(site, all_has_come, "restore_vm", given)
    assert not site.begun()
    swap(site.world)
    site.world.write(0, 1, 3)
    assert site.world.sync() == (True, True)
    site.wrong = site.world.hashes()[site.number]
    swap(site.world)
    assert point not in site.source.points(site.replica)
    site.play("restore_vm", given)
    site.ended("restore_vm")


def test_a_sync_between_the_exchange_and_the_start(site):
    """The VM is down, and the same command starts it, although the replica has a newer sync now."""
    killed_at_first(site, site.is_exchanged, "restore_disk", DISK)
    assert not site.target.runs(VM)
    swap(site.world)
    assert site.world.sync()[1]
    swap(site.world)
    before = site.state()
    assert site.play("restore_disk", DISK, check=True)[-1].strip() == "start"
    assert site.state() == before
    site.play("restore_disk", DISK)
    site.ended("restore_disk")
    assert "is what the disk had before" in site.why_not("restore_disk", DISK)
