# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line for a task: whom it concerns, what it takes, what it destroys."""

from __future__ import annotations

import pytest

from tests.unit.engine.conftest import VM, Simulated

OTHER = VM[:-1] + "2"


def entries(*disks, **more):
    return {"vm": "web01", "disks": [{"name": "root", "boot": True}, *disks], **more}


@pytest.fixture
def sim():
    node = Simulated()
    node.adopted(2048, 1024)
    return node


A, B = {"name": "a"}, {"name": "b"}


@pytest.mark.parametrize(
    ("disks", "more", "line"),
    [
        ([A, B], {}, "1 VM: nothing to change"),
        ([{**A, "size": "3GiB"}, B], {}, "1 VM: 1 change, no restarts, +1 GiB, 0 B destroyed"),
        ([A, B, {"name": "c", "size": 512}], {}, "1 VM: 1 change, no restarts, +512 MiB, 0 B destroyed"),
        ([A], {"unlisted": "detach"}, "1 VM: 1 change, no restarts, +0 B, 0 B destroyed"),
        (
            [A, {**B, "state": "absent"}],
            {},
            "1 VM: 1 change, no restarts, -1 GiB, 1 GiB destroyed",
        ),
        (
            [{**A, "size": 1024, "dangerous_allow_shrink": True}, {**B, "size": "5GiB"}],
            {},
            "1 VM: 1 change, no restarts, +3 GiB, 1 GiB destroyed",
        ),
    ],
    ids=["idle", "grow", "create", "detach", "destroy", "shrink and grow"],
)
def test_one_vm(sim, disks, more, line):
    predicted = sim.converge(entries(*disks, **more), check=True)
    done = sim.converge(entries(*disks, **more))
    assert (done.problems, done.failure) == ([], None)
    assert predicted.msg == done.msg == line
    assert done.diff.partition("\n")[0] == (line if done.changed else "")


def test_several_vms(sim):
    for number in "23":
        sim.create(uuid=VM[:-1] + number, alias="web0" + number, sizes=(64,))
        sim.converge(
            {"vm": "web0" + number, "disks": [{"name": "root", "boot": True}, {"name": "x", "pci_slot": "0:4:1"}]}
        )
    sim.run("vmadm", "start", VM)
    grow = entries({**A, "size": "4GiB"}, B)
    others = [
        {"vm": "web0" + n, "disks": [{"name": "root", "boot": True}, {"name": "x", "size": 64 * int(n) - 64}]}
        for n in "23"
    ]
    done = sim.four_steps(grow, *others, allow_restart=True)
    assert done.msg == "3 VMs: 2 changes, 1 restart, +2.0 GiB, 0 B destroyed"
    assert done.diff.splitlines()[0] == done.msg
    assert done.diff.splitlines()[-1] == "1 VM unchanged"


def test_a_disk_that_another_vm_gets_takes_nothing(sim):
    sim.create(uuid=OTHER, alias="web02", sizes=())
    sim.converge(entries(A, unlisted="detach"))
    disk = sim.detached()["b"]
    two = {"vm": "web02", "disks": [{"name": "root", "boot": True}, {"name": "b", "uuid": disk.uuid}]}
    assert sim.converge(two).msg == "1 VM: 1 change, no restarts, +0 B, 0 B destroyed"


def test_snapshots_that_go_are_counted(sim):
    sim.run("zfs", "snapshot", f"zones/{VM}/disk2@one")
    sim.run("zfs", "snapshot", f"zones/{VM}/disk2@two")
    gone = {**B, "state": "absent", "destroy_snapshots": True}
    message = sim.converge(entries(A, gone)).msg
    assert message == "1 VM: 1 change, no restarts, -1 GiB, 1 GiB destroyed, 2 snapshots destroyed"
