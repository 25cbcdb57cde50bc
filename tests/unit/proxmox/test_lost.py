# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""No disk gets lost on Proxmox VE: each that leaves can be found again, and no empty one takes its name."""

from __future__ import annotations

import contextlib

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import is_uuid, serial_of

from .test_elsewhere import with_other
from .test_leaving import GONE, LEAVES, PLACE, ROOT, detached, facts, record, there, unused
from .test_registry import NAMED, adoption, task
from .world import DATA, FILE, STORAGE, Killed, World, faults

VOLUME = "tank/vms/vm-100-disk-0"
SERIAL = f"serial={serial_of(DATA)}"
NAMES = {"pci_slot": "scsi1", "name": "data"}
WANTED = (ROOT, {"name": "data", "size": "2GiB"})


def guid(world, name):
    return world.run("zfs", "get", "-Hpo", "value", "guid", name).strip()


def foreign(serial, running=True):
    """A VM whose second disk has another serial than ours, or none, and is not known."""
    world = World()
    world.file = FILE.replace(SERIAL, f"serial={serial}" if serial else "backup=0")
    for fact in ("uuid", "name", "vm"):
        world.run("zfs", "inherit", f"flexdisk:{fact}", VOLUME)
    if running:
        world.run("qm", "start", "100")
    return world


def killed(world, first, *disks, effect=True, **more):
    """The run ends at the first command that begins so."""

    def spoil(number, argv, real):
        if argv[: len(first)] == first:
            if effect:
                real(argv)
            raise Killed
        return real(argv)

    world.spoil = spoil
    with contextlib.suppress(Killed):
        world.converge(*disks, **more)
        raise AssertionError("nothing began so")
    world.spoil = None


# -- disks without a serial of ours

SERIALS = ["", "MYDISK", "cafe000040008000cafe"]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("serial", SERIALS)
@pytest.mark.parametrize("preserve", [True, False])
def test_a_disk_that_is_named_has_a_uuid(serial, running, preserve):
    world = foreign(serial, running)
    before = guid(world, VOLUME)
    world.four_steps(ROOT, {**NAMES, "preserve": preserve})
    uuid = facts(world, VOLUME)["uuid"]
    assert is_uuid(uuid)
    world.four_steps(ROOT, **LEAVES)
    (place,) = detached(world).values()
    assert place == f"tank/flexdisk/{uuid}"
    world.four_steps(*WANTED)
    assert guid(world, VOLUME) == before
    assert f"serial={serial_of(uuid)}" in world.setting("scsi1")
    assert detached(world) == {}


@pytest.mark.parametrize("serial", SERIALS)
def test_a_disk_that_is_adopted_has_a_uuid(serial):
    world = foreign(serial)
    before = guid(world, VOLUME)
    assert adoption(world, NAMED).outcome.problems == []
    assert is_uuid(facts(world, VOLUME)["uuid"])
    world.four_steps(ROOT, **LEAVES)
    world.four_steps(ROOT, {"name": "data"})
    assert guid(world, VOLUME) == before


@pytest.mark.parametrize("uuid", [True, False])
@pytest.mark.parametrize("serial", SERIALS)
@pytest.mark.parametrize("hand", ["qm", "kill before", "kill after"])
def test_a_disk_that_lies_unused_by_its_name(hand, serial, uuid):
    """Taken out by hand, or by a run that was killed, it comes back; with a name alone from an earlier release, too."""
    world = foreign(serial)
    before = guid(world, VOLUME)
    world.done(ROOT, NAMES)
    if not uuid:
        world.run("zfs", "inherit", "flexdisk:uuid", VOLUME)
    if hand == "qm":
        world.run("qm", "set", "100", "--delete", "scsi1")
    else:
        killed(world, ["qm", "set"], ROOT, effect=hand == "kill after", **LEAVES)
    world.done(*WANTED)
    assert (guid(world, VOLUME), len(world.disks()), unused(world)) == (before, 2, [])
    assert world.disks()["data"].volume.name == VOLUME


@pytest.mark.parametrize("task", ["detach", "attach"])
def test_a_disk_without_a_serial_interrupted_at_every_command(task):
    """Whatever the moment, the same disk is there afterwards, and no other one."""

    def make():
        world = foreign("")
        world.done(ROOT, NAMES)
        if task == "attach":
            world.done(ROOT, **LEAVES)
        return world

    wanted, more = ((ROOT,), LEAVES) if task == "detach" else (WANTED, {})
    found = [*faults(make, *wanted, **more)]
    assert len(found) > 25
    for fault in found:
        world = make()
        volumes = {guid(world, disk.volume.name) for disk in (*world.vm().disks, *world.vm().detached)}
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*wanted, **more).problems == []
        world.spoil = None
        world.done(*WANTED)
        assert {guid(world, disk.volume.name) for disk in world.vm().disks} == volumes, fault
        assert (detached(world), unused(world)) == ({}, []), fault


@pytest.mark.parametrize("serial", SERIALS)
def test_an_unnamed_disk_that_was_detached_is_reached_by_its_uuid(serial):
    world = foreign(serial)
    before = guid(world, VOLUME)
    world.four_steps(ROOT, **LEAVES)
    (disk,) = world.vm().detached
    assert disk.volume.name == f"tank/flexdisk/{disk.uuid}"
    world.four_steps(ROOT, {"uuid": disk.uuid, "name": "data"})
    assert guid(world, VOLUME) == before


def test_a_disk_without_a_uuid_is_not_attached():
    world = World()
    entry = {"pci_slot": "scsi3", "path": "/dev/zvol/" + VOLUME, "uuid": ""}
    with pytest.raises(Exception, match="has no uuid"):
        world.driver.attach_disk(world.vm().config.uuid, entry)


# -- the disk that the VM boots from

NO_ORDER = ["", "boot: cdn\n", "boot: c\nbootdisk: scsi5\n"]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("boot", NO_ORDER)
def test_without_a_boot_order_no_disk_leaves(boot, running):
    """Proxmox VE boots from one of them, and the file does not say from which."""
    world = World()
    world.file = FILE.replace("boot: order=virtio0;net0\n", boot)
    if running:
        world.run("qm", "start", "100")
    tasks = [
        (({"name": "data"},), {"vm": {"unlisted": "destroy"}}),
        (({"name": "data"},), {"vm": {"unlisted": "detach"}}),
        (({"name": "data"}, {"name": "root", "state": "absent"}), {}),
        (({"name": "root", "size": "1GiB", "block_size": 8192, "recreate": True},), {}),
    ]
    for disks, more in tasks:
        assert "qm set 100 --boot order=KEY names that" in world.refusal(*disks, **more)
    problems = task(world, {"name": "data", "vm": "web", "state": "detached"}, check=True).problems
    assert "VM 100 has no boot order" in problems[0].message
    world.four_steps({"name": "data", "size": "3GiB"})


@pytest.mark.parametrize("boot", ["boot: c\nbootdisk: virtio0\n", "boot: order=ide2;virtio0\n", "boot: order=net0\n"])
def test_a_boot_order_of_any_form_suffices(boot):
    world = World()
    world.file = FILE.replace("boot: order=virtio0;net0\n", boot)
    world.four_steps(ROOT, **LEAVES)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("order", ["ide2;virtio0;net0", "sata0;virtio0", "scsi5", "net0;scsi9;ide2;virtio0"])
def test_a_boot_order_that_names_first_what_the_vm_lacks(order, running):
    """Neither the disk that it boots from leaves, nor does any other disk take its place."""
    world = World()
    world.file = FILE.replace("order=virtio0;net0", f"order={order}").replace("ide2: none,media=cdrom\n", "")
    world.done(ROOT, {"name": "data"})
    assert world.disks()["root"].boot == ("virtio0" in order)
    if running:
        world.run("qm", "start", "100")
    text = "which the VM does not have, so it may boot from this disk; qm set 100 --boot"
    for disks, more in (((ROOT,), LEAVES), ((ROOT, GONE), {}), (({"name": "root", "state": "absent"},), {})):
        assert text in world.refusal(*disks, **more)
    for unlisted in ("detach", "destroy"):
        assert not world.converge({"name": "data"}, vm={"unlisted": unlisted}).changed
    assert text in task(world, {"name": "data", "vm": "web", "state": "detached"}, check=True).problems[0].message
    world.four_steps({"name": "data", "size": "3GiB"})


def test_no_disk_gets_a_key_from_which_the_vm_would_boot_then():
    world = World()
    world.file = FILE.replace("order=virtio0;net0", "order=virtio1;virtio0")
    new = {"name": "new", "size": "1GiB"}
    refusal = world.refusal(ROOT, {**new, "pci_slot": "virtio1"})
    assert 'pci_slot "virtio1": the boot order (order=virtio1;virtio0) has it' in refusal
    world.done(ROOT, {"name": "data"}, new)
    assert (world.disks()["new"].key, world.disks()["root"].boot) == ("virtio2", True)
    world.run("qm", "set", "100", "--delete", "scsi1")
    assert "has it" in world.refusal(ROOT, {"name": "data", "pci_slot": "virtio1"})


# -- a volume that is also used otherwise


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("scsi2: thick:vm-100-disk-0,size=2G", "scsi2"),
        (f"scsi2: /dev/zvol/{VOLUME},size=2G", "scsi2"),
        (f"args: -drive file=/dev/zvol/{VOLUME},if=none", "args"),
        ("efidisk0: thick:vm-100-disk-0,size=2G", "efidisk0"),
    ],
)
def test_a_volume_that_the_vm_names_twice(line, place):
    world = World()
    world.file = FILE.replace("scsihw", f"{line}\nscsihw")
    for disks, more in (((ROOT,), LEAVES), ((ROOT, GONE), {})):
        text = f"the VM's configuration also names /dev/zvol/{VOLUME} in {place}"
        assert text in world.refusal(*disks, **more)
    assert there(world, VOLUME)


@pytest.mark.parametrize(
    "line", ["unused3: thick:vm-100-disk-0", f"args: -drive file=/dev/zvol/{VOLUME}", f"sata1: /dev/zvol/{VOLUME}"]
)
@pytest.mark.parametrize("properties", [True, False])
def test_a_disk_that_another_vm_uses_is_neither_new_nor_gone(line, properties):
    world = World()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.write("nodes/pve1/qemu-server/101.conf", f"name: other\n{line}\nsmbios1: uuid={DATA}\n")
    if not properties:
        world.run("zfs", "inherit", "flexdisk:name", VOLUME)
    for disk in (GONE, WANTED[1]):
        assert f"{VOLUME} is this disk, and is also used by other" in world.refusal(ROOT, disk)
    world.four_steps(ROOT)
    (world.files / "etc/pve/nodes/pve1/qemu-server/101.conf").unlink()
    world.four_steps(ROOT, {"uuid": DATA, "name": "data"})


def test_a_disk_in_a_snapshot_of_its_vm_is_not_made_anew():
    world = World()
    world.done(ROOT, {"name": "data"})
    world.run("qm", "snapshot", "100", "before")
    world.run("qm", "set", "100", "--delete", "scsi1")
    for disk in (GONE, WANTED[1]):
        assert "in its snapshot before; it is neither made anew nor given up" in world.refusal(ROOT, disk)


def test_a_disk_that_was_renamed_by_hand_is_neither_new_nor_gone():
    world = World()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.run("qm", "set", "100", "--delete", "scsi1")
    world.run("zfs", "rename", VOLUME, "tank/vms/kept")
    for disk in (GONE, WANTED[1]):
        assert "tank/vms/kept is this disk" in world.refusal(ROOT, disk)
    world.run("zfs", "rename", "tank/vms/kept", VOLUME)
    world.four_steps(ROOT, {"name": "data"})


@pytest.mark.parametrize("running", [True, False])
def test_a_detached_disk_and_a_restored_one(running):
    """The VM was restored from a backup that had the disk: both have its serial, and none is taken for the other."""
    world = World()
    world.done(ROOT, **LEAVES)
    world.run("zfs", "create", "-V", "2G", VOLUME)
    world.file = FILE
    if running:
        world.run("qm", "start", "100")
    for disk in ({"name": "data"}, {"uuid": DATA, "name": "data"}):
        assert f"scsi1 ({VOLUME}) has its serial {serial_of(DATA)}" in world.refusal(ROOT, disk)
    world.run("qm", "stop", "100") if running else None
    world.done(ROOT, {"pci_slot": "scsi1", "name": "restored"})
    world.done(ROOT, {"name": "restored"}, {"name": "data"})
    assert {disk.name: serial_of(disk.uuid) for disk in world.vm().disks}["data"] == serial_of(DATA)


def test_the_only_disk_is_not_replaced():
    """An interrupted run would leave a VM without any disk, which no task manages."""
    world = World()
    lines = FILE.replace("order=virtio0;", "order=").splitlines()
    world.file = "".join(line + "\n" for line in lines if not line.startswith("virtio0"))
    again = {"name": "data", "size": "1GiB", "block_size": 8192, "recreate": True}
    for disks, more in (((again,), {}), (({"name": "new", "size": "1GiB"},), LEAVES)):
        assert "is the last disk of the VM that can be managed" in world.refusal(*disks, **more)
    world.four_steps({"name": "data"}, {"name": "new", "size": "1GiB"})
    world.four_steps({"name": "new"}, **LEAVES)


def test_a_disk_of_another_vm_is_not_destroyed_for_being_left_out():
    """It was given to this one by qm, and no task has named it here."""
    world = with_other()
    world.done(ROOT, {"name": "data"})
    world.run("qm", "disk", "move", "100", "scsi1", "--target-vmid", "101", "--target-disk", "scsi3")
    assert "is another VM" in world.refusal(vm={"vm": "other", "unlisted": "destroy"})
    world.four_steps({"pci_slot": "scsi3", "name": "data"}, vm={"vm": "other"})
    world.four_steps(vm={"vm": "other", "unlisted": "destroy"})
    assert not there(world, "tank/vms/vm-101-disk-0")


# -- an interrupted detach that Proxmox VE does not let end


def protect(world):
    world.run("qm", "set", "100", "--protection", "1")


def disable(world):
    world.write("storage.cfg", STORAGE.replace("pool tank/vms\n", "pool tank/vms\n\tdisable 1\n"))


@pytest.mark.parametrize(
    ("hinder", "why"), [(protect, "qm set 100 --protection 0 ends that"), (disable, "no storage that is active")]
)
def test_an_interrupted_detach_that_cannot_end(hinder, why):
    """What needs its end is refused before anything is done, and nothing else is."""
    world = World()
    killed(world, ["zfs", "rename"], ROOT, **LEAVES)
    hinder(world)
    assert why in world.refusal(ROOT, **LEAVES)
    outcome = world.four_steps({"name": "root", "size": "5GiB"})
    assert why in outcome.warnings[0]
    assert unused(world) == ["unused0: thick:vm-100-disk-0"]
    assert there(world, PLACE)


def test_a_disk_comes_back_to_a_protected_vm():
    world = World()
    killed(world, ["zfs", "rename"], ROOT, **LEAVES)
    protect(world)
    world.four_steps(ROOT, {"name": "data"})
    assert detached(world) == {}


# -- a disk that the guest has lost


def test_a_disk_that_qemu_lacks():
    """A guest gave it up too late, when the detach had failed."""
    world = World(running=True)
    world.done(ROOT, {"name": "data"})
    world.admin("pve-guest", "100", "deaf")
    assert "the guest has lost the disk" in world.converge(ROOT, **LEAVES).failure["message"]
    for check in (True, False):
        outcome = world.converge(ROOT, {"name": "data"}, check=check)
        assert "the running VM does not have data" in "".join(outcome.warnings)
    assert "cannot be told a size" in world.refusal({"name": "data", "size": "3GiB"})


def test_a_disk_that_was_destroyed_in_an_interrupted_run_leaves_the_record_though_the_next_run_fails_too():
    """Only the journal knows of it, until the record is written."""
    world = World()
    again = {"name": "data", "size": "2GiB", "recreate": True, "block_size": 4096}
    world.done({"name": "root"}, {"name": "data"})
    failed = Answer(1, "", "it has failed\n")
    fails = {"number": 0, "attached": False}

    def first(number, argv, real):
        return failed if argv[:2] == ["zfs", "create"] and argv[-1].startswith("rpool/data/") else real(argv)

    def second(number, argv, real):
        fails["attached"] |= argv[:2] == ["qm", "set"]
        if fails["attached"] and argv[:3] == ["zfs", "get", "-Hpr"] and not fails["number"]:
            fails["number"] = number
            return failed
        return real(argv)

    for spoil in (first, second):
        world.spoil = spoil
        assert world.converge({"name": "root"}, again).failure
    world.spoil = None
    assert fails["number"]
    world.done({"name": "root"}, again)
    assert sorted(one["name"] for one in record(world).values()) == ["data", "root"]
    assert world.vm().interrupted is None
