# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two volumes that may be one disk, as after a move or a restore by Proxmox VE: neither is taken for the other."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .test_elsewhere import other_file, with_other
from .test_leaving import GONE, LEAVES, ROOT, there
from .test_lost import VOLUME, foreign
from .test_registry import adoption, task
from .test_unseen import KEPT, LVM, NEW_PLACE, known, moved
from .world import DATA, FILE, VM, World

SERIAL = serial_of(DATA)
OLD = f"{VOLUME} is attached to nothing, and "
STORAGES = LVM + "\nzfspool: away\n\tpool tank/away\n\tdisable 1\n\ndir: loc\n\tpath /x\n\tcontent images\n"
# Where a restored or moved disk can be without being managed.
BEYOND = {
    "lvm": "lvm:vm-100-disk-0",
    "off": "away:vm-100-disk-7",
    "removed": "nosuch:vm-100-disk-0",
    "dir": "loc:100/x.raw",
}


def copied(serial="MYDISK"):
    """A disk that got its name while the VM ran. Then Proxmox VE has moved it, and has kept the old volume."""
    world = foreign(serial)
    world.done(ROOT, {"pci_slot": "scsi1", **KEPT})
    world.run("qm", "stop", "100")
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs")
    return world


# -- a copy is newer than what it was made of


def grown(world):
    world.run("qm", "disk", "resize", "100", "scsi1", "+1G")


def at_another_key(world):
    line = world.setting("scsi1")
    world.file = world.file.replace(f"scsi1: {line}\n", f"scsi3: {line}\n")


@pytest.mark.parametrize("change", [grown, at_another_key])
@pytest.mark.parametrize("serial", ["MYDISK", ""])
def test_a_copy_of_another_size_or_at_another_key(serial, change):
    world = copied(serial)
    change(world)
    key = "scsi3" if change is at_another_key else "scsi1"
    said = world.refusal(ROOT, {"name": "data"})
    assert f"{OLD}{key} ({NEW_PLACE}), which has no name, may be a newer copy of it (qm disk move)" in said
    assert f"or say - {{uuid: {old_uuid(world)}}}, without a name, if the old one is meant" in said
    assert OLD in str(task(world, {"name": "data", "vm": "web", "state": "attached"}, check=True).problems)
    world.done(ROOT, {"pci_slot": key, "name": "moved"})
    world.four_steps(ROOT, {"name": "moved"}, {"name": "data"})


def old_uuid(world):
    return world.run("zfs", "get", "-Hpo", "value", "flexdisk:uuid", VOLUME).strip()


def test_the_old_one_by_its_uuid():
    world = copied()
    grown(world)
    uuid = old_uuid(world)
    world.four_steps(ROOT, {"uuid": uuid})
    assert {disk.volume.name: disk.uuid for disk in world.vm().disks}[VOLUME] == uuid


@pytest.mark.parametrize("where", ["lvm", "off", "dir"])
def test_a_copy_that_is_left_alone(where):
    world = copied()
    world.write("storage.cfg", STORAGES)
    line = world.setting("scsi1")
    world.file = world.file.replace(line, f"{BEYOND[where]},size=2G,serial=MYDISK")
    said = world.refusal(ROOT, {"name": "data"})
    assert f"{OLD}scsi1 ({BEYOND[where]}), which is left alone, may be a newer copy of it" in said


# -- a restored disk has the serial of one that is detached


@pytest.mark.parametrize("where", sorted(BEYOND))
def test_a_twin_that_cannot_be_read(where):
    """Two disks of one serial would be in one VM, and its guest would mount either."""
    world = known()
    world.done(ROOT, **LEAVES)
    world.write("storage.cfg", STORAGES)
    world.file = world.file.replace("scsihw", f"scsi1: {BEYOND[where]},serial={SERIAL},size=2G\nscsihw")
    said = world.refusal(ROOT, {"name": "data"})
    shown = "tank/away/vm-100-disk-7" if where == "off" else BEYOND[where]
    assert f"scsi1 ({shown}) has its serial {SERIAL}" in said
    world.done({"name": "root", "size": "5GiB"})
    assert f"has its serial {SERIAL}" in world.refusal({"name": "root"}, {"uuid": DATA})


def test_a_twin_in_another_vm():
    world = with_other()
    world.done(ROOT, KEPT)
    world.done(ROOT, **LEAVES)
    world.write("storage.cfg", STORAGES)
    line = f"scsi1: lvm:vm-101-disk-0,serial={SERIAL},size=2G\n"
    world.write("nodes/pve1/qemu-server/101.conf", other_file(world) + line)
    assert f"has its serial {SERIAL}" in world.refusal({"uuid": DATA, "name": "data"}, vm={"vm": "other"})


@pytest.mark.parametrize("where", ["", *sorted(BEYOND)])
def test_a_twin_is_not_destroyed_by_its_name(where):
    world = known()
    world.done(ROOT, {"name": "data"}, vm={"unlisted": "detach"})
    world.done(ROOT, **LEAVES)
    world.write("storage.cfg", STORAGES)
    world.run("zfs", "create", "-V", "2G", VOLUME)
    line = f"scsi1: {BEYOND.get(where, 'thick:vm-100-disk-0')},serial={SERIAL},size=2G\nscsihw"
    world.file = world.file.replace("scsihw", line)
    place = f"tank/flexdisk/{DATA}"
    world.run("zfs", "set", "flexdisk:preserve=false", place)
    assert f"say - {{uuid: {DATA}, state: absent}}, without a name" in world.refusal(ROOT, GONE)
    (problem,) = task(world, {"name": "data", "vm": "web", "state": "absent"}).problems
    assert "has its serial" in problem.message
    world.done(ROOT, {"uuid": DATA, "state": "absent"})
    assert not there(world, place)


def test_the_serial_of_a_restored_disk_stays():
    """Another task does not replace it, so the two are still known to be one disk."""
    world = known()
    world.done(ROOT, **LEAVES)
    world.run("zfs", "create", "-V", "2G", VOLUME)
    world.file = FILE
    world.done(ROOT)
    assert not world.converge(ROOT).changed
    assert f"serial={SERIAL}" in world.setting("scsi1")
    assert f"scsi1 ({VOLUME}) has its serial {SERIAL}" in world.refusal(ROOT, {"name": "data"})
    world.done(ROOT, {"pci_slot": "scsi1", "name": "restored"})
    world.four_steps(ROOT, {"name": "restored"}, {"name": "data"})


# -- only the record knows a disk, whose volume has lost its properties, and then its serial


def unlinked(world):
    world.run("qm", "set", "100", "--delete", "scsi1")


def attached_again(world):
    unlinked(world)
    world.run("qm", "set", "100", "--scsi1", "local-zfs:vm-100-disk-1")


@pytest.mark.parametrize("hand", [unlinked, attached_again])
def test_a_disk_without_any_identity_may_be_that_of_the_record(hand):
    world = moved()
    hand(world)
    shown = f"scsi1 ({NEW_PLACE})" if hand is attached_again else NEW_PLACE
    for disk in ({"name": "data"}, {"name": "data", "size": "2GiB"}, GONE):
        said = world.refusal(ROOT, disk)
        assert f"{shown} of the VM has no identity, and may be this disk. If so, give it serial={SERIAL}" in said
        assert f"or take the disk out of /etc/pve/flexdisk/{VM}.json" in said
    world.run("qm", "set", "100", "--scsi1", f"local-zfs:vm-100-disk-1,serial={SERIAL}")
    world.four_steps(ROOT, {**KEPT, "description": "x"})
    assert (world.disks()["data"].uuid, world.disks()["data"].preserve) == (DATA, True)


def test_a_disk_that_gets_another_name_is_not_that_of_the_record():
    world = moved()
    attached_again(world)
    world.done(ROOT, {"pci_slot": "scsi1", "name": "other"})
    world.done(ROOT, {"name": "other"}, GONE)
    world.four_steps(ROOT, {"name": "other"}, {"name": "data", "size": "1GiB"})


def test_after_a_rollback_to_before_the_adoption():
    """It has taken the serial, and a move has taken the properties."""
    world = World()
    world.file = FILE.replace(f",serial={SERIAL}", "")
    for fact in ("uuid", "name", "vm"):
        world.run("zfs", "inherit", f"flexdisk:{fact}", VOLUME)
    world.run("qm", "snapshot", "100", "before")
    world.done(ROOT, {"pci_slot": "scsi1", **KEPT})
    world.run("qm", "rollback", "100", "before")
    world.run("qm", "delsnapshot", "100", "before")
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs", "--delete", "1")
    for disk in ({"name": "data"}, GONE):
        assert "scsi1 (rpool/data/vm-100-disk-1) of the VM has no identity, and may be this" in world.refusal(
            ROOT, disk
        )


# -- one name for two disks


def idle(serial):
    """A disk that lies unused; with a serial of its own, no record knows it. And a new one, for its name."""
    world = foreign(serial) if serial is not None else World()
    world.done(ROOT, {"pci_slot": "scsi1", **KEPT}, {"name": "new", "size": "1GiB"})
    world.run("qm", "set", "100", "--delete", "scsi1")
    return world


@pytest.mark.parametrize("serial", [None, "MYDISK", ""])
def test_the_name_of_an_unused_disk_is_taken(serial):
    """A disk of the same name would be the first to go if that is given up, and the unused one the next."""
    world = idle(serial)
    uuid = old_uuid(world)
    said = f"{VOLUME} is called so, and the VM does not use it. Attach it by its name first, or give it up:"
    new = world.disks()["new"].uuid
    assert f"{said} - {{uuid: {uuid}, state: absent}} destroys it" in world.refusal(ROOT, {"uuid": new, "name": "data"})
    assert said in task(world, {"uuid": new, "name": "data", "vm": "web", "state": "attached"}).problems[0].message
    world.run("qm", "set", "100", "--scsi5", "thick:1")
    named = [{"vm": "web", "disks": [{"pci_slot": "scsi5", "name": "data"}]}]
    assert said in adoption(world, named).outcome.problems[0].message
    assert "belongs to" in world.refusal(ROOT, {"pci_slot": "scsi5", "name": "data"})
    world.run("qm", "set", "100", "--delete", "scsi5")
    world.run("zfs", "destroy", "tank/vms/vm-100-disk-1")
    world.four_steps(ROOT, {"name": "new"}, {"name": "data"})
    assert {disk.name: disk.uuid for disk in world.vm().disks}["data"] == uuid


def test_one_of_two_disks_of_one_name_is_not_destroyed_by_it():
    world = World()
    world.done(ROOT, {"name": "data"})
    world.run("zfs", "create", "-V", "1G", "rpool/data/vm-100-disk-7")
    for fact in (f"vm={VM}", "name=data", "uuid=bbbbbbbb-0000-4000-8000-000000000007"):
        world.run("zfs", "set", f"flexdisk:{fact}", "rpool/data/vm-100-disk-7")
    assert f"say - {{uuid: {DATA}, state: absent}}, without a name" in world.refusal(ROOT, GONE)
    world.done(ROOT, {"uuid": DATA, "state": "absent"})
    assert not there(world, VOLUME)
    assert there(world, "rpool/data/vm-100-disk-7")
