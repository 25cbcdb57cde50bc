# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""New disks on Proxmox VE: the volume is made with its identity, then qm gives it to the VM."""

from __future__ import annotations

import contextlib
import re

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import Answer
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.rules.identity import serial_of
from tests.unit.modules.test_modules import TOP, assert_documented, documentation

from .world import FILE, Killed, World, faults

NEW = {"name": "new", "size": "1GiB"}


@pytest.mark.parametrize("running", [False, True])
def test_a_disk_comes(running):
    """At the lowest free key of the bus of the VM, in the storage of its boot disk, sparse as that says."""
    world = World(running)
    world.four_steps(NEW, {"name": "scratch", "size": "512MiB", "pci_slot": "scsi4", "type": "thick"})
    new, scratch = world.disks()["new"], world.disks()["scratch"]
    assert (new.key, new.address, new.volume.name, new.type) == (
        "virtio1",
        "0:11:0",
        "rpool/data/vm-100-disk-1",
        "sparse",
    )
    assert (scratch.key, scratch.volume.name, scratch.type) == ("scsi4", "rpool/data/vm-100-disk-2", "thick")
    assert world.setting("virtio1") == f"local-zfs:vm-100-disk-1,serial={serial_of(new.uuid)},size=1G"
    if running:
        assert (world.plugged()["virtio1"], world.plugged()["scsi4"]) == (1024, 512)
    rest = [line for line in world.file.splitlines() if not line.startswith(("virtio1:", "scsi4:"))]
    assert rest == FILE.splitlines()


@pytest.mark.parametrize(("slot", "key"), [("virtio3", "virtio3"), ("0:13:0", "virtio3"), ("sata0", "sata0")])
def test_the_key_is_the_slot(slot, key):
    world = World()
    done = world.four_steps({**NEW, "pci_slot": slot})
    shown = next(disk for disk in done.vms[0]["disks"] if disk["name"] == "new")
    assert (shown["key"], shown["pci_slot"]) == (key, "0:13:0" if key == "virtio3" else "")
    assert world.setting(key)


def test_a_disk_keeps_its_key():
    """Whatever other disks come."""
    world = World()
    world.done(NEW)
    world.four_steps({"name": "new"}, {"name": "another", "size": "1GiB"})
    assert [world.disks()[name].key for name in ("root", "data", "new", "another")] == [
        "virtio0",
        "scsi1",
        "virtio1",
        "virtio2",
    ]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"pci_slot": "virtio0"}, "root (uuid aaaaaaaa-0000-4000-8000-000000000001) has pci_slot virtio0"),
        ({"pci_slot": "0:10:0"}, "has pci_slot virtio0"),
        ({"pci_slot": "virtio16"}, "the VM has no such place for disks"),
        ({"pci_slot": "0:20:0"}, "no disk of the VM can have this PCI address"),
        ({"pci_slot": "scsi2", "model": "virtio"}, "is no place for a disk of model virtio"),
        ({"model": "nvme"}, "model 'nvme' is not valid"),
        ({"type": "file"}, "type file is not supported"),
        ({"size": "60GiB", "type": "thick"}, "[InsufficientSpace]"),
        ({"name": "data", "pci_slot": "virtio7"}, "attaches and destroys disks, and changes nothing else"),
        ({"name": "data", "boot": True}, "attaches and destroys disks, and changes nothing else"),
    ],
)
def test_what_cannot_be(entry, why):
    assert why in World(pool_gib=50).refusal({**NEW, **entry})


def test_what_comes_only_while_the_vm_is_stopped():
    world = World(running=True)
    said = world.refusal({**NEW, "pci_slot": "sata0"})
    assert "sata0 is no slot for hot-plug" in said
    assert "allow_restart: true allows a shutdown and a start" in said
    world.file = FILE + "hotplug: network,usb\n"
    assert "virtio1 is no slot for hot-plug" in world.refusal(NEW)


def test_names_that_files_have_are_taken():
    """Of a disk that waits nowhere, of an unused one, and of one that does not exist."""
    world = World()
    world.file = FILE + "unused0: local-zfs:vm-100-disk-2\nefidisk0: local-zfs:vm-100-disk-1\n"
    world.write("nodes/pve1/qemu-server/101.conf", "name: other\nscsi0: local-zfs:vm-100-disk-3,size=1G\n")
    world.done(NEW)
    assert world.disks()["new"].volume.name == "rpool/data/vm-100-disk-4"


ERRORS = {
    "VM is locked (backup)": "InUse",
    "checksum mismatch (file change by other user?)": "Changed",
    "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout": "Busy",
    "": "NotApplied",
}


@pytest.mark.parametrize("status", [0, 255])
@pytest.mark.parametrize("text", ERRORS)
def test_qm_has_not_attached_it(text, status):
    """The volume stays, with its identity, and the next run goes on with it."""
    world = World()
    world.spoil = lambda number, argv, real: Answer(status, "", text + "\n") if argv[0] == "qm" else real(argv)
    failure = world.converge(NEW).failure
    assert failure["error_code"] == (ERRORS[text] if text or not status else "QmFailed")
    assert text in failure["message"]
    world.spoil = None
    world.done(NEW)
    assert world.disks()["new"].volume.name == "rpool/data/vm-100-disk-1"
    assert not world.converge(NEW).changed


def test_a_guest_without_a_free_slot():
    """The disk that qm has left pending is taken back, so that nothing attaches it by the way."""
    world = World(running=True)

    def spoil(number, argv, real):
        if argv[:2] != ["qm", "set"] or "--revert" in argv:
            return real(argv)
        world.file += f"[PENDING]\n{argv[3][2:]}: {argv[4]},size=1G\n"
        return Answer(255, "", "virtio1: hotplug problem - error on hotplug device 'virtio1'\n")

    world.spoil = spoil
    assert "hotplug problem" in world.converge(NEW).failure["message"]
    assert "[PENDING]" not in world.file
    assert world.setting("unused0") == "local-zfs:vm-100-disk-1"
    world.spoil = None
    world.done(NEW)
    assert (world.setting("unused0"), world.plugged()["virtio1"]) == ("", 1024)


def picture(world):
    """What is to be the same however often it was interrupted. The UUID of a new disk is anybody's guess."""
    vm = world.vm()
    disks = {d.name: (d.volume.name, d.size, d.key, d.volume.refreservation, d.vm) for d in vm.disks}
    serials = [serial_of(d.uuid) in world.setting(d.key) for d in vm.disks]
    file = re.sub(r"serial=[0-9a-f]{20}", "serial=", world.file)
    return disks, serials, file, world.plugged() if world.running else {}, vm.interrupted, vm.orphans


@pytest.mark.parametrize("running", [False, True])
def test_interrupted_at_every_command(running):
    """Nothing is made twice, nothing waits anywhere, and no volume is left over."""
    wanted = ({**NEW, "pci_slot": "scsi2" if running else "virtio1"},)
    straight = World(running)
    straight.done(*wanted)
    found = [*faults(lambda: World(running), *wanted)]
    assert len(found) > 25
    for fault in found:
        world = World(running)
        fault(world)
        with contextlib.suppress(Killed):
            assert world.converge(*wanted).problems == []
        world.spoil = None
        world.done(*wanted)
        assert picture(world) == picture(straight), fault
        assert not world.converge(*wanted).changed


def test_a_disk_that_qemu_does_not_have_is_no_disk():
    """The file says so, and QEMU has lost it since."""
    world = World(running=True)
    blocks = world._blocks
    world._blocks = lambda path: [one for one in blocks(path) if "virtio1" not in one.parts]
    assert "the running QEMU does not have virtio1" in world.converge(NEW).failure["message"]


def test_results_are_documented(pve):
    result = pve("vm_disks", vms=[{"vm": "web", "unlisted": "keep", "disks": [NEW]}])
    assert not result.get("failed")
    assert {disk["key"] for disk in result["vms"][0]["disks"]} == {"virtio0", "virtio1", "scsi1"}
    assert_documented({key: result[key] for key in set(result) - TOP}, documentation("vm_disks", "RETURN"))
