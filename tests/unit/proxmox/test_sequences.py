# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random tasks one after the other on Proxmox VE: check mode says each, and a second run does nothing."""

from __future__ import annotations

import random

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import vm_record

from .world import World

SEQUENCES, TASKS = 4, 8


def grow(world, chance):
    disk = chance.choice(world.vm().disks)
    return {"name": disk.name, "size": f"{disk.size_mib + chance.choice((1, 512, 1000))}MiB"}


def create(world, chance):
    taken = {disk.key for disk in world.vm().disks}
    keys = [key for key in (f"{bus}{n}" for bus in ("virtio", "scsi") for n in range(2, 15)) if key not in taken]
    slot = {"pci_slot": chance.choice(keys)} if chance.random() < 0.5 else {}
    return {"name": f"d{chance.randrange(10**6)}", "size": "64MiB", "type": chance.choice(("thick", "sparse")), **slot}


def describe(world, chance):
    disk = chance.choice(world.vm().disks)
    return {"name": disk.name, "description": str(chance.random()), "preserve": not disk.preserve}


def rename(world, chance):
    disk = chance.choice(world.vm().disks)
    return {"uuid": disk.uuid, "name": f"n{chance.randrange(10**6)}"}


def leave(world, chance):
    """Detach or destroy a disk, by what happens to those that are not listed."""
    vm = world.vm()
    stay = [{"uuid": disk.uuid} for disk in vm.disks if disk.boot or chance.random() < 0.7]
    return stay, {"vm": {"unlisted": chance.choice(("detach", "destroy"))}}


def come_back(world, chance):
    gone = world.vm().detached
    return {"uuid": chance.choice(gone).uuid} if gone else create(world, chance)


def drop(world, chance):
    vm = world.vm()
    choice = chance.choice([disk for disk in (*vm.disks, *vm.detached) if not disk.boot] or [None])
    return {"uuid": choice.uuid, "state": "absent"} if choice else create(world, chance)


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_whatever_comes_after_what(seed):
    chance, world = random.Random(seed), World()
    for _number in range(TASKS):
        if chance.random() < 0.3:
            world.run("qm", "stop" if world.running else "start", "100")
        keys = {disk.uuid: disk.key for disk in world.vm().disks}
        wanted = chance.choice((grow, create, describe, rename, leave, come_back, drop))(world, chance)
        entries, more = wanted if isinstance(wanted, tuple) else ([wanted], {})
        world.four_steps(*entries, **more)
        vm = world.vm()
        now = {disk.uuid: disk.key for disk in vm.disks}
        assert {uuid: key for uuid, key in keys.items() if uuid in now} == {u: k for u, k in now.items() if u in keys}
        assert (vm.orphans, vm.missing, vm.interrupted) == ((), (), None)
        assert "[PENDING]" not in world.file
        assert "unused" not in world.file
        assert vm_record.differences(vm.config, vm.disks) == []
        if world.running:
            assert world.plugged() == {disk.key: disk.size_mib for disk in vm.disks}
