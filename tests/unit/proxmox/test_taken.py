# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A VM of Proxmox VE gets a disk of another one, also in one task with two plans: always one record has the disk."""

from __future__ import annotations

import contextlib

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.vm import VmRecord
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules import vm_record

from .test_elsewhere import OTHER, with_other
from .test_leaving import GONE, LEAVES, ROOT
from .test_registry import steps, task
from .world import DATA, STORAGE, VM, Killed, changes_of

TAKE = {"name": "data", "vm": "other", "from_vm": "web", "state": "attached", "take": True}
OFF = STORAGE.replace("pool tank/vms\n", "pool tank/vms\n\tdisable 1\n")


def made():
    world = with_other()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.done({"name": "theirs", "pci_slot": "scsi0"}, vm={"vm": "other"})
    return world


def known(world, vm):
    """Which identities the record of a VM has, and which disks it has as detached."""
    config = next(one for one in world.driver.vms() if one.uuid == vm)
    return [one["uuid"] for one in vm_record.known(config).values()], [*(config.record or VmRecord({})).detached]


def test_the_records_of_both():
    world = made()
    steps(world, TAKE)
    assert DATA in known(world, OTHER)[0]
    assert DATA not in str(known(world, VM))


def test_a_detached_disk_of_another_vm():
    world = made()
    world.done(ROOT, **LEAVES)
    assert known(world, VM)[1] == [DATA]
    world.four_steps({"name": "theirs"}, {"uuid": DATA, "name": "data"}, vm={"vm": "other"})
    assert (known(world, VM)[1], DATA in known(world, OTHER)[0]) == ([], True)


def test_the_vm_that_had_it_is_gone():
    world = made()
    world.done(ROOT, **LEAVES)
    world.path.unlink()
    world.four_steps({"name": "theirs"}, {"uuid": DATA, "name": "data"}, vm={"vm": "other"})
    assert DATA in known(world, OTHER)[0]


def test_killed_at_every_command():
    """Its storage is off then. As long as the other VM does not have it, its name is not free in the first one."""
    world = made()
    numbers = changes_of(world, lambda: task(world, TAKE))
    assert len(numbers) > 10
    kept = set()
    for number, effect in ((n, effect) for n in numbers for effect in (False, True)):
        world = made()

        def spoil(at, argv, real, number=number, effect=effect):
            if at == number and effect:
                real(argv)
            if at >= number:
                raise Killed
            return real(argv)

        world.spoil = spoil
        with contextlib.suppress(Killed):
            task(world, TAKE)
        world.spoil = None
        records = known(world, VM), known(world, OTHER)
        assert any(DATA in part for one in records for part in one), (number, effect)
        if DATA not in records[1][0]:
            kept.add(DATA in records[0][1])
            world.write("storage.cfg", OFF)
            for entry in ({"name": "data", "size": "2GiB"}, GONE):
                assert world.converge(ROOT, entry, check=True).problems, (number, effect)
            world.write("storage.cfg", STORAGE)
        done = task(world, TAKE)
        assert (done.problems, done.failure) == ([], None), (number, effect)
        assert (known(world, VM)[1], DATA in known(world, OTHER)[0]) == ([], True), (number, effect)
        assert {disk.uuid for disk in world.vm_of(OTHER).disks} >= {DATA}
    assert kept == {True, False}


def test_the_other_vm_does_not_get_it():
    """The first one has it as detached then."""
    world = made()

    def spoil(number, argv, real):
        if argv[:3] == ["qm", "set", "101"]:
            world.spoil = None
            return real(["false"])
        return real(argv)

    world.spoil = spoil
    assert task(world, TAKE).failure is not None
    assert DATA in known(world, VM)[1]
    assert (task(world, TAKE).failure, known(world, VM)[1]) == (None, [])
