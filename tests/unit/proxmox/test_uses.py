# Copyright (c) 2026, flexdisk.hypervisor contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A volume that anything may use on Proxmox VE is never taken for an unused one."""

from __future__ import annotations

import fcntl

import pytest

from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.hypervisor import pve_storage
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.command import changes
from ansible_collections.flexdisk.hypervisor.plugins.module_utils._flexdisk.model.errors import FlexdiskError

from .test_elsewhere import DATA_DISK, OTHER, other_file, with_other
from .test_leaving import GONE, LEAVES, ROOT, there
from .test_lost import NAMES, VOLUME, foreign
from .test_registry import task
from .world import STORAGE, World

RENAMED = STORAGE.replace("zfspool: thick", "zfspool: slick")
REMOVED = STORAGE.partition("\nzfspool: thick")[0]
SMALLER = {"name": "data", "size": "1GiB", "dangerous_allow_shrink": True}
SIZED = {"name": "data", "size": "2GiB"}
PATHS = [
    f'args: -drive "file=/dev/zvol/{VOLUME}"',
    f"args: -drive 'file=/dev/zvol/{VOLUME},if=none'",
    f'args: -blockdev \'{{"driver":"host_device","filename":"/dev/zvol/{VOLUME}"}}\'',
    'args: -blockdev \'{"filename":"\\/dev\\/zvol\\/tank\\/vms\\/vm-100-disk-0"}\'',
    f"args: -drive file=/dev/zvol/{VOLUME}:ro",
    f"args: -drive file=/dev//zvol/./{VOLUME}",
    f'args: -drive if=none,file="/dev/{VOLUME}"',
    f"args: -drive file=/proc/1/root/dev/zvol/{VOLUME}-part2",
    "args: -drive file=/somewhere/else/vm-100-disk-0",
    "args: -drive file=old:vm-100-disk-0",
]


def give_other(world, *lines):
    """Add lines to the file of VM 101."""
    text = "boot: order=scsi0\nname: other\nscsi0: local-zfs:vm-101-disk-0,size=1G\nscsihw: virtio-scsi-single\n"
    more = "".join(f"{line}\n" for line in lines)
    world.write("nodes/pve1/qemu-server/101.conf", f"{text}smbios1: uuid={OTHER}\n{more}")


@pytest.mark.parametrize("line", PATHS)
def test_a_path_in_any_form(line):
    storages = pve_storage.parse_storages(STORAGE)
    assert VOLUME in [one.dataset for one in pve_storage.mentioned(storages, line)]


def test_what_names_a_volume_of_another_kind_is_no_use():
    storages = pve_storage.parse_storages(STORAGE + "\nlvmthin: lvm\n\tvgname pve\n")
    for text in ("lvm:vm-100-disk-0", "/dev/pve/vm-100-disk-0", "local-zfs:subvol-100-disk-0"):
        assert VOLUME not in [one.dataset for one in pve_storage.mentioned(storages, text)]
    assert pve_storage.mentioned(storages, "thick:vm-100-disk-0,size=2G") == [pve_storage.Mention(VOLUME)]


@pytest.mark.parametrize("line", [PATHS[2], "scsi3: old:vm-100-disk-0,size=2G"])
@pytest.mark.parametrize("unused", [True, False])
def test_a_disk_that_another_vm_may_use(line, unused):
    """By a path in quotes, or by a storage that the cluster does not have."""
    world = with_other()
    world.done(ROOT, DATA_DISK)
    if unused:
        world.run("qm", "set", "100", "--delete", "scsi1")
    give_other(world, line)
    for disks in ((ROOT, GONE), (ROOT, SMALLER)):
        assert "other (cccccccc-" in world.refusal(*disks)


def test_arguments_of_its_own_that_would_not_follow():
    world = World()
    world.done(ROOT, DATA_DISK)
    world.file = world.file.replace("cores: 2", PATHS[2] + "\ncores: 2")
    for disks, more in (((ROOT, GONE), {}), ((ROOT,), LEAVES)):
        assert "in args, which would not follow" in world.refusal(*disks, **more)


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("storages", [RENAMED, RENAMED.replace("slick", "alias")])
def test_a_disk_whose_storage_was_renamed_is_in_use(storages, running):
    """Renamed in storage.cfg, or that of two storages of one dataset which the line has was removed."""
    world = World()
    world.done(ROOT, {"name": "data", "preserve": True})
    if running:
        world.run("qm", "start", "100")
    world.write("storage.cfg", storages)
    for disks in ((ROOT, DATA_DISK), (ROOT, SMALLER), (ROOT, GONE)):
        assert "also used by web (cccccccc-0000-4000-8000-000000000001) perhaps, as scsi1" in world.refusal(*disks)
    before = world.fingerprint()
    for unlisted in ("detach", "destroy"):
        assert not world.done(ROOT, vm={"unlisted": unlisted}).changed
    assert world.fingerprint() == before
    world.done({"name": "root", "size": "5GiB"})


def test_no_new_volume_is_called_as_one_of_a_storage_that_is_not_there():
    world = World()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.file = world.file.replace("scsi1: thick:vm-100-disk-0", "scsi1: old:vm-100-disk-1")
    world.done(ROOT, {"name": "new", "size": "1GiB"})
    assert world.disks()["new"].volume.name == "rpool/data/vm-100-disk-2"


@pytest.mark.parametrize("unused", [True, False])
@pytest.mark.parametrize("serial", ["", "MYDISK"])
def test_a_disk_without_a_serial_of_ours_whose_storage_was_removed(serial, unused):
    """Nobody knows which disk it is. No new one takes its name."""
    world = foreign(serial)
    world.done(ROOT, {**NAMES, "preserve": True})
    if unused:
        world.run("qm", "set", "100", "--delete", "scsi1")
    world.write("storage.cfg", REMOVED)
    assert "thick:vm-100-disk-0" in world.refusal(ROOT, SIZED)


# -- what a running VM has open, and its file does not say


@pytest.fixture(params=["scsi1", "virtio1"])
def plugged(request):
    """A running VM with data, whose line somebody has taken out of the file by hand."""
    world = with_other()
    world.file = world.file.replace("scsi1:", f"{request.param}:")
    world.done(ROOT, {"name": "data"})
    world.run("qm", "start", "100")
    lines = world.file.splitlines(keepends=True)
    world.file = "".join(line for line in lines if not line.startswith(f"{request.param}:"))
    assert request.param in world.plugged()
    return world, request.param


def test_an_unused_volume_that_a_running_vm_has_open_is_not_touched(plugged):
    world, key = plugged
    text = f"{VOLUME} looks unused, but the running VM web (cccccccc-0000-4000-8000-000000000001) has it as {key}"
    tasks = [
        ((ROOT, DATA_DISK), {}),
        ((ROOT, SMALLER), {}),
        ((ROOT, {"name": "data", "pci_slot": "virtio4"}), {}),
        ((ROOT, GONE), {}),
        ((ROOT,), LEAVES),
    ]
    for disks, more in tasks:
        assert f"data: {text}; a stop and a start of that VM ends this [InUse]" in world.refusal(*disks, **more)
    for state in ("attached", "detached"):
        predicted = task(world, {"name": "data", "vm": "web", "state": state}, check=True)
        assert text in predicted.problems[0].message
    world.run("qm", "stop", "100")
    world.four_steps(ROOT, SMALLER)


def test_a_disk_that_another_running_vm_has_open_is_not_taken():
    """Its line was taken out of the file of that VM by hand. That guest would lose its data, or write into ours."""
    world = with_other()
    world.done(ROOT, DATA_DISK)
    world.run("qm", "start", "101")
    world.run("qm", "set", "101", "--scsi3", "thick:vm-100-disk-0")
    lines = other_file(world).splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("scsi3:"))
    world.write("nodes/pve1/qemu-server/101.conf", text)
    said = f"the running VM other ({OTHER}) has {VOLUME} open as scsi3, whatever its configuration says"
    for disks, more in (((ROOT, SMALLER), {}), ((ROOT, GONE), {}), ((ROOT,), LEAVES)):
        assert f"data: {said}; a stop and a start of that VM ends this [InUse]" in world.refusal(*disks, **more)
    world.four_steps({"name": "root", "size": "5GiB"})
    world.run("qm", "stop", "101")
    world.four_steps(ROOT, SMALLER)


NUMBERS = {
    "line": "scsi3: /dev/zd16,size=2G",
    "partition": "scsi3: /dev/zd16p1,size=2G",
    "args": "args: -drive file=/dev/zd16,if=none",
    "snapshot": "[before]\nscsi3: /dev/zd16,size=2G\nsnaptime: 1",
}


@pytest.mark.parametrize("form", sorted(NUMBERS))
@pytest.mark.parametrize("unused", [False, True])
def test_a_volume_that_is_named_by_the_number_of_its_device(form, unused):
    """Only the links of the host say which one that is."""
    world = with_other()
    world.done(ROOT, DATA_DISK)
    if unused:
        world.run("qm", "set", "100", "--delete", "scsi1")
    world.write("nodes/pve1/qemu-server/101.conf", other_file(world) + NUMBERS[form] + "\n")
    link = world.files / f"dev/zvol/{VOLUME}"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../../zd16")
    for disks, more in (((ROOT, GONE), {}), ((ROOT, SMALLER), {}), ((ROOT,), {"vm": {"unlisted": "destroy"}})):
        world.converge(*disks, **more)
        assert there(world, VOLUME)
        assert world.volsize(VOLUME) == 2048
    assert "other (" in world.refusal(ROOT, GONE)
    link.unlink()
    (world.files / "dev/zd16").write_text("")
    with pytest.raises(FlexdiskError, match=r"a VM has /dev/zd16, and no link in /dev/zvol says which volume that is"):
        world.converge(ROOT, GONE)


def test_no_new_disk_comes_to_a_place_that_a_running_vm_has_taken(plugged):
    world, key = plugged
    new = {"name": "new", "size": "1GiB", "pci_slot": key}
    assert f"the running VM still has a disk at {key}" in world.refusal(ROOT, new)


def test_a_vm_that_does_not_say_what_it_has_open(plugged):
    """Of a new disk, only its own VM must be asked."""
    world, _key = plugged
    world.run("qm", "start", "101")
    blocks = world._blocks

    def silent(path):
        return blocks(path) if "/100." in path else _nobody(path)

    world._blocks = silent
    assert "QEMU does not answer at" in world.refusal(ROOT, GONE)
    world.done(ROOT, {"name": "new", "size": "1GiB", "pci_slot": "virtio5"})


def _nobody(path):
    raise FlexdiskError("HypervisorUnreachable", f"QEMU does not answer at {path}")


# -- a volume that is used since the plan was made


def meanwhile(world, *argv):
    """Somebody does something when the run has begun to change the host."""
    done = []

    def spoil(_number, command, real):
        if changes(command) and not done:
            done.append(real(argv))
        return real(command)

    world.spoil = spoil
    return done


def unused_data(running=True):
    world = with_other()
    world.done(ROOT, {"name": "data", "preserve": True})
    world.run("qm", "set", "100", "--delete", "scsi1")
    for vmid in ("100", "101") if running else ():
        world.run("qm", "start", vmid)
    return world


@pytest.mark.parametrize("vmid", ["100", "101"])
@pytest.mark.parametrize("kind", ["attach", "detach", "destroy"])
def test_an_unused_disk_that_somebody_attaches_meanwhile(kind, vmid):
    """To its VM or to another one, after the plan was confirmed. It is neither cut off nor moved away."""
    world = unused_data()
    done = meanwhile(world, "qm", "set", vmid, "--scsi3", "thick:vm-100-disk-0")
    disks, more = {"attach": ((ROOT, SMALLER), {}), "detach": ((ROOT,), LEAVES), "destroy": ((ROOT, GONE), {})}[kind]
    outcome = world.converge(*disks, **more)
    assert [answer.rc for answer in done] == [0]
    assert outcome.failure["error_code"] == "Changed"
    assert (world.volsize(VOLUME), there(world, VOLUME)) == (2048, True)
    text = other_file(world) if vmid == "101" else world.file
    assert "scsi3: thick:vm-100-disk-0" in text
    assert (world.file + other_file(world)).count(":vm-100-disk-0,size=2G") == 1


def test_while_an_unused_disk_becomes_smaller_nothing_changes_its_vm():
    world = unused_data()
    held = []

    def spoil(_number, command, real):
        if any(word.startswith("volsize=") for word in command):
            held.append(pve_lock_is_held(world))
        return real(command)

    world.spoil = spoil
    world.done(ROOT, SMALLER)
    assert held == [True]


def pve_lock_is_held(world):
    with (world.files / "var/lock/qemu-server/lock-100.conf").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_vm_that_is_stopped_first_need_not_say_what_it_has_open():
    world = World(running=True)
    world._blocks = _nobody
    new = {"name": "new", "size": "1GiB", "pci_slot": "sata1"}
    assert world.done(ROOT, new, allow_restart=True).changed
    assert "QEMU does not answer at" in world.refusal(ROOT, {**new, "name": "other", "pci_slot": "virtio5"})
