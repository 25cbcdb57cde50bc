# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Disks of Proxmox VE that cannot be seen at the moment: no other gets their names, and none is said to be gone."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of

from .test_elsewhere import with_other
from .test_leaving import GONE, LEAVES, ROOT, facts, record
from .test_lost import foreign, killed
from .test_registry import adoption, task
from .world import DATA, FILE, STORAGE, VM, Killed, World, faults

VOLUME = "tank/vms/vm-100-disk-0"
NEW_PLACE = "rpool/data/vm-100-disk-1"
KEPT = {"name": "data", "preserve": True}
SERIAL = serial_of(DATA)


def known():
    """A VM whose disks are in its record."""
    world = World()
    world.done(ROOT, KEPT)
    return world


def moved(running=False):
    """The volume of data is a new one, without properties: only the record knows its name."""
    world = known()
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs", "--delete", "1")
    if running:
        world.run("qm", "start", "100")
    return world


# -- stamps

CHANGES = {
    "grow": ((ROOT, {"name": "data", "size": "3GiB"}), {}),
    "shrink": ((ROOT, {"name": "data", "size": "1GiB", "dangerous_allow_shrink": True}), {}),
    "detach": ((ROOT,), LEAVES),
    "grow another": (({"name": "root", "size": "5GiB"},), {}),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_disk_that_only_the_record_knows_keeps_its_identity(change):
    """Whatever a run has written to its volume when it ended."""
    wanted, more = CHANGES[change]
    found = [*faults(moved, *wanted, **more)]
    assert found
    for fault in found:
        world = moved()
        fault(world)
        with contextlib.suppress(Killed):
            world.converge(*wanted, **more)
        world.spoil = None
        disks = (*world.vm().disks, *world.vm().orphans, *world.vm().detached)
        assert {d.uuid: d.preserve for d in disks if d.name == "data"} == {DATA: True}, fault
        world.done(*wanted, **more)
        assert not world.converge(*wanted, **more).changed, fault


def stamped():
    """The run ended when the size and the stamps were written, and the identity was not."""
    world = moved()

    def spoil(number, argv, real):
        answer = real(argv)
        if argv[:2] == ["zfs", "set"] and argv[-1] == NEW_PLACE and "serial_no" in str(argv):
            raise Killed
        return answer

    world.spoil = spoil
    with contextlib.suppress(Killed):
        world.converge(ROOT, {"name": "data", "size": "3GiB"})
    world.spoil = None
    return world


def test_another_task_after_stamps_keeps_the_serial():
    world = stamped()
    world.four_steps(ROOT)
    assert f"serial={SERIAL}" in world.setting("scsi1")
    world.four_steps({"name": "root"}, {"name": "data", "size": "3GiB"})
    assert (world.disks()["data"].uuid, world.disks()["data"].preserve) == (DATA, True)


def test_a_serial_of_the_record_is_not_replaced():
    """A part of an identity wins over the record, but the serial stays, so nothing is lost for good."""
    world = moved()
    world.run("zfs", "set", "flexdisk:description=x", NEW_PLACE)
    world.done({"name": "root", "size": "5GiB"}, {"name": "new", "size": "1GiB"})
    adoption(world)
    assert f"serial={SERIAL}" in world.setting("scsi1")
    assert SERIAL in record(world)


# -- one UUID on two nodes


def on_another_node(world, text):
    world.write("nodes/pve2/qemu-server/200.conf", text)


def test_a_uuid_of_a_vm_of_another_node():
    """As after a restore there from a backup: both would write one record."""
    world = known()
    on_another_node(world, world.file)
    before = (world.files / f"etc/pve/flexdisk/{VM}.json").read_text()
    text = f"VMs 100 of node pve1, 200 of node pve2 have the same UUID {VM}"
    for disk in (KEPT, GONE, {"name": "new", "size": "1GiB"}):
        assert text in world.refusal(ROOT, disk)
        assert text in world.refusal(ROOT, disk, vm={"vm": VM})
    assert text in task(world, {"name": "data", "vm": "web", "state": "detached"}).problems[0].message
    assert text in adoption(world, [{"vm": "web"}]).outcome.problems[0].message
    assert (world.files / f"etc/pve/flexdisk/{VM}.json").read_text() == before
    on_another_node(world, world.file.replace(VM, DATA))
    world.four_steps(ROOT, KEPT)


def test_a_uuid_in_a_snapshot_of_a_vm_of_another_node():
    """It is what that VM was."""
    world = known()
    on_another_node(world, f"name: other\nsmbios1: uuid={DATA}\n\n[before]\nsmbios1: uuid={VM}\n")
    world.four_steps(ROOT, KEPT)


# -- disks that cannot be seen

OFF = STORAGE.replace("pool tank/vms\n", "pool tank/vms\n\tdisable 1\n")
REMOVED = STORAGE.partition("\nzfspool: thick")[0]
LVM = STORAGE + "\nlvmthin: lvm\n\tvgname x\n\tthinpool y\n\tcontent images\n"


def on_lvm():
    """Moved to a storage of another kind, by hand or by Proxmox VE."""
    world = known()
    to_lvm(world)
    return world


def to_lvm(world):
    world.write("storage.cfg", LVM)
    world.file = world.file.replace("thick:vm-100-disk-0", "lvm:vm-100-disk-0")
    world.run("zfs", "destroy", VOLUME)


def unused_of_another():
    """Another VM names it, and ours does not."""
    world = known()
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.write("nodes/pve1/qemu-server/101.conf", f"name: other\nunused3: thick:vm-100-disk-0\nsmbios1: uuid={DATA}\n")
    return world


def renamed_by_hand():
    world = known()
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.run("zfs", "rename", VOLUME, "tank/vms/kept")
    return world


def storage_off(storages=OFF):
    world = known()
    world.write("storage.cfg", storages)
    return world


def unused_in_storage_off():
    world = known()
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.write("storage.cfg", OFF)
    return world


def detached(storages=OFF):
    """Detached by a task; then its storage is off or removed."""
    world = known()
    world.done(ROOT, **LEAVES)
    world.write("storage.cfg", storages)
    return world


def detached_by_a_killed_run(storages=OFF):
    """Its record was not brought up to date."""
    world = known()
    killed(world, ["zfs", "rename"], ROOT, **LEAVES)
    world.write("storage.cfg", storages)
    return world


UNSEEN = {
    "lvm": on_lvm,
    "used by another": unused_of_another,
    "renamed": renamed_by_hand,
    "off": storage_off,
    "unused off": unused_in_storage_off,
    "detached": detached,
    "detached, removed": lambda: detached(REMOVED),
    "killed": detached_by_a_killed_run,
}
NEW = {"name": "data", "vm": "web", "size": "1GiB"}


@pytest.mark.parametrize("case", sorted(UNSEEN))
def test_a_name_of_a_disk_that_cannot_be_seen(case):
    """Whatever hides it: no module makes a new disk of its name, gives the name to another, or says that it is gone."""
    world = UNSEEN[case]()
    root = world.disks()["root"].uuid
    for disk in ({"name": "data", "size": "2GiB"}, {"uuid": root, "name": "data"}, GONE, {"uuid": DATA, **GONE}):
        assert world.refusal(disk)
    for entry in (
        NEW,
        {**NEW, "state": "absent"},
        {"uuid": DATA, "state": "absent"},
        {"name": "data", "state": "absent"},
    ):
        entry = {key: value for key, value in entry.items() if key != "size" or "state" not in entry}
        check, real = (task(world, entry, check=check) for check in (True, False))
        assert real.problems, (case, entry)
        assert check.problems == real.problems
        assert not real.changed


@pytest.mark.parametrize("case", sorted(UNSEEN))
def test_no_other_disk_gets_the_name_of_one_that_cannot_be_seen(case):
    """Neither one that is attached, nor one that is detached, nor one without a name."""
    world = UNSEEN[case]()
    world.run("zfs", "create", "-V", "1G", "rpool/data/vm-100-disk-5")
    world.run("qm", "set", "100", "--scsi5", "local-zfs:vm-100-disk-5")
    assert "data" in str(
        adoption(world, [{"vm": "web", "disks": [{"pci_slot": "scsi5", "name": "data"}]}]).outcome.problems
    )
    world.done({"pci_slot": "scsi5", "name": "second"})
    uuid = world.disks()["second"].uuid
    for _number in range(2):
        assert task(world, {"uuid": uuid, "name": "data"}).problems
        world.converge({"name": "root"}, **LEAVES)
    world.four_steps({"name": "root"}, {"uuid": uuid, "name": "second"})
    assert {*world.disks()} == {"root", "second"}


@pytest.mark.parametrize("storages", [OFF, REMOVED])
@pytest.mark.parametrize("make", [detached, detached_by_a_killed_run])
def test_a_detached_disk_is_there_again_with_its_storage(make, storages):
    """Whatever was done to its VM meanwhile."""
    world = make(storages)
    world.done({"name": "root", "size": "5GiB"})
    assert world.refusal({"name": "data", "size": "2GiB"})
    assert world.refusal(GONE)
    world.write("storage.cfg", STORAGE)
    world.four_steps(ROOT, {"name": "data"})
    assert (world.disks()["data"].uuid, world.disks()["data"].preserve) == (DATA, True)


def test_a_detached_disk_that_was_destroyed_leaves_the_record():
    """Its pool was read without it."""
    world = detached(STORAGE)
    world.run("zfs", "destroy", f"tank/flexdisk/{DATA}")
    world.four_steps(ROOT)
    world.write("storage.cfg", OFF)
    world.four_steps({"name": "root"}, {"name": "data", "size": "1GiB", "pci_slot": "scsi1"})


def test_the_name_of_a_detached_disk_in_a_pool_that_is_not_read_is_told():
    text = detached().refusal(GONE)
    assert f"data (uuid {DATA}) was detached to tank/flexdisk/{DATA}, and pool tank is not read" in text
    assert f"take it out of /etc/pve/flexdisk/{VM}.json" in text


# -- a detach that has failed


def failed_detach():
    world = World(running=True)
    world.done(ROOT, KEPT)
    world.admin("pve-guest", "100", "deaf")
    assert world.converge(ROOT, **LEAVES).failure
    world.admin("pve-guest", "100", "answers")
    world.run("qm", "stop", "100")
    return world


def killed_detach():
    world = known()
    killed(world, ["qm", "set"], ROOT, effect=False, **LEAVES)
    return world


@pytest.mark.parametrize("begun", [failed_detach, killed_detach])
def test_a_disk_that_was_moved_after_a_detach_that_has_not_ended(begun):
    """The target is not there, and that does not mean that the disk is gone."""
    world = begun()
    to_lvm(world)
    world.done({"name": "root", "size": "5GiB"})
    assert record(world)[SERIAL]["name"] == "data"
    assert world.refusal(ROOT, {"name": "data", "size": "2GiB"})
    assert world.refusal(ROOT, GONE)
    world.file = world.file.replace(f"scsi1: {world.setting('scsi1')}", "unused0: lvm:vm-100-disk-0")
    assert "unused0 (lvm:vm-100-disk-0) of the VM cannot be read, and may be this disk" in world.refusal(ROOT, GONE)
    world.done({"name": "root", "size": "6GiB"})
    assert record(world)[SERIAL]["name"] == "data"


# -- a copy that Proxmox VE makes


@pytest.mark.parametrize("serial", ["MYDISK", ""])
def test_the_old_volume_of_a_moved_disk_is_not_taken_for_it(serial):
    """The disk got its name while the VM ran, so it has a serial of its own, and the copy has no name."""
    world = foreign(serial)
    world.done(ROOT, {"pci_slot": "scsi1", **KEPT})
    world.run("qm", "stop", "100")
    world.run("qm", "disk", "move", "100", "scsi1", "local-zfs")
    text = f"{VOLUME} is attached to nothing, and scsi1 ({NEW_PLACE}), which has no name, may be a newer copy of it"
    assert text in world.refusal(ROOT, {"name": "data"})
    assert text in str(task(world, {"name": "data", "vm": "web", "state": "attached"}, check=True).problems)
    world.done(ROOT, {"pci_slot": "scsi1", "name": "moved"})
    world.done(ROOT, {"name": "moved"}, {"name": "data"})


# -- ways out


def test_a_restore_after_a_killed_detach_names_a_way_out():
    """The volume had been renamed, and the VM has a new one with the same serial."""
    world = known()
    killed(world, ["zfs", "rename"], ROOT, **LEAVES)
    world.run("zfs", "create", "-s", "-V", "2G", VOLUME)
    world.file = FILE
    place = f"tank/flexdisk/{DATA}"
    text = world.refusal(ROOT, {"name": "data"})
    assert f"If {place} is the right one, give scsi1 another serial (qm set 100 --scsi1)" in text
    assert f"zfs destroy {place}" in text
    world.run("qm", "set", "100", "--scsi1", "thick:vm-100-disk-0,serial=RESTORED")
    world.done(ROOT, {"pci_slot": "scsi1", "name": "restored"})
    world.done(ROOT, {"name": "restored"}, {"name": "data"})
    assert (world.disks()["data"].uuid, world.disks()["data"].preserve) == (DATA, True)


def test_a_copy_of_a_backup_names_a_way_out():
    world = known()
    words = [word for key, value in facts(world, VOLUME).items() for word in ("-o", f"flexdisk:{key}={value}")]
    world.run("zfs", "create", "tank/backup")
    world.run("zfs", "create", "-s", *words, "-V", "2G", "tank/backup/vm-100-disk-0")
    world.done(ROOT, {"name": "data", "preserve": False})
    world.done(ROOT, GONE)
    text = "zfs inherit flexdisk:vm tank/backup/vm-100-disk-0"
    assert text in world.refusal(ROOT, GONE)
    world.run(*text.split())
    world.four_steps(ROOT, GONE)
    world.four_steps(ROOT, {"name": "data", "size": "1GiB"})


def test_two_disks_of_a_vm_get_no_common_serial():
    """A serial has less digits than a UUID."""
    world = with_other()
    alike = DATA[:-1] + "9"
    world.done(ROOT, KEPT)
    world.done(ROOT, **LEAVES)
    adopted = {"vm": "other", "disks": [{"pci_slot": "scsi0", "uuid": alike, "name": "x"}]}
    assert adoption(world, [adopted]).outcome.problems == []
    assert f"has its serial {SERIAL}" in world.refusal({"uuid": DATA, "name": "data"}, vm={"vm": "other"})
    world = foreign("", running=False)
    world.run("zfs", "create", "-s", "-V", "1G", "rpool/data/vm-100-disk-5")
    world.run("qm", "set", "100", "--scsi5", "local-zfs:vm-100-disk-5")
    disks = [{"pci_slot": "scsi1", "uuid": DATA, "name": "a"}, {"pci_slot": "scsi5", "uuid": alike, "name": "b"}]
    assert f"gives it serial {SERIAL}" in adoption(world, [{"vm": "web", "disks": disks}]).outcome.problems[0].message
