# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What disk_verify finds on Proxmox VE is put right by the next task that names the VM."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.disk_verify import verify
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules.vm_info import info

from .test_snapshots import Snapshots
from .world import ROOT_DISK, Killed, World

DATA = "tank/vms/vm-100-disk-0"


def findings(world, pool=None):
    verified = verify(world.zfs, world.driver, None, (), pool, 30, False, int(world.node.now()))
    assert (verified.outcome.problems, verified.outcome.failure) == ([], None)
    return {(finding.kind, finding.disk): finding for finding in verified.findings}


def stop_before(world, ends):
    """Kill the run right before a command."""

    def spoil(number, argv, real):
        if ends(argv):
            raise Killed
        return real(argv)

    world.spoil = spoil


def reserved(world, volume=DATA):
    return int(world.run("zfs", "get", "-Hpo", "value", "refreservation", volume))


# -- what the hypervisor says of disks that no entry lists


def test_the_copy_of_a_boot_disk_that_no_entry_lists_is_written_too():
    world = World()
    assert findings(world).keys() == {
        ("stale_copy", "root"),
        ("stale_copy", "data"),
        ("record_differs", "root"),
        ("record_differs", "data"),
    }
    world.done({"name": "data", "description": "of the shop"})
    assert findings(world) == {}


def test_a_boot_disk_that_only_the_record_knows_is_named_again():
    """After a move to another storage, whether an entry lists it or not."""
    world = World()
    world.done({"name": "root", "description": "of the shop"}, {"name": "data"})
    for name in ("uuid", "name", "vm", "description"):
        world.run("zfs", "inherit", f"flexdisk:{name}", "rpool/data/vm-100-disk-0")
    for name in ("index", "slot", "model", "boot", "type", "preserve", "serial_no", "ctime", "mtime"):
        world.run("zfs", "inherit", f"flexdisk:{name}", "rpool/data/vm-100-disk-0")
    outcome = world.four_steps({"name": "data", "description": "mine"})
    assert "= root adopted (rpool/data/vm-100-disk-0 at virtio0)" in outcome.diff
    assert world.disks()["root"].volume.user["description"] == "of the shop"
    assert findings(world) == {}


# -- what is reserved for thick disks


@pytest.mark.parametrize("size", ["10GiB", "1GiB"])
@pytest.mark.parametrize("running", [False, True])
def test_a_reservation_after_a_rollback_over_another_size(size, running):
    """Too little, and the guest cannot write; too much, and the pool lacks it. The next task sets it."""
    world = Snapshots()
    world.done({"name": "data"})
    right = reserved(world)
    world.made()
    world.done({"name": "data", "size": size, "dangerous_allow_shrink": size == "1GiB"})
    world.made(state="rolled_back")
    assert reserved(world) != right
    if running:
        world.run("qm", "start", "100")
    (found,) = findings(world).values()
    assert (found.kind, found.disk) == ("reservation_off_auto", "data")
    assert f"of {DATA} is not the automatic one" in found.message
    ((_module, arguments),) = found.repair.items()
    outcome = world.four_steps(vm=arguments["vms"][0])
    assert "refreservation of data -> auto" in outcome.diff
    assert reserved(world) == right
    assert findings(world) == {}


def test_a_pool_without_room_for_a_reservation():
    """It is refused before anything is changed."""
    world = World(pool_gib=6)
    world.done({"name": "data"}, {"name": "root"})
    world.run("zfs", "set", "refreservation=64M", DATA)
    room = int(world.run("zfs", "get", "-Hpo", "value", "available", "tank")) >> 20
    world.run("zfs", "create", "-V", f"{room - 200}M", "tank/other")
    assert "pool tank has " in world.refusal({"name": "data"})


def test_a_locked_vm_is_told_and_left():
    world = World()
    world.done({"name": "data"}, {"name": "root"})
    world.run("zfs", "set", "refreservation=64M", DATA)
    world.file += "lock: backup\n"
    assert not world.done({"name": "data"}, {"name": "root"}).changed
    assert [kind for kind, _disk in findings(world)] == ["reservation_off_auto"]


def test_a_reservation_beside_other_changes():
    world = World()
    world.done({"name": "data"}, {"name": "root"})
    right = reserved(world)
    world.run("zfs", "set", "refreservation=64M", DATA)
    world.four_steps({"name": "data", "size": "3GiB"})
    assert reserved(world) > right
    world.run("zfs", "set", "refreservation=64M", DATA)
    world.four_steps({"name": "data", "state": "absent"})
    assert findings(world) == {}


def test_a_pool_that_is_built_otherwise():
    """Its figures are its own. What is wrong there is told with the command that puts it right."""
    world = World(vdev="raidz1")
    world.done({"name": "data"}, {"name": "root"})
    assert findings(world) == {}
    world.run("zfs", "set", "refreservation=64M", DATA)
    assert not world.done({"name": "data"}, {"name": "root"}).changed
    (found,) = findings(world).values()
    assert f"; zfs set refreservation=auto {DATA} puts it right" in found.message


# -- what is called unused and is not there

LINE = "unused0: thick:vm-100-disk-0\n"


def left(world):
    """A run that was interrupted, so that the disk is detached and its line still there."""
    world.done({"name": "root"}, {"name": "data"})
    world.done({"name": "root"}, vm={"unlisted": "detach"})
    world.file = world.file.replace("virtio0:", f"{LINE}virtio0:")
    return world


def test_a_line_of_an_interrupted_run_whose_journal_was_removed():
    """The detached disk has the number of its volume."""
    world = left(World())
    assert world.vm().interrupted is None
    (kind,) = findings(world)
    assert kind[0] == "unused_without_volume"
    outcome = world.four_steps({"name": "root"})
    assert "- tank/vms/vm-100-disk-0, detached already, out of the configuration" in outcome.diff
    assert "unused" not in world.file
    assert findings(world) == {}


def test_a_line_of_an_interrupted_run_before_the_boot_disk_moved_to_another_pool():
    """The journal of the run lies in the pool in which the boot disk was."""
    world = World()
    world.done({"name": "root"}, {"name": "data"})
    stop_before(world, lambda argv: argv[:2] == ["qm", "set"] and "unused0" in argv)
    with contextlib.suppress(Killed):
        world.converge({"name": "root"}, {"name": "data", "state": "absent"})
    world.spoil = None
    assert LINE.strip() in world.file
    world.run("zfs", "rename", "rpool/data/vm-100-disk-0", "rpool/data/moved")
    world.volume("tank/vms/vm-100-disk-1", "4G", ROOT_DISK, "root", "-s")
    world.run("zfs", "destroy", "rpool/data/moved")
    world.file = world.file.replace("local-zfs:vm-100-disk-0", "thick:vm-100-disk-1")
    assert world.vm().config.pool == "tank"
    world.four_steps({"name": "root"})
    assert "unused" not in world.file
    assert world.vm().interrupted is None
    assert not any(kind == "intent" for kind, _disk in findings(world))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "unused3: thick:vm-100-disk-7",
            "unused3 of VM 100 names tank/vms/vm-100-disk-7, which is not there; while it is",
        ),
        ("unused3: former:vm-100-disk-0", "unused3 of VM 100 names former:vm-100-disk-0, and no storage is called so"),
    ],
)
def test_a_line_that_nobody_knows_is_told(line, text):
    """It stays, and other tasks go on."""
    world = World()
    world.file = world.file.replace("virtio0:", f"{line}\nvirtio0:")
    outcome = world.done({"name": "root"}, {"name": "data"})
    assert any(text in warning for warning in outcome.warnings)
    assert line in world.file
    (found,) = [one for (kind, _disk), one in findings(world).items() if kind == "unused_without_volume"]
    assert text in found.message


def test_a_volume_that_is_there_is_no_line_without():
    world = World()
    world.run("zfs", "create", "-V", "1G", "tank/vms/vm-100-disk-1")
    world.file = world.file.replace("virtio0:", "unused0: thick:vm-100-disk-1\nvirtio0:")
    world.done({"name": "root"}, {"name": "data"})
    assert not any(kind == "unused_without_volume" for kind, _disk in findings(world))


# -- a pool that is given


def test_a_vm_of_a_given_pool_has_its_disks_of_all_pools():
    """It is read, or not, by the pool that it boots from. Tasks see all of it, too."""
    world = World()
    world.done({"name": "root"}, {"name": "data"}, {"name": "logs", "size": "64MiB"})
    world.done({"name": "root"}, {"name": "logs"}, vm={"unlisted": "detach"})
    world.done({"name": "data"})
    found = info(world.zfs, world.driver, None, "rpool", True)
    assert [disk["name"] for disk in found.vms[0]["disks"]] == ["root", "data", "logs"]
    assert info(world.zfs, world.driver, None, "tank", True).vms == []
    assert findings(world, "rpool") == findings(world) == {}


def test_a_task_for_a_pool_changes_a_disk_in_another_one():
    world = World()
    world.four_steps({"name": "data", "size": "3GiB"}, pool="rpool")
    assert world.volsize(DATA) == 3072
