# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VMs with failover on two simulated nodes: what the home keeps, and how the other host takes a VM over."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.observe import observe
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor.vmadm import Vmadm
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.zfs.commands import Zfs
from tests.unit.engine.test_vm_snapshot import NOW, wanted

from .test_move import POLICY, config, created, findings, move, swap
from .test_move import world as world_of_moves
from .test_other_tasks import DATA, ROOT, done
from .world import VM

world = world_of_moves
FACT = "flexdisk:failover"


def wish(host):
    """What the VM's dataset says, and what the hypervisor would do."""
    (vm,) = observe(Zfs(host), Vmadm(host)).vms
    assert vm.config.failover
    fact = host.ok("zfs", "get", "-H", "-o", "value", FACT, f"zones/{VM}")
    assert vm.config.autoboot is fact.startswith("on:")
    return fact, config(host)["autoboot"]


def kept(world, autoboot="on"):
    """The VM has failover."""
    world.home.ok("zfs", "set", f"{FACT}={autoboot}:0", f"zones/{VM}")
    world.home.node.run(["vmadm", "update", VM], '{"autoboot": false}')


def snapshot(world, state):
    """A snapshot of the whole VM is taken, used or deleted."""
    what = (Zfs(world.home), Vmadm(world.home, lambda _seconds: None), ["db01"], wanted(name="one", state=state))
    ended = vm_snapshot.run(*what, POLICY, None, False, NOW)
    assert (ended.problems, ended.failure) == ([], None)


@pytest.mark.parametrize("autoboot", ["on", "off"])
def test_no_task_turns_autoboot_on(world, autoboot):
    """A restart, a rollback and a move leave the wish as it was, and the hypervisor's autoboot off."""
    kept(world, autoboot)
    before = (f"{autoboot}:0", False)
    done(world, ROOT, {**DATA, "model": "nvme"}, allow_restart=True)
    assert (wish(world.home), config(world.home)["state"]) == (before, "running")
    for state in ("stopped", "running"):
        assert not created(world, {"vm": "db01", "state": state}).problems
        assert (wish(world.home), config(world.home)["state"]) == (before, state)
    done(world, ROOT, DATA, flexible_disk_size=512)
    for state in ("present", "rolled_back", "absent"):
        snapshot(world, state)
        assert wish(world.home) == before
    assert move(world)
    assert (wish(world.peer), config(world.peer)["state"]) == (before, "running")
    swap(world)
    assert findings(world) == []


def test_the_wish_changes(world):
    """autoboot of the module vm is the wish."""
    kept(world)
    for autoboot in (False, True):
        for changed in (True, False):
            ended = created(world, {"vm": "db01", "state": "running", "autoboot": autoboot})
            assert (ended.problems, ended.failure, ended.changed) == ([], None, changed)
        assert wish(world.home) == (f"{'on' if autoboot else 'off'}:0", False)
