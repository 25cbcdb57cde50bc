# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Snapshots of VMs of Proxmox VE have all volumes that the VM names: those of its firmware and of other VMs, too."""

from __future__ import annotations

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.engine.modules import vm_snapshot
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.desired import (
    Keep,
    Policy,
    SnapshotDeclaration,
)

from .test_rollback import killed
from .test_snapshots import DATA, ROOT, Snapshots

OTHER, EFI = "tank/vms/vm-101-disk-0", "rpool/data/vm-100-disk-1"
DB = "cccccccc-0000-4000-8000-000000000009"


def other_vm(world, line):
    text = f"boot: order=scsi0\nname: db\nscsihw: virtio-scsi-single\nsmbios1: uuid={DB}\n{line}\n"
    world.write("nodes/pve1/qemu-server/101.conf", text)


def added(world, line):
    """Write a line into the main section of the VM."""
    world.file = world.file.replace("scsihw:", f"{line}\nscsihw:", 1)


# -- volumes of other VMs


@pytest.fixture
def shared():
    """A VM that names a volume of another one, with a snapshot that somebody has taken by qm."""
    world = Snapshots()
    world.done({"name": "data"})
    world.volume(OTHER, "1G")
    added(world, "scsi2: thick:vm-101-disk-0,size=1G")
    world.run("qm", "snapshot", "100", "one")
    other_vm(world, "scsi0: thick:vm-101-disk-0,size=1G")
    world.write_to(OTHER)
    world.write_to(ROOT)
    return world


@pytest.mark.parametrize(
    ("name", "state", "why"),
    [
        ("two", "present", "of whose data the snapshot would be taken, too"),
        ("one", "rolled_back", "whose data a rollback would take back"),
        ("one", "absent", "which may know the snapshot, too"),
    ],
)
def test_the_volume_of_another_vm(shared, name, state, why):
    """Nothing of it is touched, and both VMs are named."""
    said = shared.refused(name, state)
    assert f"{OTHER} is also attached to db ({DB}), {why}" in said
    assert shared.run("zfs", "get", "-Hpo", "value", "written", OTHER) != "0\n"


@pytest.mark.parametrize("line", ["unused0: thick:vm-100-disk-0", "scsi0: thick:vm-100-disk-0,size=2G"])
def test_another_vm_has_a_volume_of_this_one(line):
    """In whatever way."""
    world = Snapshots()
    world.done({"name": "data"})
    world.made()
    world.write_to(DATA)
    world.volume(OTHER, "1G")
    other_vm(world, f"{line}\nscsi1: thick:vm-101-disk-0,size=1G")
    for name, state in (("two", "present"), ("one", "rolled_back"), ("one", "absent")):
        said = world.refused(name, state)
        assert f"{DATA} is also attached to db ({DB})" in said


@pytest.mark.parametrize(("name", "state"), [("two", "present"), ("one", "rolled_back"), ("one", "absent")])
def test_a_volume_that_is_called_after_another_vm(shared, name, state):
    """It belongs to that VM for Proxmox VE, whether there is one or not."""
    (shared.files / "etc/pve/nodes/pve1/qemu-server/101.conf").unlink()
    assert f"{OTHER} is called after VM 101, whose it is for Proxmox VE" in shared.refused(name, state)
    shared.volume("tank/vms/vm-101-disk-1", "1G")
    other_vm(shared, "scsi0: thick:vm-101-disk-1,size=1G")
    assert f"{OTHER} is called after VM 101 (db ({DB})), whose it is" in shared.refused(name, state)


def test_keep_leaves_them(shared):
    outcome = shared.made("", "absent", keep=Keep(names=("one*", "x*")))
    assert outcome.warnings == []
    shared.run("qm", "snapshot", "100", "one2")
    outcome = shared.made("", "absent", keep=Keep(last=1, names=("one*",)))
    (warning,) = outcome.warnings
    assert f"keep leaves snapshot one: {OTHER} is also attached to db" in warning
    assert shared.sections == ["one", "one2"]


# -- disks of the firmware


@pytest.fixture
def efi():
    world = Snapshots()
    world.volume(EFI, "4M", "", "", "-s")
    world.file = world.file.replace("ide2:", "efidisk0: local-zfs:vm-100-disk-1,efitype=4m,size=4M\nide2:")
    world.done({"name": "data"})
    return world


def test_a_disk_of_the_firmware_is_in_snapshots(efi):
    """They are taken, kept and deleted with it, and results say so."""
    outcome = efi.steps("daily1")
    assert outcome.warnings == []
    assert outcome.vms[0]["snapshots"][0]["disks"] == ["root", "data", "efidisk0"]
    assert "+ snapshot daily1 of 3 disks" in outcome.diff
    assert efi.parts("daily1") == [f"{ROOT}@daily1", f"{EFI}@daily1", f"{DATA}@daily1"]
    assert ", 3 snapshots destroyed" in efi.steps("daily2", keep=Keep(last=1)).diff
    assert efi.sections == ["daily2"]
    efi.steps("daily2", "absent")
    assert efi.parts("daily2") == []


def test_only_a_disk_of_the_firmware_has_changed(efi):
    efi.made()
    efi.run("guest", "write", EFI, "0", "1", "x")
    outcome = efi.steps(state="rolled_back")
    assert outcome.warnings == []
    assert efi.run("zfs", "get", "-Hpo", "value", "written", EFI) == "0\n"


def test_a_snapshot_of_somebody_else_on_a_disk_of_the_firmware(efi):
    """It prevents a new one of its name, and a rollback."""
    efi.made()
    efi.run("zfs", "snapshot", f"{EFI}@two")
    assert f"{EFI}@two is there already, and is none of the VM's" in efi.refused("two")
    efi.write_to(ROOT)
    assert f"1 snapshot is newer than one: {EFI}@two; zfs destroy {EFI}@two" in efi.refused(state="rolled_back")


@pytest.mark.parametrize("torn", range(9))
def test_a_rollback_with_a_disk_of_the_firmware_is_interrupted(efi, torn):
    """Before qm, or after each of its steps. The same task ends it."""
    efi.made()
    for volume in (ROOT, DATA):
        efi.write_to(volume)
    efi.run("guest", "write", EFI, "0", "1", "x")
    killed(efi, torn)
    if "lock: " in efi.file:
        assert "qm unlock 100, and then the same rollback again, end it" in efi.refused(state="rolled_back")
        efi.run("qm", "unlock", "100")
    efi.steps(state="rolled_back")
    assert [efi.run("zfs", "get", "-Hpo", "value", "written", one) for one in (ROOT, DATA, EFI)] == ["0\n"] * 3
    assert efi.vm().interrupted is None


# -- volumes that are not there, or there twice


@pytest.mark.parametrize("volume", [EFI, DATA])
def test_a_volume_is_missing(efi, volume):
    key = "efidisk0" if volume == EFI else "scsi1"
    efi.run("zfs", "destroy", volume)
    said = efi.refused()
    assert f"there is no {volume}, the volume of {key}; qm set 100 --delete {key} takes the disk out" in said


def test_a_volume_at_two_keys():
    world = Snapshots()
    added(world, "scsi3: thick:vm-100-disk-0,size=2G")
    assert f"scsi1 and scsi3 have the same volume {DATA}" in world.refused()


def test_a_disk_that_came_after_the_snapshot(efi):
    """A snapshot of this name is there, and has what the VM was then."""
    efi.made()
    efi.done({"name": "logs", "size": "1GiB"})
    assert not efi.made().changed


def test_a_task_for_one_pool(efi):
    """A VM that boots from it is read with its disks in all pools."""
    efi.made()
    efi.write_to(DATA)

    def go(name, state):
        spec = SnapshotDeclaration(state, name, None, (), None, ())
        outcome = vm_snapshot.run(efi.zfs, efi.driver, ["web"], spec, Policy(), "rpool", False, int(efi.node.now()))
        assert (outcome.problems, outcome.failure) == ([], None)

    written = ("zfs", "get", "-Hpo", "value", "written", DATA)
    assert efi.run(*written).strip() != "0"
    go("one", "rolled_back")
    assert efi.run(*written).strip() == "0"
    go("two", "present")
    assert f"{DATA}@two" in efi.parts("two")
    go("two", "absent")
    assert efi.parts("two") == []
